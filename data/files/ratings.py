"""From the fields of a record to ratings on the aspects' scales, one number per rater, and to raters' comments.

A rating only has to lie inside the scale. Steps are not enforced, because means over raters such as 3.67 are
ratings, too. Nothing is clamped, and a word is a rating only where the scale has two values.
"""

from __future__ import annotations

from collections.abc import Iterable

from debate_judge.data.errors import did_you_mean
from debate_judge.data.files.records import Record, looks_like_a_number, shown
from debate_judge.data.files.task_file import RESERVED
from debate_judge.data.schema import Aspect, Scale, Task

_WORDS = {"yes": True, "true": True, "no": False, "false": False}


def ratings_in(record: Record, task: Task, names: Iterable[str]) -> dict[str, tuple[float, ...]]:
    """The ratings in fields that are named like aspects; aspects without a rating are left out.

    A field holds a number, or one number per rater: a list, or in a CSV cell `4;5;4`.

    Raises:
        InputError: an aspect that the task does not have, or a value that is not a rating of it.
    """
    rated = {}
    for name in names:
        aspect = _aspect(record, task, name)
        rated[name] = tuple(_rating(value, aspect, record, field) for field, value in record.several(name))
    return {name: values for name, values in rated.items() if values}


def comments_in(record: Record, task: Task) -> dict[str, tuple[str, ...]]:
    """The raters' comments in a record whose fields are named like aspects: one text, or a list of texts.

    Raises:
        InputError: an aspect that the task does not have, or a value that is not text.
    """
    found = {}
    for name, value in record.values.items():
        _aspect(record, task, name)
        if value is not None and not isinstance(value, str | list):
            raise record.error("not a comment", name, expected="a text, or a list of texts", found=shown(value))
        texts = (record.text(name, blank=True),) if isinstance(value, str) else record.texts(name, blank=True)
        found[name] = tuple(text for text in texts if text.strip())
    return {name: texts for name, texts in found.items() if texts}


def _aspect(record: Record, task: Task, name: str) -> Aspect:
    for aspect in task.aspects:
        if aspect.name == name:
            return aspect
    names = [a.name for a in task.aspects]
    raise record.error(
        f"the task {task.name!r} has no aspect {name!r}",
        name,
        expected="one of " + ", ".join(names),
        found=name,
        remedy=did_you_mean(name, [*names, *sorted(RESERVED)] if not record.path else names)
        or "remove it, or describe the aspect in a task file",
    )


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
        return "leave it out (in a table: a blank cell) where there is no rating"
    if isinstance(value, str) and looks_like_a_number(value.strip()):
        return "write the number without quotes"
    if isinstance(value, str) and looks_like_a_number(value.strip().replace(",", ".")):
        return "write decimals with a point"
    return None
