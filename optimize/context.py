"""What every step of one compile shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from debate_judge.data.agreement.decisions import Question
from debate_judge.data.agreement.tables import Level, Statistic
from debate_judge.data.schema import Aspect
from debate_judge.data.splits import Splits
from debate_judge.optimize.settings import Settings
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.tracking.tracker import Tracker


@dataclass(frozen=True)
class Run:
    """One compile on its way."""

    settings: Settings
    personas: Mapping[str, str]
    splits: Splits
    aspects: list[Aspect]
    statistic: Statistic
    level: Level
    runner: JudgeRunner
    tracker: Tracker
    identity: str
    """Fingerprint of settings, data and personas: equal identities give equal results."""
    questions: Mapping[str, Question] = field(default_factory=dict)
    """Aspect -> the decisions that the whole corpus calls for, where it does."""
