"""The estimate of a compile against what the compile then executes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from debate_judge.optimize import compile as command
from debate_judge.optimize.estimate import estimate_compile
from debate_judge.optimize.settings import Settings
from debate_judge.runs.estimates import Estimate
from debate_judge.runs.flags.judge import personas
from tests.config_keys import keys
from tests.optimize.small_corpus import small_corpus

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def estimated(**settings: Any) -> Estimate:
    return estimate_compile(Settings(**{"data": str(small_corpus(Path())), "folds": 1, **settings}), personas(None))


def executed(*arguments: str) -> int:
    usual = ["--data", str(small_corpus(Path())), *keys(folds=1, report="none")]
    usual += keys(preflight=False, json="r.json")
    assert command.main([*usual, *arguments]) == 0
    calls: int = json.loads(Path("r.json").read_text())["lm_calls"]["answered"]
    return calls


LONG = pytest.mark.soak
"""Further compiles are tried in long runs."""


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        ({}, 0.25),
        ({"judge": "geval", "tuner": "none"}, 0.01),
        # What two searches try differently adds up, and depends on a few points of each.
        ({"max_rounds": 1, "trials": 4, "folds": 4}, 0.35),
        # In a small search much depends on the few points that a sampler happens to visit.
        pytest.param({"max_rounds": 1, "trials": 4}, 0.35, marks=LONG),
        pytest.param({"tuner": "none", "max_rounds": 2}, 0.25, marks=LONG),
        pytest.param({"tuner": "gepa", "max_rounds": 1}, 0.35, marks=LONG),
        pytest.param({"tuner": "mipro", "max_rounds": 1, "trials": 4}, 0.35, marks=LONG),
        pytest.param({"max_rounds": 0}, 0.25, marks=LONG),
    ],
    ids=str,
)
def test_what_a_compile_executes_lies_within_its_estimate(settings: dict[str, Any], factor: float) -> None:
    usual, most = (used.calls for used in estimated(aspects=("coherence",), **settings).total)
    real = executed("--aspects", "coherence", *keys(**settings))
    assert real <= most + 1e-6
    assert usual == pytest.approx(real, rel=factor)


def test_a_stage_takes_no_less_at_most_than_is_expected() -> None:
    estimate = estimated(aspects=("coherence", "fluency"), max_rounds=1, trials=16, tuner="mipro")
    assert set(estimate.rows) == {"tuning", "search", "held-out"}
    for expected, most in [*estimate.rows.values(), estimate.total]:
        for name in ("calls", "input_tokens", "output_tokens", "usd"):
            assert 0 <= getattr(expected, name) <= getattr(most, name)


def test_what_a_compile_has_paid_is_not_estimated_again() -> None:
    settings = {"aspects": ("coherence",), "tuner": "none", "max_rounds": 1, "trials": 100}
    assert estimated(**settings).total[0].calls > 0
    executed("--aspects", "coherence", *keys(tuner="none", max_rounds=1, trials=100))
    # All sources are in the sample, so that what is expected is what the compile did.
    assert estimated(**settings).total[0].calls == 0


def test_the_command_needs_no_key_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    arguments = ["--aspects", "coherence", *keys(max_rounds=1, tuner="none", folds=1), "--lm", "openai/gpt-4o-mini"]
    assert command.main([*arguments, "--estimate", "--budget", "usd=0.01"]) == 0
    output = capsys.readouterr().out
    assert re.match(r"About \$[\d.]+ \(at most \$[\d.]+\), [\d,]+ calls", output)
    assert "--budget: usd=0.01" in output
    assert list(tmp_path.iterdir()) == []
