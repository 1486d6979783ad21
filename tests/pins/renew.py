"""Renews the pins, on purpose: what every judge sends today is right from now on.

    python -m tests.pins.renew                  # all
    python -m tests.pins.renew debate geval     # some
    git diff --stat tests/pins/pinned

`python -m tests.pins.renew recorded` records tests/pins/recorded anew, in the files in which earlier versions kept
replies: it shows that what these have stored is found, as long as the prompts are those of today.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from debate_judge.programs.lm.store import SqlStore
from tests.pins.cases import CASES, PINNED, RECORDED, REPLAYED, compared, compile_sample
from tests.pins.recording import Recorder, keys_in
from tests.programs.test_store import line
from tests.stores import get


def record() -> None:
    """Make a store with the replies of some comparisons, and keep their tables beside it."""
    shutil.rmtree(RECORDED, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder, Recorder() as server:
        tables = {name: compared(name, Path(folder), RECORDED / "store", server) for name in REPLAYED}
    for file in (RECORDED / "store" / "replies").rglob("replies.sqlite"):
        as_lines(file)
    (RECORDED / "tables.json").write_text(json.dumps(tables, indent=1) + "\n", encoding="utf-8")


def as_lines(file: Path) -> None:
    """Put lines of text, as `programs.lm.sql.legacy_import` reads them, in the place of a database of replies."""
    with closing(SqlStore(file.parent)) as store:
        lines = [line(key, get(store, key)) for key in keys_in(store)]
    for other in file.parent.iterdir():
        other.unlink()
    (file.parent / "recorded.replies").write_bytes(b"".join(lines))


def main(names: list[str]) -> None:
    if names == ["recorded"]:
        return record()
    for name in names or [*CASES, "sample"]:
        with tempfile.TemporaryDirectory() as folder:
            pin = compile_sample(Path(folder)) if name == "sample" else CASES[name](name, Path(folder))[0]
        (PINNED / f"{name}.json").write_text(json.dumps(pin, indent=1) + "\n", encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
