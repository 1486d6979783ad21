"""An export in Python: loaded by two lines, from folders and MLflow, under the LM that was asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.errors import InputError
from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.lm.store import FILE
from debate_judge.runs.evaluation.entrants import entrants, named_judges
from debate_judge.runs.export import loaded
from debate_judge.runs.export.folder import load, open_export, read
from debate_judge.runs.export.from_mlflow import MLflowStore
from tests.fakes import ScriptedLM, scripted_lm
from tests.runs.exports import SCRIPT, TASK, write
from tests.tiny_models import skip_without


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


def test_the_lm_is_that_of_the_export_unless_another_is_asked_for(
    tmp_path: Path, with_lm: Callable[[ScriptedLM], Any]
) -> None:
    lm = with_lm(scripted_lm(SCRIPT))
    own = {"spec": "openai/own", "api_base": "http://own/v1", "temperature": 0.5, "max_tokens": 77}
    folder = write(tmp_path / "x", lm=own)

    def made_with(**arguments: Any) -> tuple[object, ...]:
        load(folder, **arguments).close()
        return tuple(lm.made_with[k] for k in ("spec", "api_base", "temperature", "max_tokens"))

    with pytest.raises(InputError, match="names the server"):
        load(folder)
    assert made_with(api_base="http://own/v1") == ("openai/own", "http://own/v1", 0.5, 77)
    assert made_with(api_base="http://other") == ("openai/own", "http://other", 0.5, 77)
    assert made_with(lm="openai/other") == ("openai/other", None, 0.5, 77)


def test_replies_are_kept_where_asked(tmp_path: Path, with_lm: Callable[[ScriptedLM], Any]) -> None:
    lm = with_lm(scripted_lm(SCRIPT))
    with load(write(tmp_path / "x"), store=tmp_path / "replies") as judge:
        lm.recorded_engine.store = lm.made_with["store"]
        judge.score(text="Sorry!", source="Late.", aspects="help")
    assert (tmp_path / "replies" / FILE).exists()


def test_a_text_may_be_judged_by_itself(tmp_path: Path, with_lm: Callable[[ScriptedLM], Any]) -> None:
    lm = with_lm(scripted_lm(SCRIPT))
    with load(write(tmp_path / "x")) as judge:
        assert judge.score(text="Sorry!", source="", aspects="help")["help"].score is not None
    assert all("[[ ## source ## ]]" not in prompt for prompt in lm.prompts)


def test_a_closed_judge_scores_nothing(tmp_path: Path, with_lm: Callable[[ScriptedLM], Any]) -> None:
    with_lm(scripted_lm(SCRIPT))
    judge = load(write(tmp_path / "x"))
    judge.close()
    with pytest.raises(ValueError, match="closed"):
        judge.score(text="t", source="s")


@pytest.mark.integration
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
    client.set_registered_model_alias("toy", "champion", "1")
    addresses = (f"runs:/{run.info.run_id}/export", run.info.run_id, "models:/toy/1", "models:/toy@champion")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert {open_export(address).fingerprint for address in addresses} == {read(folder).fingerprint}
    with pytest.raises(InputError, match="models:/nobody/1") as caught:
        open_export("models:/nobody/1")
    assert "MLFLOW_TRACKING_URI" in str(caught.value.remedy)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with pytest.raises(InputError, match="models:/toy/1"):
        open_export("models:/toy/1")
    assert list(Path.cwd().iterdir()) == [], "MLflow would have made an empty database here"
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert {open_export(address).fingerprint for address in addresses} == {read(folder).fingerprint}
    assert sorted(tmp_path.iterdir()) == before
    assert "MLFLOW_TRACKING_URI" not in os.environ, "MLflow's own setting is as it was"
    monkeypatch.chdir(tmp_path / "elsewhere")
    for store in (MLflowStore(uri), MLflowStore(folder=tmp_path / "runs/store")):
        found = entrants(named_judges(["single", *addresses[1:], str(folder)], store), TASK.aspects[:1])
        assert [one.name for one in found] == ["single", "mine", "toy/1", "toy@champion", "x"]
        assert {one.held_out_fingerprint is None for one in found[1:]} == {False}


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
