"""Reference metrics behind the judges' interface, so that a table can show them beside the judges.

They ask no LM. Each is a thin adapter over a kept library; what it compares with is said in its docstring.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from programs.judge import Item, Judge, Judgement, Verdict
from programs.transcript import Transcript, Turn


class RougeL(Judge):
    """ROUGE-L F1 (Lin 2004) with stemming, by `rouge-score`.

    Against the best of the references; where a source has none, against its context (a dialogue's fact), else
    against the source. It is the same number for every aspect, on 0 to 1 and not on the aspect's scale.
    """

    kind = "rouge-l"

    async def converse(self, item: Item, rounds: int) -> Transcript:
        value = _rouge_l(item.references or (item.context or item.source,), item.text)
        return Transcript((Turn(self.kind, 0, "", score=value, calls=0),))

    def verdict(self, transcript: Transcript, rounds: int) -> Judgement:
        score = transcript.turns[0].score
        if score is None:
            raise ValueError("a metric always has a score")
        return Verdict(score, 0, "single call", 0, transcript)

    def config(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> RougeL:
        return cls()


@lru_cache(maxsize=8192)
def _rouge_l(targets: tuple[str, ...], text: str) -> float:
    # A text is asked about once for each aspect, and the metric is the same for all of them.
    return float(_scorer().score_multi(targets, text)["rougeL"].fmeasure)


@lru_cache(maxsize=1)
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], use_stemmer=True)
