"""An export is the judge: it comes back whole, says nothing it should not, and nothing else passes for one."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.reply import Memory, Reply
from debate_judge.programs.roles.examples import RatedExample, examples_of, with_examples
from debate_judge.runs.export import loaded
from debate_judge.runs.export.folder import find, load, read, save
from debate_judge.runs.export.loaded import LoadedJudge
from debate_judge.runs.export.manifest import SCHEMA_VERSION, program_fingerprint
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import ScriptedLM, debater, scripted_lm
from tests.tiny_models import skip_without

TASK = Task(
    "support",
    "customer message",
    "reply",
    (
        Aspect("tone", "How the reply treats the customer.", Scale(1, 5)),
        Aspect("Überblick v1.0", "Whether it is complete.", Scale(0, 1, 0.5)),
        Aspect("help", "Whether it helps.", Scale(1, 5)),
    ),
    "policy",
)
LM = {"spec": "scripted/lm"}


def compiled() -> CompiledJudge:
    """Three aspects judged in three ways; the critic and the scorer of `tone` carry tuned instructions."""
    tone = build("debate", {"persona": "plain", "rounds": 2, "tie_breaker": True})
    for name, text in (("critic.predict", 'Ask: who "pays"?\n— é'), ("scorer.predict", "Score it.")):
        predictor = dict(tone.named_predictors())[name]
        predictor.signature = predictor.signature.with_instructions(text)
    return CompiledJudge(
        TASK,
        {
            "tone": AspectJudge(tone, "half"),
            "Überblick v1.0": AspectJudge(build("debate", JUDGES["single"].config), "whole"),
            "help": AspectJudge(build("debate", {"persona": "sophisticated", "rounds": 1, "tie_breaker": False})),
        },
    )


def write(folder: Path, judge: CompiledJudge | None = None, **arguments: Any) -> Path:
    usual: dict[str, Any] = {"lm": LM, "evidence": {"seed": 3}, "name": "mine"}
    return save(folder, judge or compiled(), **usual | arguments)


@pytest.fixture
def with_lm(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedLM]:
    """Let exports load with a scripted LM, which is returned."""

    def use(lm: ScriptedLM) -> ScriptedLM:
        def make(spec: str, **options: Any) -> ScriptedLM:
            lm.made_with = {"spec": spec, **options}
            return lm

        monkeypatch.setattr(loaded, "make_lm", make)
        return lm

    return use


SCRIPT = debater(score="4.3", decision="ISSUE", final_score="2.26")


def asked_by(judge: CompiledJudge) -> list[tuple[str, str]]:
    """System text and prompt of every call that judging one item per aspect makes, in order."""
    lm = scripted_lm(SCRIPT, concurrency=1)
    items = [Item("g", "c", TASK, a, "My order is late.", "Sorry!", "Be polite.") for a in TASK.aspects]
    with JudgeRunner(lm, progress=False) as runner:
        for item in items[:1] + items[2:]:
            runner.judge(judge.aspects[item.aspect.name].judge, [item])
    return list(zip(lm.systems, lm.prompts, strict=True))


def test_comes_back_with_the_same_parts_and_the_same_prompts(tmp_path: Path) -> None:
    before = compiled()
    after = read(write(tmp_path / "x", before)).judge
    assert after.task == before.task
    assert list(after.aspects) == list(before.aspects)
    for name, chosen in before.aspects.items():
        assert after.aspects[name].granularity == chosen.granularity
        assert after.aspects[name].judge.config() == chosen.judge.config() | {"persona": after_name(name)}
        assert after.aspects[name].judge.instructions() == chosen.judge.instructions()
    # Two rounds that stay open (5 calls) and their tie-break, and one round that stays open (3 calls).
    assert len(asked_by(before)) == 5 + 1 + 3
    assert asked_by(after) == asked_by(before)


def after_name(aspect: str) -> str:
    return {"tone": "tuned", "Überblick v1.0": "devils-advocate", "help": "sophisticated"}[aspect]


def test_tuned_instructions_win_over_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = compiled()
    tone = judge.aspects["tone"].judge
    stale = {**tone.config(), "persona": "plain", "persona_text": "The text before tuning."}
    monkeypatch.setattr(tone, "config", lambda: stale, raising=False)
    read_back = read(write(tmp_path / "x", judge)).judge.aspects["tone"].judge
    assert read_back.instructions()["critic.predict"] == 'Ask: who "pays"?\n— é'


def test_predictor_names_are_the_keys_of_old_exports_and_stay() -> None:
    assert list(compiled().aspects["tone"].judge.instructions()) == [
        "scorer.predict",
        "critic.predict",
        "tie_breaker.predict",
    ]


def test_demonstrations_stay_at_home_unless_asked_for(tmp_path: Path) -> None:
    judge = compiled()
    demo = dspy.Example(candidate="PRIVATE text", rationale="r", score="4")
    dict(judge.aspects["tone"].judge.named_predictors())["scorer.predict"].demos = [demo]
    without = write(tmp_path / "without", judge)
    assert b"PRIVATE" not in content(without)
    assert read(without).manifest["aspects"]["tone"]["demos_left_out"] == 1
    kept = read(write(tmp_path / "with", judge, demos=True)).judge
    assert asked_by(kept) == asked_by(judge)
    assert "demos_left_out" not in read(tmp_path / "with").manifest["aspects"]["tone"]


def example(text: str) -> RatedExample:
    return RatedExample("tone", "7", f"A source, {text}.", "", f"A candidate, {text}.", 3.5, (3.0, 4.0))


@pytest.mark.parametrize("nearest", [0, 1])
def test_rated_examples_are_exported_only_with_permission_and_then_told(tmp_path: Path, nearest: int) -> None:
    judge = compiled()
    tone = replace(
        judge.aspects["tone"], judge=with_examples(judge.aspects["tone"].judge, [example("PRIVATE")], nearest)
    )
    judge = replace(judge, aspects={**judge.aspects, "tone": tone})
    # Without them it would be another judge than the one whose evidence it carries.
    with pytest.raises(InputError, match="the judge of 'tone' shows rated examples") as error:
        write(tmp_path / "x", judge)
    assert "--export-examples" in str(error.value)
    assert not (tmp_path / "x").exists()
    kept = read(write(tmp_path / "x", judge, demos=True))
    assert examples_of(kept.judge.aspects["tone"].judge) == (example("PRIVATE"),)
    assert asked_by(kept.judge) == asked_by(judge)
    assert any("PRIVATE" in prompt for _, prompt in asked_by(kept.judge))
    entries = kept.manifest["aspects"]
    assert [entry.get("holds_texts") for entry in entries.values()] == [{"rated_examples": 1}, None, None]
    assert "Its prompts show 1 rated texts of that data" in (tmp_path / "x" / "README.md").read_text(encoding="utf-8")


def test_an_export_without_texts_of_the_data_says_nothing_of_them(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", demos=True)
    assert b"holds_texts" not in content(folder)
    assert b"rated texts" not in content(folder)


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
    assert b"secret" not in content(folder)
    assert str(tmp_path).encode() not in content(folder)
    assert b"Users" not in content(folder)
    manifest = read(folder).manifest
    assert manifest["lm"] == {"spec": "openai/m", "temperature": 0.0, "api_base": "https://host:8000/v1"}
    assert manifest["evidence"]["data"] == {"location": "ratings.jsonl", "also": "ratings.csv"}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        ("localhost:8000/v1/", "localhost:8000/v1/"),
        ("https://key@host/a@b?k=1#x", "https://host/a@b"),
        ("user:p%40ss@host", "host"),
        (None, None),
    ],
)
def test_addresses_are_kept_without_credentials(tmp_path: Path, given: str | None, kept: str | None) -> None:
    folder = write(tmp_path / "x", lm={"spec": "openai/m", "api_base": given})
    assert read(folder).manifest["lm"].get("api_base") == kept


def content(folder: Path) -> bytes:
    return b"\n".join(f.name.encode() + f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file())


def test_nothing_but_json_and_the_readme(tmp_path: Path) -> None:
    folder = write(tmp_path / "x")
    assert {f.suffix for f in folder.rglob("*") if f.is_file()} == {".json", ".md"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x"]


def test_the_same_program_replaces_itself(tmp_path: Path) -> None:
    write(tmp_path / "x", evidence={"n": 1})
    write(tmp_path / "x", evidence={"n": 2})
    assert read(tmp_path / "x").manifest["evidence"] == {"n": 2}
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_another_program_is_kept_beside(tmp_path: Path) -> None:
    first = write(tmp_path / "x")
    mark = read(first).fingerprint
    other = CompiledJudge(TASK, {"tone": AspectJudge(build("debate", JUDGES["single"].config))})
    write(tmp_path / "x", other)
    assert list(read(tmp_path / "x").judge.aspects) == ["tone"]
    assert read(tmp_path / f"x.{mark[:8]}").fingerprint == mark


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="something else"):
        write(tmp_path / "x")
    assert [p.name for p in tmp_path.rglob("*")] == ["x", "thesis.tex"]


def test_what_cannot_be_written_leaves_the_old_export(tmp_path: Path) -> None:
    write(tmp_path / "x")
    with pytest.raises(ValueError, match="JSON"):
        write(tmp_path / "x", evidence={"agreement": float("nan")})
    assert read(tmp_path / "x").manifest["evidence"] == {"seed": 3}
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_equal_programs_have_equal_fingerprints_whatever_their_evidence(tmp_path: Path) -> None:
    a, b = read(write(tmp_path / "a")), read(write(tmp_path / "b", evidence={}, name="other", lm={"spec": "offline"}))
    assert a.fingerprint == b.fingerprint


Change = Callable[[dict[str, Any]], object]
STATE = "state/1-tone.json"


def setting(*path: Any, to: object) -> Change:
    def change(values: dict[str, Any]) -> None:
        place: Any = values
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return change


def another_manifest(values: dict[str, Any]) -> None:
    values.clear()
    values["name"] = "a chart"


BROKEN: list[tuple[str, str, Change, str]] = [
    ("another program's JSON", "manifest.json", another_manifest, "not the manifest"),
    ("a newer version", "manifest.json", setting("schema_version", to=SCHEMA_VERSION + 1), "newer version"),
    ("an earlier version", "manifest.json", setting("schema_version", to=SCHEMA_VERSION - 1), "earlier version"),
    ("a version in words", "manifest.json", setting("schema_version", to="one"), "schema_version"),
    ("no task", "manifest.json", lambda m: m.pop("task"), "'task' is missing"),
    ("a scale of nothing", "manifest.json", setting("task", "aspects", 0, "low", to=9), "not a scale"),
    ("no aspects", "manifest.json", setting("aspects", to={}), "judges no aspect"),
    ("an unknown kind", "manifest.json", setting("aspects", "tone", "kind", to="oracle"), "unknown kind"),
    ("an unknown granularity", "manifest.json", setting("aspects", "tone", "granularity", to="x"), "granularity"),
    ("a configuration of another judge", "manifest.json", setting("aspects", "tone", "config", to={}), "configuration"),
    ("an aspect that the task lacks", "manifest.json", lambda m: rename(m), "does not have this aspect"),
    ("a state elsewhere", "manifest.json", setting("aspects", "tone", "state", to="../secret.json"), "outside"),
    ("no LM", "manifest.json", setting("lm", to={}), "'spec' is missing"),
    ("changed instructions", STATE, setting("critic.predict", "signature", "instructions", to="x"), "changed after"),
    ("predictors of another judge", STATE, lambda s: s.update(oracle=s.pop("critic.predict")), "other names"),
    ("other fields", STATE, lambda s: s["critic.predict"]["signature"]["fields"].pop(), "other fields"),
    ("demos that are none", STATE, setting("critic.predict", "demos", to=["x"]), "demos"),
    ("no signature", STATE, lambda s: s["critic.predict"].pop("signature"), "'signature' is missing"),
]


def rename(manifest: dict[str, Any]) -> None:
    manifest["aspects"]["wit"] = manifest["aspects"].pop("tone")


@pytest.mark.parametrize(("file", "change", "says"), [c[1:] for c in BROKEN], ids=[c[0] for c in BROKEN])
def test_a_broken_export_is_refused_by_name(tmp_path: Path, file: str, change: Change, says: str) -> None:
    folder = write(tmp_path / "x")
    values = json.loads((folder / file).read_text(encoding="utf-8"))
    change(values)
    (folder / file).write_text(json.dumps(values), encoding="utf-8")
    if says not in ("changed after", "newer version"):
        sign(folder)
    with pytest.raises(InputError, match=says) as caught:
        read(folder)
    assert Path(str(caught.value.file)).name in ("manifest.json", "1-tone.json")
    assert caught.value.remedy


def test_an_export_of_the_first_format_has_to_be_compiled_again(tmp_path: Path) -> None:
    """Kinds, configurations and predictors have been renamed since, so only the version is looked at."""
    config = {"persona": "devils-advocate", "rounds": 3, "tie_breaker": False}
    aspects = {"tone": {"kind": "debate", "config": config, "granularity": "given", "state": STATE}}
    manifest = {"format": "debate-judge export", "schema_version": 1, "aspects": aspects, "lm": {"spec": "offline"}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(InputError, match="made by an earlier version of this project") as caught:
        load(tmp_path)
    error = caught.value
    assert (error.field, error.found, error.remedy) == ("schema_version", "1", "compile the judge again")


def sign(folder: Path) -> None:
    """Make the fingerprint fit, so that what is behind it is reached."""
    from debate_judge.runs.export.manifest import program_fingerprint

    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    try:
        states = {a: json.loads((folder / e["state"]).read_text("utf-8")) for a, e in manifest["aspects"].items()}
        manifest["fingerprint"] = program_fingerprint(manifest["task"], manifest["aspects"], states)
    except (KeyError, OSError):
        return
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda f: shutil.rmtree(f), "no such folder"),
        (lambda f: (f / "manifest.json").unlink(), "no manifest.json"),
        (lambda f: (f / STATE).unlink(), "no such file"),
        (lambda f: (f / STATE).write_text("[]"), "not a JSON object"),
        (lambda f: (f / STATE).write_text("{"), "line 1: not valid JSON"),
        (lambda f: (f / "manifest.json").write_bytes(b"\x80"), "not UTF-8"),
    ],
)
def test_missing_and_unreadable_files(tmp_path: Path, break_it: Callable[[Path], object], says: str) -> None:
    folder = write(tmp_path / "export-of-mine")
    break_it(folder)
    with pytest.raises(InputError, match=says):
        read(folder)


def test_a_file_is_no_folder_and_a_typo_is_guessed(tmp_path: Path) -> None:
    folder = write(tmp_path / "export-of-mine")
    with pytest.raises(InputError, match="this is a file"):
        read(folder / "manifest.json")
    with pytest.raises(InputError, match="did you mean 'export-of-mine'"):
        read(tmp_path / "exprt-of-mine")


def test_is_found_inside_a_model_folder_and_not_among_several(tmp_path: Path) -> None:
    write(tmp_path / "model" / "artifacts" / "export")
    assert read(tmp_path / "model").manifest["name"] == "mine"
    write(tmp_path / "exports" / "a")
    write(tmp_path / "exports" / "b")
    with pytest.raises(InputError, match="several"):
        read(tmp_path / "exports")


def test_two_lines_of_python(tmp_path: Path, with_lm: Callable[[ScriptedLM], ScriptedLM]) -> None:
    lm = with_lm(scripted_lm(SCRIPT))
    judge = load(write(tmp_path / "x"))
    found = judge.score(source="My order is late.", text="Sorry!", context="Be polite.")
    judge.close()
    assert list(found) == ["tone", "Überblick v1.0", "help"]
    # 2.26 by the Tie-breaker, in half steps of the scale; 1 + 2 x 2 + 1 calls.
    tone = found["tone"]
    assert (tone.score, tone.rounds, tone.stop_reason, tone.unscored, tone.calls) == (2.5, 2, "tie-breaker", None, 6)
    assert (found["help"].score, found["help"].stop_reason, found["help"].calls) == (4.3, "rounds over", 3)
    # 4.3 is not on the scale from 0 to 1; asked twice, never clamped.
    off = found["Überblick v1.0"]
    assert (off.score, off.stop_reason, off.unscored, off.calls) == (None, None, "unreadable reply", 2)
    assert "outside the scale" in off.detail
    assert len(lm.prompts) == 11


def test_many_rows_keep_their_order(tmp_path: Path, with_lm: Callable[[ScriptedLM], ScriptedLM]) -> None:
    with_lm(scripted_lm(debater(score=lambda prompt: "5" if "reply number 7\n" in prompt else "2"), latency=0.001))
    rows = [{"source": "s", "text": f"reply number {i}\n"} for i in range(200)]
    with load(write(tmp_path / "x")) as judge:
        found = judge.score_many(rows, aspects=["help"])
    assert [r["help"].score for r in found] == [2.0] * 7 + [5.0] + [2.0] * 192


def test_works_inside_a_running_loop(tmp_path: Path, with_lm: Callable[[ScriptedLM], ScriptedLM]) -> None:
    with_lm(scripted_lm(SCRIPT))

    async def notebook() -> float | None:
        with load(write(tmp_path / "x")) as judge:
            return judge.score("Sorry!", "Late.", aspects="help")["help"].score

    assert asyncio.run(notebook()) == 4.3


def test_the_lm_is_that_of_the_export_unless_another_is_asked_for(
    tmp_path: Path, with_lm: Callable[[ScriptedLM], Any]
) -> None:
    lm = with_lm(scripted_lm(SCRIPT))
    own = {"spec": "openai/own", "api_base": "http://own/v1", "temperature": 0.5, "max_tokens": 77}
    folder = write(tmp_path / "x", lm=own)

    def made_with(**arguments: Any) -> tuple[object, ...]:
        load(folder, **arguments).close()
        return tuple(lm.made_with[k] for k in ("spec", "api_base", "temperature", "max_tokens"))

    with pytest.raises(InputError, match="the export says where"):
        load(folder)
    assert made_with(api_base="http://own/v1") == ("openai/own", "http://own/v1", 0.5, 77)
    assert made_with(api_base="http://other") == ("openai/own", "http://other", 0.5, 77)
    assert made_with(lm="openai/other") == ("openai/other", None, 0.5, 77)


def test_replies_are_kept_where_asked(tmp_path: Path, with_lm: Callable[[ScriptedLM], Any]) -> None:
    lm = with_lm(scripted_lm(SCRIPT))
    with load(write(tmp_path / "x"), store=tmp_path / "replies") as judge:
        lm.store = lm.made_with["store"]
        judge.score("Sorry!", "Late.", aspects="help")
    assert len(list((tmp_path / "replies").glob("*.replies"))) == 1


def test_a_text_may_be_judged_by_itself(tmp_path: Path, with_lm: Callable[[ScriptedLM], Any]) -> None:
    lm = with_lm(scripted_lm(SCRIPT))
    with load(write(tmp_path / "x")) as judge:
        assert judge.score("Sorry!", "", aspects="help")["help"].score is not None
    assert all("[[ ## source ## ]]" not in prompt for prompt in lm.prompts)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"text": " ", "source": "s"}, "needs a text"),
        ({"text": "t"}, "needs a source"),
        ({"text": "t", "source": "s", "contxt": "c"}, "did you mean 'context'"),
        ({"text": "t", "source": "s", "context": 3}, "context"),
    ],
)
def test_rows_that_cannot_be_scored(
    tmp_path: Path, with_lm: Callable[[ScriptedLM], Any], row: dict[str, Any], says: str
) -> None:
    lm = with_lm(scripted_lm(SCRIPT))
    with load(write(tmp_path / "x")) as judge, pytest.raises(InputError, match=says):
        judge.score_many([row])
    assert lm.prompts == []


def test_unknown_aspects_and_closed_judges(tmp_path: Path, with_lm: Callable[[ScriptedLM], Any]) -> None:
    with_lm(scripted_lm(SCRIPT))
    judge: LoadedJudge = load(write(tmp_path / "x"))
    with pytest.raises(InputError, match="did you mean 'tone'"):
        judge.score("t", "s", aspects=["tonne"])
    with pytest.raises(InputError, match="no aspect"):
        judge.score("t", "s", aspects=[])
    judge.close()
    with pytest.raises(ValueError, match="closed"):
        judge.score("t", "s")


def test_a_spec_that_is_no_lm(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="PROVIDER/MODEL"):
        load(write(tmp_path / "x"), lm="gpt")


def test_the_store_in_memory_forgets_the_oldest() -> None:
    store = Memory(room=2)
    for key in "abc":
        store.put(key, "scorer", Reply(key))
    assert store.get("a") is None
    assert store.get("c") == Reply("c")


def test_loads_from_mlflow_by_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the store that MLflow was told of, else from the one that a compile makes below the working directory."""
    from mlflow.tracking import MlflowClient

    (tmp_path / "runs/store").mkdir(parents=True)
    uri = f"sqlite:///{tmp_path / 'runs/store/mlflow.db'}"
    folder, client = write(tmp_path / "x"), MlflowClient(tracking_uri=uri)
    run = client.create_run(client.create_experiment("e", artifact_location=(tmp_path / "artifacts").as_uri()))
    client.log_artifacts(run.info.run_id, str(folder), "export")
    client.create_registered_model("toy")
    client.create_model_version("toy", f"{run.info.artifact_uri}/export", run.info.run_id)
    addresses = (f"runs:/{run.info.run_id}/export", "models:/toy/1")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert {find(address).fingerprint for address in addresses} == {read(folder).fingerprint}
    with pytest.raises(InputError, match="MLflow could not give models:/nobody/1") as caught:
        find("models:/nobody/1")
    assert "MLFLOW_TRACKING_URI" in str(caught.value.remedy)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with pytest.raises(InputError, match="no MLflow store to take models:/toy/1 from"):
        find("models:/toy/1")
    assert list(Path.cwd().iterdir()) == [], "MLflow would have made an empty database here"
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert {find(address).fingerprint for address in addresses} == {read(folder).fingerprint}
    assert sorted(tmp_path.iterdir()) == before
    assert "MLFLOW_TRACKING_URI" not in os.environ, "MLflow's own setting is as it was"


@pytest.mark.parametrize("name", JUDGES)
def test_every_judge_can_be_exported(tmp_path: Path, name: str) -> None:
    skip_without(JUDGES[name].kind)
    judge = build(JUDGES[name].kind, JUDGES[name].config)
    compiled_judge = CompiledJudge(TASK, {"tone": AspectJudge(judge)})
    back = read(write(tmp_path / "x", compiled_judge)).judge.aspects["tone"].judge
    assert type(back) is type(judge)
    assert back.config() == judge.config()
    assert back.instructions() == judge.instructions()
    assert back.debate_config == judge.debate_config


OWN = """
from debate_judge.programs.debate.judge import Debate

class Small(Debate):
    pass
"""


def test_an_export_of_a_judge_of_ones_own_is_loaded_only_where_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = "own_judge_of_an_export", "own_judge_of_an_export:Small"
    (tmp_path / f"{module}.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    judge = CompiledJudge(TASK, {"tone": AspectJudge(build(name, JUDGES["single"].config))})
    folder = save(tmp_path / "mine", judge, lm={"spec": "offline"}, evidence={}, name="mine")
    assert json.loads((folder / "manifest.json").read_text())["aspects"]["tone"]["kind"] == name
    # The same again replaces it, for its writer has the class.
    assert save(folder, judge, lm={"spec": "offline"}, evidence={}, name="mine") == folder
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("mine")] == ["mine"]
    monkeypatch.delitem(sys.modules, module)
    with pytest.raises(InputError) as refused:
        load(folder)
    assert f"--judge {name}" in str(refused.value)
    assert module not in sys.modules, "nothing is imported that was not named"
    with load(folder, judges=[name]) as loaded:
        assert loaded.score("It rained.", "Rain fell.", aspects="tone")["tone"].score is not None
    monkeypatch.delitem(sys.modules, module)
    (tmp_path / f"{module}.py").unlink()
    with pytest.raises(InputError, match="cannot be imported"):
        load(folder, judges=[name])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("rounds", 1_000_000_000, "not a number of rounds"),
        ("rounds", -1, "not a number of rounds"),
        ("rounds", 1e9, "not a number of rounds"),
        ("score_mode", "sampled:1000000000", "not a score mode"),
        ("score_mode", "sampled:" + "9" * 5000, "not a score mode"),
    ],
)
def test_an_export_cannot_ask_for_calls_without_end(name: str, value: object, words: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "x")
    manifest = json.loads((folder / "manifest.json").read_text())
    for entry in manifest["aspects"].values():
        entry["config"][name] = value
    states = {a: json.loads((folder / entry["state"]).read_text()) for a, entry in manifest["aspects"].items()}
    manifest["fingerprint"] = program_fingerprint(manifest["task"], manifest["aspects"], states)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=words):
        read(folder)
