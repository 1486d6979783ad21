"""Settings of a comparison: what is scored, by which judges, and how the table and the ablations look."""

from __future__ import annotations

from typing import Literal

from debate_judge.programs import JUDGES
from debate_judge.runs.flags.common import (
    DRAW_SYSTEMS,
    EXPORT,
    JSON_FILE,
    REPLIES,
    REPORT,
    SEED,
    STORE,
    DataFlags,
    resampling,
)
from debate_judge.runs.flags.declared import command_settings, flag_group, setting
from debate_judge.runs.flags.judge import PERSONAS_FILE, JudgeOptionFlags
from debate_judge.runs.flags.lm import EstimateFlags, LimitFlags, LMFlags


@flag_group("data")
class PartFlags:
    """Which groups of a rated corpus are scored."""

    part: Literal["held-out", "all"] = setting(
        "held-out", "groups to score: the held-out part of a compile's split, or all"
    )
    seed: int = SEED


@flag_group("judges")
class EntrantFlags:
    """The judges of the table, those whose scores come from a file among them."""

    judges: tuple[str, ...] = setting(
        ("rouge-l", "single", "debate"),
        f"comma-separated: {', '.join(JUDGES)}, or {EXPORT}",
    )
    external: tuple[str, ...] = setting(
        (),
        "scores of another judge, from a file with rows of group, candidate, aspect, score; may be repeated",
        metavar="NAME=FILE",
        repeated=True,
    )
    store: str = STORE
    replies: str | None = REPLIES


@flag_group("table")
class TableFlags:
    """What the table shows."""

    level: Literal["auto", "summary", "sample", "system"] = setting(
        "auto", "level of agreement: within sources (summary), pooled (sample) or over systems (system)"
    )
    statistics: tuple[Literal["pearson", "spearman", "kendall"], ...] = setting(
        (), "correlations to show, comma-separated", shown="the two of the task's papers"
    )
    baseline: str | None = setting(None, "judge that the others are compared with", shown="the first one")
    resamples: int = resampling()
    draw_systems: bool = DRAW_SYSTEMS
    style: Literal["text", "markdown", "latex"] = setting("text", "format of the table")
    intervals: Literal["average", "all"] = setting("average", "columns that show intervals")
    published: bool = setting(False, "also show what papers print for this set, in a table of its own")
    report: Literal["none", "plain", "full"] = REPORT
    tracking_uri: str | None = setting(
        None,
        "MLflow server to log the comparison to; by default the embedded store in --store, if there is one",
        metavar="URL",
        decides=False,
    )
    figure: str | None = setting(None, "also draw the table, as .png, .svg or .pdf", metavar="FILE")
    json: str | None = JSON_FILE


@flag_group("ablations of the debate")
class AblationFlags:
    """Variants of the debate, each beside the others on the same items."""

    ablations: str | None = setting(
        None, "run ablations; their figures and ablations.json go to this folder", metavar="DIR"
    )
    ablate: tuple[str, ...] = setting(
        (),
        "ablations to run, comma-separated: rounds, personas, styles, distribution, stability; order with --together",
        shown="all",
    )
    max_rounds: int = setting(5, "longest debate in the ablation of rounds", ge=0)
    personas: str | None = PERSONAS_FILE
    repeats: int = setting(5, "runs in the ablation of stability")
    repeat_temperature: float = setting(1.0, "sampling temperature in the ablation of stability")


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
