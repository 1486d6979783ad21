"""Batches of different items that are asked about in all aspects at once: what they cost, and who is asked again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from debate_judge.data.schema import Scale
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, Item, Verdict
from debate_judge.runs.estimates.dry_run import Target
from debate_judge.runs.estimates.items import estimate_scoring
from debate_judge.runs.runner.preflight import Trial, preflight
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.runner.streaming import judge_in_order
from debate_judge.runs.runner.tables import seated
from tests.fakes import requested, scripted_lm, section
from tests.programs.debates import ITEM
from tests.programs.tables import joint_reading, judged, shown, wanted_cells
from tests.programs.test_batches import ASPECT, item, scored, worth

STYLE = replace(ASPECT, name="plain style", scale=Scale(0, 10))
BOTH = replace(ITEM.task, aspects=(ASPECT, STYLE))


def texts(count: int) -> list[Item]:
    """Candidates in two aspects, aspect by aspect as a corpus has them; two have the same text."""
    found = [item(n, f"Worth {min(n, count - 1)}.") for n in range(1, count + 1)]
    return [replace(one, task=BOTH, aspect=aspect) for aspect in BOTH.aspects for one in found]


def joint(size: int, rounds: int = 0, *, tie_breaker: bool = False) -> Debate:
    return Debate(debate_config=DebateConfig(rounds, tie_breaker), together=size, joint=True, batch_rounds=2)


def both_worth(prompt: str, text: str, aspect: str) -> float:
    return worth(prompt, text) / (10 if aspect == "plain_style" else 1)


@pytest.mark.parametrize(("count", "size", "calls"), [(20, 5, 8), (16, 16, 2), (7, 3, 6)])
def test_all_aspects_of_a_candidate_share_its_batches(count: int, size: int, calls: int) -> None:
    judgements, lm = judged(joint(size), joint_reading(both_worth), texts(count))
    assert len(lm.prompts) == calls
    assert sum(j.calls for j in judgements) == pytest.approx(calls)
    own = [min(n, count - 1) for n in range(1, count + 1)]
    assert scored(judgements) == own + [n / 10 for n in own]
    assert {j.transcript.joint for j in judgements} == {2}
    for prompt in lm.prompts:
        assert len(wanted_cells(prompt, "scores")) == 2 * len(shown(prompt))
        assert "More than one aspect" in section(prompt, "task")
        assert {section(prompt, f"source_{n}") for n in shown(prompt)} == {
            section(prompt, f"source_{n}") for n in range(1, len(shown(prompt)) + 1)
        }


def test_a_debate_about_several_aspects_goes_on_about_what_is_disputed_in_one_of_them() -> None:
    def disputes(prompt: str, text: str, aspect: str) -> str | None:
        return "TOO HIGH" if worth(prompt, text) > 6 and aspect == "plain_style" else None

    judgements, lm = judged(joint(4, 1, tie_breaker=True), joint_reading(both_worth, disputes), texts(8))
    # Two rounds of two batches, a review and a revision of each, and one call to the Tie-breaker about the two open.
    assert sum(j.calls for j in judgements) == pytest.approx(4 + 4 + 1)
    # One batch met again in the same order, and was asked once.
    assert len(lm.prompts) == 8
    assert [requested(prompt)[-1] for prompt in lm.prompts].count("final_scores") == 1
    assert len(shown(lm.prompts[-1])) == 2
    stops = [j.stop_reason for j in judgements if isinstance(j, Verdict)]
    assert stops == ["no issue"] * 14 + ["tie-breaker"] * 2


def test_an_estimate_counts_the_calls_of_batches_about_several_aspects() -> None:
    def compiled(rounds: int) -> CompiledJudge:
        return CompiledJudge(
            BOTH, dict.fromkeys(("coherence", "plain style"), AspectJudge(joint(8, rounds, tie_breaker=True)))
        )

    by_text = sorted(texts(64), key=lambda one: int(one.group))
    found, count = estimate_scoring(Target("offline"), compiled(0), BOTH.aspects, iter(by_text))
    assert (count, [used.calls for used in found.total]) == (128, [2 * 64 / 8] * 3)
    found, _ = estimate_scoring(Target("offline"), compiled(3), BOTH.aspects, iter(by_text))
    # Two rounds of batches, found without issue; and three rounds, revised each time, with a tie-break.
    assert (found.total[0].calls, found.total[2].calls) == (8 * 3, 8 * (2 + 3 * 2 + 1))
    lm = scripted_lm(joint_reading(both_worth))
    with JudgeRunner(lm, progress=False) as runner:
        assert len(list(judge_in_order(runner, compiled(0), by_text))) == 128
    assert len(lm.prompts) == 16


def test_what_is_tried_beforehand_is_one_batch() -> None:
    lm = scripted_lm(joint_reading(both_worth))
    pool = seated(joint(4, 1), texts(20)).tables[0]
    with JudgeRunner(lm, progress=False) as runner:
        preflight(runner, [Trial("debate", joint(4, 1), [pool])])
    assert len(pool.items) == 40
    assert {len(shown(prompt)) for prompt in lm.prompts} == {4}
