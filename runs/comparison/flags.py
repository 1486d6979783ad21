"""Settings of a comparison: what is scored, by which judges, and how the table and the ablations look."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from debate_judge.programs import JUDGES
from debate_judge.runs.flags.common import DataFlags, JsonFile, Resamples, Seed, Store
from debate_judge.runs.flags.declared import Flag, command_settings, flag_group
from debate_judge.runs.flags.judge import JudgeOptionFlags, PersonaFile
from debate_judge.runs.flags.lm import EstimateFlags, LimitFlags, LMFlags


@flag_group("data")
class PartFlags:
    """Which groups of a rated corpus are scored."""

    part: Annotated[Literal["held-out", "all"], Field(description="which groups")] = "held-out"
    seed: Seed = 0


@flag_group("judges")
class EntrantFlags:
    """Who scores."""

    judges: Annotated[
        tuple[str, ...], Field(description=f"comma-separated: {', '.join(JUDGES)}, or an export's folder")
    ] = ("rouge-l", "single", "debate")
    external: Annotated[
        tuple[str, ...],
        Field(description="scores of any other judge: rows of group, candidate, aspect, score; may be repeated"),
        Flag(metavar="NAME=FILE", repeated=True),
    ] = ()
    store: Store = "runs/store"


@flag_group("table")
class TableFlags:
    """What the table shows."""

    level: Annotated[Literal["auto", "summary", "sample", "system"], Field(description="of the agreement")] = "auto"
    statistics: Annotated[
        tuple[Literal["pearson", "spearman", "kendall"], ...],
        Field(description="comma-separated"),
        Flag(default="the task's usual two"),
    ] = ()
    baseline: Annotated[
        str | None, Field(description="judge that the others are compared with"), Flag(default="the first one")
    ] = None
    resamples: Annotated[Resamples, Field(ge=0)] = 10_000
    style: Annotated[Literal["text", "markdown", "latex"], Field(description="of the table")] = "text"
    intervals: Annotated[Literal["average", "all"], Field(description="in which columns")] = "average"
    published: Annotated[bool, Field(description="show what papers printed on this set beside, apart")] = False
    figure: Annotated[
        str | None, Field(description="also draw the table: .png, .svg or .pdf"), Flag(metavar="FILE")
    ] = None
    json: JsonFile = None


@flag_group("ablations of the debate")
class AblationFlags:
    """Variants of the debate, each beside the others on the same items."""

    ablations: Annotated[
        str | None, Field(description="do them; figures and ablations.json go to this folder"), Flag(metavar="DIR")
    ] = None
    ablate: Annotated[
        tuple[str, ...],
        Field(description="which: rounds, personas, styles, distribution, stability"),
        Flag(default="all"),
    ] = ()
    max_rounds: Annotated[int, Field(description="longest debate of the rounds")] = 5
    personas: PersonaFile = None
    repeats: Annotated[int, Field(description="runs for the stability")] = 5
    repeat_temperature: Annotated[float, Field(description="of these runs")] = 1.0


@command_settings
class CompareFlags(
    DataFlags,
    PartFlags,
    EntrantFlags,
    TableFlags,
    AblationFlags,
    JudgeOptionFlags,
    LMFlags,
    LimitFlags,
    EstimateFlags,
):
    """Settings of one comparison."""
