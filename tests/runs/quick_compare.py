"""The compare command over a part of the sample."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from debate_judge.runs import compare

ASPECTS = ["coherence", "relevance"]
QUICK = ["--aspects", ",".join(ASPECTS), "--config", "resamples=200", "--config", "report=none"]


def run(rated: Path, folder: Path, *more: str) -> int:
    return compare.main(["--data", str(rated), "--store", str(folder / "store"), *QUICK, *more])


def table(rated: Path, folder: Path, *more: str) -> dict[str, Any]:
    assert run(rated, folder, "--json", str(folder / "t.json"), *more) == 0
    found: dict[str, Any] = json.loads((folder / "t.json").read_text())
    return found
