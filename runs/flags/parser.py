"""Makes the flags of a command from its settings, and settings from flags and `--config`: argparse and pydantic."""

from __future__ import annotations

import os
import select
import shlex
import sys
from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction, HelpFormatter, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.reading import toml
from debate_judge.data.files.records import Record
from debate_judge.programs.lm.http.address import NoServerError
from debate_judge.programs.lm.redaction import redact_text
from debate_judge.runs.flags.declaration import SettingField, result_settings, setting_fields, suggestion
from debate_judge.runs.flags.invocation import command, with_invoked_commands
from debate_judge.runs.flags.text_layout import paragraphs, print_error, width_of, wrap_line

T = TypeVar("T")


RESUME_HINT = "run the command again: it resumes, and finished calls are not paid for again"
"""Remedy for a command that was interrupted or failed, if its replies are stored."""


EXIT_INPUT, EXIT_LM, EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 2, 3, 130, 141


def run_main(work: Callable[[], int], after_interrupt: str = "") -> int:
    """Run the body of a command, and print errors of its input or its LM.

    Returns:
        What `work` returned; 2 for bad input; 3 for an LM or server that cannot be used; 130 for an interrupt, after
        which `after_interrupt` is printed; 141 if the reader of the output has closed it, as `debate help | head -1`
        does.
    """
    # DSPy and LiteLLM would fetch a price list on import, which no command needs.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
    try:
        code = work()
        # None if it was closed before the command began.
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except InputError as error:
        print_error(error)
        return EXIT_LM if isinstance(error, NoServerError) else EXIT_INPUT
    except KeyboardInterrupt:
        if after_interrupt:
            print(f"\nstopped; {after_interrupt}", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        if not any([_pipe_is_closed(sys.stdout), _pipe_is_closed(sys.stderr)]):
            raise
        return EXIT_BROKEN_PIPE
    except OSError as error:
        # E.g. a full disk.
        print_error(f"{error}\n  remedy:   fix the problem and {RESUME_HINT}")
        return EXIT_INPUT
    except Exception as error:
        # DSPy is not imported for this check: an error of DSPy means that it has been imported.
        dspy = sys.modules.get("dspy")
        if dspy is None or not isinstance(error, dspy.LMError):
            raise
        from debate_judge.programs.lm.errors import describe

        print(describe(error, error.model or ""), file=sys.stderr)
        return EXIT_LM


def _pipe_is_closed(stream: TextIO | None) -> bool:
    """Whether a stream is a pipe that its reader has closed; further output is then discarded."""
    if stream is None:
        return False
    poll = select.poll()
    poll.register(stream, 0)
    if not poll.poll(0):
        return False
    # Python flushes the rest at exit, which would print an error.
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
    return True


class _ProseFormatter(HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=width_of(sys.stdout))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return paragraphs(text, width)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap_line(" ".join(text.split()), width)


class _Parser(ArgumentParser):
    settings_classes: tuple[type, ...] = ()

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Exit after the help, even if the reader of a pipe closed it early."""
        super().exit(run_main(lambda: status), message)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments; first refuse those that are keys of `--config`."""
        args = sys.argv[1:] if args is None else list(args)
        for argument, following in zip(args, [*args[1:], ""], strict=False):
            flag, equals, value = argument.partition("=")
            if flag.startswith("--") and flag not in self._option_string_actions:
                self._refuse(flag, value if equals else "" if following.startswith("-") else following)
        return super().parse_known_args(args, namespace)

    def _refuse(self, flag: str, value: str) -> None:
        for settings_class in self.settings_classes:
            for setting_field in setting_fields(settings_class).values():
                key = setting_field.name.replace("_", "-")
                if not setting_field.is_flag and flag in (f"--{key}", f"--no-{key}"):
                    if setting_field.value_type is bool:
                        value = str(flag == f"--{key}").lower()
                    assignment = shlex.quote(f"{key}={redact_text(value) or setting_field.option('const') or 'VALUE'}")
                    remedy = f"it is a key of --config: give --config {assignment}, or write it in a TOML file"
                    raise InputError("not a flag", field=flag, remedy=remedy)

    def error(self, message: str) -> NoReturn:
        """Name the nearest flag where one is unknown."""
        _, unrecognized, arguments = message.partition("unrecognized arguments: ")
        if unrecognized:
            flag = arguments.split()[0].partition("=")[0]
            hint = did_you_mean(flag, self._option_string_actions)
            if not flag.startswith("-") and "--data" in self._option_string_actions:
                hint = f"did you mean --data {flag}?"
            message += f"; {hint}" if hint else ""
        super().error(message)


def parse_settings(name: str, description: str, settings_class: type[T], argv: Sequence[str] | None) -> T:
    """The settings of a command, from its command line and `--config`; arguments as of `make_parser`.

    Raises:
        InputError: A value or a key cannot be used.
    """
    return read_settings(settings_class, make_parser(name, description, settings_class).parse_args(argv))


def make_parser(name: str, description: str, *settings_classes: type) -> ArgumentParser:
    """A parser with the flags of `settings_classes` (of `command_settings`) and `--config`.

    Flags that are not given are absent from its result. Commands in the description are shown as this process was
    started.
    """
    settings = [setting for settings_class in settings_classes for setting in setting_fields(settings_class).values()]
    keys = [setting.cli_name for setting in settings if not setting.is_flag]
    parser = _Parser(
        prog=command(name),
        description=with_invoked_commands(description),
        epilog=f"Keys of --config without a flag (docs/settings.md): {', '.join(keys)}." if keys else None,
        formatter_class=_ProseFormatter,
        argument_default=SUPPRESS,
    )
    parser.settings_classes = settings_classes
    groups: dict[str, Any] = {"options": parser}
    required = []
    for setting_field in settings:
        if not setting_field.is_flag:
            continue
        if setting_field.group not in groups:
            groups[setting_field.group] = parser.add_argument_group(setting_field.group)
        if setting_field.field.is_required():
            flag = setting_field.cli_name
            value = setting_field.option("metavar") or flag[2:].upper()
            required.append(f"{flag} {value}" if flag.startswith("-") else flag.upper())
        _add(groups[setting_field.group], setting_field)
    parser.usage = " ".join(["%(prog)s [-h]", *required, "[FLAGS]"])
    parser.add_argument(
        "--config",
        action="append",
        metavar="FILE",
        help="TOML file of settings, or KEY=VALUE; flags override it; may be repeated",
    )
    return parser


def _add(group: Any, setting_field: SettingField) -> None:
    value_type, choices = setting_field.value_type, setting_field.choices
    options: dict[str, Any] = {"help": _help_text(setting_field)}
    if value_type is bool:
        options["action"] = BooleanOptionalAction if setting_field.field.default else "store_true"
    else:
        placeholder = "{" + ",".join(choices) + "}" + (",..." if value_type is tuple else "") if choices else None
        options["type"] = str if setting_field.option("repeated") else setting_field.read
        options["metavar"] = setting_field.option("metavar") or placeholder or {int: "N", float: "X"}.get(value_type)
    if (const := setting_field.option("const")) is not None:
        options |= {"nargs": "?", "const": const}
    if setting_field.option("repeated"):
        options["action"] = "append"
    # A required setting may also come from --config, so argparse does not require it.
    if setting_field.cli_name.startswith("-"):
        group.add_argument(setting_field.cli_name, dest=setting_field.name, **options)
    else:
        group.add_argument(setting_field.name, nargs="?", **options)


def _help_text(setting_field: SettingField) -> str:
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


def read_settings(settings_class: type[T], arguments: Namespace) -> T:
    """The settings that were given; flags override `--config`, which overrides defaults.

    Raises:
        InputError: A value or a key cannot be used, or a file cannot be read.
    """
    parsed, fields = vars(arguments), setting_fields(settings_class)
    values: dict[str, Any] = {}
    origins: dict[str, tuple[Record, str]] = {}
    for text in parsed.get("config", ()):
        # Not `Path.is_file`, which raises for a text that is too long for a file name.
        if "=" in text and not os.path.isfile(text):
            values |= _assigned(fields, text) or _raise_unknown(settings_class, text)
            continue
        record = toml(Path(text), "file of settings")
        for key, value in record.values.items():
            name = key.replace("-", "_")
            if name not in fields:
                raise record.error("unknown setting", key, remedy=suggestion(settings_class, name))
            values[name], origins[name] = _as_tuple(value), (record, key)
    for name, value in parsed.items():
        if name in fields:
            assigns = fields[name].option("assigns_settings")
            values |= _judge_options(fields, name, value) if assigns else {name: _as_tuple(value)}
    try:
        return settings_class(**values)
    except InputError as error:
        for name, (record, key) in origins.items():
            if fields[name].cli_name == error.field and values[name] == _as_tuple(record.values[key]):
                raise record.error(
                    error.problem, key, expected=error.expected, found=error.found, remedy=error.remedy
                ) from None
        raise


def _assigned(fields: Mapping[str, SettingField], text: str) -> dict[str, Any]:
    """Name -> value of a text KEY=VALUE whose key is a setting; empty for any other text."""
    key, equals, value = text.partition("=")
    name = key.strip().replace("-", "_")
    return {name: fields[name].read(value.strip())} if equals and name in fields else {}


def _raise_unknown(settings_class: type, text: str) -> NoReturn:
    key = text.partition("=")[0].strip()
    raise InputError(
        "unknown setting",
        field=key,
        expected="KEY=VALUE with a key of docs/settings.md or the name of a flag, or a TOML file",
        found=redact_text(text),
        remedy=suggestion(settings_class, key),
    )


def _judge_options(fields: Mapping[str, SettingField], name: str, texts: Sequence[str]) -> dict[str, Any]:
    """The values of `-J NAME=VALUE`: other settings of its class, and its own remaining texts."""
    others = {
        other: setting_field
        for other, setting_field in fields.items()
        if setting_field.declared_by is fields[name].declared_by and other != name
    }
    values: dict[str, Any] = {name: tuple(text for text in texts if not _assigned(others, text))}
    for text in texts:
        values |= _assigned(others, text)
    return values


def as_command(name: str, settings: object) -> str:
    """The command line that gives the same results, typed as this process was started, without defaults.

    It can be shared: absolute paths are cut to the file name, and secrets are removed.
    """
    return " ".join([command(name), *command_words(settings, result_settings(settings), _portable)])


def command_words(settings: object, names: Iterable[str], render: Callable[[str], str] = str) -> list[str]:
    """The named settings that differ from their defaults, as words of a command line, with values by `render`."""
    words = []
    for setting_field in (setting_fields(type(settings))[name] for name in names):
        value, name = getattr(settings, setting_field.name), setting_field.cli_name
        if value is None or value == setting_field.field.default:
            continue
        if not setting_field.is_flag:
            words += ["--config", shlex.quote(f"{name}={render(_text(value))}")]
        elif value is True:
            words.append(name)
        else:
            values = value if isinstance(value, tuple) and setting_field.option("repeated") else (value,)
            flag = [name] if name.startswith("-") else []
            words += [word for part in values for word in (*flag, shlex.quote(render(_text(part))))]
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


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
