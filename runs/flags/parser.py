"""From declared settings to the flags of a command and back: argparse writes the help, pydantic checks the values."""

from __future__ import annotations

import json
import os
import select
import shlex
import sys
from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction, HelpFormatter, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar

from pydantic.fields import FieldInfo

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.reading import toml
from debate_judge.data.files.records import Record
from debate_judge.programs.lm.http.address import NoServerError
from debate_judge.programs.lm.redaction import clean_text
from debate_judge.runs.flags.declared import (
    became_of,
    choices_of,
    extra,
    fields_of,
    grouped,
    is_flag,
    keys_of,
    kind_of,
    nearest,
    siblings,
    spelled,
)
from debate_judge.runs.flags.invocation import as_started, command
from debate_judge.runs.flags.prose import filled, paragraphs, print_error, width_of

T = TypeVar("T")


RESUMES = "run the command again: it resumes, and finished calls are not paid for again"
"""How a command goes on that was interrupted or failed, where its replies are kept."""


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
        super().__init__(prog, max_help_position=26, width=width_of(sys.stdout))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return paragraphs(text, width)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return filled(" ".join(text.split()), width)


class _Parser(ArgumentParser):
    declarations: tuple[type, ...] = ()

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End after the help, of which a pipe may have read only the beginning."""
        super().exit(exit_code(lambda: status), message)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, after flags are refused that are keys of `--config` now, or were removed."""
        args = sys.argv[1:] if args is None else list(args)
        for text, following in zip(args, [*args[1:], ""], strict=False):
            if text.startswith("--"):
                flag, equals, value = text.partition("=")
                self._refuse_old(flag, value if equals else "" if following.startswith("-") else following)
        return super().parse_known_args(args, namespace)

    def _refuse_old(self, flag: str, value: str) -> None:
        for declaration in self.declarations:
            if flag in self._option_string_actions:
                return
            if became := became_of(declaration, flag):
                raise InputError("not a flag any more", field=flag, remedy=became)
            for name in keys_of(declaration):
                words = name.replace("_", "-")
                if flag in (f"--{words}", f"--no-{words}"):
                    text = "false" if flag != f"--{words}" else value
                    raise InputError("not a flag any more", field=flag, remedy=_as_key(declaration, name, text))

    def error(self, message: str) -> NoReturn:
        """Name the nearest flag where one is unknown."""
        _, unrecognized, given = message.partition("unrecognized arguments: ")
        if unrecognized:
            flag = given.split()[0].partition("=")[0]
            near = did_you_mean(flag, self._option_string_actions)
            if not flag.startswith("-") and "--data" in self._option_string_actions:
                near = f"did you mean --data {flag}?"
            message += f"; {near}" if near else ""
        super().error(message)


def _as_key(declaration: type, name: str, text: str) -> str:
    """How the value of an old flag is written in TOML, and on the command line."""
    field = fields_of(declaration)[name]
    value = _reader(field)(clean_text(text)) if text else extra(field, "const") or ""
    if kind_of(field) is bool:
        value = value is not False
    key = name.replace("_", "-")
    given = shlex.quote(f"{key}={_text(value)}")
    beside = siblings(declaration, name).items()
    by = next((spelled(declaration, o) for o, one in beside if extra(one, "assigns") and is_flag(declaration, o)), None)
    in_file = f"{key} = {json.dumps(value, ensure_ascii=False)}"
    return f"it is a key of --config: write {in_file} in that file, or give {by or '--config'} {given}"


def settings_of(name: str, description: str, declaration: type[T], argv: Sequence[str] | None) -> T:
    """The settings of a command from its command line, and from what its `--config` names.

    Args:
        name: Of the command, e.g. `score`.
        description: See `make_parser`.
        declaration: The class of its settings.
        argv: The command line; None is that of the process.

    Raises:
        InputError: A value, a key or an old flag cannot be used.
    """
    return read(declaration, make_parser(name, description, declaration).parse_args(argv))


def make_parser(name: str, description: str, *declarations: type) -> ArgumentParser:
    """A parser with the flags of the declared settings and `--config`; what is not given is absent from its result.

    Args:
        name: Of the command, e.g. `score`.
        description: Text above the flags; commands in it are shown as this process was started.
        declarations: Classes made by `declared`.
    """
    keys = [key.replace("_", "-") for declaration in declarations for key in keys_of(declaration)]
    parser = _Parser(
        prog=command(name),
        description=as_started(description),
        epilog=f"Keys of --config that are no flags (docs/settings.md): {', '.join(keys)}." if keys else None,
        formatter_class=_ProseFormatter,
        argument_default=SUPPRESS,
    )
    parser.declarations = declarations
    groups: dict[str, Any] = {"options": parser}
    needed = []
    for declaration in declarations:
        for group, field_name, field in grouped(declaration):
            if not is_flag(declaration, field_name):
                continue
            if group not in groups:
                groups[group] = parser.add_argument_group(group)
            flag = spelled(declaration, field_name)
            needed += [_usage(flag, field)] if field.is_required() else []
            _add(groups[group], flag, field_name, field)
    parser.usage = " ".join(["%(prog)s [-h]", *needed, "[FLAGS]"])
    parser.add_argument(
        "--config",
        action="append",
        metavar="FILE",
        help="TOML file with settings, or one as KEY=VALUE; flags win; may be repeated",
    )
    return parser


def _usage(flag: str, field: FieldInfo) -> str:
    return f"{flag} {extra(field, 'metavar') or flag[2:].upper()}" if flag.startswith("-") else flag.upper()


def read(declaration: type[T], arguments: Namespace) -> T:
    """The settings that were given; flags win over `--config`, and `--config` over defaults.

    Raises:
        InputError: A value or a key cannot be used, or a file cannot be read.
    """
    given, fields = vars(arguments), fields_of(declaration)
    values: dict[str, Any] = {}
    places: dict[str, tuple[Record, str]] = {}
    for text in given.get("config", ()):
        if assigned := _assigned(fields, text):
            values |= assigned
            continue
        record = toml(Path(text), "file of settings")
        for key, value in record.values.items():
            name = key.replace("-", "_")
            if name not in fields:
                raise record.error("unknown setting", key, remedy=nearest(declaration, name))
            values[name], places[name] = _frozen(value), (record, key)
    flags = {name: _frozen(value) for name, value in given.items() if name in fields}
    values |= flags | _judge_options(declaration, flags)
    try:
        return declaration(**values)
    except InputError as error:
        for name, (record, key) in places.items():
            if spelled(declaration, name) == error.field and values[name] == _frozen(record.values[key]):
                raise record.error(
                    error.problem, key, expected=error.expected, found=error.found, remedy=error.remedy
                ) from None
        raise


def _assigned(fields: Mapping[str, FieldInfo], text: str) -> dict[str, Any]:
    """Name -> value of a text KEY=VALUE with the key of a setting; nothing for any other text."""
    key, equals, value = text.partition("=")
    name = key.strip().replace("-", "_")
    return {name: _reader(fields[name])(value.strip())} if equals and name in fields else {}


def _judge_options(declaration: type, flags: Mapping[str, Any]) -> dict[str, Any]:
    """What `-J NAME=VALUE` gives: settings of its class, and what remains for itself."""
    found: dict[str, Any] = {}
    for name, texts in flags.items():
        if extra(fields_of(declaration)[name], "assigns"):
            others = siblings(declaration, name)
            found[name] = tuple(text for text in texts if not _assigned(others, text))
            for text in texts:
                found |= _assigned(others, text)
    return found


def as_command(name: str, settings: object) -> str:
    """The command line that gives the same results, as this process was started; what has its default is left out.

    For people elsewhere, too: of an absolute path the last part is kept, and secrets are taken out.
    """
    deciding = [field_name for field_name, field in fields_of(type(settings)).items() if extra(field, "decides")]
    return " ".join([command(name), *written(settings, deciding, _portable)])


def written(settings: object, names: Iterable[str], shown: Callable[[str], str] = str) -> list[str]:
    """Those of the named settings that differ from their defaults, as words of a command line.

    Args:
        settings: Of a command.
        names: Of settings.
        shown: What becomes of the text of a value.
    """
    words, declaration = [], type(settings)
    for name in names:
        value, field = getattr(settings, name), fields_of(declaration)[name]
        if value is None or value == field.default:
            continue
        given = spelled(declaration, name)
        if not is_flag(declaration, name):
            words += ["--config", shlex.quote(f"{given}={shown(_text(value))}")]
        elif value is True:
            words.append(given)
        else:
            values = value if isinstance(value, tuple) and extra(field, "repeated") else (value,)
            flag = [given] if given.startswith("-") else []
            words += [word for one in values for word in (*flag, shlex.quote(shown(_text(one))))]
    return words


def _text(value: object) -> str:
    """A value as it is given on the command line."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _portable(text: str) -> str:
    start, equals, path = text.rpartition("=")
    path = path if "://" in path or not Path(path).is_absolute() else Path(path).name
    return clean_text(start + equals + path)


def listed(text: str | None) -> list[str]:
    """The parts of a flag's value that are joined by commas, brackets kept whole; none for an absent flag."""
    parts, depth = [""], 0
    for sign in text or "":
        depth += (sign == "[") - (sign == "]")
        if sign == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts if part.strip()]


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _add(group: Any, flag: str, name: str, field: FieldInfo) -> None:
    kind, choices = kind_of(field), choices_of(field)
    options: dict[str, Any] = {"help": _help(field)}
    if kind is bool:
        options["action"] = BooleanOptionalAction if field.default else "store_true"
    else:
        names = "{" + ",".join(choices) + "}" + (",..." if kind is tuple else "") if choices else None
        options |= {
            "type": str if extra(field, "repeated") else _reader(field),
            "metavar": extra(field, "metavar") or names or {int: "N", float: "X"}.get(kind),
        }
    if (const := extra(field, "const")) is not None:
        options |= {"nargs": "?", "const": const}
    if extra(field, "repeated"):
        options["action"] = "append"
    # What must be given may also come from --config, so that its absence is found when all is read.
    if flag.startswith("-"):
        group.add_argument(flag, dest=name, **options)
    else:
        group.add_argument(name, nargs="?", **options)


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
    """What makes a value of a text; a text that is no such value stays text, for the model to refuse by name."""
    kind = kind_of(field)
    if kind is tuple:
        return lambda text: tuple(listed(text))
    if kind is bool:
        return lambda text: {"true": True, "false": False}.get(text, text)
    if kind not in (int, float):
        return str

    def number(text: str) -> object:
        try:
            return kind(text)
        except ValueError:
            return text

    return number
