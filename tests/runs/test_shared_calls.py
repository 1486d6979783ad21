"""Scores of calls that candidates share, and on the raters' scale: in streams, rows, from Python."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from debate_judge import load
from debate_judge.data.calibration import Calibration
from debate_judge.programs import build_preset
from debate_judge.programs.debate.prompts import with_guide
from debate_judge.programs.judge import AspectJudge, CompiledJudge, Item
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.runs.estimates import EstimateTarget, estimate_scoring
from debate_judge.runs.export import read
from debate_judge.runs.runner import JudgeRunner, judge_in_order
from tests.config_keys import keys
from tests.fakes import ScriptedLM, scripted_lm, section
from tests.programs.tables import table_script
from tests.runs.score_command import TASK, ScoreCommand, export_of

pytestmark = pytest.mark.usefixtures("lms")

TONE, HELP = TASK.aspects
Row = tuple[Any, ...]


def script(prompt: str) -> str:
    """Scores from 1 to 5 by the number of a text, one more in tone."""
    tone = section(prompt, "aspect").startswith("tone")

    def score(_: str, text: str) -> object:
        number = int(text.split()[-1])
        return number if text.startswith("note") else 1 + (number + tone) % 5

    return table_script(score)(prompt)


def stream(groups: int, candidates: int) -> Iterator[Item]:
    for g in range(groups):
        for c in range(candidates):
            for aspect in TASK.aspects:
                yield Item(f"g{g}", f"c{c}", TASK, aspect, f"message {g}", f"reply {g * 10 + c}")


def judge(together: int, guide: str = "") -> AspectJudge:
    debate: Any = build_preset("single", {"together": together})
    scorer = debate.scorer
    scorer.signature = scorer.signature.with_instructions(with_guide(scorer.signature.instructions, guide))
    return AspectJudge(debate)


def compiled(together: int = 4, tone: AspectJudge | None = None) -> CompiledJudge:
    """A judge whose aspects know other things, as of a compile; that of tone may be one that shares no calls."""
    return CompiledJudge(TASK, {"tone": tone or judge(together, "Friendly."), "help": judge(together, "Short.")})


def judged(lm: JudgeLM, program: CompiledJudge, items: Iterable[Item]) -> list[Row]:
    with JudgeRunner(lm, progress=False) as runner:
        judgements = list(judge_in_order(runner, program, items))
    assert sum(j.calls for _, j in judgements) == pytest.approx(lm.meter.requested.total())
    return [(i.group, i.candidate, i.aspect.name, j.score) for i, j in judgements]


def streamed(program: CompiledJudge, groups: int, candidates: int) -> tuple[list[Row], list[str]]:
    """Rows and prompts."""
    lm = scripted_lm(script, concurrency=4)
    return judged(lm, program, stream(groups, candidates)), lm.prompts


def expected(groups: int, candidates: int) -> list[Row]:
    return [
        (f"g{g}", f"c{c}", a.name, 1 + (c + (a is TONE)) % 5)
        for g in range(groups)
        for c in range(candidates)
        for a in TASK.aspects
    ]


@pytest.mark.parametrize(("together", "calls"), [(0, 2 * 96), (8, 2 * 12), (3, 3 * 12 * 2)])
def test_a_stream_makes_the_calls_that_are_estimated_and_those_of_a_corpus(together: int, calls: int) -> None:
    estimate, items = estimate_scoring(EstimateTarget("offline"), compiled(together), TASK.aspects, stream(12, 8))
    assert (items, [round(used.calls, 6) for used in estimate.total]) == (2 * 96, [calls] * 2)
    rows, prompts = streamed(compiled(together), 12, 8)
    assert rows == expected(12, 8)
    assert len(prompts) == calls
    assert {section(prompt, "guide").splitlines()[-1] for prompt in prompts} == {"Friendly.", "Short."}
    lm = scripted_lm(script)
    with JudgeRunner(lm, progress=False) as runner:
        for aspect, chosen in compiled(together).aspects.items():
            runner.judge(chosen.judge, [item for item in list(stream(12, 8))[::-1] if item.aspect.name == aspect])
    assert sorted(lm.prompts) == sorted(prompts)


def test_each_aspect_shares_its_calls_as_its_own_judge_does() -> None:
    rows, prompts = streamed(compiled(4, judge(0)), 3, 4)
    assert (rows, len(prompts)) == (expected(3, 4), 3 + 12)


def test_what_came_before_a_bad_line_is_judged() -> None:
    def broken() -> Iterator[Item]:
        yield from stream(1, 3)
        raise ValueError("a bad line")

    lm = scripted_lm(script)
    candidates: list[str] = []
    with JudgeRunner(lm, progress=False) as runner, pytest.raises(ValueError, match="a bad line"):
        candidates.extend(item.candidate for item, _ in judge_in_order(runner, compiled(4), broken()))
    assert (candidates, len(lm.prompts)) == (["c0", "c0", "c1", "c1", "c2", "c2"], 2)


def test_a_broken_line_parts_no_texts_of_a_source() -> None:
    items, lm = list(stream(1, 4)), scripted_lm(script)
    items.insert(4, Item("line 3", "", TASK, TONE, "", ""))
    with JudgeRunner(lm, progress=False) as runner:
        groups = [item.group for item, _ in judge_in_order(runner, compiled(4), items)]
    assert (groups, len(lm.prompts)) == (["g0"] * 4 + ["line 3"] + ["g0"] * 4, 2)


def test_a_loaded_judge_shares_the_calls_of_a_group_and_says_where_a_text_comes_alone(
    tmp_path: Path, lms: list[ScriptedLM]
) -> None:
    with load(export_of(tmp_path / "program", TASK, *compiled().aspects.values())) as loaded:
        group = loaded.score_many([{"source": "message 1", "text": f"reply {n}"} for n in range(4)])
        assert [(row["tone"].score, row["help"].score) for row in group] == [(2, 1), (3, 2), (4, 3), (5, 4)]
        assert {score.calls for row in group for score in row.values()} == {0.25}
        with pytest.warns(UserWarning, match="measured with up to 4 candidates"):
            text = loaded.score(text="reply 7", source="message 1")
        assert [(score.score, score.calls) for score in text.values()] == [(4, 1), (3, 1)]
    assert len(lms[0].prompts) == 2 + 2


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(row) for row in path.read_text().splitlines()]


# --- on the raters' scale ---

MAPS = {
    "tone": Calibration(((1, 2.0), (3, 2.5), (5, 4.5)), 14, 112),
    "help": Calibration(((1, 1.0), (5, 2.0)), 14, 112),
}
EXPECTED = {"tone": {"1": 2.0, "2": 2.25, "4": 3.5}, "help": {"1": 1.0, "2": 1.25, "4": 1.75}}


def saved(folder: Path, *aspects: str) -> Path:
    """An export with the maps of these aspects."""
    maps = [MAPS[aspect.name] if aspect.name in aspects else None for aspect in TASK.aspects]
    return export_of(
        folder / "program", TASK, *(AspectJudge(build_preset("single", {}), "half", each) for each in maps)
    )


def scored(folder: Path, program: Path, out: str, *more: str) -> int:
    texts = [{"id": f"c{n}", "text": f"note {n}"} for n in (4, 1, 9, 2)]
    (folder / "in.jsonl").write_text(json.dumps({"group": "g", "source": "message", "candidates": texts}) + "\n")
    return ScoreCommand(folder, program, out=folder / out)(*keys(max_unscored=1, preflight=False), *more)


def test_an_export_keeps_the_maps(tmp_path: Path) -> None:
    both, half, none = (saved(tmp_path / str(len(names)), *names) for names in (MAPS, ["help"], []))
    assert {name: judge.calibration for name, judge in read(both).judge.aspects.items()} == MAPS
    assert read(half).judge.aspects["tone"].calibration is None
    assert len({read(export).fingerprint for export in (both, half, none)}) == 3
    assert ["--scale raters" in (export / "README.md").read_text() for export in (both, none)] == [True, False]
    # An aspect with a map needs none of the others.
    assert scored(tmp_path, half, "out.jsonl", "--scale", "raters", "--aspects", "help") == 0


def test_rows_hold_the_raters_score_and_the_judges_own(tmp_path: Path) -> None:
    program, raters = saved(tmp_path, *MAPS), ["--scale", "raters"]
    assert scored(tmp_path, program, "judge.jsonl") == scored(tmp_path, program, "raters.jsonl", *raters) == 0
    unmapped, mapped = (rows_of(tmp_path / name) for name in ("judge.jsonl", "raters.jsonl"))
    assert all("judge_score" not in row for row in unmapped)
    assert [row["judge_score"] for row in mapped] == [row["score"] for row in unmapped]
    for row in mapped:
        number = row["candidate"][1:]
        # 9 is not on the scale, so the judge leaves that text without a score.
        assert row["score"] == EXPECTED[row["aspect"]].get(number)
        assert (row["unscored"] is None) == (number != "9")
    # In CSV and transcripts, too.
    table, debates = tmp_path / "raters.csv", tmp_path / "debates.jsonl"
    assert scored(tmp_path, program, table.name, *raters, *keys(transcripts=debates)) == 0
    rows = [*list(csv.DictReader(table.read_text().splitlines()))[:1], rows_of(debates)[0]]
    assert [(float(row["score"]), float(row["judge_score"])) for row in rows] == [(3.5, 4.0)] * 2


def test_scores_from_python(tmp_path: Path) -> None:
    with load(saved(tmp_path, *MAPS)) as judge:
        group = judge.score_many([{"source": "message", "text": text} for text in ("note 4", "note 9")], scale="raters")
        mapped = judge.score(source="message", text="note 2", scale="raters").values()
    assert [(score.score, score.judge_score) for score in mapped] == [(2.25, 2), (1.25, 2)]
    assert [(s["tone"].score, s["tone"].judge_score) for s in group] == [(3.5, 4), (None, None)]
