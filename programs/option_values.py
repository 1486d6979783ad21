"""Checks of the values that a user or an export gives for a judge's options; a wrong value is an `InputError`."""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from debate_judge.data.errors import InputError


def whole_number(name: str, value: object, minimum: int = 0, maximum: float = inf) -> int:
    """The value of the option `name`, which must be a whole number from `minimum` to `maximum`."""
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        upper = "up" if maximum == inf else f"to {maximum}"
        raise InputError(
            f"not a usable value of {name}",
            field=name,
            expected=f"a whole number from {minimum} {upper}",
            found=repr(value)[:40],
        )
    return value


def yes_or_no(name: str, value: object) -> bool:
    """The value of the option `name`, which must be true or false."""
    if not isinstance(value, bool):
        raise InputError(f"not a usable value of {name}", field=name, expected="true or false", found=repr(value)[:40])
    return value


def one_of(name: str, value: object, allowed: Collection[str]) -> None:
    """Refuse a value of the option `name` that is not allowed."""
    if value not in allowed:
        raise InputError(f"unknown {name}", field=name, expected="one of " + ", ".join(allowed), found=value)
