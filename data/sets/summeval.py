"""SummEval (Fabbri et al. 2021): 100 news articles with 16 summaries each, rated by experts from 1 to 5.

Location: mteb/summeval on the Hugging Face hub, split test; each rating is the mean of 3 experts. A record looks
like this (made up, cut to two summaries):

    {"id": "dm-test-0a1b2c", "text": "The town of Elm has bought a second snow plough …",
     "machine_summaries": ["The town has bought a plough .", "A plough ."], "human_summaries": ["Elm buys …"],
     "coherence": [4.67, 1.0], "consistency": [5.0, 5.0], "fluency": [5.0, 2.33], "relevance": [4.33, 2.0]}

A group is an article. The hub does not name the systems: candidates are numbered from 1 in the record's order, and a
number need not mean the same system in every article. A copy with `model_ids` has the systems' names. Copies in
UniEval's layout are read, too.
"""

from __future__ import annotations

from pathlib import Path

from debate_judge.data.files.ratings import ratings_in
from debate_judge.data.files.records import Record
from debate_judge.data.schema import Candidate, Corpus, RatedGroup
from debate_judge.data.sets import hub, unieval
from debate_judge.data.tasks import SUMMARIZATION

ASPECTS = tuple(aspect.name for aspect in SUMMARIZATION.aspects)
REMOTE = hub.RemoteSet(
    "mteb/summeval",
    "bfc121155064afa2d81b5505682ffc0d96f4334c",
    ("id", "text", "machine_summaries", "human_summaries", *ASPECTS),
    split="test",
)


def load(path: str | Path | None = None) -> Corpus:
    """Load the set from a local copy, or download it."""
    records, origin = hub.read("summeval", path, REMOTE, other_layouts=True)
    if "system_output" in records[0].values:
        return Corpus(SUMMARIZATION, unieval.groups(records, SUMMARIZATION), origin)
    groups = tuple(_group(record) for record in records)
    _refuse_duplicates(records, groups)
    return Corpus(SUMMARIZATION, groups, origin)


def _group(record: Record) -> RatedGroup:
    record.require(*REMOTE.columns)
    summaries = record.texts("machine_summaries")
    if not summaries:
        raise record.error("machine_summaries is empty", "machine_summaries", expected="at least one summary")
    ids = record.texts("model_ids") or tuple(str(number) for number in range(1, len(summaries) + 1))
    if len(set(ids)) < len(ids):
        raise record.error("a model occurs twice", "model_ids", expected="one summary per model", found=", ".join(ids))
    for name, length in [("model_ids", len(ids)), *((a, len(record.items(a))) for a in ASPECTS)]:
        if length != len(summaries):
            expected, found = f"{len(summaries)} values, one per summary", f"{length} values"
            raise record.error(f"{name} does not fit the summaries", name, expected=expected, found=found)
    rated = ratings_in(record, SUMMARIZATION, ASPECTS)
    return RatedGroup(
        id=record.identifier("id"),
        source=record.text("text").rstrip("\r\n"),
        candidates=tuple(
            Candidate(ids[i], text.rstrip("\r\n"), {aspect: (values[i],) for aspect, values in rated.items()})
            for i, text in enumerate(summaries)
        ),
        references=record.texts("human_summaries"),
    )


def _refuse_duplicates(records: list[Record], groups: tuple[RatedGroup, ...]) -> None:
    lines: dict[tuple[str, str], int] = {}
    for record, group in zip(records, groups, strict=True):
        for name, value in (("id", group.id), ("text", group.source_key)):
            if (name, value) in lines:
                found = f"the {name} of line {lines[name, value]}"
                raise record.error(f"a second record with the same {name}", name, found=found)
            lines[name, value] = record.line
