"""`debate carry`: the verdicts, the new export, and what speaks for an LM that is gone."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from debate_judge.runs.after import carry as command
from debate_judge.runs.export.folder import read
from debate_judge.runs.export.recorded import recorded_in
from debate_judge.runs.flags.invocation import COMMANDS
from tests.runs.carrying import RATED, SEEN, asked, export, file_of

__all__ = ["asked"]

HELD_OUT = len(RATED.groups) - SEEN


class Carrying:
    """The command in a folder of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys
        self.data = file_of(folder / "rated.jsonl", RATED.groups)

    def __call__(self, address: Path, lm: str, *more: str) -> tuple[int, dict[str, Any]]:
        store = str(self.folder / "store")
        code = command.main([str(address), "--lm", lm, "--data", self.data, "--store", store, "--json", *more])
        out = self.capsys.readouterr().out
        return code, json.loads(out) if out else {}


@pytest.fixture
def carrying(tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: list[str]) -> Carrying:
    return Carrying(tmp_path, capsys)


def test_an_lm_that_scores_alike_carries_the_judge(carrying: Carrying, asked: list[str], tmp_path: Path) -> None:
    code, found = carrying(export(tmp_path / "old"), "scripted/same")
    assert (code, found["verdict"], found["old_scores"]) == (0, "carry", "asked")
    assert (found["sources"], found["held_out"]) == (HELD_OUT, True)
    assert asked == ["scripted/same", "scripted/old"]
    made = read(found["export"])
    assert made.manifest["lm"]["spec"] == "scripted/same"
    assert made.manifest["name"] == "mine-on-scripted-same"
    assert made.manifest["evidence"]["held_out"]["carried"]["average"]["summary"]["spearman"]["value"] == 1
    assert made.judge.aspects["coherence"].calibration == read(tmp_path / "old").judge.aspects["coherence"].calibration
    # The new export can be carried again: it keeps its own scores, and knows what it was tuned on.
    recorded = recorded_in(made.manifest)
    assert recorded is not None
    assert (len(recorded.sources), len(recorded.seen), recorded.by) == (HELD_OUT, SEEN, "export")
    assert set(recorded.mapped) == {"coherence"}


def test_an_lm_with_the_same_ranks_and_other_scores_gets_a_new_map(carrying: Carrying, tmp_path: Path) -> None:
    code, found = carrying(export(tmp_path / "old"), "scripted/shifted", "--name", "new")
    assert (code, found["verdict"]) == (0, "recalibrate")
    aspect = found["aspects"]["coherence"]
    # .6 x + .4 of ratings from 1 to 5 is .8 lower in the mean.
    assert aspect["shift"]["value"] == pytest.approx(-0.8)
    assert aspect["spread"] == pytest.approx(0.6)
    assert aspect["between"] == pytest.approx(1)
    assert aspect["error_refitted"]["value"] < 0.05 < aspect["error_new"]["value"]
    made = read(tmp_path / "store/exports/new")
    calibration = made.judge.aspects["coherence"].calibration
    assert calibration is not None
    assert calibration.at(0.6 * 4 + 0.4) == pytest.approx(4, abs=0.02)


@pytest.mark.parametrize(("lm", "word"), [("scripted/lost", "agrees less"), ("scripted/noisy", "not shown")])
def test_an_lm_that_loses_is_not_carried(carrying: Carrying, lm: str, word: str, tmp_path: Path) -> None:
    margin = "0.03" if lm == "scripted/lost" else "0.001"
    code, found = carrying(export(tmp_path / "old"), lm, "--margin", margin)
    assert (code, found["verdict"], found["export"]) == (1, "recompile", None)
    assert word in found["why"] or "agrees less" in found["why"]
    assert not (tmp_path / "store/exports").exists()


def test_the_margin_is_the_users(carrying: Carrying, tmp_path: Path) -> None:
    address = export(tmp_path / "old")
    _, found = carrying(address, "scripted/noisy", "--margin", "0.001", "--shift", "1")
    _, wide = carrying(address, "scripted/noisy", "--margin", "0.5", "--shift", "1")
    assert (found["verdict"], wide["verdict"]) == ("recompile", "carry")


def test_recorded_scores_speak_for_an_lm_that_is_gone(carrying: Carrying, tmp_path: Path) -> None:
    code, found = carrying(export(tmp_path / "old", spec="scripted/gone"), "scripted/same")
    assert (code, found["verdict"], found["old_scores"]) == (0, "carry", "recorded")
    assert "was retired" in found["notes"][0]


def test_stored_replies_speak_for_an_lm_that_is_gone(
    carrying: Carrying, tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = export(tmp_path / "old", keeps=False)
    assert carrying(address, "scripted/same")[0] == 0

    def gone(prompt: str) -> str:
        raise AssertionError("the old LM was asked")

    monkeypatch.setitem(__import__("tests.runs.carrying", fromlist=["LMS"]).LMS, "scripted/old", gone)
    code, found = carrying(address, "scripted/same", "--name", "again")
    assert (code, found["old_scores"], found["sources"]) == (0, "asked", len(RATED.groups))


def test_nothing_that_speaks_for_the_old_lm_is_an_error(carrying: Carrying, tmp_path: Path, capsys: Any) -> None:
    for number, more in enumerate(({"keeps": False}, {"by": "folds"})):
        address = export(tmp_path / f"old{number}", spec="scripted/gone", **more)
        assert command.main([str(address), "--lm", "scripted/same", "--data", carrying.data]) == 2
        assert "keeps no scores" in capsys.readouterr().err


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
    rated = file_of(
        tmp_path / "rated.jsonl", [replace(g, id=f"n{g.id}", source=f"New: {g.source}") for g in RATED.groups]
    )
    arguments = {
        "carry": [address, "--lm", "scripted/same", "--data", rated],
        "recheck": [address, "--data", rated],
        "measure": [rated, "--program", address],
    }[name]
    arguments += ["--store", str(tmp_path / "store")]
    main = import_module(COMMANDS[name][0]).main
    assert main(arguments) == 2
    assert f"--config judge={OWN} " in " ".join(capsys.readouterr().err.split())
    assert (asked, module in sys.modules) == ([], False)
    assert main([*arguments, "--config", f"judge={OWN}"]) == 0, capsys.readouterr().err


def test_what_is_missing_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = str(export(tmp_path / "old"))
    assert command.main([address]) == 2
    assert "--lm" in capsys.readouterr().err
    assert command.main([address, "--lm", "scripted/same"]) == 2
    assert "mine.jsonl" in capsys.readouterr().err


def test_the_table_is_printed(carrying: Carrying, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "c.json"
    arguments = ["--lm", "scripted/lost", "--data", carrying.data, "--store", str(tmp_path / "s"), "--json", str(out)]
    assert command.main([str(export(tmp_path / "old")), *arguments]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("recompile: ")
    assert "12 held-out sources" in printed
    assert json.loads(out.read_text())["verdict"] == "recompile"
