"""HTTP: a FastAPI app that answers requests for scores; `debate serve EXPORT` runs it. Needs the extra `serve`."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from dataclasses import dataclass
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import dspy
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from debate_judge.data.errors import InputError
from debate_judge.programs.judge import ScoreScale
from debate_judge.runs.loaded import LoadedJudge
from debate_judge.runs.runner import Score
from debate_judge.runs.scoring import PROVIDER_FAILED

logger = logging.getLogger(__name__)

PUBLIC_PATHS = ("/health", "/docs", "/openapi.json")
"""Paths that need no key and have no limits."""


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Limits of a service."""

    body: int = 1_000_000
    """Bytes of a request's body."""
    requests: int = 2000
    """Requests answered at once."""
    seconds: float = 600.0
    """Time limit of a request."""


class TextToScore(BaseModel):
    """A text to score."""

    model_config = ConfigDict(extra="forbid")

    source: str = Field(description="what the text was written from, e.g. an article; empty if texts have no source")
    text: str = Field(description="the text to score")
    context: str = Field("", description="a text that belongs to the source, if the task has one")
    aspects: list[str] | None = Field(None, description="which aspects; all of the judge's by default")


class AspectScore(BaseModel):
    """The score of a text in an aspect."""

    score: float | None = Field(description="on the aspect's scale; null if unscored")
    reason: str = Field(description="the judge's reason; without a score, why there is none")
    unscored: str | None = Field(description="kind of failure; null if there is a score")
    rounds: int | None
    stop_reason: str | None
    calls: float = Field(description="LM calls for this score; of a shared call its share")

    @classmethod
    def of(cls, score: Score) -> AspectScore:
        """From a score; errors of providers are logged and not sent, because they may name addresses."""
        fields = {name: getattr(score, name) for name in cls.model_fields}
        if score.unscored in PROVIDER_FAILED:
            logger.error("a text has no score: %s", score.reason)
            fields["reason"] = f"{score.unscored}: see the log of the service"
        return cls(**fields)


class TextScores(BaseModel):
    """The scores of a text, by aspect."""

    scores: dict[str, AspectScore]


class ServiceMetrics:
    """The metrics of `/metrics`, in a registry of their own."""

    def __init__(self, judge: LoadedJudge) -> None:
        self.registry = registry = CollectorRegistry()
        buckets = (0.1, 0.3, 1, 3, 10, 30, 100, 300)
        self.requests = Counter("debate_requests", "Requests to /score by status", ["status"], registry=registry)
        self.in_flight = Gauge(
            "debate_requests_in_flight", "Requests to /score without an answer yet", registry=registry
        )
        self.seconds = Histogram("debate_request_seconds", "Time to the answer", buckets=buckets, registry=registry)
        description = "Scores by aspect and kind of failure"
        self.scores = Counter("debate_scores", description, ["aspect", "unscored"], registry=registry)
        calls = Gauge("debate_lm_calls", "LM calls made", registry=registry)
        calls.set_function(lambda: judge.lm.meter.total.calls)
        dollars = Gauge("debate_lm_usd", "US dollars spent; NaN for an LM of unknown price", registry=registry)
        price = judge.lm.price
        dollars.set_function(lambda: float("nan") if price is None else judge.lm.meter.total.cost(price))


class RequestGuard:
    """Middleware that checks the key, the size of the body and the number of requests, and ends slow requests.

    Pure ASGI, because a body that is too large must be refused while it is read and not when it is in memory.
    """

    def __init__(self, app: ASGIApp, *, key: str | None, limits: ServiceLimits, metrics: ServiceMetrics) -> None:
        self._app = app
        self._key = None if key is None else _digest(key.encode())
        self._limits = limits
        self._metrics = metrics
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PUBLIC_PATHS:
            await self._app(scope, receive, send)
        elif (refusal := self._refusal(dict(scope["headers"]))) is not None:
            await refusal(scope, receive, send)
        else:
            self._in_flight += 1
            try:
                await self._run_app(scope, receive, send)
            finally:
                self._in_flight -= 1

    def _refusal(self, headers: dict[bytes, bytes]) -> JSONResponse | None:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        given = token.strip() if scheme.lower() == b"bearer" else b""
        if self._key is not None and not hmac.compare_digest(_digest(given), self._key):
            return _error_response(401, "a bearer key is needed", {"WWW-Authenticate": "Bearer"})
        if self._key is None and _host(headers) not in ("localhost", "127.0.0.1", "::1"):
            # Against DNS rebinding: a page in the user's browser could reach the service by a name of its own.
            return _error_response(421, "without a key, requests are answered for localhost only")
        busy = self._in_flight >= self._limits.requests
        return _error_response(503, "too many requests at once", {"Retry-After": "1"}) if busy else None

    async def _run_app(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, size, status = perf_counter(), 0, 0

        async def limited_receive() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._limits.body:
                raise HTTPException(413, f"the body is longer than {self._limits.body} bytes")
            return message

        async def recording_send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        is_score = scope["path"] == "/score"
        self._metrics.in_flight.inc(is_score)
        try:
            async with asyncio.timeout(self._limits.seconds):
                await self._app(scope, limited_receive, recording_send)
        except TimeoutError:
            if not status:
                await _error_response(504, f"no answer within {self._limits.seconds:g} s")(
                    scope, receive, recording_send
                )
        finally:
            self._metrics.in_flight.dec(is_score)
            if is_score:
                self._metrics.requests.labels(str(status)).inc()
                self._metrics.seconds.observe(perf_counter() - started)


def _host(headers: dict[bytes, bytes]) -> str | None:
    """The host that a request names; None for what is no host."""
    try:
        return urlsplit(f"//{headers.get(b'host', b'').decode('latin-1')}").hostname
    except ValueError:
        return None


def _digest(text: bytes) -> bytes:
    # Digests have equal lengths, so that the comparison does not leak the length of the key.
    return hashlib.sha256(text).digest()


def _error_response(status: int, reason: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"detail": reason}, status, headers)


def make_app(
    judge: LoadedJudge,
    *,
    key: str | None = None,
    limits: ServiceLimits | None = None,
    scale: ScoreScale = "judge",
) -> FastAPI:
    """An ASGI app over a judge: POST /score, GET /health, GET /metrics, and its description at /docs.

    Args:
        judge: The judge; the app does not close it.
        key: The bearer key that requests to /score and /metrics must have; None for none.
        limits: Limits of the service.
        scale: Of the scores, as for `LoadedJudge.score`.
    """
    # The guard checks the key; this is only for /docs, where readers can then enter it.
    dependencies = [] if key is None else [Depends(HTTPBearer(auto_error=False))]
    app = FastAPI(title=f"debate judge: {judge.manifest.name}", redoc_url=None, dependencies=dependencies)
    metrics = ServiceMetrics(judge)
    app.add_middleware(RequestGuard, key=key, limits=limits or ServiceLimits(), metrics=metrics)

    @app.exception_handler(InputError)
    async def input_error(request: Request, error: Exception) -> JSONResponse:
        return _error_response(422, str(error))

    @app.exception_handler(dspy.LMError)
    async def lm_error(request: Request, error: Exception) -> JSONResponse:
        logger.error("the LM cannot be used: %s", error)
        return _error_response(502, "the judge's LM cannot be used at present")

    @app.post("/score")
    async def score(texts: TextToScore | list[TextToScore]) -> TextScores | list[TextScores]:
        """Score a text or a list of texts; those of one source share calls if the judge has `together`."""
        rows = [text.model_dump() for text in ([texts] if isinstance(texts, TextToScore) else texts)]
        scores_by_text = await judge.ascore_many(rows, scale=scale)
        responses = []
        for scores in scores_by_text:
            for name, aspect_score in scores.items():
                metrics.scores.labels(name, aspect_score.unscored or "").inc()
            responses.append(TextScores(scores={name: AspectScore.of(each) for name, each in scores.items()}))
        return responses[0] if isinstance(texts, TextToScore) else responses

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Whether the service runs, and with which judge; the LM is not called."""
        return {"status": "ok", "judge": judge.fingerprint, "aspects": list(judge.aspects)}

    @app.get("/metrics")
    async def prometheus() -> Response:
        """Requests, scores, LM calls and dollars, for Prometheus."""
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return app
