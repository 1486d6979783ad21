"""A part of the sample corpus, where all of it would only take longer."""

from __future__ import annotations

import json
from pathlib import Path

SAMPLE = Path(__file__).parents[2] / "data" / "sample" / "summarization.jsonl"


def small_corpus(folder: Path, groups: int = 12, candidates: int = 4) -> Path:
    """Write the first groups of the sample with the first candidates of each, and return the file."""
    file = folder / "small.jsonl"
    lines = [json.loads(line) for line in SAMPLE.read_text(encoding="utf-8").splitlines()[:groups]]
    for group in lines:
        group["candidates"] = group["candidates"][:candidates]
    file.write_text("".join(json.dumps(group) + "\n" for group in lines), encoding="utf-8")
    return file
