"""Checks the address of a tracking store within seconds, before MLflow is imported.

MLflow's own retries take minutes to report that a server does not answer.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import urllib.error
import urllib.request
from contextlib import closing
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.redaction import clean_text
from debate_judge.programs.lm.sql.postgresql import connect, driven_by_psycopg
from debate_judge.runs.mlflow_setup import sqlite_file

TIMEOUT = 4.0
"""Seconds that a server or a locked database is given to answer."""

_DATABASES = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
"""Scheme -> default port."""

_FORMS = "http(s)://HOST:PORT, sqlite:///FILE, postgresql://…, mysql://…, mssql://… or databricks"


def check_address(uri: str) -> None:
    """Reject an address that is malformed, does not answer, or names a database that cannot be used.

    Raises:
        InputError: It is one of these.
    """
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _malformed(uri) from error
    scheme, file = parts.scheme.partition("+")[0], sqlite_file(uri)
    if is_server(uri) and host:
        _check_server(uri)
    elif scheme in _DATABASES and host:
        _check_port(uri, host, port or _DATABASES[scheme])
        if driven_by_psycopg(uri):
            connect(uri, "tracking URI").close()
    elif file is not None:
        _check_sqlite(file)
    elif not uri.startswith("databricks"):
        raise _malformed(uri)


def is_server(uri: str) -> bool:
    """Whether the store is an MLflow server, which has a UI and keeps artifacts itself."""
    return urlsplit(uri).scheme in ("http", "https")


def _check_server(uri: str) -> None:
    request = urllib.request.Request(uri.rstrip("/") + "/health", headers={"User-Agent": "debate-judge"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT):
            return
    except urllib.error.HTTPError as error:
        # Only a server error means that MLflow is down: a gateway may guard or hide this path.
        if error.code >= 500:
            raise _unreachable(uri, f"it answers HTTP {error.code}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise _unreachable(uri, str(getattr(error, "reason", error)) or type(error).__name__) from error


def _check_port(uri: str, host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), TIMEOUT).close()
    except OSError as error:
        raise _unreachable(uri, str(error)) from error


def _check_sqlite(file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(file, timeout=TIMEOUT)) as database:
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            writable = os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)
    except (OSError, sqlite3.Error) as error:
        raise InputError(f"not a database that can be used: {error}", file=file, remedy="name another file") from error
    if not writable:
        raise InputError("the database cannot be written", file=file, remedy="change its permissions, or name another")


def _malformed(uri: str) -> InputError:
    return InputError(
        "not a tracking URI",
        field="tracking URI",
        expected=_FORMS,
        found=clean_text(uri),
        remedy="correct it, or leave it out for the embedded store",
    )


def _unreachable(uri: str, why: str) -> InputError:
    start = "start it (mlflow server --port 5000)" if is_server(uri) else "start it"
    return InputError(
        f"the tracking server cannot be reached: {clean_text(why)}",
        field="tracking URI",
        found=clean_text(uri),
        remedy=f"{start}, correct the address, or leave it out for the embedded store",
    )
