"""The rows of the table of judgements, judge x item, and the rows of one judge with their LM usage."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from debate_judge.data.agreement.tables import GroupScores
from debate_judge.programs.judge import Judgement, Unscored
from debate_judge.programs.lm.prices import Price
from debate_judge.runs.runner.judge_usage import JudgeUsage
from debate_judge.runs.runner.runner import calls_per_item

Scores = Mapping[str, Sequence[GroupScores]]
"""Aspect -> the scores of one judge."""


@dataclass(frozen=True, slots=True)
class JudgementRow:
    """A judge's score of one item, with the ratings."""

    judge: str
    group: str
    candidate: str
    aspect: str
    ratings: tuple[float, ...]
    """One per rater."""
    score: float | None
    """As the judge reports it; None where it left the item unscored."""
    judgement: Judgement | None = field(default=None, repr=False)
    """The judge's answer; None for scores from a file."""
    source: str = field(default="", repr=False)
    """Identifier of the source, equal for all groups of one source (`GroupScores.source`)."""


def scores_of(rows: Iterable[JudgementRow]) -> dict[str, list[GroupScores]]:
    """Aspect -> the rows of one judge by group; aspects and groups in the order of the rows."""
    by_aspect: dict[str, dict[str, list[JudgementRow]]] = {}
    for row in rows:
        by_aspect.setdefault(row.aspect, {}).setdefault(row.group, []).append(row)
    return {
        aspect: [_group(name, group_rows) for name, group_rows in groups.items()]
        for aspect, groups in by_aspect.items()
    }


def _group(name: str, rows: Sequence[JudgementRow]) -> GroupScores:
    return GroupScores(
        name,
        tuple(row.candidate for row in rows),
        tuple(math.fsum(row.ratings) / len(row.ratings) if row.ratings else None for row in rows),
        tuple(row.score for row in rows),
        tuple(row.ratings for row in rows),
        rows[0].source,
    )


@dataclass(frozen=True)
class EvaluatedJudge:
    """The rows of one judge, and the LM tokens that it used."""

    rows: tuple[JudgementRow, ...] = field(repr=False)
    """Aspect by aspect, in corpus order."""
    usage: JudgeUsage | None = None
    """Tokens of the calls for `rows`; None for scores from a file."""
    items: int = 0
    """Number of distinct items that `usage` covers."""
    note: str | None = None
    """For the legend of the table."""
    on_scale: bool = True
    """Whether the scores lie on the scales of the aspects."""
    together: int = 1
    """Most candidates of a source that share a call."""
    lm: str = ""
    """PROVIDER/MODEL, or offline; empty for scores from a file."""
    price: Price | None = None
    """Of the LM, if it is known."""
    compiled_on: int = 0
    """Number of these groups that the judge was tuned or chosen on: agreement on them is no evidence."""

    @cached_property
    def scores(self) -> dict[str, list[GroupScores]]:
        """Aspect -> scores and ratings by group."""
        return scores_of(self.rows)

    @cached_property
    def judgements(self) -> dict[str, list[Judgement]]:
        """Aspect -> the judge's answers in corpus order; empty for scores from a file."""
        by_aspect: dict[str, list[Judgement]] = {}
        for row in self.rows:
            if row.judgement is not None:
                by_aspect.setdefault(row.aspect, []).append(row.judgement)
        return by_aspect

    @cached_property
    def calls(self) -> float | None:
        """LM calls per item, including replies from the store; None for scores from a file."""
        judgements = [row.judgement for row in self.rows if row.judgement is not None]
        return calls_per_item(judgements) if judgements else None

    @cached_property
    def unscored(self) -> dict[str, int]:
        """Reason -> number of items without a score."""
        reasons = Counter(
            row.judgement.reason if isinstance(row.judgement, Unscored) else "not in the file"
            for row in self.rows
            if isinstance(row.judgement, Unscored) or (row.judgement is None and row.score is None)
        )
        return {str(reason): count for reason, count in sorted(reasons.items())}

    @property
    def seconds_per_item(self) -> float | None:
        """How long the LM took for an item, one call after the other; None where the time of a call is not known."""
        known = self.usage is not None and self.items and not self.usage.untimed
        return self.usage.seconds / self.items if known and self.usage is not None else None

    @property
    def usd_per_thousand(self) -> float | None:
        """US dollars for a thousand items if this judge ran alone; None where the price is unknown."""
        if self.calls == 0:
            return 0.0
        if self.price is None or self.usage is None or not self.items:
            return None
        return 1000 * self.usage.usd(self.price) / self.items
