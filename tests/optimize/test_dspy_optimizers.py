"""GEPA, MIPROv2 and any `module:Class` as tuners: what they find and leave alone, that they resume, how they fail."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dspy
import pytest
from dspy import lm15
from dspy.teleprompt.teleprompt import Teleprompter

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.tuners import TunerContext, dspy_optimizers, find_tuner
from debate_judge.optimize.tuners.rated import examples
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.prompts import PLAIN
from debate_judge.programs.judge import DebateConfig, Judge
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.programs.lm.replies import ReplyStore
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner import JudgeRunner
from tests.fakes import ScriptedLM, debater, scripted_lm, section

ASPECT = Aspect("clarity", "Is it easy to follow?", Scale(1, 5))
STORY = "There is an old lighthouse keeper with seven cats and no boat."
BOTH = pytest.mark.parametrize("tuner", ["gepa", "mipro"])


def corpus(candidates: int = 4) -> Corpus:
    """Four sources whose candidates end in their rating."""

    def group(g: int) -> RatedGroup:
        ratings = [1 + (2 * c + g) % 5 for c in range(candidates)]
        rated = [Candidate(f"c{c}", f"Of {g}: {r}", {"clarity": (float(r),)}) for c, r in enumerate(ratings)]
        return RatedGroup(f"g{g}", f"Source {g}. {STORY}", tuple(rated))

    task = Task("t", "article", "summary", (ASPECT,))
    return Corpus(task, tuple(map(group, range(4))), Origin("test", "nowhere"))


def proposes(prompt: str) -> bool:
    return "[[ ## examples_with_feedback ## ]]" in prompt or "[[ ## proposed_instruction ## ]]" in prompt


class Mind:
    """Rates well only with a word in its instructions: the Scorer's at once, the Critic's after it has spoken.

    Args:
        word: In the proposals that help.
        role: Whose instructions they must be in, the Scorer's or the Critic's.
        proposed: The text of every proposal; `{n}` is the number of those before.
    """

    def __init__(self, word: str, role: str, proposed: str = "You look again, {n}, at each NO ISSUE.") -> None:
        self.word, self.role, self.proposed = word, role, proposed
        self.requests: list[str] = []

    def __call__(self, prompt: str) -> str:
        if proposes(prompt):
            self.requests.append(prompt)
            text = self.proposed.format(n=len(self.requests))
            if "[[ ## examples_with_feedback ## ]]" in prompt:
                return json.dumps({"new_instruction": text})
            return f"[[ ## proposed_instruction ## ]]\n{text}\n\n[[ ## completed ## ]]"
        if "[[ ## observations ## ]]" in prompt or "[[ ## summary ## ]]" in prompt:
            return "[[ ## observations ## ]]\nMany.\n\n[[ ## summary ## ]]\nTexts."
        if "[[ ## rated ## ]]" in prompt:
            return "[[ ## analysis ## ]]\nNothing.\n\n[[ ## guide ## ]]\nRaters have habits.\n\n[[ ## completed ## ]]"
        if "[[ ## former_persona ## ]]" in prompt:
            return "[[ ## analysis ## ]]\nNothing.\n\n[[ ## persona ## ]]\nObject.\n\n[[ ## completed ## ]]"
        return debater(score=self._score, feedback=self._objection)(prompt)

    def _score(self, prompt: str) -> str:
        knows = self.word in section(prompt, "role") if self.role == "scorer" else "well told" in prompt
        return section(prompt, "candidate").split()[-1] if knows else "3"

    def _objection(self, prompt: str) -> str:
        return "well told" if self.role == "critic" and self.word in section(prompt, "role") else "badly told"


def start(rounds: int = 1) -> Debate:
    return Debate(PLAIN, DebateConfig(rounds))


def tuned(
    lm: ScriptedLM | JudgeLM, tuner: str, judge: Judge | None = None, rated: Corpus | None = None, **values: Any
) -> Judge:
    rated = rated or corpus()
    grouped = len(rated.groups[0].candidates) > 1
    with JudgeRunner(lm, progress=False) as runner:
        arguments: dict[str, Any] = {"statistic": "spearman", "runner": runner, "reflection_lm": lm, "label": "test"}
        tuning = TunerContext(**{**arguments, "proposals": 1, "seed": 0, "trials": 6, **values})
        trainset = examples(rated, rated.task.aspects[:1], grouped=grouped, seed=0)
        return find_tuner(tuner)(tuning).compile(judge or start(), trainset=trainset)


# --- what they find ---


@pytest.mark.parametrize("tuner", ["guide", "mipro", "gepa"])
def test_train_sources_that_rank_nothing_leave_the_judge_as_it_is(tuner: str) -> None:
    alike = tuple(
        replace(group, candidates=tuple(replace(c, ratings={"clarity": (3.0,)}) for c in group.candidates))
        for group in corpus().groups
    )
    lm, judge = scripted_lm(Mind("again", "scorer")), start()
    assert tuned(lm, tuner, judge, rated=replace(corpus(), groups=alike)) is judge
    assert lm.prompts == []


@pytest.mark.integration
@BOTH
@pytest.mark.parametrize("role", ["scorer", "critic"])
def test_they_rewrite_the_scorers_instructions_and_the_critics_persona(tuner: str, role: str) -> None:
    lm, judge = scripted_lm(Mind("look again", role)), start()
    before = judge.instructions()
    rewritten = tuned(lm, tuner, judge, trials=10)
    assert "look again" in rewritten.instructions()[role]
    assert rewritten.instructions()["tie_breaker"] == before["tie_breaker"]
    assert rewritten.debate_config == judge.debate_config
    # The judge that was given is as it was.
    assert rewritten is not judge
    assert judge.instructions() == before


@pytest.mark.integration
@BOTH
def test_instructions_lose_what_they_quote(tuner: str) -> None:
    lm = scripted_lm(Mind("look again", "scorer", f"You look again, {{n}}. {STORY}"))
    text = tuned(lm, tuner, trials=10).instructions()["scorer"]
    assert "You look again" in text
    assert "lighthouse" not in text


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
    rng = random.Random(order)

    def answer(prompt: str) -> str:
        # For the calls that begin from now on.
        lm.transport.latency = rng.choice((0.0, 0.001, 0.003))
        return script(prompt)

    lm = scripted_lm(answer)
    return lm


@BOTH
def test_equal_seeds_find_the_same_and_ask_the_same_whatever_reply_comes_first(tuner: str) -> None:
    tunings = []
    for order, seed in enumerate((3, 3, 4)):
        lm = in_another_order(Mind("look again", "role"), order)
        tunings.append((tuned(lm, tuner, seed=seed).instructions(), Counter(lm.prompts)))
    assert tunings[0] == tunings[1]
    assert tunings[0][1] != tunings[2][1]


@pytest.mark.integration
@BOTH
def test_stopped_and_repeated_it_makes_no_call_twice_and_finds_the_same(tuner: str) -> None:
    whole = scripted_lm(Mind("look again", "role"))
    expected, store = tuned(whole, tuner).instructions(), ReplyStore()
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
    third = scripted_lm(Mind("look again", "role"), store=store)
    assert tuned(third, tuner).instructions() == expected
    assert third.prompts == []


# --- failures, and what is said ---


@BOTH
@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("proposal", lm15.AuthError),
        ("reply", lm15.AuthError),
        ("metric", ZeroDivisionError),
        ("metric", KeyboardInterrupt),
    ],
)
def test_an_error_or_an_interrupt_ends_it_and_no_score_is_made_of_a_failure(
    tuner: str, place: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    mind = Mind("look again", "role")

    def broken(*_: Any, **__: Any) -> Any:
        # Without its status the refusal may concern one text.
        raise lm15.AuthError("a bug", status=401) if error is lm15.AuthError else error("a bug")

    def script(prompt: str) -> str:
        if (place == "proposal" and proposes(prompt)) or (place == "reply" and "look again" in prompt):
            broken()
        return mind(prompt)

    # An interrupt comes in the thread of the caller.
    monkeypatch.setattr(dspy_optimizers, "THREADS", 1)
    if place == "metric":
        monkeypatch.setattr(dspy_optimizers, "group_agreement", broken)
    with pytest.raises(dspy.LMAuthError if error is lm15.AuthError else error, match="a bug"):
        tuned(scripted_lm(script), tuner)


# --- `module:Class` ---

HERE = "tests.optimize.test_dspy_optimizers"


class Stern(Teleprompter):
    """Rewrites the Critic's persona if the metric says so."""

    def __init__(self, metric: Any, seed: int) -> None:
        self.metric, self.seed = metric, seed

    def compile(self, student: Judge, *, trainset: list[dspy.Example]) -> Judge:
        scores = [self.metric(example, student(**example.inputs())) for example in trainset]
        assert all(-1 <= score <= 1 for score in scores)
        critic = next(predictor for name, predictor in student.named_predictors() if name.endswith("critic"))
        critic.signature = critic.signature.with_instructions(f"Be stern. {self.seed}")
        return student


class Refusing(Teleprompter):
    def compile(self, student: Judge, *, trainset: list[dspy.Example]) -> Judge:
        raise ValueError("too few")


@pytest.mark.parametrize("candidates", [4, 1])
def test_a_class_of_ones_own_gets_what_its_constructor_names_and_batches_where_nothing_is_grouped(
    candidates: int,
) -> None:
    judge = tuned(make_lm("offline"), f"{HERE}:Stern", rated=corpus(candidates))
    assert judge.instructions() == {**start().instructions(), "critic": "Be stern. 0"}


@pytest.mark.integration
@BOTH
def test_no_lm_sees_the_source_where_the_aspect_is_judged_without_it(tuner: str) -> None:
    rated = corpus()
    task = replace(rated.task, aspects=(replace(ASPECT, source=False),))
    lm = scripted_lm(Mind("look again", "critic"))
    tuned(lm, tuner, rated=replace(rated, task=task), trials=10)
    assert any(map(proposes, lm.prompts))
    assert not [prompt for prompt in lm.prompts if "lighthouse" in prompt]


def test_an_optimizer_of_dspy_that_no_line_of_ours_names_tunes_a_copy_of_the_judge() -> None:
    judge, lm = start(), make_lm("offline")
    copy = tuned(lm, "dspy:BootstrapFewShot", judge, trials=3)
    assert any(predictor.demos for predictor in copy.predictors())
    assert not any(predictor.demos for predictor in judge.predictors())
    assert lm.meter.executed.total() > 0


@pytest.mark.parametrize(
    ("tuner", "keyword"), [(f"{HERE}:Refusing", "test: too few"), ("dspy:KNNFewShot", "could not tune test")]
)
def test_an_optimizer_that_refuses_or_needs_more_than_is_offered_is_an_input_error(tuner: str, keyword: str) -> None:
    with pytest.raises(InputError, match=keyword):
        tuned(make_lm("offline"), tuner)
