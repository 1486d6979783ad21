"""Every provider that is not called directly, by LiteLLM: one attempt per call."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import io
import logging
import os
import re
from functools import lru_cache
from typing import Any

import aiohttp
import orjson
from dspy import lm15

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.programs.lm import loop
from debate_judge.programs.lm.errors import UNUSABLE
from debate_judge.programs.lm.http.chat_completions import interpret_error, read_reply
from debate_judge.programs.lm.limits import retry_after
from debate_judge.programs.lm.redaction import redact_text
from debate_judge.programs.lm.reply import Messages, Reply

_MISSING = re.compile(r"credentials|\bmissing\b.*\b(?:key|token|parameter)|\b(?:is|are) required|\bnot set\b", re.I)
"""Words of LiteLLM, or of a provider's library, about what the environment lacks for a call."""


@lru_cache(maxsize=1)
def _shared_client(loop: asyncio.AbstractEventLoop) -> tuple[aiohttp.ClientSession, Any]:
    """The session of all calls on a loop, and LiteLLM's client that uses it.

    It stays open as long as the process: LiteLLM caches its clients of some providers, and replaces a closed session by
    one without `_refuse_redirect`.
    """
    import litellm
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    session = aiohttp.ClientSession(
        cookie_jar=aiohttp.DummyCookieJar(), middlewares=(_refuse_redirect,), trust_env=True
    )
    atexit.register(_close, [session])
    litellm.in_memory_llm_clients_cache.flush_cache()
    return session, AsyncHTTPHandler(shared_session=session, follow_redirects=False)


class LiteLLMTransport:
    """Makes one attempt at a call, by `litellm.acompletion` over an aiohttp session that checks responses.

    Args:
        spec: PROVIDER/MODEL.
        api_base: Address of the user's own server; None leaves it to LiteLLM.
        flag: The flag that the spec comes from, for messages.

    Raises:
        InputError: LiteLLM knows no such provider.
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
        self._complete = litellm.acompletion
        # LiteLLM names all that a provider has if one is missing, and has a default for the version.
        missing = [] if api_base else litellm.validate_environment(spec)["missing_keys"]
        self._missing_variables = [n for n in missing if n != "AZURE_API_VERSION" and not os.environ.get(n)]
        self._api_base = {"api_base": api_base} if api_base else {}
        self._uses_openai_client = provider in ("azure", "openai", *litellm.constants.openai_compatible_providers)
        """Whether LiteLLM uses OpenAI's client, which takes the session and not LiteLLM's client."""

    async def chat(self, model: str, messages: Messages, settings: dict[str, Any]) -> Reply:
        """Send `messages` once; raises the errors of `dspy.lm15`."""
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
            return _interpret_exception(error)
        return read_reply(orjson.dumps(completion.model_dump()))

    async def aclose(self) -> None:
        """Nothing to close: all LMs share the session."""


def _interpret_exception(error: Exception) -> Reply:
    """`interpret_error` for an exception of LiteLLM."""
    if type(error).__name__ == "UnsupportedParamsError":
        raise lm15.UnsupportedFeatureError(redact_text(str(error))[:500]) from None
    status, response = getattr(error, "status_code", None), getattr(error, "response", None)
    text = redact_text(str(error).partition("\nTraceback (most recent call last)")[0])
    made_here = not isinstance(status, int) or type(error).__name__ in ("APIConnectionError", "AuthenticationError")
    if made_here and _MISSING.search(text):
        # LiteLLM looks for some providers' credentials only when it calls them.
        raise lm15.NotConfiguredError(text[:500]) from None
    if type(error).__name__ in ("APIConnectionError", "Timeout") or not isinstance(status, int):
        raise lm15.TransportError(text[:500]) from None
    if status < 400:
        # LiteLLM could not read an answer.
        raise lm15.ServerError(text[:500], provider_code=UNUSABLE) from None
    return interpret_error(status, text[:2000], retry_after(getattr(response, "headers", None) or {}))


async def _refuse_redirect(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    response = await send(request)
    if 300 <= response.status < 400:
        # LiteLLM would follow it, with the text and some providers' keys.
        response.close()
        raise aiohttp.ClientError(f"the server answers {response.status} and redirects to another address")
    return response


def _close(sessions: list[aiohttp.ClientSession]) -> None:
    """Close sessions at exit: aiohttp would warn about open ones."""

    async def close() -> None:
        await sessions.pop().close()

    with contextlib.suppress(Exception):
        loop.submit(close()).result(1.0)
