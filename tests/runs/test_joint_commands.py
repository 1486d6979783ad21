"""Aspects that share calls in streams, score.py, exports, batch jobs and estimates: at the promised number of calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from debate_judge.programs import build_preset
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import Item
from debate_judge.programs.roles.guide import with_guide
from debate_judge.runs import score
from debate_judge.runs.estimates.dry_run import EstimateTarget
from debate_judge.runs.estimates.items import estimate_scoring
from debate_judge.runs.export.folder import load
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.runner.streaming import judge_in_order
from tests.config_keys import keys
from tests.fakes import ScriptedLM, scripted_lm, section
from tests.programs.tables import block, joint_table_script, requested_cells
from tests.runs.together_command import TASK, TONE, arguments, digit, exported, rows_of, stream

Row = tuple[Any, ...]


def of_cell(prompt: str, text: str, aspect: str) -> int:
    # The label of the only aspect of a table is empty.
    tone = aspect == "tone" or (not aspect and section(prompt, "aspect").startswith("tone"))
    return 1 + (int(text.split()[-1]) + tone) % 5


def script(prompt: str) -> str:
    if section(prompt, "candidate"):
        return f"{block('rationale', 'So.')}\n\n{block('score', digit(prompt, section(prompt, 'candidate')))}"
    return joint_table_script(of_cell)(prompt)


def judge(together: int, guide: str = "", joint: bool = True, name: str = "single") -> Debate:
    found = build_preset(name, {"together": together, "joint": joint})
    assert isinstance(found, Debate)
    scorer = found.scorer
    scorer.signature = scorer.signature.with_instructions(with_guide(scorer.signature.instructions, guide))
    return found


def compiled(together: int = 4, tone: Debate | None = None) -> CompiledJudge:
    """A judge whose aspects know other things, as of a compile; that of tone may be one that shares no calls."""
    judges = {"tone": tone or judge(together, "Friendly."), "help": judge(together, "Short.")}
    return CompiledJudge(TASK, {name: AspectJudge(one) for name, one in judges.items()})


def streamed(one: CompiledJudge, items: Iterator[Item]) -> tuple[list[Row], ScriptedLM, float]:
    lm = scripted_lm(script, concurrency=4)
    rows: list[Row] = []
    calls = 0.0
    with JudgeRunner(lm, progress=False) as runner:
        for item, j in judge_in_order(runner, one, items):
            told = j.transcript
            rows.append((item.group, item.candidate, item.aspect.name, j.score, told.together, told.joint))
            calls += j.calls
    return rows, lm, calls


def expected(groups: int, candidates: int, together: int, joint: int) -> list[Row]:
    return [
        (f"g{g}", f"c{c}", a.name, 1 + (c + (a is TONE)) % 5, together, joint)
        for g in range(groups)
        for c in range(candidates)
        for a in TASK.aspects
    ]


# --- streams ---


@pytest.mark.parametrize(("together", "size", "calls"), [(0, 1, 120), (4, 4, 30), (2, 2, 60), (8, 4, 30)])
def test_a_stream_asks_for_all_aspects_at_once(together: int, size: int, calls: int) -> None:
    rows, lm, counted = streamed(compiled(together), stream(30, 4))
    assert rows == expected(30, 4, size, 2)
    assert len(lm.prompts) == calls == pytest.approx(counted)
    assert all(section(p, "guide_tone") == "Friendly." and section(p, "guide_help") == "Short." for p in lm.prompts)


def test_aspects_whose_judges_differ_are_asked_about_by_themselves() -> None:
    rows, lm, _ = streamed(compiled(4, judge(4, joint=False)), stream(3, 4))
    assert rows == expected(3, 4, 4, 1)
    assert len(lm.prompts) == 6
    rows, lm, _ = streamed(compiled(4, judge(0, joint=False)), stream(3, 4))
    assert rows == [(*row[:4], 1 if row[2] == "tone" else 4, 1) for row in expected(3, 4, 4, 1)]
    assert len(lm.prompts) == 3 + 12


def test_a_loaded_judge_scores_all_aspects_of_a_group_in_one_call(tmp_path: Path, lms: list[ScriptedLM]) -> None:
    with load(exported(tmp_path, compiled())) as one:
        found = one.score_group(texts=[f"reply {n}" for n in range(4)], source="message 1")
        assert [(row["tone"].score, row["help"].score) for row in found] == [(2, 1), (3, 2), (4, 3), (5, 4)]
        assert {(s.calls, s.together, s.joint) for row in found for s in row.values()} == {(0.125, 4, 2)}
        assert len(lms[0].prompts) == 1
        alone = one.score(text="reply 7", source="message 1")
        assert {(s.calls, s.together, s.joint) for s in alone.values()} == {(0.5, 1, 2)}
        (help_alone,) = one.score(text="reply 7", source="message 1", aspects="help").values()
        assert (help_alone.score, help_alone.calls, help_alone.joint) == (3, 1, 1)
    assert [len(requested_cells(p, "scores")) for p in lms[0].prompts[:2]] == [8, 2]
    assert section(lms[0].prompts[2], "candidate") == "reply 7"


def test_rows_say_what_calls_were_shared_with(tmp_path: Path, lms: list[ScriptedLM]) -> None:
    given = arguments(tmp_path, exported(tmp_path, compiled()), 3, 4)
    debates = tmp_path / "debates.jsonl"
    assert score.main([*given, "--out", str(tmp_path / "out.jsonl"), *keys(transcripts=debates)]) == 0
    rows = rows_of(tmp_path / "out.jsonl")
    fields = ("group", "candidate", "aspect", "score", "together", "joint")
    assert [tuple(row[name] for name in fields) for row in rows] == expected(3, 4, 4, 2)
    assert {(row["calls"], row["together"], row["joint"]) for row in rows_of(debates)} == {(0.125, 4, 2)}
    # What is tried before the run is a call of the run.
    assert len(lms[-1].prompts) == 3
    assert score.main([*given, "--out", str(tmp_path / "out.csv")]) == 0
    assert (tmp_path / "out.csv").read_text().splitlines()[0].endswith("unscored,reason,together,joint")
    assert lms[-1].prompts == []


# --- batch jobs and estimates ---


@pytest.mark.parametrize(("together", "calls"), [(0, 8 * 12), (4, 2 * 12), (8, 12), (3, 3 * 12)])
def test_an_estimate_counts_the_calls_that_are_made(together: int, calls: int) -> None:
    found, count = estimate_scoring(EstimateTarget("offline"), compiled(together), TASK.aspects, stream(12, 8))
    assert count == 192
    assert [round(used.calls, 6) for used in found.total] == [calls] * 3
    assert len(streamed(compiled(together), stream(12, 8))[1].prompts) == calls
