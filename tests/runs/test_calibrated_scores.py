"""Scores on the raters' scale: kept in an export, given by the command and from Python, the judge's own beside."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from debate_judge import load
from debate_judge.data.calibration import Calibration
from debate_judge.programs import build_preset
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs import score
from debate_judge.runs.export.folder import read, save
from tests.config_keys import keys
from tests.fakes import debater, section
from tests.runs.together_command import TASK

MAPS = {
    "tone": Calibration(((1, 2.0), (3, 2.5), (5, 4.5)), 14, 112),
    "help": Calibration(((1, 1.0), (5, 2.0)), 14, 112),
}
EXPECTED = {"tone": {"1": 2.0, "2": 2.25, "4": 3.5}, "help": {"1": 1.0, "2": 1.25, "4": 1.75}}
script = debater(score=lambda prompt: section(prompt, "candidate").split()[-1])

pytestmark = pytest.mark.usefixtures("lms")


def saved(folder: Path, maps: dict[str, Calibration]) -> Path:
    judges = {a.name: AspectJudge(build_preset("single", {}), "half", maps.get(a.name)) for a in TASK.aspects}
    return save(folder, CompiledJudge(TASK, judges), lm={"spec": "scripted/lm"}, evidence={}, name="x")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    texts = [{"id": f"c{n}", "text": f"reply {n}"} for n in (4, 1, 9, 2)]
    (tmp_path / "in.jsonl").write_text(json.dumps({"group": "g", "source": "message", "candidates": texts}) + "\n")
    return saved(tmp_path / "program", MAPS)


def scored(program: Path, out: str, *more: str) -> int:
    folder = program.parent
    places = ["--in", str(folder / "in.jsonl"), "--out", str(folder / out), "--store", str(folder / "store")]
    return score.main([str(program), *places, *keys(max_unscored=1, preflight=False), *more])


def test_an_export_keeps_the_maps(program: Path) -> None:
    export = read(program)
    assert {name: judge.calibration for name, judge in export.judge.aspects.items()} == MAPS
    assert "--scale raters" in (program / "README.md").read_text()
    half = saved(program.parent / "half", {"help": MAPS["help"]})
    assert read(half).judge.aspects["tone"].calibration is None
    assert read(half).fingerprint != export.fingerprint
    # An aspect with a map needs none of the others.
    assert scored(half, "out.jsonl", "--scale", "raters", "--aspects", "help") == 0
    assert "--scale raters" not in (saved(program.parent / "bare", {}) / "README.md").read_text()


def test_rows_hold_the_raters_score_and_the_judges_own(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scored(program, "own.jsonl") == scored(program, "raters.jsonl", "--scale", "raters") == 0
    own, mapped = (
        [json.loads(line) for line in (program.parent / name).read_text().splitlines()]
        for name in ("own.jsonl", "raters.jsonl")
    )
    assert all("judge_score" not in row for row in own)
    assert [row["judge_score"] for row in mapped] == [row["score"] for row in own]
    for row in mapped:
        number = row["candidate"][1:]
        # 9 is not on the scale, so the judge leaves that text without a score.
        assert row["score"] == EXPECTED[row["aspect"]].get(number)
        assert (row["unscored"] is None) == (number != "9")
    assert list(mapped[0])[-1] == "judge_score"
    assert scored(program, "own.jsonl", "--scale", "raters") == 2
    assert "different scale" in capsys.readouterr().err


def test_csv_rows_and_transcripts_hold_both_and_a_second_run_adds_nothing(program: Path) -> None:
    more = ["--scale", "raters", *keys(transcripts=program.parent / "t.jsonl")]
    assert scored(program, "raters.csv", *more) == 0
    before = (program.parent / "raters.csv").read_bytes()
    assert scored(program, "raters.csv", *more) == 0
    assert (program.parent / "raters.csv").read_bytes() == before
    rows = list(csv.DictReader(before.decode().splitlines()))
    assert [(r["score"], r["judge_score"]) for r in rows[:2]] == [("3.5", "4.0"), ("1.75", "4.0")]
    debate = json.loads((program.parent / "t.jsonl").read_text().splitlines()[0])
    assert (debate["score"], debate["judge_score"]) == (3.5, 4.0)


def test_scores_from_python(program: Path) -> None:
    with load(program) as judge:
        own = judge.score(source="message", text="reply 2")
        mapped = judge.score(source="message", text="reply 2", scale="raters")
        by_group = judge.score_group(texts=["reply 4", "reply 9"], source="message", scale="raters")
    assert {name: (s.score, s.judge_score) for name, s in own.items()} == {"tone": (2, 2), "help": (2, 2)}
    assert {name: (s.score, s.judge_score) for name, s in mapped.items()} == {"tone": (2.25, 2), "help": (1.25, 2)}
    assert [(s["tone"].score, s["tone"].judge_score) for s in by_group] == [(3.5, 4), (None, None)]
