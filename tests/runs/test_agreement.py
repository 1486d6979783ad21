"""Agreement of scores in files with ratings: what is read and printed, and which decisions they amount to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from scipy import stats

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.runs import agreement as command
from debate_judge.runs.comparison.figures import EvaluatedJudge
from debate_judge.runs.comparison.job import read_external
from tests.runs.rated_corpora import COHERENCE, FLUENCY, corpus

Rows = list[dict[str, Any]]
Agreement = Callable[..., dict[str, Any]]

RATINGS = {"g1": [1, 2, 3, 4], "g2": [4, 3, 2, 1], "g3": [2, 2, 2, 2]}
SCORES = {"g1": [1.0, 2.0, 4.0, 3.0], "g2": [5.0, 3.0, 2.5, 1.0], "g3": [1.0, 2.0, 3.0, 4.0]}
ROWS: Rows = [
    {"group": g, "candidate": f"s{i}", "aspect": "coherence", "rating": RATINGS[g][i], "score": SCORES[g][i]}
    for g in RATINGS
    for i in range(4)
]


@pytest.fixture
def agreement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Agreement:
    """The command, over rows in a file; returns what it prints as JSON."""

    def values(rows: Rows, *more: str) -> dict[str, Any]:
        file = tmp_path / "r.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert command.main([str(file), "--json", "-", *more]) == 0
        table: dict[str, Any] = json.loads(capsys.readouterr().out)
        return table

    return values


def test_undefined_groups_are_counted(agreement: Agreement) -> None:
    table = agreement(ROWS)
    cell = table["aspects"]["coherence"]["summary"]["spearman"]
    correlations = [stats.spearmanr(RATINGS[g], SCORES[g]).statistic for g in ("g1", "g2")]
    assert cell["value"] == pytest.approx(sum(correlations) / 2)
    assert (cell["groups"], cell["undefined"], cell["unscored"]) == (2, 1, 0)
    assert set(table["average"]) == {"summary", "sample", "system"}
    # What is undefined everywhere is null in a file, never NaN.
    cell = agreement(ROWS[8:])["aspects"]["coherence"]["summary"]["pearson"]
    assert (cell["value"], cell["undefined"]) == (None, 1)


def test_several_raters_in_a_cell_and_missing_scores(agreement: Agreement) -> None:
    cells = (([1, 2, 3], 1), (4, 2.5), (3, None), (None, 3))
    rows = [{"group": "g", "candidate": n, "aspect": "a", "rating": r, "score": s} for n, (r, s) in enumerate(cells)]
    cell = agreement(rows)["aspects"]["a"]["summary"]["pearson"]
    assert (cell["value"], cell["unscored"]) == (pytest.approx(1.0), 1)
    two = agreement([{**row, "rating": [row["rating"], min(4, row["rating"] + 1)]} for row in ROWS])
    raters = two["raters"]["coherence"]
    assert raters["raters"] == 2
    assert None not in (raters["ceiling"]["value"], raters["alpha"])
    # A score of 5 lies outside the raters' scale of 1 to 4, so that a distance would mean nothing.
    assert raters["error"]["value"] is None


def pairs(*scores: float | None, ratings: tuple[tuple[float, float], ...] = ((1, 0), (1, 0), (1, 0))) -> list[Any]:
    """Groups of two candidates."""
    return [
        {"group": f"g{i // 2}", "candidate": str(i % 2), "aspect": "a", "rating": ratings[i // 2][i % 2], "score": s}
        for i, s in enumerate(scores)
    ]


def test_two_valued_ratings_and_groups_of_two_are_decisions_too(agreement: Agreement) -> None:
    result = agreement(pairs(0.9, 0.2, 0.4, 0.1, 0.8, None))["decisions"]["a"]
    # Right are .9, .2, .1 and .8; .4 is a factual claim called false.
    assert result["measures"]["accuracy"]["value"] == pytest.approx(4 / 5)
    assert result["undecided"] == 1
    contests = pairs(5.0, 4.0, 4.0, 4.0, 1.0, 1.1, ratings=((3, 1), (2, 2), (1, 3)))
    assert agreement(contests)["decisions"]["a"]["decisions"] == {"win": 1, "tie": 1, "loss": 1}


def test_scores_on_another_scale_need_a_cut(agreement: Agreement) -> None:
    rows = pairs(4, 2, 3, 5)
    # 4 beats 2, 3 beats 2, and 5 beats both.
    measures = agreement(rows)["decisions"]["a"]["measures"]
    assert {name: measure["value"] for name, measure in measures.items()} == {"auroc": 0.5}
    assert agreement(rows, "--cut", "2.5")["decisions"]["a"]["measures"]["accuracy"]["value"] == 3 / 4


# --- scores of an external judge, for a comparison ---

ASPECTS = (COHERENCE, FLUENCY, Aspect("relevance", "Is it relevant?", Scale(1, 5)))
WHOLE = replace(corpus(*([1, 2, 3] for _ in range(6))), task=Task("t", "source", "text", ASPECTS))
PART = replace(WHOLE, groups=WHOLE.groups[:4])


def long_rows(groups: int = 4, aspects: int = 2) -> Rows:
    """Scores that rank as the ratings of coherence do."""
    return [
        {"group": g.id, "candidate": c.id, "aspect": a.name, "score": 10.0 * number}
        for g in WHOLE.groups[:groups]
        for number, c in enumerate(g.candidates, 1)
        for a in ASPECTS[:aspects]
    ]


def external(folder: Path, rows: Rows) -> EvaluatedJudge:
    path = folder / "peer.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return read_external(path, PART, ASPECTS[:2], WHOLE)


def test_rows_about_other_groups_and_aspects_are_left_out_and_counted(tmp_path: Path) -> None:
    judge = external(tmp_path, long_rows(groups=6, aspects=3)[::-1])
    # 2 groups of 3 candidates, and the third aspect of the 12 others.
    assert f"24 of 24 items have a score; {2 * 3 * 3 + 12} rows" in str(judge.note)
    assert list(judge.scores) == ["coherence", "fluency"]
    for aspect, groups in judge.scores.items():
        # Intervals rest on the sources of the data.
        assert [(g.group, g.source_id) for g in groups] == [(g.id, g.source_id) for g in PART.groups]
        assert {(g.candidates, g.scores) for g in groups} == {(("c0", "c1", "c2"), (10.0, 20.0, 30.0))}
        assert [list(g.ratings) for g in groups] == [g.ratings(aspect) for g in PART.groups]


def test_what_is_missing_is_unscored_and_counted(tmp_path: Path) -> None:
    """A row that is not there, a score that is null, and a group that nobody scored, as `debate score` writes rows."""
    written = {"rounds": 2, "stop_reason": "no issue", "unscored": None, "rating": 3}
    rows = [{**row, **written} for row in long_rows() if row["group"] != "g2"][1:]
    rows[0] |= {"score": None, "rounds": None, "stop_reason": None, "unscored": "refused"}
    judge = external(tmp_path, rows)
    assert sum(judge.unscored.values()) == 8
    assert "16 of 24 items" in str(judge.note)
    for aspect in ("coherence", "fluency"):
        assert judge.scores[aspect][0].scores == (None, 20.0, 30.0)
    assert judge.scores["coherence"][2].scores == (None, None, None)
