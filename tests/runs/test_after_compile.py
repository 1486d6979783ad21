"""`debate recheck`: new sources alone count, drift is told apart, and a worse judge fails the command.

And `debate measure`: where scores and ratings come from, and what they come to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import debate_judge
from debate_judge import data
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.agreement.tables import agreement_table
from debate_judge.data.schema import Candidate, RatedGroup, group_to_json
from debate_judge.data.tasks import PAIRS
from debate_judge.runs.after import measure
from debate_judge.runs.after.common import recorded_scores_for
from debate_judge.runs.export.manifest import Export
from debate_judge.runs.export.recorded import RECORDED, record_scores, recorded_scores_in
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


@pytest.fixture
def exported(asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    return export(tmp_path / "export")


def recheck(groups: Iterable[RatedGroup], *more: str) -> tuple[int, dict[str, Any]]:
    return command("recheck", "export", "--data", file_of(Path("new.jsonl"), groups), "--store", "store", *more)


def causes(result: dict[str, Any]) -> list[str]:
    return [cause.partition(":")[0] for cause in result["causes"]]


@pytest.mark.usefixtures("exported")
def test_equal_agreement_on_new_sources_holds_and_a_judge_that_is_worse_fails() -> None:
    code, result = recheck([*NEW, *RATED.groups])
    assert (code, result["verdict"], result["causes"]) == (0, "holds", [])
    assert (result["sources"], result["known_sources"]) == (len(NEW), len(RATED.groups))
    assert result["new"]["average"]["value"] == result["old"]["average"]["value"] == 1
    worse = rated(NEW, lambda rating, place: 1 + place % 2)
    code, result = recheck(worse)
    assert (code, result["verdict"]) == (1, "worse")
    assert result["difference"]["average"]["high"] < -0.05
    assert recheck(worse, "--margin", "2")[0] == 0


@pytest.mark.usefixtures("exported")
def test_raters_that_became_stricter_are_told_from_texts_that_became_worse() -> None:
    _, stricter = recheck(rated(NEW, lambda rating, place: max(1, rating - 1)))
    assert causes(stricter) == ["the raters changed"]
    assert stricter["drift"]["coherence"]["apart"]["value"] == pytest.approx(-0.8)
    low = [replace(g, candidates=tuple(c for c in g.candidates if c.ratings["coherence"][0] < 4)) for g in NEW]
    _, worse = recheck(low)
    assert causes(worse) == ["the texts changed"]
    drift = worse["drift"]["coherence"]
    assert drift["scores"]["value"] == pytest.approx(drift["ratings"]["value"])


@pytest.mark.usefixtures("exported")
def test_a_judge_that_answers_otherwise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    old = file_of(Path("old.jsonl"), RATED.groups)
    _, same = recheck(NEW, "--again", old)
    assert same["judge_on_old_texts"]["coherence"]["differ"] == 0
    # Replies in the store would be those of before.
    monkeypatch.setitem(LMS, "scripted/old", LMS["scripted/noisy"])
    _, result = recheck(NEW, "--again", old)
    on_old_texts = result["judge_on_old_texts"]["coherence"]
    assert (on_old_texts["texts"], on_old_texts["differ"]) == (5 * (len(RATED.groups) - SEEN), pytest.approx(0.2))
    assert causes(result)[0] == "the judge changed"


def test_an_export_that_keeps_no_scores_is_compared_by_its_interval(exported: Path) -> None:
    export(exported, keeps=False)
    manifest = json.loads((exported / "manifest.json").read_text())
    tables = {"summary": {"spearman": {"value": 0.9, "low": 0.8, "high": 0.95, "groups": 12}}}
    manifest["evidence"]["held_out"] = {"compiled": {"aspects": {"coherence": tables}, "average": tables}}
    (exported / "manifest.json").write_text(json.dumps(manifest))
    _, result = recheck(rated(NEW, lambda rating, place: min(5, rating + place % 2)))
    assert result["difference"]["average"]["value"] == pytest.approx(result["new"]["average"]["value"] - 0.9)
    assert result["old"] == {}


def test_an_export_tells_several_pairs_of_a_source_apart() -> None:
    def pair(source: int, number: int) -> RatedGroup:
        texts = (Candidate(x, f"{x} {number}", {"preference": (v,)}) for x, v in (("a", 1.0), ("b", 0.0)))
        return RatedGroup(f"{source}-{number}", f"Source {source}", tuple(texts))

    corpus = replace(RATED, task=PAIRS, groups=tuple(pair(source, n) for source in range(6) for n in range(2)))
    scores = {"preference": [GroupScores(g.id, ("a", "b"), (1.0, 0.0), (0.9, 0.2)) for g in corpus.groups]}
    manifest = {"evidence": {RECORDED: record_scores(corpus, scores, {}, scored_by="export", seen=())}}
    recorded = recorded_scores_in(manifest)
    assert recorded.sources == {group.source_id for group in corpus.groups}
    table = agreement_table(recorded.scores, levels=("summary",), resamples=50)
    assert table.aspects["preference"]["summary"]["pearson"].groups == 12
    # Compared with another LM's, they rest on sources.
    kept = recorded_scores_for(cast(Export, SimpleNamespace(manifest=manifest)), corpus, PAIRS.aspects)["preference"]
    assert [(group.group, group.source_id) for group in kept] == [
        (group.id, group.source_id) for group in corpus.groups
    ]
    assert {group.scores for group in kept} == {(0.9, 0.2)}


# --- measure ---


def lines(path: Path, records: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def test_rows_of_scores_and_few_ratings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two systems, `b` half a point better in ratings and scores."""
    rows: list[dict[str, object]] = [
        {
            "group": f"g{i}",
            "candidate": system,
            "aspect": "coherence",
            "rating": 3 + (i % 3) / 2 + 0.5 * (system == "b") + 0.1 * (i % 2) if i < 6 else None,
            "score": 2 + (i % 3) / 2 + 0.5 * (system == "b"),
        }
        for i in range(20)
        for system in "ab"
    ]
    path, out = lines(tmp_path / "rows.jsonl", rows), tmp_path / "m.json"
    assert measure.main([path, "--json", str(out)]) == 0
    assert "6 rated sources and 14" in capsys.readouterr().out
    result = json.loads(out.read_text())["coherence"]
    best = result["systems"][0]
    assert [system["system"] for system in result["systems"]] == ["b", "a"]
    assert (result["rated"], result["others"]) == (6, 14)
    assert best["mean"]["weight"] > 0.5
    assert best["saved_ratings"] > 6
    assert result["differences"][0]["difference"]["value"] == pytest.approx(0.5)
    table = debate_judge.measure(path, aspects=["coherence"])["coherence"]
    assert [system.system for system in table.systems] == ["b", "a"]


def test_scores_of_a_file_beside_the_ratings_of_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [{**group_to_json(group), "task": "summarization"} for group in data.load("sample").groups]
    scores: list[dict[str, object]] = []
    for place, record in enumerate(records):
        for text in record["candidates"]:  # type: ignore[attr-defined]
            rating = text["ratings"]["fluency"][0]
            scores.append({"group": record["group"], "candidate": text["id"], "aspect": "fluency", "score": rating})
            text["ratings"] = {"fluency": [rating]} if place < 10 else {}

    def measured() -> dict[str, Any]:
        given = [lines(tmp_path / "texts.jsonl", records), "--scores", lines(tmp_path / "scores.jsonl", scores)]
        assert measure.main([*given, "--json"]) == 0
        result: dict[str, Any] = json.loads(capsys.readouterr().out)["fluency"]
        return result

    result = measured()
    assert (result["rated"], result["others"]) == (10, 14)
    assert result["left_out"]
    # Means are of sources drawn at random: those that were chosen to be rated count as unrated.
    for record in records[:4]:
        record["drawn"] = 0.5
    result = measured()
    assert (result["rated"], result["others"]) == (6, 18)
