"""Reads scores from files: scores with ratings, and scores of an external judge for a rated corpus.

Rows are {group, candidate, aspect, score}, as `runs/score.py` writes them, and have `rating` in a file of scores and
ratings. Scores for a corpus may also be in one row per candidate with a column for each aspect.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from debate_judge.data.agreement.tables import GroupScores
from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.formats import read_records
from debate_judge.data.files.records import Record
from debate_judge.data.schema import ALL, Aspect, Corpus, Scale
from debate_judge.programs.roles import parsing
from debate_judge.runs.comparison.judged import EvaluatedJudge
from debate_judge.runs.runner.runner import group_ratings

_RowKey = tuple[str, str, str]
"""Group, candidate, aspect."""

_REMEDY_DUPLICATE = "keep one row for each group, candidate and aspect"


# --- scores with ratings ---


@dataclass(frozen=True)
class RatedScores:
    """A file of scores and ratings."""

    scores: Mapping[str, Sequence[GroupScores]]
    """Aspect -> scores and ratings by group, in the order of the file."""
    rows: int
    samples: int = 0
    """Number of recorded replies that were parsed, where rows have these in place of a score."""
    unreadable: int = 0
    """Number of the samples without a score on the scale; they are left out of a row's mean."""


def read_rated_scores(path: Path, *, scale: Scale | None = None, aspects: tuple[str, ...] = ()) -> RatedScores:
    """Read rows of {group, candidate, aspect, rating, score}.

    A rating is a number or a list of them, one per rater (in CSV `4;5;4`); a score is a number, or null or an
    empty cell where there is none. With a scale, rows may have `samples`, a list of recorded replies, in place of
    `score`: each is read with the parser of live replies, and the readable ones are averaged.

    Args:
        path: The file.
        scale: The scale of recorded replies.
        aspects: Names of the aspects to read; none, or `ALL`, for all.

    Raises:
        InputError: The file cannot be read, a row cannot be used, or no row is left.
    """
    aspects = () if aspects == (ALL,) else aspects
    counts: Counter[str] = Counter()
    by_key: dict[_RowKey, tuple[tuple[float, ...], float | None]] = {}
    for record in read_records(path):
        aspect = record.text("aspect")
        if aspects and aspect not in aspects:
            continue
        group, candidate = record.identifier("group"), record.identifier("candidate")
        ratings, score = tuple(record.numbers("rating")), _score(record, scale, counts)
        before, known_score = by_key.get((group, candidate, aspect), ((), score))
        if before and (known_score != score or "rater" not in record.values):
            raise record.error(
                f"candidate {candidate!r} of group {group!r} occurs twice for aspect {aspect!r}",
                "candidate",
                remedy=f"{_REMEDY_DUPLICATE}; a row of each rater needs a column rater",
            )
        by_key[group, candidate, aspect] = before + ratings, score
    if not by_key:
        raise InputError(
            "no row of scores", file=path, expected="rows of group, candidate, aspect, rating, score",
            found=f"none of aspect {', '.join(aspects)}" if aspects else "an empty file",
        )  # fmt: skip
    present = dict.fromkeys(aspect for _, _, aspect in by_key)
    if missing := [aspect for aspect in aspects if aspect not in present]:
        raise InputError(
            f"the file has no row of aspect {missing[0]!r}",
            file=path,
            field="aspect",
            expected="one of its aspects: " + ", ".join(present) if present else None,
        )
    if not any(ratings and score is not None for ratings, score in by_key.values()):
        raise InputError("no row has both a rating and a score", file=path, expected="at least two such rows")
    return RatedScores(_by_aspect(by_key), len(by_key), counts["samples"], counts["unreadable"])


def _by_aspect(by_key: Mapping[_RowKey, tuple[tuple[float, ...], float | None]]) -> dict[str, list[GroupScores]]:
    groups: dict[str, dict[str, list[str]]] = {}
    for group, candidate, aspect in by_key:
        groups.setdefault(aspect, {}).setdefault(group, []).append(candidate)
    scores: dict[str, list[GroupScores]] = {}
    for aspect, by_group in groups.items():
        for group, candidates in by_group.items():
            ratings, values = zip(*(by_key[group, candidate, aspect] for candidate in candidates), strict=True)
            means = tuple(math.fsum(each) / len(each) if each else None for each in ratings)
            scores.setdefault(aspect, []).append(GroupScores(group, tuple(candidates), means, values, ratings))
    return scores


def _score(record: Record, scale: Scale | None, counts: Counter[str]) -> float | None:
    if "samples" in record.values and scale is not None:
        return _mean_of_samples(record, scale, counts)
    if "score" not in record.values and "samples" in record.values:
        raise record.error(
            "recorded samples need a scale to be read on",
            "samples",
            remedy="give --reply-scale LOW-HIGH, e.g. --reply-scale 1-5",
        )
    return record.optional_number("score")


def _mean_of_samples(record: Record, scale: Scale, counts: Counter[str]) -> float | None:
    # An empty reply is a sample, too: an unreadable one.
    texts = record.texts("samples", blank=True)
    parsed = [parsing.parse_score(text, scale, record.text("aspect")) for text in texts]
    values = [value for value in parsed if not isinstance(value, parsing.Unreadable)]
    counts["samples"] += len(texts)
    counts["unreadable"] += len(texts) - len(values)
    return math.fsum(values) / len(values) if values else None


# --- scores of an external judge ---


def read_external(
    path: Path, name: str, corpus: Corpus, aspects: Sequence[Aspect], *, full_corpus: Corpus | None = None
) -> EvaluatedJudge:
    """Read the scores of an external judge.

    Args:
        path: A .jsonl, .json or .csv file.
        name: The judge's name.
        corpus: The groups that judges are compared on, e.g. the held-out part.
        aspects: The aspects that judges are compared in.
        full_corpus: The corpus that `corpus` is a part of; rows about its other groups are left out and counted. By
            default there are no others.

    Raises:
        InputError: The file cannot be read, names a group, candidate or aspect that the data do not have, has two
            scores for one item or one that is no finite number, or has no score for any item.
    """
    reader = _Reader(full_corpus or corpus, aspects)
    keys = [(g.id, c.id, a.name) for a in aspects for g in corpus.groups for c in g.candidates]
    compared, by_key, lines, ignored = set(keys), dict[_RowKey, float | None](), dict[_RowKey, int](), 0
    for record in read_records(path):
        scores = dict(reader.read(record))
        for key in scores:
            if key in lines:
                raise record.error(
                    f"a second score for candidate {key[1]!r} of group {key[0]!r}, {key[2]}",
                    "candidate",
                    found=f"the first is in line {lines[key]}",
                    remedy=_REMEDY_DUPLICATE,
                )
            lines[key] = record.line
        by_key |= scores
        ignored += not compared & set(scores)
    if all(by_key.get(key) is None for key in keys):
        raise InputError(
            "no score for any of the items that are compared",
            file=path,
            expected=f"scores of {', '.join(reader.wanted)} for groups of {corpus.origin.name}",
            found=f"{ignored} rows about other groups or aspects" if ignored else "no row with a score",
        )
    by_aspect = {
        aspect.name: [
            replace(group, scores=tuple(by_key.get((group.group, c, aspect.name)) for c in group.candidates))
            for group in group_ratings(corpus, aspect)
        ]
        for aspect in aspects
    }
    covered = [key for key in keys if by_key.get(key) is not None]
    return EvaluatedJudge(
        by_aspect, note=f"scores from a file, {_coverage(covered, len(keys), reader.wanted, ignored)}"
    )


def _coverage(covered_keys: Sequence[_RowKey], items: int, aspects: Sequence[str], ignored: int) -> str:
    """How many items the file covers, e.g. `118 of 120 items have a score; 40 rows are about groups or aspects ...`."""
    covered = Counter(aspect for _, _, aspect in covered_keys)
    text = f"{covered.total()} of {items} items have a score"
    if uncovered := [aspect for aspect in aspects if not covered[aspect]]:
        text += f", none in {', '.join(uncovered)}"
    if ignored:
        text += f"; {ignored} rows are about groups or aspects that are not compared here"
    return text


class _Reader:
    """Reads the scores of a record; the first record decides which layout the file has."""

    def __init__(self, full_corpus: Corpus, aspects: Sequence[Aspect]) -> None:
        self.wanted = tuple(a.name for a in aspects)
        self._task_aspects = tuple(a.name for a in full_corpus.task.aspects)
        self._candidates = {group.id: {c.id: None for c in group.candidates} for group in full_corpus.groups}
        self._wide: bool | None = None

    def read(self, record: Record) -> Iterator[tuple[_RowKey, float | None]]:
        if self._wide is None:
            self._wide = "aspect" not in record.values
            if self._wide:
                self._check_columns(record)
        if self._wide == ("aspect" in record.values):
            raise record.error(
                "this row has another layout than the first one",
                expected="an aspect and its score in every row, or a column for each aspect in every row",
                found=", ".join(map(str, record.values)) or "no fields",
            )
        group = record.choice("group", self._candidates, "give the file that the scores were made for as --data")
        candidate = record.choice("candidate", self._candidates[group])
        if not self._wide:
            yield (group, candidate, record.choice("aspect", self._task_aspects)), record.optional_number("score")
            return
        for aspect in self._task_aspects:
            if aspect in record.values:
                yield (group, candidate, aspect), record.optional_number(aspect)

    def _check_columns(self, record: Record) -> None:
        columns = [str(name) for name in record.values]
        for aspect in self.wanted:
            others = [c for c in columns if c not in self._task_aspects]
            remedy = None if aspect in columns else did_you_mean(aspect, others, "did you mean {}?")
            if remedy is not None:
                raise record.error(f"no column for the aspect {aspect!r}", found=", ".join(columns), remedy=remedy)
        if not set(self._task_aspects) & set(columns):
            raise record.error(
                "neither an aspect and its score nor a column for each aspect",
                expected="group, candidate, aspect, score; or group, candidate and columns " + ", ".join(self.wanted),
                found=", ".join(columns) or "no fields",
            )
