"""What is learnt of the raters beside a guide: the Critic's persona and examples, and who may judge by them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.teleprompt.teleprompt import Teleprompter

from debate_judge.optimize.plan import CompileRun, make_plan
from debate_judge.optimize.search import LEARNT, NO_KNOWLEDGE, TUNED, JudgeVariant, SearchSpace
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import (
    FoldJudge,
    GroupKey,
    LearntPersona,
    TunerContext,
    TuningResult,
    tuning_result,
    with_tuning_result,
)
from debate_judge.optimize.tuners.guide import add_guide, count_effects, critic_replies, guide_of
from debate_judge.optimize.tuners.rated import examples, group_keys
from debate_judge.optimize.tuning import (
    VariantJudges,
    combine,
    examples_knowledge,
    learnt_knowledge,
    rated_candidates,
    tune,
)
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.prompts import ADVOCATE, PERSONAS, PLAIN
from debate_judge.programs.examples import examples_of
from debate_judge.programs.judge import DebateConfig, Item, Judge, Transcript, Turn, corpus_items
from debate_judge.runs.runner import JudgeRunner
from tests.fakes import debater, scripted_lm, section
from tests.optimize.guide_author import ASPECT, CANDIDATES, SOURCES, Author, corpus, tuned
from tests.optimize.small_corpus import small_corpus

ITEM = corpus_items(corpus(1), ASPECT)[0]
SCORER, CRITIC = Turn("scorer", 0, "Because.", 4.0), Turn("critic", 1, "Too high.")
GIVING_IN, AGAIN = Turn("critic", 1, "", no_issue=True), Turn("scorer", 1, "So be it.", 3.0)


def rated(ratings: Sequence[float | None], items: Sequence[Item] = ()) -> dspy.Example:
    n = len(ratings)
    return dspy.Example(questions=items or [ITEM] * n, ratings=ratings, single_ratings=[()] * n, comments=[()] * n)


@pytest.mark.parametrize(
    ("mean", "before", "after", "effect"),
    [
        (3.0, 3.2, None, "NO ISSUE, rightly"),
        (3.0, 4.0, None, "NO ISSUE, too early"),
        (3.0, 4.0, 3.5, "moved the score toward the raters"),
        (3.0, 4.0, 4.5, "moved the score away from the raters"),
        (3.0, 4.0, 2.0, "objected, and the score stayed as far from the raters"),
        (3.0, 4.0, 4.0, "objected, and the score stayed as far from the raters"),
    ],
)
def test_what_a_reply_did(mean: float, before: float, after: float | None, effect: str) -> None:
    turns = (replace(SCORER, score=before), *((GIVING_IN,) if after is None else (CRITIC, replace(AGAIN, score=after))))
    (source,) = critic_replies(rated([mean]), [Transcript(turns)])
    assert source.candidates[0].debate_fields["effect"] == effect
    assert count_effects([source]) == {effect: 1}


class Persuaded(Author):
    """Scores the wrong way round until a Critic objects, which only a stern one does."""

    def __init__(self, persona: str) -> None:
        super().__init__("Raters like numbers.")
        self.persona = persona
        self.asked: list[str] = []

    def __call__(self, prompt: str) -> str:
        if "[[ ## former_persona ## ]]" in prompt:
            self.asked.append(prompt)
            return f"[[ ## analysis ## ]]\nIt gave in.\n\n[[ ## persona ## ]]\n{self.persona}\n\n[[ ## completed ## ]]"
        if "[[ ## rated ## ]]" in prompt:
            return super().__call__(prompt)
        number = int(section(prompt, "candidate").split()[-1])
        score = number + 1 if "Look again" in prompt else CANDIDATES - number
        stern = "You are stern" in prompt
        return debater(score=str(score), feedback="Look again." if stern else "NO ISSUE")(prompt)


def test_the_persona_is_written_from_the_debates_of_all_guides_and_left_to_the_search() -> None:
    for persona, kept in (("You are stern.", True), (ADVOCATE.text, False), ("", False)):
        author = Persuaded(persona)
        judge, _ = tuned(author, rounds=1)
        assert judge.instructions()["critic"] == ADVOCATE.text
        learnt = tuning_result(judge).persona
        # What is empty is asked for once more.
        assert len(author.asked) == (1 if persona else 2)
        prompt = author.asked[0]
        assert section(prompt, "former_persona") == ADVOCATE.text
        sources = [json.loads(line) for line in section(prompt, "replies").splitlines()]
        assert len(sources) == SOURCES
        assert {c["effect"] for s in sources for c in s["candidates"]} == {"NO ISSUE, rightly", "NO ISSUE, too early"}
        counts = map(int, re.findall(r": (\d+)", section(prompt, "effects")))
        assert sum(counts) == SOURCES * CANDIDATES
        everything = frozenset((ASPECT.name, f"g{n}") for n in range(SOURCES))
        assert learnt == (LearntPersona(persona, everything) if kept else None)


@pytest.mark.parametrize(("rounds", "right"), [(0, False), (1, True)])
def test_nothing_is_asked_where_nobody_debates_or_every_reply_was_right(rounds: int, right: bool) -> None:
    class Right(Persuaded):
        def __call__(self, prompt: str) -> str:
            if not right or "[[ ## candidate ## ]]" not in prompt:
                return super().__call__(prompt)
            means = [1.0, 1.5, 2.5, 3.5]
            return debater(score=str(means[int(section(prompt, "candidate").split()[-1])]))(prompt)

    author = Right("You are stern.")
    tuned(author, rounds=rounds)
    assert author.asked == []


def test_a_quotation_in_a_persona_is_cut() -> None:
    author = Persuaded("You are stern. Say that source number 1 tells of an old lighthouse keeper.")
    persona = tuning_result(tuned(author, rounds=1)[0]).persona
    assert persona is not None
    assert persona.text == "You are stern."
    assert "quotes" in section(author.asked[1], "correction")


@pytest.mark.parametrize("text", ["You are stern.", None])
def test_the_search_may_choose_it_but_not_by_the_sources_that_it_was_learnt_from(
    tmp_path: Path, text: str | None
) -> None:
    """For the aspect that has one; another aspect has its own persona there."""
    file = small_corpus(tmp_path, groups=12, candidates=3)
    settings = Settings(data=str(file), store=str(tmp_path), folds=1, aspects=("coherence", "fluency"))
    plan = make_plan(settings, {name: persona.text for name, persona in PERSONAS.items()})

    class Writing(Teleprompter):
        def __init__(self, tuning: TunerContext) -> None:
            super().__init__()
            self.writes = text if tuning.label == "coherence" else None

        def compile(self, student: Judge, *, trainset: list[dspy.Example], **kwargs: Any) -> Judge:
            judge = add_guide(student, "Raters like numbers.")
            persona = LearntPersona(self.writes, group_keys(trainset[:1])) if self.writes else None
            return with_tuning_result(judge, TuningResult(judge, persona=persona))

    lm = scripted_lm(debater())
    with JudgeRunner(lm, progress=False) as runner:
        learnt = tune(CompileRun(plan, runner, lm, tuner=Writing), plan.splits.train)
    assert (LEARNT in learnt.space.personas) == (text is not None)
    if text is None:
        return
    variants: Any = {label: of[JudgeVariant(NO_KNOWLEDGE, LEARNT)] for label, of in learnt.variants.items()}
    assert variants["coherence"].judge.instructions()["critic"] == text
    assert variants["fluency"].judge.instructions()["critic"] == ADVOCATE.text
    groups = [group.id for group in plan.splits.train.groups if group.has_distinct_ratings("coherence")]
    judged = [variants["coherence"].judge_for("train", ("coherence", name)) is not None for name in groups]
    assert judged == [False] + [True] * (len(groups) - 1)
    assert variants["coherence"].judge_for("dev", ("coherence", groups[0])) is not None


# --- who is given what is known ---


CORPUS = corpus(4)
GROUPS: list[GroupKey] = [(ASPECT.name, group.id) for group in CORPUS.groups]
BASE = Debate(ADVOCATE, DebateConfig(2))
BY_PERSONA: dict[str, Judge] = {"strict": BASE, "plain": Debate(PLAIN, DebateConfig(2))}


def learnt() -> TuningResult:
    """A guide from everything, and one from each half of the sources, for the other half."""
    halves = (GROUPS[:2], GROUPS[2:])
    folds = [FoldJudge(add_guide(BASE, f"without {[name for _, name in h]}"), frozenset(h)) for h in halves]
    return TuningResult(add_guide(BASE, "of all"), tuple(folds))


def test_a_judge_whose_critic_was_rewritten_is_a_choice_of_its_own_beside_a_guide_for_every_persona() -> None:
    tuned = add_guide(BASE, "of all")
    tuned.critic.signature = tuned.critic.signature.with_instructions("Look twice.")
    kinds = learnt_knowledge(BASE, TuningResult(tuned, start=learnt()))
    assert [kind.name for kind in kinds] == ["guide", TUNED]
    space = SearchSpace((NO_KNOWLEDGE, "guide", TUNED), ("strict", "plain"), (0, 1, 2), (False, True))
    assert {point.variant for point in space.points()} == {
        *(JudgeVariant(k, p) for k in (NO_KNOWLEDGE, "guide") for p in space.personas),
        JudgeVariant(TUNED, TUNED),
    }
    variants = VariantJudges(BY_PERSONA, kinds)
    for name, persona in BY_PERSONA.items():
        judge = variants[JudgeVariant("guide", name)].judge
        assert guide_of(judge) == "of all"
        assert judge.instructions()["critic"] == persona.instructions()["critic"]
        assert variants[JudgeVariant("none", name)].judge.instructions() == persona.instructions()
    # The rewritten judge has no folds: no train group may judge it.
    assert variants[JudgeVariant(TUNED, TUNED)].judge.instructions() == tuned.instructions()
    assert variants[JudgeVariant(TUNED, TUNED)].judge_for("train", GROUPS[0]) is None


def test_examples_are_shown_beside_a_guide_and_every_train_group_counts() -> None:
    assert len(examples(CORPUS, (ASPECT,), grouped=True, seed=0)) == len(GROUPS)
    rated = examples_knowledge(BASE, CORPUS, ASPECT, 2, 0)
    assert [kind.name for kind in rated] == ["examples", "precedents"]
    (guide,) = learnt_knowledge(BASE, learnt())
    kinds = [guide, *rated, *(combine(guide, shown) for shown in rated)]
    variants = VariantJudges(BY_PERSONA, kinds)
    alone, both = (variants[JudgeVariant(kind, "strict")] for kind in ("examples", "guide and examples"))
    assert len(examples_of(alone.judge)) == len(examples_of(both.judge)) == 2
    assert (guide_of(alone.judge), guide_of(both.judge)) == ("", "of all")
    for group in GROUPS:
        assert alone.judge_for("train", group) is not None
        judge = both.judge_for("train", group)
        assert judge is not None
        assert group[1] in guide_of(judge)
        assert len(examples_of(judge)) == 2
    critics = variants[JudgeVariant("guide and precedents", "strict")].judge
    assert (critics.precedents, guide_of(critics)) == (2, "of all")
    assert len(examples_of(critics)) == sum(map(len, rated_candidates(CORPUS, ASPECT)))
