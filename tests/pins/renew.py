"""Renews the pins, on purpose: what every judge sends today is right from now on.

    python -m tests.pins.renew                  # all
    python -m tests.pins.renew debate geval     # some
    git diff --stat tests/pins/pinned

`python -m tests.pins.renew recorded` records tests/pins/recorded anew. That folder shows that what an earlier version
has stored is found: record it with the earlier version, in a checkout of its own.

With PINS_CALLS=DIR all calls are also written to DIR, one file of messages each, to compare two checkouts by `diff -r`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.pins.cases import CASES, PINNED, RECORDED, REPLAYED, compared, compile_sample
from tests.pins.recording import Call, Recorder, content, digest


def write_calls(folder: Path, calls: list[Call]) -> None:
    """Write the messages of each call to a file that is named by their hash."""
    folder.mkdir(parents=True, exist_ok=True)
    for call in calls:
        text = "\n".join(f"--- {message['role']}\n{content(message)}" for message in call["messages"])
        (folder / f"{digest(call)}.txt").write_text(text + "\n", encoding="utf-8")


def record() -> None:
    """Make a store with the replies of some comparisons, and keep their tables beside it."""
    shutil.rmtree(RECORDED, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder, Recorder() as server:
        tables = {name: compared(name, Path(folder), RECORDED / "store", server) for name in REPLAYED}
    (RECORDED / "tables.json").write_text(json.dumps(tables, indent=1) + "\n", encoding="utf-8")


def main(names: list[str]) -> None:
    if names == ["recorded"]:
        return record()
    for name in names or [*CASES, "sample"]:
        calls: list[Call] = []
        with tempfile.TemporaryDirectory() as folder:
            if name == "sample":
                found = compile_sample(Path(folder))
            else:
                found, calls = CASES[name](name, Path(folder))
        (PINNED / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        if "PINS_CALLS" in os.environ:
            write_calls(Path(os.environ["PINS_CALLS"]) / name, calls)
        print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
