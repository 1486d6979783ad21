"""Scores of an external judge: both layouts, what is refused and where, and what is counted."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.agreement.tables import agreement_table
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.runs.evaluation.rows import EvaluatedJudge
from debate_judge.runs.evaluation.score_files import read_external

ASPECTS = tuple(Aspect(name, f"Whether it has {name}.", Scale(1, 5)) for name in ("coherence", "fluency", "relevance"))
COMPARED = ASPECTS[:2]
TASK = Task("t", "source", "text", ASPECTS)


def group(number: int) -> RatedGroup:
    candidates = [
        Candidate(f"system-{i}", f"text {number} {i}", {"coherence": (float(i),), "fluency": (5.0 - i,)})
        for i in (1, 2, 3)
    ]
    return RatedGroup(f"doc-{number}", f"source {number}", tuple(candidates))


WHOLE = Corpus(TASK, tuple(group(n) for n in range(6)), Origin("ours", "ours.jsonl"))
PART = replace(WHOLE, groups=WHOLE.groups[:4])

Row = dict[str, Any]


def long_rows(corpus: Corpus = PART, aspects: tuple[Aspect, ...] = COMPARED) -> list[Row]:
    """Scores that rank as the ratings of coherence do."""
    return [
        {"group": g.id, "candidate": c.id, "aspect": a.name, "score": 10.0 * int(c.id[-1])}
        for g in corpus.groups
        for c in g.candidates
        for a in aspects
    ]


def wide_rows(corpus: Corpus = PART, aspects: tuple[Aspect, ...] = COMPARED) -> list[Row]:
    rows: dict[tuple[str, str], Row] = {}
    for row in long_rows(corpus, aspects):
        place = (row["group"], row["candidate"])
        rows.setdefault(place, {"group": place[0], "candidate": place[1]})[row["aspect"]] = row["score"]
    return list(rows.values())


def as_jsonl(path: Path, rows: list[Row]) -> Path:
    path = path / "peer.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def as_array(path: Path, rows: list[Row]) -> Path:
    path = path / "peer.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def as_csv(path: Path, rows: list[Row]) -> Path:
    path = path / "peer.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)
    return path


Write = Callable[[Path, list[Row]], Path]


def read(path: Path) -> EvaluatedJudge:
    return read_external(path, "peer", PART, COMPARED, full_corpus=WHOLE)


def counts(judge: EvaluatedJudge) -> tuple[int, int]:
    """Items with a score and without one."""
    missing = sum(judge.unscored.values())
    return len(judge.rows) - missing, missing


def test_intervals_rest_on_the_sources_of_the_data(tmp_path: Path) -> None:
    """Two sources that stand in two groups each, as several pairs of a source do."""
    twice = replace(PART, groups=tuple(replace(g, source=f"source {n // 2}") for n, g in enumerate(PART.groups)))
    found = read_external(as_csv(tmp_path, wide_rows()), "peer", twice, COMPARED)
    assert [group.source_id for group in found.scores["fluency"]] == [group.source_id for group in twice.groups]


@pytest.mark.parametrize("write", [as_jsonl, as_array, as_csv])
@pytest.mark.parametrize("rows", [long_rows, wide_rows])
def test_every_layout_says_the_same(rows: Callable[[], list[Row]], write: Write, tmp_path: Path) -> None:
    found = read(write(tmp_path, rows()[::-1]))
    assert counts(found) == (24, 0)
    assert "24 of 24 items" in str(found.note)
    assert list(found.scores) == ["coherence", "fluency"]
    for aspect, groups in found.scores.items():
        assert [g.group for g in groups] == [g.id for g in PART.groups]
        assert all(g.candidates == ("system-1", "system-2", "system-3") for g in groups)
        assert all(g.scores == (10.0, 20.0, 30.0) for g in groups)
        assert [list(g.ratings) for g in groups] == [g.ratings(aspect) for g in PART.groups]
    table = agreement_table(found.scores, resamples=0)
    assert table.aspects["coherence"]["summary"]["spearman"].value == pytest.approx(1)
    assert table.aspects["fluency"]["summary"]["spearman"].value == pytest.approx(-1)


def test_rows_as_the_score_command_writes_them(tmp_path: Path) -> None:
    more = {"rounds": 2, "stop_reason": "no issue", "unscored": None, "rating": 3}
    rows = [{**row, **more} for row in long_rows()]
    rows[0] |= {"score": None, "rounds": None, "stop_reason": None, "unscored": "refused"}
    for write in (as_jsonl, as_csv):
        found = read(write(tmp_path, rows))
        assert counts(found) == (23, 1)
        assert found.scores["coherence"][0].scores == (None, 20.0, 30.0)


@pytest.mark.parametrize("write", [as_jsonl, as_csv])
def test_what_is_missing_is_unscored_and_counted(write: Write, tmp_path: Path) -> None:
    """A row that is not there, a score that is null, and a group that nobody scored."""
    rows = [row for row in long_rows() if row["group"] != "doc-2"][1:]
    rows[0]["score"] = None
    found = read(write(tmp_path, rows))
    assert counts(found) == (16, 8)
    assert "16 of 24 items" in str(found.note)
    assert found.scores["coherence"][0].scores == (None, 20.0, 30.0)
    assert found.scores["fluency"][0].scores == (None, 20.0, 30.0)
    assert found.scores["coherence"][2].scores == (None, None, None)
    assert agreement_table(found.scores, resamples=0).aspects["coherence"]["summary"]["spearman"].unscored == 4


@pytest.mark.parametrize("rows", [long_rows, wide_rows])
def test_rows_of_what_is_not_compared_are_left_out_and_counted(rows: Any, tmp_path: Path) -> None:
    found = read(as_jsonl(tmp_path, rows(WHOLE, ASPECTS)))
    assert counts(found) == (24, 0)
    # 2 groups of 3 candidates; in the long layout also the third aspect of the 12 candidates that are compared.
    ignored = 2 * 3 * 3 + 12 if rows is long_rows else 2 * 3
    assert f"24 of 24 items have a score; {ignored} rows" in str(found.note)
