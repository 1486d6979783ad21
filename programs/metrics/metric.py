"""Reference metrics: they ask no LM, and have the same value for every aspect.

ROUGE-L and BLEU count common words, each by its usual library; those that need a model are in `learned.py`. All metrics
compute in one thread, one text after the other: neither a slow metric nor the loading of a model blocks debates, and
libraries that are not thread-safe can be used.
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
import os
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from typing import Any

from debate_judge.data.errors import InputError, install_hint
from debate_judge.programs.judge import Item, ItemJudge, Judge, Verdict
from debate_judge.programs.option_values import one_of
from debate_judge.programs.transcript import EMPTY, Failure, Transcript, Turn

KEPT = 8192
"""Values that each metric caches: the same text is scored once for each aspect."""


class Metric(ItemJudge):
    """Compares a candidate with other texts. The value is on the metric's own scale and not on the aspect's.

    Raises:
        InputError: On construction, if the packages that it needs are not installed.
    """

    on_scale = False

    def __init__(self) -> None:
        super().__init__()
        if missing := absent(self.packages):
            problem = f"the judge {self.kind!r} needs {', '.join(missing)}, not installed here"
            raise InputError(problem, remedy=install_hint("metrics"))

    def config(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.settable}

    @abstractmethod
    def measure(self, text: str, others: tuple[str, ...]) -> float:
        """The value of `text` against `others`, which are at least one; called in the metrics' own thread."""

    def against(self, item: Item) -> tuple[str, ...]:
        """The texts to compare the candidate with: references; without any the context, without that the source."""
        references = tuple(r for r in item.references if r.strip())
        return references or (item.context if item.context.strip() else item.source,)

    async def converse_about(self, item: Item, rounds: int) -> Transcript:
        """One turn with the value and no text. If the metric fails on a text, only this item is unscored."""
        if not item.text.strip():
            return EMPTY.add(Failure(self.kind, 0, "no text", "the candidate is empty", 0))
        others = self.against(item)
        if not any(other.strip() for other in others):
            # The value would be 0, which looks like a measured one.
            nothing = "there is no reference, context or source to compare with"
            return EMPTY.add(Failure(self.kind, 0, "no text", nothing, 0))
        loop = asyncio.get_running_loop()
        try:
            value = await loop.run_in_executor(_worker(os.getpid()), self.measure, item.text, others)
        except InputError:
            # The model or the device cannot be used, which concerns all texts.
            raise
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
            return EMPTY.add(Failure(self.kind, 0, "metric error", detail, 0))
        if not math.isfinite(value):
            return EMPTY.add(Failure(self.kind, 0, "metric error", f"the value is {value}", 0))
        return EMPTY.add(Turn(self.kind, 0, "", score=value, calls=0))

    def read_verdict(self, transcript: Transcript, rounds: int) -> Verdict:
        """The value; no call ended here."""
        return replace(super().read_verdict(transcript, rounds), stop_reason="metric")

    def dry_run_copy(self) -> Judge:
        """A metric that computes nothing: a dry run counts LM calls, and a metric makes none."""
        return _Silent()


class _Silent(Metric):
    def measure(self, text: str, others: tuple[str, ...]) -> float:
        return 0.0


def absent(packages: Sequence[str]) -> tuple[str, ...]:
    """Those of the distributions that are not installed, found without importing them."""
    return tuple(name for name in packages if importlib.util.find_spec(name.replace("-", "_")) is None)


@lru_cache(maxsize=1)
def _worker(process: int) -> ThreadPoolExecutor:
    """The thread of the metrics, one for each process: a forked child inherits the executor but not its thread."""
    return ThreadPoolExecutor(1, thread_name_prefix="metrics")


# --- counts of common words ---

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
        one_of("tokenize", tokenize, TOKENIZERS)
        self.tokenize = tokenize

    def measure(self, text: str, others: tuple[str, ...]) -> float:
        return _bleu(self.tokenize, text, others)


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
