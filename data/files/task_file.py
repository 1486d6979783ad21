"""A user's own task as a TOML file: labels for the texts, and each aspect with its rubric and scale.

    name = "support"
    source_label = "customer message"
    candidate_label = "reply"
    context_label = "policy"            # only where groups carry a context

    [aspects.tone]
    definition = "How the reply treats the customer. 1 is rude, 3 is correct but cold, 5 is warm and patient."
    low = 1
    high = 5
    step = 1                            # scores are whole points; left out, any number on the scale

    [columns]                           # what your tables call our columns, where the names differ
    source = "question"

The definition is the judge's rubric: say what to look at and what the ends of the scale mean.

For data that name no task, `guess_task` drafts one: aspects and scales follow from the values. The draft is used only
after the user has saved it as a task file.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Annotated, NamedTuple, Self

from pydantic import AfterValidator, Field, model_validator

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files import reading
from debate_judge.data.files.columns import (
    COMMENTS,
    RATER_NAME,
    ROLES,
    ColumnNames,
    holds_number,
    joined_columns,
    missing_column_error,
    name_without_rater,
    normalized_name,
    snake_case_name,
)
from debate_judge.data.files.guessed_roles import guess_roles, join_raters_hint, summarized_name
from debate_judge.data.files.rated_rows import flat_rows
from debate_judge.data.files.ratings import YES_NO_WORDS, how_to_write_ratings, number_remedy
from debate_judge.data.files.records import (
    ClosedModel,
    Number,
    Record,
    Text,
    is_missing,
    validated,
)
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.data.tasks import TASKS

RESERVED = frozenset({"group", "source", "candidate", "text", "context", "reference", "task"})
"""Columns of tables that never hold ratings; aspects cannot have these names."""


def find_task(name: str, folder: Path | None = None) -> Task:
    """The task called `name`: a built-in one, or a file ending in .toml (relative to `folder`).

    Raises:
        InputError: There is no such task, or its file cannot be used.
    """
    if name in TASKS:
        return TASKS[name]
    path = (folder or Path()) / name
    # os.path.exists, because Path.exists raises for a name that is too long, and records may hold any name.
    if path.suffix == ".toml" and os.path.exists(path):
        return read_task(path)
    near = [*TASKS, *(p.name for p in path.parent.glob("*.toml"))]
    raise InputError(
        "no such task file" if path.suffix == ".toml" else f"unknown task {name!r}",
        expected=", ".join(TASKS) + " or the path of a task file (.toml)",
        found=str(path) if path.suffix == ".toml" else name,
        remedy=did_you_mean(path.name, near),
    )


def read_task(path: str | Path) -> Task:
    """Read a task file.

    Raises:
        InputError: With the field, or with the line if the file is not valid TOML.
    """
    file = validated(_TaskFile, reading.toml(Path(path), "task file"))
    return Task(
        file.name.strip(),
        file.source_label.strip(),
        file.candidate_label.strip(),
        tuple(Aspect(name, a.definition.strip(), a.scale, a.source) for name, a in file.aspects.items()),
        file.context_label.strip(),
        {ours: theirs.strip() for ours, theirs in file.columns.items()},
    )


def usable_name(name: str) -> bool:
    """Whether an aspect may have this name: names become columns of tables and parts of metric names."""
    return name not in RESERVED and re.fullmatch(r"\w[\w .-]*", name) is not None


def _require_usable(name: str) -> str:
    if not usable_name(name):
        raise InputError(
            f"{name!r} cannot be the name of an aspect",
            expected="letters, digits, _, -, . and blanks, and none of " + ", ".join(sorted(RESERVED)),
        )
    return name


def _require_aspects(aspects: dict[str, _AspectTable]) -> dict[str, _AspectTable]:
    if not aspects:
        raise InputError("a task needs at least one aspect", expected="[aspects.NAME]")
    return aspects


class _AspectTable(ClosedModel):
    definition: Text
    low: Number
    high: Number
    step: Number | None = None
    source: bool = True

    @property
    def scale(self) -> Scale:
        # If a step is stated, scores are rounded to it; else unrounded scores agree best with mean ratings.
        return Scale(self.low, self.high, 1.0 if self.step is None else self.step, self.step is not None)

    @model_validator(mode="after")
    def _has_a_scale(self) -> Self:
        _ = self.scale
        return self


class _TaskFile(ClosedModel):
    name: Text
    source_label: Text
    candidate_label: Text
    context_label: Text = "background"
    aspects: Annotated[
        dict[Annotated[str, AfterValidator(_require_usable)], _AspectTable], AfterValidator(_require_aspects)
    ]
    columns: dict[str, Text] = Field(default_factory=dict)


# --- guessing ---

_COMMON_ENDS = (
    *((0, 1), (1, 3), (0, 2), (0, 3), (1, 4), (0, 4), (1, 5), (0, 5)),
    *((1, 7), (1, 10), (0, 10), (1, 100), (0, 100)),
)
"""Ends of common scales; the first one that contains all values is guessed."""

_NAME_WITH_SCALE = re.compile(r"(.*\S)\s*[(\[]\s*(-?\d{1,3})\s*(?:-|–|\.\.|to)\s*(\d{1,3})\s*[)\]]\s*")
"""Name of a column that ends in its scale, as surveys write it: `Coherence (1-5)`."""

_SYMMETRIC_ENDS = (1, 2, 3, 5, 10, 100)
"""Upper ends of symmetric scales, for values below 0."""

_NOT_A_RATING = re.compile(
    r"(?:.*_)?(?:id|idx|index|nr|no|number|row|seed|year|date|time|timestamp|length|words|tokens|count"
    r"|seconds|duration|latency|cost|age)|time_(?:taken|spent)"
    r"|(?!judge$|expert$)(?:" + RATER_NAME.pattern + r")|unnamed:.*|column_\d+_\(no_name\)"
)
"""Names of columns with ids, dates, durations, lengths or raters, and of those without a name."""

_ITEM_NAME = re.compile(r"q|question|item|statement|criterion|aspect|dimension")
"""Names whose numbers count what was rated, and not raters: `Question 1`, `Question 2`."""

_MAX_VALUES = 101
"""A column with more different whole numbers is guessed to be a count."""

_MAX_ASPECTS = 100
_MAX_ADVICE = 3
_MISSING_CODE = re.compile(r"-?([7-9])\1*")
"""Numbers that surveys write for a missing answer, such as -99."""

_MIN_RATING_SHARE = 0.8
"""Least share of a column's values that have to be ratings; loading then reports the first value that is not one."""


@dataclass(frozen=True)
class GuessedTask:
    """The draft of a task."""

    task: Task
    columns: ColumnNames
    """The user's names of columns, and the guessed ones."""
    built_in: bool
    """Whether it is a built-in task whose scales contain all ratings."""
    half_points: frozenset[str] = frozenset()
    """Aspects rated in whole and half points."""
    doubtful: Mapping[str, str] = field(default_factory=dict)
    """Column that was not guessed to be ratings, though half of its values are numbers -> the reason and a remedy."""

    def toml(self) -> str:
        """The text of the task file."""
        lines = [
            "# Guessed from the names and values in the data. Correct what is wrong, and say in each",
            "# definition what to look at and what the ends of the scale mean: it is the judge's rubric.",
            *(f"{name} = {_quoted(getattr(self.task, name))}" for name in ("name", "source_label", "candidate_label")),
        ]
        for aspect in self.task.aspects:
            scale = aspect.scale
            lines += ["", f"[aspects.{_toml_key(aspect.name)}]", f"definition = {_quoted(aspect.definition)}"]
            lines += [f"low = {scale.low:.15g}", f"high = {scale.high:.15g}"]
            lines += [] if aspect.source else ["source = false    # judged without the source"]
            if scale.step != 1:
                lines.append(f"step = {scale.step:.15g}")
            elif not scale.binary:
                half = aspect.name in self.half_points
                step, points = ("0.5", "whole or half points") if half else ("1", "whole points")
                lines.append(f"# step = {step}    # with it all scores are {points}; without it they tie less")
        if self.columns.renamed:
            lines += [
                "",
                "[columns]",
                *(f"{_toml_key(name)} = {_quoted(column)}" for name, column in self.columns.renamed.items()),
            ]
        return "\n".join(lines) + "\n"


def guess_task(records: Iterable[Record], columns: ColumnNames, name: str) -> GuessedTask:
    """Guess the task of a file from all its records; `name` is the task's.

    Raises:
        InputError: The file has no texts, or nothing in it looks like ratings.
    """
    all_records = list(flat_rows(records, columns))
    if not all_records:
        raise InputError("no records", file=name)
    keys = tuple(dict.fromkeys(str(key) for record in all_records for key in record.values))
    # Objects of ratings are columns by now; another column `ratings` is what any other column may be.
    role_names = [role for role in ROLES if role != "ratings"]
    roles, unmatched = columns.match(keys, role_names)
    guessed = guess_roles(all_records, roles, unmatched)
    if "text" not in {*roles, *guessed}:
        raise missing_column_error(all_records[0], "text", keys)
    # Where candidates have objects of ratings, other fields hold none.
    inside = f".{columns.renamed.get('ratings', 'ratings')}."
    nested = {key for row in all_records for key, full_name in row.full_names.items() if inside in full_name}
    columns = ColumnNames({**columns.renamed, **guessed})
    roles, unmatched = columns.match([key for key in keys if not nested or key in nested], role_names)
    possible = _possible_ratings(all_records, roles, unmatched, columns)
    values = {name: _Values.of(cells) for name, cells in possible.items()}
    scales = {aspect: scale for aspect, cells in values.items() if (scale := _guess_scale(cells, aspect)) is not None}
    doubtful = {c: why for c, cells in values.items() if c not in scales and (why := _why_not_ratings(cells))}
    normalized = {normalized_name(column) for column in scales}
    for column in [c for c in scales if summarized_name(c) in normalized]:
        doubtful[column] = "its name is that of a statistic of the ratings in another column"
        del scales[column], values[column]
    if not scales:
        raise _no_ratings_error(all_records[0], keys, values, doubtful)
    if len(scales) > _MAX_ASPECTS:
        raise all_records[0].error(
            f"{len(scales):,} columns look like ratings",
            expected=f"at most {_MAX_ASPECTS}; describe the aspects in a task file, and name it with --task",
        )
    for task in TASKS.values():
        if _fits(task, {column: values[column] for column in scales}):
            return GuessedTask(task, columns, built_in=True, doubtful=doubtful)
    source, text = (columns.renamed.get(role, role) for role in ("source", "text"))
    names = _aspect_names(scales)
    columns = ColumnNames({**columns.renamed, **{name: column for column, name in names.items() if name != column}})
    aspects = tuple(Aspect(names[a], _definition(names[a], scale), scale) for a, scale in scales.items())
    label = re.sub(r"[^\w-]+", "-", name).strip("-") or "task"
    halves = frozenset(names[a] for a in scales if values[a].has_half_points)
    return GuessedTask(Task(label, _readable(source), _readable(text), aspects), columns, False, halves, doubtful)


def _no_ratings_error(
    record: Record, keys: Sequence[str], values: Mapping[str, _Values], doubtful: Mapping[str, str]
) -> InputError:
    raters = [key for key in keys if RATER_NAME.fullmatch(name_without_rater(key) or "") and holds_number(key, record)]
    reasons = dict(doubtful)
    reasons |= {c: how_to_write_ratings(record, c, cells.present) for c, cells in values.items() if c not in doubtful}
    advice = [f"{column}: {why}" for column, why in reasons.items() if why]
    first = ", ".join(f"{column} ({cells.present[0]!r:.40})" for column, cells in values.items() if cells.present)
    return record.error(
        "nothing in the data looks like ratings",
        expected="at least one column of numbers or of yes and no, with two different values",
        found=first or "columns " + ", ".join(keys),
        remedy=join_raters_hint(raters)
        or "; ".join(advice[:_MAX_ADVICE])
        or "texts without ratings can be scored; a compile needs ratings",
    )


def _aspect_names(columns: Iterable[str]) -> dict[str, str]:
    """Column -> a unique name that a task file allows."""
    name_of = {column: column for column in columns if usable_name(column)}
    for column in columns:
        if column not in name_of:
            with_scale = _NAME_WITH_SCALE.fullmatch(column)
            base = re.sub(r"[^\w .-]+", "_", with_scale[1] if with_scale else column).strip(" _.-") or "aspect"
            choices = (base if number == 1 else f"{base}_{number}" for number in count(1))
            name_of[column] = next(name for name in choices if usable_name(name) and name not in name_of.values())
    return name_of


def _possible_ratings(
    records: Sequence[Record], roles: Mapping[str, str], unmatched: Sequence[str], columns: ColumnNames
) -> dict[str, list[object]]:
    """Column, or base name of several raters' columns, that may hold ratings -> all its values."""
    if "aspect" in roles and "rating" in roles:
        return _ratings_of_long_table(records, roles["aspect"], roles["rating"])
    values: dict[str, list[object]] = {}
    name_of = {
        key: name
        for name, column in columns.renamed.items()
        if name not in ROLES and not name.startswith(COMMENTS)
        for key in (*joined_columns(column, name, unmatched), normalized_name(column))
    }
    names = {key: name_of.get(key, key) for key in [*unmatched, *([roles["rating"]] if "rating" in roles else [])]}
    bases = {
        key: base
        for key in unmatched
        if (base := name_without_rater(key)) is not None and not _ITEM_NAME.fullmatch(base)
    }
    columns_per_base = Counter(bases.values())
    column_of_base = {normalized_name(key): key for key in reversed(unmatched)}
    for key, base in bases.items():
        if base in name_of:
            names[key] = name_of[base]
        elif key not in name_of and (columns_per_base[base] > 1 or base in column_of_base):
            names[key] = column_of_base.get(base, base)
    for record in records:
        # Not for every name: records may each have names of their own, 100,000 in all.
        for key in filter(names.__contains__, record.values):
            values.setdefault(names[key], []).extend(v for _, v in record.values_in(key))
    return {column: cells for column, cells in values.items() if not _NOT_A_RATING.fullmatch(snake_case_name(column))}


def _ratings_of_long_table(records: Sequence[Record], aspect: str, rating: str) -> dict[str, list[object]]:
    """`_possible_ratings` of a table with one row per rating."""
    values: dict[str, list[object]] = {}
    spellings: dict[str, str] = {}
    for record in records:
        ratings = [value for _, value in record.values_in(rating)]
        if not ratings:
            continue
        name = record.text(aspect).strip()
        with record.located(aspect):
            _require_usable(name)
        values.setdefault(spellings.setdefault(normalized_name(name), name), []).extend(ratings)
    return values


class _Values(NamedTuple):
    """The values of a column that are not missing."""

    present: list[object]
    """All of them."""
    numbers: list[float]
    choices: list[bool]
    """Those that mean yes or no."""
    others: list[object]
    """Those that are neither."""

    @classmethod
    def of(cls, cells: Iterable[object]) -> _Values:
        present = [cell for cell in cells if not is_missing(cell)]
        ratings = [_number_or_choice(value) for value in present]
        return cls(
            present,
            [rating for rating in ratings if isinstance(rating, float)],
            [rating for rating in ratings if isinstance(rating, bool)],
            [value for value, rating in zip(present, ratings, strict=True) if rating is None],
        )

    @property
    def has_half_points(self) -> bool:
        halves = all((2 * n).is_integer() for n in self.numbers)
        return halves and not all(n.is_integer() for n in self.numbers)


def _number_or_choice(value: object) -> float | bool | None:
    if isinstance(value, str | bool):
        return YES_NO_WORDS.get(value.lower()) if isinstance(value, str) else value
    # JSON can contain whole numbers beyond the range of floats.
    return float(value) if isinstance(value, int | float) and abs(value) <= sys.float_info.max else None


def _guess_scale(values: _Values, column: str) -> Scale | None:
    """The guessed scale of a column's values; None if they do not look like ratings."""
    present, numbers, choices, _ = values
    if choices and set(numbers) <= {0, 1}:
        enough = len(numbers) + len(choices) >= _MIN_RATING_SHARE * len(present)
        return Scale(0, 1) if enough and len({*numbers, *choices}) > 1 else None
    if len(numbers) < _MIN_RATING_SHARE * len(present):
        return None
    distinct = _without_missing_codes(numbers)
    integers = all(number.is_integer() for number in distinct)
    is_count = integers and len(distinct) > 11 and (len(distinct) > _MAX_VALUES or len(distinct) == len(numbers))
    if len(distinct) < 2 or is_count:
        return None
    lowest, highest = min(distinct), max(distinct)
    low, high = _guess_ends(lowest, highest)
    if (ends := _NAME_WITH_SCALE.fullmatch(column)) and float(ends[2]) <= lowest and highest <= float(ends[3]):
        low, high = float(ends[2]), float(ends[3])
    # Fractions may be means of whole points over raters, so only scales of width 1 get finer steps.
    return Scale(low, high, 1.0 if integers or high - low > 1 else 0.01)


def _without_missing_codes(numbers: Sequence[float]) -> set[float]:
    """The different numbers, without one for a missing answer; loading then reports its line."""
    distinct = set(numbers)
    for code in (min(distinct, default=0), max(distinct, default=0)):
        others = distinct - {code}
        if len(others) > 1 and numbers.count(code) > 1 and _MISSING_CODE.fullmatch(f"{code:g}"):
            low, high = min(others), max(others)
            if max(low - code, code - high) > 2 * (high - low):
                return others
    return distinct


def _why_not_ratings(values: _Values) -> str:
    """Why a column was not guessed to be ratings although at least half of its values look like numbers; else empty."""
    remedies = [number_remedy(value) for value in values.others]
    numeric = len(values.numbers) + sum(remedy is not None for remedy in remedies)
    if not values.others or numeric < len(values.present) / 2:
        return ""
    return f"{values.others[0]!r} is no rating; {remedies[0] or 'correct it or leave it out'}"


def _guess_ends(lowest: float, highest: float) -> tuple[float, float]:
    for low, high in _COMMON_ENDS:
        if low <= lowest and highest <= high and (low == 0) == (lowest < 1):
            return low, high
    for end in _SYMMETRIC_ENDS:
        if -end <= lowest and highest <= end:
            return -end, end
    return math.floor(lowest), math.ceil(highest)


def _fits(task: Task, ratings: Mapping[str, _Values]) -> bool:
    """Whether every column of ratings is an aspect of a built-in task, with values on its scale."""
    scales = {normalized_name(aspect.name): aspect.scale for aspect in task.aspects}
    numbers = {normalized_name(n): [v for v in c.present if isinstance(v, int | float)] for n, c in ratings.items()}
    return all(name in scales and all(map(scales[name].contains, cells)) for name, cells in numbers.items())


def _definition(name: str, scale: Scale) -> str:
    if scale.binary:
        return f"Whether {_readable(name)} holds: {scale.low:.15g} no, {scale.high:.15g} yes."
    return f"How good the text is in {_readable(name)}. {scale.low:.15g} is the worst, {scale.high:.15g} the best."


def _readable(name: str) -> str:
    return re.sub(r"[_\s]+", " ", name).strip()


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
