"""`debate_judge.compile`: what goes in, what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest

import debate_judge
from debate_judge import Aspect, Scale, Task
from debate_judge.data.schema import Corpus
from debate_judge.optimize import python_api
from debate_judge.optimize.plan import CompilePlan
from debate_judge.optimize.settings import Settings
from tests.optimize.compiles import plan_of
from tests.optimize.small_corpus import small_corpus

TASK = Task("summarization", "news article", "summary", (Aspect("coherence", "Whether it is one story.", Scale(1, 5)),))


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    usual = {"aspects": ["coherence"], "max_rounds": 1, "tuner": "none", "resamples": 100, "report": "none"}
    return {**usual, "folds": 1, "store": tmp_path / "store", "progress": False}


@pytest.fixture
def frame(tmp_path: Path) -> pd.DataFrame:
    groups = debate_judge.corpus(small_corpus(tmp_path, 8, 3)).groups
    return pd.DataFrame(
        {"source": g.source, "text": c.text, "coherence": g.ratings("coherence")[n], "editor": "somebody"}
        for g in groups
        for n, c in enumerate(g.candidates)
    )


@pytest.mark.integration
def test_a_frame_becomes_a_judge_a_table_a_verdict_and_an_export(
    frame: pd.DataFrame, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    done = debate_judge.compile(frame, task="summarization", **settings)
    assert done.verdict.startswith("Is the judge good?")
    assert list(done.table.index) == ["coherence", "average"]
    figures = done.table["compiled"].loc["average"]
    assert figures["low"] <= figures["value"] <= figures["high"]
    assert done.to_json()["held_out"]["compiled"]
    # One judge, with one connection, however often it is asked for.
    assert done.judge is done.judge
    score = done.judge(source=frame["source"][0], text=frame["text"][0], aspect="coherence").score
    assert 1 <= score <= 5
    with debate_judge.load(done.export) as judge:
        assert judge.score(source=frame["source"][0], text=frame["text"][0])["coherence"].score == score
    again = debate_judge.compile(frame.copy(), task="summarization", **settings)
    assert again.export == done.export
    assert again.lm.meter.executed.total() == 0
    assert debate_judge.compile(frame[::-1], task="summarization", **settings).export != done.export


def test_a_file_a_corpus_and_a_task_of_ones_own_are_taken(
    tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned(chosen: Settings, texts: Mapping[str, str], corpus: Corpus | None, *, progress: bool) -> CompilePlan:
        return plan_of(chosen, texts, corpus)

    def plan(data: Any, task: Task | str | None = None) -> CompilePlan:
        return cast(CompilePlan, debate_judge.compile(data, task=task, **settings))

    monkeypatch.setattr(python_api, "compile_judge", planned)
    file = small_corpus(tmp_path, 8, 3)
    worded = replace(TASK, aspects=(replace(TASK.aspects[0], definition="Whether each sentence follows."),))
    plans = [plan(file, "summarization"), plan(debate_judge.corpus(file)), plan(file, TASK), plan(file, worded)]
    assert plans[0].data.corpus.groups == plans[1].data.corpus.groups
    assert [one.data.corpus.task for one in plans[2:]] == [TASK, worded]
    assert len({one.name for one in plans}) == 4
