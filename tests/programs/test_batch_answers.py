"""Malformed, ambiguous and oversized answers of a batch service: none is used, and missing ones are requested again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from debate_judge.programs.lm.batch import service
from debate_judge.programs.lm.batch.service import BatchService
from debate_judge.programs.lm.errors import ProviderDownError
from tests.batch_server import BatchServer
from tests.hostile_server import HostileServer, endless, gzip_bomb, sized
from tests.programs.batches import SHORT_OUTAGE, judge, lm_at, scores
from tests.programs.faults import answer, items

pytestmark = pytest.mark.integration

Lines = list[bytes]


def malformed(lines: Lines) -> Lines:
    return [lines[0][:-20], *lines[1:]]


def doubled(lines: Lines) -> Lines:
    """Two answers to one call, of which one is another call's text."""
    other = json.loads(lines[0]) | {"response": json.loads(lines[1])["response"]}
    other["response"]["body"]["id"] = "another"
    return [*lines, json.dumps(other).encode()]


def copied(lines: Lines) -> Lines:
    """One completion as the answer to two calls."""
    copy = json.loads(lines[0]) | {"response": json.loads(lines[1])["response"]}
    return [json.dumps(copy).encode(), *lines[1:]]


def foreign(lines: Lines) -> Lines:
    """An answer under a name that no call has."""
    return [json.dumps(json.loads(lines[0]) | {"custom_id": "f" * 32}).encode(), *lines[1:]]


def endless_line(lines: Lines) -> Lines:
    return [lines[0][:-1] + b" " * 2 * service.MAX_LINE_BYTES + lines[0][-1:], *lines[1:]]


@pytest.mark.parametrize(
    ("tamper", "again"), [(malformed, 1), (doubled, 1), (copied, 2), (foreign, 1), (endless_line, 1)]
)
def test_an_ambiguous_or_malformed_answer_is_requested_again(
    tamper: Callable[[Lines], Lines], again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than all other lines together, and short enough for a test.
    monkeypatch.setattr(service, "MAX_LINE_BYTES", 200_000)
    work = items(6)
    with BatchServer(answer) as server:
        right = scores(judge(lm_at(server), work, rounds=0))
        server.jobs.clear()
        server.tamper = lambda number, lines: tamper(lines) if number == 0 else lines
        assert scores(judge(lm_at(server), work, rounds=0)) == right
        assert server.made_calls == {("scorer", "0"): 6 + again}


@pytest.mark.parametrize("rubbish", [b"<html>", b"[]", b"7", b'{"custom_id": 3}', b'{"custom_id": "z"}', b"{}", b" "])
def test_lines_about_no_call_of_the_job_are_ignored(rubbish: bytes) -> None:
    with BatchServer(answer) as server:
        server.tamper = lambda number, lines: [lines[0], rubbish, *lines[1:]]
        assert None not in scores(judge(lm_at(server), items(3), rounds=0))
        assert server.made_calls == {("scorer", "0"): 3}


@pytest.mark.parametrize("kind", ["body", "body until closed", "body of 1 GB", "trailers", "head"])
def test_an_answer_without_end_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_RESPONSE_BYTES", 2**20)
    with HostileServer(lambda _: endless(kind)) as server:
        refuse(server)
        assert server.sent < 100 * 2**20 * len(server.requests)


def test_a_compressed_answer_is_not_unpacked() -> None:
    bomb = gzip_bomb(2**26)
    with HostileServer(lambda _: [sized(bomb, b"Content-Encoding: gzip")]) as server:
        refuse(server)


def refuse(server: HostileServer) -> None:
    async def look() -> None:
        batches = BatchService(server.url, "sk-x", "openai/m", SHORT_OUTAGE)
        try:
            await batches.retrieve("batch_1")
        finally:
            await batches.aclose()

    with pytest.raises(ProviderDownError, match="has not answered"):
        asyncio.run(look())
    assert server.requests
