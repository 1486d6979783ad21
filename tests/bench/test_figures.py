"""The benches of intervals run, and their made-up worlds are what they say they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.bench import conformal, prediction_powered, verdicts


@pytest.mark.integration
@pytest.mark.parametrize(
    ("main", "replicates", "world", "sizes"),
    [
        (conformal.main, 1, "8 texts, 33 % shared", {"10", "20", "50"}),
        (prediction_powered.main, 10, "judge 0.8", {"20", "50", "100"}),
        (verdicts.main, 2, "made up", {"50"}),
    ],
)
def test_a_bench_writes_its_figures(
    main: Callable[[list[str]], int],
    replicates: int,
    world: str,
    sizes: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verdicts, "SIZES", (50,))
    out = tmp_path / "f.json"
    assert main(["--replicates", str(replicates), "--json", str(out)]) == 0
    assert set(json.loads(out.read_text())[world]) == sizes


def test_the_second_judge_of_verdicts_is_worse_by_the_loss() -> None:
    population = verdicts.made_up(400, np.random.default_rng(0))
    first = population.agreement(0, verdicts.NOISE)
    assert 0.4 < first < 0.7
    assert population.agreement(1, verdicts.noise_for(population, 0.1)) == pytest.approx(first - 0.1, abs=0.002)


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_a_judge_follows_what_raters_look_at(correlation: float) -> None:
    ratings, scores = prediction_powered.made_up(correlation, 20_000)(np.random.default_rng(0))
    found = float(np.corrcoef(ratings[:, 0], scores[:, 0])[0, 1])
    # Half points and the raters' noise take some of it.
    assert 0.75 * correlation - 0.02 <= found <= correlation + 0.02
