"""Exports of the tools in which people rate: the same ratings from each, without a flag."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from debate_judge.data.files.columns import ColumnNames
from debate_judge.data.files.formats import detect_format
from debate_judge.data.files.groups import load
from debate_judge.data.files.layouts import describe_layout, long_rows
from debate_judge.data.files.task_file import guess_task
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.data.testing import check_corpus

FOLDER = Path(__file__).parent / "exports"
TASK = Task(
    "support",
    "question",
    "answer",
    (Aspect("helpfulness", "Does it help?", Scale(1, 5)), Aspect("politeness", "Is it polite?", Scale(1, 5))),
)
TEXTS = ("source=question", "text=answer")

EXPORTS = [
    ("label_studio.json", "Label Studio (JSON)", TEXTS, ("No date.",)),
    ("label_studio.csv", "Label Studio", TEXTS, ()),
    ("argilla.json", "Argilla", TEXTS, ()),
    ("opik.csv", "Opik", (), ("No date.",)),
    ("langfuse_scores.csv+langfuse_traces.jsonl", "Langfuse", (), ()),
    ("langsmith_feedback.jsonl+langsmith_runs.jsonl", "LangSmith", (), ()),
    ("mlflow_traces.jsonl", "MLflow", (), ()),
]


def path_of(names: str) -> str:
    return "+".join(str(FOLDER / name) for name in names.split("+"))


@pytest.mark.parametrize(("names", "tool", "columns", "general"), EXPORTS, ids=[row[0] for row in EXPORTS])
def test_ratings_are_read_where_people_make_them(
    names: str, tool: str, columns: tuple[str, ...], general: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    corpus = load(path_of(names), TASK, ColumnNames.parse(columns))
    (group,) = corpus.groups
    good, bad = group.candidates
    assert (group.source, good.text, bad.text) == ("Where is my parcel?", "It left Elm this morning.", "No idea.")
    # Those of judges, drafts, what was withdrawn, and expectations are left out.
    assert good.ratings == {"helpfulness": (5.0, 3.0), "politeness": (4.0,)}
    assert bad.ratings == {"helpfulness": (1.0,)}
    assert good.comments == {"helpfulness": ("Says where it is.", *general)}
    assert f"an export of {tool}" in caplog.text
    check_corpus(corpus, load(path_of(names), TASK, ColumnNames.parse(columns)), raters=2)


@pytest.mark.parametrize(("names", "tool", "columns", "general"), EXPORTS, ids=[row[0] for row in EXPORTS])
def test_a_task_is_guessed_from_them(names: str, tool: str, columns: object, general: object) -> None:
    guess = guess_task(long_rows(detect_format(path_of(names)).records(), ColumnNames()), ColumnNames(), "support")
    assert {aspect.name for aspect in guess.task.aspects} >= {"helpfulness"}
    assert load(path_of(names), TASK, guess.columns).groups[0].candidates[0].ratings["helpfulness"] == (5.0, 3.0)


def test_texts_that_nobody_rated_yet_are_there(tmp_path: Path) -> None:
    tasks = json.loads((FOLDER / "label_studio.json").read_text())
    tasks[1]["annotations"] = []
    (tmp_path / "a.json").write_text(json.dumps(tasks))
    (group,) = load(tmp_path / "a.json", TASK, ColumnNames.parse(TEXTS)).groups
    assert [c.ratings for c in group.candidates][1] == {}


def test_a_table_of_ones_own_is_no_export() -> None:
    records = [
        {"source": "s", "text": "x", "data": {"a": 1}, "annotations": 2},
        {"source": "s", "text": "x", "value": 3, "name": "tone"},
        {"input": "s", "output": "x", "comments.tone": "kind", "tone": 4},
        {"run_id": 1, "text": "x", "score": 3},
    ]
    from debate_judge.data.files.records import Record

    assert [describe_layout(Record(values, "a.jsonl", 1)) for values in records] == [None] * 4


def test_outputs_that_look_like_json_stay_texts_and_conversations_become_one(tmp_path: Path) -> None:
    tasks = json.loads((FOLDER / "label_studio.json").read_text())
    turns = [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": "Which one?"}]
    tasks[0]["data"] = {"question": turns, "answer": '{"parcel": 3}'}
    tasks[1]["data"] = {"question": '"Where" or "when"', "answer": "[]"}
    (tmp_path / "a.json").write_text(json.dumps(tasks))
    one, other = load(tmp_path / "a.json", TASK, ColumnNames.parse(TEXTS)).groups
    assert (one.source, one.candidates[0].text) == ("user: Where is it?\nassistant: Which one?", '{"parcel": 3}')
    assert (other.source, other.candidates[0].text) == ('"Where" or "when"', "[]")
