"""Settings that several commands share and that concern neither an LM nor a judge."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator

from debate_judge.data.sources import FORM, SourceChoice
from debate_judge.runs.flags.declared import flag_group, setting

SEED = setting(0, "of everything that is drawn at random", ge=0)
STORE = setting(
    "runs/store", "folder of the LM's replies, and of studies, runs and exports", metavar="DIR", decides=False
)
JSON_FILE = setting(None, "also write the result as JSON", metavar="FILE", decides=False)
MAX_UNSCORED = setting(
    0.2,
    "share of items without a score that is still a success; 1 accepts all",
    metavar="SHARE",
    decides=False,
    ge=0,
    le=1,
)
REPORT = setting(
    "plain",
    "page to look at: plain quotes no text of the data, full quotes all, in a file of its own",
    decides=False,
)

COLUMNS = setting(
    (),
    "what your file calls its columns, e.g. source=question,text=answer,helpfulness=score_help",
    metavar="NAME=COLUMN,...",
)


def _source_choice(text: str) -> str:
    SourceChoice.of(text)
    return text


SourcesText = Annotated[str, AfterValidator(_source_choice)]
"""What a user writes after --sources."""

EXPORT = (
    "the folder of an export, models:/NAME/VERSION, models:/NAME@champion, or the id of the MLflow run that made it"
)

SOURCES = setting(None, f"use some of the sources only, in the order of the data: {FORM}", metavar="SOURCES")

DRAW_SYSTEMS = setting(
    False, "system-level intervals about systems like these (resample the systems, too), not about these systems"
)


def resampling(least: int = 0) -> Any:
    return setting(10_000, "resamples of the groups, for the intervals", ge=least)


@flag_group("data")
class DataFlags:
    """The rated corpus."""

    data: str = setting(
        "sample",
        "sample, summeval, topical_chat, NAME=PATH, hf:NAME@SPLIT, or a file: .jsonl .json .csv .tsv .xlsx .parquet",
    )
    columns: tuple[str, ...] = COLUMNS
    task: str | None = setting(None, "task of the data: summarization, dialogue, or your task file (.toml)")
    aspects: tuple[str, ...] = setting(
        (),
        "comma-separated; by default those that papers on a public set report, and of other data all that are rated; "
        "`all` for all",
    )
    sources: SourcesText | None = SOURCES
