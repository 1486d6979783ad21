"""Estimates of `carry`, `recheck` and `measure`: what is asked, and what is not because it is stored or recorded."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from debate_judge.runs.after import carry, measure, recheck
from tests.runs.known_judges import RATED, SEEN, export, file_of

NEW = [replace(g, id=f"new {g.id}", source=f"A new source: {g.source}") for g in RATED.groups[:3]]
TEXTS = 5
"""Of each source."""
HELD_OUT = len(RATED.groups) - SEEN


def totals(printed: str) -> list[str]:
    """The calls of each part, lower / expected / upper."""
    return re.findall(r"^total\s+(\d+ / \d+ / \d+)", printed, re.MULTILINE)


def calls(sources: int) -> str:
    """Of a single call of each text."""
    return " / ".join([str(TEXTS * sources)] * 3)


def test_a_recheck_says_what_it_would_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    judge = export(tmp_path / "judge", spec="openai/gpt-4o-mini")
    new, old = file_of(tmp_path / "new.jsonl", [*NEW, RATED.groups[0]]), file_of(tmp_path / "old.jsonl", RATED.groups)
    before = sorted(tmp_path.rglob("*"))
    assert recheck.main([str(judge), "--data", new, "--again", old, "--estimate"]) == 0
    told = capsys.readouterr().out
    # A source that the compile knew is not asked about; of the old texts the held-out ones are.
    assert totals(told) == [calls(len(NEW)), calls(HELD_OUT)]
    assert f"new texts: {TEXTS * len(NEW)} items of {len(NEW)} sources" in told
    assert "US dollars" in told
    assert sorted(tmp_path.rglob("*")) == before


def test_stored_replies_cost_nothing_but_are_not_recalled_for_old_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge, store = export(tmp_path / "judge", spec="offline"), str(tmp_path / "store")
    new, old = file_of(tmp_path / "new.jsonl", NEW), file_of(tmp_path / "old.jsonl", RATED.groups)
    arguments = [str(judge), "--data", new, "--again", old, "--store", store]
    assert recheck.main(arguments) in (0, 1)
    capsys.readouterr()
    assert recheck.main([*arguments, "--estimate"]) == 0
    assert totals(capsys.readouterr().out) == [calls(0), calls(HELD_OUT)]


def test_a_carry_asks_both_lms_and_measure_only_where_a_judge_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge, data = export(tmp_path / "judge", spec="openai/old"), file_of(tmp_path / "rated.jsonl", RATED.groups)
    arguments = [str(judge), "--lm", "openai/gpt-4o-mini", "--data", data, "--estimate"]
    assert carry.main(arguments) == 0
    told = capsys.readouterr().out
    assert totals(told) == [calls(HELD_OUT)] * 2
    assert told.index("Estimate for openai/gpt-4o-mini") < told.index("Estimate for openai/old")
    assert carry.main([*arguments, "--old", "recorded"]) == 0
    assert totals(capsys.readouterr().out) == [calls(HELD_OUT)]
    assert measure.main([data, "--program", str(judge), "--store", str(tmp_path / "s"), "--estimate"]) == 0
    assert totals(capsys.readouterr().out) == [calls(len(RATED.groups))]
