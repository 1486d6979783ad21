"""Compiling on data whose ratings are categories: the decisions reach the table, the JSON, the run and the export."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from debate_judge.data.agreement.decisions import DecisionRule
from debate_judge.data.agreement.tables import GroupScores
from debate_judge.optimize import compile as command
from debate_judge.optimize.evaluation.comparison import _common_cut, _dev_cut
from debate_judge.optimize.evaluation.held_out import HeldOutEvaluation
from debate_judge.optimize.search.points import Point
from tests.config_keys import keys

RIVERS = (
    "Ash", "Birch", "Cedar", "Dogwood", "Elder", "Fir", "Gorse", "Hazel", "Ivy", "Juniper", "Larch", "Maple",
)  # fmt: skip
QUICK = ["--max-rounds", "1", "--tuner", "none", *keys(trials=4, resamples=100, json="r.json", report="none")]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def lines(path: Path, records: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def decision_rules() -> str:
    """Pairs of a right and a hallucinated answer."""
    records = [
        {
            "knowledge": f"The town of {river}ham lies on the {river}. It has a mill and {number} bridges.",
            "question": f"On which river does {river}ham lie?",
            "right_answer": f"It lies on the {river}.",
            "hallucinated_answer": f"It lies on the {RIVERS[number - 1]} and is famous for its cathedral.",
        }
        for number, river in enumerate(RIVERS)
    ]
    return f"halueval={lines(Path('questions.json'), records)}"


def contests() -> str:
    """Open questions with two answers each."""
    folder = Path("contests")
    folder.mkdir()
    numbers = range(len(RIVERS))
    texts = {
        "question.jsonl": [f"What is there to see on the {river}?" for river in RIVERS],
        "answer_gpt35.jsonl": [f"On the {r} there are {n} bridges and a mill. See both." for n, r in enumerate(RIVERS)],
        "answer_vicuna-13b.jsonl": [f"I would not know about {'it ' * n}" for n in numbers],
    }
    for name, found in texts.items():
        lines(folder / name, [{"question_id": n, "text": found[n]} for n in numbers])
    labels = ["CHATGPT", "VICUNA13B", "TIE", "CHATGPT"] * 3
    (folder / "review_gpt35_vicuna-13b_human.txt").write_text("\n".join(labels), encoding="utf-8")
    return f"faireval={folder}"


def compiled(*arguments: str) -> dict[str, Any]:
    assert command.main([*arguments, *QUICK]) == 0
    found: dict[str, Any] = json.loads(Path("r.json").read_text(encoding="utf-8"))
    return found


def logged(run_id: str) -> dict[str, float]:
    """The numbers that a run keeps beside its metrics."""
    path = Path("runs/store/artifacts") / run_id / "artifacts" / "metrics.json"
    details: dict[str, float] = json.loads(path.read_text())
    return details


@pytest.mark.integration
def test_two_valued_ratings(capsys: pytest.CaptureFixture[str]) -> None:
    result = compiled("--data", decision_rules(), "--judge", "hallucination-single")
    decisions = result["decisions"]
    assert {"single", "informed_single", "uncompiled", "compiled"} <= set(decisions)
    one = decisions["compiled"]["factuality"]
    assert (one["kind"], one["threshold"], one["cut"]) == ("binary", 0.5, 0.5)
    assert one["labels"]["positive"] == one["labels"]["negative"] == one["sources"]
    assert result["chosen"]["factuality"]["granularity"] == "given"
    printed = capsys.readouterr().out
    # Every candidate is decided on by one cut for all sources, so agreement is pooled although there are groups.
    assert "sample-level" in printed
    assert "positive is 0.5 or more" in printed
    assert "compiled hallucination-check" in printed
    assert "--judge hallucination-single" in printed
    manifest = json.loads((Path(result["export"]) / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["evidence"]["decisions"] == decisions
    metrics = logged(result["run_id"])
    assert metrics["held_out/compiled/factuality/accuracy"] == one["measures"]["accuracy"]["value"]
    assert metrics["held_out/compiled/factuality/auroc_low"] == one["measures"]["auroc"]["low"]


@pytest.mark.integration
def test_pairs_that_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    result = compiled("--data", contests(), "--judge", "chateval-compare")
    decisions = result["decisions"]
    assert set(decisions) == {"single", "informed_single", "uncompiled", "compiled"}
    one = decisions["uncompiled"]["preference"]
    assert one["kind"] == "pairs"
    assert sum(one["labels"].values()) == sum(one["decisions"].values()) == one["sources"]
    assert set(one["measures"]) == {"accuracy", "kappa", "balanced_accuracy", "auroc"}
    printed = capsys.readouterr().out
    assert "win / tie / loss" in printed
    assert "summary-level" in printed
    # Three referees, two turns, two orders, for two candidates.
    assert "/6.0/" in printed


@pytest.mark.parametrize(("calls", "expected"), [(1.0, "single call"), (1.2, "single call"), (3.0, "n = 0")])
def test_a_choice_without_rounds_is_a_single_call_if_it_is_one(calls: float, expected: str) -> None:
    from debate_judge.optimize.reporting.formatting import describe_point

    assert describe_point(Point("none", "default", 0, False, "given"), calls) == expected


def rated(part: str, shift: float) -> list[GroupScores]:
    return [GroupScores(f"{part} {n}", ("a", "b"), (1.0, 0.0), (0.7 + shift, 0.3 + shift)) for n in range(4)]


def test_the_cut_is_tuned_on_dev_alone_and_one_for_all_folds_changes_no_decision() -> None:
    question = DecisionRule("binary", 0.5, 0.5)

    def evaluation(shift: float) -> HeldOutEvaluation:
        """Of a fold whose scores are too low or too high on dev, and not elsewhere."""
        dev, train, held_out = rated("dev", shift), rated("train", -shift), rated("held-out", 0)
        splits = SimpleNamespace(dev=SimpleNamespace(groups=[SimpleNamespace(id=group.group) for group in dev]))
        search = SimpleNamespace(chosen=SimpleNamespace(scores={"a": [*train, *dev]}))
        plan = SimpleNamespace(data=SimpleNamespace(splits=splits))
        return cast(
            HeldOutEvaluation, SimpleNamespace(plan=plan, searches={"a": search}, scores={"compiled": {"a": held_out}})
        )

    folds = [evaluation(shift) for shift in (-0.4, 0.3)]
    cuts = [_dev_cut(fold, "a", question) for fold in folds]
    assert [(cut.cut, cut.chosen_on) for cut in cuts] == [(pytest.approx(0.1), "dev"), (pytest.approx(0.8), "dev")]
    scores = [fold.scores["compiled"]["a"] for fold in folds]
    whole, moved = _common_cut(cuts, scores)
    assert whole.cut == pytest.approx(0.45)
    assert [s >= (whole.cut or 0) for group in moved for s in group.scores if s is not None] == [
        s >= (cut.cut or 0)
        for cut, own in zip(cuts, scores, strict=True)
        for g in own
        for s in g.scores
        if s is not None
    ]
