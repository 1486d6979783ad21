"""A small judge, its texts and a server that answers about them, for tests of distributed scoring."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

from debate_judge.programs import build, build_preset
from tests.fakes import debater
from tests.faulty_server import FaultyServer
from tests.runs.score_command import TASK, digit, export_of, line


def program(folder: Path, spec: str = "openai/m") -> Path:
    """An export: a single call for one aspect, a debate for the other."""
    debate = build("debate", {"persona": "plain", "rounds": 1, "tie_breaker": False})
    return export_of(folder / "program", TASK, build_preset("single", {}), debate, lm=spec)


def group(number: int, candidates: int = 2) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(line(number, candidates))
    return record


def write_jsonl(path: Path, numbers: range) -> Path:
    path.write_text("".join(json.dumps(group(n)) + "\n" for n in numbers), encoding="utf-8")
    return path


def write_csv(path: Path, numbers: range) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["group", "candidate", "source", "text"])
        writer.writerows(_rows(numbers))
    return path


def write_parquet(path: Path, numbers: range) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = zip(*_rows(numbers), strict=True)
    pq.write_table(pa.table(dict(zip(["group", "candidate", "source", "text"], map(list, columns), strict=True))), path)
    return path


def _rows(numbers: range) -> list[list[str]]:
    groups = [group(number) for number in numbers]
    return [[g["group"], c["id"], g["source"], c["text"]] for g in groups for c in g["candidates"]]


def answer(body: bytes) -> str:
    prompt = "\n\n".join(message["content"] for message in json.loads(body)["messages"])
    return debater(score=digit)(prompt)


class AnsweringServer(FaultyServer):
    """A chat server that scores the texts."""

    def __init__(self, latency: float = 0.0) -> None:
        super().__init__(answer, latency=latency)

    @property
    def asked(self) -> Counter[str]:
        """Call -> times it was answered."""
        return self.answered
