"""The commands after a compile: `debate recheck`, `debate measure` and `debate next`."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest

import debate_judge
from debate_judge import data
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.schema import Candidate, RatedGroup, group_to_json
from debate_judge.data.tasks import PAIRS
from debate_judge.programs import build_preset
from debate_judge.runs import check
from debate_judge.runs.after import measure
from debate_judge.runs.after import next as next_sources
from debate_judge.runs.after import recheck as recheck_command
from debate_judge.runs.after.common import recorded_scores_for
from debate_judge.runs.export.manifest import Export
from debate_judge.runs.export.recorded import RECORDED, recorded_scores_json
from tests.fakes import section
from tests.runs.known_judges import LMS, RATED, SEEN, asked, command, export, file_of, scores_of
from tests.runs.rated_corpora import TASK, the_number
from tests.runs.score_command import export_of

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
    evidence = {RECORDED: recorded_scores_json(corpus, scores, {}, scored_by="export", train_dev_sources=())}
    exported = cast(Export, SimpleNamespace(manifest={"evidence": evidence}))
    # Compared with another LM's, they rest on sources.
    kept = recorded_scores_for(exported, corpus, PAIRS.aspects)["preference"]
    assert [(group.group, group.source_id) for group in kept] == [(g.id, g.source_id) for g in corpus.groups]
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


# --- next ---

TEXTS = 5
POOL = [replace(g, id=f"new {g.id}", source=f"New {i % 4} source {i}") for i, g in enumerate(RATED.groups)]
GUIDE = "As our raters see it."
APART = {"new g0", "new g4", "new g8", "new g12"}
"""Sources whose texts a judge without a guide ranks the other way round."""


def split_minds(prompt: str) -> str:
    number = int(the_number(prompt))
    return str(6 - number if "New 0" in section(prompt, "source") and GUIDE not in prompt else number)


@pytest.fixture
def lm(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setitem(LMS, "scripted/old", split_minds)
    return asked


def export_guided(folder: Path, guided: bool = True, **evidence: Any) -> str:
    """A single call of both aspects, with something about the raters in its instructions unless it is a plain one."""
    judge = build_preset("single", {})
    if guided:
        scorer = judge.scorer
        scorer.signature = scorer.signature.with_instructions(f"{scorer.signature.instructions} {GUIDE}")
    own = scores_of(RATED, lambda rating: rating)
    known = recorded_scores_json(
        RATED, own, {}, scored_by="folds", train_dev_sources={g.source_id for g in RATED.groups}
    )
    return str(export_of(folder, TASK, judge, lm="scripted/old", **{**evidence, RECORDED: known}))


Choose = Callable[..., dict[str, Any]]


@pytest.fixture
def choose(tmp_path: Path, lm: list[str], capsys: pytest.CaptureFixture[str]) -> Choose:
    def run(*more: str, address: str | None = None, pool: list[RatedGroup] = POOL) -> dict[str, Any]:
        draw = [] if "--draw" in more else ["--draw", "chosen"]
        places = ["--pool", file_of(tmp_path / "pool.jsonl", pool), "--store", str(tmp_path / "store")]
        assert next_sources.main([address or export_guided(tmp_path / "judge"), *places, "--json", *draw, *more]) == 0
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    return run


@pytest.mark.integration
def test_sources_whose_rankings_are_apart_come_first(choose: Choose) -> None:
    result = choose("--budget", "40")
    # 5 texts in 2 aspects.
    assert (result["ratings"], result["texts"], len(result["sources"])) == (40, 20, 4)
    by_name = {source["group"]: source for source in result["sources"]}
    assert all(source["rankings_apart"] > 0.5 for name, source in by_name.items() if name in APART)
    # A quarter of the probability is the same for all 16; the rest falls to 4 of them.
    likely, others = 4 * (0.25 + 3) / 16, 4 * 0.25 / 16
    assert all(s["drawn"] == pytest.approx(likely if name in APART else others) for name, s in by_name.items())
    assert len(APART & set(by_name)) >= 3
    # What the compile knew is left out, and the seed decides; of a second limit of the budget the smaller counts.
    again = choose("--budget", "49,usd=1", pool=[*RATED.groups, *POOL])
    assert (again["pool"], again["known_sources"], again["texts"]) == (len(POOL), len(RATED.groups), 20)
    assert again["sources"] == result["sources"]


@pytest.mark.parametrize(("guided", "most"), [(True, 1), (False, 7)])
def test_a_judges_rival_is_a_single_call_and_that_of_a_plain_one_a_debate(
    guided: bool, most: int, lm: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address, pool = export_guided(tmp_path / "judge", guided), file_of(tmp_path / "pool.jsonl", POOL[:4])
    arguments = [address, "--pool", pool, "--budget", "10", "--store", str(tmp_path / "none"), "--estimate"]
    assert next_sources.main([*arguments, "--draw", "chosen"]) == 0
    upper = re.findall(r"^total\s+[\d,]+ / [\d,]+ / ([\d,]+)", capsys.readouterr().out, re.MULTILINE)
    items = 2 * TEXTS * 4
    # Three rounds of Critic and Scorer at most.
    assert [int(number.replace(",", "")) for number in upper] == [items, most * items]
    assert not (tmp_path / "none").exists()


def test_random_sources_ask_no_lm_and_may_prove(
    choose: Choose, tmp_path: Path, lm: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    address, pool = export_guided(tmp_path / "judge"), file_of(tmp_path / "pool.jsonl", POOL)
    out, store = tmp_path / "proof.csv", str(tmp_path / "store")
    result = debate_judge.next(address, pool, 40, store=store, out=str(out))
    assert (result.ratings, len(result.groups), result.distances, lm) == (40, 4, (), [])
    assert "drawn" not in out.read_text().splitlines()[0]
    assert {source["drawn"] for source in choose("--budget", "160")["sources"]} == {None}, "all sources are no choice"
    printed = []
    for draw in ([], ["--draw", "chosen"]):
        assert next_sources.main([address, "--pool", pool, "--budget", "40", "--store", store, *draw]) == 0
        printed.append(capsys.readouterr().out)
    assert all(group.id in printed[0] for group in result.groups)
    assert ["rankings apart" in text for text in printed] == [False, True]
    assert [int(n) for n in re.findall(r"\d+", printed[1].partition("\n")[0])] == [4, 16, 20, 40]


@pytest.mark.integration
def test_conclusive_aspects_and_raters_are_those_of_the_evidence(choose: Choose, tmp_path: Path) -> None:
    gains = {
        "coherence": {"value": 0.1, "low": 0.05, "high": 0.15},
        "fluency": {"value": 0.1, "low": -0.05, "high": 0.25},
    }
    raters = {"compiled": {"coherence": {"raters": 3, "alpha": 0.9}, "fluency": {"raters": 3, "alpha": 0.4}}}
    address, out = export_guided(tmp_path / "open", gains=gains, raters=raters), tmp_path / "f.csv"
    result = choose("--budget", "60", "--out", str(out), address=address)
    assert result["raters"] == {"fluency": 3}
    assert list(result["aspects_left_out"]) == ["coherence"]
    assert "+0.10 [+0.05, +0.15]" in result["aspects_left_out"]["coherence"]
    assert len(result["sources"]) == 4
    assert out.read_text().splitlines()[0].split(",")[-4:] == ["fluency_1", "fluency_2", "fluency_3", "drawn"]
    every = choose("--budget", "60", "--aspects", "coherence,fluency", address=address)
    assert every["raters"] == {"coherence": 1, "fluency": 3}
    assert choose("--budget", "60", "--raters", "2", address=address)["raters"] == {"fluency": 2}


def fill_table(path: Path) -> None:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["coherence"] for row in rows} == {""}
    for place, row in enumerate(rows):
        row["coherence"], row["fluency"] = str(1 + place % 5), str(5 - place % 5)
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def fill_tasks(path: Path) -> None:
    """As Label Studio exports what was rated in the interface beside the tasks."""
    tasks = json.loads(path.read_text())
    view = ElementTree.parse(path.with_suffix(".xml")).getroot()
    names = [number.get("name", "") for number in view.iter("Number")]
    assert {text.get("value") for text in view.iter("Text")} <= {f"${name}" for name in tasks[0]["data"]}
    for place, task in enumerate(tasks):
        values = zip(names, (1 + place % 5, 5 - place % 5), strict=True)
        result = [{"from_name": n, "to_name": "text", "type": "number", "value": {"number": v}} for n, v in values]
        task |= {"id": place, "annotations": [{"completed_by": 7, "was_cancelled": False, "result": result}]}
    path.write_text(json.dumps(tasks))


@pytest.mark.parametrize(("name", "fill"), [("rate.csv", fill_table), ("tasks.json", fill_tasks)])
def test_a_file_that_was_filled_in_loads_back_and_proves_nothing(
    name: str,
    fill: Callable[[Path], None],
    choose: Choose,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / name
    result = choose("--budget", "60", "--out", str(out))
    fill(out)
    corpus = data.load(str(out), "summarization")
    drawn = {source["group"]: source["drawn"] for source in result["sources"]}
    assert {g.id: g.sampling_probability for g in corpus.groups} == drawn
    sources = {group.id: group for group in POOL}
    for group in corpus.groups:
        own = sources[group.id]
        assert (group.source, [c.id for c in group.candidates]) == (own.source, [c.id for c in own.candidates])
        assert [c.ratings["coherence"] for c in group.candidates] == [(1,), (2,), (3,), (4,), (5,)]
    assert check.main([str(out), "--task", "summarization"]) == 0
    printed = capsys.readouterr().out
    assert f"{len(corpus.groups)} groups were selected" in printed
    assert "not read" not in printed
    arguments = [str(tmp_path / "judge"), "--task", "summarization", "--store", str(tmp_path / "store")]
    assert recheck_command.main([*arguments, "--data", str(out)]) == 2
    assert "all sources were selected" in capsys.readouterr().err


@pytest.mark.integration
def test_of_chosen_and_other_sources_the_others_prove(
    lm: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rated = [replace(g, sampling_probability=0.5) if i < 2 else g for i, g in enumerate(POOL)]
    arguments = [export_guided(tmp_path / "judge"), "--task", "summarization", "--store", str(tmp_path / "store")]
    mixed = file_of(tmp_path / "mixed.jsonl", rated)
    assert recheck_command.main([*arguments, "--data", mixed, "--aspects", "coherence", "--json"]) in (0, 1)
    result = json.loads(capsys.readouterr().out)
    assert result["sources"] == len(POOL) - 2
    assert "2 sources were selected" in result["notes"][0]
