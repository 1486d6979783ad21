"""Debates on one loop: in order, once for equal questions, from any thread, and stopped without harm."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import dspy
import pytest
from dspy import lm15

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import (
    DebateConfig,
    Item,
    Judgement,
    Unscored,
    Verdict,
    corpus_items,
    round_to_granularity,
)
from debate_judge.programs.transcript import Transcript, Turn
from debate_judge.runs.runner.runner import JudgeRunner, calls_per_item, group_scores, require_scored, verdicts
from tests.fakes import ScriptedLM, debater, scripted_lm, section

COHERENCE = Aspect("coherence", "Do the sentences build on each other?", Scale(1, 5))
FLUENCY = Aspect("fluency", "Is it good English?", Scale(1, 5))
TASK = Task("summarization", "article", "summary", (COHERENCE, FLUENCY))


def candidate(id_: str, text: str, *ratings: float) -> Candidate:
    return Candidate(id_, text, {"coherence": tuple(ratings)} if ratings else {})


CORPUS = Corpus(
    TASK,
    (
        RatedGroup("g1", "Rain fell.", (candidate("a", "2", 1, 2), candidate("b", "4", 5), candidate("c", "3"))),
        RatedGroup("g2", "Snow fell.", (candidate("b", "5", 4), candidate("a", "1", 2, 3))),
    ),
    Origin("test", "nowhere"),
)


def the_text(prompt: str) -> str:
    return section(prompt, "candidate")


def literal() -> Callable[[str], str]:
    """A Scorer that takes each candidate for its score, and a content Critic."""
    return debater(score=the_text)


def judged(lm: ScriptedLM, items: list[Item], debate_config: DebateConfig = DebateConfig(1)) -> list[Judgement]:  # noqa: B008 - frozen
    with JudgeRunner(lm, progress=False) as runner:
        return runner.judge(Debate(debate_config=debate_config), items)


def score_of(judgement: Judgement) -> float | None:
    return judgement.score if isinstance(judgement, Verdict) else None


def test_results_come_in_the_order_of_the_items() -> None:
    items = corpus_items(CORPUS, COHERENCE)
    assert [(i.group, i.candidate) for i in items] == [("g1", "a"), ("g1", "b"), ("g1", "c"), ("g2", "b"), ("g2", "a")]
    assert [score_of(j) for j in judged(scripted_lm(literal()), items)] == [2, 4, 3, 5, 1]


def test_the_runner_settles_what_is_open_and_nothing_else() -> None:
    decision = debater(
        score=the_text,
        decision=lambda prompt: "ISSUE" if the_text(prompt) in "24" else "NO ISSUE",
        final_score="4.5",
    )
    lm = scripted_lm(decision)
    judgements = judged(lm, corpus_items(CORPUS, COHERENCE), DebateConfig(1, True))
    assert [score_of(j) for j in judgements] == [4.5, 4.5, 3, 5, 1]
    assert lm.meter.executed == {"scorer": 7, "critic": 5, "tie-breaker": 2}
    assert calls_per_item(judgements) == 14 / 5


def test_any_thread_may_ask() -> None:
    items = corpus_items(CORPUS, COHERENCE)
    found: dict[int, list[float | None]] = {}
    with JudgeRunner(scripted_lm(literal(), latency=0.01), progress=False) as runner:

        def ask(number: int) -> None:
            found[number] = [score_of(j) for j in runner.judge(Debate(debate_config=DebateConfig(1)), items)]

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {i: [2, 4, 3, 5, 1] for i in range(4)}


# --- failures and interrupts ---


def failing(error: Exception, text: str) -> Callable[[str], str]:
    answer = literal()

    def script(prompt: str) -> str:
        if the_text(prompt) == text:
            raise error
        return answer(prompt)

    return script


def test_a_failure_of_one_item_leaves_the_others_scored() -> None:
    lm = scripted_lm(failing(lm15.InvalidRequestError("not this one"), "3"))
    judgements = judged(lm, corpus_items(CORPUS, COHERENCE))
    assert [score_of(j) for j in judgements] == [2, 4, None, 5, 1]
    assert isinstance(judgements[2], Unscored)
    assert judgements[2].reason == "lm error"
    assert verdicts(judgements) == [j for j in judgements if isinstance(j, Verdict)]


@pytest.mark.parametrize("text", ["3", "5"])
def test_an_error_that_concerns_all_items_is_raised_as_itself(text: str) -> None:
    lm = scripted_lm(failing(lm15.AuthError("wrong key"), text), latency=0.01)
    with pytest.raises(dspy.LMAuthError, match="wrong key"):
        judged(lm, corpus_items(CORPUS, COHERENCE))


def test_an_interrupt_stops_the_wait_and_keeps_what_was_answered() -> None:
    # A process that a shell started in the background ignores Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    answered = threading.Event()
    answer = literal()

    def script(prompt: str) -> str:
        answered.set()
        return answer(prompt)

    lm = scripted_lm(script, latency=0.1, concurrency=1)

    def interrupt() -> None:
        answered.wait()
        time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    items = corpus_items(CORPUS, COHERENCE)
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        judged(lm, items, DebateConfig(0))
    executed = len(lm.prompts)
    assert 1 <= executed < 5
    # The next run pays for the rest only.
    assert [score_of(j) for j in judged(lm, items, DebateConfig(0))] == [2, 4, 3, 5, 1]
    assert len(lm.prompts) == 5


# --- beside the human ratings ---


def verdict(score: float, calls: int = 1) -> Verdict:
    return Verdict(score, 0, "single call", calls, Transcript((Turn("scorer", 0, "", score=score),)))


UNSCORED = Unscored("unreadable reply", "scorer, round 0: no score", 2, Transcript())


def test_judgements_are_laid_beside_the_ratings_group_by_group() -> None:
    judgements: list[Judgement] = [verdict(1.2), verdict(4.6), UNSCORED, verdict(5), verdict(2.25)]
    first, second = group_scores(CORPUS, COHERENCE, judgements, "given")
    assert (first.group, first.candidates) == ("g1", ("a", "b", "c"))
    assert first.ratings == (1.5, 5, None)
    assert first.scores == (1.2, 4.6, None)
    assert (second.group, second.candidates, second.ratings) == ("g2", ("b", "a"), (4, 2.5))
    assert second.scores == (5, 2.25)
    # Intervals rest on sources.
    assert [first.source_id, second.source_id] == [group.source_id for group in CORPUS.groups]


def test_granularity_changes_the_reported_score_alone() -> None:
    judgements: list[Judgement] = [verdict(1.2), verdict(4.6), UNSCORED, verdict(5), verdict(2.25)]
    half = group_scores(CORPUS, COHERENCE, judgements, "half")
    whole = group_scores(CORPUS, COHERENCE, judgements, "whole")
    assert [g.scores for g in half] == [(1, 4.5, None), (5, 2.5)]
    assert [g.scores for g in whole] == [(1, 5, None), (5, 2)]
    assert [score_of(j) for j in judgements] == [1.2, 4.6, None, 5, 2.25]
    assert round_to_granularity(UNSCORED, COHERENCE, "whole") is None


def test_a_judge_that_scores_too_little_is_refused_with_the_reasons() -> None:
    failed = [Unscored("refused", "the filter", 1, Transcript()), Unscored("lm error", "no answer", 1, Transcript())]
    fine = [Verdict(3.0, 0, "single call", 1, Transcript())] * 6
    require_scored([*fine, *failed], 0.25, "dev items")
    with pytest.raises(InputError, match="2 of 8 dev items") as raised:
        require_scored([*fine, *failed], 0.2, "dev items")
    assert "1 refused, 1 lm error" in str(raised.value)
    require_scored([], 0.0, "dev items")
