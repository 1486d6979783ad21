"""Reads ratings and comments from the fields of a record.

A rating has to lie on the scale of its aspect, but need not be a whole step, because means over raters such as 3.67 are
ratings, too. Nothing is clamped, and words such as "yes" are ratings only on a scale of two values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from debate_judge.data.errors import InputError
from debate_judge.data.files.records import (
    Record,
    allows_decimal_comma,
    describe_value,
    looks_like_a_number,
)
from debate_judge.data.schema import Aspect, Task

YES_NO_WORDS = {
    **dict.fromkeys(("yes", "y", "true", "pass", "good", "correct"), True),
    **dict.fromkeys(("no", "n", "false", "fail", "bad", "incorrect"), False),
}
"""Word for a rating on a scale of two values, in lower case -> whether it means the upper value."""

_FRACTION = re.compile(r"([+-]?\d+(?:[.,]\d+)?)\s*(?:%|/\s*\d+)")
"""A fraction or percentage, such as `4/5` or `80 %`, with its first number."""


def ratings_in(record: Record, task: Task, names: Iterable[str]) -> dict[str, tuple[float, ...]]:
    """The ratings in fields named like aspects; aspects without a rating are left out.

    Raises:
        InputError: An aspect that the task does not have, or a value that is not a rating of it.
    """
    ratings = {}
    for name in names:
        try:
            aspect = task.aspect(name)
        except InputError as error:
            raise record.with_location(error, name) from None
        values = [rating_of(value, aspect, record, field) for field, value in record.values_in(name, aspect.scale)]
        if values:
            ratings[name] = tuple(values)
    return ratings


def comments_in(record: Record, name: str) -> list[str]:
    """The comments in a field of one text or of a list of texts, without blank ones.

    Raises:
        InputError: The value is not text.
    """
    value = record.value(name)
    if value is not None and not isinstance(value, str | list):
        raise record.error("not a comment", name, expected="a text, or a list of texts", found=describe_value(value))
    texts = (record.text(name, blank=True),) if isinstance(value, str) else record.texts(name, blank=True)
    return list(filter(str.strip, texts))


def rating_of(value: object, aspect: Aspect, record: Record, field: str) -> float:
    """One rater's value on the scale of an aspect.

    Args:
        value: A number; on a scale of two values also one of `YES_NO_WORDS`.
        aspect: The rated aspect.
        record: The record of the value, for errors.
        field: The field of the value, for errors.

    Raises:
        InputError: It is not a rating of the aspect.
    """
    scale = aspect.scale
    choice = YES_NO_WORDS.get(value.strip().lower()) if isinstance(value, str) else value
    if isinstance(choice, bool) and scale.binary:
        return scale.high if choice else scale.low
    or_words = ", or yes/no, true/false, pass/fail, good/bad, correct/incorrect" if scale.binary else ""
    expected = f"a number from {scale}{or_words}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        quoted = isinstance(value, str) and looks_like_a_number(value.strip())
        advice = number_remedy(value) or "correct it or leave it out; take a column that holds no ratings out"
        remedy = "write the number without quotes" if quoted else advice
        found = describe_value(value)
        raise record.error(f"not a rating of {aspect.name}", field, expected=expected, found=found, remedy=remedy)
    # Compared before float(), which raises for very large integers.
    if not scale.low <= value <= scale.high:
        raise record.error(
            f"rating outside the scale of {aspect.name}",
            field,
            expected=expected,
            found=f"{value!r:.40}",
            remedy="correct it, leave it blank where there is none, or give the raters' scale in a task file",
        )
    return float(value)


def number_remedy(value: object) -> str | None:
    """The remedy for a rating that is written as a fraction or percentage, or with a comma; None for other values."""
    text = value.strip() if isinstance(value, str) else ""
    if "," in text and allows_decimal_comma(text):
        point, semicolon = text.replace(",", "."), text.replace(",", ";")
        return (
            f"write decimals with a point, {point}, or say --columns decimal=comma; several raters in a cell have a "
            f"semicolon, {semicolon}"
        )
    match = _FRACTION.fullmatch(text)
    return f"write the number alone: {match[1].replace(',', '.')} and not {match[0]}" if match else None
