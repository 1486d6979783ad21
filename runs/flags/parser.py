"""From declared settings to the flags of a command and back: argparse writes the help, pydantic checks the values."""

from __future__ import annotations

import os
import select
import shlex
import sys
from argparse import SUPPRESS, ArgumentParser, HelpFormatter, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar

from pydantic.fields import FieldInfo

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.reading import toml
from debate_judge.programs.lm.http.address import NoServerError
from debate_judge.programs.lm.redaction import clean_text
from debate_judge.runs.flags.declared import choices_of, extra, fields_of, grouped, kind_of, spelled
from debate_judge.runs.flags.invocation import as_started, command
from debate_judge.runs.flags.prose import filled, paragraphs, print_error, width_of

T = TypeVar("T")


RESUMES = "run the command again: it resumes, and finished calls are not paid for again"
"""How a command goes on that was interrupted or failed, where its replies are kept."""


REMOVED_FLAGS = {
    "--batch-rounds": "it was removed: texts share calls with others of the same source only (--together)",
    "--granularity": "it was removed: the LM decides, and compile rounds finished scores where that agrees better",
}
"""What became of flags that commands once had."""


def exit_code(work: Callable[[], int], stopped: str = "") -> int:
    """Carry out a command; what is wrong with its input is printed, and a reader of its output may go early.

    Args:
        work: The command; it returns its exit code.
        stopped: What is said when the user interrupts it.

    Returns:
        What `work` returned, 2 for input that cannot be used, 3 for a server that is not running, 130 for an interrupt,
        141 where the reader of the output has gone, as in `debate help | head -1`.
    """
    try:
        code = work()
        # None where it was closed before the command began.
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except InputError as error:
        print_error(error)
        return 3 if isinstance(error, NoServerError) else 2
    except KeyboardInterrupt:
        if stopped:
            print(f"\nstopped; {stopped}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        if not any([_closed(sys.stdout), _closed(sys.stderr)]):
            raise
        return 141


def _closed(stream: TextIO | None) -> bool:
    """Whether the reader of a stream has gone; what is still to be written to it is then thrown away."""
    if stream is None:
        return False
    poll = select.poll()
    poll.register(stream, 0)
    if not poll.poll(0):
        return False
    # Python writes the rest when it ends, and would complain then.
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
    return True


class _ProseFormatter(HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=width_of(sys.stdout))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return paragraphs(text, width)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return filled(" ".join(text.split()), width)


class _Parser(ArgumentParser):
    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End after the help, of which a pipe may have read only the beginning."""
        super().exit(exit_code(lambda: status), message)

    def error(self, message: str) -> NoReturn:
        """Say what became of a removed flag, and name the nearest one where a flag is unknown."""
        _, unrecognized, given = message.partition("unrecognized arguments: ")
        if unrecognized:
            flag = given.split()[0].partition("=")[0]
            more = REMOVED_FLAGS.get(flag) or did_you_mean(flag, self._option_string_actions)
            if not flag.startswith("-") and "--data" in self._option_string_actions:
                more = f"did you mean --data {flag}?"
            message += f"; {more}" if more else ""
        super().error(message)


def make_parser(name: str, description: str, *declarations: type) -> ArgumentParser:
    """A parser with a flag for each declared setting; what a user does not give is absent from its result.

    Args:
        name: Of the command, e.g. `score`.
        description: Text above the flags; commands in it are shown as this process was started.
        declarations: Classes made by `declared`.
    """
    parser = _Parser(
        prog=command(name),
        description=as_started(description),
        formatter_class=_ProseFormatter,
        argument_default=SUPPRESS,
    )
    groups: dict[str, Any] = {"options": parser}
    for declaration in declarations:
        for group, field_name, field in grouped(declaration):
            if group not in groups:
                groups[group] = parser.add_argument_group(group)
            _add(groups[group], field_name, field)
    return parser


def read(declaration: type[T], arguments: Namespace, config: str | None = None) -> T:
    """The settings that were given; flags win over the file, and the file over defaults.

    Raises:
        InputError: A value cannot be used, or the file cannot be read.
    """
    given = {name: _frozen(value) for name, value in vars(arguments).items() if name in fields_of(declaration)}
    return declaration(**{**(read_config(declaration, Path(config)) if config else {}), **given})


def read_config(declaration: type, path: Path) -> dict[str, Any]:
    """Read settings from TOML; the keys are the names of the flags, with - or _.

    Raises:
        InputError: The file cannot be read, a key is unknown, or a value cannot be used.
    """
    record = toml(path, "file of settings")
    names = {key: key.replace("-", "_") for key in record.values}
    values = {name: _frozen(record.values[key]) for key, name in names.items()}
    try:
        declaration(**values)
    except InputError as error:
        known = fields_of(declaration)
        key = next(key for key, name in names.items() if spelled(name, known.get(name)) == error.field)
        raise record.error(
            error.problem, key, expected=error.expected, found=error.found, remedy=error.remedy
        ) from None
    return values


def as_command(name: str, settings: object) -> str:
    """The command line that gives the same results, as this process was started; what has its default is left out.

    For people elsewhere, too: of an absolute path the last part is kept, and secrets are taken out.
    """
    parts = [command(name)]
    for field_name, field in fields_of(type(settings)).items():
        value = getattr(settings, field_name)
        if value is None or value is False or value == field.default or not extra(field, "decides"):
            continue
        flag = spelled(field_name, field)
        if value is True:
            parts.append(flag)
            continue
        values = value if isinstance(value, tuple) and extra(field, "repeated") else (value,)
        for one in values:
            text = ",".join(map(str, one)) if isinstance(one, tuple) else str(one)
            parts += [*([flag] if flag.startswith("-") else []), shlex.quote(_portable(text))]
    return " ".join(parts)


def _portable(text: str) -> str:
    start, equals, path = text.rpartition("=")
    path = path if "://" in path or not Path(path).is_absolute() else Path(path).name
    return clean_text(start + equals + path)


def listed(text: str | None) -> list[str]:
    """The parts of a flag's value that are joined by commas; none for an absent flag."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _add(group: Any, name: str, field: FieldInfo) -> None:
    kind, choices = kind_of(field), choices_of(field)
    options: dict[str, Any] = {"help": _help(field)}
    if kind is bool:
        options["action"] = "store_true"
    else:
        names = "{" + ",".join(choices) + "}" + (",..." if kind is tuple else "") if choices else None
        options |= {
            "type": _reader(field),
            "metavar": extra(field, "metavar") or names or {int: "N", float: "X"}.get(kind),
        }
    if (const := extra(field, "const")) is not None:
        options |= {"nargs": "?", "const": const}
    if extra(field, "repeated"):
        options["action"] = "append"
    if (spelling := spelled(name, field)).startswith("-"):
        group.add_argument(spelling, dest=name, required=field.is_required(), **options)
    else:
        group.add_argument(name, **options)


def _help(field: FieldInfo) -> str:
    """Help with the default at its end."""
    default = extra(field, "shown")
    value = field.default
    if default is None and not field.is_required() and value is not None and value is not False and value != ():
        default = (
            ",".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)
        )
    text = (field.description or "").replace("%", "%%")
    return f"{text} (default: {default})" if default else text


def _reader(field: FieldInfo) -> Callable[[str], object]:
    """What makes a value of a flag's text; text that is no number stays text, for the model to refuse by name."""
    kind = kind_of(field)
    if kind is tuple and not extra(field, "repeated"):
        return lambda text: tuple(listed(text))
    if kind not in (int, float):
        return str

    def number(text: str) -> object:
        try:
            return kind(text)
        except ValueError:
            return text

    return number
