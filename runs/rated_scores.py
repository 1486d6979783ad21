"""Rows of scores beside human ratings, from a JSONL or CSV file, as the groups that agreement is computed on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from debate_judge.data.agreement.tables import GroupScores
from debate_judge.data.errors import InputError
from debate_judge.data.files.reading import csv_rows, json_records
from debate_judge.data.files.records import Record
from debate_judge.data.schema import Scale
from debate_judge.programs.roles import parsing as replies


@dataclass
class Rows:
    """What a file held."""

    aspects: dict[str, list[GroupScores]]
    """Aspect -> groups, both in the order of the file."""
    rows: int
    samples: int = 0
    """Recorded replies that were read in place of scores."""
    unreadable: int = 0
    """Of these, the ones without a score on the scale; they are left out of a row's mean."""


@dataclass
class _Group:
    candidates: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)


def read_rows(path: Path, *, scale: Scale | None = None, only: tuple[str, ...] = ()) -> Rows:
    """Read rows of {group, candidate, aspect, rating, score}.

    A rating is a number or a list of them, one per rater (in CSV `4;5;4`); a score is a number, or null or an
    empty cell where there is none. With a scale, `samples`, a list of recorded reply texts, may stand in place
    of `score`: each is read with the parser of live replies, and the readable ones are averaged.

    Raises:
        InputError: The file cannot be read, a row is not usable, or none is left.
    """
    if not path.exists():
        raise InputError("there is no such file", file=path, expected="a .jsonl or .csv file of rows")
    records: Iterator[Record] = csv_rows(path) if path.suffix.lower() == ".csv" else json_records(path)
    found = Rows({}, 0)
    groups: dict[str, dict[str, _Group]] = {}
    for record in records:
        aspect = record.text("aspect")
        if only and aspect not in only:
            continue
        group, candidate = record.identifier("group"), record.identifier("candidate")
        into = groups.setdefault(aspect, {}).setdefault(group, _Group()).candidates
        if candidate in into:
            raise record.error(
                f"candidate {candidate!r} of group {group!r} stands twice for aspect {aspect!r}",
                "candidate",
                remedy="keep one row for each group, candidate and aspect",
            )
        into[candidate] = (_rating(record), _score(record, scale, found))
        found.rows += 1
    if not found.rows:
        raise InputError(
            "no row to compute on", file=path, expected="rows of group, candidate, aspect, rating, score",
            found=f"none of aspect {', '.join(only)}" if only else "an empty file",
        )  # fmt: skip
    missing = [a for a in only if a not in groups]
    if missing:
        raise InputError(
            f"the file has no row of aspect {missing[0]!r}",
            file=path,
            field="aspect",
            expected="one of its aspects: " + ", ".join(groups) if groups else None,
        )
    if not any(None not in pair for by in groups.values() for g in by.values() for pair in g.candidates.values()):
        raise InputError("no row has both a rating and a score", file=path, expected="at least two such rows")
    found.aspects = {
        aspect: [_group_scores(name, group.candidates) for name, group in by_group.items()]
        for aspect, by_group in groups.items()
    }
    return found


def _group_scores(name: str, candidates: dict[str, tuple[float | None, float | None]]) -> GroupScores:
    ratings, scores = zip(*candidates.values(), strict=True)
    return GroupScores(name, tuple(candidates), ratings, scores)


def _rating(record: Record) -> float | None:
    record.require("rating")
    value = record.values["rating"]
    if value is None or value == "":
        return None
    if isinstance(value, str) and ";" in value:
        value = [part.strip() for part in value.split(";") if part.strip()]
    values = value if isinstance(value, list) else [value]
    if not values:
        return None
    return math.fsum(finite(record, "rating", v) for v in values) / len(values)


def _score(record: Record, scale: Scale | None, found: Rows) -> float | None:
    if "samples" in record.values and scale is not None:
        return _mean_of_samples(record, scale, found)
    if "score" not in record.values and "samples" in record.values:
        raise record.error(
            "recorded samples need a scale to be read on", "samples", remedy="pass --scale LOW-HIGH, e.g. --scale 1-5"
        )
    record.require("score")
    value = record.values["score"]
    return None if value is None or value == "" else finite(record, "score", value)


def _mean_of_samples(record: Record, scale: Scale, found: Rows) -> float | None:
    texts = _samples(record)
    read = [replies.score(text, scale, record.text("aspect")) for text in texts]
    values = [value for value in read if not isinstance(value, replies.Unreadable)]
    found.samples += len(texts)
    found.unreadable += len(texts) - len(values)
    return math.fsum(values) / len(values) if values else None


def _samples(record: Record) -> list[str]:
    """The recorded replies; an LM that said nothing gave a reply too, one that cannot be read."""
    if record.values["samples"] is None:
        return []
    found: list[str] = []
    for number, text in enumerate(record.items("samples")):
        if not isinstance(text, str):
            raise record.error("not a recorded reply", f"samples[{number}]", expected="a text", found=text)
        found.append(text)
    return found


def finite(record: Record, name: str, value: object) -> float:
    """A number of a record.

    Raises:
        InputError: It is none, or not finite.
    """
    # A CSV file has only texts; in JSON a text that looks like a number is more likely a mistake.
    from_csv = record.file.lower().endswith(".csv")
    try:
        if isinstance(value, bool) or (isinstance(value, str) and not from_csv):
            raise ValueError
        number = float(value)  # type: ignore[arg-type]
        # Twice, for differences of two values have to be finite too.
        if not math.isfinite(2 * number):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise record.error("not a number", name, expected="a finite number", found=value) from None
    return number
