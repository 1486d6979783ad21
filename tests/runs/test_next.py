"""`debate next`: what is chosen and why, files that load back once they are filled in, and what they may prove."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import debate_judge
from debate_judge import data
from debate_judge.data.schema import RatedGroup
from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs import check
from debate_judge.runs.after import next as command
from debate_judge.runs.after import recheck
from debate_judge.runs.export.folder import save
from debate_judge.runs.export.recorded import RECORDED, record_scores
from tests.fakes import section
from tests.runs.known_judges import LMS, RATED, asked, file_of, scores_of
from tests.runs.rated_corpora import TASK, the_number

__all__ = ["asked"]

TEXTS = 5
POOL = [replace(g, id=f"new {g.id}", source=f"New {i % 4} source {i}") for i, g in enumerate(RATED.groups)]
TOLD = "As our raters see it."
APART = {"new g0", "new g4", "new g8", "new g12"}
"""Sources whose texts a judge that was told nothing ranks the other way round."""

Filled = Callable[[Path], None]


def split_minds(prompt: str) -> str:
    number = int(the_number(prompt))
    return str(6 - number if "New 0" in section(prompt, "source") and TOLD not in prompt else number)


@pytest.fixture(autouse=True)
def lm(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setitem(LMS, "scripted/old", split_minds)
    return asked


def export(folder: Path, told: bool = True, **evidence: Any) -> str:
    """A single call of both aspects, which is told something of the raters unless it is a plain one."""
    judge = build("debate", JUDGES["single"].config)
    if told:
        scorer = judge.scorer
        scorer.signature = scorer.signature.with_instructions(f"{scorer.signature.instructions} {TOLD}")
    own = scores_of(RATED, lambda rating: rating)
    known = record_scores(RATED, own, {}, scored_by="folds", seen={g.source_id for g in RATED.groups})
    judges = {aspect.name: AspectJudge(judge) for aspect in TASK.aspects}
    kept = {**evidence, RECORDED: known}
    return str(save(folder, CompiledJudge(TASK, judges), lm={"spec": "scripted/old"}, evidence=kept, name="mine"))


@pytest.fixture
def chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    def run(*more: str, address: str | None = None, pool: list[RatedGroup] | None = None) -> dict[str, Any]:
        file = file_of(tmp_path / "pool.jsonl", POOL if pool is None else pool)
        store = str(tmp_path / "store")
        made = address or export(tmp_path / "judge")
        draw = [] if "--draw" in more else ["--draw", "chosen"]
        assert command.main([made, "--pool", file, "--store", store, "--json", *draw, *more]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return run


@pytest.mark.integration
def test_sources_whose_rankings_are_apart_come_first(chosen: Callable[..., dict[str, Any]]) -> None:
    found = chosen("--budget", "40")
    # 5 texts in 2 aspects.
    assert (found["ratings"], found["texts"], len(found["sources"])) == (40, 20, 4)
    by_name = {one["group"]: one for one in found["sources"]}
    assert {one["rankings_apart"] > 0.5 for name, one in by_name.items() if name in APART} == {True}
    # A quarter of the probability is the same for all 16; the rest falls to 4 of them.
    likely, others = 4 * (0.25 + 3) / 16, 4 * 0.25 / 16
    assert all(one["drawn"] == pytest.approx(likely if name in APART else others) for name, one in by_name.items())
    assert len(APART & set(by_name)) >= 3
    assert chosen("--budget", "40") == found
    assert chosen("--budget", "49,usd=1")["texts"] == 20


@pytest.mark.parametrize(("told", "most"), [(True, 1), (False, 7)])
def test_a_judges_rival_is_a_single_call_and_that_of_a_plain_one_a_debate(
    told: bool, most: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address, pool = export(tmp_path / "judge", told), file_of(tmp_path / "pool.jsonl", POOL[:4])
    arguments = [address, "--pool", pool, "--budget", "10", "--store", str(tmp_path / "none"), "--estimate"]
    assert command.main([*arguments, "--draw", "chosen"]) == 0
    upper = re.findall(r"^total\s+[\d,]+ / [\d,]+ / ([\d,]+)", capsys.readouterr().out, re.MULTILINE)
    items = 2 * TEXTS * 4
    # Three rounds of Critic and Scorer at most.
    assert [int(number.replace(",", "")) for number in upper] == [items, most * items]
    assert not (tmp_path / "none").exists()


def test_random_sources_ask_no_lm_and_may_prove(
    chosen: Callable[..., dict[str, Any]], tmp_path: Path, asked: list[str]
) -> None:
    out = tmp_path / "proof.csv"
    found = chosen("--budget", "60", "--draw", "random", "--out", str(out))
    assert asked == []
    assert len(found["sources"]) == 6
    assert {one["drawn"] for one in found["sources"]} == {None}
    assert "drawn" not in out.read_text().splitlines()[0]
    assert {one["drawn"] for one in chosen("--budget", "160")["sources"]} == {None}, "all sources are no choice"


@pytest.mark.integration
def test_conclusive_aspects_and_raters_are_those_of_the_evidence(
    chosen: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    gains = {
        "coherence": {"value": 0.1, "low": 0.05, "high": 0.15},
        "fluency": {"value": 0.1, "low": -0.05, "high": 0.25},
    }
    raters = {"compiled": {"coherence": {"raters": 3, "alpha": 0.9}, "fluency": {"raters": 3, "alpha": 0.4}}}
    address = export(tmp_path / "open", gains=gains, raters=raters)
    found = chosen("--budget", "60", address=address)
    assert found["raters"] == {"fluency": 3}
    assert list(found["settled"]) == ["coherence"]
    assert "+0.10 [+0.05, +0.15]" in found["settled"]["coherence"]
    assert len(found["sources"]) == 4
    every = chosen("--budget", "60", "--aspects", "coherence,fluency", address=address)
    assert every["raters"] == {"coherence": 1, "fluency": 3}
    assert chosen("--budget", "60", "--raters", "2", address=address)["raters"] == {"fluency": 2}
    chosen("--budget", "60", "--out", str(tmp_path / "f.csv"), address=address)
    header = (tmp_path / "f.csv").read_text().splitlines()[0].split(",")
    assert header[-4:] == ["fluency_1", "fluency_2", "fluency_3", "drawn"]


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
    names = [one.get("name", "") for one in view.iter("Number")]
    assert {one.get("value") for one in view.iter("Text")} <= {f"${name}" for name in tasks[0]["data"]}
    for place, task in enumerate(tasks):
        values = zip(names, (1 + place % 5, 5 - place % 5), strict=True)
        result = [{"from_name": n, "to_name": "text", "type": "number", "value": {"number": v}} for n, v in values]
        task |= {"id": place, "annotations": [{"completed_by": 7, "was_cancelled": False, "result": result}]}
    path.write_text(json.dumps(tasks))


@pytest.mark.parametrize(("name", "fill"), [("rate.csv", fill_table), ("tasks.json", fill_tasks)])
def test_a_file_that_was_filled_in_loads_back(
    name: str,
    fill: Filled,
    chosen: Callable[..., dict[str, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / name
    found = chosen("--budget", "60", "--out", str(out))
    fill(out)
    corpus = data.load(str(out), "summarization")
    assert {g.id: g.sampling_probability for g in corpus.groups} == {
        one["group"]: one["drawn"] for one in found["sources"]
    }
    sources = {group.id: group for group in POOL}
    for group in corpus.groups:
        assert (group.source, [c.id for c in group.candidates]) == (
            sources[group.id].source,
            [c.id for c in sources[group.id].candidates],
        )
        assert [c.ratings["coherence"] for c in group.candidates] == [(1,), (2,), (3,), (4,), (5,)]
    assert check.main([str(out), "--task", "summarization"]) == 0
    printed = capsys.readouterr().out
    assert f"{len(corpus.groups)} groups were selected" in printed
    assert "not read" not in printed


@pytest.mark.integration
def test_chosen_sources_prove_nothing(
    chosen: Callable[..., dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, judge = tmp_path / "rate.csv", str(tmp_path / "judge")
    chosen("--budget", "60", "--out", str(out))
    fill_table(out)
    arguments = ["--task", "summarization", "--store", str(tmp_path / "store")]
    assert recheck.main([judge, "--data", str(out), *arguments]) == 2
    assert "all sources were selected" in capsys.readouterr().err
    rated = [replace(g, sampling_probability=0.5) if i < 2 else g for i, g in enumerate(POOL)]
    mixed = file_of(tmp_path / "mixed.jsonl", rated)
    assert recheck.main([judge, "--data", mixed, "--aspects", "coherence", "--json", *arguments]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert found["sources"] == len(POOL) - 2
    assert "2 sources were selected" in found["notes"][0]


def test_what_the_compile_knew_is_left_out(
    chosen: Callable[..., dict[str, Any]],
) -> None:
    found = chosen("--budget", "40", pool=[*RATED.groups, *POOL])
    assert (found["pool"], found["known"]) == (len(POOL), len(RATED.groups))


def test_as_a_function_and_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address, pool = export(tmp_path / "judge"), file_of(tmp_path / "pool.jsonl", POOL)
    found = debate_judge.next(address, pool, 40, store=str(tmp_path / "store"))
    assert (found.ratings, len(found.groups), found.distances) == (40, 4, ())
    arguments = ["--budget", "40", "--store", str(tmp_path / "store")]
    assert command.main([address, "--pool", pool, *arguments]) == 0
    random_sample = capsys.readouterr().out
    assert all(group.id in random_sample for group in found.groups)
    assert command.main([address, "--pool", pool, *arguments, "--draw", "chosen"]) == 0
    printed = capsys.readouterr().out
    assert "rankings apart" in printed
    assert "rankings apart" not in random_sample
    assert [int(n) for n in re.findall(r"\d+", printed.partition("\n")[0])] == [4, 16, 20, 40]
