"""OpenAI's Files and Batch endpoints on loopback, as faithful as the tests need them, with failures on script.

with BatchServer(answer) as server: lm = make_lm("openai/m", api_base=server.url, options=...)

A job moves on by one state each time it is looked at: validating, in_progress, finalizing, completed (or failed,
expired, cancelled). It is validated as the service validates: fields of the lines, unique custom_ids, at most
`most_calls` lines, at most `queue` bytes waiting.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.faulty_server import completion

CallScript = Callable[[bytes, int], str | None]
"""Body of a call and number of its attempt, from 0 -> what goes wrong with its line, or None. See `_line`."""
JobScript = Callable[[int], str | None]
"""Number of a job, from 0 -> `expired`, `cancelled`, an error code of validation, or None."""
DoorScript = Callable[[str, str, int], str | None]
"""Method, path and number of a request, from 0 -> what goes wrong, or None.

`500`, `429` and `garbage` are answers; `lost` is a connection that is closed after the request was carried out, `held`
and `silent` are requests that are never answered, and of these only `silent` ones are carried out.
"""

ERRORS = {
    "401": (401, "Incorrect API key provided: sk-secret", "invalid_api_key"),
    "404": (404, "The model does not exist", "model_not_found"),
    "429": (429, "Rate limit reached", "rate_limit_exceeded"),
    "500": (500, "The server had an error", "server_error"),
    "filter": (400, "The response was filtered", "content_filter"),
    "long": (400, "This model's maximum context length is 10 tokens", "context_length_exceeded"),
}


def refusal(status: int, message: str, code: str | None = None) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return web.json_response({"error": error}, status=status, headers={"Retry-After": "0.01"})


class BatchServer:
    """Serves `{url}/files`, `{url}/batches` and `{url}/chat/completions` from a thread of its own.

    Args:
        answer: From a request's body to the text of a good reply.
    """

    def __init__(self, answer: Callable[[bytes], str]) -> None:
        self.answer = answer
        self.calls: CallScript = lambda body, attempt: None
        self.job: JobScript = lambda number: None
        self.door: DoorScript = lambda method, path, number: None
        self.tamper: Callable[[int, list[bytes]], list[bytes]] = lambda number, lines: lines
        """Number of a job and the lines of its good answers -> the lines that are sent."""
        self.held = False
        """Whether jobs stay in progress, however often they are looked at."""
        self.most_calls = 50_000
        self.queue: int | None = None
        """Bytes that may wait; a job beyond them fails in validation."""
        self.files: dict[str, bytes] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.executed: Counter[str] = Counter()
        """custom_id -> times that it was answered, which is paid for."""
        self.attempts: Counter[bytes] = Counter()
        self.direct = 0
        """Calls that came by themselves."""
        self.requests: Counter[str] = Counter()
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def made(self) -> list[tuple[str, str, int]]:
        """Role, round and number of calls of each job that was made, in order."""
        return [(j["metadata"]["role"], j["metadata"]["round"], len(j["lines"])) for j in self.jobs.values()]

    @property
    def made_calls(self) -> dict[tuple[str, str], int]:
        """Role and round -> number of calls in all jobs that were made, however many jobs these are."""
        made: Counter[tuple[str, str]] = Counter()
        for role, turn, calls in self.made:
            made[role, turn] += calls
        return dict(made)

    def __enter__(self) -> BatchServer:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        app = web.Application(client_max_size=300 * 2**20, middlewares=[self._guard])
        app.router.add_post("/v1/files", self._upload)
        app.router.add_get("/v1/files/{id}/content", self._content)
        app.router.add_post("/v1/batches", self._create)
        app.router.add_get("/v1/batches", self._list)
        app.router.add_get("/v1/batches/{id}", self._retrieve)
        app.router.add_post("/v1/chat/completions", self._chat)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        path = request.path.removeprefix("/v1")
        number = self.requests[f"{request.method} {path}"]
        self.requests[f"{request.method} {path}"] += 1
        fault = self.door(request.method, path, number)
        if fault in ("500", "429"):
            return refusal(*ERRORS[fault])
        if fault == "garbage":
            return web.Response(text="<html>Please log in</html>", content_type="text/html")
        if fault == "held":
            await asyncio.Event().wait()
        answer: web.StreamResponse = await handler(request)
        if fault == "silent":
            await asyncio.Event().wait()
        if fault == "lost":
            assert request.transport is not None
            request.transport.abort()
        return answer

    async def _upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        file = form.get("file")
        assert isinstance(file, web.FileField)
        if form.get("purpose") != "batch" or not file.filename.endswith(".jsonl"):
            return refusal(400, "Invalid file format for Batch API. Must be .jsonl")
        return web.json_response({"id": self._keep(file.file.read()), "object": "file", "status": "processed"})

    def _keep(self, data: bytes) -> str:
        name = f"file-{len(self.files)}"
        self.files[name] = data
        return name

    async def _content(self, request: web.Request) -> web.Response:
        data = self.files.get(request.match_info["id"])
        return refusal(404, "No such File object") if data is None else web.Response(body=data)

    async def _create(self, request: web.Request) -> web.Response:
        asked = await request.json()
        data, number = self.files[asked["input_file_id"]], len(self.jobs)
        if asked["completion_window"] != "24h" or any(len(value) > 512 for value in asked["metadata"].values()):
            return refusal(400, "Invalid value")
        self.jobs[f"batch_{number}"] = job = {
            **asked,
            "id": f"batch_{number}",
            "object": "batch",
            "status": "validating",
            "created_at": 2_000_000_000 + number,
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
            **dict.fromkeys(("output_file_id", "error_file_id", "errors")),
            "number": number,
            "lines": [line for line in data.split(b"\n") if line],
            "size": len(data),
        }
        return web.json_response(shown(job))

    async def _list(self, request: web.Request) -> web.Response:
        page = [shown(job) for job in reversed(self.jobs.values())]
        return web.json_response({"object": "list", "data": page, "has_more": False})

    async def _retrieve(self, request: web.Request) -> web.Response:
        job = self.jobs.get(request.match_info["id"])
        if job is None:
            return refusal(404, "No batch found with this id")
        before = shown(job)
        self._move_on(job)
        return web.json_response(before)

    def _move_on(self, job: dict[str, Any]) -> None:
        status, fate = job["status"], self.job(job["number"])
        if status == "validating":
            if code := self._refused(job):
                error = {"code": code, "message": f"scripted: {code}", "line": None, "param": None}
                job.update(status="failed", errors={"object": "list", "data": [error]})
                return
            job["status"] = "in_progress"
            job["request_counts"]["total"] = len(job["lines"])
        elif status == "in_progress" and not self.held:
            job["status"] = "finalizing"
            self._carry_out(job, fate)
        elif status == "finalizing":
            job["status"] = fate if fate in ("expired", "cancelled") else "completed"

    def _refused(self, job: dict[str, Any]) -> str | None:
        """The code by which validation refuses a job, as the service has it."""
        scripted = self.job(job["number"])
        if scripted not in (None, "expired", "cancelled"):
            return scripted
        waiting = sum(j["size"] for j in self.jobs.values() if j["status"] in ("validating", "in_progress"))
        if self.queue is not None and waiting > self.queue:
            return "token_limit_exceeded"
        if len(job["lines"]) > self.most_calls:
            return "too_many_tasks"
        entries = [json.loads(line) for line in job["lines"]]
        if len({entry["custom_id"] for entry in entries}) < len(entries):
            return "duplicate_custom_id"
        right = {"custom_id", "method", "url", "body"}
        bad = any(set(e) != right or (e["method"], e["url"]) != ("POST", job["endpoint"]) for e in entries)
        return "invalid_request" if bad else None

    def _carry_out(self, job: dict[str, Any], fate: str | None) -> None:
        """Write the files of answers, their lines in another order than they were asked."""
        good: list[bytes] = []
        bad: list[bytes] = []
        for number, raw in enumerate(job["lines"]):
            entry = json.loads(raw)
            body = json.dumps(entry["body"]).encode()
            fault = self.calls(body, self.attempts[body])
            self.attempts[body] += 1
            # Half of an interrupted job was done before.
            if fate in ("expired", "cancelled") and number % 2:
                fault = fate
            if fault != "absent":
                line = self._line(entry["custom_id"], body, fault)
                (good if fault in (None, "length") else bad).append(line)
        random.Random(job["number"]).shuffle(good)
        good = self.tamper(job["number"], good)
        for name, lines in (("output_file_id", good), ("error_file_id", bad)):
            job[name] = self._keep(b"\n".join(lines) + b"\n") if lines else None
        job["request_counts"].update(completed=len(good), failed=len(bad))

    def _line(self, key: str, body: bytes, fault: str | None) -> bytes:
        """One line of answers: good, an error of `ERRORS`, or one of the job."""
        response: dict[str, Any] | None = None
        error = None
        if fault in (None, "length"):
            self.executed[key] += 1
            text = self.answer(body) if fault is None else self.answer(body)[:9]
            response = {"status_code": 200, "body": json.loads(completion(text, fault or "stop", f"chat-{key}"))}
        elif fault == "status 0":
            response = {"status_code": 0, "body": None}
        elif fault == "garbage":
            return b'{"custom_id": "' + key.encode() + b'", "respo'
        elif fault in ("expired", "cancelled"):
            error = {"code": f"batch_{fault}", "message": f"This request could not be executed: {fault}."}
        else:
            status, message, code = ERRORS[fault]
            response = {"status_code": status, "body": {"error": {"message": message, "code": code}}}
        return json.dumps({"id": "batch_req_1", "custom_id": key, "response": response, "error": error}).encode()

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.direct += 1
        return web.Response(body=completion(self.answer(body)), content_type="application/json")


def shown(job: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in job.items() if name not in ("number", "lines", "size")}
    return {**shown, "request_counts": dict(job["request_counts"])}
