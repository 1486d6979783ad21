"""OpenAI's Files and Batch endpoints on loopback, as faithful as the tests need them, with failures on script.

with BatchServer(answer) as server: lm = make_lm("openai/m", api_base=server.url, options=...)

A job moves on by one state each time it is looked at: validating, in_progress, finalizing, completed (or failed,
expired, cancelled). What the service would refuse of a file, a job or a line is refused.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.faulty_server import completion
from tests.loopback import LoopbackServer

ERRORS = {
    "400": (400, "Unsupported value", "invalid_value"),
    "401": (401, "Incorrect API key provided: sk-secret", "invalid_api_key"),
    "404": (404, "The model does not exist", "model_not_found"),
    "429": (429, "Rate limit reached", "rate_limit_exceeded"),
    "500": (500, "The server had an error", "server_error"),
    "filter": (400, "The response was filtered", "content_filter"),
    "long": (400, "This model's maximum context length is 10 tokens", "context_length_exceeded"),
}


def wrong_line(raw: bytes, seen: set[str], models: set[str]) -> str | None:
    entry = json.loads(raw)
    if set(entry) != {"custom_id", "method", "url", "body"} or entry["method"] != "POST":
        return "missing_required_parameter"
    if len(entry["custom_id"]) > 64 or "messages" not in entry["body"] or entry["url"] != "/v1/chat/completions":
        return "invalid_request"
    if entry["custom_id"] in seen:
        return "duplicate_custom_id"
    seen.add(entry["custom_id"])
    models.add(entry["body"]["model"])
    return "model_mismatch" if len(models) > 1 else None


def public_fields(job: dict[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in job.items() if name not in ("number", "lines", "size")}
    return {**fields, "request_counts": dict(job["request_counts"])}


def error_response(
    status: int, message: str, code: str | None = None, headers: dict[str, str] | None = None
) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return web.json_response({"error": error}, status=status, headers=headers)


Answer = Callable[[bytes], str]
CallScript = Callable[[bytes, int], str | None]
"""Body of a call and number of its attempt, from 0 -> what goes wrong with its line, or None. See `_line`."""
JobScript = Callable[[int], str | None]
"""Number of a job, from 0 -> `expired`, `cancelled`, an error code of validation, or None."""
RequestScript = Callable[[str, str, int], str | None]
"""Method, path and number of a request, from 0 -> what goes wrong, or None.

`500`, `429` and `garbage` are answers; `lost` is a connection that is closed after the request was carried out, `held`
and `silent` are requests that are never answered, and of these only `silent` ones are carried out.
"""


class BatchServer(LoopbackServer):
    """Serves `{url}/files`, `{url}/batches` and `{url}/chat/completions`.

    Args:
        answer: From a request's body to the text of a good reply.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer
        self.on_call: CallScript = lambda body, attempt: None
        self.on_job: JobScript = lambda number: None
        self.on_request: RequestScript = lambda method, path, number: None
        self.key: str | None = None
        """If set, requests with another key get 401."""
        self.tamper: Callable[[int, list[bytes]], list[bytes]] = lambda number, lines: lines
        """Number of a job and the lines of its good answers -> the lines that are sent."""
        self.held = False
        """Whether jobs stay in progress, however often they are looked at."""
        self.most_calls = 50_000
        self.queue: int | None = None
        """Bytes that may wait; a job beyond them fails in validation."""
        self.models: set[str] | None = None
        """Models that jobs can be made for."""
        self.files: dict[str, dict[str, Any]] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.executed: Counter[str] = Counter()
        """custom_id -> times that it was answered, which is paid for."""
        self.attempts: Counter[bytes] = Counter()
        self.direct = 0
        """Calls that came by themselves."""
        self.requests: Counter[str] = Counter()

    @property
    def made(self) -> list[tuple[str, str, int]]:
        """Role, round and number of calls of each job that was made, in order."""
        return [(j["metadata"]["role"], j["metadata"]["round"], len(j["lines"])) for j in self.jobs.values()]

    @property
    def made_calls(self) -> dict[tuple[str, str], int]:
        """Role and round -> number of calls in all jobs that were made, however many jobs these are."""
        counts: Counter[tuple[str, str]] = Counter()
        for role, turn, calls in self.made:
            counts[role, turn] += calls
        return dict(counts)

    async def listen(self) -> None:
        app = web.Application(client_max_size=300 * 2**20, middlewares=[self._guard])
        app.router.add_post("/v1/files", self._upload)
        app.router.add_get("/v1/files/{id}/content", self._content)
        app.router.add_post("/v1/batches", self._create)
        app.router.add_get("/v1/batches", self._list)
        app.router.add_get("/v1/batches/{id}", self._retrieve)
        app.router.add_post("/v1/batches/{id}/cancel", self._cancel)
        app.router.add_post("/v1/chat/completions", self._chat)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def leave(self) -> None:
        await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        endpoint = f"{request.method} {request.path.removeprefix('/v1')}"
        number = self.requests[endpoint]
        self.requests[endpoint] += 1
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.key is not None and key != self.key:
            return error_response(401, f"Incorrect API key provided: {key}", "invalid_api_key")
        fault = self.on_request(request.method, request.path.removeprefix("/v1"), number)
        if fault in ("500", "429"):
            status, message, code = ERRORS[fault]
            return error_response(status, message, code, {"Retry-After": "0.01"})
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

    # --- files ---

    async def _upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        file, purpose = form.get("file"), form.get("purpose")
        if not isinstance(file, web.FileField) or purpose != "batch" or not file.filename.endswith(".jsonl"):
            return error_response(400, "Invalid file for Batch API")
        return web.json_response(self._keep(file.file.read(), file.filename, str(purpose)))

    def _keep(self, data: bytes, name: str, purpose: str) -> dict[str, Any]:
        identity = f"file-{len(self.files)}"
        record = {"id": identity, "object": "file", "bytes": len(data), "created_at": 1, "filename": name}
        self.files[identity] = {**record, "purpose": purpose, "data": data}
        return {**record, "purpose": purpose, "status": "processed"}

    async def _content(self, request: web.Request) -> web.Response:
        file = self.files.get(request.match_info["id"])
        if file is None:
            return error_response(404, "No such File object")
        return web.Response(body=file["data"], content_type="application/octet-stream")

    # --- jobs ---

    async def _create(self, request: web.Request) -> web.Response:
        payload = await request.json()
        metadata = payload.get("metadata") or {}
        file = self.files.get(payload.get("input_file_id"))
        if file is None or file["purpose"] != "batch":
            return error_response(
                400, f"Cannot find file {payload.get('input_file_id')}, or it does not have access to it."
            )
        if (payload.get("endpoint"), payload.get("completion_window")) != ("/v1/chat/completions", "24h"):
            return error_response(400, "Invalid value")
        if len(metadata) > 16 or any(len(k) > 64 or len(v) > 512 for k, v in metadata.items()):
            return error_response(400, "Invalid 'metadata'")
        number = len(self.jobs)
        job = {
            "id": f"batch_{number}",
            "object": "batch",
            "endpoint": payload["endpoint"],
            "input_file_id": file["id"],
            "completion_window": "24h",
            "status": "validating",
            "created_at": 2_000_000_000 + number,
            "metadata": metadata,
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
            "output_file_id": None,
            "error_file_id": None,
            "errors": None,
            "number": number,
            "lines": [line for line in file["data"].split(b"\n") if line],
            "size": len(file["data"]),
        }
        self.jobs[job["id"]] = job
        return web.json_response(public_fields(job))

    async def _list(self, request: web.Request) -> web.Response:
        limit, after = int(request.query.get("limit", "20")), request.query.get("after")
        if not 1 <= limit <= 100:
            return error_response(400, "Invalid value: 'limit'")
        newest = list(reversed(self.jobs.values()))
        if after is not None:
            newest = newest[[j["id"] for j in newest].index(after) + 1 :]
        page = [public_fields(job) for job in newest[:limit]]
        ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {}
        return web.json_response({"object": "list", "data": page, "has_more": len(newest) > limit, **ends})

    async def _retrieve(self, request: web.Request) -> web.Response:
        job = self.jobs.get(request.match_info["id"])
        if job is None:
            return error_response(404, f"No batch found with id '{request.match_info['id']}'.")
        before = public_fields(job)
        self._move_on(job)
        return web.json_response(before)

    async def _cancel(self, request: web.Request) -> web.Response:
        job = self.jobs.get(request.match_info["id"])
        if job is None:
            return error_response(404, "No batch found")
        if job["status"] not in ("validating", "in_progress", "finalizing"):
            return error_response(409, f"Cannot cancel a batch with status '{job['status']}'.")
        job["status"] = "cancelling"
        return web.json_response(public_fields(job))

    def _move_on(self, job: dict[str, Any]) -> None:
        status, fate = job["status"], self.on_job(job["number"])
        if status == "validating":
            errors = self._invalid(job)
            if errors:
                job.update(status="failed", errors={"object": "list", "data": errors})
                return
            job["status"] = "in_progress"
            job["request_counts"]["total"] = len(job["lines"])
        elif status == "in_progress" and not self.held:
            job["status"] = "finalizing"
            self._carry_out(job, fate)
        elif status == "finalizing":
            job["status"] = fate if fate in ("expired", "cancelled") else "completed"
        elif status == "cancelling":
            self._carry_out(job, "cancelled")
            job["status"] = "cancelled"

    def _invalid(self, job: dict[str, Any]) -> list[dict[str, Any]]:
        """What validation finds; codes as the service has them."""

        def error(code: str, message: str | None = None, line: int | None = None) -> dict[str, Any]:
            return {"code": code, "message": message or code, "line": line, "param": None}

        scripted = self.on_job(job["number"])
        if scripted not in (None, "expired", "cancelled"):
            return [error(scripted, f"scripted: {scripted}")]
        waiting = sum(j["size"] for j in self.jobs.values() if j["status"] in ("validating", "in_progress"))
        if self.queue is not None and waiting > self.queue:
            message = f"Enqueued token limit reached for m. Limit: {self.queue} enqueued tokens."
            return [error("token_limit_exceeded", message)]
        if not 0 < len(job["lines"]) <= self.most_calls:
            return [error("too_many_tasks")]
        errors, seen, models = [], set[str](), set[str]()
        for number, raw in enumerate(job["lines"], 1):
            code = wrong_line(raw, seen, models)
            if code is None and self.models is not None and not models <= self.models:
                code = "model_not_found"
            if code is not None:
                errors.append(error(code, f"line {number}: {code}", number))
        return errors

    def _carry_out(self, job: dict[str, Any], fate: str | None) -> None:
        """Write the files of answers, their lines in another order than they were asked."""
        good: list[bytes] = []
        bad: list[bytes] = []
        for number, raw in enumerate(job["lines"]):
            entry = json.loads(raw)
            body = json.dumps(entry["body"]).encode()
            attempt = self.attempts[body]
            self.attempts[body] += 1
            fault = self.on_call(body, attempt)
            # Half of an interrupted job was done before.
            if fate in ("expired", "cancelled") and number % 2:
                fault = fate
            if fault == "absent":
                continue
            line = self._line(entry["custom_id"], body, fault)
            (good if fault in (None, "length") else bad).append(line)
        random.Random(job["number"]).shuffle(good)
        good = self.tamper(job["number"], good)
        for name, lines in (("output_file_id", good), ("error_file_id", bad)):
            if lines:
                job[name] = self._keep(b"\n".join(lines) + b"\n", f"{job['id']}_{name}.jsonl", "batch_output")["id"]
        job["request_counts"].update(completed=len(good), failed=len(bad))

    def _line(self, key: str, body: bytes, fault: str | None) -> bytes:
        """One line of answers: good, an error of `ERRORS`, or one of the job."""
        response: dict[str, Any] | None = None
        error = None
        if fault in (None, "length"):
            self.executed[key] += 1
            text = self.answer(body) if fault is None else self.answer(body)[:9]
            completed = json.loads(completion(text, fault or "stop", f"chat-{key}"))
            response = {"status_code": 200, "request_id": "r", "body": completed}
        elif fault == "status 0":
            response = {"status_code": 0, "request_id": "", "body": None}
        elif fault == "garbage":
            return b'{"custom_id": "' + key.encode() + b'", "respo'
        elif fault in ("expired", "cancelled"):
            error = {"code": f"batch_{fault}", "message": f"This request could not be executed: {fault}."}
        else:
            status, message, code = ERRORS[fault]
            response = {"status_code": status, "request_id": "r", "body": {"error": {"message": message, "code": code}}}
        return json.dumps({"id": "batch_req_1", "custom_id": key, "response": response, "error": error}).encode()

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.direct += 1
        return web.Response(body=completion(self.answer(body)), content_type="application/json")
