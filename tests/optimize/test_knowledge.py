"""What can be known of the raters: who is given it, and who judges the train sources that it was learnt from."""

from __future__ import annotations

from debate_judge.optimize.examples import examples
from debate_judge.optimize.search.knowledge import (
    TUNED,
    VariantJudges,
    combine,
    examples_knowledge,
    knowledge_values,
    learnt_knowledge,
)  # fmt: skip
from debate_judge.optimize.search.points import JudgeVariant, SearchSpace
from debate_judge.optimize.settings import ExamplesOption
from debate_judge.optimize.tuners import FoldJudge, GroupKey, TuningResult
from debate_judge.optimize.tuners.guide import add_guide, guide_of
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import PLAIN, STRICT
from debate_judge.programs.judge import DebateConfig, Judge
from debate_judge.programs.roles.examples import examples_of
from tests.optimize.guide_author import ASPECT, corpus

CORPUS = corpus(4)
GROUPS: list[GroupKey] = [(ASPECT.name, group.id) for group in CORPUS.groups]
BASE = Debate(STRICT, DebateConfig(2))
PERSONAS: dict[str, Judge] = {"strict": BASE, "plain": Debate(PLAIN, DebateConfig(2))}


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
    knowledge, rewritten = knowledge_values(kinds)
    assert (knowledge, rewritten) == (("none", "guide"), (JudgeVariant(TUNED, TUNED),))
    space = SearchSpace(knowledge, ("strict", "plain"), (0, 1, 2), (False, True), rewritten=rewritten)
    variants = VariantJudges(PERSONAS, kinds, space)
    for name, persona in PERSONAS.items():
        judge = variants[JudgeVariant("guide", name)].judge
        assert guide_of(judge) == "of all"
        assert judge.instructions()["critic"] == persona.instructions()["critic"]
        assert variants[JudgeVariant("none", name)].judge.instructions() == persona.instructions()
    # The rewritten judge has no folds: no train group may judge it.
    assert variants[JudgeVariant(TUNED, TUNED)].judge.instructions() == tuned.instructions()
    assert variants[JudgeVariant(TUNED, TUNED)].judge_for("train", GROUPS[0]) is None


def test_examples_are_shown_beside_a_guide_and_every_train_group_counts() -> None:
    assert len(examples(CORPUS, (ASPECT,), grouped=True, seed=0)) == len(GROUPS)
    shown = examples_knowledge(CORPUS, (ASPECT,), ExamplesOption(2), 0, {})
    (guide,) = learnt_knowledge(BASE, learnt())
    kinds = [guide, shown, combine(guide, shown)]
    space = SearchSpace(knowledge_values(kinds)[0], ("strict", "plain"), (0, 1, 2), (False, True))
    variants = VariantJudges(PERSONAS, kinds, space)
    alone, both = (variants[JudgeVariant(kind, "strict")] for kind in ("examples", "both"))
    assert len(examples_of(alone.judge)) == len(examples_of(both.judge)) == 2
    assert (guide_of(alone.judge), guide_of(both.judge)) == ("", "of all")
    for group in GROUPS:
        assert alone.judge_for("train", group) is not None
        judge = both.judge_for("train", group)
        assert judge is not None
        assert group[1] in guide_of(judge)
        assert len(examples_of(judge)) == 2
