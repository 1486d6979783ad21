"""The commands after a compile: `debate recheck`, `debate measure`, `debate next` and `debate carry`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pandas as pd
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
from debate_judge.runs.export.folder import load, read
from debate_judge.runs.export.manifest import Export
from debate_judge.runs.export.recorded import RECORDED, recorded_scores_in, recorded_scores_json
from debate_judge.runs.flags.invocation import COMMANDS
from tests.fakes import section
from tests.runs.known_judges import LMS, RATED, SEEN, command, export, file_of, lm_specs, scores_of
from tests.runs.rated_corpora import TASK, the_number
from tests.runs.score_command import export_of

__all__ = ["lm_specs"]

NEW = [replace(g, id=f"new {g.id}", source=f"A new source: {g.source}") for g in RATED.groups[:12]]


def rated(groups: list[RatedGroup], by: Any) -> list[RatedGroup]:
    """The groups with other ratings: a function of rating and place of the candidate."""

    def changed(candidate: Candidate, place: int) -> Candidate:
        return replace(candidate, ratings={"coherence": (by(candidate.ratings["coherence"][0], place),)})

    return [replace(g, candidates=tuple(changed(c, i) for i, c in enumerate(g.candidates))) for g in groups]


@pytest.fixture(autouse=True)
def _folder(lm_specs: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A working directory with rated data."""
    monkeypatch.chdir(tmp_path)
    file_of(tmp_path / "rated.jsonl", RATED.groups)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
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
    rows: list[dict[str, object]] = []
    for i in range(20):
        for system in "ab":
            score = 2 + (i % 3) / 2 + 0.5 * (system == "b")
            rating = score + 1 + 0.1 * (i % 2) if i < 6 else None
            rows.append(
                {"group": f"g{i}", "candidate": system, "aspect": "coherence", "rating": rating, "score": score}
            )
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
        files = [lines(tmp_path / "texts.jsonl", records), "--scores", lines(tmp_path / "scores.jsonl", scores)]
        assert measure.main([*files, "--json"]) == 0
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
def lm(lm_specs: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setitem(LMS, "scripted/old", split_minds)
    return lm_specs


def export_guided(folder: Path, guided: bool = True, **evidence: Any) -> str:
    """A single call of both aspects, with a guide to the raters in its instructions unless it is a plain one."""
    judge = build_preset("single", {})
    if guided:
        scorer = judge.scorer
        scorer.signature = scorer.signature.with_instructions(f"{scorer.signature.instructions} {GUIDE}")
    scores, seen = scores_of(RATED, lambda rating: rating), {g.source_id for g in RATED.groups}
    recorded = recorded_scores_json(RATED, scores, {}, scored_by="folds", train_dev_sources=seen)
    return str(export_of(folder, TASK, judge, lm="scripted/old", **{**evidence, RECORDED: recorded}))


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
    outputs = []
    for draw in ([], ["--draw", "chosen"]):
        assert next_sources.main([address, "--pool", pool, "--budget", "40", "--store", store, *draw]) == 0
        outputs.append(capsys.readouterr().out)
    assert all(group.id in outputs[0] for group in result.groups)
    assert ["rankings apart" in output for output in outputs] == [False, True]


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
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    assert set(table["coherence"]) == {""}
    table["coherence"], table["fluency"] = table.index % 5 + 1, 5 - table.index % 5
    table.to_csv(path, index=False)


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
    name: str, fill: Callable[[Path], None], choose: Choose, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / name
    result = choose("--budget", "60", "--out", str(out))
    fill(out)
    corpus = data.load(str(out), "summarization")
    drawn = {source["group"]: source["drawn"] for source in result["sources"]}
    assert {g.id: g.sampling_probability for g in corpus.groups} == drawn
    sources = {group.id: group for group in POOL}
    for group in corpus.groups:
        chosen = sources[group.id]
        assert (group.source, [c.id for c in group.candidates]) == (chosen.source, [c.id for c in chosen.candidates])
        assert [c.ratings["coherence"] for c in group.candidates] == [(1,), (2,), (3,), (4,), (5,)]
    assert check.main([str(out), "--task", "summarization"]) == 0
    output = capsys.readouterr().out
    assert f"{len(corpus.groups)} groups were selected" in output
    assert "not read" not in output
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


# --- carry ---

HELD_OUT = len(RATED.groups) - SEEN


def carry(address: Path, lm: str, *more: str) -> tuple[int, dict[str, Any]]:
    return command("carry", address, "--lm", lm, "--data", "rated.jsonl", "--store", "store", *more)


def test_an_lm_that_scores_alike_carries_the_judge(lm_specs: list[str], tmp_path: Path) -> None:
    code, result = carry(export(tmp_path / "old"), "scripted/same")
    assert (code, result["verdict"], result["old_scores"]) == (0, "carry", "asked")
    assert (result["sources"], result["held_out"]) == (HELD_OUT, True)
    assert lm_specs == ["scripted/same", "scripted/old"]
    carried = read(result["export"])
    assert (carried.manifest["lm"]["spec"], carried.manifest["name"]) == ("scripted/same", "mine-on-scripted-same")
    assert carried.manifest["evidence"]["held_out"]["carried"]["average"]["summary"]["spearman"]["value"] == 1
    old = read(tmp_path / "old")
    assert carried.judge.aspects["coherence"].calibration == old.judge.aspects["coherence"].calibration
    # The new export can be carried again: it keeps its own scores, and knows what it was tuned on.
    recorded = recorded_scores_in(carried.manifest)
    assert (len(recorded.sources), len(recorded.train_dev_sources), recorded.scored_by) == (
        HELD_OUT,
        SEEN,
        "export",
    )
    assert set(recorded.calibrated) == {"coherence"}


def test_an_lm_with_the_same_ranks_and_other_scores_gets_a_new_map(tmp_path: Path) -> None:
    code, result = carry(export(tmp_path / "old"), "scripted/shifted", "--name", "new")
    assert (code, result["verdict"]) == (0, "recalibrate")
    aspect = result["aspects"]["coherence"]
    # .6 x + .4 of ratings from 1 to 5 is .8 lower in the mean.
    assert aspect["shift"]["value"] == pytest.approx(-0.8)
    assert (aspect["spread"], aspect["between"]) == (pytest.approx(0.6), pytest.approx(1))
    assert aspect["error_refitted"]["value"] < 0.05 < aspect["error_new"]["value"]
    calibration = read("store/exports/new").judge.aspects["coherence"].calibration
    assert calibration.map_score(0.6 * 4 + 0.4) == pytest.approx(4, abs=0.02)


def test_an_lm_that_loses_more_than_the_users_margin_is_not_carried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address, noisy = export(tmp_path / "old"), ("scripted/noisy", "--shift", "1", "--margin")
    for arguments in (("scripted/lost",), (*noisy, "0.001")):
        code, result = carry(address, *arguments)
        assert (code, result["verdict"], result["export"]) == (1, "recompile", None)
        assert "agrees less" in result["why"]
    assert not Path("store/exports").exists()
    assert carry(address, *noisy, "0.5")[1]["verdict"] == "carry"
    # The tables, without --json.
    arguments = [str(address), "--lm", "scripted/lost", "--data", "rated.jsonl", "--store", "store"]
    assert import_module(COMMANDS["carry"][0]).main(arguments) == 1
    output = capsys.readouterr().out
    assert output.startswith("recompile: ")
    assert "12 held-out sources" in output


def test_what_speaks_for_an_lm_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    code, result = carry(export(tmp_path / "recorded", spec="scripted/gone"), "scripted/same")
    assert (code, result["verdict"], result["old_scores"]) == (0, "carry", "recorded")
    assert "was retired" in result["notes"][0]
    stored = export(tmp_path / "stored", keeps=False)
    assert carry(stored, "scripted/same")[0] == 0
    monkeypatch.setitem(LMS, "scripted/old", lambda prompt: pytest.fail("the old LM was asked"))
    code, result = carry(stored, "scripted/same", "--name", "again")
    assert (code, result["old_scores"], result["sources"]) == (0, "asked", len(RATED.groups))
    for number, more in enumerate(({"keeps": False}, {"by": "folds"})):
        assert carry(export(tmp_path / f"old{number}", spec="scripted/gone", **more), "scripted/same")[0] == 2
        assert "has no scores" in capsys.readouterr().err


USERS_JUDGE = "own_judge_after_a_compile:Small"


@pytest.mark.parametrize("name", ["carry", "recheck", "measure"])
def test_an_export_of_a_judge_of_ones_own_is_opened_where_it_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lm_specs: list[str]
) -> None:
    module = USERS_JUDGE.partition(":")[0]
    (tmp_path / f"{module}.py").write_text(
        "from debate_judge.programs.debate.judge import Debate\n\nclass Small(Debate): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    address = str(export(tmp_path / "old", kind=USERS_JUDGE))
    monkeypatch.delitem(sys.modules, module)
    new = [replace(g, id=f"n{g.id}", source=f"New: {g.source}") for g in RATED.groups]
    rated = file_of(tmp_path / "new.jsonl", new)
    arguments = {
        "carry": [address, "--lm", "scripted/same", "--data", rated],
        "recheck": [address, "--data", rated],
        "measure": [rated, "--program", address],
    }[name]
    assert command(name, *arguments)[0] == 2
    assert f"--config judge={USERS_JUDGE} " in " ".join(capsys.readouterr().err.split())
    assert (lm_specs, module in sys.modules) == ([], False)
    assert command(name, *arguments, "--config", f"judge={USERS_JUDGE}")[0] == 0, capsys.readouterr().err
    with load(address, judges=[USERS_JUDGE]) as judge:
        assert judge.score(source="s", text="4 t")["coherence"].score == 4
