"""The learning curve: what it learns from, that its end is the compiled judge, and what it costs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

pytestmark = pytest.mark.integration

ASPECTS = ("consistency", "relevance")
QUICK = [
    *("--aspects", ",".join(ASPECTS), "--max-rounds", "0", "--folds", "1"),
    *keys(report="none", resamples=100, preflight=False),
]


def test_steps_double_up_to_all() -> None:
    assert train_sizes(7, "summary") == [0, 4, 7]
    assert train_sizes(32, "summary") == [0, 4, 8, 16, 32]
    assert train_sizes(40, "summary") == [0, 4, 8, 16, 40]
    assert train_sizes(3, "summary") == [0, 3]
    assert train_sizes(60, "sample") == [0, 16, 32, 60]


def test_each_part_holds_the_smaller_ones_in_the_order_of_train() -> None:
    train = data.load("sample")
    parts = [train_subset(train, size, 3) for size in (0, 4, 8, 24)]
    ids = [[group.id for group in part.groups] for part in parts]
    assert [len(part) for part in ids] == [0, 4, 8, 24]
    assert set(ids[1]) < set(ids[2]) < set(ids[3])
    assert ids[3] == [group.id for group in train.groups]
    assert ids[2] == [name for name in ids[3] if name in ids[2]]
    assert ids[1] != [group.id for group in train_subset(train, 4, 4).groups]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A compile with a learning curve, the same once more, and what was estimated before."""
    folder = tmp_path_factory.mktemp("compile")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        sample = Path(data.__file__).parent / "sample" / "summarization.jsonl"
        records = [json.loads(line) for line in sample.read_text().splitlines()]
        few = [{**record, "candidates": record["candidates"][:4]} for record in records]
        Path("few.jsonl").write_text("".join(json.dumps(record) + "\n" for record in few))
        settings = Settings(data="few.jsonl", aspects=ASPECTS, max_rounds=0, folds=1, learning_curve=True)
        found: dict[str, Any] = {"estimate": estimate_compile(settings, personas(None)), "settings": settings}
        for name in ("first", "second"):
            assert command.main([*QUICK, "--data", "few.jsonl", *keys(learning_curve=True, json=f"{name}.json")]) == 0
            found[name] = json.loads(Path(f"{name}.json").read_text())
        found["figures"] = [path.name for path in folder.rglob("learning-curve.png")]
        kept = sorted(folder.rglob("learning_curve.json"))
        found["kept"] = [json.loads(path.read_text()) for path in kept]
    return found


def test_the_last_step_is_the_compiled_judge(compiled: dict[str, Any]) -> None:
    result = compiled["first"]
    curve = result["learning_curve"]
    assert [step["sources"] for step in curve["steps"]] == [0, 4, 7]
    last = curve["steps"][-1]["agreement"]["aspects"]
    for aspect in ASPECTS:
        own = result["held_out"]["compiled"]["aspects"][aspect]["summary"]["spearman"]
        assert (last[aspect]["summary"]["spearman"] == own) == (aspect not in curve["aspects_without_knowledge"])
        fixed, chosen = curve["fixed"][aspect], result["chosen"][aspect]
        assert {**fixed, "knowledge": ""} == {**chosen, "knowledge": ""}
        assert fixed["knowledge"] == "guide"
    assert curve["steps"][0]["difference_to_previous_step"] is None
    for before, after in zip(curve["steps"], curve["steps"][1:], strict=False):
        found = after["difference_to_previous_step"]
        values = [step["agreement"]["average"]["summary"]["spearman"]["value"] for step in (before, after)]
        assert found["value"] == pytest.approx(values[1] - values[0])
        assert found["low"] < found["value"] < found["high"]


def test_it_is_kept_in_the_run_and_asks_nothing_a_second_time(compiled: dict[str, Any]) -> None:
    first, second = compiled["first"], compiled["second"]
    assert second["lm_calls"]["executed"] == 0
    assert second["learning_curve"] == first["learning_curve"]
    assert len(compiled["figures"]) == 2
    assert compiled["kept"] == [first["learning_curve"]] * 2


def test_the_estimate_knows_it(compiled: dict[str, Any]) -> None:
    low, usual, high = (used.calls for used in compiled["estimate"].total)
    executed = compiled["first"]["lm_calls"]["executed"]
    assert low - 1e-6 <= executed <= high + 1e-6
    assert usual == pytest.approx(executed, rel=0.35)
    assert any("learning curve" in line for line in notes(compiled["settings"]))


@dataclass(frozen=True)
class Step:
    sources: int
    table: AgreementTable
    difference: Difference | None


def steps(*noises: float) -> list[Step]:
    """Judges that rank 12 groups of four, the worse the larger their number."""
    found: list[Step] = []
    before: dict[str, list[GroupScores]] | None = None
    for number, noise in enumerate(noises):
        own = {"clarity": [group(i, i / 12 < noise) for i in range(12)]}
        minus = None if before is None else compare(own, before, resamples=100)
        found.append(Step(4 * number, agreement_table(own, resamples=100), minus))
        before = own
    return found


def group(number: int, wrong: bool) -> GroupScores:
    scores = (2.0, 1.0, 4.0, 3.0) if wrong else (1.0, 2.0, 3.0, 4.0)
    return GroupScores(f"g{number}", tuple("abcd"), (1.0, 2.0, 3.0, 4.0), scores)


def test_the_last_step_is_put_into_words() -> None:
    assert "It seems so" in summary_text(steps(1, 0.9, 0.1))
    assert "not seem so" in summary_text(steps(0.1, 0.9))
    assert "cannot tell" in summary_text(steps(0.5, 0.4))
