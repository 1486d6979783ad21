"""A compile by folds through its command line: what it prints, writes and exports."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from debate_judge.optimize import compile as command
from tests.config_keys import keys
from tests.optimize.small_corpus import small_corpus

pytestmark = pytest.mark.integration

FLAGS = [
    *(*keys(report="none"), "--data", "small.jsonl"),
    *("--aspects", "coherence,fluency", "--max-rounds", "1", *keys(trials=2), "--folds", "4", *keys(resamples=100)),
    *("--store", "store", *keys(json="r.json")),
]


@dataclass
class Compiled:
    folder: Path
    result: dict[str, Any]
    printed: str
    stops: int
    asked: list[str]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """A compile that its budget stops a few times on the way, and which goes on each time."""
    from debate_judge.programs.offline import engine as offline

    folder = tmp_path_factory.mktemp("compiled")
    small_corpus(folder)
    asked: list[str] = []
    answer = offline.OfflineEngine.answer

    def counted(self: offline.OfflineEngine, system: str, user: str, settings: Any) -> Any:
        asked.append(f"{system}\n{user}\n{settings}")
        return answer(self, system, user, settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(offline.OfflineEngine, "answer", counted)
        stops = 0
        for budget in ("calls=30", "calls=60"):
            stops += command.main([*FLAGS, "--budget", budget]) != 0
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert command.main(FLAGS) == 0
    return Compiled(folder, json.loads((folder / "r.json").read_text()), out.getvalue(), stops, asked)


def test_a_compile_that_was_stopped_pays_no_call_twice(compiled: Compiled) -> None:
    assert compiled.stops == 2
    assert len(compiled.asked) == len(set(compiled.asked)) > 120


def test_the_summary_says_what_the_figures_are(compiled: Compiled) -> None:
    printed = " ".join(compiled.printed.split())
    assert "on 12 sources" in printed
    assert "the procedure, by 4 folds" in printed
    assert "uses all 12 sources" in printed
    assert "too narrow" in printed
    assert re.search(r"By folds: \d\.\d\d to \d\.\d\d \(standard deviation \d\.\d\d\)", printed)
    assert "(corrected for 2 aspects, Bonferroni)" in printed
    assert "12 paired sources" in printed
    why = compiled.result["exported"]["why"]
    assert f"What is exported? {why[0].upper()}{why[1:]}." in printed


def test_json_run_and_export_say_the_same(compiled: Compiled) -> None:
    from mlflow import MlflowClient

    folds = compiled.result["folds"]
    assert folds["count"] == 4
    assert folds["sources"] == [3, 3, 3, 3]
    assert all(math.isfinite(value) for value in (*folds["compiled"], *folds["gain"]))
    export = compiled.folder / compiled.result["export"]
    evidence = json.loads((export / "manifest.json").read_text())["evidence"]
    assert evidence["folds"] == folds
    assert set(evidence["splits"]) == {"train", "dev"}, "no part is held out of the exported judge"
    assert evidence["exported"] == compiled.result["exported"]
    assert compiled.result["held_out"]["compiled"]["average"]["summary"]["spearman"]["groups"] == 12
    run = MlflowClient(f"sqlite:///{compiled.folder / 'store' / 'mlflow.db'}").get_run(compiled.result["run_id"])
    assert folds["note"] in run.data.tags["mlflow.note.content"]
    artifacts = compiled.folder / "store" / "artifacts" / run.info.run_id / "artifacts"
    assert json.loads((artifacts / "folds.json").read_text()) == folds
    parts = {one.tags[0].value: json.loads(one.dataset.profile)["groups"] for one in run.inputs.dataset_inputs}
    assert parts == {"train": 6, "dev": 6, "held_out": 12}


def test_the_ledger_counts_one_look_at_all_sources(compiled: Compiled) -> None:
    lines = (compiled.folder / "store" / "held_out_uses.jsonl").read_text().splitlines()
    assert len(lines) == 1
    assert len(json.loads(lines[0])["held_out"]) == 12
