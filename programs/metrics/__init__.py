"""Reference metrics behind the judge contract, so that tables can show them: ROUGE-L, BLEU, BERTScore, BARTScore.

Uses the judge contract and the metrics' own libraries, imported on use; asks no LM.
"""
