"""OpenAI's and Anthropic's protocols over HTTP: one attempt per call, errors in the classes of `dspy.lm15`."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import orjson
from dspy import lm15

from debate_judge.programs.lm.errors import INCOMPLETE, MISMATCHED, NOT_LISTENING, UNUSABLE
from debate_judge.programs.lm.http.address import is_loopback
from debate_judge.programs.lm.http.connections import ConnectionPool, MismatchedResponseError, transports
from debate_judge.programs.lm.limits import retry_after
from debate_judge.programs.lm.redaction import redact_text
from debate_judge.programs.lm.reply import Messages, Reply, validated_reply

Encode = Callable[[str, Messages, Mapping[str, Any]], bytes]
_SETTINGS = ("temperature", "max_tokens", "top_p", "seed")
_FINISH_REASONS: dict[object, str] = {
    **{word: "stop" for word in (None, "", "stop", "eos", "eos_token", "end_turn", "stop_sequence", "stop_str")},
    **{word: "length" for word in ("length", "max_tokens", "model_length", "model_context_window_exceeded")},
    **{word: "content_filter" for word in ("content_filter", "safety", "recitation", "refusal", "prohibited_content")},
}
"""What servers say of the end of a reply -> what it means; another reason, such as `error`, is that of no reply."""
# Words in the codes or messages of errors: the protocol has no field for this that all providers fill.
_FILTER = ("content_filter", "content_policy_violation", "responsibleaipolicyviolation", "moderation", "flagged")
_CONTEXT = (
    "context_length",
    "context length",
    "maximum context",
    "context size",
    "context window",
    "too many tokens",
    "prompt is too long",
)
_BILLING = (
    *("billing_hard_limit", "credit balance", "insufficient credit", "insufficient_quota", "insufficient quota"),
    *("usage limit", "budget_exceeded", "budget exceeded", "budget has been exceeded", "exceeded budget"),
    "exceededbudget",
)

_ERROR_CLASSES: dict[int, type[lm15.ProviderError]] = {
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


class HttpTransport:
    """Makes one attempt at a call over HTTP.

    Args:
        url: Address that calls are posted to.
        headers: Sent with every call.
        encode: Model, messages and settings of a call -> its body.
        key: For messages, which do not show it; None if there is none.
        key_variable: The environment variable to name in the error if `key` is None; None if no key is required.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], encode: Encode, key: str | None, key_variable: str | None
    ) -> None:
        self._pool = ConnectionPool(url, {**headers, "User-Agent": "debate-judge"}, completion_id)
        self._encode, self._host = encode, urlsplit(url).hostname or ""
        self._key, self._key_variable = key, key_variable

    async def chat(self, model: str, messages: Messages, settings: Mapping[str, Any]) -> Reply:
        """Send `messages` once and return the reply; one that a content filter withheld is empty.

        Raises:
            dspy.lm15.LM15Error: The call failed; the class says whether to retry.
        """
        if self._key is None and self._key_variable is not None:
            raise lm15.NotConfiguredError(f"no key: set {self._key_variable}")
        try:
            response = await self._pool.post(self._encode(model, messages, settings))
        except (transports.TransportError, ValueError, OSError) as error:
            raise interpret_exception(error, self._host) from None
        if 200 <= response.status < 300:
            reply = read_reply(response.body)
            return replace(reply, from_cache=is_cache_hit(response.headers))
        text = redact_text(response.body[:2000].decode(errors="replace"), self._key)
        return interpret_error(response.status, text, retry_after(response.headers))

    async def aclose(self) -> None:
        self._pool.close()


def openai_transport(base_url: str, key: str | None, key_variable: str | None = None) -> HttpTransport:
    """The transport to a server with OpenAI's protocol, at an address such as `http://localhost:8000/v1`."""
    path, question, query = base_url.partition("?")
    headers = {"Content-Type": "application/json"} | ({} if key is None else {"Authorization": f"Bearer {key}"})
    return HttpTransport(
        path.rstrip("/") + "/chat/completions" + question + query,
        headers,
        lambda model, messages, settings: orjson.dumps(request_body(model, messages, settings)),
        key,
        key_variable,
    )


def anthropic_transport(base_url: str, key: str | None, key_variable: str | None = None) -> HttpTransport:
    """The transport to a server with Anthropic's protocol, at an address with or without its version, `/v1`."""
    # DSPy's dialect knows paths, headers, and how long the replies of a model may be.
    dialect = lm15.AnthropicLM(api_key=key or "none", base_url=base_url.rstrip("/").removesuffix("/v1") + "/v1")

    def built(model: str, messages: Messages, settings: Mapping[str, Any]) -> Any:
        if settings.get("logprobs"):
            raise lm15.UnsupportedFeatureError("Anthropic's models give no log-probabilities")
        system = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
        roles = {"user": lm15.Message.user, "assistant": lm15.Message.assistant}
        request = lm15.Request(
            model=model.partition("/")[2],
            messages=tuple(roles[m["role"]](m["content"]) for m in messages if m["role"] != "system"),
            system=system or None,
            config=lm15.Config(**{name: settings.get(name) for name in _SETTINGS}),
        )
        return dialect.build_request(request, stream=False)

    example = built("anthropic/m", [{"role": "user", "content": "?"}], {})
    return HttpTransport(example.url, dict(example.headers), lambda *call: bytes(built(*call).body), key, key_variable)


def interpret_exception(error: Exception, host: str) -> lm15.LM15Error:
    """The error of `dspy.lm15` for an exception of the connection to `host`."""
    text = redact_text(str(error))[:500]
    if isinstance(error, MismatchedResponseError):
        return lm15.TransportError(text, provider_code=MISMATCHED)
    if isinstance(error.__cause__, ssl.SSLCertVerificationError):
        return lm15.ConfigurationError(f"the server's certificate is not trusted: {text}")
    if isinstance(error, ValueError):
        return lm15.ConfigurationError(f"the server's address, or that of the proxy, cannot be used: {text}")
    if answer := re.search(r"proxy refused CONNECT to \S+ (\d{3})", text):
        kind = lm15.ConfigurationError if int(answer[1]) < 500 else lm15.TransportError
        return kind(f"cannot reach the server: {text}")
    if isinstance(error, transports.ConnectError):
        refused = isinstance(error.__cause__, ConnectionError) and is_loopback(host)
        return lm15.TransportError(f"cannot reach the server: {text}", provider_code=NOT_LISTENING if refused else None)
    code = INCOMPLETE if isinstance(error, transports.ProtocolError) else None
    return lm15.TransportError(f"incomplete response: {text}", provider_code=code)


def is_cache_hit(headers: Mapping[str, str]) -> bool:
    """Whether a gateway says that it has answered from its cache."""
    return any(
        "cache" in name.lower() and ("hit" in value.lower().split() or name.lower() == "x-litellm-cache-key")
        for name, value in headers.items()
    )


def completion_id(body: bytes) -> str | None:
    """The id of a completion; None for any other response, or if the server gives none."""
    try:
        completion = orjson.loads(body)
        value = completion["id"] if completion.get("choices") or completion.get("content") else None
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return value if isinstance(value, str) and value else None


def request_body(model: str, messages: Messages, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON body of a chat request."""
    body = {k: v for k, v in settings.items() if v is not None and k in _SETTINGS}
    body |= {"model": model.partition("/")[2], "messages": messages}
    if settings.get("logprobs"):
        body |= {"logprobs": True, "top_logprobs": settings["logprobs"]}
    return body


def read_reply(raw: bytes) -> Reply:
    """Parse a successful response. Anything but a completion is a server error, which is retried."""
    try:
        response = _parsed(raw)
        if response.get("type") == "message":
            response = completion_of(response)
        choice = (response.get("choices") or [{}])[0]
        if error := response.get("error") or choice.get("error"):
            # Some gateways send one with status 200, even beside a choice or in it.
            return interpret_error(_status(error), _excerpt(raw, 500), None, _unusable(raw))
        message = choice["message"]
        usage = response.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        finish = choice.get("finish_reason")
        finish = finish.lower() if isinstance(finish, str) else finish
        if message.get("refusal") and not message.get("content"):
            finish = "content_filter"
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else 0
        reply = validated_reply(
            _text(message.get("content")) or message.get("refusal") or "",
            (usage.get("prompt_tokens"), _output_tokens(usage), cached),
            _FINISH_REASONS[finish],
            _logprobs(choice.get("logprobs")),
        )
        if reply.finish == "stop" and not reply.text.strip() and not reply.output_tokens:
            raise ValueError("no text, and no tokens of one")
        answer_id = response.get("id")
        return replace(reply, id=answer_id if isinstance(answer_id, str) else None)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        text = f"the server's answer is not a chat completion: {_excerpt(raw, 500)!r}"
        if b'"choices"' not in raw and b'"content"' not in raw:
            # Perhaps an error in a form of its own. With an answer in it, the words may be those of a text.
            return interpret_error(500, text, None, _unusable(raw))
        raise lm15.ServerError(text, provider_code=_unusable(raw)) from error


def completion_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """A response in Anthropic's protocol as one in OpenAI's, which counts all input, not only what no cache served."""
    usage = message.get("usage") or {}
    cached, written = usage.get("cache_read_input_tokens") or 0, usage.get("cache_creation_input_tokens") or 0
    counts = {
        "prompt_tokens": (usage.get("input_tokens") or 0) + cached + written,
        "completion_tokens": usage.get("output_tokens"),
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    parts = [part for part in message["content"] if part["type"] == "text"]
    choice = {"message": {"content": parts}, "finish_reason": message.get("stop_reason")}
    return {"id": message.get("id"), "choices": [choice], "usage": counts}


def _parsed(raw: bytes) -> Any:
    """The JSON value in a body."""
    try:
        return orjson.loads(raw)
    except ValueError:
        # Python's servers write NaN and -Infinity, which JSON does not have, for log-probabilities.
        value = json.loads(raw, parse_constant=lambda _: None)
        # Halves of surrogate pairs are no JSON either, and no text.
        orjson.dumps(value)
        return value


def _unusable(raw: bytes) -> str | None:
    """`UNUSABLE` if a body that is no completion seems to hold a text, or counts tokens: then it is to be paid."""
    return UNUSABLE if any(word in raw for word in (b"_tokens", b'"content"', b'"delta"')) else None


def _status(error: object) -> int:
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and code >= 400 else 500


def _excerpt(raw: bytes, limit: int) -> str:
    """The beginning of a response. Redacted before it is cut, because half a key would not be recognised."""
    return redact_text(raw[:4000].decode(errors="replace"))[:limit]


def _text(content: object) -> str:
    """The text of a message, which some servers send in parts (reasoning and text)."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    raise TypeError("content is neither text nor a list of parts")


def _output_tokens(usage: Mapping[str, Any]) -> object:
    """The tokens that are paid as output: some providers count those of the reasoning in the total alone."""
    prompt, completion, total = (usage.get(f"{name}_tokens") for name in ("prompt", "completion", "total"))
    if isinstance(prompt, int) and isinstance(completion, int) and isinstance(total, int):
        return max(completion, total - prompt)
    return completion


def _logprobs(logprobs: Any) -> object:
    """The alternatives of each token as in `Reply`, not yet validated; None where the server gives none."""
    try:
        return [
            [(t["token"], t["logprob"]), *((o["token"], o["logprob"]) for o in t.get("top_logprobs") or ())]
            for t in logprobs["content"]
        ]
    except (LookupError, TypeError, AttributeError):
        return None


def interpret_error(status: int, text: str, wait: float | None, code: str | None = None) -> Reply:
    """Raise the error of `dspy.lm15` for an error status; return an empty reply if a content filter withheld it.

    `code` is the error's `provider_code`.
    """
    lowered = text.lower()
    if status in (400, 403) and any(word in lowered for word in _FILTER):
        return Reply("", finish="content_filter")
    error_class = _ERROR_CLASSES.get(status) or (lm15.ServerError if status >= 500 else lm15.InvalidRequestError)
    if status in (400, 413) and any(word in lowered for word in _CONTEXT):
        error_class = lm15.ContextLengthError
    elif any(word in lowered for word in _BILLING) or (status != 429 and "billing" in lowered):
        # Providers and gateways report an empty account by 400, 402, 403, 422, 429 or 500. A 429 may advise a larger
        # plan, "see billing", where only the rate is exceeded.
        error_class = lm15.BillingError
    elif status == 400 and "no_db_connection" in lowered:
        # LiteLLM's proxy without a database, which it would look the key up in.
        error_class = lm15.AuthError
    elif status == 429 and "request too large" in lowered:
        # A single call that exceeds what the account may use in a minute.
        error_class = lm15.InvalidRequestError
    raise error_class(f"HTTP {status}: {text[:500]}", status=status, retry_after=wait, provider_code=code)
