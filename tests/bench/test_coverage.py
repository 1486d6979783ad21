"""The bench of intervals and p-values runs, on few samples of the sample set."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from debate_judge.data.agreement.tables import agreement_table
from tests.bench.coverage import coverage, main, truths, type_one
from tests.bench.rated_populations import Population, exchanged, populations


@pytest.fixture(scope="module")
def population() -> Population:
    return next(populations("sample", seed=0))


def test_the_bench_prints_coverage_and_type_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "c.json"
    assert main(["--replicates", "2", "--groups", "5,7", "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert set(found["coverage"]["summary"]) == {"5", "7"}
    assert {"summary", "summary, difference", "sample", "f1", "kappa", "auroc"} <= set(found["coverage"])
    # Below six groups there is no p-value, and so no error.
    assert found["type_one"]["summary"]["5"][0] == 0
    printed = capsys.readouterr().out
    assert "coverage, now / percentile bootstrap" in printed
    assert "p < .05 for equal judges" in printed


def test_the_truth_is_the_value_of_the_whole_set(population: Population) -> None:
    groups = population.groups(0, population.everything)
    value = agreement_table({"x": groups}, resamples=0).aspects["x"]["summary"]["spearman"].value
    assert value is not None
    assert 0.2 < value < 0.8
    assert truths(population)["summary"] == value


def test_intervals_of_nearly_the_whole_set_hold_its_value(population: Population) -> None:
    found = coverage(population, [60], 2, seed=3)["summary"][60]
    assert found == (1.0, 1.0, 2)


def test_exchanged_judges_hold_the_same_scores_in_another_order(population: Population) -> None:
    which = np.arange(6)
    equal = exchanged(population, which, np.random.default_rng(1))
    before = np.sort(np.stack([judge[which] for judge in population.judges]), axis=0)
    assert np.array_equal(np.sort(np.stack(equal.judges), axis=0), before)
    assert any(not np.array_equal(a, b[which]) for a, b in zip(equal.judges, population.judges, strict=True))


def test_equal_judges_are_compared_in_families_of_all_but_one(population: Population) -> None:
    found = type_one(population, [6], 2, seed=0)
    assert set(found) == {"summary", "sample", f"any of {len(population.judges) - 1}, Holm"}
