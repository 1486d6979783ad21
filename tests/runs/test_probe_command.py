"""Bias probes of a comparison: what they print and write, what they are estimated at, and that they go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from debate_judge import data
from debate_judge.data.schema import group_to_json
from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.lm.reply import InMemoryStore
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs import compare
from debate_judge.runs.comparison.flags import CompareFlags
from debate_judge.runs.comparison.setup import prepare
from debate_judge.runs.estimates.dry_run import EstimateTarget
from debate_judge.runs.evaluation.evaluate import estimate_evaluation, evaluate
from debate_judge.runs.evaluation.perturbations import PERTURBATIONS
from debate_judge.runs.export import folder as export
from debate_judge.runs.runner.runner import JudgeRunner
from tests.stores import count

ASPECTS = ["coherence", "relevance"]


@pytest.fixture(scope="module")
def rated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight groups of the sample, with three candidates each."""
    path = tmp_path_factory.mktemp("data") / "rated.jsonl"
    records = [group_to_json(group) for group in data.load("sample").groups[:8]]
    lines = [{**r, "task": "summarization", "candidates": r["candidates"][:3]} for r in records]  # type: ignore[index]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def program(tmp_path: Path) -> Path:
    task = data.load("sample").task
    judge = AspectJudge(build("debate", {**JUDGES["single"].config, "together": 8}), "half")
    compiled = CompiledJudge(task, {name: judge for name in ASPECTS})
    return export.save(tmp_path / "mine", compiled, lm={"spec": "offline"}, evidence={}, name="mine")


def run(rated: Path, folder: Path, *more: str) -> int:
    quick = ["--config", "report=none", "--config", "resamples=100", "--part", "all"]
    return compare.main(["--data", str(rated), "--store", str(folder / "store"), *quick, *more])


def test_an_export_is_probed_in_its_own_aspects_by_its_own_lm(
    rated: Path, program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--judges", f"{program},single", "--probes", "order,longer", "--json", str(tmp_path / "p")]
    given += ["--tracking-uri", f"sqlite:///{tmp_path}/runs.db"]
    assert run(rated, tmp_path, *given) == 0
    said = capsys.readouterr()
    printed = said.out
    assert "then open http" in said.err
    found: dict[str, Any] = json.loads((tmp_path / "p").read_text())
    assert list(found["judges"]) == ["mine", "single"]
    # Calls about perturbed candidates are no cost of the judge.
    assert found["judges"]["single"]["lm_calls_per_item"] == 1
    about, found = found, found["probes"]
    assert list(found["judges"]) == ["mine", "single"]
    assert set(found["probes"]) == {"order", "longer"}
    assert about["lm"] == {"spec": "offline", "stand_in": True}
    assert about["data"]["aspects"] == ASPECTS
    longer = found["judges"]["mine"]["longer"]
    assert set(longer) == {*ASPECTS, "all aspects"}
    assert longer["coherence"]["items"] == 24
    assert longer["coherence"]["change"]["low"] < longer["coherence"]["change"]["value"]
    assert found["judges"]["mine"]["order"]["relevance"]["items"] == 16
    assert found["judges"]["single"]["order"]["relevance"]["change"] is None
    assert "stand-in" in printed
    assert "compiled on another split" not in printed
    # The same again asks nothing and says the same; the run holds it, too.
    replies = tmp_path / "store" / "replies" / "offline"
    before = count(replies)
    assert run(rated, tmp_path, *given) == 0
    assert before > 0
    assert count(replies) == before
    assert capsys.readouterr().out == printed
    kept = [json.loads(file.read_text()) for file in (tmp_path / "store" / "artifacts").rglob("comparison.json")]
    assert kept == [about, about]


@pytest.mark.integration
def test_what_it_executes_is_what_it_estimates(rated: Path, program: Path, tmp_path: Path) -> None:
    judges, store = (str(program), "single"), str(tmp_path / "store")
    plan = prepare(CompareFlags(data=str(rated), part="all", judges=judges, probes=("all",), store=store))
    setup = plan.setup
    found = estimate_evaluation(
        EstimateTarget("offline"), setup.corpus, setup.aspects, plan.entrants, plan.perturbations, setup.seed
    )
    assert list(found.rows) == ["mine", "single", *(f"probe {name}" for name in PERTURBATIONS)]
    lm = make_lm("offline", store=InMemoryStore())
    with JudgeRunner(lm, progress=False) as runner:
        evaluate(runner, plan.entrants, setup.corpus, setup.aspects, plan.perturbations, setup.seed)
    assert {round(used.calls) for used in found.total} == {lm.meter.executed.total()}
