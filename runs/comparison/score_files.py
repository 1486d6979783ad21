"""Reads scores from files: scores with ratings, and scores of an external judge for a rated corpus.

Rows are {group, candidate, aspect, score}, as `runs/score.py` writes them, and have `rating` in a file of scores and
ratings.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from debate_judge.data.agreement.tables import GroupScores
from debate_judge.data.errors import InputError
from debate_judge.data.files.formats import read_records
from debate_judge.data.schema import ALL, Aspect, Corpus
from debate_judge.runs.comparison.results import EvaluatedJudge
from debate_judge.runs.runner.runner import group_ratings

_REMEDY_DUPLICATE = "keep one row for each group, candidate and aspect"


def read_rated_scores(path: Path, aspects: tuple[str, ...] = ()) -> dict[str, list[GroupScores]]:
    """Read rows of {group, candidate, aspect, rating, score}.

    A rating is a number or a list of them, one per rater (in CSV `4;5;4`); a score is a number, or null or an empty
    cell where there is none.

    Args:
        path: The file.
        aspects: Names of the aspects to read; none, or `ALL`, for all.

    Returns:
        Aspect -> scores and ratings by group, in the order of the file.

    Raises:
        InputError: The file cannot be read, a row cannot be used, or no row is left.
    """
    aspects = () if aspects == (ALL,) else aspects
    rows: dict[str, dict[str, dict[str, tuple[tuple[float, ...], float | None]]]] = {}
    """Aspect -> group -> candidate -> ratings and score."""
    for record in read_records(path):
        aspect = record.text("aspect")
        if aspects and aspect not in aspects:
            continue
        group, candidate = record.identifier("group"), record.identifier("candidate")
        ratings, score = tuple(record.numbers("rating")), record.optional_number("score")
        candidates = rows.setdefault(aspect, {}).setdefault(group, {})
        before, known_score = candidates.get(candidate, ((), score))
        if before and (known_score != score or "rater" not in record.values):
            raise record.error(
                f"candidate {candidate!r} of group {group!r} occurs twice for aspect {aspect!r}",
                "candidate",
                remedy=f"{_REMEDY_DUPLICATE}; a row of each rater needs a column rater",
            )
        candidates[candidate] = before + ratings, score
    if not rows and not aspects:
        raise InputError("no row of scores", file=path, expected="rows of group, candidate, aspect, rating, score")
    if missing := [aspect for aspect in aspects if aspect not in rows]:
        expected = f"one of its aspects: {', '.join(rows)}" if rows else None
        raise InputError(f"the file has no row of aspect {missing[0]!r}", file=path, field="aspect", expected=expected)
    pairs = [pair for groups in rows.values() for candidates in groups.values() for pair in candidates.values()]
    if not any(ratings and score is not None for ratings, score in pairs):
        raise InputError("no row has both a rating and a score", file=path, expected="at least two such rows")
    return {
        aspect: [
            GroupScores(
                group,
                tuple(candidates),
                tuple(math.fsum(ratings) / len(ratings) if ratings else None for ratings, _ in candidates.values()),
                tuple(score for _, score in candidates.values()),
                tuple(ratings for ratings, _ in candidates.values()),
            )
            for group, candidates in groups.items()
        ]
        for aspect, groups in rows.items()
    }


def read_external(path: Path, corpus: Corpus, aspects: Sequence[Aspect], full_corpus: Corpus) -> EvaluatedJudge:
    """Read the scores of an external judge.

    Args:
        path: A file of any format that data have.
        corpus: The groups that judges are compared on, e.g. the held-out part.
        aspects: The aspects that judges are compared in.
        full_corpus: The corpus that `corpus` is a part of; rows about its other groups are left out and counted.

    Raises:
        InputError: The file cannot be read, names a group, candidate or aspect that the data do not have, has two
            scores for one item or one that is no finite number, or has no score for any item.
    """
    names, known = [a.name for a in aspects], [a.name for a in full_corpus.task.aspects]
    candidates = {group.id: {c.id: None for c in group.candidates} for group in full_corpus.groups}
    keys = dict.fromkeys((g.id, c.id, name) for name in names for g in corpus.groups for c in g.candidates)
    scores: dict[tuple[str, str, str], float | None] = {}
    lines: dict[tuple[str, str, str], int] = {}
    for record in read_records(path):
        group = record.choice("group", candidates, "give the file that the scores were made for as --data")
        candidate = record.choice("candidate", candidates[group])
        key = group, candidate, record.choice("aspect", known)
        if key in lines:
            raise record.error(
                f"a second score for candidate {candidate!r} of group {group!r}, {key[2]}",
                "candidate",
                found=f"the first is in line {lines[key]}",
                remedy=_REMEDY_DUPLICATE,
            )
        lines[key], scores[key] = record.line, record.optional_number("score")
    covered = Counter(name for *_, name in (key for key in keys if scores.get(key) is not None))
    ignored = len(scores.keys() - keys.keys())
    if not covered:
        raise InputError(
            "no score for any of the items that are compared",
            file=path,
            expected=f"scores of {', '.join(names)} for groups of {corpus.origin.name}",
            found=f"{ignored} rows about other groups or aspects" if ignored else "no row with a score",
        )
    note = f"scores from a file, {covered.total()} of {len(keys)} items have a score"
    if uncovered := [name for name in names if not covered[name]]:
        note += f", none in {', '.join(uncovered)}"
    if ignored:
        note += f"; {ignored} rows are about groups or aspects that are not compared here"
    by_aspect = {
        aspect.name: [
            replace(group, scores=tuple(scores.get((group.group, c, aspect.name)) for c in group.candidates))
            for group in group_ratings(corpus, aspect)
        ]
        for aspect in aspects
    }
    return EvaluatedJudge(by_aspect, note=note)
