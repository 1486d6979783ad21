"""Feedback on a group's scores: which candidates are out of order, and the effect of the debate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count

import dspy

from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.examples import examples
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import STRICT
from debate_judge.programs.devset import group_feedback
from debate_judge.programs.judge import DebateConfig, Unscored, Verdict
from debate_judge.programs.transcript import Transcript, Turn
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import Script, debater, scripted_lm, section

ASPECT = Aspect("clarity", "Is it easy to follow?", Scale(1, 5))


def corpus(ratings: Sequence[tuple[float, ...]]) -> Corpus:
    """One group whose candidates are the texts `Text 1`, `Text 2`, ... with these ratings."""
    candidates = tuple(Candidate(f"c{i}", f"Text {i}", {"clarity": r}) for i, r in enumerate(ratings, start=1))
    return Corpus(
        Task("t", "article", "summary", (ASPECT,)), (RatedGroup("g", "A source.", candidates),), Origin("", "")
    )


def told(script: Script, ratings: Sequence[tuple[float, ...]], config: DebateConfig) -> list[str]:
    """The feedback on a real debate about the group."""
    (example,) = examples(corpus(ratings), [ASPECT], grouped=True, seed=0)
    with JudgeRunner(scripted_lm(script), progress=False) as runner:
        judgements = runner.judge(Debate(STRICT, config), example.questions)
    return group_feedback(example, dspy.Prediction(judgements=judgements)).splitlines()


def by_text(*scores: str) -> Script:
    """A Scorer that gives the n-th text the n-th score, and after a critique the score behind the slash."""

    def score(prompt: str) -> str:
        first, _, then = scores[int(section(prompt, "candidate").split()[-1]) - 1].partition("/")
        return then if then and section(prompt, "debate") else first

    return debater(score=score, decision="ISSUE", final_score="1")


def numbers(lines: list[str]) -> list[list[float]]:
    return [[float(number) for number in re.findall(r"\d+(?:\.\d+)?", line)] for line in lines]


def test_candidates_out_of_order_are_named_with_the_raters_means() -> None:
    found = told(by_text("2", "4", "3"), [(4.0, 5.0), (1.0, 2.0), (3.0, 3.0)], DebateConfig(0))
    # Pairs, those in the wrong order, ties; then each pair: its scores, how far the raters differ, and the means.
    assert numbers(found) == [
        [3, 3, 0],
        [2, 4, 1, 2, 2, 3.0, 1.5, 4.5],
        [3, 3, 1, 2, 3, 1.5, 3.0, 4.5],
        [2, 4, 3, 3, 2, 1.5, 1.5, 3.0],
    ]


def test_feedback_says_whether_each_critique_moved_the_score_toward_the_raters() -> None:
    found = told(by_text("2/4", "3/1", "3"), [(4.0,), (3.0,), (2.0,)], DebateConfig(1))
    # One pair is in the wrong order, two were before the debate; then the effects of the critiques.
    assert numbers(found) == [
        [3, 1, 0, 2],
        [3, 3, 2, 1, 3, 1.0, 2.0, 3.0],
        [1, 1, 0, 1],
        [1, 1, 2, 4, 2.0, 4.0],
        [2, 1, 3, 1, 2.0, 3.0],
    ]
    assert "closer" in found[3]
    assert "further" in found[4]


def test_no_text_of_the_data_or_of_a_reply_is_repeated() -> None:
    number = count()
    script = debater(score="3", decision="ISSUE", feedback="Ignore the raters.", rationale=lambda _: f"r{next(number)}")
    text = "\n".join(told(script, [(1.0,), (2.0,)], DebateConfig(2)))
    assert "Ignore" not in text
    assert "Text 1" not in text
    assert "A source" not in text


def test_feedback_on_items_without_score_or_rating() -> None:
    (example,) = examples(corpus([(1.0,), (2.0,), (3.0,)]), [ASPECT], grouped=True, seed=0)
    example.ratings = [1.0, None, 3.0]
    unscored = Unscored("unreadable reply", "<the reply>", 2, Transcript())
    turn = Turn("scorer", 0, "", score=2.0)
    verdict = Verdict(2.0, 0, "single call", 1, Transcript((turn,)))
    found = group_feedback(example, dspy.Prediction(judgements=[unscored, verdict, verdict])).splitlines()
    assert len(found) == 2
    assert "no two" in found[0]
    assert "unreadable reply" in found[1]
