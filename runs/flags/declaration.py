"""Settings declared once, as fields of dataclasses: flags, keys of `--config`, help and checks follow from them.

    @flag_group
    class LimitFlags:
        timeout: float = setting(300.0, "time limit of one attempt of a call", metavar="SECONDS", gt=0)

    @command_settings
    class ScoreFlags(LimitFlags, EstimateFlags):
        out: str = setting(..., "file for the scores", metavar="FILE")

A group that several commands share is declared once, and a command's class inherits it. The setting `max_rounds` is the
flag `--max-rounds`, the key `max-rounds` of a TOML file, and the keyword `max_rounds` of a Python function. Messages
name it by its flag; `InputError.in_python` turns that into the keyword.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Collection
from typing import Annotated, Any, Literal, TypeVar, Union, cast, dataclass_transform, get_args, get_origin

import pydantic.dataclasses
from pydantic.fields import FieldInfo

from debate_judge.data.errors import InputError, did_you_mean

T = TypeVar("T")

_STRICT = pydantic.ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
"""No conversion: `Setting.read` has converted the texts of flags, and TOML is typed."""

_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "string": "a text",
    "tuple": "a list of texts",
}
"""First word of the type of pydantic's error -> what was expected."""


def setting(
    default: object,
    description: str,
    *,
    flag: str | None = None,
    metavar: str | None = None,
    const: str | None = None,
    default_text: str | None = None,
    repeated: bool = False,
    rare: bool = False,
    affects_results: bool = True,
    **bounds: float,
) -> Any:
    """The field of one setting.

    Args:
        default: The default; `...` if it is required.
        description: For the help.
        flag: The flag, if not named after the field; without leading dashes it is a positional argument.
        metavar: Placeholder of the value in the help; by default after the type.
        const: Value if the flag is given without one.
        default_text: Printed in place of the default.
        repeated: Whether several values are given by repeating the flag rather than in one text with commas.
        rare: Whether `--help-all` alone prints it.
        affects_results: Whether results depend on it; settings of storage, display and limits are not in fingerprints.
        bounds: `ge`, `gt`, `le` of a number.
    """
    options: dict[str, Any] = {"flag": flag, "metavar": metavar, "const": const, "default_text": default_text}
    options |= {"repeated": repeated, "rare": rare, "affects_results": affects_results, "bounds": bounds}
    make_field: Any = pydantic.Field
    return make_field(default, description=description, json_schema_extra=options, **bounds)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def flag_group(cls: type[T]) -> type[T]:
    """Make a class of settings that commands share; only their own classes are built by pydantic, which takes time."""
    return dataclasses.dataclass(frozen=True, kw_only=True)(cls)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def command_settings(cls: type[T]) -> type[T]:
    """Make the class of a command's settings: frozen, keyword-only, validated on construction (`InputError`)."""
    settings_class = pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=_STRICT)(cls)
    pydantic_init = settings_class.__init__

    def __init__(self: T, **values: object) -> None:  # noqa: N807
        try:
            pydantic_init(self, **values)
        except pydantic.ValidationError as error:
            raise _input_error(type(self), error) from None

    settings_class.__init__ = __init__  # type: ignore[method-assign, assignment]
    return cast(type[T], settings_class)


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting of a command."""

    name: str
    field: FieldInfo

    def option(self, key: str) -> Any:
        """An argument of the function `setting`."""
        return cast(dict[str, Any], self.field.json_schema_extra)[key]

    @property
    def key(self) -> str:
        """The key of a TOML file: the flag without dashes, or the name where the flag is a letter or an argument."""
        flag = self.option("flag") or ""
        return flag[2:] if flag.startswith("--") else self.name.replace("_", "-")

    @property
    def flag(self) -> str:
        """As a user writes it on the command line, e.g. `--max-rounds`, `-J`, `EXPORT`."""
        return self.option("flag") or f"--{self.key}"

    @property
    def is_positional(self) -> bool:
        return not self.flag.startswith("-")

    @property
    def value_types(self) -> tuple[Any, ...]:
        """The types of its values other than None: int, float, bool, str, tuple, Literal."""
        annotation = self.field.annotation
        parts = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
        # With bounds of its own, as in `Annotated[int, Field(ge=1)] | Literal["none"]`.
        plain = (get_args(part)[0] if get_origin(part) is Annotated else part for part in parts)
        return tuple(get_origin(part) or part for part in plain if part is not type(None))

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values of a Literal; empty for other types."""
        return get_args(self.field.annotation) if get_origin(self.field.annotation) is Literal else ()

    def read(self, text: str) -> object:
        """The value in a text; one that cannot be converted stays text, which pydantic refuses where it is none."""
        if tuple in self.value_types:
            return tuple(split_commas(text))
        for number in (number for number in (int, float) if number in self.value_types):
            try:
                return number(text)
            except ValueError:
                pass
        return text


def setting_fields(cls: type) -> dict[str, Setting]:
    """Name -> setting of a class: its own, then those of its bases from left to right."""
    fields = cast(dict[str, FieldInfo], cls.__pydantic_fields__)  # type: ignore[attr-defined]
    names = dict.fromkeys(name for base in cls.__mro__ for name in inspect.get_annotations(base) if name in fields)
    return {name: Setting(name, fields[name]) for name in names}


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
    fields = setting_fields(type(settings))
    return {name: getattr(settings, name) for name, field in fields.items() if field.option("affects_results")}


def changed_settings(settings: Any, always: Collection[str] = ()) -> dict[str, Any]:
    """Name -> value of the settings that distinguish a run: those in `always`, and those that are not the default."""
    fields = setting_fields(type(settings))
    return {
        name: value
        for name, value in result_settings(settings).items()
        if value not in (None, "", ()) and (name in always or value != fields[name].field.default)
    }


def unknown_name_error(noun: str, flag: str, name: str, known: tuple[str, ...]) -> InputError:
    expected = "one of " + ", ".join(known)
    return InputError(f"unknown {noun} {name!r}", field=flag, expected=expected, remedy=did_you_mean(name, known))


def unknown_setting_error(cls: type, name: str) -> InputError:
    """An unknown keyword or key, with the nearest one."""
    keys = [field.key for field in setting_fields(cls).values()]
    near = did_you_mean(name.replace("_", "-"), keys, "{}")
    remedy = f"did you mean {near.replace('-', '_') if '_' in name else near}?" if near else None
    return InputError("unknown setting", field=name, remedy=remedy)


def _input_error(cls: type, error: pydantic.ValidationError) -> InputError:
    """The first of pydantic's errors, with the flag of its setting."""
    first = error.errors(include_url=False)[0]
    name, value, kind = str(first["loc"][0]), first["input"], first["type"]
    setting_field = setting_fields(cls).get(name)
    if setting_field is None:
        return unknown_setting_error(cls, name)
    flag, cause = setting_field.flag, first.get("ctx", {}).get("error")
    if isinstance(cause, InputError):
        return cause.replaced(field=flag, found=value)
    if kind.startswith("missing"):
        return InputError("no value is given", field=flag, expected=setting_field.field.description)
    if kind == "literal_error" and setting_field.choices:
        return unknown_name_error(name.replace("_", " "), flag, str(value), setting_field.choices)
    if kind.startswith(("greater_than", "less_than")):
        problem = "number too small" if kind.startswith("greater") else "number too large"
        return InputError(
            problem, field=flag, expected=_range(setting_field.option("bounds") or first["ctx"]), found=value
        )
    expected = _EXPECTED.get("tuple" if tuple in setting_field.value_types else kind.partition("_")[0], first["msg"])
    if len(setting_field.value_types) > 1 and Literal in setting_field.value_types:
        expected += " or none"
    return InputError("wrong type", field=flag, expected=expected, found=value)


def _range(bounds: dict[str, float]) -> str:
    if "ge" in bounds and "le" in bounds:
        return f"a number from {bounds['ge']:g} to {bounds['le']:g}"
    return f"at least {bounds['ge']:g}" if "ge" in bounds else f"more than {bounds['gt']:g}"
