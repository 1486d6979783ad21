"""HTTP on loopback: which responses of a server that is scripted byte by byte are used, which connections reused, and
that no call gets the response to another one; protocols, rate limits, redirects, answers without an end."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import resource
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import dspy
import pytest
from dspy.lm15 import TransportError

from debate_judge.programs.hallucination.evidence import SearchError, Serper
from debate_judge.programs.lm import transport as module
from debate_judge.programs.lm.limits import MISMATCHED
from debate_judge.programs.lm.replies import Reply
from debate_judge.programs.lm.settings import LMOptions
from debate_judge.programs.lm.transport import (
    BODY_LIMIT,
    HttpTransport,
    LiteLLMTransport,
)
from debate_judge.programs.make_lm import make_lm, transport_for
from tests.hostile_server import ENDLESS, HostileServer, answered, endless, sized
from tests.programs.engines import QUESTION
from tests.programs.engines import ask as questions_to

pytestmark = pytest.mark.integration
Pieces = Sequence[bytes | None]
"""What a server writes, one piece after the other; None closes the connection."""
Script = Callable[[int, int, bytes], Pieces]
"""Number of the connection, number of the request on it, both from 0, and the request's body -> the answer."""


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[tuple[SimpleNamespace, HttpTransport]]:
    """A server by a script, with what it has received, and a pool of connections to it."""
    seen = SimpleNamespace(connections=0, requests=[], heads=[], writers=[])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, seen.connections = seen.connections, seen.connections + 1
        seen.writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError), closing(writer):
            for request in range(1_000_000):
                seen.heads.append(await reader.readuntil(b"\r\n\r\n"))
                length = int(seen.heads[-1].lower().partition(b"content-length:")[2].split()[0])
                seen.requests.append(await reader.readexactly(length))
                for piece in script(number, request, seen.requests[-1]):
                    if piece is None:
                        return
                    writer.write(piece)
                    # Each piece is read by itself: the client's end is on this loop too.
                    for _ in range(3):
                        await asyncio.sleep(0)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"http://me:p%40ss@127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    pool = HttpTransport(address, {}, lambda *call: b"", None, None)
    try:
        yield seen, pool
    finally:
        await pool.aclose()
        listening.close()
        for writer in seen.writers:
            writer.close()
        await asyncio.sleep(0)


def completion(body: bytes, identity: str | None) -> bytes:
    named = {} if identity is None else {"id": identity}
    return json.dumps({**named, "choices": [body.decode()]}).encode()


def http(body: bytes, *headers: str, status: int = 200) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def response_to(body: bytes) -> bytes:
    return http(completion(body, f"id of {body.decode()}"))


async def ask(pool: HttpTransport, names: Sequence[str]) -> list[str]:
    """Whose answers come, one call after the other."""
    return [json.loads(await post(pool, name.encode()))["choices"][0] for name in names]


async def post(pool: HttpTransport, body: bytes) -> bytes:
    """Post as a caller does: once more where something else than the answer came, and then it must come."""
    try:
        return (await pool.post(body))[2]
    except TransportError as error:
        if error.provider_code != MISMATCHED:
            raise
        return (await pool.post(body))[2]


NAMES = ["a", "b", "c", "d"]
OK = completion(b"x", "1")


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([None], "closed connection"),
        ([http(OK)[:-3], None], "outstanding"),
        ([http(b"", status=103), http(OK)], "interim"),
        ([http(1001 * b"x")], "too long"),
        ([b"HTTP/1.1 200 OK\r\n\r\n" + 1001 * b"x"], "too long"),
        ([http(gzip.compress(1001 * b"x"), "Content-Encoding: gzip")], "too long"),
    ],
)
def test_a_malformed_response_is_an_error_and_closes_the_connection(
    pieces: Pieces, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BODY_LIMIT", 1000)

    async def run() -> None:
        async with serving(lambda number, request, body: [response_to(body)] if number else pieces) as (server, pool):
            with pytest.raises(TransportError, match=words):
                await pool.post(b"a")
            assert len(server.requests) == 1
            assert await ask(pool, NAMES) == NAMES
            assert server.connections == 2

    asyncio.run(run())


def test_what_may_still_answer_another_call_closes_the_connection() -> None:
    # A copy of an error, which has no id, would be taken for another error, and then shift what follows.
    error = http(b'{"error": "slow down", "id": "1"}', status=429)

    def script(number: int, request: int, body: bytes) -> Pieces:
        return {b"busy": [error], b"slow": []}.get(body, [response_to(body)])

    async def run() -> None:
        async with serving(script) as (server, pool):
            assert (await pool.post(b"busy"))[0] == 429
            assert await ask(pool, ["a"]) == ["a"]
            assert server.connections == 2
            # A copy costs a call, and from then on each connection is used once.
            server.writers[1].write(response_to(b"a"))
            assert await ask(pool, ["b"]) == ["b"]
            cancelled = asyncio.create_task(pool.post(b"slow"))
            while b"slow" not in server.requests:
                await asyncio.sleep(0)
            cancelled.cancel()
            await asyncio.wait([cancelled])
            server.writers[3].write(response_to(b"slow"))
            assert await ask(pool, ["c"]) == ["c"]
            assert (server.connections, server.requests) == (5, [b"busy", b"a", b"b", b"b", b"slow", b"c"])
            # User and password of the address are sent as basic authentication and not in the address.
            assert all(b"\r\nAuthorization: Basic bWU6cEBzcw==\r\n" in head for head in server.heads)
            assert not any(b"p%40ss" in head for head in server.heads)

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(5))
def test_copies_and_noise_at_any_time_reach_no_other_call(seed: int) -> None:
    rng = random.Random(seed)
    responses = dict[int, bytes]()

    def script(number: int, request: int, body: bytes) -> Pieces:
        last, responses[number] = responses.get(number, b""), response_to(body)
        pieces = [responses[number][:40], responses[number][40:]] if rng.random() < 0.3 else [responses[number]]
        extra = [rng.choice((last, responses[number], b"\r\n", b"HTTP/1.1 200", http(b"", status=500)))]
        fate = rng.random()
        if fate < 0.2:
            return [*extra, *pieces] if last else pieces
        return [*pieces, *extra] if fate < 0.4 else pieces

    async def caller(pool: HttpTransport, name: str) -> None:
        for number in range(60):
            body = f"{name}{number}"
            try:
                status, _, answer = await pool.post(body.encode())
            except TransportError:
                continue
            # A stray error response costs an attempt, but never gives a wrong answer.
            assert status == 500 or json.loads(answer)["choices"] == [body]
            await asyncio.sleep(rng.choice((0.0, 0.0, 0.001)))

    async def run() -> None:
        async with serving(script) as (_, pool):
            await asyncio.gather(*(caller(pool, name) for name in "abcdefgh"))

    asyncio.run(run())


KEY = "sk-of-a-test-of-servers"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in ("OPENAI", "ANTHROPIC", "AZURE", "COHERE", "DEEPINFRA"):
        monkeypatch.setenv(f"{provider}_API_KEY", KEY)
    monkeypatch.delenv("HOSTED_VLLM_API_KEY", raising=False)


def call(spec: str, url: str, options: LMOptions | None = None) -> Reply:
    return questions_to(make_lm(spec, api_base=url, options=options), QUESTION)[0]


@pytest.mark.parametrize(
    ("spec", "base", "path", "header"),
    [
        ("openai/gpt-4o-mini", "/v1", "/v1/chat/completions", f"authorization: bearer {KEY}"),
        ("anthropic/claude-sonnet-4-5", "/v1", "/v1/messages", f"x-api-key: {KEY}"),
        ("azure/mine", "", "/openai/deployments/mine/chat/completions", f"api-key: {KEY}"),
        # A local server needs no key.
        ("hosted_vllm/org/m", "/v1", "/v1/chat/completions", ""),
    ],
)
def test_path_key_and_protocol_of_a_provider(spec: str, base: str, path: str, header: str) -> None:
    with HostileServer(answered) as server:
        reply = call(spec, server.origin + base)
    head, _, body = server.requests[-1].partition(b"\r\n\r\n")
    assert (reply.text, reply.input_tokens, reply.cached_tokens, reply.output_tokens) == ("Four.", 30, 10, 4)
    assert head.decode().split()[1].partition("?")[0] == path
    assert header in head.decode().lower()
    assert json.loads(body)["temperature"] == 0
    if spec.startswith("hosted_vllm"):
        assert json.loads(body)["model"] == "org/m"
        assert json.loads(body)["messages"] == QUESTION


def test_a_model_that_only_responds_is_called_by_openais_responses_api() -> None:
    content = [{"type": "output_text", "text": "Four.", "annotations": []}]
    output = [{"type": "message", "id": "m", "status": "completed", "role": "assistant", "content": content}]
    usage = {"input_tokens": 30, "output_tokens": 4, "total_tokens": 34, "input_tokens_details": {"cached_tokens": 10}}
    response = {"id": "r", "object": "response", "created_at": 1, "status": "completed", "model": "m", "usage": usage}
    response |= {"output": output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    spec = "openai/gpt-5-pro"
    assert isinstance(transport_for(spec, None, "--lm"), LiteLLMTransport)
    # A server of one's own with a model of this name may have chat completions alone.
    assert not isinstance(transport_for(spec, "http://localhost:1/v1", "--lm"), LiteLLMTransport)
    body = [sized(json.dumps(response).encode(), b"Content-Type: application/json")]
    with HostileServer(lambda _: body) as server:
        reply = asyncio.run(LiteLLMTransport(spec, server.url, "--lm").chat(spec, QUESTION, {}))
    assert server.requests[-1].startswith(b"POST /v1/responses ")
    assert (reply.text, reply.input_tokens, reply.cached_tokens, reply.output_tokens) == ("Four.", 30, 10, 4)


@pytest.mark.parametrize("spec", ["vertex_ai/gemini-2.5-flash", "snowflake/m"])
def test_credentials_that_are_looked_for_at_the_first_call_are_named_without_a_traceback(
    spec: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "SNOWFLAKE_JWT"):
        monkeypatch.delenv(name, raising=False)
    settings = {"VERTEXAI_PROJECT": "p", "VERTEXAI_LOCATION": "us-east1", "CLOUDSDK_CONFIG": str(tmp_path)}
    for name, value in (settings | {"NO_GCE_CHECK": "true", "SNOWFLAKE_API_BASE": "http://localhost:1"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(dspy.LMNotConfiguredError, match=r"(?i)credentials|missing") as caught:
        call(spec, "", ONCE)
    assert "Traceback" not in str(caught.value) + "".join(capfd.readouterr())


ONCE = LMOptions(retries=0, attempt_timeout=60.0, first_wait=0.01, max_outage=0.01)
"""With these options a server that also fails the probe counts as down at once."""


def redirect(status: str, to: HostileServer) -> HostileServer:
    return HostileServer(lambda _: [sized(b"", b"Location: " + to.origin.encode() + b"/x", status=status.encode())])


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_a_web_search_follows_no_redirect(status: str) -> None:
    async def search(url: str) -> None:
        await Serper(KEY, url, pause=0.0)("a private question")

    with HostileServer(lambda _: [sized(b'{"id": "x"}')]) as other, redirect(status, other) as server:
        with pytest.raises(SearchError, match=status[:3]):
            asyncio.run(search(server.origin))
        assert other.requests == []


# One for each transport: our own, and LiteLLM's with its HTTP client and with OpenAI's.
@pytest.mark.parametrize("spec", ["openai/m", "anthropic/m", "cohere_chat/m", "deepinfra/m"])
def test_a_call_follows_no_redirect(spec: str) -> None:
    with HostileServer(lambda _: [sized(b"{}")]) as other, redirect("307 Temporary", other) as server:
        with pytest.raises(dspy.LMError):
            call(spec, server.url, ONCE)
        assert other.requests == []


def peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("kind", ENDLESS)
def test_an_answer_without_end_is_given_up(kind: str) -> None:
    before = peak_kb()
    with HostileServer(lambda _: endless(kind)) as server:
        with pytest.raises(dspy.LMError, match=r"too long|incomplete response|no answer in time|no call was answered"):
            call("openai/m", server.url, replace(ONCE, attempt_timeout=1.0))
        # Bytes sent before the client closes are in the buffers of the system. Chunk extensions and
        # informational responses (1xx) are skipped and not stored, until the attempt times out.
        if kind not in ("chunk line", "announcements"):
            # Six bytes are sent for each byte of a body in the smallest chunks.
            most = (6 if kind == "small chunks" else 1) * BODY_LIMIT
            assert server.sent < len(server.requests) * (most + 16 * 2**20)
    assert peak_kb() - before < 200_000
