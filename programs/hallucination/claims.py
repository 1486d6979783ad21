"""Claim detection: extracts the statements of a response that can be true or false (Sun et al. 2024, 3.1, 4.1.2).

How depends on the form of the response, which follows from the task's label for the source: `answer` (to a question),
`dialogue` (a reply), `document` (anything made from a text, such as a summary). Candidates that the task calls claims
have the form `claim` and are used as they are.

A short answer is not a statement without its question, so the two form one claim (as in the paper's table 12).
`CHECKED_ANSWER` tells every checker that only the answer is under test.
"""

from __future__ import annotations

import json
import re
from typing import Literal

import dspy

from debate_judge.data.schema import Task
from debate_judge.data.sets.factuality import ANSWER_RULE
from debate_judge.programs.judge import Item
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.role import Fields, NoAnswer, Role, RoleReply

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
) -> RoleReply[tuple[str, ...]] | NoAnswer:
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
