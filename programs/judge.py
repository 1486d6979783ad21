"""What a judge is asked and what it answers. No LM, no file and no statistic is known here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from data.schema import Aspect, Corpus, Granularity, RatedGroup, Task, fingerprint
from programs.transcript import Transcript, UnscoredReason

StopReason = Literal["single call", "no issue", "rounds over", "tie-breaker", "agreement"]
"""Why a judge stopped: nobody criticised, the Critic was content, n rounds passed, the Tie-breaker decided."""


@dataclass(frozen=True, slots=True)
class Item:
    """One question to a judge: how good is this candidate in this aspect?"""

    group: str
    candidate: str
    task: Task
    aspect: Aspect
    source: str
    text: str
    context: str = ""

    @property
    def key(self) -> str:
        """Identity of the question itself: equal for equal texts, whatever group or candidate they carry."""
        return fingerprint(
            [self.task.name, self.aspect.name, self.aspect.definition, self.source, self.context, self.text]
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """A score on the aspect's scale, with how it came about."""

    score: float
    rounds: int
    """Completed rounds: Critic replies that were heard, at most n."""
    stop_reason: StopReason
    calls: int
    """LM calls that this verdict needs, cached or not."""
    transcript: Transcript = field(repr=False)


@dataclass(frozen=True, slots=True)
class Unscored:
    """No score, and why. Never 0, never NaN."""

    reason: UnscoredReason
    detail: str
    calls: int
    transcript: Transcript = field(repr=False)


Judgement = Verdict | Unscored


def in_granularity(judgement: Judgement, item_scale: Aspect, granularity: Granularity) -> float | None:
    """The reported score, or None when there is none. Applied to a finished judgement: it costs no LM call."""
    if isinstance(judgement, Unscored):
        return None
    return item_scale.scale.at(judgement.score, granularity)


def items_of(corpus_task: Task, group: RatedGroup, aspect: Aspect) -> list[Item]:
    """One item per candidate of the group, in candidate order."""
    return [
        Item(group.id, c.id, corpus_task, aspect, group.source, c.text, group.context) for c in group.candidates
    ]


def corpus_items(corpus: Corpus, aspect: Aspect) -> list[Item]:
    """All items of one aspect, in corpus order."""
    return [item for group in corpus.groups for item in items_of(corpus.task, group, aspect)]
