"""An export is the judge: it comes back whole and says nothing it should not."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest

from debate_judge import Aspect, Debate, Scale, Task, load
from debate_judge.data.errors import InputError
from debate_judge.programs import JUDGES, build
from debate_judge.programs.examples import RatedExample, examples_of, with_examples, with_precedents
from debate_judge.programs.judge import AspectJudge, CompiledJudge, Item
from debate_judge.programs.lm.replies import FILE
from debate_judge.programs.lm.settings import without_credentials
from debate_judge.runs import loaded
from debate_judge.runs.comparison.entrants import build_entrants, parse_judges
from debate_judge.runs.export import open_export, read
from debate_judge.runs.loaded import load_in_tool
from debate_judge.runs.runner import JudgeRunner
from tests.config_keys import keys
from tests.fakes import ScriptedLM, debater, scripted_lm
from tests.faulty_server import FaultyServer
from tests.runs.exports import SCRIPT, TASK, compiled, number_of_note, single_call, write
from tests.runs.score_command import ScoreCommand
from tests.stores import count


def prompts(judge: CompiledJudge) -> list[tuple[str, str]]:
    """System text and prompt of every call that judging one item per aspect makes, in order."""
    lm = scripted_lm(SCRIPT, concurrency=1)
    with JudgeRunner(lm, progress=False) as runner:
        for aspect in TASK.aspects:
            item = Item("g", "c", TASK, aspect, "My order is late.", "Sorry!", "Be polite.")
            runner.judge(judge.aspects[aspect.name].judge, [item])
    return list(zip(lm.systems, lm.prompts, strict=True))


def content(folder: Path) -> bytes:
    return b"\n".join(f.name.encode() + f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file())


def test_comes_back_with_the_same_parts_and_the_same_prompts(tmp_path: Path) -> None:
    before = compiled()
    after = read(write(tmp_path / "x", before)).judge
    assert after.task == before.task
    personas = {"tone": "tuned", "Überblick v1.0": "devils-advocate", "help": "sophisticated"}
    for name, expected in before.aspects.items():
        loaded = after.aspects[name]
        assert loaded.granularity == expected.granularity
        assert loaded.judge.config() == expected.judge.config() | {"persona": personas[name]}
        assert loaded.judge.instructions() == expected.judge.instructions()
    # Two rounds that stay open (5 calls) and their tie-break, an unreadable score, and one round that stays open.
    assert len(prompts(before)) == 5 + 1 + 2 + 3
    assert prompts(after) == prompts(before)


@pytest.mark.parametrize("precedents", [0, 1])
def test_rated_examples_are_exported_and_declared(tmp_path: Path, precedents: int) -> None:
    example = RatedExample("tone", "7", "A source.", "", "Sorry! PRIVATE!", 3.5, (3.0, 4.0))
    judge = compiled()
    plain = judge.aspects["tone"].judge
    shown = with_precedents(plain, [example], 1) if precedents else with_examples(plain, [example])
    tone = replace(judge.aspects["tone"], judge=shown)
    judge = replace(judge, aspects={**judge.aspects, "tone": tone})
    kept = read(write(tmp_path / "x", judge))
    assert examples_of(kept.judge.aspects["tone"].judge) == (example,)
    assert prompts(kept.judge) == prompts(judge)
    assert "PRIVATE" in str(prompts(kept.judge))
    assert kept.manifest.aspects["tone"].holds_texts == {"rated_examples": 1}
    assert "1 rated texts" in (tmp_path / "x" / "README.md").read_text(encoding="utf-8")


def test_no_secret_and_no_path_of_this_machine_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment-secret-1")
    judge = compiled()
    for _, predictor in judge.aspects["tone"].judge.named_predictors():
        predictor.lm = dspy.LM(
            "openai/m",
            api_key="sk-predictor-secret-2",
            api_base="http://user:pw-secret-3@host/v1",
            extra_headers={"Authorization": "Bearer header-secret-4"},
        )
    lm = {
        "spec": "openai/m",
        "api_base": "https://user:pw-secret-5@host:8000/v1?api-key=query-secret-6",
        "api_key": "secret-7",
        "extra_headers": {"Authorization": "secret-8"},
        "temperature": 0.0,
    }
    evidence = {
        "data": {"location": str(tmp_path / "ratings.jsonl"), "also": r"C:\Users\me\ratings.csv"},
        "note": "fetched from https://me:pw-secret-9@host/x with sk-environment-secret-1",
        "api_key": "secret-10",
    }
    folder = write(tmp_path / "x", judge, lm=lm, evidence=evidence)
    assert not [text for text in (b"secret", str(tmp_path).encode(), b"Users") if text in content(folder)]
    manifest = read(folder).manifest
    assert manifest.values()["lm"] == {"spec": "openai/m", "temperature": 0.0, "api_base": "https://host:8000/v1"}
    assert manifest.evidence["data"] == {"location": "ratings.jsonl", "also": "ratings.csv"}


def test_addresses_are_kept_without_credentials() -> None:
    addresses = {
        "localhost:8000/v1/": "localhost:8000/v1/",
        "https://key@host/a@b?k=1#x": "https://host/a@b",
        "user:p%40ss@host": "host",
        "https://key@gateway/http://host/v1": "https://gateway/http://host/v1",
    }
    assert {address: without_credentials(address) for address in addresses} == addresses


def test_an_export_replaces_itself_keeps_another_program_and_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write(tmp_path / "x", evidence={"n": 1})
    first = read(write(tmp_path / "x", evidence={"n": 2}))
    assert first.manifest.evidence == {"n": 2}
    with pytest.raises(ValueError, match="JSON"):
        write(tmp_path / "x", evidence={"agreement": float("nan")})
    assert read(tmp_path / "x").manifest.evidence == {"n": 2}
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    other = CompiledJudge(TASK, {"tone": AspectJudge(build("debate", JUDGES["single"].config))})
    write(tmp_path / "x", other)
    assert list(read(tmp_path / "x").judge.aspects) == ["tone"]
    assert read(tmp_path / f"x.{first.fingerprint[:8]}").fingerprint == first.fingerprint


# --- loaded: under the LM that was asked for, at no address that only the export names ---


@pytest.fixture
def lm(monkeypatch: pytest.MonkeyPatch) -> ScriptedLM:
    """The LM that exports are loaded with."""
    lm = scripted_lm(SCRIPT)

    def make(spec: str, **options: Any) -> ScriptedLM:
        lm.made_with = {"spec": spec, **options}
        return lm

    monkeypatch.setattr(loaded, "make_lm", make)
    return lm


def test_scores_say_how_they_came_about_until_the_judge_is_closed(tmp_path: Path, lm: ScriptedLM) -> None:
    judge = load(write(tmp_path / "x"))
    scores = judge.score(source="My order is late.", text="Sorry!", context="Be polite.")
    assert list(scores) == ["tone", "Überblick v1.0", "help"]
    # 2.26 by the Tie-breaker, in half steps of the scale; 1 + 2 x 2 + 1 calls.
    tone = scores["tone"]
    assert (tone.score, tone.rounds, tone.stop_reason, tone.unscored, tone.calls) == (2.5, 2, "tie-breaker", None, 6)
    assert (scores["help"].score, scores["help"].stop_reason, scores["help"].calls) == (4.3, "rounds over", 3)
    # 4.3 is not on the scale from 0 to 1; asked twice, never clamped.
    off = scores["Überblick v1.0"]
    assert (off.score, off.stop_reason, off.unscored, off.calls) == (None, None, "unreadable reply", 2)
    assert "outside the scale" in off.detail
    assert len(lm.prompts) == 11
    assert judge.score(text="Sorry!", source="", aspects="help")["help"].score is not None
    assert all("[[ ## source ## ]]" not in prompt for prompt in lm.prompts[11:])
    judge.close()
    with pytest.raises(ValueError, match="closed"):
        judge.score(text="t", source="s")


def test_the_lm_is_that_of_the_export_unless_another_is_asked_for(tmp_path: Path, lm: ScriptedLM) -> None:
    lm_of_export = {"spec": "openai/own", "api_base": "http://own/v1", "temperature": 0.5, "max_tokens": 77}
    folder = write(tmp_path / "x", lm=lm_of_export)

    def made_with(**arguments: Any) -> tuple[object, ...]:
        load(folder, **arguments).close()
        return tuple(lm.made_with[k] for k in ("spec", "api_base", "temperature", "max_tokens"))

    assert made_with(api_base="http://own/v1") == ("openai/own", "http://own/v1", 0.5, 77)
    assert made_with(api_base="http://other") == ("openai/own", "http://other", 0.5, 77)
    assert made_with(lm="openai/other", store=tmp_path) == ("openai/other", None, 0.5, 77)
    assert (tmp_path / "replies" / "openai_other" / FILE).exists()


@pytest.mark.integration
def test_loads_from_mlflow_by_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the store that MLflow was told of, else from the one that a compile makes below the working directory."""
    from mlflow.tracking import MlflowClient

    (tmp_path / "runs/store").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    uri = f"sqlite:///{tmp_path / 'runs/store/mlflow.db'}"
    folder, client = write(tmp_path / "x"), MlflowClient(tracking_uri=uri)
    run = client.create_run(client.create_experiment("e", artifact_location=(tmp_path / "artifacts").as_uri())).info
    client.log_artifacts(run.run_id, str(folder), "export")
    client.create_registered_model("toy")
    client.create_model_version("toy", f"{run.artifact_uri}/export", run.run_id)
    client.set_registered_model_alias("toy", "champion", "1")
    addresses = (f"runs:/{run.run_id}/export", run.run_id, "models:/toy/1", "models:/toy@champion")
    before = sorted(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    assert {open_export(address).fingerprint for address in addresses} == {read(folder).fingerprint}
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="models:/toy/1"):
        open_export("models:/toy/1")
    assert list(Path.cwd().iterdir()) == [], "MLflow would have made an empty database here"
    assert "MLFLOW_TRACKING_URI" not in os.environ, "MLflow's own setting is as it was"
    specs = parse_judges(["single", *addresses[1:], str(folder)], tmp_path / "runs/store")
    named = [entrant.name for entrant in build_entrants(specs, TASK.aspects[:1])]
    assert named == ["single", "mine", "toy/1", "toy@champion", "x"]
    # A registry of the user's own is asked before the store.
    other = shutil.copy(tmp_path / "runs/store/mlflow.db", Path.cwd())
    MlflowClient(tracking_uri=f"sqlite:///{other}").delete_registered_model("toy")
    with monkeypatch.context() as own:
        own.setenv("MLFLOW_REGISTRY_URI", uri)
        assert open_export("models:/toy/1", store=Path.cwd()).fingerprint == read(folder).fingerprint
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert {open_export(address).fingerprint for address in addresses} == {read(folder).fingerprint}
    assert sorted(tmp_path.iterdir()) == before


# --- as a DSPy program ---


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A judge with a graded aspect and one of yes or no, for the offline LM."""
    aspects = Aspect("tone", "Its manner.", Scale(1, 5)), Aspect("polite", "Whether it is polite.", Scale(0, 1))
    judges = {"tone": AspectJudge(Debate(rounds=1), "half"), "polite": AspectJudge(Debate(rounds=0))}
    judge = CompiledJudge(Task("support", "customer message", "reply", aspects), judges)
    return write(tmp_path_factory.mktemp("exports") / "my-judge", judge, lm={"spec": "offline"})


def test_an_export_is_called_evaluated_and_copied_like_any_program(export: Path) -> None:
    with load(export) as judge:
        assert isinstance(judge, dspy.Module)
        assert len(judge.named_predictors()) == 6
        prediction = judge(source="Late!", text="Sorry, we are late.", aspect="tone")
        assert prediction.score == judge.score(source="Late!", text="Sorry, we are late.")["tone"].score
        assert prediction.score * 2 == int(prediction.score * 2)
        assert prediction.reason
        listed = judge(source="Late!", texts=["Sorry.", "No."], aspect="polite")
        assert [score >= listed.cut for score in listed.scores] == listed.decisions
        every = judge(source="Late!", text="Sorry, we are late.")
        assert every.scores == {"tone": prediction.score, "polite": every.scores["polite"]}
        assert list(every.reasons) == ["tone", "polite"]
        assert (list(every.decisions), every.cuts) == (["polite"], {"polite": 0.5})
        assert judge(source="Late!", texts=["Sorry.", "No."]).scores["polite"] == listed.scores
        assert asyncio.run(judge.acall(source="Late!", text="Sorry.", aspect="support.tone")).score is not None
        copy = judge.deepcopy()
        assert copy.lm is judge.lm
        assert copy.judges["tone"] is not judge.judges["tone"]
        rated = dspy.Example(source="s", texts=["a b", "c"], aspect="tone").with_inputs("source", "texts", "aspect")
        evaluate = dspy.Evaluate(devset=[rated], metric=lambda example, prediction: len(prediction.scores))
        assert evaluate(copy).score == evaluate(judge).score == 200


def test_an_exports_own_lm_answers_unless_a_context_names_another(export: Path, request: Any) -> None:
    call, lms = {"source": "s", "text": "t", "aspect": "polite"}, [scripted_lm(debater(score="1")) for _ in range(2)]
    request.addfinalizer(lambda before=dspy.settings.lm: dspy.configure(lm=before))
    dspy.configure(lm=lms[0])
    with load(export) as judge:
        judge(**call)
        with dspy.context(lm=lms[1]):
            assert judge(**call).score == 1
    assert [len(lm.prompts) for lm in lms] == [0, 1]


def test_dspy_reads_the_states_and_keeps_a_whole_program(export: Path, tmp_path: Path) -> None:
    manifest = json.loads((export / "manifest.json").read_text())
    with load(export) as exported:
        for aspect, entry in manifest["aspects"].items():
            judge = build(entry["kind"], entry["config"])
            judge.load(export / entry["state"])
            assert judge.instructions() == exported.judges[aspect].instructions()
        exported.save(tmp_path / "program", save_program=True)
        with dspy.load(tmp_path / "program", allow_pickle=True) as loaded:
            assert loaded.fingerprint == exported.fingerprint
            assert loaded.lm is not exported.lm


# --- in the process of a tool ---


@pytest.mark.integration
def test_a_tools_process_is_limited_and_stored_by_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = single_call(tmp_path / "export")
    for name, value in {"OPENAI_API_KEY": "unused", "DEBATE_BUDGET": "calls=2", "DEBATE_STORE": tmp_path}.items():
        monkeypatch.setenv(name, str(value))
    with FaultyServer(number_of_note) as server, load_in_tool(export, {"api_base": server.url}) as judge:
        for number in (1, 2, 1):
            assert judge.score(text=f"Note-{number}", source="A letter.")["clarity"].score == number
        with pytest.raises(dspy.LMError, match="exceed the budget"):
            judge.score(text="Note-3", source="A letter.")
        assert server.requests == 2
    assert count(tmp_path / "replies" / "openai_m") == 2


# --- addresses that only an export names ---

PROVIDERS = ("openai", "anthropic", "gemini", "hosted_vllm")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    for provider in PROVIDERS:
        monkeypatch.setenv(f"{provider.upper()}_API_KEY", f"sk-of-{provider}-0123456789")
        monkeypatch.delenv(f"{provider.upper()}_API_BASE", raising=False)
    with FaultyServer(number_of_note) as server:
        yield server


def run(folder: Path, address: str | None, *more: str, spec: str = "openai/m") -> int:
    """Score one text by an export with this address."""
    text = {"group": "g", "source": "A letter.", "candidates": [{"id": "c", "text": "A note."}]}
    (folder / "in.jsonl").write_text(json.dumps(text) + "\n")
    return ScoreCommand(folder, single_call(folder / "export", spec, address))(*keys(preflight=False), *more)


@pytest.mark.integration
@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_address_of_the_export_gets_nothing(
    provider: str, server: FaultyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = f"{provider}/m"
    for lm in (None, spec):
        with pytest.raises(InputError, match="names the server"):
            load(single_call(tmp_path / "export", spec, server.url), lm=lm)
    assert run(tmp_path, server.url, spec=spec) == 2
    message = capsys.readouterr().err
    assert server.url in message
    assert "--api-base" in message
    assert not (tmp_path / "out.jsonl").exists()
    # An estimate sends nothing, so it needs no address.
    assert run(tmp_path, server.url, "--estimate", spec=spec) == 0
    assert "calls" in capsys.readouterr().out
    assert server.requests == 0


@pytest.mark.integration
def test_two_servers_named_by_the_environment_do_not_share_replies(
    server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FaultyServer(number_of_note) as other:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        assert run(tmp_path, None) == 0
        monkeypatch.setenv("OPENAI_API_BASE", other.url)
        assert run(tmp_path, None) == 0
        assert (server.requests, other.requests) == (1, 1)


@pytest.mark.integration
def test_an_address_of_the_users_is_used_and_named(
    server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "http://elsewhere.example/v1", "--api-base", server.url) == 0
    assert f"texts go to {server.url}, with the key in OPENAI_API_KEY" in capsys.readouterr().err
    with load(tmp_path / "export", api_base=server.url) as judge:
        assert judge.score(text="Note-2", source="A letter.")["clarity"].score == 2
    # So is one that the environment names as the export does.
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("OPENAI_API_BASE", server.url + "/")
    assert run(tmp_path / "other", server.url) == 0
    assert server.requests == 3
