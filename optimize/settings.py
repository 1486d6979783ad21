"""Everything that a compile depends on, as one frozen value; flags and TOML keys follow from its fields."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator

from debate_judge.data.errors import InputError
from debate_judge.data.schema import fingerprint
from debate_judge.data.splits import FOLDS, MIN_SOURCES_FOR_SPLIT
from debate_judge.optimize.tuners import TUNERS
from debate_judge.runs.flags import command_settings, result_settings, setting
from debate_judge.runs.shared_flags import (
    CUT,
    JSON_FILE,
    MAX_UNSCORED,
    METRIC,
    PERSONAS_FILE,
    REPORT,
    SEED,
    STORE,
    DataFlags,
    JudgeOptionFlags,
    LimitFlags,
    LMFlags,
    MetricChoice,
    MetricText,
    objective_of,
)

EFFORTS: dict[str, tuple[int, int]] = {"light": (2, 8), "medium": (6, 20), "heavy": (12, 50)}
"""Effort -> (instructions that the LM proposes per role, candidate programs that the tuner evaluates)."""


def _run_name(name: str) -> str:
    if not re.fullmatch(r"(?!\.+\Z)[\w.+-]+", name):
        raise InputError("not a name for a run and its folder", expected="letters, digits, . _ + -")
    return name


@dataclass(frozen=True, kw_only=True)
class JudgeFlags:
    """The judge that is compiled."""

    judge: str = setting("debate", "single, debate, geval, chateval, ..., or module:Class")
    personas: str | None = PERSONAS_FILE
    max_unscored: float = MAX_UNSCORED


@dataclass(frozen=True, kw_only=True)
class SearchFlags:
    """How instructions are tuned, and what is searched and chosen."""

    tuner: str = setting("guide", f"DSPy optimizer: {', '.join(TUNERS)}, or module:Class", rare=True)
    reflection_lm: str | None = setting(
        None,
        "PROVIDER/MODEL that writes guides and instructions",
        metavar="LM",
        default_text="--lm",
        rare=True,
    )
    effort: Literal["light", "medium", "heavy"] = setting(
        "light", "light, medium or heavy: how much to spend on tuning and search", metavar="EFFORT"
    )
    trials: int | None = setting(None, "maximum number of trials", ge=1, default_text="by effort", rare=True)
    max_rounds: int = setting(2, "maximum rounds of a debate; 0: single calls only", ge=0, rare=True)
    metric: MetricText = METRIC
    cut: float | None = CUT
    examples: int | None = setting(
        None,
        "also try prompts with N rated examples, for every role or for the Critic alone",
        metavar="N",
        ge=1,
        rare=True,
    )
    folds: int | None = setting(
        None,
        "folds of the cross-validation; 1: a single split",
        ge=1,
        default_text=f"{FOLDS} below {MIN_SOURCES_FOR_SPLIT} sources, else 1",
        rare=True,
    )
    held_out: str | None = setting(
        None,
        "rated texts to measure on; --data is then split into train and dev only",
        metavar="FILE",
        rare=True,
    )
    seed: int = SEED


@dataclass(frozen=True, kw_only=True)
class OutputFlags:
    """Where the results of a compile are written."""

    name: Annotated[str, AfterValidator(_run_name)] | None = setting(
        None, "name of the run, the export and the registered model", affects_results=False
    )
    report: Literal["none", "plain", "full"] = REPORT
    store: str = STORE
    json: str | None = JSON_FILE
    verbose: bool = setting(False, "print all tables and log messages", affects_results=False)


@command_settings
class Settings(DataFlags, JudgeFlags, JudgeOptionFlags, LMFlags, LimitFlags, SearchFlags, OutputFlags):
    """Settings of one compile.

    Raises:
        InputError: A value cannot be used.
    """

    @property
    def metric_choice(self) -> MetricChoice:
        """The value of `--metric`: what the search maximizes, and its level."""
        return objective_of(self.metric)

    @property
    def reflection(self) -> tuple[str, str | None]:
        """The LM that writes guides and instructions, and its address, if one is set."""
        spec = self.reflection_lm or self.lm
        # `api_base` is the address of the judge's provider, and is not used for another one.
        same_provider = spec.partition("/")[0] == self.lm.partition("/")[0]
        return spec, self.api_base if same_provider else None

    def identity(self) -> str:
        """Fingerprint of the settings that determine the result; settings of the output do not."""
        return fingerprint(result_settings(self))
