"""Renews the pins, on purpose: what every judge sends today is right from now on.

python -m tests.pins.renew                  # all
python -m tests.pins.renew compare score    # some
git diff --stat tests/pins/pinned
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.pins.cases import CASES, PINNED, compile_sample, pin


def main(names: list[str]) -> None:
    for name in names or [*CASES, "sample"]:
        with tempfile.TemporaryDirectory() as folder:
            pinned = compile_sample(Path(folder)) if name == "sample" else pin(name, Path(folder))[0]
        (PINNED / f"{name}.json").write_text(json.dumps(pinned, indent=1) + "\n", encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
