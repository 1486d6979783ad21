"""Tools that hand over one text at a time: calls about one source are asked together, a text alone with a warning."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dspy
import pytest

from debate_judge import load
from debate_judge.programs.compiled import ScoreScale
from debate_judge.programs.judge import Item
from debate_judge.runs.export import process
from debate_judge.runs.integrations import SourceBatcher, to_unit
from debate_judge.runs.integrations.units import text_in
from debate_judge.runs.runner.streaming import Score
from tests.fakes import ScriptedLM, debater, scripted_lm
from tests.runs.integration_exports import TONE, save_judge, score_for, script

__all__ = ["script"]

LONG = 3600.0
"""Seconds to wait for further candidates that no test has: those that are missing would be noticed."""


@pytest.fixture
def side_by_side(tmp_path: Path, lms: list[ScriptedLM]) -> Path:
    return save_judge(tmp_path / "judge", together=3)


@pytest.fixture(autouse=True)
def _no_judges_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_judges", {})


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
        assert batcher.read_alone == 0
    assert len(lms[0].prompts) == 1


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
        assert {(name, score.score, score.unscored) for name, score in empty.items()} == {
            ("tone", None, "no text"),
            ("help", None, "no text"),
        }
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


def test_an_export_is_loaded_when_it_is_needed_and_once_for_the_process(tmp_path: Path, lms: list[ScriptedLM]) -> None:
    folder = save_judge(tmp_path / "judge")
    first, second = SourceBatcher(folder), SourceBatcher(str(folder))
    assert lms == []
    assert first.judge is second.judge
    assert len(lms) == 1


def test_what_has_no_score_is_asked_about_again_and_what_has_one_is_not(
    tmp_path: Path, lms: list[ScriptedLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    with load(save_judge(tmp_path / "judge")) as judge:
        scored, asked = judge.ascore_items, list[str]()

        async def counted(items: Sequence[Item], scale: ScoreScale = "judge") -> list[Score]:
            asked.extend(item.text for item in items)
            return await scored(items, scale)

        monkeypatch.setattr(judge, "ascore_items", counted)
        batcher = SourceBatcher(judge, "tone")
        for text in ("unreadable", "unreadable", "reply 1", "reply 1"):
            batcher.score(source="s", text=text)
    assert asked == ["unreadable", "unreadable", "reply 1"]


def test_scores_between_0_and_1_and_the_text_in_what_a_tool_hands_over() -> None:
    assert [to_unit(score, TONE) for score in (1, 2, 5, None)] == [0, 0.25, 1, None]
    both = {"question": "q", "source": "s", "n": 3}
    assert [text_in(both, "source"), text_in(both, "source", "question")] == ["s", "q"]
    assert [text_in("t", "source"), text_in({"answer": "a", "n": 3}, "text")] == ["t", "a"]
