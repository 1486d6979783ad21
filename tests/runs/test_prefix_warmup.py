"""Who goes first about a source, who waits for it, and that nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import dspy
import pytest
from dspy import lm15

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, Item, Judgement, Unscored, Verdict
from debate_judge.programs.lm.client import JudgeLM, LMOptions
from debate_judge.programs.lm.limits import prefix_warmup as prefix_warmup
from debate_judge.programs.lm.reply import Messages, Reply
from debate_judge.programs.make_lm import make_lm
from debate_judge.programs.transcript import Transcript
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.runner.streaming import judge_in_order
from tests.fakes import debater, section

ASPECTS = tuple(Aspect(name, "Is it good?", Scale(1, 5)) for name in ("coherence", "fluency", "relevance"))
TASK = Task("summarization", "article", "summary", ASPECTS)


class Watched:
    """An engine that notes what is sent and what is answered, by candidate."""

    def __init__(self, refuse: Callable[[str], Exception | None]) -> None:
        self.events: list[str] = []
        self.refuse = refuse
        self.write = debater(decision="ISSUE")

    async def complete(self, request: Any) -> Any:
        raise AssertionError("the debates take the short way")

    async def chat(self, model: str, messages: Messages, settings: Any) -> Reply:
        prompt = messages[-1]["content"]
        name = section(prompt, "candidate")
        self.events.append(f">{name}")
        await asyncio.sleep(0.01)
        self.events.append(f"<{name}")
        error = self.refuse(name)
        if error is not None:
            raise error
        return Reply(self.write(prompt))


def lm_of(refuse: Callable[[str], Exception | None] = lambda name: None, **options: Any) -> tuple[JudgeLM, list[str]]:
    engine = Watched(refuse)
    lm = JudgeLM("watched/lm", engine=engine, options=LMOptions(retries=0), **options)
    return lm, engine.events


def items(*sources: str, aspects: Sequence[Aspect] = ASPECTS[:1]) -> list[Item]:
    """`items("ab", "c")`: the candidates a and b of one source, and c of another."""
    return [
        Item(str(number), name, TASK, aspect, f"The article on {names}.", name)
        for number, names in enumerate(sources)
        for name in names
        for aspect in aspects
    ]


def judged(lm: JudgeLM, work: Sequence[Item], rounds: int = 0) -> list[Judgement]:
    with JudgeRunner(lm, progress=False) as runner:
        return runner.judge(Debate(debate_config=DebateConfig(rounds)), work)


def streamed(lm: JudgeLM, work: Sequence[Item]) -> list[Judgement]:
    compiled = CompiledJudge(TASK, {a.name: AspectJudge(Debate(debate_config=DebateConfig(0))) for a in ASPECTS})
    with JudgeRunner(lm, progress=False) as runner:
        return [judgement for _, judgement in judge_in_order(runner, compiled, work)]


@pytest.mark.parametrize("way", [judged, streamed])
def test_siblings_go_when_the_first_has_been_answered(way: Callable[..., list[Judgement]]) -> None:
    lm, events = lm_of()
    found = way(lm, items("abcd"))
    assert events[:2] == [">a", "<a"]
    assert events[2:5] == [">b", ">c", ">d"]
    assert all(isinstance(j, Verdict) for j in found)


def test_siblings_wait_for_one_reply_and_not_for_the_whole_debate() -> None:
    lm, events = lm_of()
    judged(lm, items("abc"), rounds=2)
    # The warm-up call's second is sent together with its siblings' first ones.
    assert events[:2] == [">a", "<a"]
    assert sorted(events[2:5]) == [">a", ">b", ">c"]


def test_pilots_of_other_sources_fill_the_places_meanwhile() -> None:
    lm, events = lm_of(concurrency=2)
    judged(lm, items("ab", "cd", "e"))
    assert events[:2] == [">a", ">c"]
    # e, a source's only candidate, stands in the line before those who waited.
    assert [e for e in events if e[0] == ">"] == [">a", ">c", ">e", ">b", ">d"]


def test_single_candidates_wait_for_nobody() -> None:
    lm, events = lm_of()
    judged(lm, items("a", "b", "c"))
    assert events[:3] == [">a", ">b", ">c"]


def test_a_pilot_that_fails_holds_nobody_back() -> None:
    lm, events = lm_of(lambda name: lm15.InvalidRequestError("too long") if name == "a" else None)
    found = judged(lm, items("abc"))
    assert [isinstance(j, Unscored) for j in found] == [True, False, False]
    assert events[:4] == [">a", "<a", ">b", ">c"]


def test_siblings_go_after_the_first_attempt_however_often_the_pilot_tries_again() -> None:
    tries: list[str] = []

    def refuse(name: str) -> Exception | None:
        tries.append(name)
        return lm15.ServerError("try again") if tries.count("a") < 3 and name == "a" else None

    engine = Watched(refuse)
    options = LMOptions(first_wait=0.1)
    found = judged(JudgeLM("watched/lm", engine=engine, options=options), items("abc"))
    assert all(isinstance(j, Verdict) for j in found)
    assert engine.events[:4] == [">a", "<a", ">b", ">c"]
    assert engine.events.count(">a") == 3


@pytest.mark.parametrize("way", [judged, streamed])
def test_an_error_that_concerns_all_reaches_those_who_wait(way: Callable[..., list[Judgement]]) -> None:
    lm, events = lm_of(lambda name: lm15.AuthError("wrong key"))
    with pytest.raises(dspy.LMAuthError):
        way(lm, items("abcd"))
    assert events[:2] == [">a", "<a"]


def test_replies_from_the_store_neither_lead_nor_wait() -> None:
    lm, events = lm_of()
    judged(lm, items("ab"))
    events.clear()
    # a and b are known; c is the first to be sent in this run, so it leads.
    judged(lm, items("ab"))
    assert events == []
    first = items("abcde")
    lm, events = lm_of()
    judged(lm, first[:2])
    events.clear()
    judged(lm, first)
    assert events == [">c", "<c", ">d", ">e", "<d", "<e"]


def test_a_source_that_was_sent_of_late_needs_no_pilot(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, events = lm_of()
    with JudgeRunner(lm, progress=False) as runner:
        for aspect in ASPECTS[:2]:
            runner.judge(Debate(debate_config=DebateConfig(0)), items("abc", aspects=[aspect]))
        assert events[:2] == [">a", "<a"]
        assert events[6:9] == [">a", ">b", ">c"]
        events.clear()
        monkeypatch.setattr(prefix_warmup, "LIFE", 0.0)
        runner.judge(Debate(debate_config=DebateConfig(0)), items("abc", aspects=[ASPECTS[2]]))
        assert events[:4] == [">a", "<a", ">b", ">c"]


def test_aspects_of_one_candidate_wait_only_where_it_costs_no_time() -> None:
    work = items("a", "b", aspects=ASPECTS)
    lm, events = lm_of(concurrency=6)
    streamed(lm, work)
    assert events[:6] == [">a"] * 3 + [">b"] * 3
    lm, events = lm_of(concurrency=1)
    streamed(lm, work)
    # While a holds the only place its other aspects wait, and b stands in the line before them.
    assert [e for e in events if e[0] == ">"] == [">a", ">b", ">a", ">a", ">b", ">b"]


class Simultaneous(Debate):
    """A judge that asks twice at the same time."""

    async def converse(self, item: Item, rounds: int) -> Transcript:
        lm = dspy.settings.lm
        prompts = [f"{item.source}\n\n[[ ## candidate ## ]]\n{item.text}\n\n[[ ## role ## ]]\n{n}" for n in range(2)]
        asked = [
            lm.ask([{"role": "user", "content": p + "\n\nReply with these fields:\n"}], "referee") for p in prompts
        ]
        await asyncio.gather(*asked)
        return await super().converse(item, rounds)


def test_simultaneous_calls_of_one_item_are_simultaneous() -> None:
    lm, events = lm_of()
    with JudgeRunner(lm, progress=False) as runner:
        runner.judge(Simultaneous(debate_config=DebateConfig(0)), items("ab"))
    assert events[:3] == [">a", ">a", "<a"]
    assert ">b" in events[3:]


class Sourceless(Debate):
    """A judge whose first call does not hold the source."""

    async def converse(self, item: Item, rounds: int) -> Transcript:
        text = f"[[ ## candidate ## ]]\n{item.text}\n\nReply with these fields:\n"
        await dspy.settings.lm.ask([{"role": "user", "content": text}], "extractor")
        return Transcript()

    def verdict(self, transcript: Transcript, rounds: int) -> Judgement:
        return Verdict(3, 0, "single call", 1, transcript)


def test_a_call_without_the_source_has_nothing_to_wait_for() -> None:
    lm, events = lm_of()
    with JudgeRunner(lm, progress=False) as runner:
        runner.judge(Sourceless(debate_config=DebateConfig(0)), items("abc"))
    assert events[:3] == [">a", ">b", ">c"]


def test_who_is_cancelled_in_the_lead_holds_nobody_back() -> None:
    async def main() -> list[str]:
        led, order = prefix_warmup.PrefixWarmup(), []
        never = asyncio.Event()

        async def call(name: str, until: asyncio.Event) -> None:
            led.begin("the source", "", name)
            async with prefix_warmup.turn([{"role": "user", "content": "about the source"}], False):
                order.append(name)
                await until.wait()

        first = asyncio.create_task(call("a", never))
        await asyncio.sleep(0)
        second, third = (asyncio.create_task(call(name, never)) for name in "bc")
        await asyncio.sleep(0)
        assert order == ["a"]
        second.cancel()
        first.cancel()
        await asyncio.wait((first, second))
        await asyncio.sleep(0)
        third.cancel()
        return order

    assert asyncio.run(main()) == ["a", "c"]


def test_the_latest_sources_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_warmup, "_ROOM", 2)
    lm, events = lm_of()
    with JudgeRunner(lm, progress=False) as runner:
        judge = Debate(debate_config=DebateConfig(0))
        for names in ("ab", "cd", "ef"):
            runner.judge(judge, items(names))
        events.clear()
        runner.judge(judge, items("cd", aspects=[ASPECTS[1]]))
        runner.judge(judge, items("ab", aspects=[ASPECTS[1]]))
        assert events == [">c", ">d", "<c", "<d", ">a", "<a", ">b", "<b"]


def test_an_lm_without_a_prefix_cache_needs_no_pilots() -> None:
    assert lm_of()[0].prefix_warmup
    assert not make_lm("offline").prefix_warmup
