"""GEPA and MIPROv2: what they find and leave alone, that they resume, and that no failure passes for a result."""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dspy
import optuna
import pytest
from dspy import lm15

from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.examples import examples
from debate_judge.optimize.tuners import TUNERS, TunerContext, dspy_optimizers, tuning_result
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import PLAIN
from debate_judge.programs.judge import DebateConfig, Judge
from debate_judge.programs.lm.reply import InMemoryStore
from debate_judge.programs.roles.guide import HEADING
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import ScriptedLM, debater, scripted_lm, section

ASPECT = Aspect("clarity", "Is it easy to follow?", Scale(1, 5))
STORY = "There is an old lighthouse keeper with seven cats and no boat."
BOTH = pytest.mark.parametrize("tuner", ["gepa", "mipro"])


def corpus(sources: int = 4, candidates: int = 4) -> Corpus:
    """Candidates end in their mean rating."""
    groups = tuple(
        RatedGroup(
            f"g{g}",
            f"Source {g}. {STORY}",
            tuple(
                Candidate(f"c{c}", f"Of {g}: {1 + (2 * c + g) % 5}", {"clarity": (float(1 + (2 * c + g) % 5),)})
                for c in range(candidates)
            ),
        )
        for g in range(sources)
    )
    return Corpus(Task("t", "article", "summary", (ASPECT,)), groups, Origin("test", "nowhere"))


def proposes(prompt: str) -> bool:
    return "[[ ## examples_with_feedback ## ]]" in prompt or "[[ ## proposed_instruction ## ]]" in prompt


def proposal(prompt: str, text: str) -> str:
    """A reply to GEPA's proposer, in JSON, or to MIPROv2's."""
    if "[[ ## examples_with_feedback ## ]]" in prompt:
        return json.dumps({"new_instruction": text})
    return f"[[ ## proposed_instruction ## ]]\n{text}\n\n[[ ## completed ## ]]"


class Mind:
    """Rates well only with a word in its instructions: the Scorer's at once, the Critic's after it has spoken.

    Args:
        word: In the proposals that help.
        role: Whose instructions they must be in: `standard` for the Scorer's, `role` for the Critic's.
        proposed: The text of every proposal; `{n}` is the number of those before.
    """

    def __init__(self, word: str, role: str, proposed: str = "You look again, {n}, at each NO ISSUE.") -> None:
        self.word, self.role, self.proposed = word, role, proposed
        self.requests: list[str] = []

    def __call__(self, prompt: str) -> str:
        if proposes(prompt):
            self.requests.append(prompt)
            return proposal(prompt, self.proposed.format(n=len(self.requests)))
        if "[[ ## observations ## ]]" in prompt or "[[ ## summary ## ]]" in prompt:
            return "[[ ## observations ## ]]\nMany.\n\n[[ ## summary ## ]]\nTexts."
        if "[[ ## rated ## ]]" in prompt:
            return "[[ ## analysis ## ]]\nNothing.\n\n[[ ## guide ## ]]\nRaters have habits.\n\n[[ ## completed ## ]]"
        return debater(score=self._score, decision="ISSUE", feedback=self._objection)(prompt)

    def _score(self, prompt: str) -> str:
        knows = self.word in section(prompt, "standard") if self.role == "standard" else "well told" in prompt
        return section(prompt, "candidate").split()[-1] if knows else "3"

    def _objection(self, prompt: str) -> str:
        return "well told" if self.role == "role" and self.word in section(prompt, "role") else "badly told"


def start(rounds: int = 1) -> Debate:
    return Debate(PLAIN, DebateConfig(rounds))


def tuned(lm: ScriptedLM, tuner: str, judge: Judge | None = None, rated: Corpus | None = None, **values: Any) -> Judge:
    rated = rated or corpus()
    grouped = len(rated.groups[0].candidates) > 1
    with JudgeRunner(lm, progress=False) as runner:
        tuning = TunerContext(
            statistic="spearman",
            runner=runner,
            reflection=lm,
            proposals=1,
            label="test",
            **{"seed": 0, "trials": 6, **values},
        )
        trainset = examples(rated, [ASPECT], grouped=grouped, seed=0)
        return TUNERS[tuner](tuning).compile(judge or start(), trainset=trainset)


# --- what they find ---


@pytest.mark.parametrize("tuner", ["guide", "mipro", "gepa"])
def test_train_sources_that_rank_nothing_leave_the_judge_as_it_is(tuner: str) -> None:
    alike = tuple(
        replace(group, candidates=tuple(replace(c, ratings={"clarity": (3.0,)}) for c in group.candidates))
        for group in corpus().groups
    )
    lm, judge = scripted_lm(Mind("again", "standard")), start()
    assert tuned(lm, tuner, judge, rated=replace(corpus(), groups=alike)) is judge
    assert lm.prompts == []


@pytest.mark.integration
@BOTH
@pytest.mark.parametrize(("role", "predictor"), [("standard", "scorer"), ("role", "critic")])
def test_they_rewrite_the_scorers_instructions_and_the_critics_persona(tuner: str, role: str, predictor: str) -> None:
    lm, judge = scripted_lm(Mind("look again", role)), start()
    before = judge.instructions()
    found = tuned(lm, tuner, judge, trials=10)
    assert "look again" in found.instructions()[predictor]
    assert found.instructions()["tie_breaker"] == before["tie_breaker"]
    assert found.debate_config == judge.debate_config
    # The judge that was given is as it was.
    assert found is not judge
    assert judge.instructions() == before


def test_gepa_starts_from_the_guide_and_mipro_from_the_judge() -> None:
    lm = scripted_lm(Mind("nobody says this", "standard"))
    found = tuning_result(tuned(lm, "gepa"))
    assert HEADING in found.start.judge.instructions()["scorer"]
    assert found.judge.instructions() == found.start.judge.instructions()
    assert found.judge.instructions()["critic"] == PLAIN.text
    assert tuned(lm, "mipro").instructions() == start().instructions()


@pytest.mark.integration
@BOTH
def test_instructions_lose_what_they_quote(tuner: str) -> None:
    lm = scripted_lm(Mind("look again", "standard", f"You look again, {{n}}. {STORY}"))
    text = tuned(lm, tuner, trials=10).instructions()["scorer"]
    assert "You look again" in text
    assert "lighthouse" not in text


def test_gepa_is_told_what_came_of_the_call_that_it_is_shown() -> None:
    mind = Mind("nobody says this", "standard")
    tuned(scripted_lm(mind), "gepa")
    shown = [prompt for prompt in mind.requests if "This call was about candidate" in prompt]
    assert len(shown) == len(mind.requests) > 1
    assert all("The raters gave it" in prompt and "Pairs that the raters set apart" in prompt for prompt in shown)


# --- one seed, one result; nothing twice ---


class Stopping:
    """Fails for good from its n-th reply on."""

    def __init__(self, script: Callable[[str], str], number: float) -> None:
        self.script, self.left = script, number

    def __call__(self, prompt: str) -> str:
        self.left -= 1
        if self.left < 0:
            raise lm15.AuthError("wrong key")
        return self.script(prompt)


def in_another_order(script: Callable[[str], str], order: int) -> ScriptedLM:
    """An LM that takes another time for each reply, so that replies come in an order of this seed."""
    dice = random.Random(order)

    def answer(prompt: str) -> str:
        # For the calls that begin from now on.
        lm.scripted.latency = dice.choice((0.0, 0.001, 0.003))
        return script(prompt)

    lm = scripted_lm(answer)
    return lm


@BOTH
def test_equal_seeds_find_the_same_and_ask_the_same_whatever_reply_comes_first(tuner: str) -> None:
    asked = []
    for order, seed in enumerate((3, 3, 4)):
        lm = in_another_order(Mind("look again", "role"), order)
        asked.append((tuned(lm, tuner, seed=seed).instructions(), Counter(lm.prompts)))
    assert asked[0] == asked[1]
    assert asked[0][1] != asked[2][1]


@pytest.mark.integration
@BOTH
def test_stopped_and_repeated_it_makes_no_call_twice_and_finds_the_same(tuner: str) -> None:
    whole = scripted_lm(Mind("look again", "role"))
    expected, store = tuned(whole, tuner).instructions(), InMemoryStore()
    first = scripted_lm(Stopping(Mind("look again", "role"), len(whole.prompts) / 2), store=store)
    with pytest.raises(dspy.LMAuthError, match="wrong key"):
        tuned(first, tuner)
    answered = first.prompts[: len(whole.prompts) // 2]
    # The requests for instructions differ in nothing but what was said to them before.
    mind = Mind("look again", "role")
    mind.requests += [prompt for prompt in answered if proposes(prompt)]
    second = scripted_lm(mind, store=store)
    assert tuned(second, tuner).instructions() == expected
    assert Counter(answered) + Counter(second.prompts) == Counter(whole.prompts)
    again = scripted_lm(Mind("look again", "role"), store=store)
    assert tuned(again, tuner).instructions() == expected
    assert again.prompts == []


# --- failures, and what is said ---


@BOTH
@pytest.mark.parametrize("when", [proposes, lambda prompt: "look again" in prompt and not proposes(prompt)])
def test_a_fatal_error_is_raised_and_no_score_made_of_it(tuner: str, when: Callable[[str], bool]) -> None:
    mind = Mind("look again", "role")

    def failing(prompt: str) -> str:
        if when(prompt):
            raise lm15.AuthError("wrong key")
        return mind(prompt)

    lm = scripted_lm(failing)
    with pytest.raises(dspy.LMAuthError, match="wrong key"):
        tuned(lm, tuner)


@BOTH
@pytest.mark.parametrize(
    ("place", "error"), [("metric", ZeroDivisionError), ("judge", ZeroDivisionError), ("metric", KeyboardInterrupt)]
)
def test_an_error_of_our_own_or_an_interrupt_ends_it_and_leaves_the_loggers_as_they_were(
    tuner: str,
    place: str,
    error: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "dspy")
    optuna.logging.set_verbosity(optuna.logging.INFO)

    def broken(*_: Any, **__: Any) -> Any:
        raise error("a bug")

    # An interrupt comes in the thread of the caller.
    monkeypatch.setattr(dspy_optimizers, "THREADS", 1)
    if place == "judge":
        monkeypatch.setattr(Debate, "judge", broken)
    else:
        monkeypatch.setattr(dspy_optimizers, "group_agreement", broken)
    with pytest.raises(error, match="a bug"):
        tuned(scripted_lm(Mind("look again", "role")), tuner)
    assert (logging.getLogger("dspy").level, optuna.logging.get_verbosity()) == (logging.INFO, optuna.logging.INFO)


@BOTH
def test_they_say_nothing_of_their_own(tuner: str, capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("dspy")
    before = (logger.level, optuna.logging.get_verbosity())
    tuned(scripted_lm(Mind("look again", "role")), tuner, trials=3)
    assert capfd.readouterr() == ("", "")
    assert (logger.level, optuna.logging.get_verbosity()) == before
