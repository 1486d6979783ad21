"""Settings: where they come from, which of two wins, and which of them decide the result."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

import pytest

from debate_judge.optimize.compile import build_parser
from debate_judge.optimize.settings import Settings
from debate_judge.programs.debate.personas import PERSONAS
from debate_judge.runs.flags.lm import lm_options
from debate_judge.runs.flags.parser import read_settings
from debate_judge.runs.tracking.contents import prompts_of
from tests.optimize.compiles import plan_of


def settings(*given: str) -> Settings:
    return read_settings(Settings, build_parser().parse_args(given))


def flags(parser: ArgumentParser) -> list[str]:
    return [action.option_strings[-1] for action in parser._actions if action.option_strings and action.dest != "help"]


def test_the_flags_of_a_compile_fit_one_screen() -> None:
    parser = build_parser()
    assert flags(parser) == [
        *("--estimate", "--data", "--columns", "--task", "--aspects", "--judge", "-J", "--lm", "--api-base"),
        *("--concurrency", "--rpm", "--budget", "--tuner", "--reflection-lm", "--effort", "--max-rounds", "--metric"),
        *("--examples", "--folds", "--held-out", "--seed", "--name", "--tracking-uri", "--store", "--config"),
    ]
    assert len(flags(parser)) <= 25
    assert len(parser.format_help().splitlines()) <= 52


@pytest.mark.parametrize(
    ("given", "level", "correlation"),
    [
        ("auto/spearman", "auto", "spearman"),
        ("summary/kendall", "summary", "kendall"),
        ("pearson", "auto", "pearson"),
        ("sample", "sample", "spearman"),
    ],
)
def test_a_metric_is_a_level_and_a_correlation(given: str, level: str, correlation: str) -> None:
    found = settings("--metric", given)
    assert (found.metric_choice.level, found.metric_choice.correlation) == (level, correlation)
    assert found.metric == f"{level}/{correlation}", "however it is written, it is the same compile"


@pytest.mark.parametrize("measure", ["mae", "ccc", "kappa"])
def test_a_compile_may_maximize_absolute_agreement(measure: str) -> None:
    found = settings("--metric", f"summary/{measure}").metric_choice
    assert (found.absolute_measure, found.level) == (measure, "summary")
    # What is shown of agreement stays a correlation.
    assert found.correlation == "spearman"
    assert settings("--metric", measure).metric == f"auto/{measure}"


def test_help_says_every_default_and_choice() -> None:
    text = " ".join(build_parser().format_help().split())
    for part in (
        "--effort EFFORT effort of tuning and search: light, medium, heavy (default: light)",
        "(default: runs/store)",
        "LM calls in flight at once (default: 16)",
        "--seed N seed of every random choice (default: 0)",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("given", "attempt", "deadline"), [({}, 300, 900), ({"timeout": 5000.0}, 5000, 15000), ({"timeout": 0.5}, 0.5, 1.5)]
)
def test_a_call_may_take_three_times_as_long_as_an_attempt(
    given: dict[str, float], attempt: float, deadline: float
) -> None:
    options = lm_options(Settings(**given))
    assert (options.attempt_timeout, options.deadline) == (attempt, deadline)


# --- from Python ---


def test_the_identity_is_what_decides_the_result() -> None:
    base = Settings().identity()
    same = [
        Settings(name="x"),
        Settings(store="elsewhere"),
        Settings(json="r.json"),
        Settings(tracking_uri="http://localhost:5000"),
        Settings(concurrency=2),
        Settings(rpm=1.0),
        Settings(budget="calls=1"),
    ]
    assert {s.identity() for s in same} == {base}
    other = [
        Settings(data="summeval"),
        Settings(task="dialogue"),
        Settings(columns=("text=answer",)),
        Settings(sources="20"),
        Settings(aspects=("coherence",)),
        Settings(judge="single"),
        Settings(personas="mine.toml"),
        Settings(lm="openai/m"),
        Settings(api_base="http://localhost:8000/v1"),
        Settings(tuner="none"),
        Settings(effort="heavy"),
        Settings(trials=7),
        Settings(max_rounds=1),
        Settings(metric="kendall"),
        Settings(metric="sample"),
        Settings(shared=True),
        Settings(seed=1),
        Settings(resamples=1000),
    ]
    assert len({base, *(s.identity() for s in other)}) == len(other) + 1


def test_one_name_for_run_export_model_and_prompts(tmp_path: Path) -> None:
    texts = {name: persona.text for name, persona in PERSONAS.items()}
    named, usual = (plan_of(Settings(store=str(tmp_path), **given), texts) for given in ({"name": "mine"}, {}))
    assert (named.name, named.model_name) == ("mine", "mine")
    assert (usual.name.startswith("sample-debate-offline-"), usual.model_name) == (True, "debate-summarization")
    found = prompts_of(named.model_name, {"coherence": {"scorer": "Rate.", "critic": ""}})
    assert found == {"mine.coherence.scorer": "Rate."}
