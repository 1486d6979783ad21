"""The team's services, as far as they can be tried without containers: what compose.yaml says fits what is accepted."""

from __future__ import annotations

import re
import subprocess
import tomllib
from typing import Any

import psycopg
import pytest

from debate_judge.data.errors import InputError
from debate_judge.runs import serve
from debate_judge.runs.export.process import SETTINGS, environment_variable
from debate_judge.runs.flags.lm import lm_options
from debate_judge.runs.flags.parser import make_parser, read_settings
from debate_judge.runs.scoring.settings import ServeFlags
from tests.postgresql import PostgresServer
from tests.runs.compose_services import ROOT, TEAM, composed, example, filled_in
from tests.source_tree import SOURCES


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return composed()


def test_services_say_whether_they_are_well_and_are_published_on_loopback(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {"database", "mlflow", "judge", "serve"}
    for name, service in compose["services"].items():
        # Of a major version.
        assert re.search(r":\d+(\.\d+)*(-\w+)?$", service["image"]), name
        assert service["healthcheck"]["test"][0] == "CMD", name
        for needed, condition in service.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}, (name, needed)
        for port in service["ports"]:
            assert filled_in(port, {}).rsplit(":", 2)[0] == "127.0.0.1", name
        # What is mounted and built from is there.
        for mounted in service["volumes"]:
            source = mounted.split(":")[0]
            assert (TEAM / source).is_file() if source.startswith(".") else source in compose["volumes"]
        if "build" in service:
            context = (TEAM / service["build"]["context"]).resolve()
            assert context == ROOT
            assert (context / service["build"]["dockerfile"]).is_file()
    dockerfile = (TEAM / "Dockerfile").read_text()
    assert re.search(r"^FROM python:3\.\d+", dockerfile, re.MULTILINE)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = re.findall(r"/source\[([\w,]+)\]", dockerfile)
    assert {*wanted.split(",")} <= set(extras)


def test_secrets_come_from_a_file_that_git_ignores_and_get_into_no_layer_of_the_image(compose: dict[str, Any]) -> None:
    text = (TEAM / "compose.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{(\w+)", text)) == set(example())
    assert {name for name, value in example().items() if value} & {"POSTGRES_PASSWORD", "OPENAI_API_KEY"} == set()
    for service in compose["services"].values():
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


def test_the_command_of_the_service_is_one_of_ours_and_needs_its_key(
    compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = compose["services"]["serve"]
    words = [filled_in(word, example()) for word in service["command"]]
    assert words[:2] == ["debate", "serve"]
    own = {key for key in compose["services"]["judge"]["environment"] if key.startswith("DEBATE_")}
    assert own <= {environment_variable(name) for name in SETTINGS} | {"DEBATE_REPLIES"}
    flags = read_settings(ServeFlags, make_parser("serve", "", ServeFlags).parse_args(words[2:]))
    assert f":{flags.port}:{flags.port}" in service["ports"][0]
    assert lm_options(flags).budget.usd == 20
    monkeypatch.setenv(serve.KEY_VARIABLE, filled_in(service["environment"][serve.KEY_VARIABLE], example()))
    with pytest.raises(InputError, match="or a key in"):
        serve.bearer_key(flags.host)


def test_the_databases_that_are_named_are_made(compose: dict[str, Any], postgres: PostgresServer) -> None:
    named = set(re.findall(r"@database:5432/(\w+)", (TEAM / "compose.yaml").read_text()))
    with psycopg.connect(postgres.new_database(), autocommit=True) as connection:
        for statement in (TEAM / "databases.sql").read_text().split(";"):
            connection.execute(statement.strip().encode())
        made = {name for (name,) in connection.execute("SELECT datname FROM pg_database").fetchall()}
        assert named <= made | {compose["services"]["database"]["environment"]["POSTGRES_DB"]}
        for name in ("mlflow", "studies"):
            connection.execute(f"DROP DATABASE {name}")
