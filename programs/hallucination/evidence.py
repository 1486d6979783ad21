"""Claims and evidence (Sun et al. 2024, sections 3.1, 3.2 and 4.1.2).

Claims are the statements of a response that can be true or false. How they are extracted depends on the type of the
response, which follows from the task's label for the source: `answer` (to a question), `dialogue` (a reply), `document`
(anything made from a text, such as a summary). Candidates that the task calls claims have the type `claim` and are used
unchanged. A short answer is no statement without its question, so the two become one claim (as in the paper's table
12).

Evidence for a claim is the given knowledge as a whole if it is short; of longer knowledge, the sentences most similar
to one of two queries about the claim. Without any knowledge, the two queries go to a search, if the judge has one: any
function from a query to texts. The LM is asked for queries only if they are used.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from itertools import zip_longest
from typing import Any, Literal

import aiohttp
import dspy

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Task
from debate_judge.data.tasks import ANSWER_RULE
from debate_judge.programs import parsing
from debate_judge.programs.examples import fit_tfidf
from debate_judge.programs.judge import Failure, Item
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.programs.lm.limits import retry_after
from debate_judge.programs.lm.replies import Reply
from debate_judge.programs.lm.settings import redact_text
from debate_judge.programs.role import Fields, Role, RoleReply

# --- searches: any function from a query to texts, and one of the web ---

MAX_SNIPPETS = 10
"""Maximum number of sentences of longer knowledge, or of texts that were found, that are evidence for a claim, without
the sentences that are added because they name the subject."""

Search = Callable[[str], Sequence[str] | Awaitable[Sequence[str]]]
"""From a query to texts, the best first; at most `MAX_SNIPPETS` are used. What it raises leaves the item unscored, but
an `InputError` ends the run."""

_DEADLINE = 20.0
"""Seconds that one attempt may take."""


class SearchError(Exception):
    """A query without a result."""


class Serper:
    """A search of Google's results by serper.dev, the provider that Factool uses; up to three attempts.

    Args:
        key: By default from SERPER_API_KEY.
        url: Address of the service; by default from SERPER_API_BASE, else serper.dev's.
        pause: Approximate seconds before a second attempt; twice as many before a third. A wait that the server asks
            for is used instead, up to 30 s.
    """

    def __init__(self, key: str | None = None, url: str | None = None, pause: float = 1.0) -> None:
        self._key = key or os.environ.get("SERPER_API_KEY") or ""
        self._url = (url or os.environ.get("SERPER_API_BASE") or "https://google.serper.dev").rstrip("/") + "/search"
        self._pauses = pause, 2 * pause
        if not self._key:
            raise InputError(
                "web search by serper.dev needs a key",
                field="search",
                remedy="set SERPER_API_KEY, or judge without web search (search: none)",
            )

    async def __call__(self, query: str) -> list[str]:
        body, problem = {"q": query, "num": MAX_SNIPPETS}, ""
        timeout = aiohttp.ClientTimeout(total=_DEADLINE)
        async with aiohttp.ClientSession(timeout=timeout, headers={"X-API-KEY": self._key}) as session:
            for pause in (*self._pauses, None):
                wait: float | None = None
                try:
                    # A redirect would send the key to another address.
                    async with session.post(self._url, json=body, allow_redirects=False) as response:
                        if response.status == 200:
                            return _passages(await response.read())
                    problem = f"HTTP {response.status}"
                    if response.status in (401, 402, 403):
                        raise InputError(f"serper.dev refuses the key ({problem})", field="SERPER_API_KEY")
                    if response.status not in (408, 429, 500, 502, 503, 504):
                        break
                    wait = retry_after(response.headers)
                except (TimeoutError, aiohttp.ClientError) as error:
                    problem = type(error).__name__
                if pause is not None:
                    await asyncio.sleep(pause * random.uniform(0.5, 1.5) if wait is None else min(wait, 30.0))
        raise SearchError(f"the web search failed ({problem})")


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

    async def find() -> Reply:
        try:
            # In a thread, because a function that waits would block all other debates.
            found = await asyncio.to_thread(search, query)
            found = await found if isawaitable(found) else found
            texts = list(found)
        except (InputError, SearchError):
            raise
        except Exception as error:
            raise SearchError(f"the search failed ({type(error).__name__}: {redact_text(str(error))})") from error
        if isinstance(found, str) or not all(isinstance(text, str) for text in texts):
            raise SearchError("the search did not return a list of texts")
        return Reply(json.dumps(texts[:MAX_SNIPPETS], ensure_ascii=False))

    lm = dspy.settings.lm
    key = hashlib.blake2b(json.dumps(["search", name, query, MAX_SNIPPETS]).encode(), digest_size=16).hexdigest()
    reply = await (lm.get_or_create(key, "search", find) if isinstance(lm, JudgeLM) else find())
    stored: list[str] = json.loads(reply.text)
    return stored


# --- claims ---

ResponseType = Literal["document", "answer", "dialogue", "claim"]

_TYPES_BY_WORD: Mapping[str, ResponseType] = {
    "question": "answer", "prompt": "answer", "dialogue": "dialogue", "conversation": "dialogue", "chat": "dialogue",
}  # fmt: skip
"""Word in the task's source label -> type of the response."""

_NUMBER_MARKER = re.compile(r"\(?\d{1,3}[.):]\s+")
_BULLET_MARKER = re.compile(r"[-*•]\s+")
_NONE = re.compile(r"[\W_]*(?:none|no claims?)[\W_]*", re.IGNORECASE)


def response_type_of(task: Task) -> ResponseType:
    """The type of a task's responses."""
    if task.candidate_label.lower() == "claim":
        return "claim"
    label = task.source_label.lower()
    return next((response_type for word, response_type in _TYPES_BY_WORD.items() if word in label), "document")


ANSWER_NOTE = f"{ANSWER_RULE} What is true but not what was asked for has a severity of 1 or 2."
"""A note in every prompt that checks an answer to a question."""


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


def parse_facts(fields: Fields) -> str | parsing.Unreadable:
    """Parse the checkable part of a reply; empty if all of it is subjective."""
    text = fields["facts"].strip()
    if not text:
        return parsing.Unreadable("the field 'facts' was empty; write NONE where nothing is left")
    return "" if _NONE.fullmatch(text) else text


async def extract_claims(
    role: Role, item: Item, text: str, response_type: ResponseType, max_claims: int
) -> RoleReply[tuple[str, ...]] | Failure:
    """Extract at most `max_claims` claims from `text`, which is the item's candidate or its checkable part.

    The source of a `document` is not shown, so that claims state what the text says and not what it should say.
    """
    task = f"Candidate: {item.task.candidate_label}. It is taken apart into at most {max_claims} claims."
    if response_type != "document":
        task = f"Source: {item.task.source_label}. {task}"
    inputs = {"task": parsing.escape_cached(task), "candidate": parsing.escape(text)}
    if response_type == "document":
        inputs["source"] = ""
    return await role.ask(item, lambda fields: parse_claims(fields["claims"], max_claims), inputs=inputs)


def parse_claims(text: str, max_claims: int) -> tuple[str, ...] | parsing.Unreadable:
    """Parse a list of claims: a claim on each line, with or without bullets or numbers, or a JSON list; NONE is empty.

    A longer list than `max_claims` is refused and not cut, because a missing claim could be the false one.
    """
    text = text.strip()
    if _NONE.fullmatch(text):
        return ()
    if text.startswith("["):
        try:
            values = json.loads(text, strict=False)
            lines = [value["claim"] if isinstance(value, dict) else value for value in values]
            lines = [line.strip() for line in lines]
        except (ValueError, KeyError, AttributeError, RecursionError):
            problem = "the claims looked like a JSON list but were not one of texts; give one claim a line"
            return parsing.Unreadable(problem)
    else:
        lines = [_BULLET_MARKER.sub("", line.strip(), count=1) for line in text.splitlines() if line.strip()]
        # Numbers are list markers only if all lines begin with one, because a claim may begin with a number.
        if all(map(_NUMBER_MARKER.match, lines)):
            lines = [_NUMBER_MARKER.sub("", line, count=1) for line in lines]
    claims = tuple(dict.fromkeys(" ".join(line.split()) for line in lines if line.strip()))
    if not claims:
        return parsing.Unreadable("no claims were given; write NONE where the text states nothing")
    if len(claims) > max_claims:
        return parsing.Unreadable(
            f"there were {len(claims)} claims; give at most {max_claims}, joining what belongs together"
        )
    return claims


# --- evidence ---

AS_GIVEN, RANKED, SEARCHED, NOTHING = "as given", "ranked", "searched", "nothing"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The text that a claim is checked against, and how it was found."""

    text: str
    method: str
    """`AS_GIVEN`, `RANKED`, `SEARCHED` or `NOTHING`."""
    queries: tuple[str, ...] = ()

    def __str__(self) -> str:
        """For transcripts, which need no copy of given evidence for every claim."""
        queries = " for " + " and ".join(map(repr, self.queries)) if self.queries else ""
        return f"{self.method}{queries}" + ("" if self.method == AS_GIVEN else f"\n{self.text}")


class Querying(dspy.Signature):
    """You look for evidence about a claim. Write two search queries that together find what would confirm the claim
    or refute it. The first asks for the fact itself, worded so that the answer is open; the second goes about it in
    another way, by other words or by another party, place or time that the claim names. Do not presume that the
    claim is true."""

    claim: str = dspy.InputField()
    correction: str = dspy.InputField(default="")
    query_1: str = dspy.OutputField(desc="one line, the query and nothing else")
    query_2: str = dspy.OutputField(desc="one line, another query and nothing else")


def _parse_queries(fields: Fields) -> tuple[str, str] | parsing.Unreadable:
    first, second = (" ".join(fields[name].split()) for name in ("query_1", "query_2"))
    return (first, second) if first and second else parsing.Unreadable("two queries are needed")


MAX_WHOLE_KNOWLEDGE = 1500
"""Maximum length of knowledge, in characters, that is used as evidence in full."""


async def find_evidence(
    item: Item, claim: str, query_writer: Role, search_name: str, search: Search | None
) -> RoleReply[Evidence] | Failure:
    """Find evidence about a claim of the item's response; the `query_writer` is asked only if queries are used."""
    # All texts of the item except the response, and except a question.
    is_question = response_type_of(item.task) in ("answer", "claim")
    parts = (item.context,) if is_question else (item.source, item.context)
    knowledge = "\n\n".join(part.strip() for part in parts if part.strip())
    passages = sentences(knowledge)
    if knowledge and (len(knowledge) <= MAX_WHOLE_KNOWLEDGE or len(passages) <= MAX_SNIPPETS):
        return RoleReply(Evidence(knowledge, AS_GIVEN), 0)
    if not knowledge and search is None:
        return RoleReply(Evidence("", NOTHING), 0)
    queries = await query_writer.ask(item, _parse_queries, inputs={"claim": parsing.escape(claim)})
    if isinstance(queries, Failure):
        return queries
    if search is None or knowledge:
        # In a thread, because the first import or a long document would block all other debates.
        chosen = await asyncio.to_thread(most_similar, passages, queries.value, MAX_SNIPPETS)
        return RoleReply(Evidence("\n".join(chosen), RANKED, queries.value), queries.calls)
    try:
        results = await asyncio.gather(*(stored_texts(search_name, search, query) for query in queries.value))
    except SearchError as error:
        return Failure("evidence", 0, "search error", str(error), queries.calls)
    # Alternately, so that the second query contributes as much as the first.
    alternating = [snippet for rank in zip_longest(*results) for snippet in rank if snippet is not None]
    snippets = list(dict.fromkeys(alternating))[:MAX_SNIPPETS]
    evidence = Evidence("\n".join(snippets), SEARCHED if snippets else NOTHING, queries.value)
    return RoleReply(evidence, queries.calls)


# --- the most similar sentences of a text ---

# A sentence ends before a space, or, in texts that were joined without one, before a capital letter; but not after a
# capital letter, which keeps most initials and abbreviations such as U.S. in one piece.
_SENTENCE_END = re.compile(r"\n+|(?<=[.!?])\s+|(?<=[.!?][\"'”’)\]])\s+|(?<=[a-z0-9)\]][.!?])(?=[A-Z\[])")

_BEGINS_WITH_PRONOUN = re.compile(
    r"[\"“'‘(\[]*(?:he|she|it|they|his|hers?|its|theirs?|this|that|these|those|both|the (?:former|latter))\b",
    re.IGNORECASE,
)
"""The beginning of an English sentence whose subject is in an earlier sentence."""

_MAX_SENTENCES_BACK = 3
"""Maximum number of earlier sentences that are added for a subject."""


def sentences(text: str) -> tuple[str, ...]:
    """The different sentences of a text, in order."""
    return tuple(dict.fromkeys(part.strip() for part in _SENTENCE_END.split(text) if part.strip()))


def most_similar(passages: tuple[str, ...], queries: Sequence[str], limit: int) -> tuple[str, ...]:
    """The `limit` passages most similar to one of the queries by the cosine of TF-IDF vectors, in their order.

    A passage that begins with a pronoun is returned with the passages before it, back to one that does not, which
    should name the subject.
    """
    if len(passages) <= limit:
        return passages
    vectorizer, matrix = fit_tfidf(passages)
    similarity = (vectorizer.transform(queries) @ matrix.T).toarray().max(axis=0)
    # Of equally similar passages the earlier one, so that the choice is deterministic.
    chosen = sorted(range(len(passages)), key=lambda i: (-float(similarity[i]), i))[:limit]
    return tuple(passages[i] for i in sorted({j for i in chosen for j in _with_subject(passages, i)}))


def _with_subject(passages: tuple[str, ...], index: int) -> range:
    start = index
    while start > max(0, index - _MAX_SENTENCES_BACK) and _BEGINS_WITH_PRONOUN.match(passages[start]):
        start -= 1
    return range(start, index + 1)
