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
from debate_judge.runs.export.folder import read
from tests.config_keys import keys
from tests.fakes import debater, section
from tests.runs.together_command import TASK, exported, rows_of

MAPS = {
    "tone": Calibration(((1, 2.0), (3, 2.5), (5, 4.5)), 14, 112),
    "help": Calibration(((1, 1.0), (5, 2.0)), 14, 112),
}
EXPECTED = {"tone": {"1": 2.0, "2": 2.25, "4": 3.5}, "help": {"1": 1.0, "2": 1.25, "4": 1.75}}
script = debater(score=lambda prompt: section(prompt, "candidate").split()[-1])

pytestmark = pytest.mark.usefixtures("lms")


def saved(folder: Path, *aspects: str) -> Path:
    """An export with the maps of these aspects."""
    maps = {name: MAPS[name] for name in aspects}
    judges = {a.name: AspectJudge(build_preset("single", {}), "half", maps.get(a.name)) for a in TASK.aspects}
    return exported(folder, CompiledJudge(TASK, judges))


def scored(folder: Path, program: Path, out: str, *more: str) -> int:
    texts = [{"id": f"c{n}", "text": f"reply {n}"} for n in (4, 1, 9, 2)]
    (folder / "in.jsonl").write_text(json.dumps({"group": "g", "source": "message", "candidates": texts}) + "\n")
    places = ["--in", str(folder / "in.jsonl"), "--out", str(folder / out), "--store", str(folder / "store")]
    return score.main([str(program), *places, *keys(max_unscored=1, preflight=False), *more])


def test_an_export_keeps_the_maps(tmp_path: Path) -> None:
    both, half, none = (saved(tmp_path / str(len(names)), *names) for names in (MAPS, ["help"], []))
    assert {name: judge.calibration for name, judge in read(both).judge.aspects.items()} == MAPS
    assert read(half).judge.aspects["tone"].calibration is None
    assert len({read(export).fingerprint for export in (both, half, none)}) == 3
    assert ["--scale raters" in (export / "README.md").read_text() for export in (both, none)] == [True, False]
    # An aspect with a map needs none of the others.
    assert scored(tmp_path, half, "out.jsonl", "--scale", "raters", "--aspects", "help") == 0


def test_rows_hold_the_raters_score_and_the_judges_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, raters = saved(tmp_path, *MAPS), ["--scale", "raters"]
    assert scored(tmp_path, program, "own.jsonl") == scored(tmp_path, program, "raters.jsonl", *raters) == 0
    own, mapped = (rows_of(tmp_path / name) for name in ("own.jsonl", "raters.jsonl"))
    assert all("judge_score" not in row for row in own)
    assert [row["judge_score"] for row in mapped] == [row["score"] for row in own]
    for row in mapped:
        number = row["candidate"][1:]
        # 9 is not on the scale, so the judge leaves that text without a score.
        assert row["score"] == EXPECTED[row["aspect"]].get(number)
        assert (row["unscored"] is None) == (number != "9")
    assert list(mapped[0])[-1] == "judge_score"
    assert scored(tmp_path, program, "own.jsonl", *raters) == 2
    assert "different scale" in capsys.readouterr().err
    # In CSV and transcripts, too, and a second run adds nothing.
    files = [tmp_path / "raters.csv", tmp_path / "t.jsonl"]
    contents = []
    for _ in range(2):
        assert scored(tmp_path, program, "raters.csv", *raters, *keys(transcripts=files[1])) == 0
        contents.append([file.read_bytes() for file in files])
    assert contents[0] == contents[1]
    rows = list(csv.DictReader(files[0].read_text().splitlines()))
    assert [(r["score"], r["judge_score"]) for r in rows[:2]] == [("3.5", "4.0"), ("1.75", "4.0")]
    debate = rows_of(files[1])[0]
    assert (debate["score"], debate["judge_score"]) == (3.5, 4.0)


def test_scores_from_python(tmp_path: Path) -> None:
    with load(saved(tmp_path, *MAPS)) as judge:
        own = judge.score(source="message", text="reply 2")
        mapped = judge.score(source="message", text="reply 2", scale="raters")
        by_group = judge.score_group(texts=["reply 4", "reply 9"], source="message", scale="raters")
    assert {name: (s.score, s.judge_score) for name, s in own.items()} == {"tone": (2, 2), "help": (2, 2)}
    assert {name: (s.score, s.judge_score) for name, s in mapped.items()} == {"tone": (2.25, 2), "help": (1.25, 2)}
    assert [(s["tone"].score, s["tone"].judge_score) for s in by_group] == [(3.5, 4), (None, None)]
