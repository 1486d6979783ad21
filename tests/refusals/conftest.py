"""The folder in which everything is given that must be refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from debate_judge import data
from debate_judge.data.schema import group_to_json
from tests.refusals.refusal import SECRET
from tests.runs import exports

SCORED = [
    {"group": f"g{g}", "candidate": f"s{i}", "aspect": "coherence", "rating": rating, "score": float(rating)}
    for g, ratings in enumerate(([1, 2, 3, 4], [4, 3, 2, 1], [2, 4, 1, 3]))
    for i, rating in enumerate(ratings)
]


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rated and scored files, and the export of a judge."""
    folder = tmp_path_factory.mktemp("furnished")
    rated = [group_to_json(group) for group in data.load("sample").groups]
    lines = [{**r, "task": "summarization", "candidates": r["candidates"][:4]} for r in rated]  # type: ignore[index]
    for name, records in (("rated.jsonl", lines[:8]), ("new.jsonl", lines[8:]), ("scored.jsonl", SCORED)):
        (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    exports.write(folder / "support", lm={"spec": "offline"})
    return folder


@pytest.fixture
def folder(furnished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of them, as the working directory."""
    shutil.copytree(furnished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", f"sk-{SECRET}")
    monkeypatch.delenv("SERPER_API_KEY", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path
