"""Claims and evidence (Sun et al. 2024, sections 3.1, 3.2 and 4.1.2).

Claims are the statements of a response that can be true or false. How they are found depends on the form of the
response, which follows from the task's label for the source: `answer` (to a question), `dialogue` (a reply), `document`
(anything made from a text, such as a summary). Candidates that the task calls claims have the form `claim` and are used
as they are. A short answer is not a statement without its question, so the two form one claim (as in the paper's table
12).

Evidence for a claim is the given knowledge as a whole if it is short; of longer knowledge, the sentences most similar
to one of two queries about the claim. Without any knowledge, the two queries go to a search provider, if one is
configured; its key comes from the environment only. The LM is asked for queries only if they are used.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

import aiohttp
import dspy
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Task
from debate_judge.data.sets.factuality import ANSWER_RULE
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.limits.failures import RetryWait, retry_after
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.examples import fitted
from debate_judge.programs.roles.role import Fields, ReplyFailure, Role, RoleReply

# --- claims ---

Form = Literal["document", "answer", "dialogue", "claim"]

_LABELS: tuple[tuple[str, Form], ...] = (
    ("question", "answer"),
    ("prompt", "answer"),
    ("dialogue", "dialogue"),
    ("conversation", "dialogue"),
    ("chat", "dialogue"),
)
"""Word in the task's source label -> form of the response."""

_NUMBERED = re.compile(r"\(?\d{1,3}[.):]\s+")
_BULLET = re.compile(r"[-*•]\s+")
_NOTHING = re.compile(r"[\W_]*(?:none|no claims?)[\W_]*", re.IGNORECASE)


def form_of(task: Task) -> Form:
    """The form that the responses of a task have."""
    if task.candidate_label.lower() == "claim":
        return "claim"
    label = task.source_label.lower()
    return next((form for word, form in _LABELS if word in label), "document")


CHECKED_ANSWER = f"{ANSWER_RULE} What is true but not what was asked for has a severity of 1 or 2."
"""What every checker of an answer to a question is told."""


class Selecting(dspy.Signature):
    """You prepare a reply of a conversation for fact-checking. Keep what the reply states about the world, word for
    word, and leave out what nobody could check: opinions, feelings, wishes, greetings, offers and questions to the
    other person. A sentence that holds both keeps its checkable part. Add nothing and correct nothing, least of all
    errors."""

    candidate: str = dspy.InputField()
    correction: str = dspy.InputField(default="")
    facts: str = dspy.OutputField(desc="what is left of the reply, or NONE where nothing is")


class Extracting(dspy.Signature):
    """You take a text apart into atomic claims, so that others can check each against evidence. A claim is one
    statement that is true or false. It names whom and what it is about, with pronouns resolved, for its reader sees
    nothing else; the source, where one is given, serves to resolve them and gives no claims of its own, so what only a
    question takes for granted is none. Together the claims say what the text says: nothing is left out, added,
    softened or corrected, also where it is wrong."""

    task: str = dspy.InputField()
    source: str = dspy.InputField(default="")
    candidate: str = dspy.InputField()
    correction: str = dspy.InputField(default="")
    claims: str = dspy.OutputField(desc="the claims, one a line and nothing else, or NONE where nothing is stated")


def read_facts(fields: Fields) -> str | replies.Unreadable:
    """The checkable part of a reply; empty where all of it is subjective."""
    text = fields["facts"].strip()
    if not text:
        return replies.Unreadable("the field 'facts' was empty; write NONE where nothing is left")
    return "" if _NOTHING.fullmatch(text) else text


async def extract_claims(
    role: Role, item: Item, text: str, form: Form, most: int
) -> RoleReply[tuple[str, ...]] | ReplyFailure:
    """At most `most` claims of `text`, which is the item's candidate or its checkable part.

    The source of a `document` is not shown, so that claims say what the text says and not what it should say.
    """
    task = f"Candidate: {item.task.candidate_label}. It is taken apart into at most {most} claims."
    if form != "document":
        task = f"Source: {item.task.source_label}. {task}"
    inputs = {"task": replies.escaped(task), "candidate": replies.escape(text)}
    if form == "document":
        inputs["source"] = ""
    return await role.ask(item, lambda fields: read_claims(fields["claims"], most), inputs=inputs)


def read_claims(text: str, most: int) -> tuple[str, ...] | replies.Unreadable:
    """Parse a list of claims: a claim on each line, with or without bullets or numbers, or a JSON list; NONE is empty.

    A list longer than `most` is refused and not cut, because a missing claim could be the false one.
    """
    text = text.strip()
    if _NOTHING.fullmatch(text):
        return ()
    lines = _json_list(text) if text.startswith("[") else _lines(text)
    if lines is None:
        return replies.Unreadable("the claims looked like a JSON list but were not one of texts; give one claim a line")
    claims = tuple(dict.fromkeys(" ".join(line.split()) for line in lines if line.strip()))
    if not claims:
        return replies.Unreadable("no claims were given; write NONE where the text states nothing")
    if len(claims) > most:
        return replies.Unreadable(
            f"there were {len(claims)} claims; give at most {most}, joining what belongs together"
        )
    return claims


def _lines(text: str) -> list[str]:
    lines = [_BULLET.sub("", line.strip(), count=1) for line in text.splitlines() if line.strip()]
    # Numbers are list markers only if all lines begin with one, because a claim may begin with a number.
    if all(_NUMBERED.match(line) for line in lines):
        return [_NUMBERED.sub("", line, count=1) for line in lines]
    return lines


def _json_list(text: str) -> list[str] | None:
    try:
        values = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    claims = [value.get("claim") if isinstance(value, dict) else value for value in values]
    texts = [claim for claim in claims if isinstance(claim, str)]
    return texts if len(texts) == len(claims) else None


# --- evidence ---

AS_GIVEN, RANKED, SEARCHED, NOTHING = "as given", "ranked", "searched", "nothing"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The text that a claim is checked against, and how it was found."""

    text: str
    how: str
    """One of `as given`, `ranked`, `searched` and `nothing`."""
    queries: tuple[str, ...] = ()


class Querying(dspy.Signature):
    """You look for evidence about a claim. Write two search queries that together find what would confirm the claim
    or refute it. The first asks for the fact itself, worded so that the answer is open; the second goes about it in
    another way, by other words or by another party, place or time that the claim names. Do not presume that the
    claim is true."""

    claim: str = dspy.InputField()
    correction: str = dspy.InputField(default="")
    query_1: str = dspy.OutputField(desc="one line, the query and nothing else")
    query_2: str = dspy.OutputField(desc="one line, another query and nothing else")


def _read_queries(fields: Fields) -> tuple[str, str] | replies.Unreadable:
    first, second = (" ".join(fields[name].split()) for name in ("query_1", "query_2"))
    return (first, second) if first and second else replies.Unreadable("two queries are needed")


WHOLE = 1500
"""Longest knowledge, in characters, that is evidence as a whole."""

SNIPPETS = 10
"""Number of sentences of longer knowledge, or of snippets from the web, that are evidence for a claim; sentences with
their subjects come in addition."""


async def find_evidence(
    item: Item, form: Form, claim: str, writer: Role, search: SearchProvider | None
) -> RoleReply[Evidence] | ReplyFailure:
    """Find evidence about a claim of the item's response; the `writer` is asked for two queries if they are used."""
    # All texts of the item except the response and a mere question.
    parts = (item.context,) if form in ("answer", "claim") else (item.source, item.context)
    given = "\n\n".join(part.strip() for part in parts if part.strip())
    passages = sentences(given)
    if given and (len(given) <= WHOLE or len(passages) <= SNIPPETS):
        return RoleReply(Evidence(given, AS_GIVEN), 0)
    if not given and search is None:
        return RoleReply(Evidence("", NOTHING), 0)
    queries = await writer.ask(item, _read_queries, inputs={"claim": replies.escape(claim)})
    if isinstance(queries, ReplyFailure):
        return queries
    if search is None or given:
        # In a thread, because fitting a long document, or the first import, would block all other debates.
        chosen = await asyncio.to_thread(most_similar, passages, queries.value, SNIPPETS)
        return RoleReply(Evidence("\n".join(chosen), RANKED, queries.value), queries.calls)
    try:
        results = await asyncio.gather(*(stored_snippets(search, query, SNIPPETS) for query in queries.value))
    except SearchError as error:
        return ReplyFailure("search error", str(error), queries.calls)
    # Alternately, so that the second query contributes as much as the first.
    mixed = [snippet for rank in zip_longest(*results) for snippet in rank if snippet is not None]
    snippets = list(dict.fromkeys(mixed))[:SNIPPETS]
    evidence = Evidence("\n".join(snippets), SEARCHED if snippets else NOTHING, queries.value)
    return RoleReply(evidence, queries.calls)


# --- the best sentences of a text ---

# A sentence ends before a blank, or before a capital letter without one, as in texts that were glued together; but not
# after a capital letter, which keeps most initials and abbreviations such as U.S. in one piece.
_END = re.compile(r"\n+|(?<=[.!?])\s+|(?<=[.!?][\"'”’)\]])\s+|(?<=[a-z0-9)\]][.!?])(?=[A-Z\[])")

_REFERS_BACK = re.compile(
    r"[\"“'‘(\[]*(?:he|she|it|they|his|hers?|its|theirs?|this|that|these|those|both|the (?:former|latter))\b",
    re.IGNORECASE,
)
"""The beginning of an English sentence whose subject is in an earlier sentence."""

_FURTHEST = 3
"""Most earlier sentences that are searched for a subject."""


def sentences(text: str) -> tuple[str, ...]:
    """The different sentences of a text, in order."""
    return tuple(dict.fromkeys(part.strip() for part in _END.split(text) if part.strip()))


def most_similar(passages: tuple[str, ...], queries: Sequence[str], limit: int) -> tuple[str, ...]:
    """The `limit` passages most similar to one of the queries by the cosine of TF-IDF vectors, in their order.

    A passage that begins with a pronoun is preceded by the passages before it, back to one that does not, so that its
    subject is included.
    """
    if len(passages) <= limit:
        return passages
    vectorizer, matrix = fitted(passages)
    similarity = (vectorizer.transform(queries) @ matrix.T).toarray().max(axis=0)
    # Of equally similar passages the earlier one is chosen, so that the choice is deterministic.
    chosen = sorted(range(len(passages)), key=lambda i: (-float(similarity[i]), i))[:limit]
    return tuple(passages[i] for i in sorted({j for i in chosen for j in _with_subject(passages, i)}))


def _with_subject(passages: tuple[str, ...], place: int) -> range:
    start = place
    while start > max(0, place - _FURTHEST) and _REFERS_BACK.match(passages[start]):
        start -= 1
    return range(start, place + 1)


# --- web search ---

_ATTEMPTS = 3
_DEADLINE = 20.0
"""Seconds that one attempt may take."""
_LONGEST_WAIT = 30.0
_WORTH_ANOTHER = {408, 429, 500, 502, 503, 504}


class SearchError(Exception):
    """No result for one query; if `passing`, another attempt may succeed, after `retry_after` seconds if given."""

    def __init__(self, message: str, *, passing: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.passing, self.retry_after = passing, retry_after


class SearchProvider:
    """A provider of passages from the web; this one, for dry runs, makes up passages of a usual length."""

    name = "unsearched"
    """Identity of the provider: results are stored under it and reused for equal queries."""

    async def snippets(self, query: str, limit: int) -> list[str]:
        """At most `limit` passages, best first; a `SearchError` if this query cannot be answered, an `InputError` if
        none can be."""
        return [f"{number}: {'a passage that was not looked up ' * 6}" for number in range(limit)]


class Serper(SearchProvider):
    """Google's results by serper.dev, the provider that Factool uses.

    Args:
        key: By default from SERPER_API_KEY.
        url: Address of the service; by default from SERPER_API_BASE, else serper.dev's.
        pause: Approximate seconds before a second attempt; twice as many before a third. If the server says how long to
            wait, that is used, up to 30 s.
    """

    name = "serper"

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

    async def snippets(self, query: str, limit: int) -> list[str]:
        timeout = aiohttp.ClientTimeout(total=_DEADLINE)
        retrying = AsyncRetrying(
            retry=retry_if_exception(lambda error: isinstance(error, SearchError) and error.passing),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=RetryWait(self._pause, _LONGEST_WAIT),
            reraise=True,
        )
        async with aiohttp.ClientSession(timeout=timeout, headers={"X-API-KEY": self._key}) as session:
            return (await retrying(self._search, session, query, limit))[:limit]

    async def _search(self, session: aiohttp.ClientSession, query: str, limit: int) -> list[str]:
        try:
            # A redirect would send the key to another address.
            async with session.post(self._url, json={"q": query, "num": limit}, allow_redirects=False) as answer:
                if answer.status == 200:
                    return _passages(await answer.read())
        except (TimeoutError, aiohttp.ClientError) as error:
            raise SearchError(f"the web search failed ({type(error).__name__})", passing=True) from error
        problem = f"HTTP {answer.status}"
        if answer.status in (401, 402, 403):
            raise InputError(f"serper.dev refuses the key ({problem})", field="SERPER_API_KEY")
        again, wait = answer.status in _WORTH_ANOTHER, retry_after(answer.headers)
        raise SearchError(f"the web search failed ({problem})", passing=again, retry_after=wait)


def _passages(raw: bytes) -> list[str]:
    """The direct answer, the description of the thing that was asked about, then the pages' excerpts."""
    try:
        results: Any = json.loads(raw)
        direct, thing = results.get("answerBox") or {}, results.get("knowledgeGraph") or {}
        facts = [f"{name}: {value}" for name, value in (thing.get("attributes") or {}).items()]
        pages = [page.get("snippet") for page in results.get("organic") or ()]
        texts = [direct.get("answer"), direct.get("snippet"), thing.get("description"), *facts, *pages]
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise SearchError("the web search's answer is not in its usual form") from None
    return list(dict.fromkeys(text.strip() for text in texts if isinstance(text, str) and text.strip()))


async def stored_snippets(search: SearchProvider, query: str, limit: int) -> list[str]:
    """Search, or return what the same search found before: the web changes, and a resumed run needs the same
    evidence."""
    lm = dspy.settings.lm
    if not isinstance(lm, JudgeLM):
        return await search.snippets(query, limit)
    question = json.dumps(["search", search.name, query, limit])
    key = hashlib.blake2b(question.encode(), digest_size=16).hexdigest()

    async def find() -> Reply:
        return Reply(json.dumps(await search.snippets(query, limit), ensure_ascii=False))

    results: list[str] = json.loads((await lm.get_or_create(key, "search", find)).text)
    return results
