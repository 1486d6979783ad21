"""Held-out sources: a file of the user's own, and the ledger of uses of their figures."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from debate_judge.data.agreement.results import Agreement
from debate_judge.optimize.plan import CompilePlan
from debate_judge.optimize.settings import Settings
from debate_judge.runs.tracking.held_out_reuse import (
    LOG_FILE,
    HeldOutReuse,
    expected_largest,
    inflation,
    record_held_out_use,
)  # fmt: skip
from tests.optimize.compiles import plan_of
from tests.optimize.small_corpus import small_corpus


def test_all_sources_of_the_other_file_are_train_and_dev(tmp_path: Path) -> None:
    groups = [json.loads(line) for line in small_corpus(tmp_path, 12, 3).read_text().splitlines()]
    # Row numbers and the like may be the same in both files.
    held_out = [{**group, "group": groups[n]["group"]} for n, group in enumerate(groups[8:])]
    for name, part in (("d.jsonl", groups[:8]), ("h.jsonl", held_out)):
        (tmp_path / name).write_text("".join(json.dumps(group) + "\n" for group in part))
    files = {"data": str(tmp_path / "d.jsonl"), "held_out": str(tmp_path / "h.jsonl")}
    data = plan_of(Settings(**files, aspects=("coherence",)), {}).data
    assert {g.source for g in data.splits.held_out.groups} == {group["source"] for group in held_out}
    assert [len(part.groups) for part in (data.splits.train, data.splits.dev)] == [4, 4]
    assert len({g.id for g in data.corpus.groups}) == 12
    assert data.evaluation_corpus == data.splits.held_out


# --- the ledger ---


def agreement(low: float | None = 0.2, high: float | None = 0.6) -> Agreement:
    return Agreement(0.4, low, high, statistic="spearman", level="summary", groups=10, undefined=0, unscored=0)


def plan(store: Path, **settings: Any) -> CompilePlan:
    values: dict[str, Any] = {"store": str(store), "tuner": "none", "aspects": ("coherence",), "folds": 1} | settings
    return plan_of(Settings(**values), {})


def use(at: CompilePlan) -> HeldOutReuse:
    store, data = Path(at.settings.store), at.data
    return record_held_out_use(store, at.identity, data.corpus, data.evaluation_corpus, agreement(), {})


def test_other_seeds_aspects_and_options_on_the_same_sources_count_and_other_sources_do_not(tmp_path: Path) -> None:
    first = plan(tmp_path)
    others = [plan(tmp_path, seed=8), plan(tmp_path, max_rounds=1), plan(tmp_path, aspects=("fluency",))]
    assert [use(each).times for each in (first, *others)] == [1, 2, 3, 4]
    assert use(first).times == 4
    records = [json.loads(line) for line in (tmp_path / LOG_FILE).read_text().splitlines()]
    assert set(records[0]["held_out"]) != set(records[1]["held_out"]), "another seed has another held-out part"
    corpus = first.data.corpus
    groups = tuple(replace(group, source=f"{group.source} Other {group.id}.") for group in corpus.groups)
    splits = replace(first.data.splits, held_out=replace(corpus, groups=groups[:8]))
    data = replace(first.data, corpus=replace(corpus, groups=groups), splits=splits)
    assert use(replace(first, identity="another", data=data)).times == 1


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
    use(plan(tmp_path))
    with (tmp_path / LOG_FILE).open("ab") as out:
        out.write(broken)
    second = use(plan(tmp_path, seed=8))
    assert (second.times, second.unreadable) == (2, 1)
    assert LOG_FILE in str(second)
    assert use(plan(tmp_path, seed=9)).times == 3


def test_a_ledger_that_cannot_be_written_costs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / LOG_FILE).mkdir()
    assert use(plan(tmp_path)) == HeldOutReuse(1, 0.0)
    assert "could not be written" in caplog.text


def test_the_inflation_is_the_standard_error_times_the_expected_largest_of_normal_values() -> None:
    assert expected_largest(1) == pytest.approx(0, abs=1e-6)
    assert expected_largest(3) == pytest.approx(1.5 / math.sqrt(math.pi), abs=1e-6)
    simulated = np.random.default_rng(0).normal(size=(20_000, 30)).max(axis=1).mean()
    assert expected_largest(30) == pytest.approx(simulated, abs=0.02)
    # t(9) has its 97.5 % point at 2.262, so that an interval of .4 rests on a standard error of .0884.
    assert inflation(2, agreement()) == pytest.approx(0.0884 / math.sqrt(math.pi), abs=1e-4)
    assert inflation(1, agreement()) == 0
    assert inflation(2, agreement(None, None)) is None
    assert "unknown" in str(HeldOutReuse(2, None))
    assert str(HeldOutReuse(1, 0.0)) == ""
