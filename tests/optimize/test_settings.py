"""Settings: where they come from, which of two wins, and what is refused with which words."""

from __future__ import annotations

from argparse import ArgumentParser

import pytest

from debate_judge.optimize.compile import build_parser
from debate_judge.optimize.settings import Settings
from debate_judge.runs.flags.lm import limits
from debate_judge.runs.flags.parser import read


def settings(*given: str) -> Settings:
    return read(Settings, build_parser().parse_args(given))


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
    assert (found.chosen_by.level, found.chosen_by.correlation) == (level, correlation)
    assert found.metric == f"{level}/{correlation}", "however it is written, it is the same compile"


@pytest.mark.parametrize("measure", ["mae", "ccc", "kappa"])
def test_a_compile_may_maximize_closeness(measure: str) -> None:
    found = settings("--metric", f"summary/{measure}").chosen_by
    assert (found.closest, found.level) == (measure, "summary")
    # What is shown of agreement stays a correlation.
    assert found.correlation == "spearman"
    assert settings("--metric", measure).metric == f"auto/{measure}"


def test_help_says_every_default_and_choice() -> None:
    text = " ".join(build_parser().format_help().split())
    for part in (
        "--effort EFFORT how much is tried: light, medium, heavy (default: light)",
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
    options = limits(Settings(**given))
    assert (options.attempt, options.deadline) == (attempt, deadline)
