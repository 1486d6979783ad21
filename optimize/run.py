"""What every step of one compile shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from data.agreement import Level, Statistic
from data.schema import Aspect
from data.splits import Splits
from optimize.settings import Settings
from runs.decisions import Question
from runs.scoring import Panel
from runs.tracking import Tracker


@dataclass(frozen=True)
class Run:
    """One compile on its way."""

    settings: Settings
    personas: Mapping[str, str]
    splits: Splits
    aspects: list[Aspect]
    statistic: Statistic
    level: Level
    panel: Panel
    tracker: Tracker
    identity: str
    """Fingerprint of settings, data and personas: equal identities give equal results."""
    questions: Mapping[str, Question] = field(default_factory=dict)
    """Aspect -> the decisions that the whole corpus calls for, where it does."""
