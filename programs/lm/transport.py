"""One attempt at a call: OpenAI's and Anthropic's protocols by DSPy's HTTP transport, all others by LiteLLM.

HTTP/1.1 does not number responses: the next bytes on a connection count as the response to the last request. A server
(or a gateway before it) that sends a response twice, or extra bytes after it, would shift all later responses by one.
Therefore a connection is reused only after a complete response with an id that was not seen before. What has another
one, or is no HTTP, fails as `MISMATCHED`, because the server has the request and may charge for it; from then on each
connection is used once. So it is where the server's ids are not unique.

No client can detect this: the server responds twice to one request, under two new ids, and the second response arrives
after the next request was sent on that connection.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import io
import json
import logging
import math
import os
import re
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import orjson
from dspy import lm15
from dspy._vendor.lm15 import transports

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.programs.lm.limits import INCOMPLETE, MISMATCHED, NOT_LISTENING, UNUSABLE, retry_after
from debate_judge.programs.lm.replies import Messages, Reply, Transport, storable
from debate_judge.programs.lm.settings import is_loopback, redact_text

if TYPE_CHECKING:
    import aiohttp

_LOG = logging.getLogger(__name__)

# --- over HTTP ---

BODY_LIMIT = 8 * 1024 * 1024
"""Bytes. A response of 2,000 tokens with 20 alternatives each has about 5 million."""
_SETTINGS = ("temperature", "max_tokens", "top_p", "seed")


class HttpTransport(Transport):
    """Makes one attempt at a call over HTTP. Belongs to one event loop.

    Args:
        url: User and password in it are sent as basic authentication, unless `headers` authorize.
        headers: Sent with every call.
        encode: Model, messages and settings of a call -> its body.
        key: For messages, which do not show it; None if there is none.
        key_variable: The environment variable to name in the error if `key` is None; None if no key is required.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        encode: Callable[[str, Messages, Mapping[str, Any]], bytes],
        key: str | None,
        key_variable: str | None,
    ) -> None:
        parts = urlsplit(url)
        login, at, server = parts.netloc.rpartition("@")
        basic = {"Authorization": "Basic " + b64encode(unquote(login).encode()).decode()} if at else {}
        self._url = parts._replace(netloc=server).geturl()
        self._headers = [*{**basic, **headers, "User-Agent": "debate-judge"}.items()]
        self._encode, self._key, self._key_variable = encode, key, key_variable
        self._is_local = is_loopback(parts.hostname or "")
        # How long a call may wait, and how many may be in flight, is the engine's to say.
        self._transport = transports.StdlibAsyncTransport(
            read_timeout=86_400.0, max_connections=10**6, trust_env=not self._is_local
        )
        # The latest ids, the oldest first, and whether each response so far had an id of its own.
        self._ids, self._unique = dict[str, None](), True

    async def chat(self, model: str, messages: Messages, settings: Mapping[str, Any]) -> Reply:
        if self._key is None and self._key_variable is not None:
            raise lm15.NotConfiguredError(f"no key: set {self._key_variable}")
        status, headers, raw = await self.post(self._encode(model, messages, settings))
        if not 200 <= status < 300:
            text = redact_text(raw[:2000].decode(errors="replace"), self._key)
            return interpret_error(status, text, retry_after(headers))
        # Gateways say so in headers of their own.
        from_cache = any(
            "cache" in name and ("hit" in value.lower().split() or name == "x-litellm-cache-key")
            for name, value in headers.items()
        )
        return replace(read_reply(raw), from_cache=from_cache)

    async def post(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send `body` once and return status, headers with lower-case names, and body of the response, whatever its
        status; redirects are not followed.

        Raises:
            dspy.lm15.LM15Error: No response to this request came, or it is no HTTP or too long.
        """
        may_be_reused = self._unique
        try:
            response, raw = await self._exchange(body, may_be_reused)
        except (transports.TransportError, ValueError, OSError) as error:
            raise self._interpret_exception(error) from None
        answer_id = _completion_id(raw)
        seen = answer_id in self._ids
        self._unique = self._unique and not seen
        if answer_id is None or not self._unique:
            self._close_idle()
        if answer_id is not None:
            self._ids[answer_id] = None
            if len(self._ids) > 10_000:
                del self._ids[next(iter(self._ids))]
        if response.status < 200:
            text = f"an interim answer ({response.status}), which is not skipped"
            raise lm15.TransportError(text, provider_code=INCOMPLETE)
        if seen and may_be_reused:
            text = redact_text(f"the answer {answer_id!r:.100} was sent twice")
            raise lm15.TransportError(text, provider_code=MISMATCHED)
        return response.status, {name.lower(): value for name, value in response.headers}, raw

    async def _exchange(self, body: bytes, may_be_reused: bool) -> tuple[transports.AsyncTransportResponse, bytes]:
        raw = bytearray()
        try:
            response = await self._transport.stream(transports.TransportRequest("POST", self._url, self._headers, body))
        except transports.ProtocolError as error:
            self._unique = False
            self._close_idle()
            if may_be_reused:
                text = redact_text(f"not an answer to this request: {error}")
                raise lm15.TransportError(text, provider_code=MISMATCHED) from None
            raise
        async with response:
            async for chunk in response:
                raw += chunk
                if len(raw) > BODY_LIMIT:
                    raise transports.ProtocolError("the answer is too long")
        return response, bytes(raw)

    def _interpret_exception(self, error: Exception) -> lm15.LM15Error:
        text = redact_text(str(error))[:500]
        if isinstance(error.__cause__, ssl.SSLCertVerificationError):
            return lm15.ConfigurationError(f"the server's certificate is not trusted: {text}")
        if isinstance(error, ValueError):
            return lm15.ConfigurationError(f"the server's address, or that of the proxy, cannot be used: {text}")
        if answer := re.search(r"proxy refused CONNECT to \S+ (\d{3})", text):
            kind = lm15.ConfigurationError if int(answer[1]) < 500 else lm15.TransportError
            return kind(f"cannot reach the server: {text}")
        if isinstance(error, transports.ConnectError):
            code = NOT_LISTENING if self._is_local and isinstance(error.__cause__, ConnectionError) else None
            return lm15.TransportError(f"cannot reach the server: {text}", provider_code=code)
        code = INCOMPLETE if isinstance(error, transports.ProtocolError) else None
        return lm15.TransportError(f"incomplete response: {text}", provider_code=code)

    async def aclose(self) -> None:
        self._close_idle()

    def _close_idle(self) -> None:
        # DSPy's pool has no door for that, and no way back from its end.
        for idle in self._transport._pool._idle.values():
            while idle:
                idle.pop().close()


def _completion_id(body: bytes) -> str | None:
    """The id of a completion; None for any other response, or if the server gives none."""
    try:
        completion = orjson.loads(body)
        value = completion["id"] if completion.get("choices") or completion.get("content") else None
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return value if isinstance(value, str) and value else None


def openai_transport(base_url: str, key: str | None, key_variable: str | None = None) -> HttpTransport:
    """The transport to a server with OpenAI's protocol, at an address such as `http://localhost:8000/v1`."""

    def encode(model: str, messages: Messages, settings: Mapping[str, Any]) -> bytes:
        body = {name: settings[name] for name in _SETTINGS if settings.get(name) is not None}
        if settings.get("logprobs"):
            body |= {"logprobs": True, "top_logprobs": settings["logprobs"]}
        return orjson.dumps({**body, "model": model.partition("/")[2], "messages": messages})

    path, question, query = base_url.partition("?")
    headers = {"Content-Type": "application/json"} | ({} if key is None else {"Authorization": f"Bearer {key}"})
    url = path.rstrip("/") + "/chat/completions" + question + query
    return HttpTransport(url, headers, encode, key, key_variable)


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


# --- responses ---

_FINISH_REASONS: dict[object, str] = {
    **dict.fromkeys((None, "", "stop", "eos", "eos_token", "end_turn", "stop_sequence", "stop_str"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "model_length", "model_context_window_exceeded"), "length"),
    **dict.fromkeys(("content_filter", "safety", "recitation", "refusal", "prohibited_content"), "content_filter"),
}
"""What servers say of the end of a reply -> what it means; another reason, such as `error`, is that of no reply."""
# Words in the codes or messages of errors: the protocol has no field for this that all providers fill.
_FILTER = re.compile("content_filter|content_policy_violation|responsibleaipolicyviolation|moderation|flagged")
_CONTEXT = re.compile(
    "context[_ ]length|maximum context|context size|context window|too many tokens|prompt is too long"
)
_BILLING = re.compile(
    "billing_hard_limit|credit balance|insufficient credit|insufficient[_ ]quota|usage limit|budget[_ ]exceeded"
    "|budget has been exceeded|exceeded ?budget"
)
_ERROR_CLASSES: dict[int, type[lm15.ProviderError]] = {
    **dict.fromkeys((401, 403), lm15.AuthError),
    **dict.fromkeys((408, 504), lm15.TimeoutError),
    **dict.fromkeys((409, 425), lm15.ServerError),
    402: lm15.BillingError,
    404: lm15.UnsupportedModelError,
    429: lm15.RateLimitError,
}


def interpret_error(status: int, text: str, wait: float | None, code: str | None = None) -> Reply:
    """Raise the error of `dspy.lm15` for an error status; return an empty reply if a content filter withheld it.

    `code` is the error's `provider_code`.
    """
    words = text.lower()
    if status in (400, 403) and _FILTER.search(words):
        return Reply("", finish="content_filter")
    error_class = _ERROR_CLASSES.get(status) or (lm15.ServerError if status >= 500 else lm15.InvalidRequestError)
    if status in (400, 413) and _CONTEXT.search(words):
        error_class = lm15.ContextLengthError
    elif _BILLING.search(words) or (status != 429 and "billing" in words):
        # Providers and gateways report an empty account by 400, 402, 403, 422, 429 or 500. A 429 may advise a larger
        # plan, "see billing", where only the rate is exceeded.
        error_class = lm15.BillingError
    elif status == 400 and "no_db_connection" in words:
        # LiteLLM's proxy without a database, which it would look the key up in.
        error_class = lm15.AuthError
    elif status == 429 and "request too large" in words:
        # A single call that exceeds what the account may use in a minute.
        error_class = lm15.InvalidRequestError
    raise error_class(f"HTTP {status}: {text[:500]}", status=status, retry_after=wait, provider_code=code)


def read_reply(raw: bytes) -> Reply:
    """Parse a successful response. Anything but a completion is a server error, which is retried."""
    try:
        response = _parsed(raw)
        if response.get("type") == "message":
            response = _completion_of(response)
        choice = (response.get("choices") or [{}])[0]
        if error := response.get("error") or choice.get("error"):
            # Some gateways send one with status 200, even beside a choice or in it.
            status = error.get("code") if isinstance(error, dict) else None
            return _no_completion(raw, status if isinstance(status, int) and status >= 400 else 500)
        message, finish, answer_id = choice["message"], choice.get("finish_reason"), response.get("id")
        finish = finish.lower() if isinstance(finish, str) else finish
        if message.get("refusal") and not message.get("content"):
            finish = "content_filter"
        text = _text(message.get("content")) or message.get("refusal") or ""
        given, replied, cached = _tokens(response.get("usage"))
        finish, logprobs = _FINISH_REASONS[finish], _logprobs(choice.get("logprobs"))
        if finish == "stop" and not text.strip() and not replied:
            raise ValueError("no text, and no tokens of one")
        answer_id = answer_id if isinstance(answer_id, str) else None
        return Reply(text, given, replied, min(cached, given), finish, logprobs, answer_id)
    except (ValueError, LookupError, TypeError, AttributeError):
        return _no_completion(raw)


def _no_completion(raw: bytes, status: int | None = None) -> Reply:
    """Raise the error for a successful response that is no completion; `status` is the one that it names itself."""
    # Redacted before it is cut, because half a key would not be recognised.
    text = redact_text(raw[:4000].decode(errors="replace"))[:500]
    # If it seems to hold a text, or counts tokens, it is to be paid.
    code = UNUSABLE if any(word in raw for word in (b"_tokens", b'"content"', b'"delta"')) else None
    if status is not None:
        return interpret_error(status, text, None, code)
    text = f"the server's answer is not a chat completion: {text!r}"
    if b'"choices"' in raw or b'"content"' in raw:
        # The words may be those of a text.
        raise lm15.ServerError(text, provider_code=code)
    return interpret_error(500, text, None, code)


def _parsed(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except ValueError:
        # Python's servers write NaN and -Infinity, which JSON does not have, for log-probabilities.
        value = json.loads(raw, parse_constant=lambda _: None)
        # Halves of surrogate pairs are no JSON either, and no text.
        orjson.dumps(value)
        return value


def _completion_of(message: Mapping[str, Any]) -> dict[str, Any]:
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


def _text(content: object) -> str:
    """The text of a message, which some servers send in parts (reasoning and text)."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    raise TypeError("content is neither text nor a list of parts")


def _tokens(usage: Any) -> tuple[int, int, int]:
    """Input tokens, those that are paid as output, and those of the input from the provider's cache; 0 is unknown."""
    if not isinstance(usage, dict):
        return 0, 0, 0
    prompt, completion, total = (usage.get(f"{name}_tokens") for name in ("prompt", "completion", "total"))
    if isinstance(prompt, int) and isinstance(completion, int) and isinstance(total, int):
        # Some providers count the tokens of the reasoning in the total alone.
        completion = max(completion, total - prompt)
    details = usage.get("prompt_tokens_details")
    return _count(prompt), _count(completion), _count(details.get("cached_tokens") if isinstance(details, dict) else 0)


def _count(value: Any) -> int:
    number = 0.0 if isinstance(value, bool) else _number(value) or 0.0
    return int(number) if 0 <= number < 10**15 else 0


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


IMPOSSIBLE = -9999.0
"""Log-probability of a token that has none; servers that write a number there write this one."""


def _logprobs(logprobs: Any) -> tuple[tuple[tuple[str, float], ...], ...] | None:
    """The alternatives of each token as in `Reply`, without those whose log-probability is no finite number; a token
    for which it is none has `IMPOSSIBLE`. None if the server gives no number, or some for what is no text."""
    found, known = [], False
    try:
        for token in logprobs["content"]:
            first, *others = [
                (storable(t["token"]), _number(t["logprob"])) for t in (token, *(token.get("top_logprobs") or ()))
            ]
            given = [(text, p) for text, p in others if p is not None]
            known = known or first[1] is not None or bool(given)
            found.append(((first[0], IMPOSSIBLE if first[1] is None else first[1]), *given))
    except (LookupError, TypeError, AttributeError):
        return None
    return tuple(found) if known else None


# --- by LiteLLM ---

_MISSING = re.compile(r"credentials|\bmissing\b.*\b(?:key|token|parameter)|\b(?:is|are) required|\bnot set\b", re.I)
"""Words of LiteLLM, or of a provider's library, about what the environment lacks for a call."""


@lru_cache(maxsize=1)
def _shared_client(loop: asyncio.AbstractEventLoop) -> tuple[aiohttp.ClientSession, Any]:
    """The session of all calls on a loop, and LiteLLM's client that uses it. It stays open as long as the process:
    LiteLLM caches its clients of some providers, and replaces a closed session by one that follows redirects."""
    import aiohttp
    import litellm
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    async def refuse_redirect(
        request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        response = await send(request)
        if 300 <= response.status < 400:
            # LiteLLM would follow it, with the text and some providers' keys.
            response.close()
            raise aiohttp.ClientError(f"the server answers {response.status} and redirects to another address")
        return response

    def close() -> None:
        # aiohttp would warn about an open session.
        if loop.is_running():
            with contextlib.suppress(Exception):
                asyncio.run_coroutine_threadsafe(session.close(), loop).result(1.0)

    session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), middlewares=(refuse_redirect,), trust_env=True)
    atexit.register(close)
    litellm.in_memory_llm_clients_cache.flush_cache()
    return session, AsyncHTTPHandler(shared_session=session, follow_redirects=False)


class LiteLLMTransport(Transport):
    """Makes one attempt at a call, by `litellm.acompletion` over an aiohttp session that checks responses.

    Raises:
        InputError: LiteLLM knows no such provider as that of `spec`, which came from the flag `flag`.
    """

    def __init__(self, spec: str, api_base: str | None, flag: str) -> None:
        import litellm

        # LiteLLM prints advice.
        litellm.suppress_debug_info = True
        # Its messages quote responses, and a server may quote the key; errors are ours to print, without a traceback.
        logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                _, provider, *_ = litellm.get_llm_provider(spec)
        except litellm.exceptions.BadRequestError:
            prefix = spec.partition("/")[0]
            providers = [str(getattr(provider, "value", provider)) for provider in litellm.provider_list]
            raise InputError(
                f"no provider is called {prefix!r}", field=flag, found=spec, remedy=did_you_mean(prefix, providers)
            ) from None
        # LiteLLM names all that a provider has if one is missing, and has a default for the version.
        missing = [] if api_base else litellm.validate_environment(spec)["missing_keys"]
        self._missing_variables = [n for n in missing if n != "AZURE_API_VERSION" and not os.environ.get(n)]
        self._complete, self._api_base = litellm.acompletion, {"api_base": api_base} if api_base else {}
        self._uses_openai_client = provider in ("azure", "openai", *litellm.constants.openai_compatible_providers)
        """Whether LiteLLM uses OpenAI's client, which takes the session and not LiteLLM's client."""

    async def chat(self, model: str, messages: Messages, settings: Mapping[str, Any]) -> Reply:
        if self._missing_variables:
            raise lm15.NotConfiguredError(f"no key: set {' and '.join(self._missing_variables)}")
        session, client = _shared_client(asyncio.get_running_loop())
        # Some providers' code ignores the session.
        clients = {"shared_session": session} | ({} if self._uses_openai_client else {"client": client})
        options = {**settings, **self._api_base, **clients}
        if options.get("logprobs"):
            options |= {"logprobs": True, "top_logprobs": options["logprobs"]}
        try:
            completion = await self._complete(model=model, messages=messages, num_retries=0, max_retries=0, **options)
        except Exception as error:
            return _interpret_litellm(error)
        return read_reply(orjson.dumps(completion.model_dump()))


def _interpret_litellm(error: Exception) -> Reply:
    """`interpret_error` for an exception of LiteLLM."""
    kind, status = type(error).__name__, getattr(error, "status_code", None)
    text = redact_text(str(error).partition("\nTraceback (most recent call last)")[0])
    if kind == "UnsupportedParamsError":
        raise lm15.UnsupportedFeatureError(text[:500]) from None
    made_here = not isinstance(status, int) or kind in ("APIConnectionError", "AuthenticationError")
    if made_here and _MISSING.search(text):
        # LiteLLM looks for some providers' credentials only when it calls them.
        raise lm15.NotConfiguredError(text[:500]) from None
    if kind in ("APIConnectionError", "Timeout") or not isinstance(status, int):
        raise lm15.TransportError(text[:500]) from None
    if status < 400:
        # LiteLLM could not read an answer.
        raise lm15.ServerError(text[:500], provider_code=UNUSABLE) from None
    response = getattr(error, "response", None)
    return interpret_error(status, text[:2000], retry_after(getattr(response, "headers", None) or {}))


# --- parameters that a provider refuses ---

_REMOVABLE = ("temperature", "top_p", "seed")
"""The judge is the same without them, whatever is wrong with them. Log-probabilities it may need."""
_LIMITED = {
    "logprobs": (r"(?:top_?|sample )?logprobs", 1),
    "max_tokens": (r"max(?:imum)?[_ ]?(?:completion|output|new)?[_ ]?tokens", 16),
}
"""Parameter -> its names in errors, and the least number that can be a limit of it."""
_REFUSED = re.compile(
    r"(?:\bnot|un|n['\u2019]t) ?support|deprecated|not (?:permitted|allowed|available)|unexpected|unrecognized|unknown",
    re.IGNORECASE,
)
_LIMIT = re.compile(
    r"at most|too (?:large|high|long)|maximum|max allowed|exceed|(?:less|lower|greater) than|no more than|<=?|\u2264|>"
    r"|up to|between|range|above|limit",
    re.IGNORECASE,
)
_BELOW = re.compile(r"(?:less|lower) than(?! or equal)\D*$|<\s*$", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.\-])(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:_\d{3})*)(?!\w)(\s*\(?exclusive)?")
"""A whole number that is no part of a name, such as that of a model."""
_NOT_ABOUT_IT = re.compile(r"HTTP \d+: |\b(?:code|status)['\"]*:?\s*['\"]?\d{3}\b")
_ROOM = (
    r"(?P<prompt>\d+) \+ \d+ > (?P<context>\d+)",
    r"must be <= (?P<context>\d+)\. Given: (?P<prompt>\d+) .?inputs",
    r"context (?:length|window|size|limit)\D{0,20}(?P<context>\d+).*?"
    r"(?P<prompt>\d+) (?:(?:input|prompt) tokens|(?:tokens )?(?:in the messages|from the input|in your prompt)"
    r"|of text input)",
)
"""How errors name the tokens of the context and of the prompt."""


class ProviderParameters:
    """What one model refuses of a call, although it can be used without it or with less of it, learnt from its errors.

    Which parameters a model takes is not known from its name: gateways have aliases, Azure has deployments with names
    of their own. An error that names a parameter is therefore taken at its word, and the call is repeated without it.
    Only if that call is answered is the parameter left out of later calls, so that nothing that a text makes a server
    say changes them.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._limits: dict[str, int | None] = {}
        """Parameter -> the largest value that is allowed; None if it is none."""

    def allow_more_tokens(self, max_tokens: int) -> bool:
        """Whether a reply that was cut off at `max_tokens` may be longer, as far as is known."""
        limit = self._limits.get("max_tokens", math.inf)
        return limit is not None and limit > max_tokens

    async def call(self, send: Callable[[dict[str, Any]], Awaitable[Reply]], settings: Mapping[str, Any]) -> Reply:
        """Call `send` with the settings; if an error names one of them, again without it or within its limit."""
        accepted, of_this_call, of_all_calls = _within(settings, self._limits), set[str](), dict[str, int | None]()
        while True:
            try:
                reply = await send(accepted)
                break
            except (lm15.InvalidRequestError, lm15.ContextLengthError, lm15.CapabilityError) as error:
                name, limit, is_general = _refused_parameter(str(error), accepted)
                if name is None or name in of_this_call:
                    raise
                of_this_call.add(name)
                accepted = _within(accepted, {name: limit})
                if is_general:
                    of_all_calls[name] = limit
        for name, limit in of_all_calls.items():
            # Several calls were in flight: the first says it.
            if self._limits.get(name, -1) != limit:
                self._limits[name] = limit
                what = "takes no %s; it is left out" if limit is None else f"takes %s up to {limit}, which holds"
                _LOG.warning(f"%s {what} from now on", self._model, name.replace("_", "-"))
        return reply


def _within(settings: Mapping[str, Any], limits: Mapping[str, int | None]) -> dict[str, Any]:
    limited = {name: limits.get(name, value) for name, value in settings.items()}
    return {name: min(limit, settings[name]) for name, limit in limited.items() if limit is not None}


def _refused_parameter(message: str, settings: Mapping[str, Any]) -> tuple[str | None, int | None, bool]:
    """The parameter of `settings` that an error names, the largest value that is allowed, and whether that is so for
    all calls; no parameter if it names none that can be changed."""
    message = _NOT_ABOUT_IT.sub("", message)
    for pattern in _ROOM:
        if "max_tokens" in settings and (found := re.search(pattern, message, re.IGNORECASE | re.DOTALL)):
            room = int(found["context"]) - int(found["prompt"])
            return "max_tokens" if 0 < room < settings["max_tokens"] else None, room, False
    for name, (pattern, least) in _LIMITED.items():
        if name in settings and re.search(rf"\b{pattern}\b", message, re.IGNORECASE):
            if _LIMIT.search(message) and (limit := _largest_allowed(message, least, settings[name])):
                return name, limit, True
            if name == "max_tokens" and _REFUSED.search(message):
                return name, None, True
    named = (name for name in _REMOVABLE if name in settings and re.search(rf"\b{name}\b", message, re.IGNORECASE))
    return next(named, None), None, True


def _largest_allowed(message: str, least: int, value: int) -> int | None:
    """The largest number below `value` that a message names, from `least` on."""
    numbers = []
    for found in _NUMBER.finditer(message):
        number = int(re.sub(r"\D", "", found[0]))
        numbers.append(number - bool(found[1] or _BELOW.search(message[: found.start()])))
    return max((number for number in numbers if least <= number < value), default=None)
