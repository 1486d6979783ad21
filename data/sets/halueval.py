"""HaluEval (Li et al. 2023): answers, replies and summaries, each right or deliberately hallucinated.

Location: data/qa_data.json, dialogue_data.json and summarization_data.json (JSON lines) in the GitHub repository
RUCAIBox/HaluEval, 10,000 records each. Records of the three parts look like this (made up):

    {"knowledge": "Elm lies on the Ash.", "question": "On which river is Elm?", "right_answer": "The Ash",
     "hallucinated_answer": "Elm lies on the Oak."}
    {"knowledge": "Elm lies on the Ash.", "dialogue_history": "[Human]: Do you know Elm?",
     "right_response": "Yes, on the Ash.", "hallucinated_response": "Yes, on the Oak."}
    {"document": "The town of Elm …", "right_summary": "Elm buys …", "hallucinated_summary": "Elm sells …"}

A group is a question, dialogue history or document with its right and its hallucinated candidate; records that share
it are one group. The sampled copies, with one text and `"hallucination": "yes"` or `"no"`, are read too.

Sun et al. (2024, section 4.1.1) draw 150 answers, 150 replies and 50 summaries, each right or hallucinated by the toss
of a coin. Their draw is not published: `load` with `drawn` makes one with a fixed seed, the same for everybody.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from debate_judge.data.files.records import Record
from debate_judge.data.schema import Candidate, Corpus, RatedGroup, Task
from debate_judge.data.sets import hub
from debate_judge.data.sets.factuality import ANSWERS, REPLIES, SUMMARIES, factuality_ratings

COMMIT = "b7253db3cdaa0ab2c382f92b26b390109174f77e"


@dataclass(frozen=True, slots=True)
class Part:
    """Names of the fields of a part."""

    task: Task
    source: str
    output: str
    knowledge: str = "knowledge"
    """Empty if there is only the source."""

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.knowledge, self.source, f"right_{self.output}", f"hallucinated_{self.output}")))


PARTS: Mapping[str, Part] = {
    "qa": Part(ANSWERS, "question", "answer"),
    "dialogue": Part(REPLIES, "dialogue_history", "response"),
    "summarization": Part(SUMMARIES, "document", "summary", ""),
}


def load(path: str | Path | None = None, part: str | None = None, drawn: int | None = None) -> Corpus:
    """Load one of the `PARTS` from a local copy, or download it.

    Args:
        path: The copy; None to download.
        part: By default the part of a copy is recognized by its fields, and `qa` is downloaded.
        drawn: Number of records to draw, of each the right or the hallucinated candidate by chance; a copy with fewer
            is used whole. None keeps all records with both candidates.
    """
    remote_part = part or "qa"
    remote = hub.github("RUCAIBox/HaluEval", COMMIT, f"data/{remote_part}_data.json", *PARTS[remote_part].columns)
    name = "halueval" if remote_part == "qa" else f"halueval_{part}"
    records, origin = hub.read(name if drawn is None else f"{name}_drawn", path, remote, other_layouts=True)
    layout = PARTS[remote_part] if path is None or part else _part_of(records[0])
    groups = [(record, _group(record, layout, number)) for number, record in enumerate(records, 1)]
    if drawn is not None:
        chance = random.Random(0)
        numbers = sorted(chance.sample(range(len(groups)), min(drawn, len(groups))))
        groups = [(groups[i][0], _toss(groups[i][1], chance)) for i in numbers]
    return Corpus(layout.task, hub.merge_groups(groups), origin)


def _toss(group: RatedGroup, chance: random.Random) -> RatedGroup:
    """The group with one of its candidates, each with the same probability."""
    return replace(group, candidates=(chance.choice(group.candidates),))


def _part_of(record: Record) -> Part:
    for part in PARTS.values():
        if part.source in record.values:
            return part
    expected = "; or ".join(", ".join(part.columns) for part in PARTS.values())
    raise record.error("not a record of HaluEval", expected=expected, found="fields " + ", ".join(record.values))


def _group(record: Record, part: Part, number: int) -> RatedGroup:
    if "hallucination" in record.values:
        candidates: tuple[Candidate, ...] = (_labelled(record, part),)
    else:
        candidates = (
            Candidate("right", record.text(f"right_{part.output}"), factuality_ratings(True)),
            Candidate("hallucinated", record.text(f"hallucinated_{part.output}"), factuality_ratings(False)),
        )
    knowledge = record.optional_text(part.knowledge) if part.knowledge else ""
    return RatedGroup(str(number), record.text(part.source), candidates, knowledge)


def _labelled(record: Record, part: Part) -> Candidate:
    label = record.text("hallucination").strip().lower()
    if label not in ("yes", "no"):
        raise record.error("not a label", "hallucination", expected="yes or no", found=label)
    name = "hallucinated" if label == "yes" else "right"
    return Candidate(name, record.text(part.output), factuality_ratings(label == "no"))
