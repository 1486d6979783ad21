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
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

import dspy

from debate_judge.data.schema import Task
from debate_judge.data.sets.factuality import ANSWER_RULE
from debate_judge.programs.hallucination.search import MAX_SNIPPETS, Search, SearchError, stored_texts
from debate_judge.programs.judge import Item
from debate_judge.programs.roles import parsing
from debate_judge.programs.roles.examples import fit_tfidf
from debate_judge.programs.roles.role import Fields, ReplyFailure, Role, RoleReply

# --- claims ---

ResponseType = Literal["document", "answer", "dialogue", "claim"]

_TYPES_BY_WORD: tuple[tuple[str, ResponseType], ...] = (
    ("question", "answer"),
    ("prompt", "answer"),
    ("dialogue", "dialogue"),
    ("conversation", "dialogue"),
    ("chat", "dialogue"),
)
"""(word in the task's source label, type of the response)."""

_NUMBER_MARKER = re.compile(r"\(?\d{1,3}[.):]\s+")
_BULLET_MARKER = re.compile(r"[-*•]\s+")
_NONE = re.compile(r"[\W_]*(?:none|no claims?)[\W_]*", re.IGNORECASE)


def response_type_of(task: Task) -> ResponseType:
    """The type of a task's responses."""
    if task.candidate_label.lower() == "claim":
        return "claim"
    label = task.source_label.lower()
    return next((response_type for word, response_type in _TYPES_BY_WORD if word in label), "document")


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
) -> RoleReply[tuple[str, ...]] | ReplyFailure:
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
    lines = _json_list(text) if text.startswith("[") else _lines(text)
    if lines is None:
        return parsing.Unreadable("the claims looked like a JSON list but were not one of texts; give one claim a line")
    claims = tuple(dict.fromkeys(" ".join(line.split()) for line in lines if line.strip()))
    if not claims:
        return parsing.Unreadable("no claims were given; write NONE where the text states nothing")
    if len(claims) > max_claims:
        return parsing.Unreadable(
            f"there were {len(claims)} claims; give at most {max_claims}, joining what belongs together"
        )
    return claims


def _lines(text: str) -> list[str]:
    lines = [_BULLET_MARKER.sub("", line.strip(), count=1) for line in text.splitlines() if line.strip()]
    # Numbers are list markers only if all lines begin with one, because a claim may begin with a number.
    if all(_NUMBER_MARKER.match(line) for line in lines):
        return [_NUMBER_MARKER.sub("", line, count=1) for line in lines]
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
) -> RoleReply[Evidence] | ReplyFailure:
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
    if isinstance(queries, ReplyFailure):
        return queries
    if search is None or knowledge:
        # In a thread, because the first import or a long document would block all other debates.
        chosen = await asyncio.to_thread(most_similar, passages, queries.value, MAX_SNIPPETS)
        return RoleReply(Evidence("\n".join(chosen), RANKED, queries.value), queries.calls)
    try:
        results = await asyncio.gather(*(stored_texts(search_name, search, query) for query in queries.value))
    except SearchError as error:
        return ReplyFailure("search error", str(error), queries.calls)
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
