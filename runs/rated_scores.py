"""Rows of scores beside human ratings, from a JSONL or CSV file, as the groups that agreement is computed on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from debate_judge.data.agreement.tables import GroupScores
from debate_judge.data.errors import InputError
from debate_judge.data.files.formats import rows
from debate_judge.data.files.records import Record
from debate_judge.data.schema import ALL, Scale
from debate_judge.data.sources import SourceChoice
from debate_judge.programs.roles import parsing as replies

RatedScore = tuple[tuple[float, ...], float | None]
"""The ratings of one candidate, one per rater, and its score."""

GroupRows = dict[str, dict[str, RatedScore]]
"""Group -> candidate -> its row."""


@dataclass(frozen=True)
class Rows:
    """What a file held."""

    aspects: dict[str, list[GroupScores]]
    """Aspect -> groups, both in the order of the file."""
    rows: int
    samples: int = 0
    """Recorded replies that were read in place of scores."""
    unreadable: int = 0
    """Of these, the ones without a score on the scale; they are left out of a row's mean."""


def read_rows(
    path: Path, *, scale: Scale | None = None, only: tuple[str, ...] = (), sources: str | None = None
) -> Rows:
    """Read rows of {group, candidate, aspect, rating, score}.

    A rating is a number or a list of them, one per rater (in CSV `4;5;4`); a score is a number, or null or an
    empty cell where there is none. With a scale, `samples`, a list of recorded reply texts, may stand in place
    of `score`: each is read with the parser of live replies, and the readable ones are averaged.

    Args:
        path: The file.
        scale: Of recorded replies.
        only: The aspects that are wanted; none, or `ALL`, for all.
        sources: Which groups, as `data.sources.SourceChoice` reads it, in the order in which they first occur.

    Raises:
        InputError: The file cannot be read, a row is not usable, or none is left.
    """
    only = () if only == (ALL,) else only
    counts: Counter[str] = Counter()
    groups: dict[str, GroupRows] = {}
    for record in rows(path):
        aspect = record.text("aspect")
        if only and aspect not in only:
            continue
        group, candidate = record.identifier("group"), record.identifier("candidate")
        into = groups.setdefault(aspect, {}).setdefault(group, {})
        if candidate in into:
            raise record.error(
                f"candidate {candidate!r} of group {group!r} occurs twice for aspect {aspect!r}",
                "candidate",
                remedy="keep one row for each group, candidate and aspect",
            )
        into[candidate] = (tuple(record.numbers("rating")), _score(record, scale, counts))
        counts["rows"] += 1
    if not counts["rows"]:
        raise InputError(
            "no row to compute on", file=path, expected="rows of group, candidate, aspect, rating, score",
            found=f"none of aspect {', '.join(only)}" if only else "an empty file",
        )  # fmt: skip
    if sources is not None:
        groups = _chosen(path, groups, sources)
        counts["rows"] = sum(len(group) for by_group in groups.values() for group in by_group.values())
    missing = [a for a in only if a not in groups]
    if missing:
        raise InputError(
            f"the file has no row of aspect {missing[0]!r}",
            file=path,
            field="aspect",
            expected="one of its aspects: " + ", ".join(groups) if groups else None,
        )
    if not any(r and s is not None for by in groups.values() for g in by.values() for r, s in g.values()):
        raise InputError("no row has both a rating and a score", file=path, expected="at least two such rows")
    aspects = {
        aspect: [_group_scores(name, group) for name, group in by_group.items()] for aspect, by_group in groups.items()
    }
    return Rows(aspects, counts["rows"], counts["samples"], counts["unreadable"])


def _chosen(path: Path, groups: Mapping[str, GroupRows], sources: str) -> dict[str, GroupRows]:
    order = list(dict.fromkeys(group for by_group in groups.values() for group in by_group))
    first, last = SourceChoice.of(sources).places(len(order), path)
    wanted = set(order[first - 1 : last])
    found = {a: {g: rows for g, rows in by_group.items() if g in wanted} for a, by_group in groups.items()}
    return {aspect: by_group for aspect, by_group in found.items() if by_group}


def _group_scores(name: str, candidates: dict[str, RatedScore]) -> GroupScores:
    raters, scores = zip(*candidates.values(), strict=True)
    ratings = tuple(math.fsum(values) / len(values) if values else None for values in raters)
    return GroupScores(name, tuple(candidates), ratings, scores, raters)


def _score(record: Record, scale: Scale | None, counts: Counter[str]) -> float | None:
    if "samples" in record.values and scale is not None:
        return _mean_of_samples(record, scale, counts)
    if "score" not in record.values and "samples" in record.values:
        raise record.error(
            "recorded samples need a scale to be read on", "samples", remedy="pass --scale LOW-HIGH, e.g. --scale 1-5"
        )
    return record.optional_number("score")


def _mean_of_samples(record: Record, scale: Scale, counts: Counter[str]) -> float | None:
    # An LM that said nothing gave a reply, too: one that cannot be read.
    texts = record.texts("samples", blank=True)
    read = [replies.score(text, scale, record.text("aspect")) for text in texts]
    values = [value for value in read if not isinstance(value, replies.Unreadable)]
    counts["samples"] += len(texts)
    counts["unreadable"] += len(texts) - len(values)
    return math.fsum(values) / len(values) if values else None
