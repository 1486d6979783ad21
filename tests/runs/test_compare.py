"""The compare command: what it scores by default, what it prints and writes, and what each judge would pay."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient

from debate_judge import data
from debate_judge.data.splits import split
from debate_judge.data.tasks import SUMMARIZATION
from debate_judge.programs import build_preset
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import AspectJudge, CompiledJudge
from debate_judge.programs.lm.replies import FILE
from debate_judge.runs import compare
from debate_judge.runs.export import save
from tests.config_keys import keys
from tests.fakes import debater
from tests.faulty_server import FaultyServer
from tests.printed_output import unwrapped
from tests.runs.score_command import export_of, over_http
from tests.stores import count

ASPECTS = ["coherence", "relevance"]
ITEMS = 3 * 4 * 2
"""Held-out items of the two aspects."""


class Compare:
    """The command over a part of the sample, in a folder of its own."""

    def __init__(self, data: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.data, self.folder, self.capsys = data, folder, capsys

    def run(self, judges: str, *more: str, aspects: str = ",".join(ASPECTS)) -> int:
        arguments = ["--data", str(self.data), "--store", str(self.folder / "store"), "--judges", judges]
        return compare.main([*arguments, "--aspects", aspects, *keys(report="none"), *more])

    def table(self, judges: str, *more: str, **options: str) -> dict[str, Any]:
        self.capsys.readouterr()
        assert self.run(judges, "--json", str(self.folder / "t.json"), *more, **options) == 0
        table: dict[str, Any] = json.loads((self.folder / "t.json").read_text())
        return table

    def rate(self, change: Callable[[float], list[float]]) -> None:
        """Change the ratings of the data."""
        records = [json.loads(line) for line in self.data.read_text().splitlines()]
        for candidate in (candidate for record in records for candidate in record["candidates"]):
            candidate["ratings"] = {aspect: change(rating) for aspect, (rating,) in candidate["ratings"].items()}
        self.data = self.folder / "changed.jsonl"
        self.data.write_text("".join(json.dumps(record) + "\n" for record in records))

    def output(self) -> str:
        return unwrapped(self.capsys.readouterr().out)


@pytest.fixture
def command(rated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Compare:
    return Compare(rated, tmp_path, capsys)


# --- judges, data and statistics ---


@pytest.mark.integration
def test_the_family_stands_in_one_table_and_the_same_command_goes_on_from_the_store(command: Compare) -> None:
    def replies() -> int:
        return sum(count(file.parent) for file in (command.folder / "store").rglob(FILE))

    names = ["single", "geval", "multiagent", "debate", "debate+tiebreak", "chateval"]
    command.table("single")
    assert replies() == ITEMS
    table, stored = command.table(",".join(names)), replies()
    assert list(table["judges"]) == names
    assert set(table["differences"]) == set(names[1:])
    # What a judge needs is not less because it was answered before.
    resumed, counts = command.table(",".join(names)), table.pop("lm_calls")
    assert [(of["requested"], of["answered"]) for of in resumed.pop("lm_calls").values()] == [
        (of["requested"], 0) for of in counts.values()
    ]
    assert resumed == table
    assert replies() == stored


def test_where_raters_are_several_judges_stand_beside_them(command: Compare) -> None:
    assert "raters" not in command.table("rouge-l", "--part", "all")
    command.rate(lambda rating: [rating, max(1, rating - 1), rating])
    raters = command.table("rouge-l,single", "--part", "all")["raters"]
    metric, single = raters["rouge-l"]["coherence"], raters["single"]["coherence"]
    assert (single["raters"], single["ceiling"]) == (3, metric["ceiling"])
    # ROUGE-L has a scale of its own: its distance from ratings means nothing.
    assert (metric["error"]["value"], single["error"]["value"] > 0) == (None, True)


def test_held_out_groups_of_compiles_split_are_scored_unless_others_are_wanted(command: Compare) -> None:
    corpus = data.load(str(command.data))
    for seed in ("0", "3"):
        scored = command.table("rouge-l", "--seed", seed)["data"]
        held_out = split(corpus, aspects=ASPECTS, seed=int(seed)).held_out
        assert (scored["part"], scored["groups"], scored["digest"]) == ("held-out", 3, held_out.digest)
    for sources, groups in ((None, corpus.groups), (4, corpus.groups[:4])):
        scored = command.table("rouge-l", "--part", "all", *(keys(sources=sources) if sources else []))["data"]
        assert scored["digest"] == replace(corpus, groups=groups).digest


def test_a_comparison_is_a_run_with_a_child_for_each_judge(command: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
        assert command.run("rouge-l,single") == 2, "before a call is paid for"
    assert "cannot be used" in command.capsys.readouterr().err
    assert command.run("rouge-l,single") == 0
    (database,) = command.folder.rglob("mlflow.db")
    client = MlflowClient(f"sqlite:///{database}")
    runs = client.search_runs([e.experiment_id for e in client.search_experiments()])
    children = {run.info.run_name: run for run in runs if "mlflow.parentRunId" in run.data.tags}
    (parent,) = [run for run in runs if run not in children.values()]
    assert set(children) == {"rouge-l", "single"}
    assert {run.data.tags["mlflow.parentRunId"] for run in children.values()} == {parent.info.run_id}
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert 0 < children["single"].data.metrics["calls_per_item"] <= 1


def test_a_report_that_cannot_be_written_leaves_the_run(command: Compare) -> None:
    (command.folder / "store").mkdir()
    (command.folder / "store" / "comparisons").write_text("in the way")
    assert command.run("rouge-l", *keys(report="plain")) == 0
    out, err = command.capsys.readouterr()
    assert "the report could not be written" in err
    assert "MLflow" in out


def test_scores_from_a_file_take_part(command: Compare) -> None:
    held_out = split(data.load(str(command.data)), aspects=ASPECTS, seed=0).held_out
    rows = [
        {"group": g.id, "candidate": c.id, "aspect": a, "score": c.rating(a)}
        for g in held_out.groups
        for c in g.candidates
        for a in ASPECTS
    ]
    file = command.folder / "scores.jsonl"
    file.write_text("\n".join(map(json.dumps, rows[1:])))
    table = command.table("single", "--external", f"oracle={file}")
    oracle = table["judges"]["oracle"]
    assert list(table["differences"]) == ["oracle"]
    assert oracle["agreement"]["average"]["summary"]["spearman"]["value"] == pytest.approx(1)
    assert (oracle["lm_calls_per_item"], oracle["usd_per_1000_items"]) == (None, None)
    assert oracle["unscored"] == {"not in the file": 1}
    assert command.run(",", "--external", f"oracle={file}") == 0


# --- exports ---


def test_an_export_is_compared_on_sources_that_it_was_not_compiled_on(command: Compare) -> None:
    corpus = data.load(str(command.data))
    seen, judge = [group.source_id for group in corpus.groups[:5]], AspectJudge(Debate(rounds=1), "half")
    export = export_of(command.folder / "tuned", SUMMARIZATION, judge, lm="offline", compiled_on=seen)
    table = command.table(f"single,{export}")
    assert table["data"]["digest"] == replace(corpus, groups=corpus.groups[5:]).digest
    assert list(table["differences"]) == ["tuned"]


def test_a_judge_on_the_sources_that_it_was_compiled_on_is_no_evidence(
    command: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = data.load(str(command.data))
    seen = [group.source_id for group in corpus.groups]
    judge = AspectJudge(Debate(rounds=1), "half")
    export = export_of(command.folder / "tuned", SUMMARIZATION, judge, lm="offline", compiled_on=seen)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{command.folder}/mlflow.db")
    table = command.table(f"{export},rouge-l,single", "--part", "all")
    assert list(table["judges"]) == ["rouge-l", "single", "tuned"], "it stands last"
    assert table["judges"]["tuned"]["compiled_on_groups"] == table["data"]["groups"] == len(seen)
    assert (table["baseline"], list(table["differences"])) == ("rouge-l", ["single"])
    assert "tuned" not in {*table["best"].values(), *table.get("absolute_agreement", {})}
    assert "tuned was compiled on 8 of these 8 groups" in command.output()
    client = mlflow.MlflowClient(f"sqlite:///{command.folder}/mlflow.db")
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    (metrics,) = (run.data.metrics for run in runs if run.info.run_name == "tuned")
    assert "in_sample_agreement" in metrics
    assert "agreement" not in metrics
    # Alone it has a row, and nothing is said of it.
    table = command.table(str(export), "--part", "all")
    assert (table["differences"], table["best"]["average"]) == ({}, None)


def test_an_export_scores_with_its_own_lm_in_its_own_aspects_and_may_be_varied(command: Compare) -> None:
    judge = CompiledJudge(SUMMARIZATION, {"fluency": AspectJudge(Debate(rounds=2), "half")})
    lm = {"spec": "openai/m", "api_base": "http://127.0.0.1:9/v1"}
    judges = f"single,{save(command.folder / 'tuned', judge, lm=lm, evidence={}, name='tuned')}[rounds=0|1]"
    # Its address is in the export alone, and nobody has said that texts may go there.
    assert command.run(judges, "--part", "all", aspects="") == 2
    assert "api_base" in command.capsys.readouterr().err
    table = command.table(judges, "--part", "all", "--lm", "offline", aspects="")
    assert list(table["judges"]) == ["single", "tuned[rounds=0]", "tuned[rounds=1]"]
    assert table["data"]["aspects"] == ["fluency"]


# --- what is paid, and what fails ---


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    """An LM that knows no evaluation steps."""

    answer = over_http(lambda prompt: "" if "[[ ## steps ## ]]" in prompt else debater(score="4")(prompt))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with FaultyServer(answer) as server:
        yield server


@pytest.mark.integration
def test_dollars_are_what_each_judge_would_pay_alone_and_a_stop_pays_no_call_twice(
    command: Compare, server: FaultyServer
) -> None:
    prices = command.folder / "prices.toml"
    prices.write_text('["openai/m"]\ninput = 10\ncached = 1\noutput = 100\n')
    judges = "single,debate,debate[rounds=0|3]"
    more = ["--lm", "openai/m", "--api-base", server.url, *keys(prices=prices, preflight=False)]
    assert command.run(judges, *more, "--budget", "calls=17") == 3
    assert "budget" in command.capsys.readouterr().err
    assert server.requests == 17
    table = command.table(judges, *more)
    # A call has 60 fresh, 40 cached and 20 output tokens there; a debate is a Scorer and a content Critic.
    call = (60 * 10 + 40 * 1 + 20 * 100) / 1e6
    usd = {name: judge["usd_per_1000_items"] for name, judge in table["judges"].items()}
    assert (usd["single"], usd["debate"]) == (pytest.approx(1000 * call), pytest.approx(2000 * call))
    assert server.requests == 2 * ITEMS


@pytest.mark.integration
def test_an_export_is_compared_with_another_lm_within_one_budget(command: Compare, server: FaultyServer) -> None:
    asked: list[str] = []
    server.script = lambda body, attempt: asked.append(json.loads(body)["model"])
    judge = CompiledJudge(SUMMARIZATION, {name: AspectJudge(build_preset("single", {})) for name in ASPECTS})
    export = save(command.folder / "mine", judge, lm={"spec": "openai/old"}, evidence={}, name="mine")
    judges, more = f"single,{export},{export}[lm=openai/new]", ["--api-base", server.url, *keys(preflight=False)]
    assert command.run(judges, *more, "--estimate") == 0
    assert "openai/new" in command.output()
    assert asked == []
    assert command.run(judges, *more, "--budget", f"calls={ITEMS + 5}") == 3
    assert (asked.count("old"), asked.count("new")) == (ITEMS, 5)
    table = command.table(judges, *more)
    assert {name: figures["lm"] for name, figures in table["judges"].items()} == {
        "single": "openai/old",
        "mine": "openai/old",
        "mine[lm=openai/new]": "openai/new",
    }
    assert asked.count("new") == ITEMS


@pytest.mark.integration
def test_a_judge_whose_roles_the_lm_cannot_play_leaves_the_others_theirs(
    command: Compare, server: FaultyServer
) -> None:
    more = ["--lm", "openai/m", "--api-base", server.url]
    table = command.table("geval,single", *more)
    assert list(table["judges"]) == ["single"]
    assert "cannot play the steps" in table["failed"]["geval"]
    # Without the check its items are asked about, and unscored: it has no row either, and the run failed.
    assert command.run("geval,single", *more, *keys(preflight=False)) == 3
    assert f"{ITEMS} of {ITEMS} texts have no score" in command.output()
    assert command.run("geval", *more) == 2
