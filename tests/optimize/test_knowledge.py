"""What can be known of the raters: who is given it, and who judges the train sources that it was learnt from."""

from __future__ import annotations

from dataclasses import replace

import dspy

from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.examples import examples
from debate_judge.optimize.search.knowledge import (
    TUNED,
    Knowledge,
    VariantJudges,
    combine,
    examples_knowledge,
    knowledge_values,
    learnt_knowledge,
)
from debate_judge.optimize.search.points import JudgeVariant, SearchSpace
from debate_judge.optimize.settings import ExamplesOption
from debate_judge.optimize.tuners import FoldJudge, GroupKey, TuningResult
from debate_judge.optimize.tuners.guide import add_guide, guide_of
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import ADVOCATE, PLAIN
from debate_judge.programs.judge import DebateConfig, Judge
from debate_judge.programs.roles.examples import examples_of

ASPECT = Aspect("charm", "Whether it charms.", Scale(1, 5))
TASK = Task("toy", "question", "answer", (ASPECT,))
CORPUS = Corpus(
    TASK,
    tuple(
        RatedGroup(
            f"g{g}", f"Source {g}.", tuple(Candidate(f"c{c}", f"{g} {c}", {"charm": (1.0 + c,)}) for c in range(3))
        )
        for g in range(4)
    ),
    Origin("toy", "toy.jsonl"),
)
EXAMPLES = examples(CORPUS, (ASPECT,), grouped=True, seed=0)
BASE = Debate(ADVOCATE, DebateConfig(2))
PERSONAS: dict[str, Judge] = {"strict": BASE, "plain": Debate(PLAIN, DebateConfig(2))}


def place(example: dspy.Example) -> GroupKey:
    item = example.questions[0]
    return item.aspect.name, item.group


def learnt() -> TuningResult:
    """A guide from everything, and one from each half of the examples."""
    halves = frozenset({0, 1}), frozenset({2, 3})
    return TuningResult(
        add_guide(BASE, "of all"),
        tuple(
            FoldJudge(add_guide(BASE, f"without {sorted(h)}"), frozenset(place(EXAMPLES[n]) for n in h)) for h in halves
        ),
    )


def space(*kinds: Knowledge, **axes: tuple[str, ...]) -> SearchSpace:
    knowledge, rewritten = knowledge_values(kinds)
    return replace(SearchSpace(knowledge, ("strict", "plain"), (0, 1, 2), (False, True), rewritten=rewritten), **axes)


def test_a_guide_is_put_into_every_personas_judge() -> None:
    (guide,) = learnt_knowledge(BASE, learnt())
    found = VariantJudges(PERSONAS, [guide], space(guide))
    for name, persona in PERSONAS.items():
        judge = found[JudgeVariant("guide", name)].judge
        assert guide_of(judge) == "of all"
        assert judge.instructions()["critic"] == persona.instructions()["critic"]
        plain = found[JudgeVariant("none", name)]
        assert plain.judge.instructions() == persona.instructions()
        assert plain.out_of_fold is None


def test_a_judge_whose_critic_was_rewritten_is_a_choice_of_its_own() -> None:
    tuned = add_guide(BASE, "of all")
    signature = tuned.critic.signature
    tuned.critic.signature = signature.with_instructions("Look twice.")
    kinds = learnt_knowledge(BASE, TuningResult(tuned, start=learnt()))
    assert [kind.name for kind in kinds] == ["guide", TUNED]
    found = space(*kinds)
    assert found.knowledge == ("none", "guide")
    assert found.rewritten == (JudgeVariant(TUNED, TUNED),)
    variants = VariantJudges(PERSONAS, kinds, found)
    assert variants[JudgeVariant(TUNED, TUNED)].judge.instructions() == tuned.instructions()
    # It has no folds: no train group may judge it.
    assert variants[JudgeVariant(TUNED, TUNED)].judge_for("train", place(EXAMPLES[0])) is None


def test_examples_are_shown_beside_a_guide_and_every_train_group_counts() -> None:
    shown = examples_knowledge(CORPUS, (ASPECT,), ExamplesOption(2), 0, {})
    (guide,) = learnt_knowledge(BASE, learnt())
    together = combine(guide, shown)
    variants = VariantJudges(PERSONAS, [guide, shown, together], space(guide, shown, together))
    alone, with_guide = (variants[JudgeVariant(kind, "strict")] for kind in ("examples", "both"))
    assert len(examples_of(alone.judge)) == len(examples_of(with_guide.judge)) == 2
    assert (guide_of(alone.judge), guide_of(with_guide.judge)) == ("", "of all")
    for number, example in enumerate(EXAMPLES):
        assert alone.judge_for("train", place(example)) is not None
        judge = with_guide.judge_for("train", place(example))
        assert judge is not None
        assert str(number) in guide_of(judge)
        assert len(examples_of(judge)) == 2
