"""Aspects that share calls in streams, score.py, exports and estimates: at the promised number of calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from debate_judge.programs import build_preset
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.roles.guide import with_guide
from debate_judge.runs import score
from debate_judge.runs.estimates.dry_run import EstimateTarget
from debate_judge.runs.estimates.items import estimate_scoring
from debate_judge.runs.export.folder import load
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.runner.streaming import judge_in_order
from tests.config_keys import keys
from tests.fakes import ScriptedLM, scripted_lm, section
from tests.programs.tables import joint_table_script, requested_cells
from tests.runs import together_command
from tests.runs.together_command import TASK, TONE, arguments, exported, rows_of, stream

Row = tuple[Any, ...]


def of_cell(prompt: str, text: str, aspect: str) -> int:
    # The label of the only aspect of a table is empty.
    tone = aspect == "tone" or (not aspect and section(prompt, "aspect").startswith("tone"))
    return 1 + (int(text.split()[-1]) + tone) % 5


def script(prompt: str) -> str:
    return together_command.script(prompt) if section(prompt, "candidate") else joint_table_script(of_cell)(prompt)


def judge(together: int, guide: str = "", joint: bool = True) -> AspectJudge:
    debate: Any = build_preset("single", {"together": together, "joint": joint})
    scorer = debate.scorer
    scorer.signature = scorer.signature.with_instructions(with_guide(scorer.signature.instructions, guide))
    return AspectJudge(debate)


def compiled(together: int = 4, tone: AspectJudge | None = None) -> CompiledJudge:
    """A judge whose aspects know other things, as of a compile; that of tone may be one that shares no calls."""
    return CompiledJudge(TASK, {"tone": tone or judge(together, "Friendly."), "help": judge(together, "Short.")})


def streamed(program: CompiledJudge, groups: int, candidates: int) -> tuple[list[Row], list[str]]:
    """Rows and prompts."""
    lm = scripted_lm(script, concurrency=4)
    with JudgeRunner(lm, progress=False) as runner:
        judgements = list(judge_in_order(runner, program, stream(groups, candidates)))
    assert sum(j.calls for _, j in judgements) == pytest.approx(len(lm.prompts))
    return [
        (i.group, i.candidate, i.aspect.name, j.score, j.transcript.together, j.transcript.joint) for i, j in judgements
    ], lm.prompts


def expected(groups: int, candidates: int, together: int, joint: int) -> list[Row]:
    return [
        (f"g{g}", f"c{c}", a.name, 1 + (c + (a is TONE)) % 5, together, joint)
        for g in range(groups)
        for c in range(candidates)
        for a in TASK.aspects
    ]


@pytest.mark.parametrize(("together", "size", "calls"), [(0, 1, 48), (4, 4, 12), (2, 2, 24), (8, 4, 12)])
def test_a_stream_asks_for_all_aspects_at_once_as_estimated(together: int, size: int, calls: int) -> None:
    rows, prompts = streamed(compiled(together), 12, 4)
    assert rows == expected(12, 4, size, 2)
    assert len(prompts) == calls
    assert all(section(p, "guide_tone") == "Friendly." and section(p, "guide_help") == "Short." for p in prompts)
    estimate, items = estimate_scoring(EstimateTarget("offline"), compiled(together), TASK.aspects, stream(12, 4))
    assert (items, [round(used.calls, 6) for used in estimate.total]) == (96, [calls] * 3)


def test_aspects_whose_judges_differ_are_asked_about_by_themselves() -> None:
    rows, prompts = streamed(compiled(4, judge(4, joint=False)), 3, 4)
    assert (rows, len(prompts)) == (expected(3, 4, 4, 1), 6)
    rows, prompts = streamed(compiled(4, judge(0, joint=False)), 3, 4)
    assert rows == [(*row[:4], 1 if row[2] == "tone" else 4, 1) for row in expected(3, 4, 4, 1)]
    assert len(prompts) == 3 + 12


def test_a_loaded_judge_scores_all_aspects_of_a_group_in_one_call(tmp_path: Path, lms: list[ScriptedLM]) -> None:
    with load(exported(tmp_path, compiled())) as loaded:
        group = loaded.score_group(texts=[f"reply {n}" for n in range(4)], source="message 1")
        assert [(row["tone"].score, row["help"].score) for row in group] == [(2, 1), (3, 2), (4, 3), (5, 4)]
        assert {(s.calls, s.together, s.joint) for row in group for s in row.values()} == {(0.125, 4, 2)}
        text = loaded.score(text="reply 7", source="message 1")
        assert {(s.calls, s.together, s.joint) for s in text.values()} == {(0.5, 1, 2)}
        (only,) = loaded.score(text="reply 7", source="message 1", aspects="help").values()
        assert (only.score, only.calls, only.joint) == (3, 1, 1)
    assert len(lms[0].prompts) == 3
    assert [len(requested_cells(p, "scores")) for p in lms[0].prompts[:2]] == [8, 2]
    assert section(lms[0].prompts[2], "candidate") == "reply 7"


def test_rows_say_what_calls_were_shared_with(tmp_path: Path, lms: list[ScriptedLM]) -> None:
    command = arguments(tmp_path, exported(tmp_path, compiled()), 3, 4)
    debates = tmp_path / "debates.jsonl"
    assert score.main([*command, "--out", str(tmp_path / "out.jsonl"), *keys(transcripts=debates)]) == 0
    fields = ("group", "candidate", "aspect", "score", "together", "joint")
    rows = [tuple(row[name] for name in fields) for row in rows_of(tmp_path / "out.jsonl")]
    assert rows == expected(3, 4, 4, 2)
    assert {(row["calls"], row["together"], row["joint"]) for row in rows_of(debates)} == {(0.125, 4, 2)}
    # What is tried before the run is a call of the run.
    assert len(lms[-1].prompts) == 3
    assert score.main([*command, "--out", str(tmp_path / "out.csv")]) == 0
    assert (tmp_path / "out.csv").read_text().splitlines()[0].endswith("unscored,reason,together,joint")
    assert lms[-1].prompts == []
