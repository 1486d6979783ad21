"""The project's own debates over a corpus, against an LM that is played, on simulated time: what is sent, and when."""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import zlib
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from debate_judge.data.schema import Corpus
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, corpus_items
from debate_judge.programs.lm import loop
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.reply import Messages, Reply
from debate_judge.programs.roles.parsing import REQUEST
from debate_judge.runs.runner.runner import JudgeRunner, verdicts
from debate_judge.runs.runner.streaming import group_items, judge_in_order

ROUNDS = 3

Parts = dict[str, str]
"""The pieces of a request in the order in which they are sent: `system`, the headers of the message, `request`."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call as the LM saw it, with the times at which it was sent and answered."""

    sent: float
    answered: float
    parts: Parts


def parts(messages: Messages) -> Parts:
    """Take a request of the project's apart, at places where a tokenizer takes it apart too.

    `alone` is not sent: it is what the role would be told if nothing were told to all roles.
    """
    body, _, request = str(messages[-1]["content"]).rpartition(REQUEST)
    pieces = {"system": f"<|system|>\n{messages[0]['content']}\n<|user|>\n"}
    for section in re.split(r"(?<=\n\n)(?=\[\[ ## )", body):
        pieces[section[len("[[ ## ") :].partition(" ")[0]] = section
    alone = pieces["role"] + pieces.get("standard", "") + pieces.get("rules", "")
    return {**pieces, "request": REQUEST + request, "alone": alone}


class Clockwork(loop._Loop):
    """An event loop whose clock jumps to the next timer when nothing else is left to do."""

    GRACE = 0.001
    """Real seconds in which other threads may still bring work."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        selector: Any = self._selector
        wait = selector.select

        def select(timeout: float | None) -> Any:
            events = wait(timeout if timeout is None else min(timeout, self.GRACE))
            if not events and timeout:
                self._now += timeout
            return events

        selector.select = select

    def time(self) -> float:
        return self._now


class PlayedLM:
    """An engine that answers by the material alone, each call after one unit of time, and notes what was asked."""

    def __init__(self, words: tuple[int, int]) -> None:
        self.requests: list[Request] = []
        self._words = words

    async def chat(self, model: str, messages: Messages, settings: Any) -> Reply:
        clock, pieces = asyncio.get_running_loop().time, parts(messages)
        sent = clock()
        await asyncio.sleep(1.0)
        self.requests.append(Request(sent, clock(), pieces))
        return Reply(self._reply(pieces))

    async def aclose(self) -> None: ...

    def _reply(self, pieces: Parts) -> str:
        item = "".join(pieces.get(name, "") for name in ("source", "context", "aspect", "candidate"))
        debate, source = pieces.get("debate", ""), pieces["source"].split()[4:]
        rng = random.Random(item + debate + pieces["request"])

        def text() -> str:
            size = rng.randint(*self._words)
            start = rng.randrange(max(1, len(source) - size))
            return " ".join((source * size)[start : start + size])

        heard = debate.count("\n\nScorer, round") + debate.startswith("Scorer, round")
        content = heard > zlib.crc32(item.encode()) % (ROUNDS + 1)
        score = re.findall(r"\((-?[\d.]+) to", pieces["aspect"])[0]
        known = {"score": score, "final_score": score, "decision": "NO ISSUE" if content else "ISSUE"}
        fields = re.findall(r"^\[\[ ## (\w+) ## \]\]$", pieces["request"], re.MULTILINE)
        return "\n\n".join(f"[[ ## {field} ## ]]\n{known.get(field) or text()}" for field in fields)


def run(corpus: Corpus, arguments: argparse.Namespace, concurrency: int, prefix_warmup: bool = True) -> list[Request]:
    """Let the project judge the corpus, and see what it sends and when."""
    low, _, high = arguments.words.partition("-")
    played = PlayedLM((int(low), int(high or low)))
    lm = JudgeLM("played/lm", engine=played, concurrency=concurrency)
    if not prefix_warmup:
        lm.recorded_engine._warmup = None
    aspects = corpus.task.aspects[: arguments.aspects]
    judge = Debate(debate_config=DebateConfig(arguments.rounds, arguments.rounds > 0))
    with (
        patch.dict(loop._loops, clear=True),
        patch.object(loop, "_Loop", Clockwork),
        JudgeRunner(lm, progress=False) as preamble,
    ):
        if arguments.order == "score":
            compiled = CompiledJudge(corpus.task, {a.name: AspectJudge(judge) for a in aspects})
            items = (item for group in corpus.groups for item in group_items(corpus.task, group, aspects))
            judgements = [judgement for _, judgement in judge_in_order(preamble, compiled, items)]
        else:
            judgements = [j for a in aspects for j in preamble.judge(judge, corpus_items(corpus, a))]
    if len(verdicts(judgements)) != len(judgements):
        raise RuntimeError("a reply could not be read")
    return played.requests
