"""The learning curve: what it learns from, that its end is the compiled judge, what it costs, and what it says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from debate_judge import data
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.agreement.tables import AgreementTable, Difference, agreement_table, compare
from debate_judge.optimize import compile as command
from debate_judge.optimize.estimation.estimate import estimate_compile, notes
from debate_judge.optimize.evaluation.learning_curve import train_sizes, train_subset
from debate_judge.optimize.settings import Settings
from debate_judge.runs.flags.judge import personas
from debate_judge.runs.reports.learning_curve import summary_text
from tests.config_keys import keys
from tests.optimize.small_corpus import small_corpus

ASPECTS = ("consistency", "relevance")


def test_steps_double_up_to_all() -> None:
    sizes = {
        (count, level): train_sizes(count, level) for count, level in ((7, "summary"), (3, "summary"), (60, "sample"))
    }
    assert list(sizes.values()) == [[0, 4, 7], [0, 3], [0, 16, 32, 60]]
    assert train_sizes(40, "summary") == [0, 4, 8, 16, 40]


def test_each_part_holds_the_smaller_ones_in_the_order_of_train() -> None:
    train = data.load("sample")
    ids = [[group.id for group in train_subset(train, size, 3).groups] for size in (0, 4, 8, 24)]
    assert [len(part) for part in ids] == [0, 4, 8, 24]
    assert set(ids[1]) < set(ids[2]) < set(ids[3])
    assert ids[3] == [group.id for group in train.groups]
    assert ids[2] == [name for name in ids[3] if name in ids[2]]
    assert ids[1] != [group.id for group in train_subset(train, 4, 4).groups]


@pytest.mark.integration
def test_its_last_step_is_the_compiled_judge_and_it_is_estimated_kept_and_paid_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = str(small_corpus(tmp_path, 24, 4))
    settings = Settings(data=file, aspects=ASPECTS, max_rounds=0, folds=1, learning_curve=True)
    estimate = estimate_compile(settings, personas(None))
    assert any("learning curve" in line for line in notes(settings))
    flags = ["--data", file, "--aspects", ",".join(ASPECTS), "--max-rounds", "0", "--folds", "1"]
    flags += keys(report="none", resamples=100, preflight=False, learning_curve=True, json="r.json")
    results = []
    for _ in range(2):
        assert command.main(flags) == 0
        results.append(json.loads(Path("r.json").read_text()))
    first, second = results
    low, usual, high = (used.calls for used in estimate.total)
    assert low - 1e-6 <= first["lm_calls"]["executed"] <= high + 1e-6
    assert usual == pytest.approx(first["lm_calls"]["executed"], rel=0.35)
    curve = first["learning_curve"]
    assert (second["lm_calls"]["executed"], second["learning_curve"]) == (0, curve)
    assert len([*tmp_path.rglob("learning-curve.png")]) == 2
    assert [json.loads(path.read_text()) for path in tmp_path.rglob("learning_curve.json")] == [curve] * 2

    assert [step["sources"] for step in curve["steps"]] == [0, 4, 7]
    last = curve["steps"][-1]["agreement"]["aspects"]
    for aspect in ASPECTS:
        held_out = first["held_out"]["compiled"]["aspects"][aspect]["summary"]["spearman"]
        assert (last[aspect]["summary"]["spearman"] == held_out) == (aspect not in curve["aspects_without_knowledge"])
        fixed, chosen = curve["fixed"][aspect], first["chosen"][aspect]
        assert {**fixed, "knowledge": ""} == {**chosen, "knowledge": ""}
        assert fixed["knowledge"] == "guide"
    values = [step["agreement"]["average"]["summary"]["spearman"]["value"] for step in curve["steps"]]
    assert curve["steps"][0]["difference_to_previous_step"] is None
    for step, before, value in zip(curve["steps"][1:], values, values[1:], strict=False):
        difference = step["difference_to_previous_step"]
        assert difference["value"] == pytest.approx(value - before)
        assert difference["low"] < difference["value"] < difference["high"]


@dataclass(frozen=True)
class Step:
    sources: int
    table: AgreementTable
    difference: Difference | None


def steps(*wrong: float) -> list[Step]:
    """Judges that rank 12 groups of four, and this share of them in a wrong order."""
    curve: list[Step] = []
    before: dict[str, list[GroupScores]] | None = None
    for number, share in enumerate(wrong):
        rated = (1.0, 2.0, 3.0, 4.0)
        scores = [(2.0, 1.0, 4.0, 3.0) if i / 12 < share else rated for i in range(12)]
        scored = {"clarity": [GroupScores(f"g{i}", tuple("abcd"), rated, s) for i, s in enumerate(scores)]}
        difference = None if before is None else compare(scored, before, resamples=100)
        curve.append(Step(4 * number, agreement_table(scored, resamples=100), difference))
        before = scored
    return curve


@pytest.mark.parametrize(
    ("wrong", "words"), [((1, 0.9, 0.1), "It seems so"), ((0.1, 0.9), "not seem so"), ((0.5, 0.4), "cannot tell")]
)
def test_the_last_step_is_put_into_words(wrong: tuple[float, ...], words: str) -> None:
    assert words in summary_text(steps(*wrong))
