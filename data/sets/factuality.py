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
    "Under test is what the answer says to the question. What the question takes for granted is not, unless "
    "the answer asserts it too. A true answer that evades the question, or says less than was asked, is factual; what "
    "is true of something else than was asked for, and given as the answer, is not."
)
"""Whether the premises of a question count, and what becomes of evasive answers."""

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


def rated(factual: bool) -> dict[str, tuple[float, ...]]:
    """The ratings of a candidate with one label."""
    return {FACTUALITY.name: (1.0 if factual else 0.0,)}
