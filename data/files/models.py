"""Files of known fields as pydantic models, and the one translator of pydantic's errors into `InputError`.

Rows of users' tables are read by `records` alone, for the types of their fields depend on the columns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError, model_validator

from debate_judge.data.errors import InputError
from debate_judge.data.files.records import Record, shown

M = TypeVar("M", bound=BaseModel)


def _has_finite_differences(value: float) -> float:
    if not math.isfinite(2 * value):
        raise InputError("not a number", expected="a finite number", found=shown(value))
    return value


Number = Annotated[float, AfterValidator(_has_finite_differences)]

# A pattern makes pydantic refuse halves of surrogate pairs, which it would pass over otherwise.
BlankText = Annotated[str, StringConstraints(pattern="")]
Text = Annotated[str, StringConstraints(pattern=r"\S")]
"""With at least one visible character."""


class FileModel(BaseModel):
    """An object of a JSON file. Nothing is converted; fields that other versions write beside ours are passed over."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)


class ClosedModel(FileModel):
    """An object that people write by hand, so that a field of another name is a mistake."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_others(cls, values: Any) -> Any:
        if isinstance(values, dict):
            Record(values, "").refuse_others(cls.model_fields)
        return values


def validated(model: type[M], record: Record) -> M:
    """The record as a model.

    Raises:
        InputError: With file, line and field, for the first field that cannot be used.
    """
    try:
        return model.model_validate(record.values)
    except ValidationError as error:
        raise input_error(error, record) from None


def input_error(error: ValidationError, record: Record) -> InputError:
    """The first of pydantic's complaints about the values of a record, in the words of `Record`."""
    try:
        _refuse(error, record)
    except InputError as refused:
        return refused


def _refuse(error: ValidationError, record: Record) -> NoReturn:
    first = error.errors(include_url=False)[0]
    why, value, context = first["type"], first["input"], first.get("ctx", {})
    place = list(first["loc"])
    if place and place[-1] == "[key]":
        del place[-2:]
    own = context.get("error")
    if isinstance(own, InputError):
        field = ".".join(filter(None, (_path(place), own.field)))
        raise record.error(own.problem, field, expected=own.expected, found=own.found, remedy=own.remedy) from None
    depth = len(place) - 1
    while depth > 0 and isinstance(place[depth], int):
        depth -= 1
    name = _path(place[depth:])
    above = replace(record, path=record.place(_path(place[:depth])))
    if why.startswith("missing"):
        replace(above, values=value).value(name)
    owner = replace(above, values={name: value})
    getter = _GETTERS.get(why.partition("_")[0])
    if getter is not None:
        getter(owner, name)
    if why == "literal_error":
        owner.choice(name, re.findall(r"'([^']*)'", context["expected"]))
    expected = "a whole number" if why.startswith("int") else first["msg"]
    raise owner.error("wrong type", name, expected=expected, found=shown(value))


_GETTERS: Mapping[str, Callable[[Record, str], object]] = {
    "string": Record.text,
    "float": Record.number,
    "finite": Record.number,
    "bool": Record.boolean,
    "list": Record.items,
    "tuple": Record.items,
    "dict": Record.child,
    "model": Record.child,
}
"""First word of the type of pydantic's error -> what raises ours for such a value."""


def _path(place: Sequence[int | str]) -> str:
    """The place of a field as our errors name it, e.g. `candidates[2].text`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
