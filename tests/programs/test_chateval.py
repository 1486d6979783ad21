"""ChatEval against its published algorithms: the order of calls, the messages in each prompt, and the scores."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs.chateval.judge import ChatEval
from debate_judge.programs.judge import Item, Verdict
from debate_judge.programs.transcript import Transcript
from tests.fakes import ScriptedLM, debater, hold, in_turn, only, scripted_lm, section, settings_seen

ASPECT = Aspect("clarity", "Is the text easy to follow?", Scale(1, 5))
ITEM = Item("g", "c", Task("notes", "letter", "note", (ASPECT,)), ASPECT, "A long letter.", "A short note.")
ROLES = {"alpha": "You are alpha.", "beta": "You are beta.", "gamma": "You are gamma."}
TWO = {name: ROLES[name] for name in ("alpha", "beta")}


def speaker(prompt: str) -> str:
    named = re.match(r"You are (\w+)\.", section(prompt, "role"))
    return named[1] if named else "summarizer"


def numbered(**options: Any) -> ScriptedLM:
    """Each replies with its initial and call number; alpha scores 1, beta 2, gamma 3, and each time 1 more."""
    counts: Counter[str] = Counter()

    def count(prompt: str) -> str:
        counts[speaker(prompt)] += 1
        return f"{speaker(prompt)[0]}{counts[speaker(prompt)]}"

    def score(prompt: str) -> str:
        return str("abg".index(speaker(prompt)[0]) + counts[speaker(prompt)])

    return scripted_lm(debater(rationale=count, score=score, summary=count), **options)


def heard(lm: ScriptedLM) -> list[tuple[str, str]]:
    """(speaker, the messages in its prompt) in the order of the calls."""
    return [(speaker(prompt), section(prompt, "debate")) for prompt in lm.prompts]


def lines(*messages: str) -> str:
    return "\n\n".join(messages)


A1, B1, G1 = "alpha, turn 1, score 1: a1", "beta, turn 1, score 2: b1", "gamma, turn 1, score 3: g1"
A2, B2, G2 = "alpha, turn 2, score 2: a2", "beta, turn 2, score 3: b2", "gamma, turn 2, score 4: g2"


def test_by_default_every_referee_sees_all_earlier_messages() -> None:
    lm = numbered()
    transcript = hold(lm, only(ChatEval(ROLES).converse([ITEM], 1)))
    # In turn 1 the messages of earlier agents; in turn 2 all messages, for every agent.
    assert heard(lm) == [
        ("alpha", ""),
        ("beta", A1),
        ("gamma", lines(A1, B1)),
        ("alpha", lines(A1, B1, G1)),
        ("beta", lines(A1, B1, G1, A2)),
        ("gamma", lines(A1, B1, G1, A2, B2)),
    ]
    order = [("alpha", 0), ("beta", 0), ("gamma", 0), ("alpha", 1), ("beta", 1), ("gamma", 1)]
    assert [(t.role, t.round) for t in transcript.turns] == order


def test_the_published_one_by_one_follows_algorithm_1_literally() -> None:
    lm = numbered()
    transcript = hold(lm, only(ChatEval(ROLES, "one-by-one-printed").converse([ITEM], 1)))
    # Turn 1. alpha: H1 = (). beta: H2 = (A1). gamma: H3 = (A1, B1). Each message goes to its speaker and to those
    # after it, but never to H1. Turn 2. alpha: H1 is still empty, the same question, so its reply is the same.
    # beta: H2 = (A1, B1, again). gamma: H3 = (A1, B1, G1, again, B2).
    again = "alpha, turn 2, score 1: a1"
    assert heard(lm) == [
        ("alpha", ""),
        ("beta", A1),
        ("gamma", lines(A1, B1)),
        ("beta", lines(A1, B1, again)),
        ("gamma", lines(A1, B1, G1, again, B2)),
    ]
    order = [("alpha", 0), ("beta", 0), ("gamma", 0), ("alpha", 1), ("beta", 1), ("gamma", 1)]
    assert [(t.role, t.round) for t in transcript.turns] == order
    assert lm.meter.requested == {"alpha": 2, "beta": 2, "gamma": 2}


def test_simultaneous_talk_follows_algorithm_2() -> None:
    lm = numbered()
    hold(lm, only(ChatEval(ROLES, "simultaneous").converse([ITEM], 2)))
    # All hear the same: nothing, then the buffer of turn 1, then both buffers, each message once.
    histories = ["", lines(A1, B1, G1), lines(A1, B1, G1, A2, B2, G2)]
    assert heard(lm) == [(name, history) for history in histories for name in ROLES]


def test_the_summarizer_replaces_the_history_as_in_algorithm_3() -> None:
    lm = numbered()
    transcript = hold(lm, only(ChatEval(TWO, "summarizer").converse([ITEM], 2)))
    first, second = "Summary of the discussion so far: s1", "Summary of the discussion so far: s2"
    assert heard(lm) == [
        ("alpha", ""), ("beta", ""),
        ("summarizer", lines(A1, B1)), ("alpha", first), ("beta", first),
        # All messages so far, in full, without the earlier summary; the last turn is not summarized.
        ("summarizer", lines(A1, B1, A2, B2)), ("alpha", second), ("beta", second),
    ]  # fmt: skip
    assert [t.round for t in transcript.turns if t.role == "summarizer"] == [1, 2]
    assert transcript.calls == 8
    # The summarizer needs the messages, not the texts.
    assert "A short note." not in lm.prompts[2]
    assert "A long letter." not in lm.prompts[2]


def test_built_in_roles_are_named_and_numbered() -> None:
    assert list(ChatEval.from_config({"roles": ["critic", "scientist"]}).roles) == ["critic", "scientist"]
    same = ChatEval.from_config({"roles": ["annotator", "annotator"]})
    assert list(same.roles) == ["annotator-1", "annotator-2"]
    assert len(set(same.instructions().values())) == 1


def test_the_final_score_is_the_average_of_the_latest_scores() -> None:
    judge = ChatEval(ROLES, "simultaneous", turns=2)
    transcript = hold(numbered(), only(judge.converse([ITEM], 1)))
    # Turn 1: 1, 2, 3. Turn 2: 2, 3, 4.
    assert judge.judgement(transcript, 1) == Verdict(3.0, 1, "rounds over", 6, transcript)
    first = judge.judgement(transcript.until(0), 0)
    assert (first.score, first.rounds, first.calls) == (2.0, 0, 3)


@pytest.mark.parametrize("communication", ["one-by-one", "one-by-one-printed", "simultaneous", "summarizer"])
def test_a_discussion_contains_every_shorter_discussion(communication: str) -> None:
    judge = ChatEval(ROLES, communication)
    longer: Transcript = hold(numbered(), only(judge.converse([ITEM], 2)))
    for rounds in (0, 1):
        assert hold(numbered(), only(judge.converse([ITEM], rounds))) == longer.until(rounds)


def test_multiple_evidence_averages_samples_of_its_own_for_each_referee(monkeypatch: pytest.MonkeyPatch) -> None:
    replies = [f'{{"rationale": "evidence {n}", "score": {score}}}' for n, score in enumerate((1, 2, 4, 5))]
    lm = scripted_lm(in_turn(replies))
    seen = settings_seen(lm, monkeypatch)
    judge = ChatEval({"alpha": "You are same.", "beta": "You are same."}, "none", turns=1, samples=2)
    verdict = hold(lm, only(judge.judge([ITEM])))
    # The two share a role, so the four questions are one text; the number of the sample tells them apart.
    assert len(set(lm.prompts)) == 1
    assert seen == [{"temperature": 1.0, "sample": number} for number in range(4)]
    turns = [(t.score, t.text, t.calls) for t in verdict.transcript.turns]
    assert turns == [(1.5, "evidence 0", 2), (4.5, "evidence 2", 2)]
    assert (verdict.score, verdict.calls) == (3.0, 4)


def silent(name: str) -> ScriptedLM:
    return scripted_lm(debater(score=lambda prompt: "no number" if speaker(prompt) == name else "3"))


def test_one_agent_without_a_score_leaves_the_item_unscored_and_is_named() -> None:
    lm = silent("beta")
    judgement = hold(lm, only(ChatEval(ROLES, "one-by-one").judge([ITEM])))
    assert judgement.reason == "unreadable reply"
    assert judgement.detail.startswith("beta, round 0: no score")
    # beta is asked again with what was wrong; then the talk is over and gamma is not asked.
    assert [speaker(prompt) for prompt in lm.prompts] == ["alpha", "beta", "beta"]
    assert "could not be used" in section(lm.prompts[2], "correction")
    assert judgement.calls == 3
