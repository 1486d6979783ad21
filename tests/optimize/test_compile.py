"""The main job, by its command and from Python: what it prints, writes, registers and exports."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest

import debate_judge
from debate_judge import Aspect, Scale, Task
from debate_judge.data.schema import Corpus
from debate_judge.optimize import compile as command
from debate_judge.optimize import python_api
from debate_judge.optimize.estimate import estimate_compile
from debate_judge.optimize.plan import CompilePlan, make_plan
from debate_judge.optimize.settings import Settings
from debate_judge.runs import command_line
from debate_judge.runs.shared_flags import personas
from tests.config_keys import keys
from tests.optimize.small_corpus import SAMPLE, small_corpus
from tests.printed_output import unwrapped

QUICK = ["--max-rounds", "1", "--folds", "1", *keys(trials=4, report="none", json="r.json")]
NO_ROUNDS = [*QUICK, "--max-rounds", "0", "--tuner", "none", *keys(preflight=False)]

Group = dict[str, Any]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def compiled(*arguments: str) -> dict[str, Any]:
    assert command.main(list(arguments)) == 0
    result: dict[str, Any] = json.loads(Path("r.json").read_text(encoding="utf-8"))
    return result


def written(name: str, change: Callable[[int, Group], Iterator[Group]]) -> list[str]:
    """`--data` of a file with what becomes of each source of the sample."""
    groups = [json.loads(line) for line in SAMPLE.read_text(encoding="utf-8").splitlines()]
    changed = [new for number, group in enumerate(groups) for new in change(number, group)]
    Path(name).write_text("".join(json.dumps(group) + "\n" for group in changed), encoding="utf-8")
    return ["--data", name]


def rated(group: Group, relevance: Callable[[int], object]) -> Group:
    """The group with other ratings of relevance, and of nothing else."""
    rate = [{**c, "ratings": {"relevance": relevance(c["ratings"]["relevance"])}} for c in group["candidates"]]
    return {**group, "candidates": rate}


def evidence_of(result: dict[str, Any]) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((Path(result["export"]) / "manifest.json").read_text(encoding="utf-8"))
    return {**manifest["evidence"], "aspects": manifest["aspects"]}


def numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [n for v in value.values() for n in numbers(v)]
    return [value] if isinstance(value, float) else []


@pytest.mark.integration
def test_the_sample_compiles_to_evidence_and_an_export(capsys: pytest.CaptureFixture[str]) -> None:
    result = compiled(*QUICK, "--aspects", "coherence,consistency")
    assert all(math.isfinite(n) for n in numbers(result))
    parts = [result[name]["value"] for name in ("gain_of_knowledge", "gain_over_informed_single", "gain")]
    assert parts[0] + parts[1] == pytest.approx(parts[2])
    assert set(result["held_out"]) == {"single", "informed_single", "compiled"}
    for table in result["held_out"].values():
        cell = table["aspects"]["coherence"]["summary"]["spearman"]
        assert cell["low"] <= cell["value"] <= cell["high"]
    evidence = evidence_of(result)
    for aspect, calibration in result["calibration"].items():
        held_out = result["held_out"]["compiled"]["aspects"][aspect]["summary"]["spearman"]
        assert calibration["spearman_after"] == calibration["spearman"] == held_out["value"]
        # Train and dev, or dev alone where the Critic's persona was written from all of train.
        groups = 6 if result["chosen"][aspect]["persona"] == "learnt" else 11
        assert calibration["fitted_on"] == {"groups": groups, "candidates": 6 * groups}
        # Where held-out shows no gain, the single call is exported, which has no map.
        exported = evidence["aspects"][aspect].get("calibration")
        assert (exported is None) == (result["exported"]["judge"] == "single")
        assert evidence["calibration"][aspect] == calibration
    calls = evidence["lm_calls_per_item"]
    assert calls["informed_single"] == calls["single"] == 1 <= calls["compiled"]
    output = unwrapped(capsys.readouterr().out)
    assert "not a language model" in output
    assert f"{command_line.command('score')} {result['export']} --in" in output
    assert "stand-in" in (Path(result["export"]) / "README.md").read_text()
    run = tracked().get_run(result["run_id"])
    assert run.data.tags["held_out"] == result["splits"]["held_out"]
    assert {"n", "persona", "knowledge"} <= run.data.params.keys()


def tracked() -> Any:
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{Path.cwd()}/runs/store/mlflow.db")


# --- other data ---


@pytest.mark.integration
def test_ungrouped_data_is_judged_at_sample_level(capsys: pytest.CaptureFixture[str]) -> None:
    def single(number: int, group: Group) -> Iterator[Group]:
        yield {**group, "candidates": group["candidates"][:1]}
        source = f"{group['source']} The editors added a line later."
        yield {**group, "group": f"again-{number}", "source": source, "candidates": group["candidates"][1:2]}

    result = compiled(*written("flat.jsonl", single), *QUICK, "--aspects", "relevance")
    cells = result["held_out"]["compiled"]["aspects"]["relevance"]
    assert cells["summary"]["spearman"]["value"] is None is not cells["sample"]["spearman"]["value"]
    assert "sample-level" in capsys.readouterr().out


@pytest.mark.integration
def test_a_judge_that_does_not_agree_is_told_and_not_registered(capsys: pytest.CaptureFixture[str]) -> None:
    data = written("turned.jsonl", lambda n, group: iter([rated(group, lambda r: 6 - r)]))
    result = compiled(*data, "--aspects", "relevance", *NO_ROUNDS)
    assert "not registered" in unwrapped(capsys.readouterr().out)
    assert result["held_out"]["compiled"]["aspects"]["relevance"]["summary"]["spearman"]["low"] <= 0
    client = tracked()
    run = client.get_run(result["run_id"])
    assert not client.search_registered_models()
    assert "| relevance |" in run.data.tags["mlflow.note.content"]
    assert run.data.metrics["agreement"] == result["held_out"]["compiled"]["average"]["summary"]["spearman"]["value"]
    compiled("--aspects", "relevance", *NO_ROUNDS)
    assert len(client.search_registered_models()) == 1


@pytest.mark.integration
def test_sources_of_equal_ratings_count_and_are_part_of_the_estimate() -> None:
    """They rank nothing, so that no judge is tuned or chosen by them, but they tell how high the raters go."""
    data = written("rated.jsonl", lambda n, group: iter([rated(group, lambda r: r if n % 3 else 5)]))
    estimate = estimate_compile(make_plan(Settings(data="rated.jsonl", max_rounds=0, folds=1), personas(None)))
    result = compiled(*data, *QUICK, "--max-rounds", "0", *keys(preflight=False))
    # 11 of the 18 sources are train and dev, 66 texts.
    calibration = result["calibration"]["relevance"]
    assert calibration["fitted_on"] == {"groups": 11, "candidates": 66}
    # The judge thinks less of these texts than their raters do.
    assert calibration["bias"]["value"] < calibration["bias_after"]["value"]
    assert calibration["change"]["value"] < 0
    assert "calibration" in estimate.rows
    assert result["lm_calls"]["answered"] <= estimate.total[1].calls + 1e-6


# --- decisions ---

RIVERS = ("Ash", "Birch", "Cedar", "Dogwood", "Elder", "Fir", "Gorse", "Hazel", "Ivy", "Juniper", "Larch", "Maple")


def lines_of(path: Path, records: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


@pytest.mark.integration
def test_two_valued_ratings_are_decided_by_one_cut(capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        {
            "knowledge": f"The town of {river}ham lies on the {river}. It has a mill and {number} bridges.",
            "question": f"On which river does {river}ham lie?",
            "right_answer": f"It lies on the {river}.",
            "hallucinated_answer": f"It lies on the {RIVERS[number - 1]} and is famous for its cathedral.",
        }
        for number, river in enumerate(RIVERS)
    ]
    data = ["--data", f"halueval={lines_of(Path('questions.json'), records)}", "--judge", "hallucination-single"]
    result = compiled(*data, *QUICK, "--tuner", "none", "--verbose")
    assert {"single", "informed_single", "compiled"} <= set(result["decisions"])
    decisions = result["decisions"]["compiled"]["factuality"]
    assert (decisions["kind"], decisions["threshold"], decisions["cut"]) == ("binary", 0.5, 0.5)
    assert decisions["labels"]["positive"] == decisions["labels"]["negative"] == decisions["sources"]
    # Every candidate is decided on by one cut for all sources, so agreement is pooled although there are groups.
    assert "sample-level" in capsys.readouterr().out
    assert evidence_of(result)["decisions"] == result["decisions"]


@pytest.mark.integration
def test_pairs_are_decided_as_win_tie_or_loss() -> None:
    Path("contests").mkdir()
    texts = {
        "question.jsonl": [f"What is there to see on the {river}?" for river in RIVERS],
        "answer_gpt35.jsonl": [f"On the {r} there are {n} bridges and a mill. See both." for n, r in enumerate(RIVERS)],
        "answer_vicuna-13b.jsonl": [f"I would not know about {'it ' * n}" for n in range(len(RIVERS))],
    }
    for name, answers in texts.items():
        lines_of(Path("contests") / name, [{"question_id": n, "text": text} for n, text in enumerate(answers)])
    labels = ["CHATGPT", "VICUNA13B", "TIE", "CHATGPT"] * 3
    Path("contests/review_gpt35_vicuna-13b_human.txt").write_text("\n".join(labels), encoding="utf-8")
    data = ["--data", "faireval=contests", "--judge", "chateval-compare"]
    decided = compiled(*data, *QUICK, "--tuner", "none", "--verbose")["decisions"]["compiled"]["preference"]
    assert decided["kind"] == "pairs"
    assert sum(decided["labels"].values()) == sum(decided["decisions"].values()) == decided["sources"]
    assert set(decided["measures"]) == {"accuracy", "kappa", "balanced_accuracy", "auroc"}


# --- commands and functions ---


TASK = Task("summarization", "news article", "summary", (Aspect("coherence", "Whether it is one story.", Scale(1, 5)),))
IN_PYTHON: dict[str, Any] = {"aspects": ["coherence"], "max_rounds": 1, "tuner": "none", "folds": 1}
IN_PYTHON |= {"report": "none", "store": "store", "progress": False}


@pytest.mark.integration
def test_a_frame_becomes_a_judge_a_table_a_verdict_and_an_export() -> None:
    frame = pd.DataFrame(
        {"source": g.source, "text": c.text, "coherence": g.ratings("coherence")[n], "editor": "somebody"}
        for g in debate_judge.corpus(small_corpus(Path(), 8, 3)).groups
        for n, c in enumerate(g.candidates)
    )
    done = debate_judge.compile(frame, task="summarization", **IN_PYTHON)
    assert done.verdict.startswith("The compiled judge agrees with the raters: ")
    assert list(done.table.index) == ["coherence", "average"]
    figures = done.table["compiled"].loc["average"]
    assert figures["low"] <= figures["value"] <= figures["high"]
    assert done.to_json()["held_out"]["compiled"]
    # One judge, with one connection, however often it is asked for.
    assert done.judge is done.judge
    score = done.judge(source=frame["source"][0], text=frame["text"][0], aspect="coherence").score
    assert 1 <= score <= 5
    with debate_judge.load(done.export) as judge:
        assert judge.score(source=frame["source"][0], text=frame["text"][0])["coherence"].score == score
    repeated = debate_judge.compile(frame.copy(), task="summarization", **IN_PYTHON)
    assert (repeated.export, repeated.lm.meter.executed.total()) == (done.export, 0)
    assert debate_judge.compile(frame[::-1], task="summarization", **IN_PYTHON).export != done.export


def test_a_file_a_corpus_and_a_task_of_ones_own_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(chosen: Settings, texts: Mapping[str, str], corpus: Corpus | None, *, progress: bool) -> CompilePlan:
        return make_plan(chosen, texts, corpus)

    monkeypatch.setattr(python_api, "compile_judge", planned)
    file = small_corpus(Path(), 8, 3)
    worded = replace(TASK, aspects=(replace(TASK.aspects[0], definition="Whether each sentence follows."),))
    inputs = ((file, "summarization"), (debate_judge.corpus(file), None), (file, TASK), (file, worded))
    plans = [cast(CompilePlan, debate_judge.compile(data, task=task, **IN_PYTHON)) for data, task in inputs]
    assert plans[0].corpus.groups == plans[1].corpus.groups
    assert [plan.corpus.task for plan in plans[2:]] == [TASK, worded]
    assert len({plan.name for plan in plans}) == 4
