"""Checks of the values that a user or an export gives for the options of a judge; others are an `InputError`."""

from __future__ import annotations

from collections.abc import Collection

from debate_judge.data.errors import InputError


def whole_number(name: str, value: object, least: int = 0, most: int | None = None) -> int:
    """The value of the option `name`, which must be a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        upper = "up" if most is None else f"to {most}"
        raise InputError(
            f"not a usable value of {name}",
            field=name,
            expected=f"a whole number from {least} {upper}",
            found=repr(value)[:40],
        )
    return value


def yes_or_no(name: str, value: object) -> bool:
    """The value of the option `name`, which must be true or false."""
    if not isinstance(value, bool):
        raise InputError(f"not a usable value of {name}", field=name, expected="true or false", found=repr(value)[:40])
    return value


def one_of(name: str, value: object, known: Collection[str]) -> None:
    """Refuse a value of the option `name` that is not among the known ones."""
    if value not in known:
        raise InputError(f"unknown {name}", field=name, expected="one of " + ", ".join(known), found=value)
