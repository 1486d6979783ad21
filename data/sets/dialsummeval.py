"""DialSummEval (Gao and Wan 2022): 100 dialogues with 14 summaries each, rated by three people from 1 to 5.

Location: annotation_campus/human_judgment.jsonl in the GitHub repository kite99520/DialSummEval. It has no licence, so
it must not be redistributed. A record looks like this (made up):

    {"id": "13", "dialogue": "| Ann: Is it raining? | Ben: It is.", "summary": "It rains, says Ben.", "model_id": "A",
     "annotations": [{"coherence": 5, "consistency": 4, "fluency": 5, "relevance": 4}, …]}

A group is a dialogue. The aspects are those of article summaries, whose definitions apply to any source.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from debate_judge.data.files.ratings import ratings_in
from debate_judge.data.files.records import Record
from debate_judge.data.schema import Candidate, Corpus, RatedGroup
from debate_judge.data.sets import hub
from debate_judge.data.tasks import SUMMARIZATION

REMOTE = hub.github(
    "kite99520/DialSummEval",
    "667118e10ae69ef8cbc5cbddec0ce91b5c9c6187",
    "annotation_campus/human_judgment.jsonl",
    *("id", "dialogue", "summary", "model_id", "annotations"),
)
TASK = replace(SUMMARIZATION, name="dialogue-summaries", source_label="dialogue")


def load(path: str | Path | None = None) -> Corpus:
    """Load the set from a local copy, or download it."""
    records, origin = hub.read("dialsummeval", path, REMOTE)
    groups: dict[str, tuple[str, dict[str, Candidate]]] = {}
    for record in records:
        dialogue = "\n".join(turn.strip() for turn in record.text("dialogue").split("|") if turn.strip())
        known_dialogue, summaries = groups.setdefault(record.identifier("id"), (dialogue, {}))
        summary = _candidate(record)
        if known_dialogue != dialogue or summary.id in summaries:
            problem = "another dialogue with this id, or a second summary of a model"
            raise record.error(problem, "id", expected="one dialogue an id, and one summary of each model")
        summaries[summary.id] = summary
    return Corpus(
        TASK, tuple(RatedGroup(i, d, tuple(candidates.values())) for i, (d, candidates) in groups.items()), origin
    )


def _candidate(record: Record) -> Candidate:
    names = [aspect.name for aspect in TASK.aspects]
    by_rater = [ratings_in(annotation, TASK, names) for annotation in record.children("annotations")]
    ratings = {name: tuple(value for rating in by_rater for value in rating.get(name, ())) for name in names}
    return Candidate(record.identifier("model_id"), record.text("summary"), {n: v for n, v in ratings.items() if v})
