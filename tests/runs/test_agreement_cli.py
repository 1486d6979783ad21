"""The agreement command: what it reads and what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from debate_judge.runs import agreement as command

RATINGS = {"g1": [1, 2, 3, 4], "g2": [4, 3, 2, 1], "g3": [2, 2, 2, 2]}
SCORES = {"g1": [1.0, 2.0, 4.0, 3.0], "g2": [5.0, 3.0, 2.5, 1.0], "g3": [1.0, 2.0, 3.0, 4.0]}
ROWS: list[dict[str, Any]] = [
    {"group": g, "candidate": f"s{i}", "aspect": "coherence", "rating": RATINGS[g][i], "score": SCORES[g][i]}
    for g in RATINGS
    for i in range(4)
]


class Agreement:
    """The command, over rows in a file."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.file, self.capsys = folder / "r.jsonl", capsys

    def write(self, rows: list[dict[str, Any]]) -> None:
        self.file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def text(self, *more: str) -> str:
        assert command.main([str(self.file), "--resamples", "50", *more]) == 0
        return self.capsys.readouterr().out

    def values(self, *more: str) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(self.text("--json", *more))
        return values


@pytest.fixture
def agreement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Agreement:
    return Agreement(tmp_path, capsys)


def test_values_are_scipys_and_undefined_groups_are_counted(agreement: Agreement, tmp_path: Path) -> None:
    agreement.write(ROWS)
    table = agreement.values()
    cell = table["aspects"]["coherence"]["summary"]["spearman"]
    expected = [stats.spearmanr(RATINGS[g], SCORES[g]).statistic for g in ("g1", "g2")]
    assert cell["value"] == pytest.approx(sum(expected) / 2)
    assert cell["value_undefined_as_zero"] == pytest.approx(sum(expected) / 3)
    assert (cell["groups"], cell["undefined"], cell["unscored"]) == (2, 1, 0)
    pooled = [r for g in RATINGS for r in RATINGS[g]], [s for g in SCORES for s in SCORES[g]]
    kendall = stats.kendalltau(*pooled).statistic
    assert table["aspects"]["coherence"]["sample"]["kendall"]["value"] == pytest.approx(kendall)
    assert set(table["average"]) == {"summary", "sample", "system"}
    # What is undefined everywhere is null in a file, never NaN.
    agreement.write(ROWS[8:])
    agreement.text("--json", str(tmp_path / "out.json"))
    cell = json.loads((tmp_path / "out.json").read_text())["aspects"]["coherence"]["summary"]["pearson"]
    assert (cell["value"], cell["undefined"], cell["value_undefined_as_zero"]) == (None, 1, 0)


def test_csv_with_several_raters_in_a_cell_and_missing_scores(agreement: Agreement, tmp_path: Path) -> None:
    agreement.file = tmp_path / "r.csv"
    cells = "g,a,fluency,1;2;3,1\ng,b,fluency,4,2.5\ng,c,fluency,3,\ng,d,fluency,,3\n"
    agreement.file.write_text(f"group,candidate,aspect,rating,score\n{cells}")
    cell = agreement.values()["aspects"]["fluency"]["summary"]["pearson"]
    assert (cell["value"], cell["unscored"]) == (pytest.approx(1.0), 1)


def test_several_raters_are_compared_with_the_scores(agreement: Agreement) -> None:
    agreement.write([{**row, "rating": [row["rating"], min(4, row["rating"] + 1)]} for row in ROWS])
    raters = agreement.values()["raters"]["coherence"]
    # The second rater ranks as the first does, but for the ties of 3 and 4 that the end of the scale makes.
    pairs = [([r, min(4, r + 1)]) for g in ("g1", "g2") for r in RATINGS[g]]
    both = [stats.spearmanr(*zip(*pairs[i : i + 4], strict=True)).statistic for i in (0, 4)]
    assert raters["ceiling"]["value"] == pytest.approx(sum(both) / 2)
    assert raters["raters"] == 2
    assert raters["reliability"] is not None
    # A score of 5 lies outside the raters' scale of 1 to 4, so that a distance would mean nothing.
    assert (raters["error"], raters["kappa_of_judge"]) == (None, None)
    text = agreement.text()
    assert "human ceiling" in text
    assert "Krippendorff" in text


def test_recorded_samples_are_read_averaged_and_counted(agreement: Agreement) -> None:
    # Forms of replies that LMs gave to published prompts, one of them empty.
    replies = [["1", "- Rating: 2"], ["Score: 2", ""], ["3", "Coherence: 3"], ["nothing", "7"]]
    rows = [{name: value for name, value in row.items() if name != "score"} for row in ROWS[:4]]
    agreement.write([{**row, "samples": samples} for row, samples in zip(rows, replies, strict=True)])
    cell = agreement.values("--scale", "1-3")["aspects"]["coherence"]["summary"]["pearson"]
    assert cell["value"] == pytest.approx(stats.pearsonr([1, 2, 3], [1.5, 2.0, 3.0]).statistic)
    assert cell["unscored"] == 1
    assert "8 recorded samples" in agreement.text("--scale", "1-3")


def pairs(*scores: float | None, ratings: tuple[tuple[float, float], ...] = ((1, 0), (1, 0), (1, 0))) -> list[Any]:
    """Groups of two candidates."""
    return [
        {"group": f"g{i // 2}", "candidate": str(i % 2), "aspect": "a", "rating": ratings[i // 2][i % 2], "score": s}
        for i, s in enumerate(scores)
    ]


def test_two_valued_ratings_are_decisions_too(agreement: Agreement) -> None:
    agreement.write(pairs(0.9, 0.2, 0.4, 0.1, 0.8, None))
    result = agreement.values()["decisions"]["a"]
    # Right are .9, .2, .1 and .8; .4 is a factual claim called false.
    assert result["measures"]["accuracy"]["value"] == pytest.approx(4 / 5)
    assert result["measures"]["precision"]["value"] == 1.0
    assert result["lower_label"]["precision"]["value"] == pytest.approx(2 / 3)
    assert result["undecided"] == 1
    assert "decisions" not in agreement.values("--decisions", "none")
    assert "positive is 0.5 or more" in agreement.text()
    assert "3 / 0 / 0" in agreement.text("--decisions", "pairs")


def test_scores_on_another_scale_need_a_cut(agreement: Agreement) -> None:
    agreement.write(pairs(4, 2, 3, 5))
    assert command.main([str(agreement.file), "--json"]) == 0
    output = agreement.capsys.readouterr()
    assert "--cut" in output.err
    # 4 beats 2, 3 beats 2, and 5 beats both.
    measures = json.loads(output.out)["decisions"]["a"]["measures"]
    assert {name: measure["value"] for name, measure in measures.items()} == {"auroc": 0.5}
    assert agreement.values("--cut", "2.5")["decisions"]["a"]["measures"]["accuracy"]["value"] == pytest.approx(3 / 4)


def test_groups_of_two_are_contests(agreement: Agreement) -> None:
    agreement.write(pairs(5.0, 4.0, 4.0, 4.2, 1.0, 1.1, ratings=((3, 1), (2, 2), (1, 3))))
    result = agreement.values()["decisions"]["a"]
    assert result["decisions"] == {"win": 1, "tie": 0, "loss": 2}
    assert result["measures"]["accuracy"]["value"] == pytest.approx(2 / 3)
    result = agreement.values("--margin", "0.5")["decisions"]["a"]
    assert result["decisions"] == {"win": 1, "tie": 2, "loss": 0}
