"""Reference metrics as judges, to compare them with the others: ROUGE-L, BLEU, BERTScore, BARTScore.

Uses the judge contract and the metrics' own libraries, imported on use; asks no LM.
"""
