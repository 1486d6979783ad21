"""Searches for evidence: any function from a query to texts, and one of the web."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any

import aiohttp
import dspy
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.limits import retry_after, retry_wait
from debate_judge.programs.lm.redaction import redact_text
from debate_judge.programs.lm.reply import Reply

MAX_SNIPPETS = 10
"""Maximum number of sentences of longer knowledge, or of texts that were found, that are evidence for a claim, without
the sentences that are added because they name the subject."""

Search = Callable[[str], Sequence[str] | Awaitable[Sequence[str]]]
"""From a query to texts, the best first; at most `MAX_SNIPPETS` are used. What it raises leaves the item unscored, but
an `InputError` ends the run."""

_MAX_ATTEMPTS = 3
_DEADLINE = 20.0
"""Seconds that one attempt may take."""
_MAX_WAIT = 30.0
_RETRYABLE_STATUSES = {408, 429, 500, 502, 503, 504}


class SearchError(Exception):
    """A query without a result; if `transient`, another attempt may succeed, after `retry_after` seconds if given."""

    def __init__(self, message: str, *, transient: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.transient, self.retry_after = transient, retry_after


class Serper:
    """A search of Google's results by serper.dev, the provider that Factool uses.

    Args:
        key: By default from SERPER_API_KEY.
        url: Address of the service; by default from SERPER_API_BASE, else serper.dev's.
        pause: Approximate seconds before a second attempt; twice as many before a third. A wait that the server asks
            for is used instead, up to 30 s.
    """

    def __init__(self, key: str | None = None, url: str | None = None, pause: float = 1.0) -> None:
        self._key = key or os.environ.get("SERPER_API_KEY") or ""
        self._url = (url or os.environ.get("SERPER_API_BASE") or "https://google.serper.dev").rstrip("/") + "/search"
        self._pause = pause
        if not self._key:
            raise InputError(
                "web search by serper.dev needs a key",
                field="search",
                remedy="set SERPER_API_KEY, or judge without web search (search: none)",
            )

    async def __call__(self, query: str) -> list[str]:
        timeout = aiohttp.ClientTimeout(total=_DEADLINE)
        retrying = AsyncRetrying(
            retry=retry_if_exception(lambda error: isinstance(error, SearchError) and error.transient),
            stop=stop_after_attempt(_MAX_ATTEMPTS),
            wait=self._seconds_to_wait,
            reraise=True,
        )
        async with aiohttp.ClientSession(timeout=timeout, headers={"X-API-KEY": self._key}) as session:
            return await retrying(self._search, session, query)

    def _seconds_to_wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        return retry_wait(error, state.attempt_number, self._pause, _MAX_WAIT)

    async def _search(self, session: aiohttp.ClientSession, query: str) -> list[str]:
        body = {"q": query, "num": MAX_SNIPPETS}
        try:
            # A redirect would send the key to another address.
            async with session.post(self._url, json=body, allow_redirects=False) as response:
                if response.status == 200:
                    return _passages(await response.read())
        except (TimeoutError, aiohttp.ClientError) as error:
            raise SearchError(f"the web search failed ({type(error).__name__})", transient=True) from error
        problem = f"HTTP {response.status}"
        if response.status in (401, 402, 403):
            raise InputError(f"serper.dev refuses the key ({problem})", field="SERPER_API_KEY")
        transient, wait = response.status in _RETRYABLE_STATUSES, retry_after(response.headers)
        raise SearchError(f"the web search failed ({problem})", transient=transient, retry_after=wait)


def _passages(raw: bytes) -> list[str]:
    """Passages of a response: the direct answer, the facts about the entity, then the pages' snippets."""
    try:
        results: Any = json.loads(raw)
        direct, entity = results.get("answerBox") or {}, results.get("knowledgeGraph") or {}
        facts = [f"{name}: {value}" for name, value in (entity.get("attributes") or {}).items()]
        pages = [page.get("snippet") for page in results.get("organic") or ()]
        texts = [direct.get("answer"), direct.get("snippet"), entity.get("description"), *facts, *pages]
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise SearchError("the web search's answer is not in its usual form") from None
    return list(dict.fromkeys(text.strip() for text in texts if isinstance(text, str) and text.strip()))


SEARCHES: Mapping[str, Callable[[], Search | None]] = {"none": lambda: None, "serper": Serper}
"""Name -> makes the search."""


def find_search(search: str | Search) -> tuple[str, Search | None]:
    """Name and function of a search: one of `SEARCHES`, or a function of the user's, named `module:function`."""
    if callable(search):
        name = getattr(search, "__qualname__", type(search).__qualname__)
        return f"{search.__module__}:{name}", search
    if search not in SEARCHES:
        raise InputError(
            "unknown search",
            field="search",
            expected="one of " + ", ".join(SEARCHES),
            found=search,
            remedy="a function of your own goes to the constructor of a class of yours: "
            "super().__init__(**{**options, 'search': my_function})",
        )
    return search, SEARCHES[search]()


def placeholder_search(query: str) -> list[str]:
    """Placeholders of a typical length, for dry runs."""
    return [f"{number}: {'a passage that was not looked up ' * 6}" for number in range(MAX_SNIPPETS)]


async def stored_texts(name: str, search: Search, query: str) -> list[str]:
    """Search, or return the stored texts of the same query: a resumed run needs the same evidence, but the web changes.

    Raises:
        SearchError: The search failed, or did not return texts.
    """
    lm = dspy.settings.lm
    if not isinstance(lm, JudgeLM):
        return await _texts(search, query)
    query_key = json.dumps(["search", name, query, MAX_SNIPPETS])
    key = hashlib.blake2b(query_key.encode(), digest_size=16).hexdigest()

    async def find() -> Reply:
        return Reply(json.dumps(await _texts(search, query), ensure_ascii=False))

    results: list[str] = json.loads((await lm.get_or_create(key, "search", find)).text)
    return results


async def _texts(search: Search, query: str) -> list[str]:
    try:
        # In a thread, because a function that waits would block all other debates.
        found = await asyncio.to_thread(search, query)
        texts = await found if isawaitable(found) else found
    except (InputError, SearchError):
        raise
    except Exception as error:
        raise SearchError(f"the search failed ({type(error).__name__}: {redact_text(str(error))})") from error
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise SearchError("the search did not return a list of texts")
    return list(texts)[:MAX_SNIPPETS]
