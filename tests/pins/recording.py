"""A server on loopback that plays every role and records what it is sent, at an address that is always the same."""

from __future__ import annotations

import hashlib
import json
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from debate_judge.programs.lm.replies import FILE, replies_folder
from debate_judge.programs.offline import OfflineTransport
from tests.faulty_server import FaultyServer, Script

HOST = "pinned.invalid"
ADDRESS = f"http://{HOST}/v1"
"""Part of the calls' keys, so that the port of the server must not be in it."""
LM = "openai/pinned"
Call = dict[str, Any]
"""Body of a request for a chat completion."""


def stored_keys(store: Path, lm: str) -> list[str]:
    """The keys of all calls whose replies a `--store` folder holds for an LM, as 32 hexadecimal digits, sorted."""
    with closing(sqlite3.connect(replies_folder(store, lm) / FILE)) as database:
        return sorted(key for (key,) in database.execute("SELECT key FROM replies"))


@cache
def offline_answer(system: str, user: str) -> str:
    return OfflineTransport().answer(system, user, {}).text


def content(message: dict[str, Any]) -> str:
    """Text of a message, whether it is sent as one string or in parts."""
    parts = message["content"]
    return parts if isinstance(parts, str) else "".join(part.get("text", "") for part in parts)


def answer(body: bytes) -> str:
    messages = json.loads(body)["messages"]
    system = "".join(content(message) for message in messages if message["role"] in ("system", "developer"))
    return offline_answer(system, content(messages[-1]))


def digest(call: Call) -> str:
    """Hash of the messages of a call, and of nothing else that is sent."""
    texts = [[message["role"], content(message)] for message in call["messages"]]
    return hashlib.blake2b(json.dumps(texts).encode(), digest_size=8).hexdigest()


class Recorder(FaultyServer):
    """A `FaultyServer` that answers as the offline LM and keeps the bodies of all requests."""

    def __init__(self, script: Script = lambda body, attempt: None, *, latency: float = 0.0) -> None:
        super().__init__(answer, self._recorded, latency=latency)
        self._faults = script
        self.calls: list[Call] = []

    def _recorded(self, body: bytes, attempt: int) -> str | None:
        self.calls.append(json.loads(body))
        return self._faults(body, attempt)


@contextmanager
def at_the_address(port: int) -> Iterator[None]:
    """Let this process find the server at `ADDRESS`: names are resolved to a port, so no port has to be free."""
    resolve = socket.getaddrinfo

    def resolved(host: Any, *arguments: Any, **options: Any) -> Any:
        if (host.decode() if isinstance(host, bytes) else host) != HOST:
            return resolve(host, *arguments, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", resolved)
        for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            patch.delenv(variable, raising=False)
        patch.setenv("OPENAI_API_KEY", "unused")
        yield
