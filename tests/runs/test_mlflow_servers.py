"""MLflow servers that we did not write: with logins, and of MLflow 2.

    MLFLOW_AUTH=/path/to/mlflow MLFLOW_2=/path/to/mlflow pytest -n 0 -m integration tests/runs/test_mlflow_servers.py

The programs are those of environments of their own, with `pip install 'mlflow[auth]>=3'` and `pip install 'mlflow<3'
'sqlalchemy<2.1'`.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from debate_judge.data.errors import InputError
from debate_judge.runs.mlflow_store import open_tracking_store
from debate_judge.runs.tracking import Tracker
from tests.processes import wait_for_server

pytestmark = pytest.mark.integration
LOGIN = "admin:a-long-password"


@contextmanager
def server(variable: str, folder: Path, *arguments: str) -> Iterator[str]:
    """A server of the program that a variable names, as HOST:PORT."""
    if (program := os.environ.get(variable)) is None:
        pytest.skip(f"{variable} does not name a program `mlflow`")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [program, "server", "--host", "127.0.0.1", "--port", address.partition(":")[2], "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{folder}/server.db",
        "--artifacts-destination",
        str(folder / "files"),
    ]
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "MLFLOW"))
    }
    # The program starts others beside it.
    path = f"{Path(program).parent}:{os.environ['PATH']}"
    environment = {**kept, "PATH": path, "MLFLOW_FLASK_SERVER_SECRET_KEY": "of-a-test-of-servers"}
    environment["MLFLOW_AUTH_ADMIN_PASSWORD"] = LOGIN.partition(":")[2]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [*command, *arguments], cwd=folder, stdout=log, stderr=log, env=environment, process_group=0
        ) as process,
    ):
        try:
            wait_for_server(process, f"http://{address}/health", folder / "log")
            yield address
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)


def test_a_server_with_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with server("MLFLOW_AUTH", tmp_path, "--app-name", "basic-auth") as address:
        for login in ("", "admin:wrong-password@"):
            with pytest.raises(InputError, match=r"login(.|\n)*MLFLOW_TRACKING_USERNAME") as refused:
                open_tracking_store(f"http://{login}{address}", tmp_path / "store", "debate/tests")
            assert "wrong-password" not in str(refused.value)
        # The login in the address, and in MLflow's variables.
        uri = f"http://{LOGIN}@{address}"
        with Tracker(uri=uri, store=tmp_path / "store", experiment="debate/tests", run_name="one") as tracker:
            tracker.log_trial("n=0", {"n": 0}, {"agreement": 0.5})
        for name, value in zip(("USERNAME", "PASSWORD"), LOGIN.split(":"), strict=True):
            monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", value)
        assert open_tracking_store(f"http://{address}", tmp_path / "store", "debate/tests").experiment_id
        kept = b"".join(file.read_bytes() for file in (tmp_path / "store").rglob("*") if file.is_file())
        assert LOGIN.partition(":")[2].encode() not in kept


def test_a_server_of_mlflow_2(tmp_path: Path) -> None:
    with (
        server("MLFLOW_2", tmp_path) as address,
        pytest.raises(InputError, match=r"MLflow 2\.(.|\n)*MLflow 3 or later"),
    ):
        open_tracking_store(f"http://{address}", tmp_path / "store", "debate/tests")
