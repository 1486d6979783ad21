"""Candidates of one source in one call: who is asked about what, what is read of a reply, and what it costs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from dspy import lm15

from debate_judge.data.errors import InputError
from debate_judge.programs import preset
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import Item, Unscored, Verdict
from debate_judge.programs.make_lm import make_lm
from debate_judge.programs.offline.engine import OfflineEngine
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.runner.tables import seated
from tests.fakes import Script, in_turn, requested, scripted_lm, section
from tests.programs.debates import hold
from tests.programs.tables import items, judged, lines, part, reading, reply_limits, shown, table_judge, values, wanted

FOUR = items("one", "two", "three", "four")


def by_text(prompt: str, text: str) -> int:
    return {"one": 1, "two": 2, "three": 3, "four": 4}[text]


def replying(change: Callable[[str, str], str]) -> Script:
    """The honest script, whose first reply is changed by `change` of the prompt and the reply."""
    honest, seen = reading(by_text), list[str]()

    def script(prompt: str) -> str:
        seen.append(prompt)
        return change(prompt, honest(prompt)) if len(seen) == 1 else honest(prompt)

    return script


def number_of(prompt: str, text: str) -> int:
    return next(number for number, told in shown(prompt).items() if told == text)


def line_of(prompt: str, text: str) -> str:
    return f"candidate_{number_of(prompt, text)}: {by_text(prompt, text)}"


def test_one_call_scores_all_candidates_of_a_source() -> None:
    judgements, lm = judged(table_judge(), reading(by_text), FOUR)
    assert values(judgements) == [1, 2, 3, 4]
    assert len(lm.prompts) == 1
    assert sorted(shown(lm.prompts[0]).values()) == ["four", "one", "three", "two"]
    assert [(j.calls, j.transcript.together) for j in judgements] == [(0.25, 4)] * 4
    assert [j.transcript.turns[0].text for j in judgements][1] == "It reads:\ntwo\nso."
    # The call that opens a debate is the single call: it names no other role.
    assert not re.search("Critic|Tie-breaker", lm.prompts[0])


def test_tables_hold_at_most_k_and_are_of_even_size() -> None:
    many = items(*(f"{word} {n}" for n in range(3) for word in ("one", "two", "three", "four")))[:11]
    _, lm = judged(table_judge(together=4), reading(lambda p, text: by_text(p, text.split()[0])), many)
    assert sorted(len(shown(prompt)) for prompt in lm.prompts) == [3, 4, 4]


def test_the_order_depends_on_texts_and_seed_and_not_on_arrival() -> None:
    def order(candidates: list[Item], seed: int = 0) -> list[str]:
        judge = table_judge()
        judge.order = seed
        _, lm = judged(judge, reading(by_text), candidates)
        return list(shown(lm.prompts[0]).values())

    first = order(FOUR)
    assert order(FOUR[::-1]) == first
    assert {tuple(order(FOUR, seed)) for seed in range(6)} != {tuple(first)}


def test_equal_texts_are_shown_once() -> None:
    judgements, lm = judged(table_judge(), reading(by_text), items("one", "two", "one"))
    assert values(judgements) == [1, 2, 1]
    assert sorted(shown(lm.prompts[0]).values()) == ["one", "two"]


def test_a_candidate_that_comes_alone_is_judged_by_the_ordinary_prompt() -> None:
    lm = scripted_lm(in_turn(["[[ ## rationale ## ]]\nSo.\n\n[[ ## score ## ]]\n4"]))
    judgement = hold(lm, table_judge().judge_table(FOUR[:1]))[0]
    assert values([judgement]) == [4]
    assert (judgement.calls, judgement.transcript.together) == (1, 1)
    assert section(lm.prompts[0], "candidate") == "one"


# --- what is read of a reply ---

ORDERS: dict[str, Callable[[str, str], str]] = {
    "backwards": lambda prompt, reply: "\n\n".join(reply.split("\n\n")[::-1]),
    "numbers alone": lambda prompt, reply: re.sub(r"^candidate_(\d: )", r"\1", reply, flags=re.MULTILINE),
    "bold": lambda prompt, reply: re.sub(r"^candidate_(\d): (\d)$", r"- **Candidate \1**: **\2**", reply, flags=re.M),
    "a table": lambda prompt, reply: re.sub(r"^candidate_(\d): (\d)$", r"| candidate_\1 | \2 |", reply, flags=re.M),
    "of the scale": lambda prompt, reply: re.sub(r"^(candidate_\d: \d)$", r"\1/5", reply, flags=re.MULTILINE),
    "nothing but the lines": lambda prompt, reply: reply.partition("[[ ## scores ## ]]\n")[2],
    "an object": lambda prompt, reply: json.dumps({"scores": {n: by_text("", t) for n, t in shown(prompt).items()}}),
    "the same line twice": lambda prompt, reply: f"{reply}\n{line_of(prompt, 'two')}",
    "words around": lambda prompt, reply: reply.replace("scores ## ]]\n", "scores ## ]]\nHere they are:\n") + "\nDone.",
    "thoughts first": lambda prompt, reply: f"<think>\ncandidate_1: 5\n</think>\n{reply}",
}  # fmt: skip


@pytest.mark.parametrize("change", ORDERS)
def test_scores_are_read_in_any_order_and_dress(change: str) -> None:
    judgements, lm = judged(table_judge(), replying(ORDERS[change]), FOUR)
    assert values(judgements) == [1, 2, 3, 4]
    assert len(lm.prompts) == 1


def without(*texts: str) -> Callable[[str, str], str]:
    def change(prompt: str, reply: str) -> str:
        for text in texts:
            reply = reply.replace(line_of(prompt, text), "")
        return reply

    return change


def instead(text: str, line: str) -> Callable[[str, str], str]:
    """Another line for a candidate; `line` has its label in place of {}."""
    return lambda prompt, reply: reply.replace(
        line_of(prompt, text), line.format(f"candidate_{number_of(prompt, text)}")
    )


GAPS: dict[str, tuple[Callable[[str, str], str], list[str], str]] = {
    "one missing": (without("two"), ["two"], "it was missing"),
    "two missing": (without("two", "four"), ["two", "four"], "it was missing"),
    "twice, and different": (instead("three", "{0}: 3\n{0}: 4"), ["three"], "twice with different content"),
    "no number": (instead("one", "{}: excellent"), ["one"], "no score could be found"),
    "two numbers": (instead("one", "{}: 1 or 2"), ["one"], "no score could be found"),
    "off the scale": (instead("four", "{}: 9"), ["four"], "outside the scale"),
    "of another scale": (instead("four", "{}: 4/10"), ["four"], "on another scale"),
    "its section twice": (
        lambda prompt, reply: part(line_of(prompt, "two").split(":")[0], "Other reasons.") + "\n\n" + reply,
        ["two"],
        "twice with different content",
    ),
    "a foreign name": (lambda p, reply: f"{reply}\ncandidate_5: 3", ["one", "two", "three", "four"], "no candidate_5"),
    "counted from zero": (
        lambda p, reply: re.sub(r"^candidate_(\d):", lambda m: f"candidate_{int(m[1]) - 1}:", reply, flags=re.M),
        ["one", "two", "three", "four"],
        "no candidate_0",
    ),
    "no lines at all": (lambda p, reply: "They are all fine.", ["one", "two", "three", "four"], "it was missing"),
    "nothing": (lambda p, reply: " ", ["one", "two", "three", "four"], "empty"),
    "lines elsewhere": (
        lambda p, reply: reply.replace("[[ ## scores ## ]]", "[[ ## summary ## ]]"),
        ["one", "two", "three", "four"],
        "'scores' was missing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("gap", GAPS)
def test_what_cannot_be_read_is_asked_for_once_more_about_these_alone(gap: str) -> None:
    change, texts, why = GAPS[gap]
    judgements, lm = judged(table_judge(), replying(change), FOUR)
    assert values(judgements) == [1, 2, 3, 4]
    first, second = lm.prompts
    asked = sorted(number_of(first, text) for text in texts)
    assert sorted(wanted(second, "scores")) == asked
    assert why in section(second, "correction")
    # The company stays: the table is the same.
    assert shown(second) == shown(first)
    again = {item.text for item in FOUR if item.text in texts}
    calls = [j.calls for j in judgements]
    assert calls == [pytest.approx(0.25 + (1 / len(again) if item.text in again else 0)) for item in FOUR]
    assert sum(calls) == pytest.approx(2)


def test_what_stays_unreadable_leaves_its_candidate_unscored_and_no_other() -> None:
    honest = reading(by_text)
    judgements, lm = judged(
        table_judge(1),
        lambda p: instead("three", "{}: great")(p, honest(p)) if "scores" in requested(p) else honest(p),
        FOUR,
    )
    assert values(judgements) == [1, 2, "unreadable reply", 4]
    lost = judgements[2]
    assert isinstance(lost, Unscored)
    assert re.match(r"scorer, round 0: candidate_\d: no score could be found", lost.detail)
    assert "[kept as " in lost.detail
    assert lost.calls == 1.25
    # It is no longer debated, though it stays in sight.
    critic = lm.prompts[-1]
    assert sorted(wanted(critic, "decisions")) == sorted(n for n, t in shown(critic).items() if t != "three")
    assert sorted(shown(critic).values()) == ["four", "one", "three", "two"]


# --- the debate ---


def disputing(*texts: str) -> Callable[[str, str], str | None]:
    return lambda prompt, text: "TOO LOW" if text in texts else None


def test_only_what_is_disputed_is_revised_and_debated_further() -> None:
    def score(prompt: str, text: str) -> float:
        # In a revision all scores are given anew, those that nobody disputes too.
        return by_text(prompt, text) + (0.5 if section(prompt, "debate") else 0)

    def issues(prompt: str, text: str) -> str | None:
        later = "Critic, round 1" in section(prompt, "debate")
        return "TOO LOW" if text == "two" or (text == "three" and not later) else None

    judgements, lm = judged(table_judge(2, tie_breaker=True), reading(score, issues), FOUR)
    assert values(judgements) == [1, 2.5, 3.5, 4]
    assert [(j.rounds, j.stop_reason) for j in judgements if isinstance(j, Verdict)] == [
        (1, "no issue"), (2, "tie-breaker"), (2, "no issue"), (1, "no issue"),
    ]  # fmt: skip
    first = lm.prompts[0]
    two, three = number_of(first, "two"), number_of(first, "three")
    kinds = [[name for name in requested(p) if not name.startswith("candidate")] for p in lm.prompts]
    assert kinds == [["scores"], ["review", "decisions"]] * 2 + [["scores"], ["final_scores"]]
    assert sorted(wanted(lm.prompts[3], "decisions")) == sorted([two, three])
    assert sorted(wanted(lm.prompts[2], "scores")) == [1, 2, 3, 4]
    assert wanted(lm.prompts[5], "final_scores") == [two]
    # Scorer and Critic 1/4 each, the revision of two 1/2, their second review 1/2, then one alone: 1 and 1.
    assert [j.calls for j in judgements] == [0.5, 3.5, 1.5, 0.5]
    assert sum(j.calls for j in judgements) == len(lm.prompts) == 6
    told = section(lm.prompts[3], "debate").split("\n")
    order = [1, 2, 3, 4, 1, 2, 3, 4, *sorted([two, three])]
    assert [int(line.removeprefix("candidate_").partition(":")[0]) for line in told] == order
    assert f"candidate_{two}: Critic, round 1: Too low. It says two" in told
    assert "Scorer, round 1, score 2.5" in told[-2] + told[-1]


def test_no_issue_for_the_table_settles_all() -> None:
    honest = reading(by_text)
    critic = f"{part('review', 'Fine.')}\n\n{part('decisions', 'NO ISSUE')}"
    judgements, lm = judged(table_judge(3), lambda p: critic if "decisions" in requested(p) else honest(p), FOUR)
    assert values(judgements) == [1, 2, 3, 4]
    assert len(lm.prompts) == 2
    assert {j.stop_reason for j in judgements if isinstance(j, Verdict)} == {"no issue"}


DECISIONS = {
    "too high": ("TOO HIGH", "Quoted.", "Too high. Quoted."),
    "in bold": ("**TOO LOW**", "Quoted.", "Too low. Quoted."),
    "with its reason": ("TOO HIGH - the last sentence", "", "Too high. the last sentence"),
    "an issue of no direction": ("ISSUE", "Quoted.", "Quoted."),
    "none": ("no issue.", "", "NO ISSUE"),
}


@pytest.mark.parametrize("kind", DECISIONS)
def test_decisions_are_read_as_they_are_written(kind: str) -> None:
    decision, evidence, heard = DECISIONS[kind]
    honest = reading(by_text)

    def script(prompt: str) -> str:
        if "decisions" not in requested(prompt):
            return honest(prompt)
        two = number_of(prompt, "two")
        decisions = {n: decision if n == two else "NO ISSUE" for n in wanted(prompt, "decisions")}
        return "\n\n".join(["Well.", part("decisions", lines(decisions)), part(f"candidate_{two}", evidence)])

    judgements, lm = judged(table_judge(1), script, FOUR)
    assert judgements[1].transcript.turns[1].text == heard
    assert len(lm.prompts) == (2 if heard == "NO ISSUE" else 3)


UNDECIDED = ["maybe", "NO ISSUE, but too high", "TOO HIGH", "ISSUE: none", ""]


@pytest.mark.parametrize("decision", UNDECIDED)
def test_an_undecided_critic_is_asked_again_about_this_candidate(decision: str) -> None:
    honest = reading(by_text)

    def script(prompt: str) -> str:
        if "decisions" not in requested(prompt) or section(prompt, "correction"):
            return honest(prompt)
        two = number_of(prompt, "two")
        decisions = {n: decision if n == two else "NO ISSUE" for n in wanted(prompt, "decisions")}
        return "\n\n".join([part("review", "Well."), part("decisions", lines(decisions))])

    judgements, lm = judged(table_judge(1), script, FOUR)
    assert values(judgements) == [1, 2, 3, 4]
    assert wanted(lm.prompts[-1], "decisions") == [number_of(lm.prompts[0], "two")]
    assert [j.calls for j in judgements] == [0.5, 1.5, 0.5, 0.5]


def test_one_debate_to_the_maximum_answers_every_smaller_n() -> None:
    def score(prompt: str, text: str) -> float:
        return min(5, by_text(prompt, text) + 0.5 * section(prompt, "debate").count("Critic"))

    def issues(prompt: str, text: str) -> str | None:
        said = section(prompt, "debate").count("Critic")
        return "TOO LOW" if said < 6 and text in ("two", "three") else None

    longest: list[str] = []
    for rounds in (3, 0, 1, 2):
        judge, lm = table_judge(rounds), scripted_lm(reading(score, issues))
        transcripts = hold(lm, judge.converse_table(FOUR, rounds))
        longest = longest or lm.prompts
        assert longest[: len(lm.prompts)] == lm.prompts
        if rounds == 3:
            held = transcripts
        read = [judge.verdict(t, rounds) for t in held]
        straight = [judge.verdict(t, rounds) for t in transcripts]
        assert values(read) == values(straight)
        assert sum(j.calls for j in read) == pytest.approx(len(lm.prompts))


def test_samples_of_a_table_are_averaged_candidate_by_candidate() -> None:
    replies = iter([0, 1, 1, 0])

    def script(prompt: str) -> str:
        more = next(replies)
        return reading(lambda p, text: by_text(p, text) + more * (text == "two"))(prompt)

    judgements, lm = judged(table_judge(score_mode="sampled:4"), script, FOUR)
    assert values(judgements) == [1, 2.5, 3, 4]
    assert len(lm.prompts) == 4
    assert [j.calls for j in judgements] == [1] * 4


def test_a_trace_tells_each_candidates_turns_as_calls_about_it_alone() -> None:
    judge, traces = table_judge(1), dict[str, list[Any]]()
    with JudgeRunner(scripted_lm(reading(by_text, disputing("two"))), progress=False) as runner:
        runner.converse(judge, FOUR, 1, traces=traces)
    ((calls),) = traces.values()
    about = [(predict is judge.critic.predict, inputs["candidate"], reply) for predict, inputs, reply in calls]
    two = [(critic, dict(reply)) for critic, text, reply in about if text == "two"]
    assert len(calls) == 4 + 4 + 1
    assert two == [
        (False, {"rationale": "It reads:\ntwo\nso.", "score": "2"}),
        (True, {"review": "", "decision": "ISSUE", "feedback": "Too low. It says two"}),
        (False, {"rationale": "It reads:\ntwo\nso.", "score": "2"}),
    ]
    revision = calls[-1][1]
    assert revision["debate"].startswith("Scorer, round 0, score 2: ")
    assert revision["debate"].endswith("Critic, round 1: Too low. It says two")


# --- calls that fail ---


def too_small(most: int) -> Script:
    """An LM whose context holds no more than `most` candidates."""
    honest = reading(by_text)

    def script(prompt: str) -> str:
        if len(shown(prompt)) > most:
            raise lm15.ContextLengthError("prompt is too long", status=400)
        if section(prompt, "candidate"):
            return f"{part('rationale', 'So.')}\n\n{part('score', by_text('', section(prompt, 'candidate')))}"
        return honest(prompt)

    return script


@pytest.mark.parametrize(("most", "size", "calls"), [(3, 2, 3), (1, 1, 7)])
def test_a_table_that_is_too_long_is_cut_into_halves(most: int, size: int, calls: int) -> None:
    judgements, lm = judged(table_judge(), too_small(most), FOUR)
    assert values(judgements) == [1, 2, 3, 4]
    assert {j.transcript.together for j in judgements} == {size}
    assert len(lm.prompts) == calls
    assert sum(j.calls for j in judgements) == pytest.approx(calls)


def test_later_turns_and_the_tie_breaker_keep_to_the_parts() -> None:
    _, lm = judged(table_judge(1, tie_breaker=True), with_context(3), FOUR)
    # The whole table is tried once; then opening, review, revision and tie-break, each in two halves.
    assert [len(shown(prompt)) for prompt in lm.prompts] == [4] + [2] * 8


def with_context(most: int) -> Script:
    honest = reading(by_text, lambda prompt, text: "TOO LOW")

    def script(prompt: str) -> str:
        if len(shown(prompt)) > most:
            raise lm15.ContextLengthError("prompt is too long", status=400)
        return honest(prompt)

    return script


def test_a_prompt_that_is_known_to_be_too_long_is_not_sent() -> None:
    lm = scripted_lm(too_small(1))
    lm.context = 10
    judgements = hold(lm, table_judge().judge_table(FOUR))
    assert values(judgements) == [1, 2, 3, 4]
    assert len(lm.prompts) == 4
    assert [(j.calls, j.transcript.together) for j in judgements] == [(1, 1)] * 4


@pytest.mark.parametrize(("limit", "given"), [(2000, 2000), (300, 1000), (None, None)])
def test_a_reply_about_several_has_room_for_all(limit: int | None, given: int | None) -> None:
    assert reply_limits(table_judge(), FOUR, limit) == [given]


def test_the_context_of_a_known_model_is_known() -> None:
    known, own = (
        make_lm("openai/gpt-4o-mini", api_base=base, engine=OfflineEngine()) for base in (None, "http://x/v1")
    )
    assert (known.context, known.without_batches().context, own.context) == (128_000, 128_000, None)


def test_a_text_that_is_refused_takes_nobody_along() -> None:
    honest = too_small(4)

    def script(prompt: str) -> str:
        if "three" in (*shown(prompt).values(), section(prompt, "candidate")):
            raise lm15.InvalidRequestError("this text is not allowed", status=400)
        return honest(prompt)

    judgements, lm = judged(table_judge(), script, FOUR)
    assert values(judgements) == [1, 2, "lm error", 4]
    assert sum(j.calls for j in judgements) == pytest.approx(len(lm.prompts))


def test_what_goes_not_together_is_refused() -> None:
    for options in (
        {"together": -1},
        {"together": "many"},
        {"together": True},
        {"together": 4, "score_mode": "expected"},
    ):
        with pytest.raises(InputError, match=r"together|candidates"):
            preset("debate", options)
    judge = preset("debate", {"together": 4, "order": 2})
    assert isinstance(judge, Debate)
    assert {(v.together, v.order) for v in judge.variants({"a": "A.", "b": "B."}).values()} == {(4, 2)}
    assert Debate.from_config(judge.config()).together == 4


def test_texts_without_a_source_are_no_candidates_of_one() -> None:
    alone = [replace(item, source="", context="", group=str(i)) for i, item in enumerate(items("a", "b"))]
    assert [len(table.items) for table in seated(table_judge(), alone).tables] == [1, 1]
    together = [replace(item, group="g") for item in alone]
    assert [len(table.items) for table in seated(table_judge(), together).tables] == [2]
