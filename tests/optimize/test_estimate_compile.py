"""The estimate of a compile against what the compile then executes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from debate_judge.optimize import compile as command
from debate_judge.optimize.estimation.estimate import estimate_compile
from debate_judge.optimize.search import study
from debate_judge.optimize.settings import Settings
from debate_judge.runs.estimates.dry_run import Estimate
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
    calls: int = json.loads(Path("r.json").read_text())["lm_calls"]["executed"]
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
    low, usual, high = (used.calls for used in estimated(aspects=("coherence",), **settings).total)
    real = executed("--aspects", "coherence", *keys(**settings))
    assert low - 1e-6 <= real <= high + 1e-6
    assert usual == pytest.approx(real, rel=factor)


def test_every_stage_has_a_row_for_every_judge() -> None:
    estimate = estimated(aspects=("coherence", "fluency"), max_rounds=1, trials=16, tuner="mipro")
    stages = ("tuning, proposals", "tuning, evaluations", "search, debates", "search, tie-breaks", "held-out")
    rows_of_aspects = {f"{a}: {stage}" for a in ("coherence", "fluency") for stage in stages}
    assert set(estimate.rows) == rows_of_aspects
    # Three texts for each role, and a summary of the data in two steps.
    assert [used.calls for used in estimate.rows["coherence: tuning, proposals"]] == [11, 11, 11]
    for row in estimate.rows.values():
        for name in ("calls", "input_tokens", "output_tokens", "usd"):
            values = [getattr(used, name) for used in row]
            assert values == sorted(values)


def test_what_a_compile_has_paid_is_not_estimated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # The upper case asks about what would be pruned, which the compile has not.
    monkeypatch.setattr(study, "_UNPRUNED_TRIALS", 1000)
    settings = {"aspects": ("coherence",), "tuner": "none", "max_rounds": 1, "trials": 100}
    before = estimated(**settings)
    executed("--aspects", "coherence", *keys(tuner="none", max_rounds=1, trials=100))
    after = estimated(**settings)
    assert before.total[0].calls > 0
    assert after.total[0].calls == 0
    # The estimate does not know what the search chose, and so what of held-out was asked.
    assert {name for name, row in after.rows.items() if row[2].calls} <= {"coherence: held-out"}


def test_the_command_needs_no_key_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    arguments = ["--aspects", "coherence", *keys(max_rounds=1, tuner="none", folds=1), "--lm", "openai/gpt-4o-mini"]
    assert command.main([*arguments, "--estimate", "--budget", "usd=0.01"]) == 0
    output = capsys.readouterr().out
    for words in ("Estimate for openai/gpt-4o-mini", "coherence: held-out", "--budget: usd=0.01"):
        assert words in output
    assert list(tmp_path.iterdir()) == []
