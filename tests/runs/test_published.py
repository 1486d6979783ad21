"""Published figures: transcribed without slips as far as they check themselves, and shown only where they fit."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from debate_judge.data.agreement.tables import Statistic
from debate_judge.data.schema import Corpus, Origin, Task
from debate_judge.data.sets.factuality import ANSWERS, SUMMARIES
from debate_judge.data.sets.faireval import TASK
from debate_judge.data.tasks import DIALOGUE, SUMMARIZATION
from debate_judge.runs.comparison.published import (
    PublishedTable,
    load_published_tables,
    matching_correlation_tables,
    matching_decision_tables,
    published_tables,
)
from debate_judge.runs.comparison.results import EvalSetup
from tests.printed_output import printed, unwrapped
from tests.runs.rated_corpora import corpus

# As printed: in both places the paper's average is not the mean of its columns.
ODD = {("summeval", "GPTScore", "spearman"), ("topical_chat", "MoverScore", "spearman")}


def setup(data: str, task: Task, *statistics: Statistic) -> EvalSetup:
    rated = Corpus(task, corpus([1, 2]).groups, Origin(data, "nowhere"))
    return EvalSetup(rated, task.aspects, "summary", statistics)


SUMMEVAL = setup("summeval", SUMMARIZATION, "spearman", "kendall")
TOPICAL = setup("topical_chat", DIALOGUE, "pearson", "spearman")
CORRELATIONS = [table for table in load_published_tables() if table.level is not None]


@pytest.mark.parametrize("table", CORRELATIONS, ids=lambda t: f"{t.source}: {t.data[0]}")
def test_rows_are_whole_and_their_averages_fit(table: PublishedTable) -> None:
    for row in table.rows:
        assert len(row.values) == 2 * (1 + len(table.aspects))
        assert all(v is None or -1 <= v <= 1 for v in row.values)
        for statistic in table.statistics if table.aspects else ():
            columns = [table.cell(row, aspect, statistic) for aspect in table.aspects]
            average = table.cell(row, None, statistic)
            if average is not None and None not in columns and (table.data[0], row.judge, statistic) not in ODD:
                assert math.fsum(columns) / len(columns) == pytest.approx(average, abs=0.0016), (row, statistic)


@pytest.mark.parametrize(
    ("data", "lm", "aspect", "values"),
    [
        ("summeval", "GPT-4", None, (0.597, 0.575)),
        ("summeval", "GPT-4", "relevance", (0.593, 0.582)),
        ("summeval", "GPT-3.5", None, (0.472, 0.447)),
        ("topical_chat", "GPT-4", None, (0.735, 0.729)),
        ("topical_chat", "GPT-4", "groundedness", (0.745, 0.800)),
    ],
)
def test_the_main_results_stand_where_they_belong(
    data: str, lm: str, aspect: str | None, values: tuple[float, float]
) -> None:
    (table,) = (t for t in CORRELATIONS if t.data == (data,) and t.source == "DEBATE (Kim et al. 2024), Table 1")
    (row,) = (r for r in table.rows if (r.judge, r.lm) == ("DEBATE", lm))
    assert tuple(table.cell(row, aspect, s) for s in table.statistics) == values


DEBATE, CHATEVAL = "DEBATE (Kim et al. 2024), Table 1", "ChatEval (Chan et al. 2023), Table 2"


@pytest.mark.parametrize(
    ("of", "sources"),
    [
        (TOPICAL, {DEBATE}),
        (replace(SUMMEVAL, level="system"), set()),
        (replace(SUMMEVAL, statistics=("pearson",)), set()),
        (replace(TOPICAL, level="sample", statistics=("spearman",)), {CHATEVAL}),
        (setup("sample", SUMMARIZATION, "spearman"), set()),
    ],
)
def test_only_tables_of_the_same_set_level_and_statistics_fit(of: EvalSetup, sources: set[str]) -> None:
    assert {t.source for t in matching_correlation_tables(of)} == sources
    assert {t.data for t in matching_correlation_tables(SUMMEVAL)} == {("summeval",)}


@pytest.mark.parametrize(
    ("name", "task", "source"),
    [
        ("faireval", TASK, "ChatEval (Chan et al. 2023), Table 1"),
        ("factool", ANSWERS, "Sun et al. 2024, Table 2, responses"),
        ("halueval", ANSWERS, "Sun et al. 2024, Table 3, QA"),
        ("halueval", SUMMARIES, "Sun et al. 2024, Table 3, summarization"),
    ],
)
def test_decisions_on_the_same_set_fit(name: str, task: Task, source: str) -> None:
    assert [t.source for t in matching_decision_tables(setup(name, task).corpus)] == [source]
    assert matching_decision_tables(setup("mine", task).corpus) == []


def test_the_decisions_say_that_they_were_not_made_here_and_by_which_convention() -> None:
    table = printed(*published_tables(setup("faireval", TASK, "spearman")))
    assert "published, not run here" in table
    assert "mean of five runs" in unwrapped(table)
    assert "0.638" in table
    # ChatEval printed neither.
    assert "precision" not in table
