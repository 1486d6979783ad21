"""A judge in the tools of others, each against the real library, and the batcher that they call it through."""

from __future__ import annotations

import asyncio
import math
import re
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import dspy
import pandas as pd
import pytest

from debate_judge import load
from debate_judge.runs.export.loaded import LoadedJudge
from debate_judge.runs.integrations import (
    ProgramMetric,
    SourceBatcher,
    score_frame,
)
from debate_judge.runs.integrations.dspy_metric import to_unit
from debate_judge.runs.integrations.mlflow_scorer import text_in
from tests.fakes import ScriptedLM, debater, scripted_lm
from tests.runs.integration_exports import TONE, save_judge, score_for, script

__all__ = ["script"]

LONG = 3600.0
"""Seconds to wait for further candidates that no test has: those that are missing would be noticed."""


@pytest.fixture
def side_by_side(tmp_path: Path, lms: list[ScriptedLM]) -> Path:
    return save_judge(tmp_path / "judge", together=3)


def test_concurrent_calls_about_one_source_are_asked_together(side_by_side: Path, lms: list[ScriptedLM]) -> None:
    with load(side_by_side) as judge, warnings.catch_warnings():
        warnings.simplefilter("error")
        batcher = SourceBatcher(judge, wait=LONG)

        async def work() -> None:
            texts = [(f"message {n % 2}", f"reply {n}") for n in range(6)]
            scores = await asyncio.gather(*(batcher.ascore(source=s, text=t) for s, t in texts))
            assert {score["tone"].together for score in scores} == {3}
            assert [score["tone"].score for score in scores] == [score_for(text) for _, text in texts]
            # The same text gets the same score at no further call.
            again = await asyncio.gather(*(batcher.ascore(source=s, text=t) for s, t in texts[:1] * 2))
            assert again == scores[:1] * 2

        asyncio.run(work())
    assert len(lms[0].prompts) == 2 * 2, "two sources in two aspects"


def test_so_are_calls_from_threads(side_by_side: Path, lms: list[ScriptedLM]) -> None:
    with load(side_by_side) as judge, ThreadPoolExecutor(3) as pool:
        batcher = SourceBatcher(judge, "tone", wait=LONG)
        scores = pool.map(lambda n: batcher.score(source="Late!", text=f"reply {n}")["tone"].score, range(3))
        assert list(scores) == [score_for(f"reply {n}") for n in range(3)]
    assert (len(lms[0].prompts), batcher.read_alone) == (1, 0)


def test_a_text_that_stays_alone_is_read_alone_with_one_warning(side_by_side: Path, lms: list[ScriptedLM]) -> None:
    with load(side_by_side) as judge:
        batcher = SourceBatcher(judge, wait=0)
        with pytest.warns(UserWarning, match="side by side"):
            assert batcher.score(source="Late!", text="reply 1")["help"].score == score_for("reply 1")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            batcher.score(source="Late!", text="reply 2")
        assert batcher.read_alone == 2


def test_an_empty_text_is_not_asked_about_and_one_alone_not_waited_for(tmp_path: Path, lms: list[ScriptedLM]) -> None:
    with load(save_judge(tmp_path / "judge")) as judge, warnings.catch_warnings():
        warnings.simplefilter("error")
        batcher = SourceBatcher(judge, wait=LONG)
        empty = batcher.score(source="s", text=" \n")
        assert {name: (score.score, score.unscored) for name, score in empty.items()} == dict.fromkeys(
            ("tone", "help"), (None, "no text")
        )
        assert lms[0].prompts == []
        assert batcher.score(source="Late!", text="reply 1", aspects="help")["help"].score == score_for("reply 1")
    assert len(lms[0].prompts) == 1


def test_the_judges_own_lm_answers_and_leaves_no_trace_in_another_program(
    tmp_path: Path, lms: list[ScriptedLM]
) -> None:
    other, trace = scripted_lm(debater(score="1")), list[object]()
    with load(save_judge(tmp_path / "judge")) as judge, dspy.context(lm=other, trace=trace):
        assert SourceBatcher(judge).score(source="s", text="reply 8")["tone"].score == 5
    assert (other.prompts, trace) == ([], [])


def test_what_has_no_score_is_asked_about_again_and_what_has_one_is_not(
    tmp_path: Path, lms: list[ScriptedLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    with load(save_judge(tmp_path / "judge")) as judge:
        scored = Mock(side_effect=judge.ascore_items)
        monkeypatch.setattr(judge, "ascore_items", scored)
        batcher = SourceBatcher(judge, "tone")
        for text in ("unreadable", "unreadable", "reply 1", "reply 1"):
            batcher.score(source="s", text=text)
    texts = [item.text for call in scored.call_args_list for item in call.args[0]]
    assert texts == ["unreadable", "unreadable", "reply 1"]


def test_scores_between_0_and_1_and_the_text_in_what_a_tool_hands_over() -> None:
    assert [to_unit(score, TONE) for score in (1, 2, 5, None)] == [0, 0.25, 1, None]
    both = {"question": "q", "source": "s", "n": 3}
    assert [text_in(both, "source"), text_in(both, "source", "question")] == ["s", "q"]
    assert [text_in("t", "source"), text_in({"answer": "a", "n": 3}, "text")] == ["t", "a"]


@pytest.fixture
def export(tmp_path: Path, lms: list[ScriptedLM]) -> Path:
    return save_judge(tmp_path / "judge")


@pytest.fixture
def judge(export: Path) -> Iterator[LoadedJudge]:
    with load(export) as loaded:
        yield loaded


def unit(text: str) -> float:
    return (score_for(text) - 1) / 4


# --- DSPy ---


def echo(prompt: str) -> str:
    """The LM of a program under evaluation, which is another one than the judge's."""
    return f"[[ ## reply ## ]]\nreply {prompt.split('message ## ]]')[1].split()[1]}\n\n[[ ## completed ## ]]"


def test_a_judge_is_the_metric_of_another_program(judge: LoadedJudge, lms: list[ScriptedLM]) -> None:
    metric = ProgramMetric(judge, source="message", text="reply", failure_score=-1)
    devset = [dspy.Example(message=f"message {n}").with_inputs("message") for n in range(4)]
    with dspy.context(lm=scripted_lm(echo)):
        result = dspy.Evaluate(devset=devset, metric=metric, num_threads=2)(dspy.Predict("message -> reply"))
    assert result.score == pytest.approx(100 * sum(unit(f"reply {n}") for n in range(4)) / 4, abs=0.01)
    calls = len(lms[0].prompts)
    # GEPA asks again with five arguments.
    feedback = metric(devset[3], dspy.Prediction(reply="reply 3"), None, "write", None)
    assert feedback.score == unit("reply 3")
    assert re.fullmatch("tone .*2.5 .*1 to 5: I read reply 3.", feedback.feedback.splitlines()[0])
    assert len(lms[0].prompts) == calls
    # What has no score never enters a mean as None.
    failed = metric(dspy.Example(message="m"), dspy.Prediction(reply="unreadable 3"))
    assert failed.score == -1
    assert "unreadable reply" in failed.feedback
    assert list(metric.unscored) == ["unreadable 3"]


# --- pandas ---


def test_a_frame_keeps_its_rows_and_gets_scores_and_reasons(tmp_path: Path, lms: list[ScriptedLM]) -> None:
    texts = [*(f"reply {n}" for n in range(3, 8)), None]
    frame = pd.DataFrame({"article": ["a", "b", "a", "b", None, "a"], "summary": texts}, index=range(10, 70, 10))
    with load(save_judge(tmp_path / "side-by-side", together=2)) as judge:
        scored = score_frame(frame, judge, source="article", text="summary", aspects="tone")
    assert list(scored.columns) == ["article", "summary", "tone", "tone_reason", "tone_unscored"]
    assert list(scored.index) == list(frame.index)
    assert list(scored["tone"][:5]) == [score_for(f"reply {n}") for n in range(3, 8)]
    assert math.isnan(scored["tone"][60])
    assert (scored["tone_unscored"][10], scored["tone_unscored"][60][:7]) == ("", "no text")
    assert any("2 candidates" in prompt for prompt in lms[0].prompts), "rows of a source are asked about together"


# --- Inspect ---


@pytest.mark.integration
def test_inspect_takes_the_scorer(export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "inspect_ai is not installed: pip install 'debate-judge[inspect]'"
    inspect_ai = pytest.importorskip("inspect_ai", reason=reason)
    monkeypatch.setenv("INSPECT_DISPLAY", "none")
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    from debate_judge.runs.integrations import debate_scorer

    texts = ["reply 16", "reply 3", "unreadable 1"]
    outputs = [ModelOutput.from_content("mockllm/model", text) for text in texts]
    for output in outputs:
        # Else Inspect would count tokens by a table that it downloads.
        output.usage = ModelUsage()
    task = inspect_ai.Task(
        dataset=[Sample(input="Write a reply.", metadata={"message": "Late!"}) for _ in texts],
        scorer=debate_scorer(str(export), source="message"),
    )
    model = get_model("mockllm/model", custom_outputs=outputs)
    (done,) = inspect_ai.eval(task, model=model, log_dir=str(tmp_path / "logs"), max_samples=1)
    assert done.status == "success", done.error
    scores = [next(iter(sample.scores.values())) for sample in done.samples]
    assert [score.value for score in scores[:2]] == [{"tone": 4.5, "help": 4.5}, {"tone": 2.5, "help": 2.5}]
    assert scores[0].explanation == "tone: I read reply 16.\n\nhelp: I read reply 16."
    assert (math.isnan(scores[2].value), scores[2].reason) == (True, "grader_failed")
    means = {score.name: score.metrics["mean"].value for score in done.results.scores}
    assert means == {"tone": 3.5, "help": 3.5}
