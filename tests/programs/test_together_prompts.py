"""What the roles of a debate about several candidates read: standard, guide, examples, persona, and who reads what."""

from __future__ import annotations

from dspy import lm15

from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import Persona
from debate_judge.programs.judge import DebateConfig, Unscored
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.roles.examples import RatedExample, with_examples
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import requested, scripted_lm, section
from tests.programs.debates import ITEM
from tests.programs.tables import items, judged, reading, shown, values

TEXTS = items("one", "two", "three")
PERSONA = Persona("mine", "You doubt everything on Mondays.")


def debate() -> Debate:
    return Debate(PERSONA, DebateConfig(1, tie_breaker=True), together=4)


def prompts(judge: Debate) -> list[str]:
    return judged(judge, reading(lambda prompt, text: 3, lambda prompt, text: "TOO LOW"), TEXTS)[1].prompts


def test_rated_examples_are_shown_once_for_the_table_and_never_of_its_own_source() -> None:
    own = RatedExample("coherence", "g1", ITEM.source, "", "A leak.", 1.0)
    others = [
        RatedExample("coherence", f"g{n}", f"Letter {n}.", "", f"{word} text", 2.0)
        for n, word in enumerate(("one", "far"))
    ]
    for nearest, field in ((0, "examples"), (1, "similar")):
        told = [section(prompt, field) for prompt in prompts(with_examples(debate(), [own, *others], nearest))]
        assert len(set(told)) == 1
        assert "one text" in told[0]
        assert ("far text" in told[0]) == (nearest == 0)
        assert "A leak." not in told[0]


def test_a_server_that_fails_leaves_the_table_whole() -> None:
    """Cut, it would be scored otherwise than by the next run, which finds the server well."""

    def script(prompt: str) -> str:
        if "Reply with OK" in prompt:
            return "OK"
        if "decisions" in requested(prompt):
            raise lm15.RateLimitError("slow down", retry_after=0.001)
        return reading(lambda p, text: 3)(prompt)

    lm = scripted_lm(script, options=LMOptions(first_wait=0.01))
    with JudgeRunner(lm, progress=False) as runner:
        judgements = runner.judge(debate(), TEXTS)
    assert values(judgements) == ["lm error"] * 3
    assert {len(shown(prompt)) for prompt in lm.prompts if section(prompt, "task")} == {3}
    assert all(isinstance(j, Unscored) and j.detail.startswith("critic, round 1: ") for j in judgements)
    assert [round(j.calls, 9) for j in judgements] == [round(2 / 3, 9)] * 3
