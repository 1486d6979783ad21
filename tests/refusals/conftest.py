"""The folder in which everything is given that must be refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from debate_judge import data
from debate_judge.data.schema import group_to_json
from tests.refusals.refusal import SECRET
from tests.runs import exports, known_judges

SCORED = [
    {"group": f"g{g}", "candidate": f"s{i}", "aspect": "coherence", "rating": rating, "score": float(rating)}
    for g, ratings in enumerate(([1, 2, 3, 4], [4, 3, 2, 1], [2, 4, 1, 3]))
    for i, rating in enumerate(ratings)
]


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rated and scored files, and the exports of two judges."""
    folder = tmp_path_factory.mktemp("furnished")
    rated = [group_to_json(group) for group in data.load("sample").groups[:8]]
    lines = [{**r, "task": "summarization", "candidates": r["candidates"][:4]} for r in rated]  # type: ignore[index]
    (folder / "rated.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "scored.jsonl").write_text("".join(json.dumps(line) + "\n" for line in SCORED))
    known_judges.export(folder / "judge")
    pool = [replace(g, id=f"new {g.id}", source=f"A new {g.source}") for g in known_judges.RATED.groups]
    known_judges.file_of(folder / "new.jsonl", pool)
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
