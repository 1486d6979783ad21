"""Scores of an external judge: every layout and format, and what is counted as missing or left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from debate_judge.data.agreement.tables import agreement_table
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.runs.evaluation.rows import EvaluatedJudge
from debate_judge.runs.evaluation.score_files import read_external
from tests.runs.rated_corpora import COHERENCE, FLUENCY, corpus

ASPECTS = (COHERENCE, FLUENCY, Aspect("relevance", "Is it relevant?", Scale(1, 5)))
WHOLE = replace(corpus(*([1, 2, 3] for _ in range(6))), task=Task("t", "source", "text", ASPECTS))
PART = replace(WHOLE, groups=WHOLE.groups[:4])

Rows = list[dict[str, Any]]


def long_rows(groups: int = 4, aspects: int = 2) -> Rows:
    """Scores that rank as the ratings of coherence do."""
    return [
        {"group": g.id, "candidate": c.id, "aspect": a.name, "score": 10.0 * number}
        for g in WHOLE.groups[:groups]
        for number, c in enumerate(g.candidates, 1)
        for a in ASPECTS[:aspects]
    ]


def wide_rows(groups: int = 4, aspects: int = 2) -> Rows:
    frame = pd.DataFrame(long_rows(groups, aspects)).set_index(["group", "candidate", "aspect"])["score"]
    return frame.unstack().reset_index().to_dict("records")


FORMATS: dict[str, Callable[[Rows], str]] = {
    "jsonl": lambda rows: "".join(json.dumps(row) + "\n" for row in rows),
    "json": json.dumps,
    "csv": lambda rows: pd.DataFrame(rows).to_csv(index=False),
}


def read(folder: Path, rows: Rows, form: str = "jsonl") -> EvaluatedJudge:
    path = folder / f"peer.{form}"
    path.write_text(FORMATS[form](rows), encoding="utf-8")
    return read_external(path, "peer", PART, ASPECTS[:2], full_corpus=WHOLE)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("rows", [long_rows, wide_rows])
def test_every_layout_says_the_same(rows: Callable[[], Rows], form: str, tmp_path: Path) -> None:
    judge = read(tmp_path, rows()[::-1], form)
    assert sum(judge.unscored.values()) == 0
    assert "24 of 24 items" in str(judge.note)
    assert list(judge.scores) == ["coherence", "fluency"]
    for aspect, groups in judge.scores.items():
        # Intervals rest on the sources of the data.
        assert [(g.group, g.source_id) for g in groups] == [(g.id, g.source_id) for g in PART.groups]
        assert {(g.candidates, g.scores) for g in groups} == {(("c0", "c1", "c2"), (10.0, 20.0, 30.0))}
        assert [list(g.ratings) for g in groups] == [g.ratings(aspect) for g in PART.groups]
    table = agreement_table(judge.scores, resamples=0)
    assert table.aspects["coherence"]["summary"]["spearman"].value == pytest.approx(1)
    assert table.aspects["fluency"]["summary"]["spearman"].value == pytest.approx(-1)


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_what_is_missing_is_unscored_and_counted(form: str, tmp_path: Path) -> None:
    """A row that is not there, a score that is null, and a group that nobody scored, as `debate score` writes rows."""
    written = {"rounds": 2, "stop_reason": "no issue", "unscored": None, "rating": 3}
    rows = [{**row, **written} for row in long_rows() if row["group"] != "g2"][1:]
    rows[0] |= {"score": None, "rounds": None, "stop_reason": None, "unscored": "refused"}
    judge = read(tmp_path, rows, form)
    assert sum(judge.unscored.values()) == 8
    assert "16 of 24 items" in str(judge.note)
    for aspect in ("coherence", "fluency"):
        assert judge.scores[aspect][0].scores == (None, 20.0, 30.0)
    assert judge.scores["coherence"][2].scores == (None, None, None)
    assert agreement_table(judge.scores, resamples=0).aspects["coherence"]["summary"]["spearman"].unscored == 4


# 2 groups of 3 candidates; in the long layout also the third aspect of the 12 candidates that are compared.
@pytest.mark.parametrize(("rows", "left_out"), [(long_rows, 2 * 3 * 3 + 12), (wide_rows, 2 * 3)])
def test_rows_of_what_is_not_compared_are_left_out_and_counted(rows: Any, left_out: int, tmp_path: Path) -> None:
    assert f"24 of 24 items have a score; {left_out} rows" in str(read(tmp_path, rows(6, 3)).note)
