"""The estimate of a compile against what the compile then executes."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from debate_judge.optimize import compile as command
from debate_judge.optimize.estimate import estimate_compile
from debate_judge.optimize.plan import make_plan
from debate_judge.optimize.run import make_reflection_lm
from debate_judge.optimize.settings import Settings
from debate_judge.programs.dry_run import DryRunTransport, EstimateCase
from debate_judge.runs.estimates import NO_LIMITS, Estimate
from debate_judge.runs.runner import JudgeRunner
from debate_judge.runs.shared_flags import personas
from tests.config_keys import keys
from tests.fakes import debater, requested, scripted_lm, section
from tests.optimize.compiles import compiled
from tests.optimize.small_corpus import small_corpus
from tests.programs.tables import table_script

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def estimated(**settings: Any) -> Estimate:
    named = Settings(**{"data": str(small_corpus(Path())), "folds": 1, **settings})
    return estimate_compile(make_plan(named, personas(None)))


def executed(*arguments: str) -> int:
    usual = ["--data", str(small_corpus(Path())), *keys(folds=1, report="none")]
    usual += keys(preflight=False, json="r.json")
    assert command.main([*usual, *arguments]) == 0
    calls: int = json.loads(Path("r.json").read_text())["lm_calls"]["answered"]
    return calls


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        ({}, 0.25),
        ({"judge": "geval", "tuner": "none"}, 0.01),
        # What two searches try differently adds up, and depends on a few points of each.
        ({"max_rounds": 1, "trials": 4, "folds": 4}, 0.35),
        pytest.param({"tuner": "gepa", "max_rounds": 1}, 0.35, marks=pytest.mark.soak),
        pytest.param({"tuner": "mipro", "max_rounds": 1, "trials": 4}, 0.35, marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_what_a_compile_executes_lies_within_its_estimate(settings: dict[str, Any], factor: float) -> None:
    estimate = estimated(aspects=("coherence",), **settings)
    usual, most = (used.calls for used in estimate.total)
    real = executed("--aspects", "coherence", *keys(**settings))
    assert real <= most + 1e-6
    assert usual == pytest.approx(real, rel=factor)
    for expected, at_most in [*estimate.rows.values(), estimate.total]:
        for name in ("calls", "input_tokens", "output_tokens", "usd"):
            assert 0 <= getattr(expected, name) <= getattr(at_most, name)
    # All sources are in the sample, so that what is expected is what the compile did; it is not paid again.
    assert settings.get("tuner") != "none" or estimated(aspects=("coherence",), **settings).total[0].calls == 0


def test_the_command_needs_no_key_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    arguments = ["--aspects", "coherence", *keys(max_rounds=1, tuner="none", folds=1), "--lm", "openai/gpt-4o-mini"]
    assert command.main([*arguments, "--estimate", "--budget", "usd=0.01"]) == 0
    assert re.match(r"About \$[\d.]+ \(at most \$[\d.]+\), [\d,]+ calls", capsys.readouterr().out)
    assert list(tmp_path.iterdir()) == []


def always_disputing(prompt: str) -> str:
    """Scores by chance, and a Critic who never gives in: a reply takes as many calls as it can."""

    def chance(text: str) -> float:
        return 1 + zlib.crc32((prompt[-300:] + text).encode()) % 9 / 2

    if {"score", "rationale"} & set(requested(prompt)):
        return debater(score=str(chance(section(prompt, "candidate"))))(prompt)
    return table_script(lambda _, text: chance(text), lambda _, text: "Too high.")(prompt)


def test_a_light_compile_by_folds_executes_no_more_than_it_takes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    # The compile, too, prunes nothing.
    monkeypatch.setattr("debate_judge.optimize.search._PRUNED_SHARE", 0.0)
    settings = Settings(data=str(small_corpus(Path(), 8, 3)), aspects=("coherence", "fluency"), folds=4)
    most = estimate_compile(make_plan(settings, personas(None))).total[1].calls
    lm = scripted_lm(always_disputing)
    with JudgeRunner(lm, progress=False) as runner:
        author = make_reflection_lm(settings, lm, NO_LIMITS, DryRunTransport(EstimateCase(100, at_most=True)))
        compiled(settings, personas(None), runner, author)
    # Each call once: what stages and folds have in common is not paid again.
    assert len(lm.prompts) == len(set(lm.prompts))
    assert 0.4 * most < lm.meter.executed.total() <= most
