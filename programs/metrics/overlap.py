"""Reference metrics that count common words: ROUGE-L and BLEU, each by its usual library.

Metrics that need a model are in `programs/metrics/learned.py`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.programs.metrics.metric import KEPT, Metric

TOKENIZERS = ("13a", "intl", "char", "zh", "none")
"""Tokenizers of sacrebleu that need no further package: mteval-v13a, international, characters, Chinese, blanks."""


class RougeL(Metric):
    """ROUGE-L F1 (Lin 2004) with stemming, by `rouge-score`, from 0 to 1.

    Compared with the references, of which the best counts; without any with the context (a dialogue's fact), without
    that with the source.
    """

    kind = "rouge-l"
    packages = ("rouge-score",)

    def measure(self, text: str, others: tuple[str, ...]) -> float:
        return _rouge_l(text, others)

    def config(self) -> dict[str, Any]:
        return {}


class Bleu(Metric):
    """BLEU of one text (Papineni et al. 2002; Post 2018), by `sacrebleu`, from 0 to 100.

    Compared with all references together, as BLEU is defined; without any with the context (a dialogue's fact), without
    that with the source. It uses the effective order, so that texts of fewer than four words have a value, and
    sacrebleu's default smoothing. The mean over texts is not the BLEU of a corpus.
    """

    kind = "bleu"
    packages = ("sacrebleu",)
    settable = ("tokenize",)

    def __init__(self, tokenize: str = "13a") -> None:
        """`tokenize` is one of `TOKENIZERS`: `char` or `zh` for scripts without blanks between words."""
        super().__init__()
        if tokenize not in TOKENIZERS:
            raise InputError("unknown tokenizer", field="tokenize", expected=", ".join(TOKENIZERS), found=tokenize)
        self.tokenize = tokenize

    def measure(self, text: str, others: tuple[str, ...]) -> float:
        return _bleu(self.tokenize, text, others)

    def config(self) -> dict[str, Any]:
        return {"tokenize": self.tokenize}


@lru_cache(maxsize=KEPT)
def _rouge_l(text: str, others: tuple[str, ...]) -> float:
    return float(_rouge_scorer().score_multi(others, text)["rougeL"].fmeasure)


@lru_cache(maxsize=1)
def _rouge_scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], use_stemmer=True)


@lru_cache(maxsize=KEPT)
def _bleu(tokenize: str, text: str, others: tuple[str, ...]) -> float:
    return float(_bleu_scorer(tokenize).sentence_score(text, list(others)).score)


@lru_cache(maxsize=len(TOKENIZERS))
def _bleu_scorer(tokenize: str) -> Any:
    from sacrebleu.metrics import BLEU

    return BLEU(effective_order=True, tokenize=tokenize)
