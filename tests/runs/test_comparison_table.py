"""The table of a comparison: who is told apart from whom, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from debate_judge.programs.judge import Verdict
from debate_judge.programs.transcript import Transcript, Turn
from debate_judge.runs.comparison.results import AVERAGE, Comparison, compare_all
from debate_judge.runs.comparison.table import format_usd, judges_table
from debate_judge.runs.evaluation.rows import EvaluatedJudge
from debate_judge.runs.reports.absolute_agreement import table_by_judge
from tests.printed_output import printed
from tests.runs.rated_corpora import COHERENCE, FLUENCY, evaluated_judge, setup

MANY = setup(*([1, 2, 3, 4, 5] for _ in range(24)), aspects=(COHERENCE, FLUENCY), resamples=2000)


def right(rating: float, group: int) -> float:
    return rating


def wrong(rating: float, group: int) -> float:
    return -rating


def torn(rating: float, group: int) -> float:
    """Right and wrong by turns."""
    return rating if group % 2 else -rating


def costing(judge: EvaluatedJudge, calls: float) -> EvaluatedJudge:
    """The same, as if a debate of so many calls had been held about each item."""
    return replace(
        judge,
        rows=tuple(
            replace(
                row, judgement=Verdict(row.score or 0.0, 0, "single call", calls, Transcript((Turn("scorer", 0, ""),)))
            )
            for row in judge.rows
        ),
    )


def compared(entries: Mapping[str, EvaluatedJudge], baseline: str) -> Comparison:
    return compare_all(MANY, entries, baseline=baseline)


def test_the_best_of_a_column_is_marked_where_it_differs_from_every_other() -> None:
    entries = {
        "a": evaluated_judge(MANY, coherence=right, fluency=right),
        "b": evaluated_judge(MANY, coherence=torn, fluency=right),
        "c": evaluated_judge(MANY, coherence=wrong, fluency=wrong),
    }
    assert compared(entries, "a").best == {"coherence": "a", "fluency": None, AVERAGE: "a"}


def test_differences_are_to_the_baseline_and_corrected() -> None:
    judges = {
        name: evaluated_judge(MANY, coherence=one, fluency=one)
        for name, one in (("a", torn), ("b", right), ("c", torn))
    }
    found = compared(judges, "a")
    assert {name: one.value for name, one in found.differences.items()} == {"b": pytest.approx(1), "c": 0}
    # Two comparisons: Holm doubles the smaller p-value.
    assert found.corrected_p_values == {"b": pytest.approx(2 * (found.differences["b"].p_value or 1)), "c": 1}
    assert found.to_json()["differences"]["b"]["p_corrected"] == found.corrected_p_values["b"]


def test_marks_are_corrected_over_all_columns() -> None:
    # In 6 of 24 groups b is wrong: 2 / 2^6 = .031 by sign flips, significant alone, not as one of three columns.
    def nearly(rating: float, group: int) -> float:
        return -rating if group < 6 else rating

    alone = replace(MANY, aspects=(COHERENCE,))
    entries = {"a": evaluated_judge(alone, coherence=right), "b": evaluated_judge(alone, coherence=nearly)}
    assert compare_all(alone, entries, baseline="a").best["coherence"] == "a"
    entries = {
        "a": evaluated_judge(MANY, coherence=right, fluency=right),
        "b": evaluated_judge(MANY, coherence=nearly, fluency=right),
    }
    found = compared(entries, "a")
    assert found.differences["b"].p_value == pytest.approx(2 / 2**6)
    assert set(found.best.values()) == {None}


def test_level_and_decisions_of_the_judges_on_the_raters_scale() -> None:
    def high(rating: float, group: int) -> float:
        return min(5.0, rating + 1)

    entries = {
        "high": evaluated_judge(MANY, coherence=high, fluency=high),
        "off the scale": evaluated_judge(MANY, coherence=wrong, fluency=wrong),
        "a metric": replace(evaluated_judge(MANY, coherence=right, fluency=right), on_scale=False),
        "right": evaluated_judge(MANY, coherence=right, fluency=right),
    }
    found = compare_all(
        replace(MANY, cuts={"coherence": 4.0, "fluency": 4.0}), entries, baseline="right"
    ).absolute_agreement
    # The baseline first, for changes are from it.
    assert list(found) == ["right", "high"]
    exact, off = found["right"][AVERAGE], found["high"][AVERAGE]
    assert [exact.measures[m].value for m in ("mae", "ccc", "kappa")] == pytest.approx([0, 1, 1])
    # 1, 2, 3, 4, 5 become 2, 3, 4, 5, 5: four of five a point off, and one decision of five another.
    assert off.measures["mae"].value == pytest.approx(0.8)
    assert off.measures["kappa"].value == pytest.approx((0.8 - 0.48) / (1 - 0.48))
    assert off.changes["mae"].value == pytest.approx(0.8)
    table = table_by_judge(found)
    assert table.header == ("judge", "error", "CCC", "kappa at 4", "scores")
    assert table.rows[1][1] == "0.80 [0.80, 0.80] (+0.80 [+0.80, +0.80])"
    assert [row[-1] for row in table.rows] == ["240", "240"]
    assert compare_all(MANY, entries, baseline="right").absolute_agreement == {}


# --- how it is shown ---


@pytest.fixture
def shown() -> Comparison:
    entries = {
        "the_best": costing(evaluated_judge(MANY, coherence=right, fluency=right), 6.25),
        "other": evaluated_judge(MANY, coherence=wrong, fluency=torn),
    }
    return compared(entries, "other")


def test_the_text_marks_the_best_and_gives_the_interval_of_the_average(shown: Comparison) -> None:
    table = judges_table(shown)
    assert table.header[:2] == ("judge", "coherence ρ/τ-b")
    # What is wider than a terminal goes on below.
    assert max(map(len, printed(table).splitlines())) <= 100
    parts = [part.splitlines()[-2:] for part in printed(table).split("\n\n")]
    first, second = ("  ".join(lines) for lines in zip(*parts, strict=True))
    assert "1.000/1.000 *" in first
    # All 24 groups are at the end: the exact bound on their share is .025^(1/24) = .857, on the scale 2 * .857 - 1.
    assert "1.000/1.000 * [0.715, 1.000]" in first
    assert "6.25" in first
    assert "< 0.001" in first
    assert "*" not in second
    assert [line.split("  ")[0] for part in parts for line in part] == ["the_best", "other"] * len(parts)
    assert second.count("–") == 3, "no calls, and no difference to itself"
    assert "$" not in " ".join(table.header), "no price is known"


@pytest.mark.parametrize(
    ("usd", "expected"), [(0, "0"), (0.0123, "0.012"), (0.5, "0.5"), (1.5, "1.50"), (12.345, "12.35")]
)
def test_money(usd: float, expected: str) -> None:
    assert format_usd(usd) == expected
