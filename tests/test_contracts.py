"""Every name in `JUDGES`, `LOADERS` and `TUNERS` passes its contract; a new line there is tested from here."""

from __future__ import annotations

from pathlib import Path

import pytest

from debate_judge import data
from debate_judge.optimize.tuners import TUNERS, TunerContext, find_tuner
from debate_judge.optimize.tuners.rated import examples
from debate_judge.programs import JUDGE_CLASSES, JUDGES, build, judge_class
from debate_judge.programs.judge import items_of
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner import JudgeRunner
from debate_judge.testing import check_corpus, check_judge, check_tuner
from tests.tiny_models import with_tiny_model


@pytest.mark.integration
@pytest.mark.parametrize("task", ["summarization", "dialogue"])
@pytest.mark.parametrize("name", JUDGES)
def test_judge(name: str, task: str, tmp_path: Path) -> None:
    corpus = data.load("sample", task)
    group, aspects = corpus.groups[0], corpus.task.aspects
    items = [item for aspect in (aspects[0], aspects[-1]) for item in items_of(corpus.task, group, aspect)[:3]]
    spec = with_tiny_model(JUDGES[name], tmp_path)
    check_judge(build(spec.kind, spec.config), items)


@pytest.mark.parametrize("kind", JUDGE_CLASSES)
def test_a_kind_is_what_its_class_calls_itself(kind: str) -> None:
    assert judge_class(kind).kind == kind


@pytest.mark.parametrize("task", ["summarization", "dialogue"])
def test_sample(task: str) -> None:
    check_corpus(data.load("sample", task))


@pytest.mark.parametrize("name", TUNERS)
def test_tuner(name: str) -> None:
    corpus = data.load("sample")
    aspect = corpus.task.aspects[0]
    small = type(corpus)(corpus.task, corpus.groups[:3], corpus.origin)
    judge = build("debate", {"persona": "plain", "rounds": 1, "tie_breaker": False})
    with JudgeRunner(make_lm("offline"), progress=False) as runner:
        rated = examples(small, [aspect], grouped=True, seed=0)
        tuning = TunerContext(
            statistic="spearman", runner=runner, reflection_lm=runner.lm, proposals=1, trials=3, seed=0, label="test"
        )
        check_tuner(find_tuner(name)(tuning), judge, rated)
