"""Debates that are kept while a run lasts: what is asked again, and what is not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.optimize.tuners.guide import add_guide
from debate_judge.programs.compiled import shared_judges
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import PLAIN, STRICT
from debate_judge.programs.judge import DebateConfig, Item, Judge, Verdict
from debate_judge.runs.runner.debate_cache import DebateCache
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import ScriptedLM, debater, scripted_lm
from tests.programs.tables import JOINT_TASK, cells, joint_judge, joint_table_script

ASPECT = Aspect("clear", "How clear.", Scale(1, 5))
TASK = Task("toy", "source", "text", (ASPECT,))
ITEMS = [Item(f"g{n}", "c", TASK, ASPECT, f"Source {n}.", f"Text {n}.") for n in range(3)]
JUDGE = Debate(STRICT, DebateConfig(2, tie_breaker=True))


def with_instructions(text: str) -> Judge:
    judge = JUDGE.deepcopy()
    judge.scorer.signature = judge.scorer.signature.with_instructions(text)
    return judge


def disputing() -> ScriptedLM:
    """Every turn scores differently, so that a mixture of debates would show."""
    return scripted_lm(
        debater(score=lambda prompt: str(1 + len(prompt) % 5), final_score="2", decision="ISSUE", feedback="No.")
    )


def test_what_is_known_is_not_asked_again_and_says_the_same() -> None:
    def scores(lm: ScriptedLM, cache: DebateCache | None, *rounds: int) -> list[Sequence[float]]:
        result = []
        with JudgeRunner(lm, progress=False, cache=cache) as runner:
            for n in rounds:
                debates = runner.break_tie(JUDGE, ITEMS, [t.until(n) for t in runner.converse(JUDGE, ITEMS, n)])
                result.append([v.score for t in debates if isinstance(v := JUDGE.judgement(t, n), Verdict)])
        return result

    twice, once = disputing(), disputing()
    assert scores(twice, DebateCache(), 2, 1, 0, 2) == scores(disputing(), None, 2, 1, 0, 2)
    scores(once, DebateCache(), 2, 1, 0)
    assert len(twice.prompts) == len(once.prompts)


@pytest.mark.parametrize(
    "other",
    [
        Debate(PLAIN, DebateConfig(2)),
        JUDGE.from_config({**JUDGE.config(), "together": 2}),
        JUDGE.from_config({**JUDGE.config(), "order": 3}),
        with_instructions("Be kind."),
    ],
)
def test_another_judge_is_asked_itself(other: Judge) -> None:
    lm = scripted_lm(debater())
    with JudgeRunner(lm, progress=False, cache=DebateCache()) as runner:
        runner.converse(JUDGE, ITEMS, 1)
        runner.converse(JUDGE, ITEMS, 1)
        known = lm.meter.requested.total()
        runner.converse(other, ITEMS, 1)
    # Also where the prompts are the same.
    assert lm.meter.requested.total() == 2 * known == 4 * len(ITEMS)


def test_a_joint_judge_is_another_one_where_any_of_its_aspects_is_judged_otherwise() -> None:
    plain = joint_judge()
    other = add_guide(plain, "Long words are liked.")
    first, second = (aspect.name for aspect in JOINT_TASK.aspects)
    lm, texts = scripted_lm(joint_table_script(lambda prompt, text, aspect: 3)), cells("One.", "Two.")
    with JudgeRunner(lm, progress=False, cache=DebateCache()) as runner:
        for judge in (plain, other):
            (shared,) = shared_judges({first: plain, second: judge})
            runner.judge(shared.judge, texts)
    assert len(lm.prompts) == 2


def test_a_failure_is_not_remembered() -> None:
    lm = scripted_lm(lambda prompt: "No field.")
    with JudgeRunner(lm, progress=False, cache=DebateCache()) as runner:
        assert all(transcript.failure is not None for transcript in runner.converse(JUDGE, ITEMS, 1))
        requests = lm.meter.requested.total()
        runner.converse(JUDGE, ITEMS, 1)
    assert lm.meter.requested.total() == 2 * requests
