"""The settings of `score` and of `serve`, and the exit codes of `score`."""

from __future__ import annotations

from typing import Literal

from debate_judge.runs.flags import command_settings, flag_group, setting
from debate_judge.runs.shared_flags import (
    COLUMNS,
    EXPORT,
    MAX_TOKENS,
    MAX_UNSCORED,
    SOURCES,
    STORE,
    TRUST,
    AtLeast1,
    ConnectionFlags,
    EngineFlags,
    EstimateFlags,
    LimitFlags,
    PreflightFlags,
)

EXIT_UNSCORED = 4
"""Too many items have no score; the other exit codes are those of every command (`runs.command_line`)."""


@command_settings
class ScoreFlags(PreflightFlags, LimitFlags, EstimateFlags, EngineFlags):
    """Settings of one scoring run."""

    program: str = setting(..., EXPORT, flag="EXPORT", metavar="EXPORT")
    trust: tuple[str, ...] = TRUST
    input: str = setting(..., "texts to score, in any format that compile takes", flag="--in", metavar="FILE")
    columns: tuple[str, ...] = COLUMNS
    sources: int | None = SOURCES
    out: str = setting(..., "file for the scores: .jsonl, .csv, .xlsx or .parquet", metavar="FILE")
    wide: bool = setting(False, "one row per text, with columns for each aspect's score, reason and decision")
    keep_columns: bool = setting(False, "begin each row with the columns of the input")
    aspects: tuple[str, ...] = setting((), "aspects to score, comma-separated", default_text="all that the judge knows")
    scale: Literal["judge", "raters"] = setting(
        "judge", "the judge's own scores, or scores mapped to the raters' scale"
    )
    lm: str | None = setting(None, "PROVIDER/MODEL, or offline", default_text="as compiled")
    task: str | None = setting(
        None, "score only the rows of this task, the judge's, in a file of several tasks", rare=True
    )
    transcripts: str | None = setting(
        None, "also write every debate to this file, as JSON lines", metavar="FILE", rare=True
    )
    max_unscored: float = MAX_UNSCORED
    store: str = STORE
    max_tokens: AtLeast1 | None = setting(None, MAX_TOKENS, default_text="as compiled", rare=True)


@flag_group
class ServiceFlags:
    """Where a service listens."""

    host: str = setting(
        "127.0.0.1", "address to listen on; any other than loopback needs DEBATE_SERVE_KEY", affects_results=False
    )
    port: int = setting(8000, "port to listen on; 0 takes a free one", ge=0, le=65535, affects_results=False)


@command_settings
class ServeFlags(ServiceFlags, ConnectionFlags, LimitFlags):
    """Settings of a service."""

    program: str = setting(..., EXPORT, flag="EXPORT", metavar="EXPORT")
    trust: tuple[str, ...] = TRUST
    scale: Literal["judge", "raters"] = setting(
        "judge", "the judge's own scores, or scores mapped to the raters' scale"
    )
    lm: str | None = setting(None, "PROVIDER/MODEL, or offline", default_text="as compiled")
    store: str = STORE
    max_tokens: AtLeast1 | None = setting(None, MAX_TOKENS, default_text="as compiled", rare=True)
