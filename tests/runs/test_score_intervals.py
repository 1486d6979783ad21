"""`score` with `interval` and `abstain`: intervals in the rows, and which scores are left to people."""

from __future__ import annotations

import numpy as np
import pytest

from debate_judge.data.calibration import Calibration
from debate_judge.programs import build_preset
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs.export.folder import load, save
from debate_judge.runs.export.recorded import RECORDED
from tests.config_keys import keys
from tests.runs.score_command import TASK, Command


def recorded() -> dict[str, object]:
    """Ratings are far from low scores and near to high ones; every other source is unrated."""
    rng = np.random.default_rng(0)
    groups = []
    for number in range(40):
        scores = rng.uniform(1, 5, 6)
        ratings = np.clip(scores + rng.normal(size=6) * np.where(scores < 3, 1.0, 0.1), 1, 5)
        own = {"scores": scores.tolist(), "on_raters_scale": scores.tolist()}
        rated = ratings.tolist() if number % 2 else [None] * 6
        groups.append({"source": f"s{number}", "texts": [f"t{i}" for i in range(6)], **own, "ratings": rated})
    return {"by": "export", "seen": [], "aspects": {"tone": groups, "help": groups}}


@pytest.fixture
def measured(command: Command) -> Command:
    """A judge with a map, and with held-out scores in its export."""
    judge = AspectJudge(build_preset("single", {}), calibration=Calibration(((1, 1), (5, 5)), 4, 20))
    evidence = {RECORDED: recorded(), "objective": {"statistic": "spearman", "level": "summary"}}
    compiled = CompiledJudge(TASK, {"tone": judge, "help": judge})
    command.program = save(
        command.folder / "measured", compiled, lm={"spec": "scripted/lm"}, evidence=evidence, name="m"
    )
    return command


def test_rows_have_intervals_on_the_raters_scale(measured: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert measured(*keys(interval=0.8)) == 0
    rows = measured.rows()
    assert all(1 <= row["low"] <= row["score"] <= row["high"] <= 5 for row in rows)
    assert all(row["judge_score"] == row["score"] and "to_people" not in row for row in rows)
    assert "80 %" in capsys.readouterr().err
    # The same command goes on; with another level it is another file.
    assert measured(*keys(interval=0.8)) == 0
    assert measured(*keys(interval=0.9)) == 2
    with load(measured.program) as judge:
        intervals = judge.intervals(0.8)["tone"]
    assert intervals.sources == 20
    assert intervals.at(1.5).width > intervals.at(4.5).width > 0


def test_wide_intervals_are_left_to_people(measured: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert measured(*keys(abstain=1.5)) == 0
    rows = measured.rows()
    assert {row["to_people"] for row in rows} == {True, False}
    assert all(row["to_people"] == (row["high"] - row["low"] > 1.5) for row in rows)
    summary = capsys.readouterr().err
    assert "wider than 1.5" in summary
    assert "left here" in summary
