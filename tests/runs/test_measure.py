"""`debate measure`: where scores and ratings come from, what is printed, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import debate_judge
from debate_judge import data
from debate_judge.data.schema import group_to_json
from debate_judge.runs.after import measure as command


def lines(path: Path, records: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def rows(rated: int = 6) -> list[dict[str, object]]:
    """Two systems, `b` half a point better in ratings and scores."""
    return [
        {
            "group": f"g{i}",
            "candidate": system,
            "aspect": "coherence",
            "rating": 3 + (i % 3) / 2 + 0.5 * (system == "b") + 0.1 * (i % 2) if i < rated else None,
            "score": 2 + (i % 3) / 2 + 0.5 * (system == "b"),
        }
        for i in range(20)
        for system in "ab"
    ]


def test_rows_of_scores_and_few_ratings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = lines(tmp_path / "rows.jsonl", rows())
    assert command.main([path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["coherence"]
    assert [one["system"] for one in found["systems"]] == ["b", "a"]
    assert (found["rated"], found["others"]) == (6, 14)
    assert found["systems"][0]["mean"]["weight"] > 0.5
    assert found["systems"][0]["saved_ratings"] > 6
    assert found["differences"][0]["difference"]["value"] == pytest.approx(0.5)
    out = tmp_path / "m.json"
    assert command.main([path, "--json", str(out)]) == 0
    assert json.loads(out.read_text())["coherence"] == found
    assert "6 rated sources and 14" in capsys.readouterr().out


def test_scores_of_a_file_beside_the_ratings_of_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [group_to_json(group) for group in data.load("sample").groups]
    scores: list[dict[str, object]] = []
    for place, record in enumerate(records):
        record["task"] = "summarization"
        for one in record["candidates"]:  # type: ignore[attr-defined]
            rating = one["ratings"]["fluency"][0]
            scores.append({"group": record["group"], "candidate": one["id"], "aspect": "fluency", "score": rating})
            one["ratings"] = {"fluency": [rating]} if place < 10 else {}
    texts = lines(tmp_path / "texts.jsonl", records)
    assert command.main([texts, "--scores", lines(tmp_path / "scores.jsonl", scores), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["fluency"]
    assert (found["rated"], found["others"]) == (10, 14)
    assert found["left_out"]
    # Means are of sources drawn at random: those that were chosen to be rated count as unrated.
    chosen = lines(tmp_path / "chosen.jsonl", [{**r, "drawn": 0.5} if i < 4 else r for i, r in enumerate(records)])
    assert command.main([chosen, "--scores", str(tmp_path / "scores.jsonl"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["fluency"]
    assert (found["rated"], found["others"]) == (6, 18)


def test_as_a_function(tmp_path: Path) -> None:
    table = debate_judge.measure(lines(tmp_path / "rows.jsonl", rows()), aspects=["coherence"])["coherence"]
    assert [one.system for one in table.systems] == ["b", "a"]
