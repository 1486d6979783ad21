"""Scores of a judge that does not run here, from a file, laid beside the ratings of a corpus.

Rows of {group, candidate, aspect, score}, as `runs/score.py` writes them and `runs/agreement.py` takes them, or one
row per candidate with a column for each aspect; JSON lines, a JSON array or CSV. Other fields are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from debate_judge.data.agreement.tables import GroupScores
from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.formats import rows
from debate_judge.data.files.records import Record
from debate_judge.data.schema import Aspect, Corpus


@dataclass(frozen=True)
class ExternalScores:
    """The scores that a file holds for the groups that are compared."""

    name: str
    """The file's name without its ending: the judge's name in the table."""
    scores: dict[str, list[GroupScores]]
    """Aspect -> groups, in the order of the corpus; None where the file has no score."""
    covered: int
    """Items (candidate x aspect) of these groups with a score."""
    missing: int
    """Items of these groups without one: the row is not there, or its score is empty."""
    ignored: int
    """Rows about other groups or other aspects of the data."""

    def coverage(self) -> str:
        """The counts in a sentence, e.g. `118 of 120 items have a score; 40 rows are about others`."""
        text = f"{self.covered} of {self.covered + self.missing} items have a score"
        bare = [aspect for aspect, groups in self.scores.items() if not any(_given(g) for g in groups)]
        if bare:
            text += f", none in {', '.join(bare)}"
        if self.ignored:
            text += f"; {self.ignored} rows are about groups or aspects that are not compared here"
        return text


class _Item(NamedTuple):
    group: str
    candidate: str
    aspect: str


class _Found(NamedTuple):
    score: float | None
    line: int


def read_external(
    path: Path, corpus: Corpus, aspects: Sequence[Aspect], *, known: Corpus | None = None
) -> ExternalScores:
    """Read the scores of an external judge.

    Args:
        path: A .jsonl, .json or .csv file.
        corpus: What is compared, e.g. the held-out part.
        aspects: In these aspects.
        known: The corpus that `corpus` is a part of; rows about its other groups are left out and counted. By
            default there are no others.

    Raises:
        InputError: The file cannot be read, names a group, candidate or aspect that the data do not have, has two
            scores for one item or one that is no finite number, or has no score for any item.
    """
    reader = _Reader(known or corpus, aspects)
    compared = {group.id for group in corpus.groups}
    found: dict[_Item, _Found] = {}
    ignored = 0
    for record in rows(path):
        about = False
        for item, score in reader.read(record):
            if item in found:
                raise record.error(
                    f"a second score for candidate {item.candidate!r} of group {item.group!r}, {item.aspect}",
                    "candidate",
                    found=f"the first is in line {found[item].line}",
                    remedy="keep one row for each group, candidate and aspect",
                )
            found[item] = _Found(score, record.line)
            about = about or (item.group in compared and item.aspect in reader.wanted)
        ignored += not about
    scores = {a.name: _beside(corpus, a.name, found) for a in aspects}
    covered = sum(_given(group) for groups in scores.values() for group in groups)
    items = sum(len(group.candidates) for group in corpus.groups) * len(aspects)
    if not covered:
        raise InputError(
            "no score for any of the items that are compared",
            file=path,
            expected=f"scores of {', '.join(reader.wanted)} for groups of {corpus.origin.name}",
            found=f"{ignored} rows about other groups or aspects" if ignored else "no row with a score",
        )
    return ExternalScores(path.stem, scores, covered, items - covered, ignored)


class _Reader:
    """Reads the scores of a record; the first record decides which layout the file has."""

    def __init__(self, known: Corpus, aspects: Sequence[Aspect]) -> None:
        self.wanted = tuple(a.name for a in aspects)
        self._named = tuple(a.name for a in known.task.aspects)
        self._candidates = {group.id: {c.id: None for c in group.candidates} for group in known.groups}
        self._wide: bool | None = None

    def read(self, record: Record) -> Iterator[tuple[_Item, float | None]]:
        if self._wide is None:
            self._wide = "aspect" not in record.values
            if self._wide:
                self._check_columns(record)
        if self._wide == ("aspect" in record.values):
            raise record.error(
                "a row of another layout than the first",
                expected="an aspect and its score in every row, or a column for each aspect in every row",
                found=", ".join(map(str, record.values)) or "no fields",
            )
        group = record.choice("group", self._candidates, "give the file that the scores were made for as --data")
        candidate = record.choice("candidate", self._candidates[group])
        if self._wide:
            for aspect in self._named:
                if aspect in record.values:
                    yield _Item(group, candidate, aspect), record.optional_number(aspect)
            return
        aspect = record.choice("aspect", self._named)
        yield _Item(group, candidate, aspect), record.optional_number("score")

    def _check_columns(self, record: Record) -> None:
        columns = [str(name) for name in record.values]
        for aspect in self.wanted:
            others = [c for c in columns if c not in self._named]
            near = None if aspect in columns else did_you_mean(aspect, others, "is it called {}?")
            if near is not None:
                raise record.error(f"no column for the aspect {aspect!r}", found=", ".join(columns), remedy=near)
        if not set(self._named) & set(columns):
            raise record.error(
                "neither an aspect and its score nor a column for each aspect",
                expected="group, candidate, aspect, score; or group, candidate and columns " + ", ".join(self.wanted),
                found=", ".join(columns) or "no fields",
            )


def _beside(corpus: Corpus, aspect: str, found: Mapping[_Item, _Found]) -> list[GroupScores]:
    def score(group: str, candidate: str) -> float | None:
        one = found.get(_Item(group, candidate, aspect))
        return None if one is None else one.score

    return [
        GroupScores(
            group.id,
            tuple(c.id for c in group.candidates),
            tuple(group.ratings(aspect)),
            tuple(score(group.id, c.id) for c in group.candidates),
            tuple(tuple(c.ratings.get(aspect, ())) for c in group.candidates),
        )
        for group in corpus.groups
    ]


def _given(group: GroupScores) -> int:
    return sum(score is not None for score in group.scores)
