"""Debates that are kept while a run lasts: what is asked again, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from debate_judge.optimize.tuners.guide import add_guide
from debate_judge.programs.compiled import shared_judges
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import ADVOCATE, PLAIN
from debate_judge.programs.judge import DebateConfig, Judge
from debate_judge.runs.runner.debate_cache import DebateCache
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import debater, scripted_lm
from tests.programs.tables import JOINT_TASK, cells, joint_judge, joint_table_script
from tests.runs.exports import items

ITEMS = [replace(item, source=f"Letter {item.group}.") for item in items(3)]
JUDGE = Debate(ADVOCATE, DebateConfig(2, tie_breaker=True))


def test_what_is_known_is_not_asked_again_and_says_the_same() -> None:
    """Every turn scores differently, so that a mixture of debates would show."""
    script = debater(score=lambda prompt: str(1 + len(prompt) % 5), final_score="2", decision="ISSUE", feedback="No.")
    judgements, requests = [], []
    for cache, rounds in ((DebateCache(), (2, 1, 0, 2)), (None, (2, 1, 0, 2)), (DebateCache(), (2, 1, 0))):
        lm = scripted_lm(script)
        with JudgeRunner(lm, progress=False, cache=cache) as runner:
            debates = [(n, [t.until(n) for t in runner.converse(JUDGE, ITEMS, n)]) for n in rounds]
            settled = [(n, t) for n, cut in debates for t in runner.break_tie(JUDGE, ITEMS, cut)]
        judgements.append([JUDGE.judgement(t, n).score for n, t in settled])
        requests.append(lm.meter.requested.total())
    assert judgements[0] == judgements[1]
    assert requests[0] == requests[2] < requests[1]


def with_instructions(text: str) -> Judge:
    judge = JUDGE.deepcopy()
    judge.scorer.signature = judge.scorer.signature.with_instructions(text)
    return judge


@pytest.mark.parametrize(
    "other",
    [
        Debate(PLAIN, DebateConfig(2)),
        JUDGE.from_config({**JUDGE.config(), "together": 2}),
        JUDGE.from_config({**JUDGE.config(), "order": 3}),
        with_instructions("Be kind."),
    ],
)
def test_another_judge_is_asked_itself_also_where_its_prompts_are_the_same(other: Judge) -> None:
    lm = scripted_lm(debater())
    with JudgeRunner(lm, progress=False, cache=DebateCache()) as runner:
        for judge in (JUDGE, JUDGE, other):
            runner.converse(judge, ITEMS, 1)
    assert lm.meter.requested.total() == 2 * 2 * len(ITEMS)


def test_a_joint_judge_is_another_one_where_any_of_its_aspects_is_judged_otherwise() -> None:
    plain = joint_judge()
    first, second = (aspect.name for aspect in JOINT_TASK.aspects)
    lm = scripted_lm(joint_table_script(lambda prompt, text, aspect: 3))
    with JudgeRunner(lm, progress=False, cache=DebateCache()) as runner:
        for judge in (plain, add_guide(plain, "Long words are liked.")):
            (shared,) = shared_judges({first: plain, second: judge})
            runner.judge(shared.judge, cells("One.", "Two."))
    assert len(lm.prompts) == 2


def test_a_failure_is_not_remembered() -> None:
    lm = scripted_lm(lambda prompt: "No field.")
    with JudgeRunner(lm, progress=False, cache=DebateCache()) as runner:
        assert all(transcript.failure is not None for transcript in runner.converse(JUDGE, ITEMS, 1))
        requests = lm.meter.requested.total()
        runner.converse(JUDGE, ITEMS, 1)
    assert lm.meter.requested.total() == 2 * requests
