"""Settings declared once, as fields of pydantic dataclasses; flags, help, checks and messages follow from the fields.

    @flag_group("limits on LM calls")
    class LimitFlags:
        timeout: float = setting(300.0, "time limit of one attempt of a call", metavar="SECONDS", gt=0)

    @command_settings
    class ScoreFlags(LimitFlags, EstimateFlags):
        out: str = setting(..., ".jsonl or .csv for the scores", metavar="FILE")

Groups that several commands share are declared once; a command's class inherits them and may add fields. With

        FLAGS: ClassVar = ("out", "estimate")

in its class, only these settings are flags, and the others only keys of `--config`. Without it, every setting is a flag
and a key.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Collection, Mapping
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import pydantic.dataclasses
from pydantic.fields import FieldInfo

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.records import Record, input_error

T = TypeVar("T")

_STRICT = pydantic.ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
"""No conversion: the parser has converted texts to numbers, and TOML is typed."""


def setting(
    default: object,
    description: str,
    *,
    metavar: str | None = None,
    name: str | None = None,
    const: str | None = None,
    default_text: str | None = None,
    repeated: bool = False,
    assigns_settings: bool = False,
    affects_results: bool = True,
    **bounds: float,
) -> Any:
    """The field of one setting.

    Args:
        default: The default; `...` if it is required.
        description: For `--help`.
        metavar: Placeholder of the value in `--help`; by default after the type.
        name: Name of the flag, if not the field's; without leading dashes it is a positional argument.
        const: Value if the flag is given without one.
        default_text: Printed by `--help` in place of the default.
        repeated: Whether several values are given by repeating the flag rather than in one text with commas.
        assigns_settings: Whether its values are NAME=VALUE, where NAME may also be another setting of its class.
        affects_results: Whether results depend on it; settings of storage, display and limits are not in fingerprints.
        bounds: `ge`, `gt`, `le` of a number.
    """
    options: dict[str, Any] = {"metavar": metavar, "name": name, "const": const, "default_text": default_text}
    options |= {"repeated": repeated, "assigns_settings": assigns_settings, "affects_results": affects_results}
    options |= {"bounds": bounds}
    make_field: Any = pydantic.Field
    return make_field(default, description=description, json_schema_extra=options, **bounds)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def flag_group(title: str) -> Callable[[type[T]], type[T]]:
    """Make a class of settings that commands share, to be inherited by their own classes.

    Args:
        title: Title in `--help` of the flags that the class itself declares.
    """

    def decorate(cls: type[T]) -> type[T]:
        # Resolved here, because the module of a subclass may not import the names that the annotations use.
        hints = get_type_hints(cls, include_extras=True)
        cls.__annotations__ = {name: hints[name] for name in inspect.get_annotations(cls)}
        group_class = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        group_class.__flag_group__ = title  # type: ignore[attr-defined]
        return group_class

    return decorate


@dataclass_transform(kw_only_default=True, frozen_default=True)
def command_settings(cls: type[T]) -> type[T]:
    """Make the class of a command's settings: frozen, keyword-only, validated on construction.

    An invalid value raises `InputError`. Only these classes are built by pydantic, because that takes time.
    """
    settings_class = pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=_STRICT)(cls)
    pydantic_init = settings_class.__init__

    def __init__(self: T, **values: object) -> None:  # noqa: N807
        try:
            pydantic_init(self, **values)
        except pydantic.ValidationError as error:
            raise _input_error(type(self), error) from None

    settings_class.__init__ = __init__  # type: ignore[method-assign, assignment]
    settings_class.__flag_group__ = "options"  # type: ignore[attr-defined]
    return cast(type[T], settings_class)


@dataclasses.dataclass(frozen=True)
class SettingField:
    """One setting of a command."""

    name: str
    group: str
    """Title of its flags in `--help`."""
    declared_by: type
    field: FieldInfo
    is_flag: bool
    """False: only a key of `--config`."""

    def option(self, key: str) -> Any:
        """An argument of `setting`."""
        return cast(dict[str, Any], self.field.json_schema_extra)[key]

    @property
    def cli_name(self) -> str:
        """As a user writes it: a flag, e.g. `--max-rounds`, or a key of `--config`, e.g. `guide-words`."""
        words = self.name.replace("_", "-")
        return (self.option("name") or f"--{words}") if self.is_flag else words

    @property
    def value_type(self) -> Any:
        """The type of its values other than None: int, float, bool, str, tuple or a Literal."""
        annotation = self.field.annotation
        if get_origin(annotation) in (Union, types.UnionType):
            annotation = next(part for part in get_args(annotation) if part is not type(None))
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        return tuple if get_origin(annotation) is tuple else annotation

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values, of a Literal or of a tuple of it; empty for other types."""
        value_type = get_args(self.field.annotation)[0] if self.value_type is tuple else self.value_type
        return get_args(value_type) if get_origin(value_type) is Literal else ()

    def read(self, text: str) -> object:
        """The value in a text; one that cannot be converted stays text, so that pydantic refuses it."""
        if self.value_type is tuple:
            return tuple(split_commas(text))
        if self.value_type is bool:
            return {"true": True, "false": False}.get(text, text)
        try:
            return self.value_type(text) if self.value_type in (int, float) else text
        except ValueError:
            return text


def setting_fields(cls: type) -> dict[str, SettingField]:
    """Name -> setting of a class: its own, then those of its bases from left to right."""
    fields = cast(dict[str, FieldInfo], cls.__pydantic_fields__)  # type: ignore[attr-defined]
    flags: Collection[str] = getattr(cls, "FLAGS", fields)
    by_name: dict[str, SettingField] = {}
    for base in (base for base in cls.__mro__ if "__flag_group__" in vars(base)):
        for name in inspect.get_annotations(base):
            if name in fields and name not in by_name:
                by_name[name] = SettingField(name, vars(base)["__flag_group__"], base, fields[name], name in flags)
    return by_name


def cli_name(cls: type, name: str) -> str:
    """See `SettingField.cli_name`."""
    return setting_fields(cls)[name].cli_name


def split_commas(text: str | None) -> list[str]:
    """The comma-separated parts of a flag's value, not split within brackets; empty for an absent flag."""
    parts, depth = [""], 0
    for character in text or "":
        depth += (character == "[") - (character == "]")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def result_settings(settings: Any) -> dict[str, Any]:
    """Name -> value of the settings that results depend on."""
    return {
        name: getattr(settings, name)
        for name, setting_field in setting_fields(type(settings)).items()
        if setting_field.option("affects_results")
    }


def changed_settings(settings: Any, always: Collection[str] = ()) -> dict[str, Any]:
    """Name -> value of the settings that distinguish a run: those in `always`, and those that are not the default."""
    fields = setting_fields(type(settings))
    return {
        name: value
        for name, value in result_settings(settings).items()
        if value not in (None, "", ()) and (name in always or value != fields[name].field.default)
    }


def suggestion(cls: type, name: str) -> str | None:
    """A remedy for an unknown setting: the nearest name; None if no name is near."""
    return did_you_mean(name.replace("_", "-"), [field.replace("_", "-") for field in setting_fields(cls)])


def unknown_name_error(noun: str, flag: str, name: str, known: tuple[str, ...]) -> InputError:
    expected = "one of " + ", ".join(known)
    return InputError(f"unknown {noun} {name!r}", field=flag, expected=expected, remedy=did_you_mean(name, known))


def _input_error(cls: type, error: pydantic.ValidationError) -> InputError:
    """The first of pydantic's errors, with the name of the flag or key."""
    first = error.errors(include_url=False)[0]
    name, value, error_type = str(first["loc"][0]), first["input"], first["type"]
    setting_field = setting_fields(cls).get(name)
    if setting_field is None:
        return InputError("unknown setting", field=name, remedy=suggestion(cls, name))
    flag = setting_field.cli_name
    if error_type.startswith("missing"):
        return InputError("no value is given", field=flag, expected=setting_field.field.description)
    if setting_field.choices and error_type != "value_error":
        return unknown_name_error(name.replace("_", " "), flag, str(value), setting_field.choices)
    if error_type.startswith(("greater_than", "less_than")):
        problem = "number too small" if error_type.startswith("greater") else "number too large"
        bounds = setting_field.option("bounds") or first["ctx"]
        return InputError(problem, field=flag, expected=_range(bounds), found=value)
    # Format csv, so that the remedy for a text does not say to remove quotes.
    invalid = input_error(error, Record({}, "", format="csv")).replaced(field=flag, found=value)
    expects_list = setting_field.value_type is tuple and error_type != "value_error"
    return invalid.replaced(expected="a list of texts") if expects_list else invalid


def _range(bounds: Mapping[str, float]) -> str:
    if "ge" in bounds and "le" in bounds:
        return f"a number from {bounds['ge']:g} to {bounds['le']:g}"
    return f"at least {bounds['ge']:g}" if "ge" in bounds else f"more than {bounds['gt']:g}"
