"""Candidates side by side in streams, batch jobs and estimates: in order, at the promised number of calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from debate_judge.programs import build_preset
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.judge import Item, Verdict
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.store import SqlStore
from debate_judge.runs.estimates.dry_run import EstimateTarget
from debate_judge.runs.estimates.items import estimate_scoring
from debate_judge.runs.runner import streaming
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.runner.streaming import judge_in_order
from tests.batch_server import BatchServer
from tests.fakes import scripted_lm
from tests.programs.batches import lm_at
from tests.programs.tables import shown_candidates
from tests.runs.together_command import TASK, TONE, script, stream


def compiled(together: int) -> CompiledJudge:
    judge = AspectJudge(build_preset("single", {"together": together}))
    return CompiledJudge(TASK, {aspect.name: judge for aspect in TASK.aspects})


Row = tuple[str, str, str, float, int]


def streamed(lm: JudgeLM, judge: CompiledJudge, items: Iterator[Item]) -> list[Row]:
    with JudgeRunner(lm, progress=False) as runner:
        return [
            (i.group, i.candidate, i.aspect.name, j.score, j.transcript.together)
            for i, j in judge_in_order(runner, judge, items)
            if isinstance(j, Verdict)
        ]


def expected(groups: int, candidates: int) -> list[Row]:
    """The rows of tables of four."""
    return [
        (f"g{g}", f"c{c}", a.name, 1 + (c + (a is TONE)) % 5, 4)
        for g in range(groups)
        for c in range(candidates)
        for a in TASK.aspects
    ]


@pytest.mark.parametrize(("together", "calls"), [(4, 2 * 12 * 2), (8, 2 * 12), (3, 3 * 12 * 2)])
def test_a_stream_makes_the_calls_that_are_estimated_and_those_of_a_corpus(together: int, calls: int) -> None:
    usage, count = estimate_scoring(EstimateTarget("offline"), compiled(together), TASK.aspects, stream(12, 8))
    assert count == 192
    assert [round(used.calls, 6) for used in usage.total] == [calls] * 3
    lm, of_corpus = scripted_lm(script, concurrency=4), scripted_lm(script)
    rows = streamed(lm, compiled(together), stream(12, 8))
    assert [row[:4] for row in rows] == [row[:4] for row in expected(12, 8)]
    assert len(lm.prompts) == calls
    with JudgeRunner(of_corpus, progress=False) as runner:
        runner.judge(compiled(together).aspects["tone"].judge, list(stream(12, 8))[::-1])
    assert sorted(lm.prompts) == sorted(of_corpus.prompts)


def test_a_source_of_any_length_is_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MAX_GROUPED", 6)
    lm = scripted_lm(script)
    streamed(lm, compiled(8), stream(1, 10))
    assert sorted(len(shown_candidates(prompt)) for prompt in lm.prompts) == [4, 4, 6, 6]


def test_what_came_before_a_bad_line_is_judged() -> None:
    def broken() -> Iterator[Item]:
        yield from stream(1, 3)
        raise ValueError("a bad line")

    lm = scripted_lm(script)
    candidates: list[str] = []
    with JudgeRunner(lm, progress=False) as runner, pytest.raises(ValueError, match="a bad line"):
        candidates.extend(item.candidate for item, _ in judge_in_order(runner, compiled(4), broken()))
    assert candidates == ["c0", "c0", "c1", "c1", "c2", "c2"]
    assert len(lm.prompts) == 2


@pytest.mark.integration
def test_tables_go_in_batch_jobs(tmp_path: Path) -> None:
    with BatchServer(lambda body: script(json.loads(body)["messages"][-1]["content"])) as server:
        rows = streamed(lm_at(server, store=SqlStore(tmp_path)), compiled(4), stream(10, 4))
        assert (server.made, server.direct) == ([("scorer", "0", 20)], 0)
    assert rows == expected(10, 4)
