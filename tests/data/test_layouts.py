"""Exports of the tools in which people rate: the same ratings from each, without a flag."""

from __future__ import annotations

import json
import math
import uuid
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from debate_judge.data.files.columns import ColumnNames
from debate_judge.data.files.formats import detect_format
from debate_judge.data.files.groups import load
from debate_judge.data.files.tools import parsed
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.data.testing import check_corpus
from debate_judge.runs.draft import Draft, draft_mapping

FOLDER = Path(__file__).parent / "exports"
TASK = Task(
    "support",
    "question",
    "answer",
    (Aspect("helpfulness", "Does it help?", Scale(1, 5)), Aspect("politeness", "Is it polite?", Scale(1, 5))),
)
TEXTS = ("source=question", "text=answer")
Rows = list[dict[str, object]]

EXPORTS = [
    ("label_studio.json", "Label Studio (JSON)", TEXTS, ("No date.",)),
    ("label_studio.csv", "Label Studio", TEXTS, ()),
    ("argilla.json", "Argilla", TEXTS, ()),
    ("langfuse_scores.csv+langfuse_traces.jsonl", "Langfuse", (), ()),
    ("langsmith_feedback.jsonl+langsmith_runs.jsonl", "LangSmith", (), ()),
    ("mlflow_traces.jsonl", "MLflow", (), ()),
]


def path_of(names: str) -> str:
    return "+".join(str(FOLDER / name) for name in names.split("+"))


def drafted(path: Any) -> Draft:
    return draft_mapping(detect_format(path), ColumnNames(), "support")


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
    check_corpus(corpus, raters=2)
    draft = drafted(path_of(names))
    assert load(path_of(names), draft.task()).groups[0].candidates[0].ratings["helpfulness"] == (5.0, 3.0)


def test_outputs_that_look_like_json_stay_texts_and_conversations_become_one(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": "Which one?"}]
    tasks: list[dict[str, Any]] = json.loads((FOLDER / "label_studio.json").read_text())
    tasks[0]["data"] |= {"question": turns, "answer": '{"parcel": 3}'}
    tasks[1]["data"] |= {"question": '"Where" or "when"', "answer": "[]"}
    groups = load(written(tmp_path, "a.json", tasks), TASK, ColumnNames.parse(TEXTS)).groups
    assert [(group.source, group.candidates[0].text) for group in groups] == [
        ("user: Where is it?\nassistant: Which one?", '{"parcel": 3}'),
        ('"Where" or "when"', "[]"),
    ]


def written(folder: Path, name: str, rows: Rows) -> Path:
    """A CSV as pandas saves it, or JSON."""
    if name.endswith(".csv"):
        pd.DataFrame(rows).to_csv(folder / name, index=False)
    else:
        (folder / name).write_text(json.dumps(rows))
    return folder / name


@pytest.mark.parametrize(
    "source", [{"type": "auto_eval"}, {"type": "model", "user_id": uuid.UUID(int=1), "at": math.nan}]
)
def test_what_pandas_saved_is_read_like_json(tmp_path: Path, source: object) -> None:
    feedback = {"key": "helpfulness", "comment": None, "value": None}
    rows = [
        {"run_id": "t1", **feedback, "score": 5, "correction": None, "feedback_source": {"type": "app"}},
        {"run_id": "t1", **feedback, "score": 1, "correction": None, "feedback_source": source},
        {"run_id": "t2", **feedback, "score": 5, "correction": {"score": 2}, "feedback_source": source},
        {"run_id": "t2", **feedback, "score": 5, "correction": {"value": "3"}, "feedback_source": source},
    ]
    rows[3]["key"] = "politeness"
    path = written(tmp_path, "a.csv", rows)
    (group,) = load(f"{path}+{FOLDER / 'langsmith_runs.jsonl'}", TASK).groups
    assert [c.ratings["helpfulness"] for c in group.candidates] == [(5.0,), (2.0,)]
    assert group.candidates[1].ratings["politeness"] == (3.0,)


def test_comparisons_of_label_studio_are_pairs(tmp_path: Path) -> None:
    def annotation(rater: int, side: str) -> dict[str, object]:
        values = {"better": {"selected": side}, "certain": {"choices": ["very"]}, "comment": {"text": ["Because."]}}
        return {"completed_by": rater, "result": [{"from_name": n, "value": value} for n, value in values.items()]}

    annotations = [annotation(rater, side) for rater, side in enumerate(("left", "right", "left"))]
    task = {"id": 1, "data": {"prompt": "q", "answer1": "yes", "answer2": "no"}, "annotations": annotations}
    path = written(tmp_path, "a.json", [task])
    (group,) = load(path, "pairs", ColumnNames.parse(["source=prompt"])).groups
    assert [(c.text, c.ratings["preference"]) for c in group.candidates] == [("yes", (1, 0, 1)), ("no", (0, 1, 0))]
    assert group.candidates[0].comments["preference"] == ("Because.",) * 3


@pytest.mark.parametrize("cell", ["['a' 'b']", "[1] Sure.", "[9**9**9]", "[x for x in range(9**9)]", "[" * 100_000])
def test_cells_that_are_no_lists_stay_texts(cell: str) -> None:
    assert parsed(cell) == cell
