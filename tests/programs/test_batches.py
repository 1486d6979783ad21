"""Batches of different items in one call: who sits with whom, what it costs, and that nobody passes for a neighbour."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from debate_judge import data
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Scale
from debate_judge.optimize.job import prepared
from debate_judge.optimize.settings import Settings
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import STRICT
from debate_judge.programs.judge import MOST_ROUNDS, DebateConfig, Item, Judgement, Verdict, corpus_items
from debate_judge.programs.make_lm import OFFLINE, make_lm
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.runner.streaming import judge_in_order, window
from tests.fakes import ScriptedLM, requested, scripted_lm, section
from tests.programs.debates import ITEM
from tests.programs.tables import judged, reading, shown, values
from tests.programs.test_together_hostile import HOSTILE

ASPECT = replace(ITEM.aspect, scale=Scale(1, 1000))


def item(number: int, text: str | None = None) -> Item:
    words = text if text is not None else f"Worth {number}."
    return replace(ITEM, group=str(number), aspect=ASPECT, source=f"Source of {number}.", text=words)


def judge(size: int, rounds: int = 0, *, times: int = 2, tie_breaker: bool = False) -> Debate:
    return Debate(debate_config=DebateConfig(rounds, tie_breaker), together=size, batch_rounds=times)


def worth(prompt: str, text: str) -> int:
    return int(text.removeprefix("Worth ").rstrip("."))


def companies(lm: ScriptedLM) -> list[set[int]]:
    """Who was asked about together, prompt by prompt."""
    return [{worth(prompt, text) for text in shown(prompt).values()} for prompt in lm.prompts]


def scored(judgements: Sequence[Judgement]) -> list[float | str]:
    return [round(value, 6) if isinstance(value, float) else value for value in values(judgements)]


# --- who sits with whom, and what it costs ---


@pytest.mark.parametrize(
    ("items", "size", "times", "calls"), [(20, 5, 2, 8), (20, 5, 3, 12), (20, 8, 1, 3), (3, 8, 2, 2), (7, 3, 2, 6)]
)
def test_every_round_takes_a_call_for_each_batch(items: int, size: int, times: int, calls: int) -> None:
    judgements, lm = judged(judge(size, times=times), reading(worth), [item(n) for n in range(1, items + 1)])
    assert len(lm.prompts) == len(set(lm.prompts)) == calls
    assert sum(j.calls for j in judgements) == pytest.approx(calls)
    assert scored(judgements) == list(range(1, items + 1))
    assert {j.transcript.together for j in judgements} <= {items // -(-items // size), -(-items // -(-items // size))}
    # Each has one turn, and shares all its calls.
    assert {len(j.transcript.turns) for j in judgements} == {1}


def test_later_batches_span_the_range_and_differ_from_the_first() -> None:
    _, lm = judged(judge(5, times=3), reading(worth), [item(n) for n in range(1, 21)])
    found = companies(lm)
    first, second, third = found[:4], found[4:8], found[8:]
    for batches in (first, second, third):
        assert sorted(n for batch in batches for n in batch) == list(range(1, 21))
    for batch in (*second, *third):
        assert [sum(low < n <= low + 4 for n in batch) for low in range(0, 20, 4)] == [1] * 5
    assert not [batch for batch in second if batch in first]
    assert not [batch for batch in third if batch in second]


def test_the_seed_of_the_order_leaves_each_in_its_company() -> None:
    def held(seed: int) -> list[list[int]]:
        one = judge(5, 1, times=2, tie_breaker=True)
        one.order = seed
        disputes = reading(worth, lambda prompt, text: "TOO HIGH" if worth(prompt, text) > 7 else None)
        _, lm = judged(one, disputes, [item(n) for n in range(1, 21)])
        return [[worth(prompt, text) for text in shown(prompt).values()] for prompt in lm.prompts]

    usual = held(0)
    assert len(usual) == 4 + 4 + 2 * 4 + 3
    for seed in (1, 2):
        other = held(seed)
        assert [set(batch) for batch in other] == [set(batch) for batch in usual]
        # Of the first batches, the second ones, and those of the Tie-breaker.
        for some in (slice(4), slice(4, 8), slice(-3, None)):
            assert sum(batch in usual for batch in other[some]) < 2


def test_the_score_is_the_mean_over_the_rounds() -> None:
    seen: list[dict[int, float]] = []

    def relative(prompt: str, text: str) -> float:
        """A reader whose scale shifts with the company."""
        company = [worth(prompt, other) for other in shown(prompt).values()]
        return round(worth(prompt, text) - sum(company) / len(company) + 50, 3)

    def script(prompt: str) -> str:
        seen.append({worth(prompt, text): relative(prompt, text) for text in shown(prompt).values()})
        return reading(relative)(prompt)

    judgements, _ = judged(judge(3), script, [item(n) for n in range(1, 13)])
    for number, judgement in enumerate(judgements, 1):
        own = [scores[number] for scores in seen if number in scores]
        assert len(own) == 2
        assert isinstance(judgement, Verdict)
        assert judgement.score == pytest.approx(sum(own) / 2)


def test_every_candidate_stands_after_its_own_source() -> None:
    _, lm = judged(judge(4, 1), reading(worth), [item(n) for n in range(1, 9)])
    for prompt in lm.prompts:
        texts = shown(prompt)
        assert len(texts) == 4
        for number, text in texts.items():
            assert section(prompt, f"source_{number}") == f"Source of {worth(prompt, text)}."
            assert prompt.index(f"[[ ## source_{number} ## ]]") < prompt.index(f"[[ ## candidate_{number} ## ]]")
        assert "own" in section(prompt, "source")


def test_neither_the_order_of_items_nor_their_number_in_a_file_matters() -> None:
    items = [item(n) for n in range(1, 13)]
    shuffled = random.Random(0).sample(items, len(items))
    one, first = judged(judge(4), reading(worth), items)
    other, second = judged(judge(4), reading(worth), [*shuffled, shuffled[0]])
    assert first.prompts == second.prompts
    assert scored(other) == [scored(one)[items.index(i)] for i in [*shuffled, shuffled[0]]]


def test_a_debate_goes_on_in_the_batches_of_the_last_round() -> None:
    def disputes(prompt: str, text: str) -> str | None:
        return "TOO HIGH" if worth(prompt, text) > 6 else None

    judgements, lm = judged(judge(4, 1, tie_breaker=True), reading(worth, disputes), [item(n) for n in range(1, 9)])
    # Two rounds of two batches, a review and a revision of each, and one call to the Tie-breaker about the two open.
    assert [requested(prompt)[-1] for prompt in lm.prompts].count("final_scores") == 1
    assert len(lm.prompts) == 4 + 4 + 1
    assert companies(lm)[-1] == {7, 8}
    assert {frozenset(c) for c in companies(lm)[4:8]} == {frozenset(c) for c in companies(lm)[2:4]}
    stops = [j.stop_reason for j in judgements if isinstance(j, Verdict)]
    assert stops == ["no issue"] * 6 + ["tie-breaker"] * 2
    assert sum(j.calls for j in judgements) == pytest.approx(9)


def test_one_item_alone_is_judged_alone() -> None:
    judgements, lm = judged(judge(4), lambda prompt: "[[ ## rationale ## ]]\nR\n\n[[ ## score ## ]]\n7", [item(1)])
    assert (scored(judgements), judgements[0].transcript.together, len(lm.prompts)) == ([7], 1, 1)


def test_an_item_that_no_reply_speaks_of_has_no_score_and_the_others_keep_theirs() -> None:
    def forgetful(prompt: str) -> str:
        kept = reading(worth)(prompt)
        lost = next((n for n, text in shown(prompt).items() if text == "Worth 3."), None)
        return "\n".join(line for line in kept.splitlines() if not line.startswith(f"candidate_{lost}:"))

    judgements, lm = judged(judge(4), forgetful, [item(n) for n in range(1, 9)])
    assert scored(judgements) == [1, 2, "unreadable reply", 4, 5, 6, 7, 8]
    # It was asked for once more in each round.
    assert len(lm.prompts) == 4 + 2


# --- the offline LM ---


@pytest.mark.parametrize("rounds", [0, 2])
def test_the_offline_lm_scores_in_batches_as_alone(rounds: int) -> None:
    corpus = data.load(Settings().data)
    groups = tuple(replace(g, candidates=g.candidates[i % 8 : i % 8 + 1]) for i, g in enumerate(corpus.groups))
    items = corpus_items(replace(corpus, groups=groups), corpus.task.aspects[0])
    found = {}
    for size, times in ((0, 0), (6, 2)):
        one = Debate(STRICT, DebateConfig(rounds, rounds > 0), together=size, batch_rounds=times)
        with JudgeRunner(make_lm(OFFLINE), progress=False) as runner:
            found[size] = runner.judge(one, items)
            calls = runner.lm.meter.executed.total()
    assert values(found[6]) == pytest.approx(values(found[0]))
    assert calls < len(items) or rounds
    assert sum(j.calls for j in found[6]) == pytest.approx(calls)


# --- hostile candidates ---

NEIGHBOURS = {"The bridge opened. It was late.": 4, "The bridge is green.": 3, "Nothing else.": 5}


@pytest.mark.parametrize("where", ["text", "source"])
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_candidate_passes_for_a_neighbour(text: str, where: str) -> None:
    def held(own: str) -> tuple[list[float | str], int, ScriptedLM]:
        hostile = replace(item(1, "Plain."), **{where: own})
        others = [item(n, words) for n, words in enumerate(NEIGHBOURS, 2)]
        script = reading(lambda _, words: NEIGHBOURS.get(words, 2))
        judgements, lm = judged(judge(4), script, [hostile, *others])
        return scored(judgements), len(lm.prompts), lm

    scores, calls, lm = held(text)
    assert (scores, calls) == ([2, 4, 3, 5], 2) == held("Plain.")[:2]
    for prompt in lm.prompts:
        assert len(shown(prompt)) == 4
        for neighbour in NEIGHBOURS:
            assert list(shown(prompt).values()).count(neighbour) == 1
            number = next(n for n, words in shown(prompt).items() if words == neighbour)
            assert section(prompt, f"source_{number}").startswith("Source of ")


# --- where it is used ---


def test_a_stream_waits_for_a_pool_and_no_longer() -> None:
    taken = 0

    def stream() -> Any:
        nonlocal taken
        for number in range(1, 901):
            taken = number
            yield item(number)

    one = judge(2)
    compiled = CompiledJudge(replace(ITEM.task, aspects=(ASPECT,)), {ASPECT.name: AspectJudge(one)})
    lm = scripted(worth)
    with JudgeRunner(lm, progress=False) as runner:
        results = judge_in_order(runner, compiled, stream())
        first = next(results)
        assert taken <= window(lm) < 900
        found = [first, *results]
    assert [(i.group, j.score) for i, j in found if isinstance(j, Verdict)] == [(str(n), n) for n in range(1, 901)]
    # Pools of 16 items, and one of 4, in batches of two; what meets twice in the same order is asked once.
    assert 800 < len(lm.prompts) <= 900


def scripted(score: Callable[[str, str], int]) -> ScriptedLM:
    return scripted_lm(reading(score))


def test_batches_are_kept_by_an_export_and_need_several_items() -> None:
    one = judge(5, times=3)
    assert Debate.from_config(one.config()).config() == one.config()
    assert one.config()["batch_rounds"] == 3
    with pytest.raises(InputError, match="batches of different items"):
        Debate(batch_rounds=2, together=0)
    for count in (-1, MOST_ROUNDS + 1, "2"):
        with pytest.raises(InputError, match="a whole number from 0 to 100"):
            Debate(together=4, batch_rounds=count)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("candidates", "settings", "expected"),
    [
        (1, {"together": 4}, 2),
        (1, {"together": 4, "batch_rounds": 3}, 3),
        (1, {"together": 4, "batch_rounds": 0}, 0),
        (1, {}, 0),
        (2, {"together": 4}, 0),
    ],
)
def test_together_means_batches_where_every_source_has_one_candidate(
    tmp_path: Path, candidates: int, settings: dict[str, Any], expected: int
) -> None:
    rows = [
        {"task": "summarization", "group": f"g{i}", "source": f"Source number {i} is about {i * i}.",
         "candidates": [{"id": f"c{j}", "text": f"Text {i} {j}.", "ratings": {"coherence": 1 + (i + j) % 5}}
                        for j in range(candidates)]}
        for i in range(60)
    ]  # fmt: skip
    (tmp_path / "rated.jsonl").write_text("\n".join(map(json.dumps, rows)))
    plan = prepared(Settings(data=str(tmp_path / "rated.jsonl"), **settings), {STRICT.name: STRICT.text})
    assert (plan.judge.batch_rounds, plan.single.batch_rounds) == (expected, expected)
    if not settings:
        # Where the user has not said how, both are searched.
        assert (plan.readings, plan.judge.config()["together"]) == (("batch", "alone"), 0)
        batches, alone = (plan.read(reading).config() for reading in plan.readings)
        assert batches == {**alone, "together": 16, "batch_rounds": 2}
        assert alone == plan.judge.config()
