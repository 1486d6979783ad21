"""Evidence for a claim (Sun et al. 2024, sections 3.2 and 4.1.2): given knowledge, its best sentences, or the web's.

Short knowledge is used as a whole. Of longer knowledge, the sentences most similar to one of two queries about the
claim are used. Without any knowledge, the two queries go to a search provider, if one is configured. The LM is asked
for queries only if they are used.
"""

from __future__ import annotations

import asyncio
import importlib.util
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import dspy

from debate_judge.data.errors import InputError, install_hint
from debate_judge.programs.hallucination.claims import Form
from debate_judge.programs.hallucination.web_search import SearchError, SearchProvider, kept
from debate_judge.programs.judge import Item
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.role import Fields, NoAnswer, Role, RoleReply

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


class QueryWriter(Role):
    """Writes the two queries; predictor name `queries.predict`."""

    def __init__(self) -> None:
        super().__init__("queries", Querying)

    async def about(self, item: Item, claim: str) -> RoleReply[tuple[str, str]] | NoAnswer:
        """Two queries about `claim`."""

        def read(fields: Fields) -> tuple[str, str] | replies.Unreadable:
            one, other = (" ".join(fields[name].split()) for name in ("query_1", "query_2"))
            return (one, other) if one and other else replies.Unreadable("two queries are needed")

        return await self.ask(item, read, inputs={"claim": replies.escape(claim)})


class Ranker(Protocol):
    """Measures how similar passages are to queries."""

    def similarities(self, passages: tuple[str, ...], queries: Sequence[str]) -> Any:
        """An array of shape (queries, passages); higher is more similar."""
        ...


class TfIdf:
    """Cosine of TF-IDF vectors over runs of 2 to 4 characters inside words, by scikit-learn.

    Parts of words match inflected forms (robbed, robbery), and work for languages without blanks between words.
    """

    def similarities(self, passages: tuple[str, ...], queries: Sequence[str]) -> Any:
        vectorizer, matrix = _fitted(passages)
        return (vectorizer.transform(queries) @ matrix.T).toarray()


@lru_cache(maxsize=256)
def _fitted(passages: tuple[str, ...]) -> tuple[Any, Any]:
    # Cached, because all claims of all candidates of a document use the same passages.
    from sklearn.feature_extraction.text import TfidfVectorizer  # type: ignore[import-untyped]

    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True)
    return vectorizer, vectorizer.fit_transform(passages)


class Dense:
    """Cosine of sentence embeddings, by sentence-transformers (the extra `dense`).

    Args:
        model: Name or folder of a model; it is loaded at the first use.
    """

    def __init__(self, model: str) -> None:
        self.model = model
        self._encoder: Any = None
        self._loading = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> Dense:
        # Tuners copy judges, and the model should be loaded only once.
        return self

    def similarities(self, passages: tuple[str, ...], queries: Sequence[str]) -> Any:
        encoder = self._load()
        vectors = encoder.encode([*queries, *passages], normalize_embeddings=True)
        return vectors[: len(queries)] @ vectors[len(queries) :].T

    def _load(self) -> Any:
        # Debates rank in threads, and their first rankings begin at once.
        with self._loading:
            if self._encoder is None:
                from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found,unused-ignore]

                self._encoder = SentenceTransformer(self.model)
        return self._encoder


def make_ranker(name: str) -> Ranker:
    """The ranker of a name: `tfidf`, or `dense:MODEL`.

    Raises:
        InputError: It is neither, or what a dense ranker needs is not installed.
    """
    kind, _, model = name.partition(":")
    if name == "tfidf":
        return TfIdf()
    if kind != "dense" or not model:
        raise InputError("unknown ranker", field="ranker", expected="tfidf or dense:MODEL", found=name)
    if importlib.util.find_spec("sentence_transformers") is None:
        raise InputError(
            "dense ranking needs sentence-transformers",
            field="ranker",
            remedy=f"{install_hint('dense')}, or choose ranker 'tfidf'",
        )
    return Dense(model)


def sentences(text: str) -> tuple[str, ...]:
    """The different sentences of a text, in order."""
    return tuple(dict.fromkeys(part.strip() for part in _END.split(text) if part.strip()))


def best(passages: tuple[str, ...], queries: Sequence[str], limit: int, ranker: Ranker) -> tuple[str, ...]:
    """The `limit` passages most similar to one of the queries, in their order.

    A passage that begins with a pronoun is preceded by the passages before it, back to one that does not, so that its
    subject is included.
    """
    if len(passages) <= limit:
        return passages
    similarity = ranker.similarities(passages, queries).max(axis=0)
    # Of equally similar passages the earlier one is chosen, so that the choice is deterministic.
    chosen = sorted(range(len(passages)), key=lambda i: (-float(similarity[i]), i))[:limit]
    return tuple(passages[i] for i in sorted({j for i in chosen for j in _with_subject(passages, i)}))


def _with_subject(passages: tuple[str, ...], place: int) -> range:
    start = place
    while start > max(0, place - _FURTHEST) and _REFERS_BACK.match(passages[start]):
        start -= 1
    return range(start, place + 1)


def knowledge(item: Item, form: Form) -> str:
    """The given texts to check the response with: all texts of the item except the response and a mere question."""
    parts = (item.context,) if form in ("answer", "claim") else (item.source, item.context)
    return "\n\n".join(part.strip() for part in parts if part.strip())


@dataclass(frozen=True)
class Gathering:
    """How evidence is found."""

    whole: int
    """Longest knowledge, in characters, that is used as a whole."""
    limit: int
    """Number of sentences or snippets that are used otherwise; sentences with their subjects come in addition."""
    ranker: Ranker
    search: SearchProvider | None

    async def evidence(self, item: Item, form: Form, claim: str, writer: QueryWriter) -> RoleReply[Evidence] | NoAnswer:
        """Find evidence about `claim`; `writer` is asked for queries if they are used."""
        given = knowledge(item, form)
        passages = sentences(given)
        if given and (len(given) <= self.whole or len(passages) <= self.limit):
            return RoleReply(Evidence(given, AS_GIVEN), 0)
        if not given and self.search is None:
            return RoleReply(Evidence("", NOTHING), 0)
        queries = await writer.about(item, claim)
        if isinstance(queries, NoAnswer):
            return queries
        if given:
            # In a thread, because fitting a long document, or the first import, would block all other debates.
            chosen = await asyncio.to_thread(best, passages, queries.value, self.limit, self.ranker)
            return RoleReply(Evidence("\n".join(chosen), RANKED, queries.value), queries.calls)
        return await self._searched(queries)

    async def _searched(self, queries: RoleReply[tuple[str, str]]) -> RoleReply[Evidence] | NoAnswer:
        if self.search is None:
            raise ValueError("there is no search provider")
        try:
            results = await asyncio.gather(*(kept(self.search, query, self.limit) for query in queries.value))
        except SearchError as error:
            return NoAnswer("search error", str(error), queries.calls)
        # Alternately, so that the second query contributes as much as the first.
        longest = max(map(len, results))
        mixed = [found[rank] for rank in range(longest) for found in results if rank < len(found)]
        chosen = list(dict.fromkeys(mixed))[: self.limit]
        how = SEARCHED if chosen else NOTHING
        return RoleReply(Evidence("\n".join(chosen), how, queries.value), queries.calls)
