"""The bench of verdicts runs, and its judges differ by what it says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.bench import verdicts


def test_the_second_judge_is_worse_by_the_loss() -> None:
    population = verdicts.made_up(400, np.random.default_rng(0))
    first = population.agreement(0, verdicts.NOISE)
    assert 0.4 < first < 0.7
    noise = verdicts.noise_for(population, 0.1)
    assert population.agreement(1, noise) == pytest.approx(first - 0.1, abs=0.002)


def test_the_bench_prints_shares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "SIZES", (100,))
    out = tmp_path / "v.json"
    assert verdicts.main(["--replicates", "12", "--json", str(out)]) == 0
    found = json.loads(out.read_text())["made up"]["100"]
    assert found["carry"]["margin"]["recompile"] >= 0.75
    assert found["carry"]["none"]["carry"] > found["carry"]["margin"].get("carry", 0)
    assert found["recheck"]["three margins"]["worse"] > 0.2
    assert "shares of n = 12 samples" in capsys.readouterr().out
