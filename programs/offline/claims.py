"""The offline LM in the hallucination debate: claims are sentences, and support is words that the evidence has.

It knows nothing of the world. A claim counts as supported as far as its content words and numbers stand in the
evidence; negation, exchanged roles and paraphrase are not seen.
"""

from __future__ import annotations

import re

from debate_judge.programs.offline.prompt import Prompt
from debate_judge.programs.offline.readings.text import sentences, stem, values, words
from debate_judge.programs.offline.readings.words import STOP
from debate_judge.programs.offline.roles import LABEL

_ADDRESS = re.compile(r"\?|\b(?:i|i'm|i've|my|me|you|your|thanks|hello|hi)\b", re.IGNORECASE)
_MOST = re.compile(r"at most (\d+) claims")
_BEFORE = re.compile(r"^\w+, factuality (True|False), severity \d", re.MULTILINE)
_SEVEREST = 5

_PATIENCE = 0.4
"""Largest share of a claim's content words that may be missing from the evidence of a factual claim."""

_LEANING = 0.15
"""What Trust adds to that share after a factual verdict, and Skeptic subtracts."""


def select_facts(prompt: Prompt) -> dict[str, str]:
    """The sentences of a reply that neither ask a question nor mention the speakers."""
    kept = [sentence for sentence in sentences(prompt.input("candidate")) if not _ADDRESS.search(sentence)]
    return {"facts": " ".join(kept) or "NONE"}


def extract_claims(prompt: Prompt) -> dict[str, str]:
    """The sentences of a text; if there are too many, neighbours are joined."""
    found = [" ".join(sentence.split()) for sentence in sentences(prompt.input("candidate"))]
    size = -(-len(found) // most_claims(prompt))
    claims = [" ".join(found[i : i + size]) for i in range(0, len(found), max(1, size))]
    return {"claims": "\n".join(claims) or "NONE"}


def most_claims(prompt: Prompt) -> int:
    """How many claims the prompt allows."""
    told = _MOST.search(prompt.input("task"))
    return int(told[1]) if told else 1_000_000


def write_queries(prompt: Prompt) -> dict[str, str]:
    """All content words of a claim, and its longest ones."""
    content = _content(prompt.input("claim")) or ["claim"]
    longest = sorted(dict.fromkeys(content), key=lambda word: (-len(word), word))[:5]
    return {"query_1": " ".join(content), "query_2": " ".join(longest)}


def assess(prompt: Prompt) -> dict[str, str]:
    """An opinion about a claim by the evidence, or about a response, sentence by sentence, by the given texts."""
    claim = prompt.input("claim")
    ground = prompt.input("evidence") if claim else _given(prompt)
    stated = [claim] if claim else sentences(prompt.input("candidate"))
    known, numbers = {stem(word) for word in _content(ground)}, values(ground)
    if not known or not stated:
        return _view("nothing is given to check it with.", True, 0)
    readings = [(_missing(text, known), sorted(values(text) - numbers)) for text in stated]
    absent, unseen = max(readings)
    factual = absent <= _patience(prompt) and not unseen
    heard = set(_BEFORE.findall(prompt.input("debate")))
    if "Leader" in prompt.role and len(heard) == 1:
        factual = heard == {"True"}
    severity = round(_SEVEREST * absent) + bool(unseen)
    severity = min(severity, 3) if factual else max(1, min(severity, _SEVEREST))
    told = f"{1 - absent:.0%} of the content words stand in what is given"
    if unseen:
        told += f"; the number {unseen[0]} does not"
    return _view(f"{told}.", factual, severity)


def _given(prompt: Prompt) -> str:
    """The texts to compare a response with; a question is not one, because it says nothing about its answer."""
    source, context = prompt.input("source"), prompt.input("context")
    asks = re.search(r"^Source: (?:question|prompt)\b", prompt.input("task"))
    return context if asks else f"{source}\n{context}"


def _patience(prompt: Prompt) -> float:
    before = _BEFORE.findall(prompt.input("debate"))
    if "Skeptic agent" in prompt.role:
        return _PATIENCE - _LEANING
    if "Trust agent" in prompt.role and before:
        return _PATIENCE + (_LEANING if before[-1] == "True" else -_LEANING)
    return _PATIENCE


def _missing(text: str, known: set[str]) -> float:
    stems = {stem(word) for word in _content(text)}
    return len(stems - known) / len(stems) if stems else 0.0


def _content(text: str) -> list[str]:
    return [word for word in words(text) if word not in STOP]


def _view(told: str, factual: bool, severity: int) -> dict[str, str]:
    return {"opinion": LABEL + told, "factuality": str(factual), "severity": str(severity)}
