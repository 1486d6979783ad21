"""Makes the flags of a command from its settings, and settings from flags and `--config`: argparse and pydantic."""

from __future__ import annotations

import os
import re
import select
import shlex
import sys
from argparse import SUPPRESS, Action, ArgumentParser, BooleanOptionalAction, HelpFormatter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.reading import toml
from debate_judge.programs.lm.http.address import NoServerError
from debate_judge.programs.lm.redaction import redact_text
from debate_judge.runs.flags.declaration import Setting, result_settings, setting_fields, unknown_setting_error
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
