"""Preferences between two texts as ratings: a record holds both texts and which one is better.

    {"question": "…", "response_a": "…", "response_b": "…", "winner": "tie"}

A pair becomes a group of two candidates. In each comparison the better text gets 1 and the other 0, and in a tie both
get 0.5; a `strength` between 0 and 1 scales the distance from 0.5. Columns of the verdict: `winner`, `preference`,
`label` and similar names; `tone_winner` for an aspect, `winner_anna` or `annotator1` for one of several raters; or a
list. Columns `chosen` and `rejected` need no verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from debate_judge.data.files.columns import OTHER_NAMES, RATER_NAME, ColumnNames, normalized_name
from debate_judge.data.files.records import Record, is_missing
from debate_judge.data.schema import fingerprint

PREFERENCE = "preference"
"""The aspect of verdicts without an aspect."""

_TEXT = "text|response|answer|output|summary|completion|candidate|reply|generation|translation|story"
_TEXT_ENDINGS = (("a", "b"), ("1", "2"), ("left", "right"))
_CHOSEN = ("chosen", "rejected")
_VERDICT = "winner|preference|preferred|better|verdict|choice|vote|label"
_RATER = "annotator|rater|annotation"
_TIES = frozenset(("tie", "tied", "draw", "equal", "same", "both", "neither", "0", "0.5"))
_STRENGTH = "strength"


_Comparison = tuple[str, str, str, float | None]
"""Column, aspect, rater, and the rating of the first text."""


@dataclass(frozen=True, slots=True)
class PairColumns:
    """The columns of a record with a pair."""

    texts: tuple[str, str]
    verdicts: Mapping[str, tuple[str, str]]
    """Column -> aspect and rater; empty if the first text is the chosen one."""
    labels: tuple[str, str]
    """Names of the two texts in verdicts, besides the names of their columns."""


def pair_columns(record: Record) -> PairColumns | None:
    """The columns of a pair and its verdicts; None if the record holds no pair."""
    keys = {normalized_name(str(key)): str(key) for key in record.values}
    if all(name in keys for name in _CHOSEN):
        return PairColumns((keys[_CHOSEN[0]], keys[_CHOSEN[1]]), {}, _CHOSEN)
    for first, second in _TEXT_ENDINGS:
        for name, key in keys.items():
            match = re.fullmatch(rf"((?:model_)?(?:{_TEXT})_?){first}", name)
            if match and (other := keys.get(f"{match[1]}{second}")):
                verdicts = {keys[n]: verdict for n in keys if (verdict := _verdict_of_column(n)) is not None}
                return PairColumns((key, other), verdicts, (first, second)) if verdicts else None
    return None


def _verdict_of_column(name: str) -> tuple[str, str] | None:
    """Aspect and rater of a column of verdicts, from its name; None for other columns."""
    if RATER_NAME.fullmatch(name):
        return None
    if re.fullmatch(_VERDICT, name):
        return PREFERENCE, ""
    if by_rater := re.fullmatch(rf"(?:{_VERDICT}|{_RATER})_?(\w+)", name):
        return PREFERENCE, by_rater[1].strip("_")
    if of_aspect := re.fullmatch(rf"(\w+?)_(?:{_VERDICT})", name):
        return of_aspect[1], ""
    return None


def pair_rows(records: Iterable[Record], columns: ColumnNames) -> Iterator[Record]:
    """Records of pairs as rows of ratings: for each verdict one row per text."""
    for record in records:
        pair = pair_columns(record)
        if pair is None:
            raise record.error("not a pair", expected="the columns of the first record", found=", ".join(record.values))
        yield from _rows(record, pair, columns)


def _rows(record: Record, pair: PairColumns, columns: ColumnNames) -> Iterator[Record]:
    texts = [record.text(column) for column in pair.texts]
    sources = (columns.renamed.get("source"), "source", *OTHER_NAMES["source"])
    names = {normalized_name(str(key)): str(key) for key in record.values}
    source = next(
        (record.values[names[normalized_name(name)]] for name in sources if name and normalized_name(name) in names), ""
    )
    used = {*pair.texts, *pair.verdicts, names.get(_STRENGTH, "")}
    rest = {key: value for key, value in record.values.items() if key not in used}
    # Every pair is a group, also if a source has several pairs, or each rater a row.
    rest = {"group": fingerprint([str(source), *texts])} | rest
    if not pair.verdicts:
        # The order of the texts must not reveal which one was chosen.
        comparisons: list[_Comparison] = [("", PREFERENCE, "", 1.0)]
        flipped = fingerprint(texts) > fingerprint(texts[::-1])
    else:
        comparisons, flipped = list(outcomes(record, pair)), False
    order = (1, 0) if flipped else (0, 1)
    for column, aspect, rater, first in comparisons or [("", PREFERENCE, "", None)]:
        for i in order:
            rating = None if first is None else first if i == 0 else 1 - first
            ours = {"candidate": pair.texts[i], "text": texts[i], "aspect": aspect, "rating": rating}
            values = {**rest, **ours, **({"rater": rater} if rater else {})}
            full_names = {"text": pair.texts[i], "rating": column or pair.texts[0], "aspect": column}
            yield replace(
                record, values=values, full_names=full_names, format="csv", comma_columns=None, decimal_comma=False
            )


def outcomes(record: Record, pair: PairColumns) -> Iterator[_Comparison]:
    """The ratings of a record's first text, by verdict.

    Raises:
        InputError: A verdict is neither a text nor a tie, or its strength is not between 0 and 1.
    """
    for column, (aspect, rater) in pair.verdicts.items():
        verdict = record.values[column]
        verdicts = verdict if isinstance(verdict, list) else [verdict]
        for number, value in enumerate(verdicts, start=1):
            if not is_missing(value):
                name = rater or (str(number) if len(verdicts) > 1 else "")
                yield column, aspect, name, _rating(record, column, value, pair)


def _rating(record: Record, column: str, value: Any, pair: PairColumns) -> float:
    """The rating of the first text by a verdict: 1, 0.5 or 0, scaled by `strength`."""
    written = normalized_name(str(int(value) if isinstance(value, float) and value.is_integer() else value))
    # `A`, `response_a`, `model_a`; or the name of the text's column.
    verdict = re.sub(rf"^(?:model|{_TEXT})_?(?=(?:{'|'.join(pair.labels)})$)", "", written)
    named = [normalized_name(text) for text in pair.texts]
    if written in _TIES or written.startswith("tie"):
        return 0.5
    if verdict not in (*pair.labels, *named):
        raise record.error(
            "not a verdict on the pair",
            column,
            expected=f"{pair.labels[0]}, {pair.labels[1]}, the name of a column, or tie",
            found=value,
        )
    return 0.5 + (0.5 if verdict in (pair.labels[0], named[0]) else -0.5) * _strength(record)


def _strength(record: Record) -> float:
    name = next((str(key) for key in record.values if normalized_name(str(key)) == _STRENGTH), None)
    if name is None or is_missing(record.values[name]):
        return 1.0
    strength = record.number(name)
    if not 0 < strength <= 1:
        raise record.error("not a strength", name, expected="a number above 0 and up to 1", found=f"{strength:g}")
    return strength
