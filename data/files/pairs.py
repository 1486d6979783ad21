"""Preferences between two texts as ratings: a record holds both texts and which one is better.

    {"question": "…", "response_a": "…", "response_b": "…", "winner": "tie"}

A pair becomes a group of two candidates. In each comparison the better text gets 1 and the other 0, and in a tie both
get 0.5; a `strength` between 0 and 1 scales the distance from 0.5. Columns of the verdict: `winner`, `preference`,
`label` and similar names; `tone_winner` for an aspect, `winner_anna` or `annotator1` for one of several raters; or a
list, `A;B;A` in a table. Columns `chosen` and `rejected` need no verdict.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from debate_judge.data.files.columns import OTHER_NAMES, RATER_NAME, ColumnNames, normalized_name
from debate_judge.data.files.records import Record, is_missing, looks_like_a_number
from debate_judge.data.schema import fingerprint

PREFERENCE = "preference"
"""The aspect of verdicts without an aspect."""

_TEXT = "text|response|answer|output|summary|completion|candidate|reply|generation|translation|story"
_TEXT_ENDINGS = (("a", "b"), ("1", "2"), ("left", "right"))
_MARKS = tuple(frozenset(marks) for marks in zip(*_TEXT_ENDINGS, ("first", "second"), strict=True))
"""What a verdict may call the first and the second text."""
_CHOSEN = ("chosen", "rejected")
_VERDICT = "winner|preference|preferred|better|verdict|choice|vote|label"
_RATER = "annotator|rater|annotation"
_TIES = frozenset(("tie", "tied", "draw", "equal", "same", "both", "neither", "0", "0.5"))
_STRENGTH = re.compile(rf"(?:(?:{_VERDICT})_)?strength")
_AFTER_MARK = re.compile(r"_(?:(?:is|was)_)?(?:better|best|wins|won|preferred|chosen)$")

_SAMPLE = 200
"""Records whose values decide which columns are verdicts."""
_MIN_REPEATED, _MAX_REPEATED_SHARE = 5, 0.2
"""Number and share of repeated pairs in the sample above which a column must tell their rows apart."""

_Comparison = tuple[str, str, str, float | None]
"""Column, aspect, rater, and the rating of the first text."""


@dataclass(frozen=True, slots=True)
class PairColumns:
    """The columns of a record with a pair."""

    texts: tuple[str, str]
    verdicts: Mapping[str, tuple[str, str]]
    """Column -> aspect and rater; empty if the first text is the chosen one."""
    labels: tuple[str, str]
    """Endings of the columns of the two texts, for messages and columns of models."""

    def rating(self, record: Record, value: object) -> float | None:
        """The rating of the first text by a verdict, without its strength: 1, 0.5 or 0; None for other values."""
        verdict = _normalized(value)
        if verdict in _TIES or verdict.startswith("tie"):
            return 0.5
        # `A`, `response_a`, `option A is better`; the name of the text's column, or of the model that wrote it.
        mark = _AFTER_MARK.sub("", verdict)
        mark = re.sub(rf"^(?:model|option|{_TEXT})_?(?=(?:{'|'.join(_MARKS[0] | _MARKS[1])})$)", "", mark)
        for marks, label, column, rating in zip(_MARKS, self.labels, self.texts, (1.0, 0.0), strict=True):
            model = record.values.get(f"model_{label}")
            if mark in marks or verdict == normalized_name(column) or (model and verdict == _normalized(model)):
                return rating
        return None


def _normalized(value: object) -> str:
    return normalized_name(str(int(value) if isinstance(value, float) and value.is_integer() else value))


def pair_columns(*records: Record) -> PairColumns | None:
    """The columns of a pair and its verdicts, by the names in the first record and the values in all; None if the
    records hold no pairs."""
    keys = {normalized_name(str(key)): str(key) for key in records[0].values}
    if all(name in keys for name in _CHOSEN):
        return PairColumns((keys[_CHOSEN[0]], keys[_CHOSEN[1]]), {}, _CHOSEN)
    for first, second in _TEXT_ENDINGS:
        for name, key in keys.items():
            match = re.fullmatch(rf"((?:model_)?(?:{_TEXT})_?){first}", name)
            if match and (other := keys.get(f"{match[1]}{second}")):
                columns = PairColumns((key, other), {}, (first, second))
                verdicts = _verdict_columns(records, keys, columns)
                return replace(columns, verdicts=verdicts) if verdicts else None
    return None


def _verdict_columns(
    records: Sequence[Record], keys: Mapping[str, str], columns: PairColumns
) -> dict[str, tuple[str, str]]:
    """Column -> aspect and rater. A column `winner_x` or `x_winner` may hold something else, e.g. a reason; beside a
    column `winner`, numbers in it are not verdicts either."""
    unqualified = {key: (PREFERENCE, "") for name, key in keys.items() if re.fullmatch(_VERDICT, name)}
    qualified = {}
    for name, key in keys.items():
        verdict = None if key in unqualified or key in columns.texts else _verdict_of_column(name)
        values = [(record, value) for record in records for value in _verdicts_in(record, key)]
        numeric = not values or any(looks_like_a_number(_normalized(value)) for _, value in values)
        all_verdicts = all(columns.rating(record, value) is not None for record, value in values)
        if verdict and all_verdicts and not (unqualified and numeric):
            qualified[key] = verdict
    return {key: (unqualified | qualified)[key] for key in keys.values() if key in unqualified or key in qualified}


def _verdict_of_column(name: str) -> tuple[str, str] | None:
    """Aspect and rater of a column of verdicts, from its name; None for other columns."""
    if RATER_NAME.fullmatch(name) or _STRENGTH.fullmatch(name):
        return None
    if by_rater := re.fullmatch(rf"(?:{_VERDICT}|{_RATER})_?(\w+)", name):
        return PREFERENCE, by_rater[1].strip("_")
    if of_aspect := re.fullmatch(rf"(\w+?)_(?:{_VERDICT})", name):
        return of_aspect[1], ""
    return None


def _verdicts_in(record: Record, column: str) -> list[object]:
    """The verdicts in a field that may hold those of several raters: a list, or in a table `A;B;A`."""
    value = record.values.get(column)
    if record.format == "csv" and isinstance(value, str):
        value = value.split(";")
    return [verdict for verdict in (value if isinstance(value, list) else [value]) if not is_missing(verdict)]


def pair_rows(records: Iterable[Record], columns: ColumnNames) -> Iterator[Record]:
    """Records of pairs as rows of ratings: for each verdict one row per text."""
    stream = iter(records)
    sample = list(islice(stream, _SAMPLE))
    pair = pair_columns(*sample)
    if pair is None:
        raise sample[0].error("not a pair", expected="two texts and a verdict", found=sample[0].field_names)
    _refuse_zero_and_one(sample, pair)
    reader = _PairReader(pair, columns)
    reader.refuse_repeated(sample)
    for record in chain(sample, stream):
        if not set(pair.texts) <= set(record.values):
            raise record.error("not a pair", expected="the columns of the first record", found=record.field_names)
        yield from reader.rows(record)


def _refuse_zero_and_one(sample: Sequence[Record], pair: PairColumns) -> None:
    first_with: dict[str, tuple[Record, str]] = {}
    for record in sample:
        for column in pair.verdicts:
            for value in _verdicts_in(record, column):
                first_with.setdefault(_normalized(value), (record, column))
    # Beside texts called 1 and 2, the verdicts 0, 1 and 2 are clear.
    unclear = {"0", "1"} if pair.labels == ("1", "2") else {"0", "1", "2"}
    if "0" in first_with and first_with.keys() <= unclear:
        record, column = first_with["0"]
        raise record.error(
            f"the verdicts are {', '.join(sorted(first_with))} only: 0 may be a tie or the first text",
            column,
            remedy=f"write {pair.labels[0]} and {pair.labels[1]} for the better text, and tie where both are equal",
        )


class _PairReader:
    """Converts the records of one file; a pair that occurs again, in either order, belongs to the same group."""

    def __init__(self, pair: PairColumns, columns: ColumnNames) -> None:
        self._pair, self._columns = pair, columns
        self._first_order: dict[str, tuple[str, tuple[str, str]]] = {}
        """Source and texts -> id of the group, and the texts in the order in which they came first."""
        self._pairs_of_group: Counter[str] = Counter()

    def _roles(self, record: Record) -> dict[str, str]:
        """Role -> column of the record, by its names."""
        by_name = {normalized_name(str(key)): str(key) for key in record.values}
        roles = {}
        for role in ("source", "context", "group", "aspect", "rater"):
            names = (self._columns.renamed.get(role, role), role, *OTHER_NAMES.get(role, ()))
            if column := next((by_name[n] for name in names if (n := normalized_name(name)) in by_name), None):
                roles[role] = column
        raters = [key for name, key in by_name.items() if RATER_NAME.fullmatch(name)]
        return {"rater": raters[0], **roles} if len(raters) == 1 else roles

    def _identity(self, record: Record, roles: Mapping[str, str]) -> tuple[list[str], tuple[str, str], str]:
        """Source and context, texts, and what pairs in either order have in common."""
        source, texts = _source_and_texts(record, self._pair.texts, roles.get("source"))
        context = str(record.values[roles["context"]]) if "context" in roles else ""
        origin = [source, context] if context else [source]
        return origin, texts, fingerprint([*origin, *sorted(texts)])

    def refuse_repeated(self, sample: Sequence[Record]) -> None:
        """Refuse a file in which many pairs occur again, without a column that says why."""
        repeated = len(sample) - len({self._identity(record, self._roles(record))[2] for record in sample})
        first, too_many = sample[0], max(_MIN_REPEATED, _MAX_REPEATED_SHARE * len(sample))
        if repeated > too_many and not {"rater", "aspect"} & set(self._roles(first)):
            raise first.error(
                f"{repeated} of {len(sample)} rows repeat a pair: by other raters, or about other aspects?",
                next(iter(self._pair.verdicts), self._pair.texts[0]),
                found=first.field_names,
                remedy="name the column that says so: --columns rater=COLUMN or --columns aspect=COLUMN",
            )

    def rows(self, record: Record) -> Iterator[Record]:
        """The rows of one record: for each verdict one per text."""
        pair, roles = self._pair, self._roles(record)
        origin, texts, key = self._identity(record, roles)
        strength = next((str(k) for k in record.values if _STRENGTH.fullmatch(normalized_name(str(k)))), None)
        rater_key, aspect_key = (self._columns.renamed.get(role, role) for role in ("rater", "aspect"))
        used = {*pair.texts, *pair.verdicts, strength, *(roles.get(role) for role in ("group", "aspect", "rater"))}
        shared = {name: value for name, value in record.values.items() if name not in used}
        if origin[0] and not isinstance(shared.get(source := roles.get("source", "source")), str):
            shared[source] = origin[0]
        shared["group"] = self._group(record, roles.get("group"), key, origin, texts)
        swapped = texts != self._first_order[key][1]
        if not pair.verdicts:
            # The order of the texts must not reveal which one was chosen.
            comparisons: list[_Comparison] = [("", PREFERENCE, "", 1.0)]
            reversed_order = fingerprint(list(texts)) > fingerprint(list(texts[::-1]))
        else:
            comparisons, reversed_order = list(comparisons_in(record, pair, strength)), swapped
        for column, aspect, rater, first in comparisons or [("", PREFERENCE, "", None)]:
            if aspect == PREFERENCE and "aspect" in roles:
                aspect = record.text(roles["aspect"])
            if not rater and "rater" in roles:
                rater = record.identifier(roles["rater"])
            for i in (1, 0) if reversed_order else (0, 1):
                rating = None if first is None else first if i == 0 else 1 - first
                candidate = pair.texts[1 - i if swapped else i]
                values = {**shared, "candidate": candidate, "text": texts[i], aspect_key: aspect, "rating": rating}
                values |= {rater_key: rater} if rater else {}
                full_names = {"text": pair.texts[i], "rating": column or pair.texts[0], "aspect": column}
                yield replace(record, values=values, full_names=full_names, format="csv", decimal_commas=False)

    def _group(self, record: Record, column: str | None, key: str, origin: list[str], texts: tuple[str, str]) -> str:
        """The id of the pair's group: that of its column, numbered where several pairs have it."""
        if key not in self._first_order:
            # Every pair is a group, also if a source has several pairs, or each rater a row.
            group = fingerprint([*origin, *texts])
            if column is not None:
                group = record.identifier(column).strip()
                self._pairs_of_group[group] += 1
                if (number := self._pairs_of_group[group]) > 1:
                    group = f"{group}.{number}"
            self._first_order[key] = group, texts
        return self._first_order[key][0]


def _source_and_texts(
    record: Record, columns: tuple[str, str], source_column: str | None
) -> tuple[str, tuple[str, str]]:
    """The source and the two texts of a pair.

    Of conversations, the last messages are the texts. What comes before is the source, unless a column holds it; where
    it differs, the whole conversations are the texts.
    """
    first, second = (messages_in(record.values[column]) or [("", record.text(column))] for column in columns)
    before = [] if source_column is None else messages_in(record.values[source_column])
    source = joined_messages(before) or ("" if source_column is None else record.optional_text(source_column))
    if source_column is None and first[:-1] != second[:-1]:
        return "", (joined_messages(first), joined_messages(second))
    return source or joined_messages(first[:-1]), (first[-1][1], second[-1][1])


def messages_in(value: object) -> list[tuple[str, str]]:
    """Role and text of each message of a conversation; empty for other values."""
    messages = value if isinstance(value, list) else []
    if not all(isinstance(message, dict) and isinstance(message.get("content"), str) for message in messages):
        return []
    return [(str(message.get("role")), message["content"]) for message in messages]


def joined_messages(messages: Sequence[tuple[str, str]]) -> str:
    """Messages as one text; a single one without its role."""
    return "\n".join(text if len(messages) == 1 else f"{role}: {text}" for role, text in messages)


def comparisons_in(record: Record, pair: PairColumns, strength: str | None = None) -> Iterator[_Comparison]:
    """The ratings of a record's first text, by verdict, scaled by the column `strength`.

    Raises:
        InputError: A verdict is neither a text nor a tie, or its strength is not between 0 and 1.
    """
    for column, (aspect, rater) in pair.verdicts.items():
        verdicts = _verdicts_in(record, column)
        for number, value in enumerate(verdicts, start=1):
            rating = pair.rating(record, value)
            if rating is None:
                raise record.error(
                    "not a verdict on the pair",
                    column,
                    expected=f"{pair.labels[0]}, {pair.labels[1]}, the name of a column, or tie",
                    found=value,
                )
            yield (
                column,
                aspect,
                rater or (str(number) if len(verdicts) > 1 else ""),
                0.5 + (rating - 0.5) * _strength(record, strength),
            )


def _strength(record: Record, name: str | None) -> float:
    if name is None or is_missing(record.values.get(name)):
        return 1.0
    strength = record.number(name)
    if not 0 < strength <= 1:
        raise record.error(
            "not a strength",
            name,
            expected="a number above 0 and up to 1: divide all strengths by the greatest one",
            found=f"{strength:g}",
        )
    return strength
