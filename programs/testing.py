"""Helpers to test a judge of your own: `check_judge` checks the contract, `scripted_lm` is an LM with given replies.

def test_my_judge() -> None:
    check_judge(MyJudge())

lm = scripted_lm(in_turn(["[[ ## score ## ]]\\n4"]))
with dspy.context(lm=lm):
    [verdict] = asyncio.run(MyJudge().judge(sample_items()[:1]))
assert len(lm.prompts) == 1
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import dspy

from debate_judge import data
from debate_judge.programs import judge_class
from debate_judge.programs.judge import Item, Judge, Judgement, Verdict, items_of
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.programs.lm.replies import LocalTransport, Messages, Reply
from debate_judge.programs.make_lm import make_lm

Script = Callable[[str], str]
"""Text of the last user message -> reply. It may raise what a transport may raise."""


def sample_items() -> list[Item]:
    """Six items about one article of the sample: three candidates in two aspects."""
    corpus = data.load("sample")
    aspects = (corpus.task.aspects[0], corpus.task.aspects[-1])
    return [item for aspect in aspects for item in items_of(corpus.task, corpus.groups[0], aspect)[:3]]


def check_judge(judge: Judge, items: Sequence[Item] | None = None) -> None:
    """Assert what scoring, tuning, search and export rely on, with the offline LM:

    1. Every item gets a verdict whose score lies on the aspect's scale (unless `on_scale` is False) and whose calls are
       those of its transcript.
    2. A transcript gives a judgement after any smaller number of rounds, which counts no more calls.
    3. A judge that is rebuilt from its configuration, which is plain JSON, and its DSPy state has the same
       configuration and instructions, and gives the same scores again.
    4. What a tuner may rewrite are predictors that exist; variants are judges of the same kind.
    5. Its kind leads back to its class, so that an export of it can be loaded.

    Args:
        judge: A judge as its constructor returns it.
        items: The items to judge; by default `sample_items`.
    """
    items = sample_items() if items is None else items
    first = judge_offline(judge, items)
    for item, verdict in zip(items, first, strict=True):
        where = f"{item.candidate}, {item.aspect.name}"
        assert isinstance(verdict, Verdict), f"{where}: not scored; found {verdict!r}"
        contained = not judge.on_scale or item.aspect.scale.contains(verdict.score)
        assert contained, f"{where}: the score is not on the scale {item.aspect.scale}; found {verdict.score!r}"
        calls = verdict.transcript.calls
        assert verdict.calls == calls, f"{where}: its transcript counts {calls} calls; found {verdict.calls!r}"
        for rounds in range(judge.debate_config.rounds + 1):
            shorter = judge.judgement(verdict.transcript.until(rounds), rounds).calls
            assert shorter <= verdict.calls, f"{where}: {rounds} rounds cost more than all; found {shorter!r}"
    rebuilt = type(judge).from_config(json.loads(json.dumps(judge.config())))
    rebuilt.load_state(json.loads(json.dumps(judge.dump_state())))
    for what, was, now in (
        ("another configuration", judge.config(), rebuilt.config()),
        ("other instructions", judge.instructions(), rebuilt.instructions()),
        ("other scores", *([getattr(j, "score", None) for j in js] for js in (first, judge_offline(rebuilt, items)))),
    ):
        assert now == was, f"rebuilt, it has {what}; found {now!r}"
    unknown = set(judge.tunable()) - set(judge.instructions())
    assert not unknown, f"`tunable` names predictors that do not exist; found {unknown!r}"
    kinds = {variant.kind for variant in judge.variants({"mine": "Be kind."}).values()}
    assert kinds == {judge.kind}, f"its variants are of other kinds; found {kinds!r}"
    named = judge_class(judge.kind)
    assert named is type(judge), f"its kind names another class; found {named!r}"


def judge_offline(judge: Judge, items: Sequence[Item]) -> list[Judgement]:
    """Judge the items with a new offline LM."""

    async def work() -> list[list[Judgement]]:
        return await asyncio.gather(*(judge.judge([item]) for item in items))

    with dspy.context(lm=make_lm("offline"), disable_history=True, trace=None):
        return [judgement for judgements in asyncio.run(work()) for judgement in judgements]


class ScriptedLM(JudgeLM):
    """A `JudgeLM` that answers by a script and records its calls. Make one with `scripted_lm`."""

    def __init__(self, transport: _ScriptedTransport, **options: Any) -> None:
        super().__init__("scripted/lm", transport=transport, **options)
        self.prompts, self.systems = transport.prompts, transport.systems
        """The user and the system texts of all calls that were not answered from the store, in order."""
        self.transport = transport

    @property
    def peak(self) -> int:
        """Maximum number of calls that were in flight at once."""
        return self.transport.peak


def scripted_lm(script: Script, *, latency: float = 0.0, **options: Any) -> ScriptedLM:
    """Make an LM that answers by `script`, with `latency` in seconds for each call; `options` go to `JudgeLM`."""
    return ScriptedLM(_ScriptedTransport(script, latency), **options)


def in_turn(replies: Iterable[str]) -> Script:
    """A script that gives these replies one after the other, whatever the prompts are."""
    queue = iter(replies)
    return lambda prompt: next(queue)


class _ScriptedTransport(LocalTransport):
    def __init__(self, script: Script, latency: float) -> None:
        self.script = script
        self.latency = latency
        self.prompts: list[str] = []
        self.systems: list[str] = []
        self.in_flight = self.peak = 0

    def answer(self, system: str, user: str, settings: Mapping[str, Any]) -> Reply:
        self.prompts.append(user)
        self.systems.append(system)
        text = self.script(user)
        return Reply(text, len(user.split()), len(text.split()))

    async def chat(self, model: str, messages: Messages, settings: Mapping[str, Any]) -> Reply:
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            await asyncio.sleep(self.latency)
            return await super().chat(model, messages, settings)
        finally:
            self.in_flight -= 1
