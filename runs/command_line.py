"""The process of a command: what a user types to start it, its exit code, and what it prints."""

from __future__ import annotations

import os
import re
import select
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.settings import NoServerError

COMMANDS = {
    "compile": ("debate_judge.optimize.compile", "compile a judge that agrees with your raters"),
    "check": ("debate_judge.runs.check", "show how your rated data are read, and whether they suffice"),
    "score": ("debate_judge.runs.score", "score new texts with an exported judge"),
    "serve": ("debate_judge.runs.serve", "serve an exported judge over HTTP"),
    "agreement": ("debate_judge.runs.agreement", "measure the agreement of any scores with human ratings"),
    "compare": ("debate_judge.runs.compare", "compare several judges on the same data"),
    "report": ("debate_judge.runs.report", "open the report of a compile or a comparison, with every debate"),
}
"""Command -> its module and its description."""

_ROOT = Path(__file__).resolve().parents[1]

EXIT_INPUT, EXIT_LM, EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 2, 3, 130, 141

RESUME_HINT = "run the command again: it resumes, and finished calls are not paid for again"
"""Remedy for a command that was interrupted or failed, if its replies are stored."""

WIDTH = 100
"""Columns of texts and tables at most; fewer on a narrower terminal."""

_INTERVAL = re.compile(r"(?<=\d) (?=\[)|(?<=\d,) (?=[-–−]?[\d.]+\])")
"""The spaces in `0.43 [0.36, 0.49]`."""


def command(name: str) -> str:
    """What a user types to start the command `name`, as this process was started.

    It is `python runs/score.py` in a process that runs one of the files, `python -m ...` in one that runs a module, and
    the console script, `debate score`, in any other.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name in {module for module, _ in COMMANDS.values()}:
        return f"python -m {COMMANDS[name][0]}"
    running = Path(sys.argv[0] if sys.argv else "")
    if spec is not None or running.resolve() not in {_ROOT / script(each) for each in COMMANDS}:
        return f"debate {name}"
    path = _ROOT / script(name)
    return "python " + shlex.quote(str(path) if running.is_absolute() else os.path.relpath(path))


def script(name: str) -> str:
    """The file of a command, relative to the package."""
    return "/".join(COMMANDS[name][0].split(".")[1:]) + ".py"


def with_invoked_commands(text: str) -> str:
    """`text` with each `python FILE` of a command replaced by `command(...)`."""
    for name in COMMANDS:
        text = text.replace(f"python {script(name)}", command(name))
    return text


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
            say(f"\nstopped; {after_interrupt}")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        if not any([_discard_if_closed(sys.stdout), _discard_if_closed(sys.stderr)]):
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
        from debate_judge.programs.lm.limits import describe

        say(describe(error, error.model or ""))
        return EXIT_LM


def _discard_if_closed(stream: TextIO | None) -> bool:
    """Whether a stream is a pipe that its reader has closed; what Python flushes into it at exit is then discarded."""
    if stream is None:
        return False
    poll = select.poll()
    poll.register(stream, 0)
    if not poll.poll(0):
        return False
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
    return True


@contextmanager
def environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Environment variables for the length of a block; None for one that is not set."""

    def set_all(variables: Mapping[str, str | None]) -> None:
        for name, value in variables.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

    before = {name: os.environ.get(name) for name in values}
    set_all(values)
    try:
        yield
    finally:
        set_all(before)


def say(text: object) -> None:
    """Print a message to stderr; stdout has results only."""
    print(text, file=sys.stderr)


def print_error(error: object) -> None:
    """Print an error; it is wrapped on a terminal only, so that a log can be searched for whole lines."""
    text = f"error: {error}"
    say(wrap_text(text, width_of(sys.stderr)) if is_terminal(sys.stderr) else text)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether output to a stream is seen by a person; it is None if it was closed before the command started."""
    return stream is not None and stream.isatty()


def width_of(stream: TextIO | None) -> int:
    """Columns for output to a stream: `WIDTH` for a file or a pipe, whatever COLUMNS says."""
    return min(WIDTH, shutil.get_terminal_size().columns) if is_terminal(stream) else WIDTH


def wrap_text(text: str, width: int) -> str:
    """`text` with each line wrapped; continuation lines are indented by two more than the first.

    No word is broken, and a value and its interval stay in one line.
    """
    lines = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip(" ")) + 2)
        unbreakable = _INTERVAL.sub("\0", line)
        lines += [line] if len(line) <= width else wrap_line(unbreakable, width, indent)
    return "\n".join(lines).replace("\0", " ")


def wrap_line(line: str, width: int, indent: str = "") -> list[str]:
    """`line` in wrapped lines; hyphenated words such as `chateval-single` are not broken, because users type them."""
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
