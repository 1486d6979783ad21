"""The bench of prediction-powered intervals runs, and its worlds are what it says they are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.bench.powered import made_up, main


def test_the_bench_prints_coverage_and_savings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "p.json"
    assert main(["--replicates", "40", "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert set(found["judge 0.8"]) == {"20", "50", "100"}
    assert all(one["mean"] > 0.8 for by_size in found.values() for one in by_size.values())
    assert found["judge 0.8"]["50"]["mean, saved"] > 30
    assert found["judge 0"]["50"]["mean, saved"] < 5
    assert "judge 0.5" in capsys.readouterr().out


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_a_judge_follows_what_raters_look_at(correlation: float) -> None:
    ratings, scores = made_up(correlation, 20_000)(np.random.default_rng(0))
    found = float(np.corrcoef(ratings[:, 0], scores[:, 0])[0, 1])
    # Half points and the raters' noise take some of it.
    assert 0.75 * correlation - 0.02 <= found <= correlation + 0.02
