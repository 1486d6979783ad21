"""Metrics without a model: their values, what they compare with, and how they are reported."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs.compiled import AspectJudge
from debate_judge.programs.judge import Item, Judgement, Unscored, Verdict
from debate_judge.programs.make_lm import make_lm
from debate_judge.programs.metrics.metric import Bleu, Metric, RougeL
from debate_judge.runs.runner.runner import JudgeRunner

ASPECTS = (Aspect("tone", "Whether it is kind.", Scale(1, 5)), Aspect("help", "Whether it helps.", Scale(1, 5)))
TASK = Task("support", "question", "answer", ASPECTS)


def item(text: str, *references: str, source: str = "some source", context: str = "", aspect: int = 0) -> Item:
    return Item("g", text, TASK, ASPECTS[aspect], source, text, context, references)


def judged(judge: Metric, *items: Item) -> list[Judgement]:
    with JudgeRunner(make_lm("offline"), progress=False) as runner:
        return runner.judge(judge, items)


def value(judge: Metric, about: Item) -> float:
    (found,) = judged(judge, about)
    assert found.calls == 0
    return found.score


@pytest.mark.parametrize(
    ("text", "references", "expected"),
    [
        ("the cat sat on the mat", ["the cat sat on the mat"], 100.0),
        ("the cat sat on the mat", ["a dog ran", "the cat sat on the mat"], 100.0),
        ("a dog", ["the cat"], 0.0),
        # Two words: only 1-grams and 2-grams count (the effective order); brevity e^(1 - 4/2).
        ("the cat", ["the cat sat down"], 100 * math.exp(-1)),
        # 1-grams 3/4, 2-grams 1/3; no common 3-gram of 2 and no 4-gram of 1, smoothed to 1/2 and 1/4 of one.
        ("the cat sat up", ["the cat lay up"], 100 * (3 / 4 * 1 / 3 * (1 / 2) / 2 * (1 / 4) / 1) ** (1 / 4)),
        # Words of either reference count: all 1-grams are there, and 2 of 3 2-grams; 3-grams 0 of 2, 4-grams 0 of 1.
        ("the cat ran up", ["the cat sat", "dogs ran up"], 100 * (1 * 2 / 3 * (1 / 2) / 2 * (1 / 4) / 1) ** (1 / 4)),
    ],
)
def test_bleu_is_what_the_definition_says(text: str, references: list[str], expected: float) -> None:
    assert value(Bleu(), item(text, *references)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "references", "expected"),
    [
        ("the cat sat", ["the cat sat"], 1.0),
        # Longest common subsequence 2: precision 2/3, recall 2/4.
        ("the cat ran", ["the cat sat down"], 2 * (2 / 3) * (2 / 4) / (2 / 3 + 2 / 4)),
        ("cats sat", ["dogs ran", "a cat sits"], 2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3)),
    ],
)
def test_rouge_l_is_what_the_definition_says(text: str, references: list[str], expected: float) -> None:
    assert value(RougeL(), item(text, *references)) == pytest.approx(expected)


@pytest.mark.parametrize("judge", [RougeL(), Bleu()], ids=lambda j: j.kind)
def test_references_come_before_the_context_and_that_before_the_source(judge: Metric) -> None:
    same, other = "the cat sat on the mat", "dogs ran"
    best = value(judge, item(same, same))
    assert value(judge, item(same, other, source=same, context=same)) == 0
    assert value(judge, item(same, source=other, context=same)) == best
    assert value(judge, item(same, source=same, context=other)) == 0
    assert value(judge, item(same, source=same)) == best
    # A reference, or a context, without any text is none.
    assert value(judge, item(same, " ", source=same, context=" \n")) == best


class Moody(Metric):
    """Fails on some texts, and remembers where and when it was called."""

    kind = "rouge-l"

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[str] = set()
        self.inside = 0
        self.most = 0

    def measure(self, text: str, references: tuple[str, ...]) -> float:
        self.threads.add(threading.current_thread().name)
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            if text == "raise":
                raise RuntimeError("out of memory")
            return {"nan": math.nan, "inf": -math.inf}.get(text, float(len(text)))
        finally:
            self.inside -= 1

    def config(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config(cls, config: Any) -> Moody:
        return cls()


def test_a_text_that_the_metric_fails_on_is_unscored_and_others_are_scored() -> None:
    texts = ["raise", "nan", "inf", " ", "fine", "good"]
    found = judged(Moody(), *(item(t) for t in texts))
    assert [j.score if isinstance(j, Verdict) else j.reason for j in found] == [
        "metric error",
        "metric error",
        "metric error",
        "no text",
        4.0,
        4.0,
    ]
    details = [j.detail for j in found if isinstance(j, Unscored)]
    assert details[0].endswith(", round 0: RuntimeError: out of memory")
    assert "nan" in details[1]
    assert all(j.calls == 0 for j in found)


def test_a_text_with_nothing_to_compare_it_with_is_unscored_and_not_0() -> None:
    alone = item("the cat", source="")
    for overlap in (RougeL(), Bleu()):
        (found,) = judged(overlap, alone)
        assert "no reference" in found.detail


def test_an_error_that_affects_all_texts_ends_the_run() -> None:
    class Without(Moody):
        def measure(self, text: str, references: tuple[str, ...]) -> float:
            raise InputError("no such model", field="model")

    with pytest.raises(InputError, match="no such model"):
        judged(Without(), item("a"), item("b"))


def test_a_metric_is_reported_as_given() -> None:
    chosen = AspectJudge(RougeL(), "given")
    (found,) = judged(RougeL(), item("the cat ran", "the cat sat down"))
    reported = chosen.reported_score(found, ASPECTS[0])
    assert 0 < reported < 1
