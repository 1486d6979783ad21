"""Settings declared once, as fields of pydantic dataclasses; flags, help, checks and messages follow from the fields.

    @flag_group("limits on LM calls")
    class LimitFlags:
        timeout: float = setting(300.0, "time limit of one attempt of a call", metavar="SECONDS", gt=0)

    @command_settings
    class ScoreFlags(LimitFlags, EstimateFlags):
        out: str = setting(..., ".jsonl or .csv for the scores", metavar="FILE")

Groups that several commands share are declared once; a command's class inherits them and may add fields. With

        FLAGS: ClassVar = ("out", "estimate")

in its class only these settings are flags, and the others are keys of `--config` under the same names. Without it all
are both. `REMOVED: ClassVar` says of flags that the command once had what became of them.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal, TypeVar, Union, cast, dataclass_transform, get_args, get_origin, get_type_hints

import pydantic.dataclasses
from pydantic.fields import FieldInfo

from debate_judge.data.errors import InputError, did_you_mean

T = TypeVar("T")

_STRICT = pydantic.ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
"""Nothing is converted: the parser has made numbers of texts, and TOML has types of its own."""

_WORDS: Mapping[object, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    tuple: "a list of texts",
}


REMOVED_FLAGS = {
    "--attempt": "it is the key timeout of --config, in seconds",
    "--deadline": "it is the key timeout of --config: seconds for an attempt; a call may take three times as long",
    "--judge-option": "it is -J NAME=VALUE",
    "--batch-rounds": "it was removed: texts share calls with others of the same source only (together)",
    "--granularity": "it was removed: the LM decides, and compile rounds finished scores where that agrees better",
}
"""What became of flags that several commands once had."""


def setting(
    default: object,
    description: str,
    *,
    metavar: str | None = None,
    name: str | None = None,
    const: str | None = None,
    shown: str | None = None,
    repeated: bool = False,
    assigns: bool = False,
    decides: bool = True,
    **bounds: float,
) -> Any:
    """The field of one setting.

    Args:
        default: Its default; `...` where it must be given.
        description: For `--help`.
        metavar: What `--help` calls the value; by default after the type.
        name: Of the flag, where it is not the field's; without leading dashes it is a positional argument.
        const: Value of a flag that is given without one.
        shown: What `--help` says in place of the default.
        repeated: Whether several values come from several flags rather than from one text with commas.
        assigns: Whether its values are NAME=VALUE, where NAME may also be another setting of its class.
        decides: Whether results depend on it; what is only stored, shown or limited has no part in an identity.
        bounds: `ge`, `gt`, `le` of a number.
    """
    extra: dict[str, Any] = {"metavar": metavar, "name": name, "const": const, "shown": shown}
    extra |= {"repeated": repeated, "assigns": assigns, "decides": decides, "bounds": bounds}
    make: Any = pydantic.Field
    return make(default, description=description, json_schema_extra=extra, **bounds)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def flag_group(title: str) -> Callable[[type[T]], type[T]]:
    """Make a class of settings that commands share, to be inherited by their own classes.

    Args:
        title: Stands in `--help` above the flags of the fields that the class itself declares.
    """

    def decorate(cls: type[T]) -> type[T]:
        # Resolved here, for a class that inherits them may not know the names of this module.
        hints = get_type_hints(cls, include_extras=True)
        cls.__annotations__ = {name: hints[name] for name in inspect.get_annotations(cls)}
        made = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        made.__flag_group__ = title  # type: ignore[attr-defined]
        return made

    return decorate


@dataclass_transform(kw_only_default=True, frozen_default=True)
def command_settings(cls: type[T]) -> type[T]:
    """Make the class of a command's settings: frozen, given by keyword, checked on construction.

    A value that cannot be used raises `InputError`. Only these classes are built by pydantic, for that takes time.
    """
    made = pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=_STRICT)(cls)
    checked = made.__init__

    def __init__(self: T, **values: object) -> None:  # noqa: N807
        try:
            checked(self, **values)
        except pydantic.ValidationError as error:
            raise input_error(type(self), error) from None

    made.__init__ = __init__  # type: ignore[method-assign, assignment]
    made.__flag_group__ = "options"  # type: ignore[attr-defined]
    return cast(type[T], made)


def fields_of(cls: type) -> dict[str, FieldInfo]:
    """Name -> field of a class of settings."""
    return cast(dict[str, FieldInfo], cls.__pydantic_fields__)  # type: ignore[attr-defined]


def grouped(cls: type) -> Iterator[tuple[str, str, FieldInfo]]:
    """Group, name and field of each setting: those of the class itself, then those of its bases from left to right."""
    found = fields_of(cls)
    seen: set[str] = set()
    for base in (base for base in cls.__mro__ if "__flag_group__" in vars(base)):
        for name in inspect.get_annotations(base):
            if name in found and name not in seen:
                seen.add(name)
                yield vars(base)["__flag_group__"], name, found[name]


def siblings(cls: type, name: str) -> dict[str, FieldInfo]:
    """Name -> field of the other settings that are declared in the same class as a setting."""
    found = fields_of(cls)
    own = next(names for base in cls.__mro__ if name in (names := inspect.get_annotations(base)))
    return {other: found[other] for other in own if other in found and other != name}


def extra(field: FieldInfo, what: str) -> Any:
    """What `setting` was told about the flag of a field."""
    return cast(dict[str, Any], field.json_schema_extra)[what]


def is_flag(cls: type, name: str) -> bool:
    """Whether a command has a flag for a setting, which otherwise is a key of `--config` alone."""
    flags: Collection[str] | None = getattr(cls, "FLAGS", None)
    return name in (fields_of(cls) if flags is None else flags)


def keys_of(cls: type) -> list[str]:
    """Names of the settings that have no flag, in the order of their groups."""
    return [name for _, name, _ in grouped(cls) if not is_flag(cls, name)]


def became_of(cls: type, flag: str) -> str | None:
    """What became of a flag that the command once had."""
    removed: Mapping[str, str] = getattr(cls, "REMOVED", {})
    return {**REMOVED_FLAGS, **removed}.get(flag)


def spelled(cls: type, name: str) -> str:
    """A setting as a user writes it: the flag, e.g. `--max-rounds`, or the key of `--config`, e.g. `guide-words`."""
    words = name.replace("_", "-")
    if not is_flag(cls, name):
        return words
    return extra(fields_of(cls)[name], "name") or f"--{words}"


def kind_of(field: FieldInfo) -> Any:
    """The type of a field's values: int, float, bool, str, tuple or a Literal; None is set aside."""
    annotation = field.annotation
    if get_origin(annotation) in (Union, types.UnionType):
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    return get_origin(annotation) if get_origin(annotation) is tuple else annotation


def choices_of(field: FieldInfo) -> tuple[str, ...]:
    """The names that a field's value, or each of its values, may have; empty where it is not a choice."""
    kind = kind_of(field)
    if kind is tuple:
        kind = get_args(field.annotation)[0]
    return get_args(kind) if get_origin(kind) is Literal else ()


def deciding(settings: Any) -> dict[str, Any]:
    """Name -> value of the settings that results depend on."""
    return {
        name: getattr(settings, name) for name, field in fields_of(type(settings)).items() if extra(field, "decides")
    }


def telling(settings: Any, always: Collection[str] = ()) -> dict[str, Any]:
    """Name -> value of the settings that tell a run from others: what is in `always`, and what was changed."""
    fields = fields_of(type(settings))
    return {
        name: value
        for name, value in deciding(settings).items()
        if value not in (None, "", ()) and (name in always or value != fields[name].default)
    }


def input_error(cls: type, error: pydantic.ValidationError) -> InputError:
    """The first of pydantic's complaints, in the words of the flags and keys."""
    first = error.errors(include_url=False)[0]
    name, found, why = str(first["loc"][0]), first["input"], first["type"]
    field = fields_of(cls).get(name)
    if field is None:
        return InputError("unknown setting", field=name, remedy=nearest(cls, name))
    flag = spelled(cls, name)
    if why.startswith("missing"):
        return InputError("no value is given", field=flag, expected=field.description)
    if why == "value_error" and isinstance(own := first["ctx"]["error"], InputError):
        return InputError(own.problem, field=flag, expected=own.expected, found=found, remedy=own.remedy)
    if choices := choices_of(field):
        return unknown_name(name.replace("_", " "), flag, str(found), choices)
    if why.startswith(("greater_than", "less_than")):
        problem = "number too small" if why.startswith("greater") else "number too large"
        return InputError(problem, field=flag, expected=_range(extra(field, "bounds")), found=found)
    if why == "finite_number":
        return InputError("not a finite number", field=flag, expected="a finite number", found=found)
    return InputError("wrong type", field=flag, expected=_WORDS.get(kind_of(field)), found=found)


def nearest(cls: type, name: str) -> str | None:
    """What to write in place of the name of a setting that is not known: what became of it, or the nearest name."""
    return became_of(cls, "--" + name.replace("_", "-")) or did_you_mean(name.replace("-", "_"), fields_of(cls))


def unknown_name(what: str, flag: str, name: str, known: tuple[str, ...]) -> InputError:
    return InputError(
        f"unknown {what} {name!r}",
        field=flag,
        expected="one of " + ", ".join(known),
        remedy=did_you_mean(name, known),
    )


def _range(bounds: Mapping[str, float]) -> str:
    if "ge" in bounds and "le" in bounds:
        return f"a number from {bounds['ge']:g} to {bounds['le']:g}"
    return f"at least {bounds['ge']:g}" if "ge" in bounds else f"more than {bounds['gt']:g}"
