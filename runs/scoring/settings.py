"""The settings of `score` and of `serve`, and the exit codes of `score`."""

from __future__ import annotations

from typing import ClassVar, Literal

from debate_judge.runs.flags.common import (
    COLUMNS,
    CUSTOM_JUDGES,
    EXPORT,
    MAX_UNSCORED,
    SOURCES,
    STORE,
    EngineFlags,
)
from debate_judge.runs.flags.declaration import command_settings, flag_group, setting
from debate_judge.runs.flags.lm import (
    MAX_TOKENS,
    AtLeast1,
    ConnectionFlags,
    EstimateFlags,
    LimitFlags,
    PreflightFlags,
)

EXIT_UNSCORED = 4
"""Too many items have no score; the other exit codes are those of every command (`runs.flags.parser`)."""


@command_settings
class ScoreFlags(PreflightFlags, LimitFlags, EstimateFlags, EngineFlags):
    """Settings of one scoring run."""

    FLAGS: ClassVar = (
        *("program", "input", "out", "columns", "wide", "keep_columns", "aspects", "scale", "lm", "api_base", "rpm"),
        *("budget", "concurrency", "store", "engine", "estimate"),
    )

    program: str = setting(..., EXPORT, name="EXPORT", metavar="EXPORT")
    judge: tuple[str, ...] = CUSTOM_JUDGES
    input: str = setting(..., "texts to score, in any format that compile takes", name="--in", metavar="FILE")
    columns: tuple[str, ...] = COLUMNS
    sources: int | None = SOURCES
    out: str = setting(..., "file for the scores: .jsonl, .csv, .xlsx or .parquet", metavar="FILE")
    wide: bool = setting(False, "one row per text, with columns for each aspect's score, reason and decision")
    keep_columns: bool = setting(False, "begin each row with the columns of the input")
    aspects: tuple[str, ...] = setting((), "aspects to score, comma-separated", default_text="all that the judge knows")
    task: str | None = setting(
        None, "score only the groups of this task; without it a group of another task is an error"
    )
    scale: Literal["judge", "raters"] = setting("judge", "the judge's own scale, or the raters' (by a fitted map)")
    lm: str | None = setting(None, "PROVIDER/MODEL, or offline", default_text="as compiled")
    transcripts: str | None = setting(None, "also write every debate to this file, as JSON lines", metavar="FILE")
    max_unscored: float = MAX_UNSCORED
    store: str = STORE
    max_tokens: AtLeast1 | None = setting(None, MAX_TOKENS, default_text="as compiled")


@flag_group("service")
class ServiceFlags:
    """Where a service listens, and what it takes at most."""

    host: str = setting("127.0.0.1", "address to listen on; any but loopback needs a key", affects_results=False)
    port: int = setting(8000, "port to listen on; 0 takes a free one", ge=0, le=65535, affects_results=False)
    max_body: int = setting(1_000_000, "longest body of a request, in bytes", ge=1, affects_results=False)
    max_requests: int = setting(
        2000, "requests answered at once; further ones are refused with 503", ge=1, affects_results=False
    )
    request_time: float = setting(
        600.0, "seconds that a request may take", gt=0, metavar="SECONDS", affects_results=False
    )
    grace: int = setting(
        60, "seconds that requests have left to finish when the service is stopped", ge=0, metavar="SECONDS",
        affects_results=False,
    )  # fmt: skip


@command_settings
class ServeFlags(ServiceFlags, ConnectionFlags, LimitFlags):
    """Settings of a service."""

    FLAGS: ClassVar = (
        *("program", "host", "port", "max_body", "max_requests", "request_time", "grace", "scale", "lm", "api_base"),
        *("rpm", "budget", "concurrency", "store"),
    )

    program: str = setting(..., EXPORT, name="EXPORT", metavar="EXPORT")
    judge: tuple[str, ...] = CUSTOM_JUDGES
    scale: Literal["judge", "raters"] = setting(
        "judge", "the judge's own scale, or the raters', by a map that the compile fitted"
    )
    lm: str | None = setting(None, "PROVIDER/MODEL, or offline", default_text="as compiled")
    store: str = STORE
    max_tokens: AtLeast1 | None = setting(None, MAX_TOKENS, default_text="as compiled")
