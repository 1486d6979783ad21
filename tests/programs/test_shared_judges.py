"""Judges of several aspects in shared calls: which of them share a call, and the prompt of each aspect."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from debate_judge.programs.compiled import shared_judges
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import PLAIN, STRICT
from debate_judge.programs.debate.table import Scoring
from debate_judge.programs.geval.judge import GEval
from debate_judge.programs.judge import DebateConfig, Item, Judge
from debate_judge.programs.roles.guide import with_guide
from tests.fakes import section
from tests.programs.tables import cells, joint_judge, joint_table_script, judged, values

TWO = cells("one", "two")
NAMES = ("coherence", "plain style")


def guided(guide: str) -> Debate:
    judge = joint_judge(1, tie_breaker=True)
    judge.scorer.signature = Scoring.with_instructions(with_guide(Scoring.instructions, guide))
    return judge


def prompts(judge: Debate, other: Debate, about: Sequence[Item] = TWO) -> list[str]:
    (shared,) = shared_judges(dict(zip(NAMES, (judge, other), strict=True)))
    script = joint_table_script(lambda *_: 3, lambda *_: "TOO LOW")
    judgements, lm = judged(shared.judge, script, about)
    assert values(judgements) == [3] * 4
    return lm.prompts


def test_the_prompt_has_guide_and_scale_for_each_aspect() -> None:
    for prompt in prompts(guided("They like rain."), guided("They like sun.")):
        assert section(prompt, "guide_coherence") == "They like rain."
        assert section(prompt, "guide_plain_style") == "They like sun."
        assert "They like" not in section(prompt, "standard")
        for name in ("aspect_coherence", "aspect_plain_style"):
            assert section(prompt, name).endswith("where the candidate does.")


SAME = [
    (guided("Rain."), guided("Sun.")),
    (guided("Rain."), joint_judge(1, tie_breaker=True)),
    # No Critic speaks in a single call, and no Tie-breaker where there is none.
    (Debate(STRICT, DebateConfig(0), joint=True), Debate(PLAIN, DebateConfig(0, True), joint=True)),
]
OTHER = [
    (joint_judge(1), joint_judge(2)),
    (joint_judge(1), joint_judge(1, tie_breaker=True)),
    (joint_judge(1, together=4), joint_judge(1, together=8)),
    (joint_judge(1), joint_judge(1, score_mode="sampled:2")),
    (Debate(STRICT, DebateConfig(1), joint=True), Debate(PLAIN, DebateConfig(1), joint=True)),
    (Debate(joint=True, order=1), Debate(joint=True)),
    (Debate(joint=True), Debate()),
    (Debate(), Debate()),
    (GEval(), GEval()),
    # Personas that score blind, at another distance.
    (Debate("blind-half", rounds=1, joint=True), Debate("blind-every", rounds=1, joint=True)),
]
REWRITTEN = joint_judge(1)
REWRITTEN.scorer.signature = REWRITTEN.scorer.signature.with_instructions("Judge otherwise.")


@pytest.mark.parametrize(
    ("pair", "groups"),
    [
        *((pair, [NAMES]) for pair in SAME),
        *((pair, [NAMES[:1], NAMES[1:]]) for pair in (*OTHER, (joint_judge(1), REWRITTEN))),
    ],
)
def test_judges_share_a_call_where_only_what_they_know_differs(
    pair: tuple[Judge, Judge], groups: list[tuple[str, ...]]
) -> None:
    assert [shared.aspects for shared in shared_judges(dict(zip(NAMES, pair, strict=True)))] == groups
