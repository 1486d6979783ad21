"""The layout in which UniEval (Zhong et al. 2022) distributes several rated sets: one record per output.

    {"source": "…", "system_id": "…", "system_output": "…", "context": "…", "reference": "…", "doc_id": "…",
     "scores": {"coherence": 2.67}}

`context`, `reference` and `doc_id` occur in some sets only. Records of one source need not be adjacent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from debate_judge.data.files.ratings import ratings_in
from debate_judge.data.files.records import Record
from debate_judge.data.schema import Candidate, RatedGroup, Task
from debate_judge.data.sets.hub import RemoteSet, github

COMMIT = "9d9b51dc716f40f6b454a4455c7fe2f843aabfbb"
NO_FACT = "_nofact"
"""The context in Topical-Chat's records without a fact."""


@dataclass(slots=True)
class _PartialGroup:
    first: Record
    source: str
    context: str
    candidates: dict[str, Candidate] = field(default_factory=dict)
    references: dict[str, None] = field(default_factory=dict)


def remote(file: str, *columns: str) -> RemoteSet:
    """A file of the GitHub repository maszhongming/UniEval, below `reproduce/data`."""
    return github("maszhongming/UniEval", COMMIT, f"reproduce/data/{file}", *columns)


def groups(records: Iterable[Record], task: Task) -> tuple[RatedGroup, ...]:
    """Merge the records that have the same source, in order of first appearance.

    The id of a group is its `doc_id`, or else its number from 1. Line breaks at the end of texts are dropped, and
    `NO_FACT` becomes the empty context; everything else is unchanged.

    Raises:
        InputError: A system has two outputs for a source, or records of one source differ in context.
    """
    partial: dict[str, _PartialGroup] = {}
    for record in records:
        source, context = _text(record, "source"), record.optional_text("context").rstrip("\r\n")
        context = "" if context == NO_FACT else context
        # Whitespace aside, equal sources are one source: it must not be split into train and held-out.
        group = partial.setdefault(" ".join(source.split()), _PartialGroup(record, source, context))
        if context != group.context:
            expected = f"the context of line {group.first.line}: {group.context}"
            found = context or "no context"
            raise record.error("records of one source differ in context", "context", expected=expected, found=found)
        system = record.identifier("system_id")
        if system in group.candidates:
            raise record.error(f"a second output of {system!r} for the source of line {group.first.line}", "system_id")
        scores = record.child("scores")
        rated = ratings_in(scores, task, scores.values)
        group.candidates[system] = Candidate(system, _text(record, "system_output"), rated)
        group.references.update(dict.fromkeys(filter(None, [record.optional_text("reference").rstrip("\r\n")])))
    finished: dict[str, RatedGroup] = {}
    for number, group in enumerate(partial.values(), start=1):
        name = group.first.identifier("doc_id") if "doc_id" in group.first.values else str(number)
        if name in finished:
            raise group.first.error(f"a second source for the doc_id {name!r}", "doc_id")
        candidates, references = tuple(group.candidates.values()), tuple(group.references)
        finished[name] = RatedGroup(name, group.source, candidates, group.context, references)
    return tuple(finished.values())


def _text(record: Record, name: str) -> str:
    return record.text(name).rstrip("\r\n")
