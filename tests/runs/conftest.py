"""Fixtures for the tests of commands and reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from debate_judge import data
from debate_judge.data.schema import group_to_json
from debate_judge.runs import loaded
from tests.fakes import ScriptedLM, scripted_lm
from tests.runs.score_command import Command


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(tmp_path, monkeypatch)


@pytest.fixture
def lms(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[ScriptedLM]:
    """The LMs that exports are loaded under, in order; each answers by the `script` of the test's module."""
    loaded_under: list[ScriptedLM] = []

    def make(spec: str, *, store: Any, concurrency: int, **rest: Any) -> ScriptedLM:
        loaded_under.append(scripted_lm(request.module.script, store=store, concurrency=concurrency))
        return loaded_under[-1]

    monkeypatch.setattr(loaded, "make_lm", make)
    return loaded_under


@pytest.fixture(scope="session")
def rated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight groups of the sample, with four candidates each."""
    path = tmp_path_factory.mktemp("data") / "rated.jsonl"
    records = [group_to_json(group) for group in data.load("sample").groups[:8]]
    lines = [{**r, "task": "summarization", "candidates": r["candidates"][:4]} for r in records]  # type: ignore[index]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
