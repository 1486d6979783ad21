"""Settings that several commands share and that concern neither an LM nor a judge."""

from __future__ import annotations

from typing import Any, Literal

from debate_judge.runs.flags.declaration import flag_group, setting

SEED = setting(0, "random seed", ge=0, rare=True)
STORE = setting(
    "runs/store", "folder for cached replies, Optuna studies, runs, exports", metavar="DIR", affects_results=False
)
JSON_FILE = setting(None, "also write the result as JSON", metavar="FILE", rare=True, affects_results=False)


def max_unscored(*, affects_results: bool) -> Any:
    """The setting `max_unscored`; it affects the results of a compile, because it decides what may be chosen."""
    return setting(
        0.2,
        "share of texts that may be left without a score before the command fails; 1 allows all",
        metavar="SHARE",
        rare=True,
        affects_results=affects_results,
        ge=0,
        le=1,
    )


MAX_UNSCORED = max_unscored(affects_results=False)

REPORT = setting(
    "full",
    "HTML report: full shows every debate with its texts, plain quotes no text; MLflow gets the plain one",
    rare=True,
    affects_results=False,
)

COLUMNS = setting((), "what the columns of your file are, e.g. source=question,text=answer", metavar="NAME=COL,...")

EXPORT = "the folder of an export, models:/NAME/VERSION, models:/NAME/latest, or the id of the MLflow run that made it"

TRUST = setting(
    (),
    "import this judge class of your own, which the export uses; may be repeated",
    metavar="MODULE:CLASS",
    repeated=True,
    rare=True,
)

SOURCES = setting(None, "use only the first N sources of the data", metavar="N", ge=1, rare=True)


@flag_group
class DataFlags:
    """The rated corpus."""

    data: str = setting(
        "sample", "a file, hf:NAME@SPLIT, a public data set, or NAME=PATH for a copy of one", metavar="FILE"
    )
    columns: tuple[str, ...] = COLUMNS
    task: str | None = setting(None, "summarization, dialogue, pairs, or your own task file (.toml)")
    aspects: tuple[str, ...] = setting((), "aspects to judge, comma-separated, or all", default_text="all rated ones")
    sources: int | None = SOURCES


@flag_group
class EngineFlags:
    """Where scoring runs: in this process, or in Ray actors."""

    engine: Literal["local", "ray"] = setting(
        "local",
        "ray: --in may be a glob or URL of rows with an id, --out is a folder, and RAY_ADDRESS names the cluster",
        rare=True,
        affects_results=False,
    )
    actors: int = setting(2, "Ray actors; they share concurrency and limits", ge=1, rare=True, affects_results=False)
