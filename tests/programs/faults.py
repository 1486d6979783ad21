"""Items, their answers, and faults of a server, for whole debates against one that misbehaves."""

from __future__ import annotations

import re

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import Item, Judgement, Verdict
from debate_judge.programs.lm.engine import JudgeLM, LMOptions, ReplyStore
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner import JudgeRunner
from tests.faulty_server import FaultyServer
from tests.programs.debates import issue_reply, no_issue_reply, score_reply

ASPECT = Aspect("clarity", "Is the text easy to follow?", Scale(1, 5))
TASK = Task("notes", "letter", "note", (ASPECT,))
SHORT_WAITS = LMOptions(attempt_timeout=60.0, first_wait=0.01, max_wait=0.2, retries=8)
"""Waits short enough for a test. A real provider deserves the defaults.

An attempt has all the time it wants: an answer that comes after its attempt was given up is paid for and asked for
again, and a busy machine may stand still for longer than any limit that suits a test. Where a server never answers,
the test states a limit of its own, and does not count answers.
"""


def items(count: int) -> list[Item]:
    return [Item(str(i), "c", TASK, ASPECT, f"Letter-{i}", f"Note {i}.") for i in range(count)]


def answer(body: bytes) -> str:
    """The Critic objects to every second letter, once; scores depend on the letter and on the debate so far."""
    number = re.search(rb"Letter-(\d+)", body)
    if number is None:
        return "OK"
    letter = int(number[1])
    heard = body.count(b"Critic, round ")
    if b"## feedback ##" in body:
        return issue_reply() if letter % 2 and not heard else no_issue_reply()
    return score_reply(1 + (letter * 7 + heard) % 5)


def judge(lm: JudgeLM, items: list[Item], rounds: int = 1) -> list[Judgement]:
    with JudgeRunner(lm, progress=False) as runner:
        return runner.judge(Debate(rounds=rounds), items)


def lm_at(
    server: FaultyServer, *, store: ReplyStore | None = None, options: LMOptions = SHORT_WAITS, concurrency: int = 32
) -> JudgeLM:
    return make_lm("openai/mock", api_base=server.url, store=store, options=options, concurrency=concurrency)


def expected(item: Item) -> int:
    """The score of `answer` after one round: revised once where the Critic objects."""
    letter = int(item.group)
    return 1 + (letter * 7 + letter % 2) % 5


def scores(judgements: list[Judgement]) -> list[float | None]:
    return [j.score if isinstance(j, Verdict) else None for j in judgements]
