"""The settings of `score`, and its exit codes."""

from __future__ import annotations

from typing import ClassVar, Literal

from debate_judge.runs.flags.common import COLUMNS, EXPORT, MAX_UNSCORED, REPLIES, SOURCES, STORE, SourcesText
from debate_judge.runs.flags.declared import command_settings, setting
from debate_judge.runs.flags.engine import EngineFlags
from debate_judge.runs.flags.lm import MAX_TOKENS, EndpointFlags, EstimateFlags, LimitFlags

EXIT_INPUT, EXIT_LM, EXIT_UNSCORED, EXIT_INTERRUPTED = 2, 3, 4, 130


@command_settings
class ScoreFlags(EndpointFlags, LimitFlags, EstimateFlags, EngineFlags):
    """Settings of one scoring run."""

    FLAGS: ClassVar = (
        *("program", "source", "out", "columns", "aspects", "scale", "lm", "api_base", "rpm", "budget", "concurrency"),
        *("store", "engine", "estimate"),
    )
    REMOVED: ClassVar = {"--program": "the export is the first argument: debate score EXPORT --in FILE --out FILE"}

    program: str = setting(..., EXPORT, name="EXPORT", metavar="EXPORT")
    judge: tuple[str, ...] = setting(
        (),
        "a judge of your own that the export uses; its module is imported; may be repeated",
        metavar="MODULE:CLASS",
        repeated=True,
    )
    source: str = setting(
        ..., "texts to score, in any format that compile takes, without ratings", name="--in", metavar="FILE"
    )
    columns: tuple[str, ...] = COLUMNS
    sources: SourcesText | None = SOURCES
    out: str = setting(..., "file for the scores: .jsonl, .csv, .xlsx or .parquet", metavar="FILE")
    wide: bool = setting(False, "a row a text: a column an aspect, with reason, decision, and why there is no score")
    keep_columns: bool = setting(False, "begin each row with the columns of the input")
    aspects: tuple[str, ...] = setting((), "aspects to score, comma-separated", shown="all that the judge knows")
    task: str | None = setting(
        None, "score only the groups of this task; without it a group of another task is an error"
    )
    scale: Literal["judge", "raters"] = setting(
        "judge", "the judge's own scale, or the raters', by a map that the compile fitted"
    )
    interval: float | None = setting(
        None,
        "also give each score a conformal interval on the raters' scale, from held-out errors (with --scale raters)",
        metavar="LEVEL",
        ge=0.5,
        le=0.99,
    )
    abstain: float | None = setting(
        None,
        "mark scores whose interval is wider than this as left to people (interval of 0.9 if no other)",
        metavar="WIDTH",
        gt=0,
    )
    trust_export: bool = setting(
        False, "use the server address that the export names, after you confirm it on the terminal", decides=False
    )
    lm: str | None = setting(None, "PROVIDER/MODEL, or offline", shown="as compiled")
    transcripts: str | None = setting(None, "also write every debate to this file, as JSON lines", metavar="FILE")
    max_unscored: float = MAX_UNSCORED
    store: str = STORE
    replies: str | None = REPLIES
    max_tokens: int | None = setting(None, MAX_TOKENS, ge=1, shown="as compiled")
