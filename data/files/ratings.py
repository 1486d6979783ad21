"""From what a file holds for one aspect to ratings on the aspect's scale: one number per rater.

A rating only has to lie inside the scale. Steps are not enforced, for means over raters such as 3.67 are
ratings too. Nothing is clamped, and a word is a rating only where the scale has two values.
"""

from __future__ import annotations

import re

from debate_judge.data.files.records import Record, did_you_mean, shown
from debate_judge.data.files.task_file import RESERVED
from debate_judge.data.schema import Aspect, Scale, Task

_WORDS = {"yes": True, "true": True, "no": False, "false": False}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def from_json(record: Record, task: Task) -> dict[str, tuple[float, ...]]:
    """The ratings in a record that maps aspect names to a number or to a list with one number per rater.

    null and the empty list mean unrated.

    Raises:
        InputError: an aspect that the task does not have, or a value that is no rating of it.
    """
    ratings = {}
    for name, value in record.values.items():
        aspect = _aspect(record, task, name)
        many = isinstance(value, list)
        values: list[object] = value if isinstance(value, list) else [] if value is None else [value]
        ratings[name] = tuple(
            _rating(value, aspect, record, record.place(f"{name}[{i}]" if many else name))
            for i, value in enumerate(values)
        )
    return {name: values for name, values in ratings.items() if values}


def from_cell(record: Record, task: Task, name: str) -> tuple[float, ...]:
    """The ratings in one cell of a table: `4`, `4;5;4` for several raters, blank for unrated.

    Raises:
        InputError: an aspect that the task does not have, or a value that is no rating of it.
    """
    aspect = _aspect(record, task, name)
    cell = str(record.values[name]).strip()
    if not cell:
        return ()
    return tuple(_rating(_number_or_word(part.strip()), aspect, record, name) for part in cell.split(";"))


def _aspect(record: Record, task: Task, name: str) -> Aspect:
    for aspect in task.aspects:
        if aspect.name == name:
            return aspect
    names = [a.name for a in task.aspects]
    raise record.error(
        f"the task {task.name!r} has no aspect {name!r}",
        record.place(name),
        expected="one of " + ", ".join(names),
        found=name,
        remedy=did_you_mean(name, [*names, *sorted(RESERVED)] if not record.path else names)
        or "remove it, or describe the aspect in a task file",
    )


def _number_or_word(text: str) -> object:
    return float(text) if _NUMBER.fullmatch(text) else text


def _rating(value: object, aspect: Aspect, record: Record, field: str) -> float:
    scale = aspect.scale
    choice = _WORDS.get(value.strip().lower()) if isinstance(value, str) else value
    if isinstance(choice, bool) and scale.binary:
        return scale.high if choice else scale.low
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise record.error(
            f"not a rating of {aspect.name}",
            field,
            expected=_expected(scale),
            found=shown(value),
            remedy=_remedy(value),
        )
    # The comparison comes before float(), which cannot take every int that JSON can spell.
    if not scale.low <= value <= scale.high:
        raise record.error(
            f"rating outside the scale of {aspect.name}",
            field,
            expected=_expected(scale),
            found=f"{value!r:.40}",
            remedy="correct the rating, or give the scale that the raters used in a task file",
        )
    return float(value)


def _expected(scale: Scale) -> str:
    return f"a number from {scale}" + (", or yes/no, true/false" if scale.binary else "")


def _remedy(value: object) -> str | None:
    if value is None or value == "":
        return "leave out the raters who gave no value"
    if isinstance(value, str) and value.strip().lower() in {"n/a", "na", "nan", "none", "null", "-"}:
        return "leave it out (in a table: a blank cell) where nobody rated"
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return "write the number without quotes"
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip().replace(",", ".")):
        return "write decimals with a point"
    return None
