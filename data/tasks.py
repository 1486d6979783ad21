"""The built-in tasks: summaries of articles, replies in a dialogue and answers that were compared, with rubrics in our
own words.

The aspects and scales are those of the most used benchmarks of judges, SummEval (Fabbri et al. 2021) and USR's ratings
of Topical-Chat (Mehri and Eskenazi 2020). Other tasks come from task files.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files import formats
from debate_judge.data.files.columns import AspectColumns, ColumnNames
from debate_judge.data.files.records import ClosedModel, Number, Record, Text, validated
from debate_judge.data.schema import Aspect, Scale, Task

_FIVE_POINTS = Scale(1, 5)
_THREE_POINTS = Scale(1, 3)
_YES_NO = Scale(0, 1)

SUMMARIZATION = Task(
    name="summarization",
    source_label="news article",
    candidate_label="summary",
    aspects=(
        Aspect(
            "coherence",
            "How well the summary holds together as one text. Look at how the sentences connect: whether each follows "
            "from what came before, the order is sensible, and pronouns, connectives and names point to something that "
            "the summary itself has said. Saying a thing again in the same words breaks the thread; taking it up with "
            "something new does not, nor does a person who enters late and is introduced. True or false, important or "
            "not, well worded or not, short or long, copied or not: none of this counts here, and a sentence that "
            "breaks off or makes no sense counts as far as it breaks the thread. A single sentence is judged by "
            "whether it makes one complete thought that leans on nothing unsaid. 1 is a heap of sentences with no "
            "thread, or makes no sense; 2 has a topic, but most sentences stand unconnected or say the same; 3 can be "
            "followed, but the thread is lost once: by a stray sentence, a wrong order, or an opening on something "
            "that is never introduced; 4 has a rough joint or a repetition that does not stop the reader; 5 leads from "
            "its main point through its details as one organised whole.",
            _FIVE_POINTS,
        ),
        Aspect(
            "consistency",
            "Whether the source supports what the summary says. Check every statement, number, name and who-did-what "
            "against the source; what contradicts it, or cannot be found in it, is an error even if it may be true in "
            "the world. Captions and other passages beside the running text belong to the source. Sentences are taken "
            "at their word: one that is garbled or cut off is an error only where what stands there says something "
            "false. Words copied from the source are supported, unless their order or what was left out between them "
            "turns the sense. Omissions, style, grammar and order do not count. 1 is mostly contradicted or invented; "
            "2 is wrong in its main or only statement, by the person or the outcome, or in several others; 3 has its "
            "main statement right and one serious error beside it, such as an event or a quotation that the source "
            "does not have; 4 has a slip that changes little, such as a hope or a request told as a fact; 5 says "
            "nothing that the source does not.",
            _FIVE_POINTS,
        ),
        Aspect(
            "fluency",
            "The language of the summary, sentence by sentence. Look for broken grammar, fragments, words that are "
            "misspelt, missing, doubled or cut off, sentences that run into one another without a stop, wrong "
            "punctuation, damaged characters, and sentences that parse but mean nothing. Whether an error was copied "
            "from somewhere makes no difference. Lower-casing, blanks around punctuation, labels of speakers and other "
            "traces of processing are no errors, and content, the order of sentences, how they connect and whether a "
            "sentence is repeated do not count. 1 can hardly be read because of its errors; 2 has broken or garbled "
            "sentences in most places, or consists of one; 3 has one broken or garbled sentence among few, or several "
            "errors that disturb; 4 has slips that do not disturb, such as a missing article, helper verb or stop, or "
            "a wrong preposition, or one garbled sentence in a long clean text; 5 reads like edited prose.",
            _FIVE_POINTS,
            source=False,
        ),
        Aspect(
            "relevance",
            "Whether the summary picks what matters in the source. Settle first what the source is chiefly about, who "
            "did what, with what outcome and under which important circumstances, then see how much of that is there "
            "and how much room goes to side issues, repetition or filler. A short summary that has the main matter is "
            "not worse than a long one, and details that support it are no padding, wherever in the source they stand "
            "and whether or not they are copied; grammar and connection do not count. A wrong fact counts only as a "
            "main point that is missing, and so does one that is turned round. 1 misses the main matter or is filled "
            "with trivia; 2 only touches it; 3 has some main points and leaves out or buries others; 4 has the main "
            "matter and lacks one circumstance, or carries one idle detail; 5 has all main points and no idle detail.",
            _FIVE_POINTS,
        ),
    ),
)

DIALOGUE = Task(
    name="dialogue",
    source_label="dialogue history",
    candidate_label="reply",
    context_label="fact",
    aspects=(
        Aspect(
            "naturalness",
            "Whether a person could have said the reply at this point of the conversation. Look for wording that "
            "people do not use: loops, broken or mechanical sentences, a speaker who forgets who is who. Whether the "
            "reply is true, interesting or to the point does not count, nor do lower-casing and blanks around "
            "punctuation. 1 would not come from a person; 2 could, but is odd in places; 3 sounds like ordinary talk.",
            _THREE_POINTS,
        ),
        Aspect(
            "coherence",
            "Whether the reply continues this dialogue. Look first whether the last turn is answered or taken up, then "
            "whether the reply fits what was said before, without contradicting or repeating it; a change of subject "
            "that takes up something said is a continuation. Style, facts and how interesting the reply is do not "
            "count. 1 ignores or contradicts the dialogue; 2 touches its topic but misses the point of the last turn; "
            "3 follows from it directly.",
            _THREE_POINTS,
        ),
        Aspect(
            "engagingness",
            "Whether the reply makes the other person want to go on talking. Specific information, an opinion, "
            "humour or a good question raise it; stock phrases, bare agreement and repetition lower it. Small errors "
            "of language and of fact do not count, and length alone is no merit. 1 is dull and could stand in any "
            "conversation; 2 is acceptable without adding much; 3 is interesting.",
            _THREE_POINTS,
        ),
        Aspect(
            "groundedness",
            "Whether the reply makes use of the given fact. Look for content of the fact that the dialogue did not "
            "have yet: a detail, a name, a number, also in other words. How well it is said, and whether other things "
            "that the reply says are true, does not count. 0 uses nothing of the fact or only shares its topic; 1 "
            "clearly uses it. Where no fact is given there is none to miss, and the reply gets 1.",
            _YES_NO,
        ),
        Aspect(
            "understandability",
            "Whether one can tell, knowing the dialogue, what the reply means. Look for references that lead "
            "nowhere and sentences whose sense cannot be made out. A dull, false, odd or off-topic reply can be "
            "perfectly understandable, and slips of grammar count only where they hide the sense. 0 leaves the "
            "reader guessing; 1 is clear.",
            _YES_NO,
        ),
        Aspect(
            "overall",
            "How good the reply is as the next turn, all in all. Weigh whether it makes sense here, sounds human, "
            "carries the conversation on and uses the fact well; a serious failure in one of these outweighs small "
            "merits in the others. Slips that no one would notice in talk do not count. 1 is a very bad reply; 2 is "
            "poor: it fails in one of these plainly; 3 is passable but forgettable or flawed; 4 is good with a small "
            "weakness; 5 is what a good partner in this conversation would have said.",
            _FIVE_POINTS,
        ),
    ),
)

PAIRS = Task(
    name="pairs",
    source_label="question",
    candidate_label="answer",
    aspects=(
        Aspect(
            "preference",
            "How good the answer is as a whole, so that it would be preferred to another answer or not. Weigh how "
            "helpful it is for this question, whether it stays with it, whether it is accurate, and whether it goes as "
            "deep as the question wants; mere length is no merit. The lower end of the scale is an answer that would "
            "lose against most others, its middle one that is level with them, its upper end one that would win.",
            Scale(0, 1, 0.5),
        ),
    ),
)
"""Compared texts: their ratings are wins, losses and ties."""

TASKS: dict[str, Task] = {task.name: task for task in (SUMMARIZATION, DIALOGUE, PAIRS)}


RESERVED = frozenset({"group", "source", "candidate", "text", "context", "reference", "task"})
"""Columns of tables that never hold ratings; aspects cannot have these names."""


def find_task(name: str, folder: Path | None = None) -> Task:
    """The task called `name`: a built-in one, or a file ending in .toml (relative to `folder`).

    Raises:
        InputError: There is no such task, or its file cannot be used.
    """
    if name in TASKS:
        return TASKS[name]
    path = (folder or Path()) / name
    # os.path.exists, because Path.exists raises for a name that is too long, and records may hold any name.
    if path.suffix == ".toml" and os.path.exists(path):
        return read_task(path)
    near = [*TASKS, *(p.name for p in path.parent.glob("*.toml"))]
    raise InputError(
        "no such task file" if path.suffix == ".toml" else f"unknown task {name!r}",
        expected=", ".join(TASKS) + " or the path of a task file (.toml)",
        found=str(path) if path.suffix == ".toml" else name,
        remedy=did_you_mean(path.name, near),
    )


def read_task(path: str | Path) -> Task:
    """Read a task file.

    Raises:
        InputError: With the field, or with the line if the file is not valid TOML.
    """
    return task_of(formats.toml(Path(path), "task file"))


def task_of(record: Record) -> Task:
    """The task in a record with the fields of a task file."""
    file = validated(_TaskFile, record)
    columns: dict[str, Any] = dict(file.columns)
    where = Record({}, record.file, path="columns", format="toml")
    for name, aspect in file.aspects.items():
        found = aspect.model_dump(include=set(AspectColumns.model_fields), exclude_defaults=True)
        if found:
            columns.setdefault("aspects", {})[name] = found
    mapping = ColumnNames.of(columns, where, optional=True)
    _ = mapping.verdicts
    if unknown := [name for name in mapping.aspects if name not in file.aspects]:
        near = did_you_mean(unknown[0], [*file.aspects, *ColumnNames.model_fields])
        raise where.error(f"{unknown[0]!r} is neither a column nor an aspect", unknown[0], remedy=near)
    return Task(
        file.name.strip(),
        file.source_label.strip(),
        file.candidate_label.strip(),
        tuple(Aspect(name, a.definition.strip(), a.scale, a.source) for name, a in file.aspects.items()),
        file.context_label.strip(),
        mapping.to_table(),
    )


def usable_name(name: str) -> bool:
    """Whether an aspect may have this name: names become columns of tables and parts of metric names."""
    return name not in RESERVED and re.fullmatch(r"\w[\w .-]*", name) is not None


def _require_usable(name: str) -> str:
    if not usable_name(name):
        raise InputError(
            f"{name!r} cannot be the name of an aspect",
            expected="letters, digits, _, -, . and blanks, and none of " + ", ".join(sorted(RESERVED)),
        )
    return name


class _AspectTable(AspectColumns):
    definition: Text
    low: Number
    high: Number
    step: Number | None = None
    source: bool = True

    @property
    def scale(self) -> Scale:
        # If a step is stated, scores are rounded to it; else unrounded scores agree best with mean ratings.
        return Scale(self.low, self.high, 1.0 if self.step is None else self.step, self.step is not None)

    @model_validator(mode="after")
    def _has_a_scale(self) -> Self:
        _ = self.scale
        return self


class _TaskFile(ClosedModel):
    name: Text
    source_label: Text
    candidate_label: Text
    context_label: Text = "background"
    aspects: dict[Annotated[str, AfterValidator(_require_usable)], _AspectTable] = Field(min_length=1)
    columns: dict[str, Any] = Field(default_factory=dict)


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
