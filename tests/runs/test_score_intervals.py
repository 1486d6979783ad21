"""`score` with `interval` and `abstain`: intervals in the rows, and which scores are left to people."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.calibration import Calibration
from debate_judge.data.errors import InputError
from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs.export.folder import load, save
from debate_judge.runs.export.recorded import RECORDED
from tests.config_keys import keys
from tests.runs.score_command import TASK, Command


def recorded() -> dict[str, object]:
    """Ratings are far from low scores and near to high ones."""
    rng = np.random.default_rng(0)
    groups = []
    for number in range(20):
        scores = rng.uniform(1, 5, 6)
        ratings = np.clip(scores + rng.normal(size=6) * np.where(scores < 3, 1.0, 0.1), 1, 5)
        texts = [f"t{i}" for i in range(6)]
        own = {"scores": scores.tolist(), "on_raters_scale": scores.tolist(), "ratings": ratings.tolist()}
        groups.append({"source": f"s{number}", "texts": texts, **own})
    return {"by": "export", "seen": [], "aspects": {"tone": groups, "help": groups}}


@pytest.fixture
def measured(command: Command) -> Command:
    """A judge with a map, and with held-out scores in its export."""
    judge = AspectJudge(build("debate", JUDGES["single"].config), calibration=Calibration(((1, 1), (5, 5)), 4, 20))
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


def test_wide_intervals_are_left_to_people(measured: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert measured(*keys(abstain=1.5)) == 0
    rows = measured.rows()
    assert {row["to_people"] for row in rows} == {True, False}
    assert all(row["to_people"] == (row["high"] - row["low"] > 1.5) for row in rows)
    told = capsys.readouterr().err
    assert "wider than 1.5" in told
    assert "left here" in told


def test_from_python(measured: Command) -> None:
    with load(measured.program) as judge:
        low, high = judge.intervals(0.8)["tone"].at(1.5), judge.intervals(0.8)["tone"].at(4.5)
        assert low.width > high.width > 0
    bad = json.loads((Path(measured.program) / "manifest.json").read_text())
    bad["evidence"][RECORDED]["aspects"]["tone"][0].pop("texts")
    (Path(measured.program) / "manifest.json").write_text(json.dumps(bad))
    with load(measured.program) as judge, pytest.raises(InputError) as refused:
        judge.intervals()
    assert refused.value.field == f"evidence.{RECORDED}.aspects.tone[0].texts"


def test_groups_without_ratings_are_left_out() -> None:
    from debate_judge.data.inference.conformal import fit_intervals

    groups = [GroupScores(f"g{i}", ("a",), (None if i % 2 else 3.0,), (2.5 + i / 10,)) for i in range(40)]
    found = fit_intervals(groups, TASK.aspects[0].scale, 0.8)
    assert len(found.scores) == 20
