"""Web search for evidence: the protocol of providers, and one provider. Keys come from the environment only."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import dspy

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.limits.retries import Backoff, Patience, retry, retry_after
from debate_judge.programs.lm.reply import Reply

if TYPE_CHECKING:
    import aiohttp

_ATTEMPTS = 3
_LONGEST_WAIT = 30.0
_WORTH_ANOTHER = {408, 429, 500, 502, 503, 504}


class SearchError(Exception):
    """No result for one query; the message holds no key.

    Args:
        message: What happened.
        passing: Whether another attempt may succeed.
        retry_after: Seconds to wait before it, if the provider says so.
    """

    def __init__(self, message: str, *, passing: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.passing, self.retry_after = passing, retry_after


class SearchProvider(Protocol):
    """A provider of passages from the web."""

    name: str
    """Identity of the provider: results are stored under it and reused for equal queries."""

    async def snippets(self, query: str, limit: int) -> list[str]:
        """At most `limit` passages, best first.

        Raises:
            SearchError: This query cannot be answered.
            InputError: No query can be, e.g. for a wrong key.
        """
        ...


class Serper:
    """Google's results by serper.dev, the provider that Factool uses.

    Args:
        key: Sent as `X-API-KEY`; by default from SERPER_API_KEY.
        url: Address of the service; by default from SERPER_API_BASE, else serper.dev's.
        deadline: Seconds that one attempt may take.
        pause: Approximate seconds before a second attempt; twice as many before a third. If the server says how long to
            wait, that is used, up to 30 s.
    """

    def __init__(
        self, key: str | None = None, url: str | None = None, deadline: float = 20.0, pause: float = 1.0
    ) -> None:
        self._key = key or os.environ.get("SERPER_API_KEY") or ""
        self._url = (url or os.environ.get("SERPER_API_BASE") or "https://google.serper.dev").rstrip("/") + "/search"
        self._deadline, self._pause = deadline, pause
        self.name = "serper"
        if not self._key:
            raise InputError(
                "web search by serper.dev needs a key",
                field="search",
                remedy="set SERPER_API_KEY, or judge without web search (search: none)",
            )

    async def snippets(self, query: str, limit: int) -> list[str]:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=self._deadline)
        patience = Patience(Backoff(self._pause, _LONGEST_WAIT), attempts=_ATTEMPTS)

        async def wait_after(error: Exception) -> float:
            if isinstance(error, (TimeoutError, aiohttp.ClientError)):
                error = SearchError(f"the web search failed ({type(error).__name__})", passing=True)
            wait = patience.wait(error.retry_after) if isinstance(error, SearchError) and error.passing else None
            if wait is None:
                raise error
            return wait

        async with aiohttp.ClientSession(timeout=timeout, headers={"X-API-KEY": self._key}) as session:
            return (await retry(lambda: self._search(session, query, limit), wait_after))[:limit]

    async def _search(self, session: aiohttp.ClientSession, query: str, limit: int) -> list[str]:
        # A redirect would send the key to another address.
        async with session.post(self._url, json={"q": query, "num": limit}, allow_redirects=False) as answer:
            if answer.status == 200:
                return _passages(await answer.read())
            problem = f"HTTP {answer.status}"
            if answer.status in (401, 402, 403):
                raise InputError(f"serper.dev refuses the key ({problem})", field="SERPER_API_KEY")
            raise SearchError(
                f"the web search failed ({problem})",
                passing=answer.status in _WORTH_ANOTHER,
                retry_after=retry_after(answer.headers),
            )


class Unsearched:
    """Replaces a provider in dry runs: made-up passages of a usual length."""

    name = "unsearched"

    async def snippets(self, query: str, limit: int) -> list[str]:
        return [f"{number}: {'a passage that was not looked up ' * 6}" for number in range(limit)]


def _passages(raw: bytes) -> list[str]:
    """The direct answer, the description of the thing that was asked about, then the pages' excerpts."""
    try:
        found: Any = json.loads(raw)
        direct, thing = found.get("answerBox") or {}, found.get("knowledgeGraph") or {}
        facts = [f"{name}: {value}" for name, value in (thing.get("attributes") or {}).items()]
        texts = [
            direct.get("answer"),
            direct.get("snippet"),
            thing.get("description"),
            *facts,
            *(page.get("snippet") for page in found.get("organic") or ()),
        ]
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise SearchError("the web search's answer is not in its usual form") from None
    return list(dict.fromkeys(text.strip() for text in texts if isinstance(text, str) and text.strip()))


SEARCHES: Mapping[str, Callable[[], SearchProvider]] = MappingProxyType({"serper": Serper})
"""Name in a judge's configuration -> provider."""


def make_search(name: str) -> SearchProvider | None:
    """The provider of a name; none for `none`.

    Raises:
        InputError: The name is unknown, or the provider's key is missing.
    """
    if name == "none":
        return None
    if name not in SEARCHES:
        raise InputError("unknown search", field="search", expected="none, " + ", ".join(SEARCHES), found=name)
    return SEARCHES[name]()


async def kept(search: SearchProvider, query: str, limit: int) -> list[str]:
    """Search, or return what the same search found before.

    Passages are stored with the LM's replies: the web changes, and a resumed run needs the same evidence as before, at
    no further cost.
    """
    lm = dspy.settings.lm
    if not isinstance(lm, JudgeLM):
        return await search.snippets(query, limit)
    question = json.dumps(["search", search.name, query, limit])
    key = hashlib.blake2b(question.encode(), digest_size=16).hexdigest()

    async def find() -> Reply:
        return Reply(json.dumps(await search.snippets(query, limit), ensure_ascii=False))

    found: list[str] = json.loads((await lm.once(key, "search", find)).text)
    return found
