"""Debates on one loop: from any thread, stopped without harm, and in one pass of many judges."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import dspy
import pytest
from dspy import lm15

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.prompts import ADVOCATE, PLAIN
from debate_judge.programs.grouping import Question
from debate_judge.programs.judge import (
    AspectJudge,
    CompiledJudge,
    DebateConfig,
    Item,
    Judge,
    Judgement,
    Transcript,
    Unscored,
    Verdict,
    corpus_items,
)
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.programs.lm.limits import TooManyUnscoredError
from debate_judge.programs.lm.replies import Messages, Reply
from debate_judge.programs.lm.settings import LMOptions, Price
from debate_judge.runs.runner import (
    DebateCache,
    JudgeRunner,
    JudgeUsage,
    PassJob,
    calls_per_item,
    group_scores,
    judge_in_order,
    require_scored,
    run_shared_pass,
)
from tests.fakes import ScriptedLM, debater, only, scripted_lm, section
from tests.runs.exports import items
from tests.runs.rated_corpora import COHERENCE, arguing, corpus, the_number

CORPUS = corpus([1, 2, 5], [4, 2])
ITEMS = corpus_items(CORPUS, COHERENCE)
QUESTIONS = [Question((item,)) for item in ITEMS]
SCORES = [1, 2, 5, 4, 2]


def scores_of(judgements: list[Judgement]) -> list[float | None]:
    return [judgement.score if isinstance(judgement, Verdict) else None for judgement in judgements]


def judged(lm: JudgeLM, items: list[Item]) -> list[Judgement]:
    with JudgeRunner(lm, progress=False) as runner:
        return runner.judge(Debate(debate_config=DebateConfig(0)), items)


def test_any_thread_may_ask_and_gets_results_in_the_order_of_its_items() -> None:
    by_thread: dict[int, list[float | None]] = {}
    with JudgeRunner(scripted_lm(debater(score=the_number), latency=0.01), progress=False) as runner:

        def ask(number: int) -> None:
            by_thread[number] = scores_of(runner.judge(Debate(debate_config=DebateConfig(1)), ITEMS))

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert by_thread == {i: SCORES for i in range(4)}


def test_judgements_stand_beside_the_ratings_and_too_many_without_a_score_are_refused() -> None:
    verdicts = [Verdict(score, 0, "single call", 1, Transcript()) for score in (1.2, 4.6, 5, 2.25)]
    judgements = [*verdicts[:2], Unscored("unreadable reply", "no score", 2, Transcript()), *verdicts[2:]]
    half = group_scores(CORPUS, COHERENCE, judgements, "half")
    assert [(g.group, g.candidates, g.ratings, g.scores) for g in half] == [
        ("g0", ("c0", "c1", "c2"), (1, 2, 5), (1, 4.5, None)),
        ("g1", ("c0", "c1"), (4, 2), (5, 2.5)),
    ]
    # Intervals rest on sources.
    assert [g.source_id for g in half] == [group.source_id for group in CORPUS.groups]
    assert calls_per_item(judgements) == 6 / 5
    require_scored(judgements, 0.2, "dev items")
    with pytest.raises(TooManyUnscoredError, match=r"1 of 5 dev items .*1 unreadable reply"):
        require_scored(judgements, 0.1, "dev items")


# --- many judges in one pass ---


def job(owner: str, debate_config: DebateConfig, usage: JudgeUsage | None = None) -> PassJob[Judgement]:
    judge = Debate(debate_config=debate_config)

    def judging(question: Question) -> Awaitable[Judgement]:
        return only(judge.judge(question.items))

    return PassJob(owner, judging, QUESTIONS, usage)


def test_each_judge_is_charged_what_it_would_have_used_alone() -> None:
    configs = {"single": DebateConfig(0), "debate": DebateConfig(2), "settled": DebateConfig(1, True)}

    def used(names: list[str], lm: ScriptedLM) -> dict[str, tuple[int, int]]:
        usages = {name: JudgeUsage() for name in names}
        with JudgeRunner(lm) as runner:
            run_shared_pass(runner, [job(n, configs[n], usages[n]) for n in names], "test")
        return {name: (usage.fresh, usage.output) for name, usage in usages.items()}

    together = used(list(configs), scripted_lm(arguing(9)))
    assert together == {name: used([name], scripted_lm(arguing(9)))[name] for name in configs}
    assert 0 < together["single"][0] < together["settled"][0]
    # A second run pays nothing and is charged the same.
    lm = scripted_lm(arguing(9))
    assert used(list(configs), lm) == used(list(configs), lm) == together


def test_a_reply_is_charged_once_at_the_price_of_what_was_cached() -> None:
    usage = JudgeUsage()
    for _ in range(2):
        usage.charge("0" * 32, Reply("4", 100, 10, 60))
    assert (usage.fresh, usage.cached, usage.output) == (40, 60, 10)
    assert usage.usd(Price(10.0, 1.0, 100.0)) == pytest.approx((400 + 60 + 1000) / 1e6)


def test_what_one_judge_cannot_do_ends_its_jobs_and_no_others_and_a_wrong_key_everything() -> None:
    error = dspy.LMUnsupportedFeatureError("no log-probabilities", model="m")

    async def impossible(question: Question) -> Judgement:
        raise error

    with JudgeRunner(scripted_lm(debater(score=the_number))) as runner:
        jobs = [PassJob("bad", impossible, QUESTIONS), job("bad", DebateConfig(3)), job("good", DebateConfig(0))]
        results, failed = run_shared_pass(runner, jobs, "test")
    assert failed == {"bad": error}
    assert [scores_of(judgements) for judgements in results] == [[], [], SCORES]

    def script(prompt: str) -> str:
        raise lm15.AuthError("wrong key")

    with JudgeRunner(scripted_lm(script)) as runner, pytest.raises(dspy.LMAuthError):
        run_shared_pass(runner, [job("a", DebateConfig(0)), job("b", DebateConfig(1))], "test")


# --- the order of calls, and what ends them ---

ASPECT = Aspect("clarity", "Is it clear?", Scale(1, 5))
TASK = Task("notes", "letter", "note", (ASPECT,))


class Engine:
    """A transport that records what is sent and what is answered, by candidate.

    Args:
        before: Is awaited before an answer, with the candidate; what it raises is the LM's error.
    """

    def __init__(self, before: Callable[[str], Awaitable[None]]) -> None:
        self.before = before
        self.events: list[str] = []
        self.write = debater(score="4")

    async def chat(self, model: str, messages: Messages, settings: Any) -> Reply:
        prompt = messages[-1]["content"]
        note = section(prompt, "candidate")
        self.events.append(f">{note}")
        try:
            await self.before(note)
        finally:
            self.events.append(f"<{note}")
        return Reply(self.write(prompt))

    async def aclose(self) -> None:
        """Nothing to close."""


def lm_of(engine: Engine, **options: Any) -> JudgeLM:
    return JudgeLM("test/m", transport=engine, options=LMOptions(retries=0, first_wait=0.01), **options)


def notes(*sources: str) -> list[Item]:
    """`notes("ab", "c")`: the notes a and b on one letter, and c on another."""
    return [
        Item(str(number), note, TASK, ASPECT, f"Letter {number}.", note)
        for number, of_letter in enumerate(sources)
        for note in of_letter
    ]


async def a_moment(note: str) -> None:
    await asyncio.sleep(0.05)


def test_the_first_call_about_a_source_goes_ahead_until_it_is_answered() -> None:
    engine = Engine(a_moment)
    lm = lm_of(engine)
    judged(lm, notes("abcd"))
    assert engine.events[:2] == [">a", "<a"]
    assert {event[0] for event in engine.events[2:5]} == {">"}
    # A source that was sent of late needs no first call, and a candidate without siblings waits for nobody.
    engine.events.clear()
    judged(lm, notes("ef"))
    assert {event[0] for event in engine.events[:2]} == {">"}
    single = Engine(a_moment)
    judged(lm_of(single), notes("a", "b", "c"))
    assert {event[0] for event in single.events[:3]} == {">"}


def test_a_first_call_that_fails_holds_nobody_back() -> None:
    failures = iter([lm15.InvalidRequestError("too long")])

    async def first_fails(note: str) -> None:
        await a_moment(note)
        if error := next(failures, None):
            raise error

    assert scores_of(judged(lm_of(Engine(first_fails)), notes("abc"))) == [None, 4, 4]

    async def all_fail(note: str) -> None:
        raise lm15.AuthError("wrong key")

    engine = Engine(all_fail)
    with pytest.raises(dspy.LMAuthError, match="wrong key"):
        judged(lm_of(engine), notes("abcd"))
    assert engine.events[:2] == [">a", "<a"]


def streamed(lm: JudgeLM, items: list[Item], judgements: list[Judgement]) -> None:
    compiled = CompiledJudge(TASK, {"clarity": AspectJudge(Debate(debate_config=DebateConfig(0)))})
    with JudgeRunner(lm, progress=False) as runner:
        judgements.extend(judgement for _, judgement in judge_in_order(runner, compiled, items))


async def many_steps() -> None:
    """Long enough for everything that can go on to have gone on."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_a_wrong_key_ends_the_stream_although_an_earlier_item_still_waits() -> None:
    silent = asyncio.Event()

    async def before(note: str) -> None:
        if note == "c":
            silent.set()
            await asyncio.sleep(60)
        if note == "h":
            await silent.wait()
            await many_steps()
            raise lm15.AuthError("the key was revoked", status=401)

    # The answer that never comes is waited for until its attempt is given up.
    lm = JudgeLM("test/m", transport=Engine(before), options=LMOptions(attempt_timeout=0.2, retries=0))
    judgements: list[Judgement] = []
    with pytest.raises(dspy.LMAuthError):
        streamed(lm, notes(*"abcdefghijklmnopqrst"), judgements)
    assert scores_of(judgements) == [4, 4]


# --- debates that are kept while a run lasts ---

LETTERS = [replace(item, source=f"Letter {item.group}.") for item in items(3)]
STRICT_DEBATE = Debate(ADVOCATE, DebateConfig(2, tie_breaker=True))


def test_what_is_known_is_not_asked_again_and_says_the_same() -> None:
    """Every turn scores differently, so that a mixture of debates would show."""
    judgements, requests = [], []
    for cache in (DebateCache(), None):
        lm = scripted_lm(debater(score=lambda prompt: str(1 + len(prompt) % 5), final_score="2", feedback="No."))
        with JudgeRunner(lm, progress=False, cache=cache) as runner:
            debates = [(n, [t.until(n) for t in runner.converse(STRICT_DEBATE, LETTERS, n)]) for n in (2, 1, 0, 2)]
            settled = [(n, t) for n, cut in debates for t in runner.break_tie(STRICT_DEBATE, LETTERS, cut)]
        judgements.append([STRICT_DEBATE.judgement(t, n).score for n, t in settled])
        requests.append(lm.meter.requested.total())
    assert judgements[0] == judgements[1]
    assert requests[0] < requests[1]


def with_instructions(text: str) -> Judge:
    judge = STRICT_DEBATE.deepcopy()
    judge.scorer.signature = judge.scorer.signature.with_instructions(text)
    return judge


@pytest.mark.parametrize(
    "other",
    [
        Debate(PLAIN, DebateConfig(2)),
        STRICT_DEBATE.from_config({**STRICT_DEBATE.config(), "together": 2}),
        with_instructions("Be kind."),
    ],
)
def test_another_judge_is_asked_itself_also_where_its_prompts_are_the_same(other: Judge) -> None:
    lm = scripted_lm(debater())
    with JudgeRunner(lm, progress=False, cache=DebateCache()) as runner:
        for judge in (STRICT_DEBATE, STRICT_DEBATE, other):
            runner.converse(judge, LETTERS, 1)
    assert lm.meter.requested.total() == 2 * 2 * len(LETTERS)


def test_a_failure_is_not_remembered() -> None:
    lm = scripted_lm(lambda prompt: "No field.")
    with JudgeRunner(lm, progress=False, cache=DebateCache()) as runner:
        assert all(transcript.failure is not None for transcript in runner.converse(STRICT_DEBATE, LETTERS, 1))
        requests = lm.meter.requested.total()
        runner.converse(STRICT_DEBATE, LETTERS, 1)
    assert lm.meter.requested.total() == 2 * requests
