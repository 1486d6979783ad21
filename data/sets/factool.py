"""Factool's knowledge questions (Chern et al. 2023): answers of an LM, labelled as a whole and claim by claim.

Home: datasets/knowledge_qa/knowledge_qa.jsonl in the GitHub repository GAIR-NLP/factool, 50 prompts with 233 claims.
A record looks like this (made up):

    {"prompt": "On which river is Elm?", "response": "Elm is a town on the Oak.", "label": false,
     "claims": [{"claim": "Elm is a town", "label": true}, {"claim": "Elm is on the Oak", "label": false}]}

There is no knowledge beside the prompt. A group is a prompt: at response level with its one response, at claim level
with the claims that annotators took out of the response.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from debate_judge.data.errors import InputError
from debate_judge.data.files import reading
from debate_judge.data.files.records import Record, shown
from debate_judge.data.schema import Candidate, Corpus, Origin, RatedGroup
from debate_judge.data.sets import hub as homes
from debate_judge.data.sets.factuality import ANSWERS, CLAIMS, rated
from debate_judge.data.sets.merging import merged

COMMIT = "3f3914bc090b644be044b7e0005113c135d8b20f"
HOME = f"https://raw.githubusercontent.com/GAIR-NLP/factool/{COMMIT}/datasets/knowledge_qa/knowledge_qa.jsonl"
COLUMNS = ("prompt", "response", "claims", "label")


def load(path: str | Path | None = None, level: Literal["response", "claim"] = "response") -> Corpus:
    """Load the set from a local copy, or from its home.

    Args:
        path: A local copy.
        level: Whether candidates are responses or claims.

    Raises:
        InputError: The copy cannot be used, or the home cannot be reached.
    """
    name = "factool" if level == "response" else "factool_claims"
    if path is None:
        records = homes.fetch(name, HOME, split="train", columns=COLUMNS)
        origin = Origin(name, HOME, COMMIT)
    else:
        records = list(reading.json_records(Path(path)))
        origin = Origin(name, str(path))
    if not records:
        raise InputError("no records in the file", file=path, expected="records with " + ", ".join(COLUMNS))
    candidates = _response if level == "response" else _claims
    groups = merged(
        (record, RatedGroup(str(number), record.text("prompt"), candidates(record)))
        for number, record in enumerate(records, 1)
    )
    return Corpus(ANSWERS if level == "response" else CLAIMS, groups, origin)


def _response(record: Record) -> tuple[Candidate, ...]:
    return (Candidate("response", record.text("response"), rated(_label(record))),)


def _claims(record: Record) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(str(number), claim.text("claim"), rated(_label(claim)))
        for number, claim in enumerate(record.children("claims"), 1)
    )


def _label(record: Record) -> bool:
    record.require("label")
    value = record.values["label"]
    if not isinstance(value, bool):
        raise record.error("not a label", record.place("label"), expected="true or false", found=shown(value))
    return value
