"""Runs in an embedded store. MLflow is slow to start, so what can share a store shares one."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from matplotlib.figure import Figure

from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.programs.transcript import Transcript, Turn
from debate_judge.runs.tracking.run_contents import TracedDebate
from debate_judge.runs.tracking.tracker import Tracker, TrackingError

EXPERIMENT = "debate/tests"
SECRET = "correct-horse-battery"

CORPUS = Corpus(
    Task("t", "text", "summary", (Aspect("clarity & style", "how clear", Scale(1, 5)),)),
    (
        RatedGroup("a", "one", (Candidate("1", "x"), Candidate("2", "y"))),
        RatedGroup("b", "two", (Candidate("1", "z"),)),
    ),
    Origin("toy", f"https://reader:{SECRET}@example.org/toy.jsonl", "r1"),
)


def _tracker(store: Path, name: str = "run") -> Tracker:
    return Tracker(uri=None, store=store, experiment=EXPERIMENT, run_name=name)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A store with one run in which everything was logged once."""
    store = tmp_path_factory.mktemp("with space") / "store"
    elsewhere = tmp_path_factory.mktemp("cwd")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(elsewhere)
        patch.setenv("SOME_API_KEY", "an-unusual-value-0815")
        with _tracker(store, "everything") as tracker:
            tracker.log_settings(
                {"deadline": 900, "api_key": SECRET},
                {
                    "rounds": (0, 1, 2),
                    "nothing": None,
                    "max_tokens": 2000,
                    "api_key": SECRET,
                    "api_base": f"http://me:{SECRET}@127.0.0.1:8000/v1",
                    "headers": {"Authorization": f"Bearer {SECRET}", "X-Team": "judges"},
                },
            )
            tracker.set_tags({"level": "summary", "note": "seen an-unusual-value-0815 here"})
            tracker.log_metrics({"kept": 0.5, "absent": None, "broken": math.nan, "endless": math.inf})
            tracker.log_dataset("train", CORPUS, "aaaa")
            tracker.log_dataset("dev", CORPUS, "bbbb")
            tracker.log_trial("n=0", {"rounds": 0, "persona": None}, {"dev/spearman": 0.25, "lm_calls_per_item": 1})
            tracker.log_trial("n=1 plain", {"rounds": 1, "persona": "plain"}, {"dev/spearman": 0.5, "p": math.nan})
            tracker.log_details({"small": 0.25, "absent": None, "broken": math.nan})
            tracker.log_text("instructions-diff.txt", "-alt\n+neu é")
            tracker.log_table("transcripts.json", [{"item": "a", "score": 1.5}, {"item": "b", "score": None}])
            tracker.log_figure("figures/one.png", Figure())
    client = tracker.tracking_store.client
    artifacts = store / "artifacts" / tracker.run_id / "artifacts"
    run = client.get_run(tracker.run_id)
    return SimpleNamespace(store=store, cwd=elsewhere, tracker=tracker, client=client, run=run, artifacts=artifacts)


def test_a_run_is_finished_and_says_with_what_it_was_made(kept: SimpleNamespace) -> None:
    info, run_data = kept.run.info, kept.run.data
    assert (info.status, info.run_name, run_data.tags["level"]) == ("FINISHED", "everything", "summary")
    assert run_data.tags["versions"].startswith(f"python {sys.version.split()[0]}, dspy ")
    assert info.artifact_uri == kept.artifacts.as_uri()
    assert not list(kept.cwd.iterdir()), "nothing is in the working directory"
    # What has no value is left out.
    assert set(run_data.metrics) == {"kept"}
    assert set(json.loads((kept.artifacts / "metrics.json").read_text())) == {"small"}
    assert (kept.artifacts / "instructions-diff.txt").read_text(encoding="utf-8") == "-alt\n+neu é"
    table = json.loads((kept.artifacts / "transcripts.json").read_text())
    assert table == {"columns": ["item", "score"], "data": [["a", 1.5], ["b", None]]}
    assert (kept.artifacts / "figures/one.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="JSON compliant"):
        kept.tracker.log_json("x.json", {"value": math.nan})


def test_trials_are_finished_children_with_their_own_params_and_metrics(kept: SimpleNamespace) -> None:
    children = kept.client.search_runs(
        [kept.run.info.experiment_id], f"tags.`mlflow.parentRunId` = '{kept.run.info.run_id}'"
    )
    single, plain = sorted(children, key=lambda run: run.info.run_name)
    assert {single.info.status, plain.info.status} == {"FINISHED"}
    assert (single.data.params, plain.data.params) == ({"rounds": "0"}, {"rounds": "1", "persona": "plain"})
    assert single.data.metrics == {"dev/spearman": 0.25, "lm_calls_per_item": 1}
    assert plain.data.metrics == {"dev/spearman": 0.5}


DEBATE = TracedDebate(
    "tone: a, 1", "a", "1", "tone", "one", "x",
    Transcript((Turn("scorer", 0, "Fine.", 4.0), Turn("critic", 1, "NO ISSUE", no_issue=True))), 4.0, "Fine.", 3.5,
)  # fmt: skip


def test_debates_are_traces_of_their_run(kept: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////nowhere.db")
    with _tracker(kept.store, "traced") as tracker:
        tracker.log_debates([DEBATE, replace(DEBATE, score=None, reason="lm error", rating=None)])
    # What the process had set is set again.
    assert os.environ["MLFLOW_TRACKING_URI"] == "sqlite:////nowhere.db"
    traces = kept.client.search_traces(
        locations=[kept.run.info.experiment_id],
        filter_string=f"request_metadata.`mlflow.sourceRun` = '{tracker.run_id}'",
    )
    (scored,) = [trace for trace in traces if trace.info.assessments]
    assert len(traces) == 2
    root, *turns = scored.data.spans
    assert root.inputs == {"aspect": "tone", "source": "one", "text": "x"}
    assert root.outputs == {"score": 4.0, "reason": "Fine."}
    texts = [(turn.name, turn.outputs["text"]) for turn in turns]
    assert texts == [("scorer", "Fine."), ("critic, round 1", "NO ISSUE")]
    assessments = {(a.source.source_type, a.name, a.value) for a in scored.info.assessments}
    assert assessments == {("LLM_JUDGE", "tone", 4.0), ("HUMAN", "tone", 3.5)}


def test_parts_of_the_split_are_inputs_with_digest_and_use(kept: SimpleNamespace) -> None:
    inputs = {tuple(tag.value for tag in given.tags): given.dataset for given in kept.run.inputs.dataset_inputs}
    assert {tags: dataset.digest for tags, dataset in inputs.items()} == {
        ("train", "r1"): "aaaa",
        ("dev", "r1"): "bbbb",
    }
    dataset = inputs["dev", "r1"]
    assert (dataset.name, json.loads(dataset.profile)) == ("toy", {"groups": 2, "candidates": 3})
    assert json.loads(dataset.source) == {"url": "https://example.org/toy.jsonl"}


def test_settings_are_kept_and_secrets_are_not(kept: SimpleNamespace) -> None:
    assert kept.run.data.params == {
        "rounds": "[0, 1, 2]",
        "max_tokens": "2000",
        "api_key": "[removed]",
        "api_base": "http://127.0.0.1:8000/v1",
        "headers": '{"Authorization": "[removed]", "X-Team": "judges"}',
    }
    assert json.loads((kept.artifacts / "settings.json").read_text()) == {"deadline": "900", "api_key": "[removed]"}
    assert kept.run.data.tags["note"] == "seen [removed] here"
    everything = b"".join(p.read_bytes() for p in kept.store.rglob("*") if p.is_file())
    assert b"max_tokens" in everything
    assert SECRET.encode() not in everything


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), "KILLED", "KeyboardInterrupt"),
        (OSError(f"no route to http://me:{SECRET}@host/\nsecond line"), "FAILED", "OSError: no route to http://host/"),
    ],
)
def test_what_ends_the_work_is_the_end_of_the_run(
    kept: SimpleNamespace, error: BaseException, status: str, message: str
) -> None:
    tracker = _tracker(kept.store)
    with suppress(type(error)), tracker:
        tracker.log_metrics({"before": 1.0})
        raise error
    run = kept.client.get_run(tracker.run_id)
    assert (run.info.status, run.data.tags["error"], run.data.metrics) == (status, message, {"before": 1.0})


def _end(tracker: Tracker, *calls: Callable[[], object]) -> None:
    with tracker:
        tracker.log_settings({}, {"rounds": 1})
        tracker.log_settings({}, {"rounds": 2})
        for call in calls:
            call()


def test_a_write_that_fails_is_raised_by_a_later_call_or_on_leaving_and_hides_no_error(
    kept: SimpleNamespace, tmp_path: Path
) -> None:
    tracker = _tracker(kept.store)
    with pytest.raises(TrackingError, match=r"Changing param values(.|\n)*remedy"):
        _end(tracker)
    assert kept.client.get_run(tracker.run_id).info.status == "FAILED"
    unnoticed = partial(pytest.fail, "the failed write went unnoticed")
    tracker = _tracker(kept.store)
    with pytest.raises(TrackingError):
        _end(tracker, lambda: tracker.log_model(tmp_path, name="judge", registration=None), unnoticed)
    with pytest.raises(ZeroDivisionError) as hidden:
        _end(_tracker(kept.store), lambda: 1 / 0)
    assert "Changing param values" in hidden.value.__notes__[0]
