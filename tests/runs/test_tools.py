"""A judge in the tools of others, each against the real library."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import dspy
import pandas as pd
import pytest

from debate_judge import load
from debate_judge.data.errors import InputError
from debate_judge.runs.integrations import (
    ProgramMetric,
    score_frame,
)
from debate_judge.runs.integrations.dspy_metric import text_in
from debate_judge.runs.loaded import LoadedJudge
from tests.fakes import ScriptedLM, scripted_lm
from tests.runs.integration_exports import save_judge, score_for, script

__all__ = ["script"]


def test_an_empty_text_is_not_asked_about_and_a_repeated_one_only_once(tmp_path: Path, lms: list[ScriptedLM]) -> None:
    with load(save_judge(tmp_path / "judge")) as judge, warnings.catch_warnings():
        warnings.simplefilter("error")
        empty = judge.score(source="s", text=" \n\u200b\u3164")
        assert {name: (score.score, score.unscored) for name, score in empty.items()} == dict.fromkeys(
            ("tone", "help"), (None, "no text")
        )
        assert lms[0].prompts == []
        for _ in range(2):
            assert judge.score(source="Late!", text="reply 1", aspects="help")["help"].score == score_for("reply 1")
    assert len(lms[0].prompts) == 1


def test_the_text_in_what_a_tool_hands_over() -> None:
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
    # A program may return nothing.
    with pytest.raises(InputError, match="no text under 'reply'"):
        metric(devset[0], None)


# --- rows ---


def test_no_row_is_told_to_take_its_context_for_its_text(judge: LoadedJudge) -> None:
    with pytest.raises(InputError, match="needs a text") as refused:
        judge.score_many([{"source": "s", "context": "c"}])
    assert not refused.value.remedy


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
