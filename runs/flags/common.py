"""Settings that several commands share and that concern neither an LM nor a judge."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from debate_judge.runs.flags.declared import Flag, flag_group

Resamples = Annotated[int, Field(description="resamples of the groups, for the intervals")]
Seed = Annotated[int, Field(ge=0, description="of everything that is drawn at random")]
Unscored = Annotated[
    float,
    Field(ge=0, le=1, description="share of items without a score that is still a success; 1 accepts all"),
    Flag(metavar="SHARE", decides=False),
]
Store = Annotated[
    str,
    Field(description="folder of the LM's replies, and of studies, runs and exports"),
    Flag(metavar="DIR", decides=False),
]
JsonFile = Annotated[
    str | None, Field(description="also write the result as JSON"), Flag(metavar="FILE", decides=False)
]


@flag_group("data")
class DataFlags:
    """The rated corpus."""

    data: Annotated[
        str,
        Field(description="sample, summeval, topical_chat, NAME=PATH, or a .jsonl or .csv file"),
    ] = "sample"
    task: Annotated[
        str | None, Field(description="task of the data: summarization, dialogue, or your task file (.toml)")
    ] = None
    aspects: Annotated[tuple[str, ...], Field(description="comma-separated; all rated aspects by default")] = ()
