"""A light compile of 20 sources x 16 candidates x 4 aspects by a single split stays under 6,000 calls, as estimated."""

from __future__ import annotations

import json
import random
import zlib
from typing import Any

import pytest

from debate_judge.optimize.context import NoTracking, Run
from debate_judge.optimize.estimation import sample
from debate_judge.optimize.estimation.estimate import estimate_compile
from debate_judge.optimize.job import prepared
from debate_judge.optimize.proof.procedure import prove
from debate_judge.optimize.reflection import reflection_lm
from debate_judge.optimize.settings import Settings
from debate_judge.programs.debate.personas import PERSONAS
from debate_judge.programs.dry_run import DryRunEngine, EstimateCase
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import debater, requested, scripted_lm, section
from tests.programs.tables import reading

MOST = 6000
ASPECTS = ("coherence", "consistency", "fluency", "relevance")
TEXTS = {name: persona.text for name, persona in PERSONAS.items()}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A light compile of a made corpus."""
    folder, rng = tmp_path_factory.mktemp("light"), random.Random(0)

    def candidate(i: int, j: int) -> dict[str, Any]:
        text = f"Text {j} of {i}, worth {rng.randint(1, 5)}."
        return {"id": f"c{j}", "text": text, "ratings": {aspect: rng.randint(1, 5) for aspect in ASPECTS}}

    rows = [
        {"task": "summarization", "group": f"g{i}", "source": f"Source {i} tells of {i * i} and {rng.random()}.",
         "candidates": [candidate(i, j) for j in range(16)]}
        for i in range(20)
    ]  # fmt: skip
    (folder / "made.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return Settings(data=str(folder / "made.jsonl"), store=str(folder / "store"), folds=1)


def test_the_upper_estimate_of_a_light_compile_is_below_the_promise(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two sources of each part tell as much here as more of them, for all have as many candidates.
    monkeypatch.setattr(sample, "SAMPLED", 64)
    low, usual, high = (used.calls for used in estimate_compile(settings, TEXTS).total)
    assert 1000 < low < usual < high < MOST


def quarrelsome(prompt: str) -> str:
    """Scores by chance, and a Critic who never gives in: a reply takes as many calls as it can."""

    def chance(text: str) -> float:
        return 1 + zlib.crc32((prompt[-300:] + text).encode()) % 9 / 2

    if "score" in requested(prompt) or "rationale" in requested(prompt):
        return debater(score=str(chance(section(prompt, "candidate"))))(prompt)
    return reading(lambda _, text: chance(text), lambda _, text: "TOO HIGH")(prompt)


def test_a_light_compile_executes_fewer_calls_than_promised(settings: Settings) -> None:
    lm = scripted_lm(quarrelsome)
    plan = prepared(settings, TEXTS)
    with JudgeRunner(lm, progress=False) as runner:
        author = reflection_lm(settings, lm, DryRunEngine(EstimateCase("upper", 100)))
        run = Run.of(plan, runner, NoTracking(), author)
        prove(run)
    # Each of them once: what stages have in common is not paid again.
    assert len(lm.prompts) == len(set(lm.prompts))
    assert 2000 < lm.meter.executed.total() < MOST
