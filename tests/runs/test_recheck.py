"""`debate recheck`: new sources alone count, drift is told apart, and a worse judge fails the command."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.agreement.tables import agreement_table
from debate_judge.data.schema import Candidate, RatedGroup
from debate_judge.data.tasks import PAIRS
from debate_judge.runs.after.common import recorded_scores_for
from debate_judge.runs.export.manifest import Export
from debate_judge.runs.export.recorded import (
    RECORDED,
    record_scores,
    recorded_scores_in,
)
from tests.runs.known_judges import LMS, RATED, SEEN, asked, command, export, file_of

__all__ = ["asked"]

NEW = [replace(g, id=f"new {g.id}", source=f"A new source: {g.source}") for g in RATED.groups[:12]]


def rated(groups: list[RatedGroup], by: Any) -> list[RatedGroup]:
    """The groups with other ratings: a function of rating and place of the candidate."""
    return [
        replace(
            g,
            candidates=tuple(
                replace(c, ratings={"coherence": (by(c.ratings["coherence"][0], i),)})
                for i, c in enumerate(g.candidates)
            ),
        )
        for g in groups
    ]


@pytest.fixture(autouse=True)
def _lms(asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    export(tmp_path / "export")


def recheck(groups: Iterable[RatedGroup], *more: str) -> tuple[int, dict[str, Any]]:
    return command("recheck", "export", "--data", file_of(Path("new.jsonl"), groups), "--store", "store", *more)


def test_equal_agreement_on_new_sources_holds() -> None:
    code, found = recheck([*NEW, *RATED.groups])
    assert (code, found["verdict"], found["causes"]) == (0, "holds", [])
    assert (found["sources"], found["known_sources"]) == (len(NEW), len(RATED.groups))
    assert found["new"]["average"]["value"] == found["old"]["average"]["value"] == 1


def test_a_judge_that_is_worse_fails() -> None:
    code, found = recheck(rated(NEW, lambda rating, place: 1 + place % 2))
    assert (code, found["verdict"]) == (1, "worse")
    assert found["difference"]["average"]["high"] < -0.05
    assert recheck(rated(NEW, lambda rating, place: 1 + place % 2), "--margin", "2")[0] == 0


def test_raters_that_became_stricter_are_told_from_texts_that_became_worse() -> None:
    _, stricter = recheck(rated(NEW, lambda rating, place: max(1, rating - 1)))
    assert [cause.partition(":")[0] for cause in stricter["causes"]] == ["the raters changed"]
    assert stricter["drift"]["coherence"]["apart"]["value"] == pytest.approx(-0.8)
    low = [replace(g, candidates=tuple(c for c in g.candidates if c.ratings["coherence"][0] < 4)) for g in NEW]
    _, worse = recheck(low)
    assert [cause.partition(":")[0] for cause in worse["causes"]] == ["the texts changed"]
    assert worse["drift"]["coherence"]["scores"]["value"] == pytest.approx(
        worse["drift"]["coherence"]["ratings"]["value"]
    )


def test_a_judge_that_answers_otherwise_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = file_of(tmp_path / "old.jsonl", RATED.groups)
    _, same = recheck(NEW, "--again", old)
    assert same["judge_on_old_texts"]["coherence"]["differ"] == 0
    monkeypatch.setitem(LMS, "scripted/old", LMS["scripted/noisy"])
    # Replies in the store would be those of before.
    _, found = recheck(NEW, "--again", old)
    assert found["judge_on_old_texts"]["coherence"]["texts"] == 5 * (len(RATED.groups) - SEEN)
    assert found["judge_on_old_texts"]["coherence"]["differ"] == pytest.approx(0.2)
    assert found["causes"][0].startswith("the judge changed")


def test_an_export_that_keeps_no_scores_is_compared_by_its_interval(tmp_path: Path) -> None:
    bare = export(tmp_path / "export", keeps=False)
    cell = {"value": 0.9, "low": 0.8, "high": 0.95, "groups": 12}
    manifest = json.loads((bare / "manifest.json").read_text())
    tables = {"aspects": {"coherence": {"summary": {"spearman": cell}}}, "average": {"summary": {"spearman": cell}}}
    manifest["evidence"]["held_out"] = {"compiled": tables}
    (bare / "manifest.json").write_text(json.dumps(manifest))
    _, found = recheck(rated(NEW, lambda rating, place: min(5, rating + place % 2)))
    assert found["difference"]["average"]["value"] == pytest.approx(found["new"]["average"]["value"] - 0.9)
    assert found["old"] == {}


def test_an_export_tells_several_pairs_of_a_source_apart() -> None:
    groups = tuple(
        RatedGroup(
            f"{source}-{n}",
            f"Source {source}",
            tuple(Candidate(x, f"{x} {n}", {"preference": (v,)}) for x, v in zip("ab", (1.0, 0.0), strict=True)),
        )
        for source in range(6)
        for n in range(2)
    )
    corpus = replace(RATED, task=PAIRS, groups=groups)
    scores = {"preference": [GroupScores(g.id, ("a", "b"), (1.0, 0.0), (0.9, 0.2)) for g in groups]}
    manifest = {"evidence": {RECORDED: record_scores(corpus, scores, {}, scored_by="export", seen=())}}
    recorded = recorded_scores_in(manifest)
    assert recorded.sources == {group.source_id for group in groups}
    table = agreement_table(recorded.scores, levels=("summary",), resamples=50)
    assert table.aspects["preference"]["summary"]["pearson"].groups == 12
    # Compared with another LM's, they rest on sources.
    kept = recorded_scores_for(cast(Export, SimpleNamespace(manifest=manifest)), corpus, PAIRS.aspects)["preference"]
    assert [(group.group, group.source_id) for group in kept] == [(group.id, group.source_id) for group in groups]
    assert {group.scores for group in kept} == {(0.9, 0.2)}
