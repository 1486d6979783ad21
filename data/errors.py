"""The error for unusable input of a user. Programming errors raise ordinary exceptions."""

from __future__ import annotations

import difflib
import errno
import json
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

_MAX_SHOWN = 800
"""Characters that a message shows of a field, of what was expected and of a remedy, which may list users' names."""

_FLAG = re.compile(
    r"\bdebate (?:check|compile|score|serve|compare|agreement|report) [^;`]*"
    r"|(?<![\w-])--?(?P<flag>J|(?<=--)[a-z][a-z-]*[a-z])(?: (?P<value>[^\s,;)`]*[A-Z\d=/][^\s,;)`]*))?"
)
"""A command, or a flag and perhaps its value: a word with a capital, a digit, `=` or `/`."""


class InputError(ValueError):
    """Input that cannot be used: where it is, what was expected, what was found, what to do.

    `line` is the number of a line of a text file, or of a row of a sheet or data set; `unit` says which.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        unit: Literal["line", "row"] = "line",
        field: str | None = None,
        expected: str | None = None,
        found: object = None,
        remedy: str | None = None,
    ) -> None:
        self.problem, self.expected, self.found, self.remedy = problem, expected, found, remedy
        self.file, self.line, self.unit, self.field = None if file is None else str(file), line, unit, field
        self.others: tuple[InputError, ...] = ()
        super().__init__(self._render())

    def with_others(self, others: Sequence[InputError]) -> InputError:
        """This error, with further errors of the same file listed below it."""
        self.others = tuple(others)
        self.args = (self._render(),)
        return self

    def replaced(self, **parts: Any) -> Self:
        """A copy with other values for some arguments of `InputError`."""
        names = ("problem", "file", "line", "unit", "field", "expected", "found", "remedy")
        return type(self)(**{name: getattr(self, name) for name in names} | parts)

    def in_python(self) -> InputError:
        """This error for the caller of a Python function: settings, which messages name by their flags, are keywords
        (`--max-rounds 2` becomes `max_rounds=2`); commands stay as they are."""
        texts = {name: getattr(self, name) for name in ("problem", "field", "expected", "remedy")}
        error = self.replaced(**{name: text and _FLAG.sub(_as_keyword, text) for name, text in texts.items()})
        return error.with_others(self.others)

    def _location(self, *prefix: str | None) -> str:
        line = None if self.line is None else f"{self.unit} {self.line}"
        field = None if self.field is None else f"field {_shortened(self.field, _MAX_SHOWN)!r}"
        return ", ".join(part for part in (*prefix, line, field) if part)

    def _render(self) -> str:
        location = self._location(self.file)
        text = f"{location}: {self.problem}" if location else self.problem
        for name, limit in (("expected", _MAX_SHOWN), ("found", 240), ("remedy", _MAX_SHOWN)):
            if (value := getattr(self, name)) is not None:
                text += f"\n  {name + ':':9} {_shortened(value, limit)}"
        for other in self.others:
            text += f"\n  also:     {other._location()}: {other.problem}"
            text += "" if other.found is None else f"; found: {_shortened(other.found, 40)}"
        return text


ErrorHandler = Callable[[InputError], None]
"""Called with the error of a record, which is then skipped."""


@contextmanager
def redirect_errors(on_error: ErrorHandler | None) -> Iterator[None]:
    """Pass an `InputError` of the block to `on_error` and continue after the block; re-raise it if that is None."""
    try:
        yield
    except InputError as error:
        if on_error is None:
            raise
        on_error(error)


def did_you_mean(
    name: str, choices: Collection[str], wording: str = "did you mean {}?", cutoff: float = 0.7
) -> str | None:
    """A question with the most similar of the choices, or None if no similarity (0 to 1) reaches `cutoff`."""
    by_lower = {choice.lower(): choice for choice in choices}
    # With the default cutoff of difflib, 0.6, 'rater' is similar to 'date'.
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return wording.format(repr(by_lower[near[0]])) if near else None


def _as_keyword(match: re.Match[str]) -> str:
    if match["flag"] is None:
        return match[0]
    keyword = "judge_option" if match["flag"] == "J" else match["flag"].replace("-", "_")
    value = match["value"]
    if keyword.startswith("no_"):
        return f"{keyword[3:]}=False"
    return keyword if value is None else f"{keyword}={value}"


def _shortened(value: object, limit: int) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def install_hint(extra: str) -> str:
    """The command that installs an extra of this package, from the checkout if this is one."""
    if (Path(__file__).parents[1] / "pyproject.toml").is_file():
        return f"pip install -e '.[{extra}]'   (in the project's folder)"
    return f"pip install 'debate-judge[{extra}]'"


@contextmanager
def write_errors(path: Path, field: str) -> Iterator[None]:
    """Convert an `OSError` of the block, which opens `path` for writing, to an `InputError` with its flag `field`."""
    try:
        yield
    except OSError as error:
        remedy = "choose another path, or remove the obstacle there"
        found = error.strerror or str(error)
        raise InputError("cannot be written", file=path, field=field, found=found, remedy=remedy) from error


def make_folder(path: Path, field: str) -> None:
    """Create a folder with its parents, and check that files can be created in it; raises `InputError` if not."""
    with write_errors(path, field):
        path.mkdir(parents=True, exist_ok=True)
        # Permission bits do not show whether a file can be created (read-only mounts, quotas); creating one does.
        with tempfile.TemporaryFile(dir=path):
            pass


def require_writable(path: str | Path | None, field: str) -> None:
    """Check that a file, if there is one, can be written, and create its folder; an existing file is not changed.

    Raises:
        InputError: It cannot be written; names the flag `field`.
    """
    if path is None:
        return
    path = Path(path)
    with write_errors(path, field):
        if not path.exists():
            make_folder(path.parent, field)
        elif path.is_dir() or path.is_file():
            path.open("ab").close()
        elif not os.access(path, os.W_OK):
            # A pipe or a device is not opened: that could block or change it.
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def write_json(path: str | Path, record: Mapping[str, Any], field: str) -> None:
    """Write a record as a file of JSON; raises `InputError` if it cannot be written."""
    with write_errors(Path(path), field):
        Path(path).write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8")
