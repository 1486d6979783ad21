"""An export is a DSPy program: called, evaluated and copied like any, with an LM of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import dspy
import pytest

from debate_judge import Aspect, Debate, Scale, Task, group_agreement, load
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs.export.folder import save
from tests.fakes import debater, scripted_lm

TONE = Aspect("tone", "How the reply treats the customer.", Scale(1, 5))
POLITE = Aspect("polite", "Whether the reply is polite.", Scale(0, 1))


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    task = Task("support", "customer message", "reply", (TONE, POLITE))
    judges = {
        "tone": AspectJudge(Debate(rounds=1), "half"),
        "polite": AspectJudge(Debate(rounds=0)),
    }
    folder = tmp_path_factory.mktemp("exports") / "my-judge"
    return save(folder, CompiledJudge(task, judges), lm={"spec": "offline"}, evidence={}, name="my-judge")


def test_an_export_is_a_program(export: Path) -> None:
    with load(export) as judge:
        assert isinstance(judge, dspy.Module)
        assert len(judge.named_predictors()) == 6
        found = judge(source="Late!", text="Sorry, we are late.", aspect="tone")
        assert found.score == judge.score(source="Late!", text="Sorry, we are late.")["tone"].score
        assert found.score * 2 == int(found.score * 2)
        assert found.reason
        listed = judge(source="Late!", texts=["Sorry.", "No."], aspect="polite")
        assert [score >= listed.cut for score in listed.scores] == listed.decisions
        every = judge(source="Late!", text="Sorry, we are late.")
        assert every.scores == {"tone": found.score, "polite": every.scores["polite"]}
        assert list(every.reasons) == ["tone", "polite"]
        assert (list(every.decisions), every.cuts) == (["polite"], {"polite": 0.5})
        lists = judge(source="Late!", texts=["Sorry.", "No."])
        assert lists.scores["polite"] == listed.scores
        assert asyncio.run(judge.acall(source="Late!", text="Sorry.", aspect="support.tone")).score is not None


def test_an_exports_own_lm_answers_unless_a_context_names_another(export: Path) -> None:
    call = {"source": "s", "text": "t", "aspect": "polite"}
    before, other = dspy.settings.lm, scripted_lm(debater(score="1"))
    try:
        dspy.configure(lm=other)
        with load(export) as judge:
            judge(**call)
            assert other.prompts == []
            with dspy.context(lm=scripted_lm(debater(score="1"))) as _:
                assert judge(**call).score == 1
                assert len(dspy.settings.lm.prompts) == 1
    finally:
        dspy.configure(lm=before)


def test_an_export_is_evaluated_and_copied_like_any_program(export: Path) -> None:
    rated = dspy.Example(source="s", texts=["a b", "c"], aspect="tone", ratings=[1.0, 2.0])
    with load(export) as judge:
        copy = judge.deepcopy()
        devset = [rated.with_inputs("source", "texts", "aspect")]
        for one in (judge, copy):
            assert dspy.Evaluate(devset=devset, metric=group_agreement, display_progress=False)(one).score is not None
        assert copy.lm is judge.lm
        assert copy.judges["tone"] is not judge.judges["tone"]
