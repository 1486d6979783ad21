"""A PostgreSQL server of the tests' own, on loopback, in a temporary folder.

with PostgresServer() as server: psycopg.connect(server.new_database(), password=PASSWORD)

It asks for the password of its one user, as a team's does.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import psycopg

USER, PASSWORD = "judge", "Open Sesame: 94/17"
"""The password stands otherwise in an address than by itself."""


def binaries() -> Path | None:
    """The folder of `initdb` and `postgres`, of the newest version that Debian's packages have installed."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    return installed[-1].parent if installed else Path(on_path).parent if on_path else None


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class PostgresServer:
    """Runs for as long as its block, without forcing anything to the disk."""

    def __init__(self) -> None:
        folder = binaries()
        assert folder is not None
        self._bin = folder
        # Not below pytest's folders, which only their owner may enter: the server runs as another user.
        self._folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        self.port = free_port()

    def __enter__(self) -> PostgresServer:
        if os.getuid() == 0:
            shutil.chown(self._folder, "postgres")
        data, password = str(self._folder / "data"), self._folder / "password"
        password.write_text(PASSWORD)
        login = ("-U", USER, "-A", "scram-sha-256", "--pwfile", str(password))
        self._run("initdb", "-D", data, *login, "-E", "UTF8", "--no-locale", "--no-sync")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        # It refuses to run as root.
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
        done = subprocess.run(
            [*user, str(self._bin / program), *arguments],
            cwd=self._folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Start it, on the same port each time."""
        quick = "-c fsync=off -c full_page_writes=off -c shared_buffers=16MB"
        where = f"-c listen_addresses=127.0.0.1 -c unix_socket_directories= -p {self.port}"
        log = str(self._folder / "log")
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-l", log, "-w", "-o", f"{quick} {where}", "start")

    def stop(self) -> None:
        """Stop it as a crash would: connections are cut."""
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-m", "immediate", "-w", "stop")

    def new_database(self) -> str:
        """The address of a database that is empty, without the password."""
        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self._address("postgres"), password=PASSWORD, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self._address(name)

    def _address(self, name: str) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{name}"

    def dump(self, address: str) -> str:
        """All that a database holds, as text."""
        command = [self._bin / "pg_dump", "--inserts", address]
        environment = {**os.environ, "PGPASSWORD": PASSWORD}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def with_password(address: str) -> str:
    """An address in which the password stands."""
    return address.replace(f"{USER}@", f"{USER}:{quote(PASSWORD, safe='')}@")
