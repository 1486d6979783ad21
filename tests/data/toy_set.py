"""A whole data set in one file: quips with the laughs of three raters.

A record looks like this: {"topic": "rain", "quips": {"a": "It rained."}, "laughs": {"a": [1, 2, 2]}}
"""

from __future__ import annotations

from pathlib import Path

from debate_judge.data.files.ratings import ratings_in
from debate_judge.data.files.records import Record
from debate_judge.data.schema import Aspect, Candidate, Corpus, RatedGroup, Scale, Task
from debate_judge.data.sets.hub import RemoteSet, read

REMOTE = RemoteSet("example/quips", "main", ("topic", "quips", "laughs"))
FUNNY = Task("quips", "topic", "quip", (Aspect("laughs", "0 is silence, 3 is roaring laughter.", Scale(0, 3)),))


def load(path: str | Path | None = None) -> Corpus:
    records, origin = read("toy", path, REMOTE)
    return Corpus(FUNNY, tuple(_group(str(number), record) for number, record in enumerate(records, 1)), origin)


def _group(name: str, record: Record) -> RatedGroup:
    quips, laughs = record.child("quips"), record.child("laughs")
    rated = {quip: Record({"laughs": laughs.value(quip)}, record.file, record.line) for quip in quips.values}
    candidates = [Candidate(q, quips.text(q), ratings_in(one, FUNNY, ["laughs"])) for q, one in rated.items()]
    return RatedGroup(name, record.text("topic"), tuple(candidates))
