"""Factool's knowledge questions (Chern et al. 2023): answers of an LM, labelled as a whole and claim by claim.

Location: datasets/knowledge_qa/knowledge_qa.jsonl in the GitHub repository GAIR-NLP/factool, 50 prompts with 233
claims. A record looks like this (made up):

    {"prompt": "On which river is Elm?", "response": "Elm is a town on the Oak.", "label": false,
     "claims": [{"claim": "Elm is a town", "label": true}, {"claim": "Elm is on the Oak", "label": false}]}

There is no knowledge besides the prompt. A group is a prompt: at response level with its one response, at claim level
with the claims that annotators extracted from the response.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from debate_judge.data.files.records import Record
from debate_judge.data.schema import Candidate, Corpus, RatedGroup
from debate_judge.data.sets import hub
from debate_judge.data.sets.factuality import ANSWERS, CLAIMS, factuality_ratings

REMOTE = hub.github(
    "GAIR-NLP/factool",
    "3f3914bc090b644be044b7e0005113c135d8b20f",
    "datasets/knowledge_qa/knowledge_qa.jsonl",
    *("prompt", "response", "claims", "label"),
)


def load(path: str | Path | None = None, level: Literal["response", "claim"] = "response") -> Corpus:
    """Load the set from a local copy, or download it; candidates are responses, or their claims."""
    records, origin = hub.read("factool" if level == "response" else "factool_claims", path, REMOTE, other_layouts=True)
    candidates = _response if level == "response" else _claims
    groups = hub.merge_groups(
        (record, RatedGroup(str(number), record.text("prompt"), candidates(record)))
        for number, record in enumerate(records, 1)
    )
    return Corpus(ANSWERS if level == "response" else CLAIMS, groups, origin)


def _response(record: Record) -> tuple[Candidate, ...]:
    return (Candidate("response", record.text("response"), factuality_ratings(record.boolean("label"))),)


def _claims(record: Record) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(str(number), claim.text("claim"), factuality_ratings(claim.boolean("label")))
        for number, claim in enumerate(record.children("claims"), 1)
    )
