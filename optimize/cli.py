"""One console script for the commands: `debate compile`, `debate score` and so on, the same code as the files."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from debate_judge.runs.flags.invocation import COMMANDS


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] not in COMMANDS:
        wanted = bool(arguments) and arguments[0] in ("-h", "--help")
        lines = [f"  {name:<10} {what}" for name, (_, what) in COMMANDS.items()]
        usage = "\n".join(["usage: debate COMMAND ...", "", *lines, "", "debate COMMAND --help describes its flags"])
        print(usage, file=sys.stdout if wanted else sys.stderr)
        return 0 if wanted else 2
    module = importlib.import_module(COMMANDS[arguments[0]][0])
    code: int = module.main(arguments[1:])
    return code
