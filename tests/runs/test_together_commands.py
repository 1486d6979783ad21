"""Candidates side by side in streams, score.py, exports, batch jobs and estimates: at the promised number of calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from debate_judge.programs import build_preset
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.judge import Item, Verdict
from debate_judge.programs.lm.store import SqlStore
from debate_judge.runs import score
from debate_judge.runs.estimates.dry_run import EstimateTarget
from debate_judge.runs.estimates.items import estimate_scoring
from debate_judge.runs.runner import streaming
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.runner.streaming import judge_in_order
from tests.batch_server import BatchServer
from tests.fakes import ScriptedLM, scripted_lm
from tests.programs.batches import lm_at
from tests.programs.tables import shown_candidates
from tests.runs.together_command import TASK, TONE, arguments, exported, rows_of, script, stream


def compiled(together: int = 4, alone: bool = False) -> CompiledJudge:
    judges = {
        "tone": build_preset("single", {"together": together}),
        "help": build_preset("single", {"together": together}),
    }
    if alone:
        judges["help"] = build_preset("single", {})
    return CompiledJudge(TASK, {name: AspectJudge(judge) for name, judge in judges.items()})


def streamed(judge: CompiledJudge, items: Iterator[Item]) -> tuple[list[tuple[Any, ...]], ScriptedLM]:
    lm = scripted_lm(script, concurrency=4)
    with JudgeRunner(lm, progress=False) as runner:
        rows = [
            (i.group, i.candidate, i.aspect.name, j.score, j.transcript.together)
            for i, j in judge_in_order(runner, judge, items)
            if isinstance(j, Verdict)
        ]
    return rows, lm


def expected(groups: int, candidates: int, together: int) -> list[tuple[Any, ...]]:
    return [
        (f"g{g}", f"c{c}", a.name, 1 + (c + (a is TONE)) % 5, together)
        for g in range(groups)
        for c in range(candidates)
        for a in TASK.aspects
    ]


# --- streams ---


def test_a_stream_gathers_the_candidates_of_a_source_and_keeps_their_order() -> None:
    rows, lm = streamed(compiled(), stream(30, 4))
    assert rows == expected(30, 4, 4)
    assert len(lm.prompts) == 60


def test_the_tables_of_a_stream_are_those_of_a_corpus() -> None:
    _, lm = streamed(compiled(3), stream(5, 8))
    other = scripted_lm(script)
    items = list(stream(5, 8))
    with JudgeRunner(other, progress=False) as runner:
        runner.judge(compiled(3).aspects["tone"].judge, items[::-1])
    assert sorted(lm.prompts) == sorted(other.prompts)
    assert len(lm.prompts) == 30


def test_a_source_of_any_length_is_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MAX_GROUPED", 6)
    _, lm = streamed(compiled(8), stream(1, 10))
    assert sorted(len(shown_candidates(prompt)) for prompt in lm.prompts) == [4, 4, 6, 6]


def test_what_came_before_a_bad_line_is_judged() -> None:
    def broken() -> Iterator[Item]:
        yield from stream(1, 3)
        raise ValueError("a bad line")

    lm = scripted_lm(script)
    got: list[str] = []
    with JudgeRunner(lm, progress=False) as runner, pytest.raises(ValueError, match="a bad line"):
        got.extend(item.candidate for item, _ in judge_in_order(runner, compiled(), broken()))
    assert got == ["c0", "c0", "c1", "c1", "c2", "c2"]
    assert len(lm.prompts) == 2


def test_rows_of_other_judges_do_not(tmp_path: Path, lms: list[ScriptedLM]) -> None:
    assert (
        score.main([*arguments(tmp_path, exported(tmp_path, compiled(0)), 1, 2), "--out", str(tmp_path / "o.jsonl")])
        == 0
    )
    assert {tuple(row)[-1] for row in rows_of(tmp_path / "o.jsonl")} == {"reason"}


# --- batch jobs and estimates ---


@pytest.mark.integration
def test_tables_go_in_batch_jobs(tmp_path: Path) -> None:
    def answer(body: bytes) -> str:
        return script(json.loads(body)["messages"][-1]["content"])

    items = list(stream(10, 4))
    with BatchServer(answer) as server:
        lm = lm_at(server, store=SqlStore(tmp_path))
        with JudgeRunner(lm, progress=False) as runner:
            found = [j for _, j in judge_in_order(runner, compiled(), iter(items))]
        assert server.made == [("scorer", "0", 20)]
        assert server.direct == 0
    assert [j.score for j in found if isinstance(j, Verdict)] == [row[3] for row in expected(10, 4, 4)]
    assert sum(j.calls for j in found) == 20


@pytest.mark.parametrize(("together", "calls"), [(4, 2 * 12 * 2), (8, 2 * 12), (3, 3 * 12 * 2)])
def test_an_estimate_counts_the_calls_that_are_made(together: int, calls: int) -> None:
    found, count = estimate_scoring(EstimateTarget("offline"), compiled(together), TASK.aspects, stream(12, 8))
    assert count == 192
    assert [round(used.calls, 6) for used in found.total] == [calls] * 3
    _, lm = streamed(compiled(together), stream(12, 8))
    assert len(lm.prompts) == calls
