"""A PostgreSQL server of the tests' own, on loopback, in a temporary folder.

with PostgresServer(folder) as server: psycopg.connect(server.new_database())
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

import psycopg

USER = "judge"


def binaries() -> Path | None:
    """The folder of `initdb` and `postgres`, of the newest version that Debian's packages have installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


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
        data = str(self._folder / "data")
        self._run("initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
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
        """The address of a database that is empty."""
        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self._address(name)

    def _address(self, name: str) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{name}"
