"""Calibration in a compile: what it is fitted on, and what it costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from debate_judge.optimize import compile as command
from debate_judge.optimize.estimation.estimate import estimate_compile
from debate_judge.optimize.settings import Settings
from debate_judge.runs.flags.judge import personas
from tests.config_keys import keys

pytestmark = pytest.mark.integration

SAMPLE = Path(__file__).parents[2] / "data" / "sample" / "summarization.jsonl"


def test_sources_of_equal_ratings_count_and_are_part_of_the_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They rank nothing, so that no judge is tuned or chosen by them, but they tell how high the raters go."""
    monkeypatch.chdir(tmp_path)
    with open("rated.jsonl", "w") as out:
        for number, line in enumerate(SAMPLE.read_text().splitlines()):
            group = json.loads(line)
            for candidate in group["candidates"]:
                relevance = candidate["ratings"]["relevance"]
                candidate["ratings"] = {"relevance": relevance if number % 3 else 5}
            out.write(json.dumps(group) + "\n")
    found = estimate_compile(Settings(data="rated.jsonl", max_rounds=0, folds=1), personas(None))
    given = ["--data", "rated.jsonl", "--max-rounds", "0", *keys(resamples=100, preflight=False)]
    given += ["--folds", "1"]
    assert command.main([*given, *keys(json="r.json")]) == 0
    result = json.loads(Path("r.json").read_text())
    # 14 of the 24 sources are train and dev, 112 texts.
    assert result["calibration"]["relevance"]["fitted_on"] == {"groups": 14, "candidates": 112}
    assert "relevance: calibration" in found.rows
    low, _, high = (used.calls for used in found.total)
    assert low - 1e-6 <= result["lm_calls"]["executed"] <= high + 1e-6
    calibrated, own = result["calibration"]["relevance"], result["held_out"]["compiled"]["aspects"]["relevance"]
    assert calibrated["spearman"] == calibrated["spearman_after"] == own["summary"]["spearman"]["value"]
    # The judge thinks less of these texts than their raters do.
    assert calibrated["bias"]["value"] < calibrated["bias_after"]["value"]
    assert calibrated["change"]["value"] < 0
