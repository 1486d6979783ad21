"""A light compile executes no more calls than its estimate says at most, by folds as it is by default."""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path
from typing import Any

import pytest

from debate_judge.optimize.estimate import estimate_compile
from debate_judge.optimize.reflection import make_reflection_lm
from debate_judge.optimize.search import study
from debate_judge.optimize.settings import Settings
from debate_judge.programs.dry_run import DryRunTransport, EstimateCase
from debate_judge.runs.flags.judge import personas
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import debater, requested, scripted_lm, section
from tests.optimize.compiles import compiled
from tests.programs.tables import table_script

pytestmark = pytest.mark.integration

ASPECTS = ("coherence", "consistency", "fluency", "relevance")
TEXTS = personas(None)


def light(folder: Path, sources: int, candidates: int, aspects: int, **settings: Any) -> Settings:
    """A light compile of a made corpus."""
    rng = random.Random(0)

    def candidate(i: int, j: int) -> dict[str, Any]:
        text = f"Text {j} of {i}, worth {rng.randint(1, 5)}."
        return {"id": f"c{j}", "text": text, "ratings": {a: rng.randint(1, 5) for a in ASPECTS[:aspects]}}

    rows = [
        {"task": "summarization", "group": f"g{i}", "source": f"Source {i} tells of {i * i} and {rng.random()}.",
         "candidates": [candidate(i, j) for j in range(candidates)]}
        for i in range(sources)
    ]  # fmt: skip
    (folder / "made.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return Settings(data=str(folder / "made.jsonl"), store=str(folder / "store"), **settings)


def always_disputing(prompt: str) -> str:
    """Scores by chance, and a Critic who never gives in: a reply takes as many calls as it can."""

    def chance(text: str) -> float:
        return 1 + zlib.crc32((prompt[-300:] + text).encode()) % 9 / 2

    if "score" in requested(prompt) or "rationale" in requested(prompt):
        return debater(score=str(chance(section(prompt, "candidate"))))(prompt)
    return table_script(lambda _, text: chance(text), lambda _, text: "Too high.")(prompt)


def run_compile(settings: Settings) -> int:
    """Calls that a compile executes."""
    lm = scripted_lm(always_disputing)
    with JudgeRunner(lm, progress=False) as runner:
        author = make_reflection_lm(settings, lm, DryRunTransport(EstimateCase(100, at_most=True)))
        compiled(settings, TEXTS, runner, author)
    # Each of them once: what stages and folds have in common is not paid again.
    assert len(lm.prompts) == len(set(lm.prompts))
    return lm.meter.executed.total()


def test_a_light_compile_by_folds_executes_no_more_than_it_takes_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The compile, too, prunes nothing.
    monkeypatch.setattr(study, "_PRUNED_SHARE", 0.0)
    settings = light(tmp_path, 8, 3, 2, folds=4)
    executed, most = run_compile(settings), estimate_compile(settings, TEXTS).total[1].calls
    assert 0.5 * most < executed <= most
