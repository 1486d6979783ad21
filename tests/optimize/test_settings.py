"""Settings: where they come from, which of two wins, and which of them decide the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from debate_judge.optimize.compile import build_parser
from debate_judge.optimize.settings import Settings
from debate_judge.programs.debate.personas import PERSONAS
from debate_judge.runs.flags.lm import lm_options
from debate_judge.runs.flags.parser import read_settings
from debate_judge.runs.tracking.contents import prompts_of
from tests.optimize.compiles import plan_of


def test_the_flags_of_a_compile_fit_one_screen() -> None:
    parser = build_parser()
    flags = [a.option_strings[-1] for a in parser._actions if a.option_strings and a.dest != "help"]
    assert flags == [
        *("--estimate", "--data", "--columns", "--task", "--aspects", "--judge", "-J", "--lm", "--api-base"),
        *("--concurrency", "--rpm", "--budget", "--tuner", "--reflection-lm", "--effort", "--max-rounds", "--metric"),
        *("--examples", "--folds", "--held-out", "--seed", "--name", "--tracking-uri", "--store", "--config"),
    ]
    assert len(parser.format_help().splitlines()) <= 52
    help_text = " ".join(parser.format_help().split())
    assert "--effort EFFORT effort of tuning and search: light, medium, heavy (default: light)" in help_text


def test_a_file_without_its_flag_is_answered_with_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["ratings.csv"])
    assert "--data ratings.csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "metric", "correlation", "absolute"),
    [
        ("auto/spearman", "auto/spearman", "spearman", None),
        ("summary/kendall", "summary/kendall", "kendall", None),
        ("pearson", "auto/pearson", "pearson", None),
        ("sample", "sample/spearman", "spearman", None),
        # What is shown of agreement stays a correlation.
        ("summary/mae", "summary/mae", "spearman", "mae"),
        ("ccc", "auto/ccc", "spearman", "ccc"),
        ("kappa", "auto/kappa", "spearman", "kappa"),
    ],
)
def test_a_metric_is_a_level_and_a_correlation_or_an_absolute_measure(
    given: str, metric: str, correlation: str, absolute: str | None
) -> None:
    settings = read_settings(Settings, build_parser().parse_args(["--metric", given]))
    assert settings.metric == metric, "however it is written, it is the same compile"
    choice = settings.metric_choice
    assert (choice.level, choice.correlation) == (metric.partition("/")[0], correlation)
    assert (choice.absolute_measure or None) == absolute


@pytest.mark.parametrize(
    ("given", "attempt", "deadline"), [({}, 300, 900), ({"timeout": 5000.0}, 5000, 15000), ({"timeout": 0.5}, 0.5, 1.5)]
)
def test_a_call_may_take_three_times_as_long_as_an_attempt(
    given: dict[str, float], attempt: float, deadline: float
) -> None:
    options = lm_options(Settings(**given))
    assert (options.attempt_timeout, options.deadline) == (attempt, deadline)


def test_the_identity_is_what_decides_the_result() -> None:
    base = Settings().identity()
    same: list[dict[str, Any]] = [
        *({"name": "x"}, {"store": "elsewhere"}, {"json": "r.json"}, {"tracking_uri": "http://localhost:5000"}),
        *({"concurrency": 2}, {"rpm": 1.0}, {"budget": "calls=1"}),
    ]
    assert {Settings(**given).identity() for given in same} == {base}
    other: list[dict[str, Any]] = [
        *({"data": "summeval"}, {"task": "dialogue"}, {"columns": ("text=answer",)}, {"sources": "20"}),
        *({"aspects": ("coherence",)}, {"judge": "single"}, {"personas": "mine.toml"}, {"lm": "openai/m"}),
        *({"api_base": "http://localhost:8000/v1"}, {"tuner": "none"}, {"effort": "heavy"}, {"trials": 7}),
        *({"max_rounds": 1}, {"metric": "kendall"}, {"metric": "sample"}, {"shared": True}, {"seed": 1}),
        *({"resamples": 1000}, {"examples": "8"}),
    ]
    assert len({base, *(Settings(**given).identity() for given in other)}) == len(other) + 1


def test_one_name_for_run_export_model_and_prompts(tmp_path: Path) -> None:
    texts = {name: persona.text for name, persona in PERSONAS.items()}
    named, usual = (plan_of(Settings(store=str(tmp_path), **given), texts) for given in ({"name": "mine"}, {}))
    assert (named.name, named.model_name) == ("mine", "mine")
    assert (usual.name.startswith("sample-debate-offline-"), usual.model_name) == (True, "debate-summarization")
    found = prompts_of(named.model_name, {"coherence": {"scorer": "Rate.", "critic": ""}})
    assert found == {"mine.coherence.scorer": "Rate."}
