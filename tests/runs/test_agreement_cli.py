"""The agreement command: what it reads, what it prints, what it refuses."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from scipy import stats

from debate_judge.runs import agreement as command

ROOT = Path(__file__).parents[2]
RATINGS = {"g1": [1, 2, 3, 4], "g2": [4, 3, 2, 1], "g3": [2, 2, 2, 2]}
SCORES = {"g1": [1.0, 2.0, 4.0, 3.0], "g2": [5.0, 3.0, 2.5, 1.0], "g3": [1.0, 2.0, 3.0, 4.0]}


def rows() -> list[dict[str, object]]:
    return [
        {"group": g, "candidate": f"s{i}", "aspect": "coherence", "rating": RATINGS[g][i], "score": SCORES[g][i]}
        for g in RATINGS
        for i in range(4)
    ]


def jsonl(path: Path, records: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return str(path)


def table(path: str, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, object]:
    assert command.main([path, "--json", "--resamples", "200", *more]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_values_are_scipys_and_undefined_groups_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = table(jsonl(tmp_path / "r.jsonl", rows()), capsys)
    cell = found["aspects"]["coherence"]["summary"]["spearman"]  # type: ignore[index]
    expected = [stats.spearmanr(RATINGS[g], SCORES[g]).statistic for g in ("g1", "g2")]
    assert cell["value"] == pytest.approx(sum(expected) / 2)
    assert cell["value_undefined_as_zero"] == pytest.approx(sum(expected) / 3)
    assert (cell["groups"], cell["undefined"], cell["unscored"]) == (2, 1, 0)
    pooled = found["aspects"]["coherence"]["sample"]["kendall"]["value"]  # type: ignore[index]
    everything = [r for g in RATINGS for r in RATINGS[g]], [s for g in SCORES for s in SCORES[g]]
    assert pooled == pytest.approx(stats.kendalltau(*everything).statistic)
    assert set(found["average"]) == {"summary", "sample", "system"}  # type: ignore[call-overload]


def test_csv_lists_of_raters_and_missing_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.csv"
    path.write_text(
        "group,candidate,aspect,rating,score\ng,a,fluency,1;2;3,1\ng,b,fluency,4,2.5\ng,c,fluency,3,\ng,d,fluency,,3\n"
    )
    cell = table(str(path), capsys)["aspects"]["fluency"]["summary"]["pearson"]  # type: ignore[index]
    assert cell["value"] == pytest.approx(1.0)
    assert cell["unscored"] == 1


def test_lists_of_raters_are_shown_beside_the_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [{**r, "rating": [r["rating"], min(4, int(str(r["rating"])) + 1)]} for r in rows()]
    path = jsonl(tmp_path / "r.jsonl", records)
    found = table(path, capsys)["raters"]["coherence"]  # type: ignore[index]
    # The second rater ranks as the first does, but for the ties of 3 and 4 that the end of the scale makes.
    pairs = [([r, min(4, r + 1)]) for g in ("g1", "g2") for r in RATINGS[g]]
    both = [stats.spearmanr(*zip(*pairs[i : i + 4], strict=True)).statistic for i in (0, 4)]
    assert found["ceiling"]["value"] == pytest.approx(sum(both) / 2)
    assert found["raters"] == 2
    assert found["reliability"] is not None
    # A score of 5 lies outside the raters' scale of 1 to 4, so that a distance would mean nothing.
    assert (found["error"], found["kappa_of_judge"]) == (None, None)
    assert command.main([path, "--resamples", "50"]) == 0
    printed = capsys.readouterr().out
    assert "the human ceiling" in printed
    assert "alpha: Krippendorff's" in printed


def test_recorded_samples_are_read_averaged_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Forms of replies that LMs gave to published prompts, one of them empty.
    replies = [["1", "- Rating: 2"], ["Score: 2", ""], ["3", "Coherence: 3"], ["nothing", "7"]]
    records = [{**r, "samples": s} for r, s in zip(rows()[:4], replies, strict=True)]
    for record in records:
        del record["score"]
    path = jsonl(tmp_path / "r.jsonl", records)
    cell = table(path, capsys, "--scale", "1-3")["aspects"]["coherence"]["summary"]["pearson"]  # type: ignore[index]
    assert cell["value"] == pytest.approx(stats.pearsonr([1, 2, 3], [1.5, 2.0, 3.0]).statistic)
    assert cell["unscored"] == 1
    assert command.main([path, "--scale", "1-3", "--resamples", "0"]) == 0
    assert "8 recorded samples" in capsys.readouterr().out


def checked(*scores: float | None) -> list[dict[str, object]]:
    """Two claims in each group, the first factual and the second not."""
    return [
        {"group": f"g{i // 2}", "candidate": str(i % 2), "aspect": "factuality", "rating": 1 - i % 2, "score": score}
        for i, score in enumerate(scores)
    ]


def test_two_valued_ratings_are_read_as_decisions_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = jsonl(tmp_path / "r.jsonl", checked(0.9, 0.2, 0.4, 0.1, 0.8, None))
    found = table(path, capsys)["decisions"]["factuality"]  # type: ignore[index]
    # Right are .9, .2, .1 and .8; .4 is a factual claim called false.
    assert found["measures"]["accuracy"]["value"] == pytest.approx(4 / 5)
    assert found["measures"]["precision"]["value"] == 1.0
    assert found["lower_label"]["precision"]["value"] == pytest.approx(2 / 3)
    assert found["undecided"] == 1
    assert "decisions" not in table(path, capsys, "--decisions", "none")
    assert command.main([path, "--resamples", "50"]) == 0
    printed = capsys.readouterr().out
    assert "positive is 0.5 or more" in printed
    assert "summary level" in printed
    assert command.main([path, "--resamples", "50", "--decisions", "pairs"]) == 0
    assert "3 / 0 / 0" in capsys.readouterr().out


def test_scores_on_another_scale_need_a_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = jsonl(tmp_path / "r.jsonl", checked(4, 2, 3, 5))
    assert command.main([path, "--json", "--resamples", "0"]) == 0
    captured = capsys.readouterr()
    assert "--cut" in captured.err
    found = json.loads(captured.out)["decisions"]["factuality"]
    # 4 beats 2, 3 beats 2, and 5 beats both.
    assert {name: m["value"] for name, m in found["measures"].items()} == {"auroc": 0.5}
    found = table(path, capsys, "--cut", "2.5")["decisions"]["factuality"]  # type: ignore[index]
    assert found["measures"]["accuracy"]["value"] == pytest.approx(3 / 4)


def test_groups_of_two_are_read_as_contests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ratings, scores = [(3, 1), (2, 2), (1, 3)], [(5.0, 4.0), (4.0, 4.2), (1.0, 1.1)]
    records = [
        {"group": str(g), "candidate": str(c), "aspect": "depth", "rating": ratings[g][c], "score": scores[g][c]}
        for g in range(3)
        for c in range(2)
    ]
    path = jsonl(tmp_path / "r.jsonl", records)
    found = table(path, capsys)["decisions"]["depth"]  # type: ignore[index]
    assert found["decisions"] == {"win": 1, "tie": 0, "loss": 2}
    assert found["measures"]["accuracy"]["value"] == pytest.approx(2 / 3)
    found = table(path, capsys, "--margin", "0.5")["decisions"]["depth"]  # type: ignore[index]
    assert found["decisions"] == {"win": 1, "tie": 2, "loss": 0}


@pytest.mark.integration
def test_it_runs_as_a_script_and_writes_json_without_nan(tmp_path: Path) -> None:
    path, out = jsonl(tmp_path / "r.jsonl", rows()[8:]), tmp_path / "out.json"
    script = [sys.executable, str(ROOT / "runs" / "agreement.py"), path, "--json", str(out)]
    subprocess.run(script, check=True, capture_output=True, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": ""})
    cell = json.loads(out.read_text())["aspects"]["coherence"]["summary"]["pearson"]
    assert cell["value"] is None
    assert cell["undefined"] == 1
    assert not math.isnan(cell["value_undefined_as_zero"])
