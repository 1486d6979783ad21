"""The aspect that hallucination sets are labelled for, and the tasks that use it."""

from __future__ import annotations

from dataclasses import replace

from debate_judge.data.schema import Aspect, Scale, Task

FACTUALITY = Aspect(
    "factuality",
    "Whether all that is stated is factual. Check every statement, names, numbers, dates and who did what included, "
    "against what is given and, where nothing is given, against what is known. 1 means that everything holds; 0 "
    "that at least one statement is contradicted, made up or without support. Opinions, style and omissions do not "
    "count.",
    Scale(0, 1),
)
"""Binary: 1 is factual, 0 is hallucinated."""

ANSWER_RULE = (
    "Under test is what the answer says to the question. What the question takes for granted is not, unless the answer "
    "asserts it too. A short answer is given as what was asked for: if it is true in itself but evades the question, "
    "speaks of something else or is less exact than was asked, it is not factual. To say that one does not know is."
)
"""Premises of a question do not count, and evasive answers are not factual: HaluEval labels answers that are true but
too general as hallucinated."""

ANSWERS = Task(
    "question-answering",
    "question",
    "answer",
    (replace(FACTUALITY, definition=f"{FACTUALITY.definition} {ANSWER_RULE}"),),
    "knowledge",
)
REPLIES = Task("dialogue-factuality", "dialogue history", "reply", (FACTUALITY,), "knowledge")
SUMMARIES = Task("summary-factuality", "document", "summary", (FACTUALITY,))
CLAIMS = Task("claim-factuality", "prompt", "claim", (FACTUALITY,))


def factuality_ratings(factual: bool) -> dict[str, tuple[float, ...]]:
    """The ratings of a candidate with one label."""
    return {FACTUALITY.name: (1.0 if factual else 0.0,)}
