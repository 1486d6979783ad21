"""OpenAI's chat protocol over HTTP: one attempt per call, errors in the classes of `dspy.lm15`."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import orjson
from dspy import lm15

from debate_judge.programs.lm.errors import INCOMPLETE, MISMATCHED, NOT_LISTENING
from debate_judge.programs.lm.http.address import is_loopback
from debate_judge.programs.lm.http.connections import Connections, MismatchedAnswerError, RefusedAnswerError
from debate_judge.programs.lm.limits.failures import retry_after
from debate_judge.programs.lm.limits.limiter import RateLimits, limits_from_headers
from debate_judge.programs.lm.redaction import redact_text
from debate_judge.programs.lm.reply import Messages, Reply, validated_reply

_SETTINGS = ("temperature", "max_tokens", "top_p", "seed")
_FINISH = {"stop", "length", "content_filter"}
# What providers write into errors, in codes or sentences: the protocol has no field for it that all of them fill.
_WITHHELD = ("content_filter", "content_policy_violation", "responsibleaipolicyviolation", "moderation", "flagged")
_TOO_LONG = ("context_length", "context length", "maximum context", "context size", "context window", "too many tokens")
_UNPAID = ("insufficient_quota", "billing_hard_limit_reached", "insufficient credits", "credit balance")

_ERRORS: dict[int, type[lm15.ProviderError]] = {
    401: lm15.AuthError,
    402: lm15.BillingError,
    403: lm15.AuthError,
    404: lm15.UnsupportedModelError,
    408: lm15.TimeoutError,
    409: lm15.ServerError,
    425: lm15.ServerError,
    429: lm15.RateLimitError,
    504: lm15.TimeoutError,
}


class OpenAICompatible:
    """One attempt against `{base_url}/chat/completions`.

    Args:
        base_url: Address of the server, up to and including its version, e.g. `http://localhost:8000/v1`.
        key: Sent as a bearer token; None sends none.
        needs: The variable without which no call can succeed, if `key` is None.
    """

    def __init__(self, base_url: str, key: str | None, needs: str | None = None) -> None:
        path, question, query = base_url.partition("?")
        headers = {"Content-Type": "application/json", "User-Agent": "debate-judge"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._connections = Connections(path.rstrip("/") + "/chat/completions" + question + query, headers, id_of)
        self._key, self._needs = key, needs
        self.on_rate_limits: Callable[[RateLimits], None] = lambda limits: None
        """Called with the limits that an answer's headers name."""

    async def chat(self, model: str, messages: Messages, settings: Mapping[str, Any]) -> Reply:
        """Send `messages` once and return the reply. One that a content filter withheld is a reply too, and empty.

        Raises:
            dspy.lm15.LM15Error: What went wrong, in the classes that DSPy's retry rule knows.
        """
        if self._key is None and self._needs is not None:
            raise lm15.NotConfiguredError(f"no key: set {self._needs}")
        try:
            answer = await self._connections.post(orjson.dumps(body_of(model, messages, settings)))
        except (aiohttp.ClientError, ValueError, OSError) as error:
            raise connection_error(error) from None
        if (limits := limits_from_headers(answer.headers, model)) is not None:
            self.on_rate_limits(limits)
        if 200 <= answer.status < 300:
            return read_reply(answer.body)
        text = redact_text(answer.body[:2000].decode(errors="replace"), self._key)
        return refused(answer.status, text, retry_after(answer.headers))

    async def aclose(self) -> None:
        await self._connections.aclose()


def connection_error(error: Exception) -> lm15.LM15Error:
    """What a failure to get an answer means."""
    if isinstance(error, MismatchedAnswerError):
        return lm15.TransportError(str(error), provider_code=MISMATCHED)
    if isinstance(error, (aiohttp.ClientConnectorCertificateError, ssl.SSLCertVerificationError)):
        return lm15.ConfigurationError(f"the server's certificate is not trusted: {error}")
    if isinstance(error, aiohttp.InvalidURL):
        return lm15.ConfigurationError("the server's address cannot be used")
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)):
        here = is_loopback(getattr(error, "host", "")) and isinstance(getattr(error, "os_error", None), ConnectionError)
        code = NOT_LISTENING if here else None
        return lm15.TransportError(f"cannot reach the server: {redact_text(str(error))}", provider_code=code)
    text = getattr(error, "message", "") or str(error) or type(error).__name__
    begun = isinstance(error, (aiohttp.ClientResponseError, aiohttp.ClientPayloadError, RefusedAnswerError))
    code = INCOMPLETE if begun else None
    return lm15.TransportError(f"incomplete response: {redact_text(str(text))[:500]}", provider_code=code)


def id_of(body: bytes) -> str | None:
    """The id of a completion; None for any other answer, and where the server gives none."""
    try:
        completion = orjson.loads(body)
        identity = completion["id"] if completion["choices"] else None
    except (ValueError, LookupError, TypeError):
        return None
    return identity if isinstance(identity, str) and identity else None


def body_of(model: str, messages: Messages, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON body of a chat request."""
    body = {k: v for k, v in settings.items() if v is not None and k in _SETTINGS}
    body |= {"model": model.partition("/")[2], "messages": messages}
    if settings.get("logprobs"):
        body |= {"logprobs": True, "top_logprobs": settings["logprobs"]}
    return body


def read_reply(raw: bytes) -> Reply:
    """Read a successful answer. Anything but a completion is a server error, so that the call is made again."""
    try:
        answer = orjson.loads(raw)
        if "choices" not in answer and "error" in answer:
            code = answer["error"].get("code")
            return refused(code if isinstance(code, int) and code >= 400 else 500, _excerpt(raw, 500), None)
        choice = answer["choices"][0]
        message = choice["message"]
        usage = answer.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        finish = choice.get("finish_reason")
        if message.get("refusal") and not message.get("content"):
            finish = "content_filter"
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else 0
        return validated_reply(
            _text(message.get("content")) or message.get("refusal") or "",
            (usage.get("prompt_tokens"), usage.get("completion_tokens"), cached),
            finish if finish in _FINISH else "stop",
            _logprobs(choice["logprobs"]) if choice.get("logprobs") else None,
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise lm15.ServerError(f"the server's answer is not a chat completion: {_excerpt(raw, 200)!r}") from error


def _excerpt(raw: bytes, most: int) -> str:
    """The beginning of what a server sent. Cleaned before it is cut, for half a key would not be known as one."""
    return redact_text(raw[:4000].decode(errors="replace"))[:most]


def _text(content: object) -> str:
    """The text of a message, which some servers send in parts (reasoning beside the answer)."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    raise TypeError("content is neither text nor a list of parts")


def _logprobs(answer: Mapping[str, Any]) -> tuple[tuple[tuple[str, float], ...], ...] | None:
    tokens = tuple(
        ((t["token"], t["logprob"]), *((o["token"], o["logprob"]) for o in t.get("top_logprobs") or ()))
        for t in answer.get("content") or ()
    )
    return tokens or None


def refused(status: int, text: str, wait: float | None) -> Reply:
    """What an error answer means: an error to raise, or, from a content filter, a reply that was withheld."""
    lowered = text.lower()
    if status in (400, 403) and any(word in lowered for word in _WITHHELD):
        return Reply("", finish="content_filter")
    kind = _ERRORS.get(status) or (lm15.ServerError if status >= 500 else lm15.InvalidRequestError)
    if status in (400, 413) and any(word in lowered for word in _TOO_LONG):
        kind = lm15.ContextLengthError
    elif status == 429 and any(word in lowered for word in _UNPAID):
        # Providers use 429 for an empty account too, where waiting does not help,
        kind = lm15.BillingError
    elif status == 429 and "request too large" in lowered:
        # and for a single call that exceeds what the account may use in a minute.
        kind = lm15.InvalidRequestError
    raise kind(f"HTTP {status}: {text[:500]}", status=status, retry_after=wait)
