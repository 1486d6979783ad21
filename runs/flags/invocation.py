"""The commands, and how a user types them: as this process was started."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

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

_ROOT = Path(__file__).resolve().parents[2]


def command(name: str) -> str:
    """What a user types to start the command `name`, e.g. `debate score`.

    It is `python runs/score.py` in a process that runs one of the files, `python -m ...` in one that runs a module, and
    the console script in any other.
    """
    module = COMMANDS[name][0]
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        is_command_module = spec.name in {command_module for command_module, _ in COMMANDS.values()}
        return f"python -m {module}" if is_command_module else f"debate {name}"
    running_script = Path(sys.argv[0] if sys.argv else "")
    if running_script.resolve() not in {_ROOT / script(each) for each in COMMANDS}:
        return f"debate {name}"
    path = _ROOT / script(name)
    return "python " + shlex.quote(str(path) if running_script.is_absolute() else os.path.relpath(path))


def script(name: str) -> str:
    """The file of a command, relative to the package."""
    return "/".join(COMMANDS[name][0].split(".")[1:]) + ".py"


def with_invoked_commands(text: str) -> str:
    """`text` with each `python FILE` of a command replaced by `command(...)`."""
    for name in COMMANDS:
        text = text.replace(f"python {script(name)}", command(name))
    return text
