"""The ledger of looks at held-out figures: what counts as one, what it says, and what a broken file does."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from debate_judge.data.agreement.results import Agreement
from debate_judge.optimize import compile as command
from debate_judge.optimize.plan import CompilePlan
from debate_judge.optimize.settings import Settings
from debate_judge.runs.tracking.held_out_reuse import (
    LOG_FILE,
    HeldOutReuse,
    expected_largest,
    inflation,
    record_held_out_use,
)
from tests.config_keys import keys
from tests.optimize.compiles import plan_of
from tests.printed_output import unwrapped


def agreement(value: float | None = 0.4, low: float | None = 0.2, high: float | None = 0.6) -> Agreement:
    return Agreement("spearman", "summary", value, low, high, 10, 0, 0, None)


def plan(store: Path, **settings: Any) -> CompilePlan:
    values: dict[str, Any] = {"store": str(store), "tuner": "none", "aspects": ("coherence",), "folds": 1} | settings
    return plan_of(Settings(**values), {})


def look(one: CompilePlan) -> HeldOutReuse:
    data = one.data
    return record_held_out_use(
        Path(one.settings.store), one.identity, data.corpus, data.evaluation_corpus, agreement(), {}
    )


def ledger(store: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (store / LOG_FILE).read_text().splitlines()]


def test_other_seeds_aspects_and_options_on_the_same_sources_count(tmp_path: Path) -> None:
    first = plan(tmp_path)
    others = [
        plan(tmp_path, seed=8),
        plan(tmp_path, max_rounds=1),
        plan(tmp_path, aspects=("fluency",)),
    ]
    assert [look(each).times for each in (first, *others)] == [1, 2, 3, 4]
    assert look(first).times == 4
    held_out = [set(record["held_out"]) for record in ledger(tmp_path)]
    assert held_out[0] != held_out[1], "another seed has another held-out part"


def test_other_sources_do_not_count(tmp_path: Path) -> None:
    one = plan(tmp_path)
    corpus = one.data.corpus
    groups = tuple(replace(group, source=f"{group.source} Other {group.id}.") for group in corpus.groups)
    held = replace(corpus, groups=groups[:8])
    splits = replace(one.data.splits, held_out=held)
    other = replace(
        one,
        identity="another",
        data=replace(one.data, corpus=replace(corpus, groups=groups), splits=splits),
    )
    assert look(one).times == 1
    assert look(other).times == 1
    assert len(ledger(tmp_path)) == 2


@pytest.mark.parametrize(
    "broken",
    [
        b'{"identity": "cut", "held_o',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"null",
        b'{"identity": 3, "held_out": ["a"]}',
        b'{"identity": "a", "held_out": [["a"]]}',
        b'{"identity": "a", "held_out": []}',
    ],
    ids=["cut", "not text", "nested", "null", "identity", "sources", "no sources"],
)
def test_a_broken_line_is_skipped_counted_and_swallows_nothing(tmp_path: Path, broken: bytes) -> None:
    look(plan(tmp_path))
    with (tmp_path / LOG_FILE).open("ab") as out:
        out.write(broken)
    second = look(plan(tmp_path, seed=8))
    assert (second.times, second.unreadable) == (2, 1)
    assert LOG_FILE in str(second)
    assert look(plan(tmp_path, seed=9)).times == 3


def test_a_ledger_that_cannot_be_written_costs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / LOG_FILE).mkdir()
    assert look(plan(tmp_path)) == HeldOutReuse(1, 0.0)
    assert "could not be written" in caplog.text


def test_the_expected_largest_of_normal_values() -> None:
    assert expected_largest(1) == pytest.approx(0, abs=1e-6)
    assert expected_largest(2) == pytest.approx(1 / math.sqrt(math.pi), abs=1e-6)
    assert expected_largest(3) == pytest.approx(1.5 / math.sqrt(math.pi), abs=1e-6)
    drawn = np.random.default_rng(0).normal(size=(20_000, 30)).max(axis=1).mean()
    assert expected_largest(30) == pytest.approx(drawn, abs=0.02)


def test_the_inflation_is_the_standard_error_times_the_expected_largest() -> None:
    # t(9) has its 97.5 % point at 2.262, so that an interval of .4 rests on a standard error of .0884.
    assert inflation(2, agreement()) == pytest.approx(0.0884 * 0.5642, abs=1e-4)
    assert inflation(1, agreement()) == 0
    assert inflation(2, agreement(low=None, high=None)) is None
    assert "an unknown amount" in str(HeldOutReuse(2, None))
    assert str(HeldOutReuse(1, 0.0)) == ""


@pytest.mark.integration
def test_a_second_look_is_told_in_summary_json_run_and_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    monkeypatch.chdir(tmp_path)
    look(plan(tmp_path / "store", seed=8))
    quick = ["--aspects", "coherence", "--tuner", "none", "--max-rounds", "0", *keys(trials=2, resamples=100)]
    assert command.main([*quick, "--folds", "1", "--store", "store", *keys(report="none", json="r.json")]) == 0
    result = json.loads(Path("r.json").read_text())
    uses = result["held_out_uses"]
    assert uses["times"] == 2
    assert 0 < uses["inflation"] < 1
    warning = f"seen 2 times; the best of 2 is inflated by about {uses['inflation']:.2g}"
    assert warning in unwrapped(capsys.readouterr().out)
    run = MlflowClient(f"sqlite:///{tmp_path / 'store' / 'mlflow.db'}").get_run(result["run_id"])
    assert run.data.metrics["held_out_uses"] == 2
    details = tmp_path / "store" / "artifacts" / result["run_id"] / "artifacts" / "metrics.json"
    assert json.loads(details.read_text())["held_out_uses_inflation"] == pytest.approx(uses["inflation"])
    assert warning in run.data.tags["held_out_uses"]
    assert json.loads((Path(result["export"]) / "manifest.json").read_text())["evidence"]["held_out_uses"] == uses
