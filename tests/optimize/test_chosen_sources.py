"""A compile learns from sources that were chosen to be rated, and is measured on the others alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from debate_judge.optimize import compile as command
from debate_judge.runs.export.folder import read
from debate_judge.runs.export.recorded import recorded_in
from tests.config_keys import keys
from tests.optimize.small_corpus import small_corpus

pytestmark = pytest.mark.integration

CHOSEN = 3
GROUPS = 12


def test_folds_measure_on_those_that_were_not_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = small_corpus(tmp_path, GROUPS)
    groups = [json.loads(line) for line in file.read_text().splitlines()]
    for group in groups[:CHOSEN]:
        group["drawn"] = 0.5
    file.write_text("".join(json.dumps(group) + "\n" for group in groups))
    flags = ["--data", "small.jsonl", "--aspects", "coherence,fluency", "--folds", "4", "--name", "mine"]
    settings = keys(trials=2, resamples=100, preflight=False)
    assert command.main([*flags, "--max-rounds", "0", "--tuner", "none", *settings]) == 0
    assert f"on {GROUPS - CHOSEN} sources that the judge was neither tuned nor chosen on" in " ".join(
        capsys.readouterr().out.split()
    )
    evidence = read("runs/store/exports/mine").manifest["evidence"]
    recorded = recorded_in({"evidence": evidence})
    assert recorded is not None
    assert (len(recorded.sources), len(recorded.seen)) == (GROUPS - CHOSEN, GROUPS)
    assert {gain["groups"] for gain in evidence["gains"].values()} <= set(range(GROUPS - CHOSEN + 1))
    assert set(evidence["gains"]) == {"coherence", "fluency"}
