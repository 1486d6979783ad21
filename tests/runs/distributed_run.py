"""A small judge, its texts in files and a server that answers about them, for tests of distributed scoring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from debate_judge.programs import build, build_preset
from tests.faulty_server import FaultyServer
from tests.runs.score_command import SCRIPT, TASK, export_of, line, over_http


def program(folder: Path, spec: str = "openai/m") -> Path:
    """An export: a single call for one aspect, a debate for the other."""
    debate = build("debate", {"persona": "plain", "rounds": 1, "tie_breaker": False})
    return export_of(folder / "program", TASK, build_preset("single", {}), debate, lm=spec)


def group(number: int, candidates: int = 2) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(line(number, candidates))
    return record


def write_groups(path: Path, numbers: range) -> Path:
    """Groups as JSON Lines, or a row for each text as CSV or Parquet, by the file's name."""
    groups = [group(number) for number in numbers]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in groups), encoding="utf-8")
        return path
    frame = pd.DataFrame([(g["group"], c["id"], g["source"], c["text"]) for g in groups for c in g["candidates"]])
    frame.columns = ["group", "candidate", "source", "text"]
    (frame.to_csv if path.suffix == ".csv" else frame.to_parquet)(path, index=False)
    return path


def scoring_server(latency: float = 0.0) -> FaultyServer:
    """A chat server that scores the texts."""
    return FaultyServer(over_http(SCRIPT), latency=latency)
