"""Published decisions: which fit, that they say what they are, and that they are the papers' figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from debate_judge.data.schema import Candidate, Corpus, Origin, RatedGroup, Task
from debate_judge.data.sets.factuality import ANSWERS, SUMMARIES
from debate_judge.data.sets.faireval import TASK
from debate_judge.runs.comparison.published_decisions import (
    MEASURES,
    PUBLISHED_DECISIONS,
    decisions_to_json,
    fitting_decisions,
    published_decisions,
)
from tests.printed import printed, unwrapped


def corpus(name: str, task: Task) -> Corpus:
    return Corpus(task, (RatedGroup("g", "s", (Candidate("c", "t", {}),)),), Origin(name, "x"))


@pytest.mark.parametrize(
    ("name", "task", "source"),
    [
        ("faireval", TASK, "ChatEval (Chan et al. 2023), Table 1"),
        ("factool", ANSWERS, "Sun et al. 2024, Table 2, responses"),
        ("halueval", ANSWERS, "Sun et al. 2024, Table 3, QA"),
        ("halueval", SUMMARIES, "Sun et al. 2024, Table 3, summarization"),
    ],
)
def test_tables_of_the_same_set_fit(name: str, task: Task, source: str) -> None:
    assert [t.source for t in fitting_decisions(corpus(name, task))] == [source]
    assert fitting_decisions(corpus("mine", task)) == []


@pytest.mark.parametrize("style", ["text", "markdown", "latex"])
def test_the_block_says_that_it_was_not_run_here_and_by_which_convention(style: str) -> None:
    shown = printed(*published_decisions(fitting_decisions(corpus("faireval", TASK)), style))
    assert "published, not run here" in shown
    assert "mean of five runs" in unwrapped(shown)
    assert "0.638" in shown
    # ChatEval printed neither.
    assert "precision" not in shown


def test_f1_is_that_of_precision_and_recall() -> None:
    for table in PUBLISHED_DECISIONS:
        for _, _, values in table.rows:
            one = dict(zip(MEASURES, values, strict=True))
            p, r, f1 = one["precision"], one["recall"], one["f1"]
            if p is not None and r is not None:
                assert f1 == pytest.approx(2 * p * r / (p + r), abs=2e-4)


def test_json_names_source_and_convention() -> None:
    (found,) = decisions_to_json(fitting_decisions(corpus("factool_claims", replace(ANSWERS, name="claim-factuality"))))
    assert set(found) == {"source", "data", "convention", "rows"}
    rows = found["rows"]
    assert isinstance(rows, list)
    assert rows[-1]["accuracy"] == 0.7768
    assert rows[-1]["kappa"] is None
