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
import functools
import inspect
import re
import shlex
import sys
import types
from argparse import SUPPRESS, Action, ArgumentParser, BooleanOptionalAction, HelpFormatter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NoReturn,
    ParamSpec,
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
from debate_judge.data.files.formats import toml
from debate_judge.programs.lm.settings import redact_text
from debate_judge.runs.command_line import command, paragraphs, run_main, width_of, with_invoked_commands, wrap_line

P = ParamSpec("P")
R = TypeVar("R")
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


def line_of_key(file: Path, key: str) -> int | None:
    """The number of the line on which a TOML file has `key`, or the table of this name."""
    pattern = re.compile(rf"""\s*\[?["']?{re.escape(key)}["']?\s*[]=]""")
    lines = file.read_text(encoding="utf-8-sig").splitlines()
    return next((number for number, line in enumerate(lines, 1) if pattern.match(line)), None)


class _ProseFormatter(HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=width_of(sys.stdout))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return paragraphs(text, width)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap_line(" ".join(text.split()), width)


class _Parser(ArgumentParser):
    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Exit after the help, even if the reader of a pipe closed it early."""
        super().exit(run_main(lambda: status), message)

    def error(self, message: str) -> NoReturn:
        """Refuse a command line like other input, with the nearest flag where one is unknown."""
        _, unrecognized, arguments = message.partition("unrecognized arguments: ")
        if not unrecognized:
            flag, _, problem = message.removeprefix("argument ").partition(": ")
            problem = "a value is missing" if problem.startswith("expected") else problem
            raise InputError(problem, field=flag.rpartition("/")[2], remedy=f"{self.prog} --help lists the flags")
        word = arguments.split()[0].partition("=")[0]
        remedy = did_you_mean(word, self._option_string_actions) if word.startswith("-") else None
        if not word.startswith("-") and "--data" in self._option_string_actions:
            remedy = f"did you mean --data {redact_text(word)}?"
        remedy = remedy or f"{self.prog} --help-all lists all flags"
        raise InputError("unknown argument", field=redact_text(word), remedy=remedy)


class _HelpAll(Action):
    """Prints the help with the rare flags."""

    def __call__(self, parser: ArgumentParser, *_: object, **__: object) -> NoReturn:
        for action in parser._actions:
            action.help = getattr(action, "full_help", action.help)
        parser.print_help()
        parser.exit()


def make_parser(name: str, description: str, settings_class: type) -> ArgumentParser:
    """A parser with the flags of a class of `command_settings` and `--config`.

    Args:
        name: The command.
        description: The module's docstring, whose first line says what the command does.
        settings_class: The settings.
    """
    parser = _Parser(
        prog=command(name),
        description=with_invoked_commands(description),
        formatter_class=_ProseFormatter,
        argument_default=SUPPRESS,
        allow_abbrev=False,
    )
    required = []
    for setting_field in setting_fields(settings_class).values():
        action = _add(parser, setting_field)
        if setting_field.option("rare"):
            action.full_help, action.help = action.help, SUPPRESS  # type: ignore[attr-defined]
        if setting_field.field.is_required():
            required += [setting_field.flag] * (not setting_field.is_positional) + [str(action.metavar)]
    parser.usage = " ".join(["%(prog)s [-h]", *required, "[FLAGS]"])
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings, e.g. seed = 2; flags override it")
    parser.add_argument("--help-all", action=_HelpAll, nargs=0, help="show all flags, and exit")
    return parser


def _add(parser: ArgumentParser, setting_field: Setting) -> Action:
    value_types, choices, flag = setting_field.value_types, setting_field.choices, setting_field.flag
    options: dict[str, Any] = {"help": _help_text(setting_field), "dest": setting_field.name}
    if bool in value_types:
        options["action"] = BooleanOptionalAction if setting_field.field.default else "store_true"
    else:
        placeholder = "{" + ",".join(choices) + "}" if choices else {int: "N", float: "X"}.get(value_types[0])
        options["metavar"] = setting_field.option("metavar") or placeholder or flag.strip("-").upper()
    if (const := setting_field.option("const")) is not None:
        options |= {"nargs": "?", "const": const}
    if setting_field.option("repeated"):
        options["action"] = "append"
    if setting_field.is_positional:
        # A required setting may also come from --config, so argparse does not require it.
        return parser.add_argument(nargs="?", **options)
    return parser.add_argument(*dict.fromkeys((flag, f"--{setting_field.key}" if flag == "-J" else flag)), **options)


def _help_text(setting_field: Setting) -> str:
    """The description and the default."""
    value, default = setting_field.field.default, setting_field.option("default_text")
    if (
        default is None
        and not setting_field.field.is_required()
        and value is not None
        and value is not False
        and value != ()
    ):
        default = f"{value:g}" if isinstance(value, float) else _text(value)
    text = (setting_field.field.description or "").replace("%", "%%")
    return f"{text} (default: {default})" if default else text


def run_command(
    name: str,
    description: str | None,
    settings_class: type[T],
    work: Callable[[T], int],
    argv: Sequence[str] | None,
    after_interrupt: str = "",
) -> int:
    """Run a command with the settings of its command line and its `--config`; returns its exit code.

    Errors name a setting as the user wrote it: the flag, or the key with file and line. Further arguments and results
    as of `make_parser` and `run_main`.
    """

    def parsed_and_run() -> int:
        settings, given = read_settings(settings_class, make_parser(name, description or "", settings_class), argv)
        with given.named_errors():
            return work(settings)

    return run_main(parsed_and_run, after_interrupt)


@dataclass(frozen=True)
class Given:
    """Where the settings of a command came from."""

    fields: Mapping[str, Setting]
    config: Path | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    """Name of a setting -> its key in `config`, of those that no flag gave."""

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Name the setting of an error as it was given: by the flag, or by the key with file and line."""
        try:
            yield
        except InputError as error:
            name = next((name for name, known in self.fields.items() if error.field in (name, known.flag)), None)
            if name is None or error.file is not None:
                raise
            if self.config is None or name not in self.keys:
                raise error.replaced(field=self.fields[name].flag) from None
            key = self.keys[name]
            raise error.replaced(file=self.config, line=line_of_key(self.config, key), field=key) from None


def read_settings(settings_class: type[T], parser: ArgumentParser, argv: Sequence[str] | None) -> tuple[T, Given]:
    """The settings that were given, and where; flags override the file of `--config`.

    Raises:
        InputError: A value or a key cannot be used, or the file cannot be read.
    """
    parsed, fields = vars(parser.parse_args(argv)), setting_fields(settings_class)
    config = Path(parsed.pop("config")) if "config" in parsed else None
    names = {each.key.replace("-", "_"): name for name, each in fields.items()}
    values: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for key, value in toml(config, "file of settings").values.items() if config else ():
        name = names.get(key.replace("-", "_"), "")
        if config and not name:
            error = unknown_setting_error(settings_class, key)
            raise error.replaced(file=config, line=line_of_key(config, key))
        values[name], keys[name] = tuple(value) if isinstance(value, list) else value, key
    for name, value in parsed.items():
        keys.pop(name, None)
        values[name] = fields[name].read(value) if isinstance(value, str) else value
        values[name] = tuple(value) if isinstance(value, list) else values[name]
    given = Given(fields, config, keys)
    with given.named_errors():
        return settings_class(**values), given


def as_command(name: str, settings: object) -> str:
    """The command line that gives the same results, typed as this process was started, without defaults.

    It can be shared: absolute paths are cut to the file name, and secrets are removed.
    """
    return " ".join([command(name), *command_words(settings, result_settings(settings), _portable)])


def command_words(settings: object, names: Iterable[str], render: Callable[[str], str] = str) -> list[str]:
    """The named settings that differ from their defaults, as words of a command line, with values by `render`."""
    words = []
    for setting_field in (setting_fields(type(settings))[name] for name in names):
        value, flag = getattr(settings, setting_field.name), setting_field.flag
        if value is None or value == setting_field.field.default:
            continue
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{setting_field.key}")
            continue
        values = value if isinstance(value, tuple) and setting_field.option("repeated") else (value,)
        prefix = [] if setting_field.is_positional else [flag]
        words += [word for part in values for word in (*prefix, shlex.quote(render(_text(part))))]
    return words


def _text(value: object) -> str:
    """A value as on the command line."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _portable(text: str) -> str:
    start, equals, path = text.rpartition("=")
    path = path if "://" in path or not Path(path).is_absolute() else Path(path).name
    return redact_text(start + equals + path)


def python_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """The errors of `function` name Python arguments (`max_rounds`) in place of flags (`--max-rounds`)."""

    @functools.wraps(function)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except InputError as error:
            raise error.in_python() from error

    return named


def with_settings(settings: type, left_out: Collection[str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The signature of a function shows the fields of `settings`, with their defaults, in place of its `**settings`."""

    def signed(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        names = {*left_out, *(parameter.name for parameter in own)}
        types = get_type_hints(settings)
        taken = [
            parameter.replace(
                kind=parameter.KEYWORD_ONLY,
                # pydantic's own description of a field holds the default.
                default=getattr(parameter.default, "default", parameter.default),
                annotation=types.get(name, parameter.annotation),
            )
            for name, parameter in inspect.signature(settings).parameters.items()
            if name not in names
        ]
        function.__signature__ = signature.replace(parameters=[*own, *taken])  # type: ignore[attr-defined]
        return function

    return signed
