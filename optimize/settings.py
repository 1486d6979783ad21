"""Everything that a compile depends on, as one frozen value; flags and TOML keys follow from its fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from debate_judge.data.errors import InputError
from debate_judge.data.schema import fingerprint
from debate_judge.optimize.tuners import TUNERS
from debate_judge.programs import JUDGES
from debate_judge.runs.flags.common import DataFlags, JsonFile, Resamples, Seed, Store, Unscored
from debate_judge.runs.flags.declared import ASIDE, Flag, command_settings, deciding, flag_group, unknown_name
from debate_judge.runs.flags.judge import JudgeOptionFlags, PersonaFile
from debate_judge.runs.flags.lm import LimitFlags, LMFlags

EFFORTS: dict[str, tuple[int, int]] = {"light": (2, 8), "medium": (6, 20), "heavy": (12, 50)}
"""Effort -> (instructions that the LM proposes per role, candidate programs that the tuner evaluates)."""


def _run_name(name: str) -> str:
    if not re.fullmatch(r"[\w.+-]+", name):
        raise InputError("not a name for a run and its folder", expected="letters, digits, . _ + -")
    return name


@flag_group("judge")
class JudgeFlags:
    """The judge that is compiled."""

    judge: Annotated[str, Field(description=", ".join(JUDGES))] = "debate"
    personas: PersonaFile = None
    max_unscored: Unscored = 0.2


@flag_group("optimization")
class SearchFlags:
    """How instructions are tuned, and what is searched and chosen on dev."""

    tuner: Annotated[str, Field(description=", ".join(TUNERS))] = "mipro"
    effort: Annotated[Literal["light", "medium", "heavy"], Field(description="of the tuner")] = "light"
    trials: Annotated[
        int, Field(ge=1, description="points that the search over n and the rest may visit, per aspect")
    ] = 40
    max_rounds: Annotated[int, Field(ge=0, description="longest debate to consider; 0 is a single call")] = 3
    objective: Annotated[Literal["spearman", "pearson", "kendall"], Field(description="correlation to choose by")] = (
        "spearman"
    )
    level: Annotated[
        Literal["auto", "summary", "sample"],
        Field(description="agreement to choose by: within groups (summary) or pooled (sample)"),
    ] = "auto"
    tolerance: Annotated[float, Field(ge=0, description="dev agreement that may be given up for fewer LM calls")] = 0.02
    shared: Annotated[bool, Field(description="one judge for all aspects together")] = False
    seed: Seed = 0
    resamples: Annotated[Resamples, Field(ge=100)] = 10_000


@flag_group("tracking and output")
class OutputFlags:
    """Where a compile leaves what it made."""

    name: Annotated[str | None, AfterValidator(_run_name), Field(description="of the run and its export"), ASIDE] = None
    tracking_uri: Annotated[
        str | None,
        Field(description="MLflow server; an embedded store under --store by default"),
        Flag(metavar="URL", decides=False),
    ] = None
    store: Store = "runs/store"
    json: JsonFile = None


@command_settings
class Settings(DataFlags, JudgeFlags, JudgeOptionFlags, LMFlags, LimitFlags, SearchFlags, OutputFlags):
    """Settings of one compile.

    Raises:
        InputError: A value cannot be used.
    """

    def identity(self) -> str:
        """Fingerprint of what decides the result; where things are stored and shown does not."""
        return fingerprint(deciding(self))


def one_of(field: str, value: str, known: Sequence[str]) -> None:
    """Refuse a name that is not known, and name the nearest one.

    Raises:
        InputError: `value` is not in `known`.
    """
    if value not in known:
        raise unknown_name(field.replace("_", " "), "--" + field.replace("_", "-"), value, tuple(known))
