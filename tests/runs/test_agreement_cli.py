"""The agreement command: what it reads, what it prints, and how it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from data.agreement import GroupScores, agreement_table
from runs.agreement import main

ROOT = Path(__file__).resolve().parents[2]

CSV = """group,candidate,aspect,rating,score
a,s1,coherence,1;2,1
a,s2,coherence,2,3
a,s3,coherence,3,2
a,s4,coherence,4;5;4,4
b,s1,coherence,1,2
b,s2,coherence,2,1
b,s3,coherence,,5
b,s4,coherence,5,
c,s1,coherence,3,1
c,s2,coherence,3,2
a,s1,fluency,1,1
a,s2,fluency,2,2
"""
RATINGS = {"a": (1.5, 2.0, 3.0, 13 / 3), "b": (1.0, 2.0, None, 5.0), "c": (3.0, 3.0)}
SCORES = {"a": (1.0, 3.0, 2.0, 4.0), "b": (2.0, 1.0, 5.0, None), "c": (1.0, 2.0)}
COHERENCE = [GroupScores(g, ("s1", "s2", "s3", "s4")[: len(r)], r, SCORES[g]) for g, r in RATINGS.items()]
FLUENCY = [GroupScores("a", ("s1", "s2"), (1.0, 2.0), (1.0, 2.0))]


def row(**changed: object) -> str:
    values = {"group": "a", "candidate": "s1", "aspect": "coherence", "rating": 1, "score": 1} | changed
    return json.dumps({name: value for name, value in values.items() if value != "missing"}) + "\n"


def as_jsonl() -> str:
    """The rows of `CSV` with JSON's own way of writing numbers, several raters and nothing."""
    lines = []
    for line in CSV.splitlines()[1:]:
        group, candidate, aspect, rating, score = line.split(",")
        raters = [float(part) for part in rating.split(";")] if rating else None
        value = float(score) if score else None
        lines.append(row(group=group, candidate=candidate, aspect=aspect, rating=raters, score=value))
    return "".join(lines)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(CSV, encoding="utf-8")
    return path


@pytest.mark.parametrize(("name", "text"), [("rows.csv", CSV), ("rows.jsonl", as_jsonl())])
def test_json_is_the_agreement_of_the_rows(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert main([str(tmp_path / name), "--json", "--resamples", "100", "--seed", "3"]) == 0
    expected = agreement_table({"coherence": COHERENCE, "fluency": FLUENCY}, resamples=100, seed=3)
    assert json.loads(capsys.readouterr().out) == expected.to_json()


def test_json_to_a_file(rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert main([str(rows), "--json", str(out), "--resamples", "20", "--aspects", "coherence"]) == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    assert list(found["aspects"]) == ["coherence"]
    # Groups a (0.8) and b (-1); c has constant ratings; in b one candidate is unscored and one is not rated.
    cell = found["aspects"]["coherence"]["summary"]["spearman"]
    assert cell["value"] == pytest.approx(-0.1)
    assert cell["value_undefined_as_zero"] == pytest.approx(-0.2 / 3)
    assert (cell["groups"], cell["undefined"], cell["unscored"]) == (2, 1, 1)


def test_the_table_names_everything_that_a_figure_rests_on(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(rows), "--resamples", "50"]) == 0
    captured = capsys.readouterr()
    for word in ("summary", "sample", "system", "Pearson", "Spearman", "Kendall tau-b", "95 %", "average", "undefined"):
        assert word in captured.out
    spearman = agreement_table({"coherence": COHERENCE}, resamples=0).aspects["coherence"]["summary"]["spearman"]
    line = next(line for line in captured.out.splitlines() if line.startswith("coherence"))
    assert f"{spearman.value:.2f}" in line
    assert line.split()[-3:] == ["2", "1", "1"]
    assert captured.err == ""


def test_rows_without_variance_have_no_value_and_are_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(row() + row(candidate="s2", score=2), encoding="utf-8")
    assert main([str(path), "--json", "--resamples", "10"]) == 0
    cell = json.loads(capsys.readouterr().out)["aspects"]["coherence"]["summary"]["pearson"]
    assert cell["value"] is None
    assert (cell["groups"], cell["undefined"]) == (0, 1)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("rows.jsonl", row() + "{not json\n", "line 2"),
        ("rows.jsonl", row(score="missing"), "line 1, field 'score'"),
        ("rows.jsonl", row(rating="missing"), "line 1, field 'rating'"),
        ("rows.jsonl", row(group="missing"), "line 1, field 'group'"),
        ("rows.jsonl", row(aspect=None), "line 1, field 'aspect'"),
        ("rows.jsonl", row() + row(candidate="s2") + row(score=3), "line 3"),
        ("rows.jsonl", row(score="high"), "line 1, field 'score'"),
        ("rows.jsonl", row(score=True), "line 1, field 'score'"),
        ("rows.jsonl", row(rating=[4, "x"]), "line 1, field 'rating'"),
        ("rows.jsonl", row(score=1).replace('"score": 1', '"score": NaN'), "line 1"),
        ("rows.jsonl", "", "rows.jsonl"),
        ("rows.csv", "", "rows.csv"),
        ("rows.csv", CSV.splitlines()[0] + "\n", "rows.csv"),
        ("rows.csv", CSV + "d,s1,coherence,4;x,1\n", "line 14, field 'rating'"),
        ("rows.csv", CSV + "d,s1,coherence,4,inf\n", "line 14, field 'score'"),
        ("rows.csv", CSV + "d,s1,coherence\n", "line 14"),
        ("rows.csv", CSV.replace("score", "points"), "field 'score'"),
    ],
)
def test_bad_files_are_refused_with_their_place(
    name: str, text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert main([str(path), "--resamples", "10"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert str(path) in captured.err
    assert said in captured.err


def test_a_missing_file_and_bad_numbers_are_refused(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "nowhere.csv")]) == 2
    assert "nowhere.csv" in capsys.readouterr().err
    assert main([str(rows), "--resamples", "-1"]) == 2
    assert "--resamples" in capsys.readouterr().err
    assert main([str(rows), "--aspects", "depth"]) == 2
    assert "depth" in capsys.readouterr().err


def test_the_script_runs_from_anywhere(rows: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "runs" / "agreement.py"), str(rows), "--json", "-", "--resamples", "20"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    expected = agreement_table({"coherence": COHERENCE, "fluency": FLUENCY}, resamples=20).to_json()
    assert json.loads(done.stdout) == expected
