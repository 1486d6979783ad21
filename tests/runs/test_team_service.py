"""MLflow's server and the judge as a service, by the commands of compose.yaml, on a PostgreSQL with a password.

And what people see of runs there, in a browser.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs import build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs import score
from debate_judge.runs.export.folder import save
from debate_judge.runs.tracking.shared_view import NOTE
from debate_judge.runs.tracking.tracker import Tracker
from tests.browser import Browser, needs_browser
from tests.config_keys import keys
from tests.fakes import debater
from tests.faulty_server import FaultyServer
from tests.postgresql import PASSWORD, PostgresServer, free_port
from tests.runs.compose_services import example, started
from tests.runs.registered_models import registration

pytestmark = pytest.mark.integration

RUNS = {"sample-single-offline": ("single", 0.61), "sample-debate-offline": ("debate", 0.76)}
"""Name of a run -> its judge and its agreement; the better one is the later."""

DESCRIPTION = (
    "**Is the judge good?** {0}\n\n| aspect | compiled debate |\n| --- | --- |\n| coherence | {0} [0.71, 0.81] |"
)
"""In the form of a compile's."""


LETTER = "A letter about a ferry."
EMPTY = {"source": LETTER, "text": "", "aspect": "tone"}


def answer(body: bytes) -> str:
    prompt = "\n\n".join(message["content"] for message in json.loads(body)["messages"])
    return debater(score=str(1 + len(prompt) % 5))(prompt)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="module")
def served(runs_database: str, artifacts: Path) -> Iterator[str]:
    """The address of MLflow's server."""
    database, port = runs_database.replace("://", "+psycopg://"), str(free_port())
    here = {"postgresql+psycopg://judge@database:5432/mlflow": database, "/artifacts": str(artifacts)}
    here |= {"0.0.0.0": "127.0.0.1", "5000": port}
    with started("mlflow", {"POSTGRES_PASSWORD": PASSWORD}, here, "--workers", "1") as address:
        yield address


@pytest.fixture(scope="module")
def lm() -> Iterator[FaultyServer]:
    with FaultyServer(answer) as server:
        yield server


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    task = Task("notes", "letter", "note", (Aspect("clarity", "?", Scale(1, 5)), Aspect("tone", "?", Scale(1, 5))))
    debate = build("debate", {"persona": "plain", "rounds": 2, "tie_breaker": True})
    judge = CompiledJudge(task, {aspect.name: AspectJudge(debate) for aspect in task.aspects})
    return save(tmp_path_factory.mktemp("export"), judge, lm={"spec": "openai/mock"}, evidence={}, name="x")


@pytest.fixture(scope="module")
def replies(postgres: PostgresServer) -> str:
    """The address of the database of replies."""
    return postgres.new_database()


@pytest.fixture(scope="module")
def judge(
    served: str, export: Path, lm: FaultyServer, replies: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of the service, whose judge was registered with MLflow's server."""
    store = tmp_path_factory.mktemp("judge")
    with Tracker(uri=served, store=store, experiment="debate/served", run_name="compiled") as tracker:
        tracker.log_model(export, name="judge", registration=registration(example()["JUDGE"]))
    given = {"POSTGRES_PASSWORD": PASSWORD, "OPENAI_API_KEY": "unused", "DEBATE_API_BASE": lm.url}
    here = {"http://mlflow:5000": served, "postgresql://judge@database:5432/replies": replies}
    here |= {"/replies": str(store), "0.0.0.0": "127.0.0.1", "8080": str(free_port())}
    with started("judge", given, here) as address:
        yield address


def test_mlflows_server_keeps_runs_in_postgresql_and_hands_artifacts_through(
    served: str, artifacts: Path, tmp_path: Path
) -> None:
    with Tracker(uri=served, store=tmp_path / "store", experiment="debate/served", run_name="mine") as tracker:
        tracker.log_metrics({"agreement": 0.5})
        tracker.log_details({"calls": 3.0})
    run = tracker.tracking_store.client.get_run(tracker.run_id)
    assert (run.info.status, run.data.metrics["agreement"]) == ("FINISHED", 0.5)
    # The client knows nothing of the server's folder.
    assert run.info.artifact_uri.startswith("mlflow-artifacts:/")
    assert list(artifacts.rglob("metrics.json"))


def invoked(judge: str, rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    body = json.dumps({"dataframe_records": rows}).encode()
    request = urllib.request.Request(f"{judge}/invocations", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: list[dict[str, Any]] = json.load(answer)["predictions"]
        return found


def test_the_service_gives_the_scores_of_the_command_and_shares_its_replies(
    judge: str, export: Path, lm: FaultyServer, replies: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"note {'x' * number}" for number in range(6)]
    *found, nothing = invoked(judge, [*({"source": LETTER, "text": text} for text in texts), EMPTY])
    assert (nothing["score"], nothing["unscored"]) == (None, "no text: the row needs a text")
    assert [row["aspect"] for row in found] == ["clarity", "tone"] * 6
    asked = lm.requests
    assert asked > 0
    candidates = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
    (tmp_path / "in.jsonl").write_text(json.dumps({"group": "g", "source": LETTER, "candidates": candidates}))
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    arguments = [str(export), "--api-base", lm.url, "--in", str(tmp_path / "in.jsonl")]
    arguments += ["--out", str(tmp_path / "out.jsonl"), "--store", str(tmp_path / "store")]
    arguments += keys(replies=replies, preflight=False)
    assert score.main(arguments) == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(row["aspect"], row["score"]) for row in found] == [(row["aspect"], row["score"]) for row in rows]
    assert len({row["score"] for row in found}) > 2
    # What the service has paid for is the team's.
    assert lm.requests == asked
    with psycopg.connect(replies) as connection:
        (stored,) = connection.execute("SELECT count(*) FROM replies").fetchone() or (0,)
    assert stored == asked


# --- pages ---


def _track(server: str, store: Path, name: str, judge: str, agreement: float) -> Tracker:
    tracker = Tracker(uri=server, store=store, experiment="debate/sample", run_name=name)
    with tracker:
        shown = {"data": "sample", "judge": judge, "lm": "offline", "tuner": "guide", "seed": 0}
        tracker.log_settings(shown, shown)
        tracker.log_trial("n=0, knowledge: none", {"rounds": 0}, {"choice_agreement": 0.8})
        figures = {"agreement": agreement, "agreement_low": agreement - 0.05, "agreement_high": agreement + 0.05}
        tracker.log_metrics({**figures, "agreement/coherence": agreement, "calls_per_item": 1.0, "unscored": 0.0})
        tracker.set_description(DESCRIPTION.format(agreement))
    return tracker


@pytest.fixture(scope="module")
def tracked(served: str, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    store = tmp_path_factory.mktemp("store")
    runs = {name: _track(served, store, name, judge, agreement) for name, (judge, agreement) in RUNS.items()}
    last = runs["sample-debate-offline"]
    return SimpleNamespace(runs=runs, client=last.tracking_store.client, last=last, store=store, server=served)


def test_an_edited_note_stays(tracked: SimpleNamespace) -> None:
    client, experiment = tracked.client, tracked.last.tracking_store.experiment_id
    assert client.get_experiment(experiment).tags["mlflow.note.content"] == NOTE
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
            f"{tracked.server}/#/compare-runs?runs={ids}&experiments={quote(json.dumps([last.tracking_store.experiment_id]))}"
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
