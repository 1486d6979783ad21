"""Settings declared once, as fields of dataclasses: flags, keys of `--config`, help and checks follow from them.

    @dataclass(frozen=True, kw_only=True)
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

import inspect
import re
import shlex
import sys
from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction, RawDescriptionHelpFormatter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, ParamSpec, TypeVar, cast, dataclass_transform, get_args, get_origin

import pydantic.dataclasses
from pydantic.fields import FieldInfo

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.formats import toml
from debate_judge.programs.lm.settings import redact_text
from debate_judge.runs.command_line import command, run_main, width_of, with_invoked_commands, wrap_line

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Places = Mapping[str, Mapping[str, Any]]
"""Name of a setting -> file, line and key where `--config` has it: `InputError`'s arguments of these names."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of a command."""

    name: str
    field: FieldInfo
    flag: str = ""
    """The flag, if not named after the field; without leading dashes it is a positional argument."""
    metavar: str | None = None
    """Placeholder of the value in the help; by default after the type."""
    const: str | None = None
    """Value if the flag is given without one."""
    default_text: str | None = None
    """Printed in place of the default."""
    repeated: bool = False
    """Whether several values are given by repeating the flag rather than in one text with commas."""
    rare: bool = False
    """Whether `--help-all` alone prints it."""
    affects_results: bool = True
    """Whether results depend on it; settings of storage, display and limits are not in fingerprints."""

    @property
    def key(self) -> str:
        """The key of a TOML file: the flag without dashes, or the name where the flag is a letter or an argument."""
        return self.flag[2:] if self.flag.startswith("--") else self.name.replace("_", "-")

    @property
    def types(self) -> list[Any]:
        """The parts of its type: those of `int | None` are the union, int and None."""
        return _parts(self.field.annotation)

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values of a Literal; empty for other types."""
        return get_args(self.field.annotation) if get_origin(self.field.annotation) is Literal else ()

    def read(self, given: object) -> object:
        """The value of a flag; a text that cannot be converted stays one, which pydantic refuses where it is none."""
        if isinstance(given, list):
            return tuple(given)
        if isinstance(given, str):
            if tuple in self.types:
                return tuple(split_commas(given))
            for number in (each for each in (int, float) if each in self.types):
                with suppress(ValueError):
                    return number(given)
        return given


def _parts(annotation: object) -> list[Any]:
    return [annotation, get_origin(annotation), *(part for each in get_args(annotation) for part in _parts(each))]


def setting(default: object, description: str, **options: Any) -> Any:
    """The field of one setting.

    Args:
        default: The default; `...` if it is required.
        description: For the help.
        options: Those of `Setting`, and `ge`, `gt`, `le` of a number.
    """
    bounds = {name: options.pop(name) for name in ("ge", "gt", "le") if name in options}
    return pydantic.Field(default, description=description, json_schema_extra=options, **bounds)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def command_settings(cls: type[T]) -> type[T]:
    """Make the class of a command's settings: frozen, keyword-only, validated on construction (`InputError`)."""
    # No conversion: `Setting.read` has converted the texts of flags, and TOML is typed.
    config = pydantic.ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    settings_class = pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=config)(cls)
    pydantic_init = settings_class.__init__

    def __init__(self: T, **values: object) -> None:  # noqa: N807
        try:
            pydantic_init(self, **values)
        except pydantic.ValidationError as error:
            raise _input_error(type(self), error) from None

    settings_class.__init__ = __init__  # type: ignore[method-assign, assignment]
    return cast(type[T], settings_class)


def settings_of(cls: type) -> dict[str, Setting]:
    """Name -> setting of a class: its own, then those of its bases from left to right."""
    fields: dict[str, Any] = cls.__pydantic_fields__  # type: ignore[attr-defined]
    names = dict.fromkeys(name for base in cls.__mro__ for name in inspect.get_annotations(base) if name in fields)
    by_name = {name: f"--{name.replace('_', '-')}" for name in names}
    return {n: Setting(name=n, field=fields[n], **{"flag": by_name[n], **fields[n].json_schema_extra}) for n in names}


def split_commas(text: str) -> list[str]:
    """The comma-separated parts of a flag's value, not split within brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def result_settings(settings: Any) -> dict[str, Any]:
    """Name -> value of the settings that results depend on."""
    return {name: getattr(settings, name) for name, each in settings_of(type(settings)).items() if each.affects_results}


def changed_settings(settings: Any, always: Collection[str] = ()) -> dict[str, Any]:
    """Name -> value of the settings that distinguish a run: those in `always`, and those that are not the default."""
    default = {name: each.field.default for name, each in settings_of(type(settings)).items()}
    values = {name: value for name, value in result_settings(settings).items() if value not in (None, "", ())}
    return {name: value for name, value in values.items() if name in always or value != default[name]}


def _input_error(cls: type, error: pydantic.ValidationError) -> InputError:
    """pydantic's errors of the first setting that has one."""
    errors = error.errors(include_url=False)
    name, value = str(errors[0]["loc"][0]), errors[0]["input"]
    if name not in settings_of(cls):
        return _unknown_setting(cls, name)
    known, cause = settings_of(cls)[name], errors[0].get("ctx", {}).get("error")
    if isinstance(cause, InputError):
        return cause.replaced(field=known.flag, found=value)
    if errors[0]["type"].startswith("missing"):
        return InputError("no value is given", field=known.flag, expected=known.field.description)
    expected = " or ".join(each["msg"].removeprefix("Input should be ") for each in errors if each["loc"][0] == name)
    expected = expected.replace("a valid tuple", "a list of texts")
    near = did_you_mean(str(value), known.choices)
    return InputError("not a value of this setting", field=known.flag, expected=expected, found=value, remedy=near)


def _unknown_setting(cls: type, name: str) -> InputError:
    known = settings_of(cls)
    near = did_you_mean(name, [*known, *(each.key for each in known.values())])
    return InputError("unknown setting", field=name, remedy=near or "see --help-all for all settings")


def line_of_key(file: Path, key: str) -> int | None:
    """The number of the line on which a TOML file has `key`, or the table of this name."""
    pattern = re.compile(rf"""\s*\[?["']?{re.escape(key)}["']?\s*[]=]""")
    lines = file.read_text(encoding="utf-8-sig").splitlines()
    return next((number for number, line in enumerate(lines, 1) if pattern.match(line)), None)


# --- the command line ---


class _HelpFormatter(RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=width_of(sys.stdout))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """A docstring: paragraphs are wrapped; indented lines, such as commands, are kept."""
        joined = re.sub(r"(?<=\S)\n(?=\S)", " ", text.strip()).split("\n")
        return "\n".join(line if line.startswith(" ") else "\n".join(wrap_line(line, width)) for line in joined)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap_line(text, width)


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Refuse a command line like other input, with the nearest flag where one is unknown."""
        _, unrecognized, arguments = message.partition("unrecognized arguments: ")
        if not unrecognized:
            flag, _, problem = message.removeprefix("argument ").partition(": ")
            problem = "a value is missing" if problem.startswith("expected") else problem
            raise InputError(problem, field=flag.rpartition("/")[2], remedy=f"{self.prog} --help lists the flags")
        word = redact_text(arguments.split()[0].partition("=")[0])
        remedy = did_you_mean(word, self._option_string_actions) if word.startswith("-") else None
        if not word.startswith("-") and "--data" in self._option_string_actions:
            remedy = f"did you mean --data {word}?"
        raise InputError("unknown argument", field=word, remedy=remedy or f"{self.prog} --help-all lists all flags")


def make_parser(name: str, description: str, settings_class: type, *, show_rare: bool = False) -> ArgumentParser:
    """A parser with the flags of a class of `command_settings` and `--config`.

    Args:
        name: The command.
        description: The module's docstring, whose first line says what the command does.
        settings_class: The settings.
        show_rare: Whether the help has the rare ones.
    """
    parser = _Parser(
        prog=command(name),
        description=with_invoked_commands(description),
        formatter_class=_HelpFormatter,
        argument_default=SUPPRESS,
        allow_abbrev=False,
    )
    required = []
    for each in settings_of(settings_class).values():
        options: dict[str, Any] = {"dest": each.name, "help": SUPPRESS if each.rare and not show_rare else _help(each)}
        if bool in each.types:
            options["action"] = BooleanOptionalAction if each.field.default else "store_true"
        else:
            by_type = "{" + ",".join(each.choices) + "}" if each.choices else None
            by_type = by_type or ("N" if int in each.types else "X" if float in each.types else None)
            options["metavar"] = each.metavar or by_type or each.key.upper()
        if each.const is not None:
            options |= {"nargs": "?", "const": each.const}
        if each.repeated:
            options["action"] = "append"
        if not each.flag.startswith("-"):
            # A required setting may also come from --config, so argparse does not require it.
            parser.add_argument(nargs="?", **options)
        else:
            parser.add_argument(*dict.fromkeys((each.flag, f"--{each.key}")), **options)
        if each.field.is_required():
            required.append(f"{each.flag} {options['metavar']}" if each.flag.startswith("-") else each.flag)
    parser.usage = " ".join(["%(prog)s [-h]", *sorted(required, key=lambda word: word.startswith("-")), "[FLAGS]"])
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings, e.g. seed = 2; flags override it")
    parser.add_argument("--help-all", action="help", help="show all flags, and exit")
    return parser


def _help(each: Setting) -> str:
    """The description and the default."""
    text, default = (each.field.description or "").replace("%", "%%"), each.default_text
    value = each.field.default
    if default is None and not each.field.is_required() and value is not False and value not in (None, ()):
        default = f"{value:g}" if isinstance(value, float) else _as_text(value)
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
    arguments = list(sys.argv[1:] if argv is None else argv)

    def parsed_and_run() -> int:
        parser = make_parser(name, description or "", settings_class, show_rare="--help-all" in arguments)
        try:
            settings, places = read_settings(settings_class, parser, arguments)
        except SystemExit:
            # Argparse has printed the help.
            return 0
        with _named_errors(settings_class, places):
            return work(settings)

    return run_main(parsed_and_run, after_interrupt)


def read_settings(settings_class: type[T], parser: ArgumentParser, argv: Sequence[str]) -> tuple[T, Places]:
    """The settings that were given, and the places of those that only `--config` has; flags override it.

    Raises:
        InputError: A value or a key cannot be used, or the file cannot be read.
    """
    given, known = vars(parser.parse_args(argv)), settings_of(settings_class)
    config = Path(given.pop("config")) if "config" in given else None
    values: dict[str, Any] = {}
    places: dict[str, dict[str, Any]] = {}
    names = {each.key.replace("-", "_"): name for name, each in known.items()}
    for key, value in toml(config, "file of settings").values.items() if config else ():
        place = {"file": config, "line": line_of_key(config, key) if config else None, "field": key}
        name = names.get(key.replace("-", "_"))
        if name is None:
            raise _unknown_setting(settings_class, key).replaced(**place)
        values[name], places[name] = tuple(value) if isinstance(value, list) else value, place
    for name, value in given.items():
        values[name] = known[name].read(value)
        places.pop(name, None)
    with _named_errors(settings_class, places):
        return settings_class(**values), places


@contextmanager
def _named_errors(settings_class: type, places: Places) -> Iterator[None]:
    """Name the setting of an error as it was given: by the flag, or by the key with file and line."""
    try:
        yield
    except InputError as error:
        known = settings_of(settings_class).values()
        found = next((each for each in known if error.field in (each.name, each.flag)), None)
        if found is None or error.file is not None:
            raise
        raise error.replaced(**places.get(found.name, {"field": found.flag})) from None


def as_command(name: str, settings: object) -> str:
    """The command line that gives the same results, typed as this process was started, without defaults.

    It can be shared: absolute paths are cut to the file name, and secrets are removed.
    """
    return " ".join([command(name), *command_words(settings, result_settings(settings), _portable)])


def command_words(settings: object, names: Iterable[str], render: Callable[[str], str] = str) -> list[str]:
    """The named settings that differ from their defaults, as words of a command line, with values by `render`."""
    words = []
    for each in (settings_of(type(settings))[name] for name in names):
        value = getattr(settings, each.name)
        if value is None or value == each.field.default:
            continue
        if isinstance(value, bool):
            words.append(each.flag if value else f"--no-{each.key}")
            continue
        for part in value if isinstance(value, tuple) and each.repeated else (value,):
            words += [each.flag] if each.flag.startswith("-") else []
            words.append(shlex.quote(render(_as_text(part))))
    return words


def _as_text(value: object) -> str:
    """A value as on the command line."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _portable(text: str) -> str:
    start, equals, path = text.rpartition("=")
    path = path if "://" in path or not Path(path).is_absolute() else Path(path).name
    return redact_text(start + equals + path)


# --- functions that are called from Python ---


@contextmanager
def python_arguments() -> Iterator[None]:
    """The errors of a function name Python arguments (`max_rounds`) in place of flags (`--max-rounds`)."""
    try:
        yield
    except InputError as error:
        raise error.in_python() from error


def with_settings(settings: type, left_out: Collection[str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The signature of a function shows the fields of `settings`, with their defaults, in place of its `**settings`."""

    def signed(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        own = {name: each for name, each in signature.parameters.items() if each.kind is not each.VAR_KEYWORD}
        taken = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.annotation)
            for name, field in settings.__pydantic_fields__.items()  # type: ignore[attr-defined]
            if name not in (*left_out, *own)
        ]
        function.__signature__ = signature.replace(parameters=[*own.values(), *taken])  # type: ignore[attr-defined]
        return function

    return signed
