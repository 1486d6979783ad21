"""The scores of one judge on a corpus, with its answers and the LM usage behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from debate_judge.data.agreement.tables import GroupScores
from debate_judge.programs.judge import Judgement, Unscored
from debate_judge.programs.lm.prices import Price
from debate_judge.runs.runner.judge_usage import JudgeUsage
from debate_judge.runs.runner.runner import calls_per_item

Scores = Mapping[str, Sequence[GroupScores]]
"""Aspect -> the scores of one judge."""


@dataclass(frozen=True)
class EvaluatedJudge:
    """One judge on a corpus."""

    scores: Scores
    """Aspect -> scores and ratings by group, in corpus order."""
    judgements: Mapping[str, Sequence[Judgement]] = field(default_factory=dict, repr=False)
    """Aspect -> its answers in the order of `programs.judge.corpus_items`; empty for scores from a file."""
    usage: JudgeUsage | None = None
    """Tokens of its calls; None where they were not counted for this judge."""
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

    @property
    def calls(self) -> float | None:
        """LM calls per item, including replies from the store; None for scores from a file."""
        judgements = list(chain.from_iterable(self.judgements.values()))
        return calls_per_item(judgements) if judgements else None

    @cached_property
    def unscored(self) -> dict[str, int]:
        """Reason -> number of items without a score."""
        answers = chain.from_iterable(self.judgements.values())
        reasons = Counter(str(judgement.reason) for judgement in answers if isinstance(judgement, Unscored))
        if not self.judgements:
            groups = chain.from_iterable(self.scores.values())
            missing = sum(score is None for group in groups for score in group.scores)
            reasons.update({"not in the file": missing} if missing else {})
        return dict(sorted(reasons.items()))

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
