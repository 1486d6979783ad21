"""The team's services: what compose.yaml says, and its commands on a PostgreSQL with a password."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
import yaml

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs import build
from debate_judge.runs import serve
from debate_judge.runs.export.folder import SETTINGS
from debate_judge.runs.flags.lm import lm_options
from debate_judge.runs.flags.parser import make_parser, read_settings
from debate_judge.runs.scoring.settings import ServeFlags
from debate_judge.runs.tracking.experiment_page import NOTE
from debate_judge.runs.tracking.tracker import Tracker
from tests.browser import Browser, needs_browser
from tests.config_keys import keys
from tests.fakes import debater
from tests.faulty_server import FaultyServer
from tests.postgresql import PASSWORD, PostgresServer, free_port
from tests.runs.registered_models import registration
from tests.runs.score_command import ScoreCommand, export_of, over_http
from tests.source_tree import SOURCES

ROOT = Path(__file__).parents[2]
TEAM = ROOT / "runs" / "team"
COMPOSE: dict[str, Any] = yaml.safe_load((TEAM / "compose.yaml").read_text(encoding="utf-8"))
LINES = (TEAM / "example.env").read_text(encoding="utf-8").splitlines()
EXAMPLE = dict(line.split("=", 1) for line in LINES if line and not line.startswith("#"))


def filled_in(text: str, values: Mapping[str, str]) -> str:
    """A text with its variables, as compose fills them in."""
    return re.sub(r"\$\{(\w+)(?::[-?]([^}]*))?\}", lambda m: values.get(m[1]) or m[2] or "", text)


def test_services_say_whether_they_are_well_and_are_published_on_loopback() -> None:
    assert set(COMPOSE["services"]) == {"database", "mlflow", "judge", "serve"}
    for name, service in COMPOSE["services"].items():
        assert service["healthcheck"]["test"][0] == "CMD", name
        for needed, condition in service.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}, (name, needed)
        for port in service["ports"]:
            assert filled_in(port, {}).rsplit(":", 2)[0] == "127.0.0.1", name
        # What is mounted and built from is there.
        for mounted in service["volumes"]:
            source = mounted.split(":")[0]
            assert (TEAM / source).is_file() if source.startswith(".") else source in COMPOSE["volumes"]
        if "build" in service:
            context = (TEAM / service["build"]["context"]).resolve()
            assert context == ROOT
            assert (context / service["build"]["dockerfile"]).is_file()
    dockerfile = (TEAM / "Dockerfile").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = re.findall(r"/source\[([\w,]+)\]", dockerfile)
    assert {*wanted.split(",")} <= set(extras)


def test_secrets_come_from_a_file_that_git_ignores_and_get_into_no_layer_of_the_image() -> None:
    text = (TEAM / "compose.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{(\w+)", text)) == set(EXAMPLE)
    assert {name for name, value in EXAMPLE.items() if value} & {"POSTGRES_PASSWORD", "OPENAI_API_KEY"} == set()
    for service in COMPOSE["services"].values():
        for name, value in service["environment"].items():
            if re.search("PASSWORD|KEY", name):
                assert value.startswith("${"), name
            assert not re.search(r"://\w+:[^@]*@", str(value)), name
    ignored = subprocess.run(["git", "check-ignore", "-q", "runs/team/.env"], cwd=ROOT, check=False)
    assert ignored.returncode == 0
    # All but what the package is built from is left out, and of that, by the last lines, stores and hidden files.
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    first, *patterns = [line for line in lines if line and not line.startswith("#")]
    assert first == "*"
    kept = {pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")}
    package = {path.relative_to(ROOT).parts[0] for path in SOURCES}
    assert kept == {*package, "LICENSE", "README.md", "py.typed", "pyproject.toml", ".src/debate_judge"}
    assert patterns[-5:] == ["runs/store", "runs/team", "**/.*", "!.src/debate_judge", "**/__pycache__"]


def test_the_command_of_the_service_is_one_of_ours_and_needs_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    service = COMPOSE["services"]["serve"]
    words = [filled_in(word, EXAMPLE) for word in service["command"]]
    assert words[:2] == ["debate", "serve"]
    variables = {key for key in COMPOSE["services"]["judge"]["environment"] if key.startswith("DEBATE_")}
    assert variables <= {f"DEBATE_{name.upper()}" for name in SETTINGS} | {"DEBATE_REPLIES"}
    flags = read_settings(ServeFlags, make_parser("serve", "", ServeFlags).parse_args(words[2:]))
    assert f":{flags.port}:{flags.port}" in service["ports"][0]
    assert lm_options(flags).budget.usd == 20
    monkeypatch.setenv(serve.KEY_VARIABLE, filled_in(service["environment"][serve.KEY_VARIABLE], EXAMPLE))
    with pytest.raises(InputError, match="or a key in"):
        serve.bearer_key(flags.host)


def test_the_databases_that_are_named_are_made(postgres: PostgresServer) -> None:
    named = set(re.findall(r"@database:5432/(\w+)", (TEAM / "compose.yaml").read_text()))
    with psycopg.connect(postgres.new_database(), autocommit=True) as connection:
        for statement in (TEAM / "databases.sql").read_text().split(";"):
            connection.execute(statement.strip().encode())
        created = {name for (name,) in connection.execute("SELECT datname FROM pg_database").fetchall()}
        assert named <= created | {COMPOSE["services"]["database"]["environment"]["POSTGRES_DB"]}
        for name in ("mlflow", "studies"):
            connection.execute(f"DROP DATABASE {name}")


# --- running ---


@contextmanager
def started(name: str, env: Mapping[str, str], substitutes: Mapping[str, str], *arguments: str) -> Iterator[str]:
    """Run a service until the block ends; yields its address once it says that it is well.

    Args:
        name: Of the service, whose command begins with `mlflow`.
        env: What a user has put into .env.
        substitutes: What stands in the command and in the environment -> what takes its place on this machine.
        arguments: Arguments.
    """

    def local(text: str) -> str:
        # At one go: what has been put in may hold such a text, too.
        return re.sub("|".join(map(re.escape, substitutes)), lambda match: substitutes[match[0]], text)

    service = COMPOSE["services"][name]
    values = {**EXAMPLE, **env}
    words = [local(filled_in(word, values)) for word in service["command"]]
    # Nothing else: a container has no more.
    environment = {variable: os.environ[variable] for variable in ("PATH", "HOME")}
    environment |= {variable: local(filled_in(str(text), values)) for variable, text in service["environment"].items()}
    address = f"http://127.0.0.1:{words[words.index('--port') + 1]}"
    process = subprocess.Popen(
        [sys.executable, "-m", *words, *arguments], env=environment, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until = time.monotonic() + 120
        while not _is_well(address):
            assert process.poll() is None, f"{name} has ended"
            assert time.monotonic() < until, f"{name} was not well"
            time.sleep(0.1)
        yield address
    finally:
        os.killpg(process.pid, 15)
        process.wait(60)


def _is_well(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


LETTER = "A letter about a ferry."


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="module")
def served(runs_database: str, artifacts: Path) -> Iterator[str]:
    """The address of MLflow's server."""
    database, port = runs_database.replace("://", "+psycopg://"), str(free_port())
    substitutes = {"postgresql+psycopg://judge@database:5432/mlflow": database, "/artifacts": str(artifacts)}
    substitutes |= {"0.0.0.0": "127.0.0.1", "5000": port}
    with started("mlflow", {"POSTGRES_PASSWORD": PASSWORD}, substitutes, "--workers", "1") as address:
        yield address


@pytest.fixture(scope="module")
def lm() -> Iterator[FaultyServer]:
    with FaultyServer(over_http(debater(score=lambda prompt: str(1 + len(prompt) % 5)))) as server:
        yield server


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    task = Task("notes", "letter", "note", (Aspect("clarity", "?", Scale(1, 5)), Aspect("tone", "?", Scale(1, 5))))
    debate = build("debate", {"persona": "plain", "rounds": 2, "tie_breaker": True})
    return export_of(tmp_path_factory.mktemp("export"), task, debate, lm="openai/mock")


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
        tracker.log_model(export, name="judge", registration=registration(EXAMPLE["JUDGE"]))
    env = {"POSTGRES_PASSWORD": PASSWORD, "OPENAI_API_KEY": "unused", "DEBATE_API_BASE": lm.url}
    substitutes = {"http://mlflow:5000": served, "postgresql://judge@database:5432/replies": replies}
    substitutes |= {"/replies": str(store), "0.0.0.0": "127.0.0.1", "8080": str(free_port())}
    with started("judge", env, substitutes) as address:
        yield address


def invoked(judge: str, rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    body = json.dumps({"dataframe_records": rows}).encode()
    request = urllib.request.Request(f"{judge}/invocations", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        predictions: list[dict[str, Any]] = json.load(answer)["predictions"]
        return predictions


def test_the_service_gives_the_scores_of_the_command_and_shares_its_replies(
    judge: str, export: Path, lm: FaultyServer, replies: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"note {'x' * number}" for number in range(6)]
    empty = {"source": LETTER, "text": "", "aspect": "tone"}
    *scored, unscored = invoked(judge, [*({"source": LETTER, "text": text} for text in texts), empty])
    assert (unscored["score"], unscored["unscored"]) == (None, "no text: the row needs a text")
    requests = lm.requests
    assert requests > 0
    candidates = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
    (tmp_path / "in.jsonl").write_text(json.dumps({"group": "g", "source": LETTER, "candidates": candidates}))
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    command = ScoreCommand(tmp_path, export, **{"api-base": lm.url})
    assert command(*keys(replies=replies, preflight=False)) == 0
    rows = command.rows()
    assert [(row["aspect"], row["score"]) for row in scored] == [(row["aspect"], row["score"]) for row in rows]
    assert [row["aspect"] for row in rows] == ["clarity", "tone"] * 6
    assert len({row["score"] for row in rows}) > 2
    # What the service has paid for is the team's.
    with psycopg.connect(replies) as connection:
        (stored,) = connection.execute("SELECT count(*) FROM replies").fetchone() or (0,)
    assert lm.requests == stored == requests


# --- runs and their pages ---

RUNS = {"sample-single-offline": ("single", 0.61), "sample-debate-offline": ("debate", 0.76)}
"""Name of a run -> its judge and its agreement; the better one is the later."""


def _track(server: str, store: Path, name: str, judge: str, agreement: float) -> Tracker:
    with Tracker(uri=server, store=store, experiment="debate/sample", run_name=name) as tracker:
        settings = {"data": "sample", "judge": judge, "lm": "offline", "tuner": "guide", "seed": 0}
        tracker.log_settings(settings, settings)
        tracker.log_trial("n=0, knowledge: none", {"rounds": 0}, {"choice_agreement": 0.8})
        figures = {"agreement": agreement, "agreement_low": agreement - 0.05, "agreement_high": agreement + 0.05}
        tracker.log_metrics({**figures, "agreement/coherence": agreement, "calls_per_item": 1.0, "unscored": 0.0})
        # In the form of a compile's.
        table = f"| aspect | compiled debate |\n| --- | --- |\n| coherence | {agreement} [0.71, 0.81] |"
        tracker.set_description(f"**Is the judge good?** {agreement}\n\n{table}")
    return tracker


@pytest.fixture(scope="module")
def tracked(served: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tracker]:
    store = tmp_path_factory.mktemp("store")
    return {name: _track(served, store, name, judge, agreement) for name, (judge, agreement) in RUNS.items()}


def test_the_server_keeps_runs_in_postgresql_hands_artifacts_through_and_an_edited_note_stays(
    tracked: dict[str, Tracker], served: str, artifacts: Path, tmp_path: Path
) -> None:
    last = tracked["sample-debate-offline"]
    client, experiment = last.tracking_store.client, last.tracking_store.experiment_id
    run = client.get_run(last.run_id)
    assert (run.info.status, run.data.metrics["agreement"]) == ("FINISHED", 0.76)
    # The client knows nothing of the server's folder.
    assert run.info.artifact_uri.startswith("mlflow-artifacts:/")
    assert list(artifacts.rglob("settings.json"))
    assert client.get_experiment(experiment).tags["mlflow.note.content"] == NOTE
    client.set_experiment_tag(experiment, "mlflow.note.content", "Ours.")
    _track(served, tmp_path, "unmeasured", "debate", float("nan"))
    assert client.get_experiment(experiment).tags["mlflow.note.content"] == "Ours."


@needs_browser
def test_the_links_open_runs_by_agreement_their_comparison_and_a_run_with_its_verdict(
    tracked: dict[str, Tracker], served: str
) -> None:
    last = tracked["sample-debate-offline"]
    ids = quote(json.dumps([tracker.run_id for tracker in tracked.values()]))
    experiments = quote(json.dumps([last.tracking_store.experiment_id]))
    with Browser() as browser:
        table = browser.open(last.runs_link(), width=2400)
        table.until("document.body?.innerText.includes('sample-single-offline')")
        links = table.value("[...document.querySelectorAll('[role=row] a')].map(link => link.innerText)")
        assert [text for text in links if text in RUNS] == ["sample-debate-offline", "sample-single-offline"]
        text = table.value("document.body.innerText")
        assert "knowledge: none" not in text
        assert {"agreement_low", "calls_per_item", "judge"} <= set(text.split())
        compared = browser.open(f"{served}/#/compare-runs?runs={ids}&experiments={experiments}")
        compared.until("document.body?.innerText.includes('agreement/coherence')")
        text = compared.value("document.body.innerText")
        plot = text[text.index("Parameters:") : text.index("Clear All")].split()
        assert plot == ["Parameters:", "judge", "Metrics:", "agreement"]
        run = browser.open(last.run_link(), width=2400)
        run.until("document.body?.innerText.includes('Is the judge good?')")
        assert run.value("[...document.querySelectorAll('strong')].map(s => s.innerText)") == ["Is the judge good?"]
        rows = run.value("[...document.querySelectorAll('table')].map(t => t.innerText.split(/\\s*[\\n\\t]\\s*/))")
        assert ["aspect", "compiled debate", "coherence", "0.76 [0.71, 0.81]"] in rows
