"""What people see of runs in MLflow: through a real server, over HTTP and in a browser."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from debate_judge.runs.tracking.shared_view import GUIDE
from debate_judge.runs.tracking.tracker import Tracker
from tests.browser import Browser, needs_browser

RUNS = {"sample-single-offline": ("single", 0.61), "sample-debate-offline": ("debate", 0.76)}
"""Name of a run -> its judge and its agreement; the better one is the later."""

DESCRIPTION = (
    "**Is the judge good?** {0}\n\n| aspect | compiled debate |\n| --- | --- |\n| coherence | {0} [0.71, 0.81] |"
)
"""In the form of a compile's."""

LEAN = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}
"""Without downloads, and without the processes for jobs of MLflow's own judges."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a new MLflow server."""
    folder, port = tmp_path_factory.mktemp("mlflow"), _free_port()
    store = ("--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "files"))
    with subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", *store, "--port", str(port), "--workers", "1"],
        cwd=folder,
        env={**os.environ, **LEAN},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert any("Uvicorn running on" in line for line in process.stdout), "the server ended"
            # What it writes later must not fill the pipe.
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def _track(server: str, store: Path, name: str, judge: str, agreement: float) -> Tracker:
    tracker = Tracker(uri=server, store=store, experiment="debate/sample", run_name=name)
    with tracker:
        shown = {"data": "sample", "judge": judge, "lm": "offline", "tuner": "guide", "seed": 0}
        tracker.settings(shown, shown)
        tracker.trial("n=0, knowledge: none", {"rounds": 0}, {"choice_agreement": 0.8})
        figures = {"agreement": agreement, "agreement_low": agreement - 0.05, "agreement_high": agreement + 0.05}
        tracker.metrics({**figures, "agreement/coherence": agreement, "calls_per_item": 1.0, "unscored": 0.0})
        tracker.describe(DESCRIPTION.format(agreement))
    return tracker


@pytest.fixture(scope="module")
def tracked(server: str, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    store = tmp_path_factory.mktemp("store")
    runs = {name: _track(server, store, name, judge, agreement) for name, (judge, agreement) in RUNS.items()}
    last = runs["sample-debate-offline"]
    return SimpleNamespace(runs=runs, client=last.place.client, last=last, store=store, server=server)


def test_an_edited_note_stays(tracked: SimpleNamespace) -> None:
    client, experiment = tracked.client, tracked.last.place.experiment_id
    assert client.get_experiment(experiment).tags["mlflow.note.content"] == GUIDE
    client.set_experiment_tag(experiment, "mlflow.note.content", "Ours.")
    _track(tracked.server, tracked.store, "unmeasured", "debate", float("nan"))
    assert client.get_experiment(experiment).tags["mlflow.note.content"] == "Ours."


@needs_browser
def test_the_links_open_runs_by_agreement_their_comparison_and_a_run_with_its_verdict(tracked: SimpleNamespace) -> None:
    last = tracked.last
    ids = quote(json.dumps([one.run_id for one in tracked.runs.values()]))
    with Browser() as browser:
        table = browser.open(last.runs_link(), width=2400)
        table.until("document.body?.innerText.includes('sample-single-offline')")
        links = table.value("[...document.querySelectorAll('[role=row] a')].map(link => link.innerText)")
        assert [text for text in links if text in RUNS] == ["sample-debate-offline", "sample-single-offline"]
        shown = table.value("document.body.innerText")
        assert "knowledge: none" not in shown
        assert {"agreement_low", "calls_per_item", "judge"} <= set(shown.split())
        compared = browser.open(
            f"{tracked.server}/#/compare-runs?runs={ids}&experiments={quote(json.dumps([last.place.experiment_id]))}"
        )
        compared.until("document.body?.innerText.includes('agreement/coherence')")
        text = compared.value("document.body.innerText")
        plot = text[text.index("Parameters:") : text.index("Clear All")].split()
        assert plot == ["Parameters:", "judge", "Metrics:", "agreement"]
        run = browser.open(last.run_link(), width=2400)
        run.until("document.body?.innerText.includes('Is the judge good?')")
        assert run.value("[...document.querySelectorAll('strong')].map(s => s.innerText)") == ["Is the judge good?"]
        rows = run.value("[...document.querySelectorAll('table')].map(t => t.innerText.split(/\\s*[\\n\\t]\\s*/))")
        assert ["aspect", "compiled debate", "coherence", "0.76 [0.71, 0.81]"] in rows
