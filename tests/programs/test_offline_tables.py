"""The offline stand-in measures each candidate of a table by itself, and each aspect: side by side and jointly give the
same as alone, for less."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from debate_judge import data
from debate_judge.data.schema import Corpus
from debate_judge.programs import build_preset
from debate_judge.programs.judge import Item, Verdict, corpus_items
from debate_judge.programs.make_lm import make_lm
from debate_judge.programs.testing import check_judge
from debate_judge.runs.runner.runner import JudgeRunner

GROUPS, EACH = 3, 8


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    whole = data.load("sample")
    return replace(whole, groups=whole.groups[:GROUPS])


@pytest.fixture(scope="module")
def items(corpus: Corpus) -> list[Item]:
    return [item for aspect in corpus.task.aspects for item in corpus_items(corpus, aspect)]


def judged(name: str, items: list[Item], **options: object) -> tuple[list[tuple[object, ...]], Counter[str], float]:
    """Scores with rounds and reason, the calls that were made, and the calls that the verdicts count."""
    lm = make_lm("offline")
    with JudgeRunner(lm, progress=False) as runner:
        judgements = runner.judge(build_preset(name, options), items)
    found = [(j.score, j.rounds, j.stop_reason) for j in judgements if isinstance(j, Verdict)]
    return found, lm.meter.executed, sum(j.calls for j in judgements)


@pytest.mark.integration
@pytest.mark.parametrize("name", ["single", "debate", "debate+tiebreak", "multiagent+tiebreak"])
def test_side_by_side_gives_the_scores_that_each_candidate_has_alone(name: str, items: list[Item]) -> None:
    alone, _, _ = judged(name, items)
    for together, joint in ((2, False), (3, False), (8, False), (0, True), (8, True)):
        found, made, counted = judged(name, items, together=together, joint=joint)
        assert found == alone
        assert counted == pytest.approx(made.total())


def test_a_table_judge_keeps_the_contract() -> None:
    check_judge(build_preset("debate+tiebreak", {"together": 4, "joint": True}))
