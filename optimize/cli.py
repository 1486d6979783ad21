"""One console script for the commands: `debate compile`, `debate score` and so on, the same code as the files."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib import metadata

from debate_judge.data.errors import did_you_mean
from debate_judge.runs.command_line import COMMANDS, run_main

_USAGE = "\n".join(
    [
        "usage: debate COMMAND ...\n",
        *(f"  {name:<10} {description}" for name, (_, description) in COMMANDS.items()),
        "\ndebate COMMAND --help lists its flags, debate --version prints the version",
    ]
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names; `help` and `--version` are answered here."""
    return run_main(lambda: _run(list(sys.argv[1:] if argv is None else argv)))


def _run(arguments: Sequence[str]) -> int:
    name, other_arguments = (arguments[0], arguments[1:]) if arguments else ("", [])
    if name == "--version":
        print(f"debate {metadata.version('debate-judge')}")
        return 0
    if name in ("help", "-h", "--help"):
        if not other_arguments:
            print(_USAGE)
            return 0
        name, other_arguments = other_arguments[0], ["--help"]
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS, "; did you mean {}?")
        print(f"unknown command {name!r}{hint or ''}\n\n{_USAGE}" if name else _USAGE, file=sys.stderr)
        return 2
    # `optimize.compile` loads all that a compile needs, which `--help` does not.
    module = "debate_judge.optimize.command" if name == "compile" else COMMANDS[name][0]
    code: int = importlib.import_module(module).main(other_arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
