"""`debate carry`: the verdicts, the new export, and what speaks for an LM that is gone."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from debate_judge.runs.export.folder import load, read
from debate_judge.runs.export.recorded import recorded_scores_in
from debate_judge.runs.flags.invocation import COMMANDS
from tests.runs.known_judges import LMS, RATED, SEEN, asked, command, export, file_of

__all__ = ["asked"]

HELD_OUT = len(RATED.groups) - SEEN


@pytest.fixture(autouse=True)
def _lms(asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    file_of(tmp_path / "rated.jsonl", RATED.groups)


def carry(address: Path, lm: str, *more: str) -> tuple[int, dict[str, Any]]:
    return command("carry", address, "--lm", lm, "--data", "rated.jsonl", "--store", "store", *more)


def test_an_lm_that_scores_alike_carries_the_judge(asked: list[str], tmp_path: Path) -> None:
    code, result = carry(export(tmp_path / "old"), "scripted/same")
    assert (code, result["verdict"], result["old_scores"]) == (0, "carry", "asked")
    assert (result["sources"], result["held_out"]) == (HELD_OUT, True)
    assert asked == ["scripted/same", "scripted/old"]
    made = read(result["export"])
    assert made.manifest["lm"]["spec"] == "scripted/same"
    assert made.manifest["name"] == "mine-on-scripted-same"
    assert made.manifest["evidence"]["held_out"]["carried"]["average"]["summary"]["spearman"]["value"] == 1
    assert made.judge.aspects["coherence"].calibration == read(tmp_path / "old").judge.aspects["coherence"].calibration
    # The new export can be carried again: it keeps its own scores, and knows what it was tuned on.
    recorded = recorded_scores_in(made.manifest)
    assert (len(recorded.sources), len(recorded.train_dev_sources), recorded.scored_by) == (HELD_OUT, SEEN, "export")
    assert set(recorded.calibrated) == {"coherence"}


def test_an_lm_with_the_same_ranks_and_other_scores_gets_a_new_map(tmp_path: Path) -> None:
    code, result = carry(export(tmp_path / "old"), "scripted/shifted", "--name", "new")
    assert (code, result["verdict"]) == (0, "recalibrate")
    aspect = result["aspects"]["coherence"]
    # .6 x + .4 of ratings from 1 to 5 is .8 lower in the mean.
    assert aspect["shift"]["value"] == pytest.approx(-0.8)
    assert (aspect["spread"], aspect["between"]) == (pytest.approx(0.6), pytest.approx(1))
    assert aspect["error_refitted"]["value"] < 0.05 < aspect["error_new"]["value"]
    calibration = read("store/exports/new").judge.aspects["coherence"].calibration
    assert calibration.map_score(0.6 * 4 + 0.4) == pytest.approx(4, abs=0.02)


def test_an_lm_that_loses_more_than_the_users_margin_is_not_carried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address, noisy = export(tmp_path / "old"), ("scripted/noisy", "--shift", "1", "--margin")
    for arguments in (("scripted/lost",), (*noisy, "0.001")):
        code, result = carry(address, *arguments)
        assert (code, result["verdict"], result["export"]) == (1, "recompile", None)
        assert "agrees less" in result["why"]
    assert not Path("store/exports").exists()
    assert carry(address, *noisy, "0.5")[1]["verdict"] == "carry"
    # The tables, and the same in a file.
    arguments = [str(address), "--lm", "scripted/lost", "--data", "rated.jsonl", "--store", "store"]
    assert import_module(COMMANDS["carry"][0]).main([*arguments, "--json", "c.json"]) == 1
    output = capsys.readouterr().out
    assert output.startswith("recompile: ")
    assert "12 held-out sources" in output
    assert json.loads(Path("c.json").read_text())["verdict"] == "recompile"


def test_what_speaks_for_an_lm_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    code, result = carry(export(tmp_path / "recorded", spec="scripted/gone"), "scripted/same")
    assert (code, result["verdict"], result["old_scores"]) == (0, "carry", "recorded")
    assert "was retired" in result["notes"][0]
    stored = export(tmp_path / "stored", keeps=False)
    assert carry(stored, "scripted/same")[0] == 0
    monkeypatch.setitem(LMS, "scripted/old", lambda prompt: pytest.fail("the old LM was asked"))
    code, result = carry(stored, "scripted/same", "--name", "again")
    assert (code, result["old_scores"], result["sources"]) == (0, "asked", len(RATED.groups))
    for number, more in enumerate(({"keeps": False}, {"by": "folds"})):
        assert carry(export(tmp_path / f"old{number}", spec="scripted/gone", **more), "scripted/same")[0] == 2
        assert "has no scores" in capsys.readouterr().err


OWN = "own_judge_after_a_compile:Small"


@pytest.mark.parametrize("name", ["carry", "recheck", "measure"])
def test_an_export_of_a_judge_of_ones_own_is_opened_where_it_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asked: list[str]
) -> None:
    module = OWN.partition(":")[0]
    (tmp_path / f"{module}.py").write_text(
        "from debate_judge.programs.debate.judge import Debate\n\nclass Small(Debate): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    address = str(export(tmp_path / "old", kind=OWN))
    monkeypatch.delitem(sys.modules, module)
    new = [replace(g, id=f"n{g.id}", source=f"New: {g.source}") for g in RATED.groups]
    rated = file_of(tmp_path / "new.jsonl", new)
    arguments = {
        "carry": [address, "--lm", "scripted/same", "--data", rated],
        "recheck": [address, "--data", rated],
        "measure": [rated, "--program", address],
    }[name]
    assert command(name, *arguments)[0] == 2
    assert f"--config judge={OWN} " in " ".join(capsys.readouterr().err.split())
    assert (asked, module in sys.modules) == ([], False)
    assert command(name, *arguments, "--config", f"judge={OWN}")[0] == 0, capsys.readouterr().err
    with load(address, judges=[OWN]) as judge:
        assert judge.score(source="s", text="4 t")["coherence"].score == 4
