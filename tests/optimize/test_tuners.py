"""The tuners: what they find, what they leave alone, and that no failure passes for a result."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dspy
import optuna
import pytest
from dspy import lm15

from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.examples import examples
from debate_judge.optimize.tuners import TUNERS, Effort, GuideLimits, Tuning, as_tuned
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import PERSONAS, PLAIN
from debate_judge.programs.devset import group_feedback
from debate_judge.programs.judge import DebateConfig, Judge
from debate_judge.programs.lm.reply import Memory
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import ScriptedLM, debater, scripted_lm, section

ASPECT = Aspect("clarity", "Is it easy to follow?", Scale(1, 5))
CORPUS = Corpus(
    Task("t", "article", "summary", (ASPECT,)),
    tuple(
        RatedGroup(
            f"g{i}",
            f"Source {i}.",
            tuple(
                Candidate(f"c{j}", f"{1 + (2 * j + i) % 5}", {"clarity": (float(1 + (2 * j + i) % 5),)})
                for j in range(5)
            ),
        )
        for i in range(3)
    ),
    Origin("test", "nowhere"),
)
LONG = "There is an old lighthouse keeper with seven cats and no boat."
TEXTS = {name: persona.text for name, persona in PERSONAS.items()}
BEST = PERSONAS["moderately-negative"].text


def proposes(prompt: str) -> bool:
    return "proposed_instruction" in prompt


def rewarding(text: str) -> Callable[[str], str]:
    """An LM whose Scorer rates well only after a Critic who was told `text`; proposals are numbered."""
    proposed = iter(range(1000))
    debate = debater(
        score=lambda prompt: section(prompt, "candidate") if "well told" in section(prompt, "debate") else "3",
        decision="ISSUE",
        feedback=lambda prompt: "well told" if text in prompt else "badly told",
    )

    def script(prompt: str) -> str:
        if proposes(prompt):
            return f"[[ ## proposed_instruction ## ]]\nYou look again, {next(proposed)}.\n\n[[ ## completed ## ]]"
        return debate(prompt)

    return script


def tuned(lm: ScriptedLM, tuner: str = "mipro", judge: Judge | None = None, **options: Any) -> Judge:
    values = {"proposals": 1, "trials": 16, "seed": 0, **options}
    with JudgeRunner(lm, progress=False) as runner:
        return TUNERS[tuner](
            Tuning(
                judge=judge or start(),
                examples=examples(values.get("corpus", CORPUS), [ASPECT], grouped=True, seed=0),
                statistic="spearman",
                feedback=group_feedback,
                runner=runner,
                reflection=lm,
                guide=values.get("guide", GuideLimits()),
                personas=TEXTS,
                effort=Effort(values["proposals"], values["trials"]),
                seed=values["seed"],
                label="test",
            )
        )


def start() -> Debate:
    return Debate(PLAIN, DebateConfig(1))


def test_none_returns_the_judge_and_asks_nobody() -> None:
    lm, judge = scripted_lm(rewarding(BEST)), start()
    assert tuned(lm, "none", judge) is judge
    assert lm.prompts == []


@pytest.mark.parametrize("tuner", ["guide", "mipro", "gepa"])
def test_train_sources_that_rank_nothing_leave_the_judge_as_it_is(tuner: str) -> None:
    alike = tuple(
        replace(group, candidates=tuple(replace(c, ratings={"clarity": (3.0,)}) for c in group.candidates))
        for group in CORPUS.groups
    )
    lm, judge = scripted_lm(rewarding(BEST)), start()
    found = as_tuned(tuned(lm, tuner, judge, corpus=replace(CORPUS, groups=alike)))
    assert found.judge is judge
    assert lm.prompts == []


def test_mipro_finds_the_persona_that_the_raters_agree_with() -> None:
    lm, judge = scripted_lm(rewarding(BEST)), start()
    before = judge.instructions()
    found = tuned(lm, judge=judge)
    assert found.instructions()["critic"] == BEST
    assert found.debate_config == judge.debate_config
    # The judge that was given is as it was.
    assert found is not judge
    assert judge.instructions() == before


def test_mipro_may_find_its_own_proposal() -> None:
    found = tuned(scripted_lm(rewarding("You look again")))
    assert found.instructions()["critic"].startswith("You look again")


def test_mipro_keeps_the_judge_where_nothing_is_better() -> None:
    assert tuned(scripted_lm(rewarding("nobody says this"))).instructions() == start().instructions()


def test_mipro_never_touches_the_tie_breaker() -> None:
    lm = scripted_lm(rewarding(BEST))
    found = tuned(lm, judge=Debate(PLAIN, DebateConfig(1, True)))
    name = "tie_breaker"
    assert found.instructions()[name] == start().instructions()[name]
    assert not any(start().instructions()[name] in prompt for prompt in lm.prompts)


def test_mipro_leaves_the_critic_of_a_single_call_alone() -> None:
    lm = scripted_lm(rewarding(BEST))
    found = tuned(lm, judge=Debate(PLAIN, DebateConfig(0)))
    assert found.instructions()["critic"] == PLAIN.text
    assert lm.meter.asked["critic"] == 0


def test_mipro_is_deterministic_for_a_seed() -> None:
    asked = []
    for seed in (0, 0, 1):
        lm = scripted_lm(rewarding(BEST))
        found = tuned(lm, seed=seed, trials=6)
        asked.append((found.instructions(), sorted(lm.prompts)))
    assert asked[0] == asked[1]
    assert asked[0][1] != asked[2][1]


def test_mipro_again_executes_nothing_and_finds_the_same() -> None:
    store = Memory()
    first = scripted_lm(rewarding(BEST), store=store)
    found = tuned(first, trials=6)
    again = scripted_lm(rewarding(BEST), store=store)
    assert tuned(again, trials=6).instructions() == found.instructions()
    assert again.prompts == []
    assert again.meter.asked == first.meter.asked


def test_the_proposer_sees_ratings_texts_and_what_the_debates_did_but_no_code() -> None:
    lm = scripted_lm(rewarding(BEST))
    tuned(lm, trials=2)
    asked = [prompt for prompt in lm.prompts if proposes(prompt)]
    # One proposal for each of two roles.
    assert len(asked) == 2
    for prompt in asked:
        lines = section(prompt, "dataset_description").splitlines()
        sources = [json.loads(line) for line in lines if line.startswith("{")]
        assert {source["source"] for source in sources} == {"Source 0.", "Source 1.", "Source 2."}
        for source in sources:
            assert len(source["candidates"]) == 5
            assert {c["raters_mean"] for c in source["candidates"]} == {1.0, 2.0, 3.0, 4.0, 5.0}
            assert all(c["judge"] == 3.0 for c in source["candidates"])
            assert source["feedback"][0].startswith("Pairs that the raters set apart: 10; in the wrong order: 0")
        assert "class " not in prompt
        assert "def " not in prompt


def test_proposals_are_shown_different_sources_and_lose_what_they_quote() -> None:
    quoting = f"You look again. {LONG}"
    lm = scripted_lm(
        lambda prompt: (
            f"[[ ## proposed_instruction ## ]]\n{quoting}\n\n[[ ## completed ## ]]"
            if proposes(prompt)
            else debater(score="3", decision="ISSUE")(prompt)
        )
    )
    groups = tuple(replace(group, source=f"{group.source} {LONG}") for group in CORPUS.groups)
    tuned(lm, corpus=replace(CORPUS, groups=groups), proposals=2, guide=GuideLimits(tokens=550))
    shown = [
        set(re.findall(r"Source \d", section(prompt, "dataset_description")))
        for prompt in lm.prompts
        if proposes(prompt)
    ]
    assert len(shown) == 4
    assert shown[0] != shown[1]
    assert any("You look again." in prompt for prompt in lm.prompts if not proposes(prompt))
    told = [section(prompt, name) for prompt in lm.prompts if not proposes(prompt) for name in ("panel", "role")]
    assert not any("lighthouse" in text for text in told)


def test_mipro_says_nothing_on_stdout_and_leaves_the_loggers_as_they_were(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("dspy")
    before = (logger.level, optuna.logging.get_verbosity())
    tuned(scripted_lm(rewarding(BEST)), trials=3)
    assert (logger.level, optuna.logging.get_verbosity()) == before
    assert capfd.readouterr().out == ""


# --- failures ---


def breaking(error: Exception, when: Callable[[str], bool]) -> Callable[[str], str]:
    answer = rewarding(BEST)

    def script(prompt: str) -> str:
        if when(prompt):
            raise error
        return answer(prompt)

    return script


@pytest.mark.parametrize(
    "when",
    [proposes, lambda prompt: not proposes(prompt), lambda prompt: "You look again" in prompt and not proposes(prompt)],
    ids=["while it proposes", "at the first evaluation", "at a later evaluation"],
)
def test_a_fatal_error_is_raised_and_no_program_returned(when: Callable[[str], bool]) -> None:
    lm = scripted_lm(breaking(lm15.AuthError("wrong key"), when))
    with pytest.raises(dspy.LMAuthError, match="wrong key"):
        tuned(lm)


def test_an_error_of_our_own_is_raised_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(JudgeRunner, "converse", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        tuned(scripted_lm(rewarding(BEST)))


@pytest.mark.parametrize("number", [1, 3])
def test_an_interrupt_ends_it(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    converse, calls = JudgeRunner.converse, iter(range(1, 100))

    def interrupted(self: JudgeRunner, *args: Any, **kwargs: Any) -> Any:
        if next(calls) == number:
            raise KeyboardInterrupt
        return converse(self, *args, **kwargs)

    monkeypatch.setattr(JudgeRunner, "converse", interrupted)
    level = logging.getLogger("dspy").level
    with pytest.raises(KeyboardInterrupt):
        tuned(scripted_lm(rewarding(BEST)))
    assert logging.getLogger("dspy").level == level


def test_items_that_fail_alone_count_against_the_candidate_and_stop_nothing() -> None:
    def when(prompt: str) -> bool:
        return PERSONAS["devils-advocate"].text in prompt

    found = tuned(scripted_lm(breaking(lm15.InvalidRequestError("too long"), when)))
    assert found.instructions()["critic"] == BEST
