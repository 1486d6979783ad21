"""Settings that several commands share and that concern neither an LM nor a judge."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator

from debate_judge.data import LOADERS
from debate_judge.data.files.formats import SUFFIXES
from debate_judge.data.sources import FORM, SourceChoice
from debate_judge.runs.flags.declared import flag_group, setting

SEED = setting(0, "seed of every random choice", ge=0)
STORE = setting("runs/store", "folder for LM replies, studies, runs and exports", metavar="DIR", decides=False)
REPLIES = setting(
    None, "PostgreSQL database that shares LM replies with a team; or set DEBATE_REPLIES", metavar="URL", decides=False
)
JSON_FILE = setting(None, "also write the result as JSON", metavar="FILE", decides=False)


def max_unscored(*, decides: bool) -> Any:
    """The setting `max_unscored`; in a compile it decides what is chosen."""
    return setting(
        0.2,
        "share of items that may stay without a score before the command fails; 1 allows all",
        metavar="SHARE",
        decides=decides,
        ge=0,
        le=1,
    )


MAX_UNSCORED = max_unscored(decides=False)
REPORT = setting(
    "full",
    "HTML page beside the result: full shows every debate with its texts, plain quotes none; MLflow gets the plain one",
    decides=False,
)

COLUMNS = setting(
    (),
    "names of columns in your file, where they differ from ours: source=question,text=answer,helpfulness=score_help",
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

SOURCES = setting(None, f"use only some of the sources, in the order of the data: {FORM}", metavar="SOURCES")


def resampling(least: int = 0) -> Any:
    return setting(10_000, "bootstrap resamples of the groups, for the intervals", ge=least)


@flag_group("data")
class DataFlags:
    """The rated corpus."""

    data: str = setting(
        "sample",
        f"a file ({', '.join(SUFFIXES)}), hf:NAME@SPLIT, a set by name ({', '.join(LOADERS)}), or NAME=PATH for a "
        "local copy of such a set",
    )
    columns: tuple[str, ...] = COLUMNS
    task: str | None = setting(None, "what the texts are: summarization, dialogue, or a task file of your own (.toml)")
    aspects: tuple[str, ...] = setting(
        (),
        "aspects to judge, comma-separated, or all; by default those that papers on a public set report, otherwise all "
        "that are rated",
    )
    sources: SourcesText | None = SOURCES
