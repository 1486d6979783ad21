"""Exports of the tools in which people rate: the same ratings from each, without a flag."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from debate_judge.data.files.columns import ColumnNames
from debate_judge.data.files.formats import detect_format
from debate_judge.data.files.groups import load
from debate_judge.data.files.records import Record
from debate_judge.data.files.tools import parsed, tool_of
from debate_judge.data.schema import Aspect, RatedGroup, Scale, Task
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
    check_corpus(corpus, load(path_of(names), TASK, ColumnNames.parse(columns)), raters=2)
    draft = drafted(path_of(names))
    assert {aspect.name for aspect in draft.aspects} >= {"helpfulness"}
    assert load(path_of(names), draft.task()).groups[0].candidates[0].ratings["helpfulness"] == (5.0, 3.0)


@pytest.mark.parametrize(
    "values",
    [
        {"source": "s", "text": "x", "data": {"a": 1}, "annotations": 2},
        {"source": "s", "text": "x", "value": 3, "name": "tone"},
        {"input": "s", "output": "x", "comments.tone": "kind", "tone": 4},
        {"run_id": 1, "text": "x", "score": 3},
        {"trace_id": 1, "text": "x", "assessments": 4},
    ],
)
def test_a_table_of_ones_own_is_no_export(values: dict[str, object]) -> None:
    assert tool_of([Record(values, "a.jsonl", 1)]) is None


def label_studio(**changes: Any) -> list[dict[str, Any]]:
    """The two tasks of the fixture; `data` of each is changed."""
    tasks: list[dict[str, Any]] = json.loads((FOLDER / "label_studio.json").read_text())
    for task, data in zip(tasks, zip(*changes.values(), strict=True), strict=True):
        task["data"] |= dict(zip(changes, data, strict=True))
    return tasks


def read(
    folder: Path, name: str, rows: Rows, columns: Sequence[str] = TEXTS, task: Any = TASK
) -> tuple[RatedGroup, ...]:
    return load(written(folder, name, rows), task, ColumnNames.parse(columns)).groups


def test_outputs_that_look_like_json_stay_texts_and_conversations_become_one(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": "Which one?"}]
    tasks = label_studio(question=[turns, '"Where" or "when"'], answer=['{"parcel": 3}', "[]"])
    conversation, text = read(tmp_path, "a.json", tasks)
    assert (conversation.source, conversation.candidates[0].text) == (
        "user: Where is it?\nassistant: Which one?",
        '{"parcel": 3}',
    )
    assert (text.source, text.candidates[0].text) == ('"Where" or "when"', "[]")


def test_equal_outputs_are_two_candidates_by_the_ids_of_the_user_or_the_tool_and_rated_or_not(tmp_path: Path) -> None:
    same = label_studio(answer=["It left Elm this morning."] * 2, model=["small", "large"])
    (group,) = read(tmp_path, "a.json", same)
    assert [(c.id, c.ratings["helpfulness"]) for c in group.candidates] == [("101", (5.0, 3.0)), ("102", (1.0,))]
    same[1]["annotations"] = []
    (group,) = read(tmp_path, "a.json", same, [*TEXTS, "candidate=model"])
    assert [(c.id, len(c.ratings)) for c in group.candidates] == [("small", 2), ("large", 0)]


def written(folder: Path, name: str, rows: Rows) -> Path:
    """A CSV as pandas saves it, or JSON."""
    if name.endswith(".csv"):
        pd.DataFrame(rows).to_csv(folder / name, index=False)
    else:
        (folder / name).write_text(json.dumps(rows))
    return folder / name


@pytest.mark.parametrize("name", ["a.json", "a.csv"])
def test_the_first_record_may_be_unrated(tmp_path: Path, name: str) -> None:
    answered = {
        "helpfulness.responses": [2, 5],
        "helpfulness.responses.users": ["ann", "ben"],
        "helpfulness.responses.status": ["submitted", "discarded"],
    }
    rows: Rows = [
        {"id": f"r{n}", "status": "pending", "question": "q", "answer": f"a{n}", **more}
        for n, more in enumerate(({}, answered, {"helpfulness.suggestion": 4}))
    ]
    (group,) = read(tmp_path, name, rows)
    assert [c.ratings for c in group.candidates] == [{}, {"helpfulness": (2.0,)}, {}]


def test_traces_that_nobody_rated_are_texts_and_failed_ones_are_left_out(tmp_path: Path) -> None:
    traces = [json.loads(line) for line in (FOLDER / "mlflow_traces.jsonl").read_text().splitlines()]
    new = {"attributes": {"mlflow.spanInputs": '"Where?"', "mlflow.spanOutputs": '"There."'}}
    failed = {"attributes": {"mlflow.spanInputs": '"Where?"'}}
    unrated = [{"info": {"trace_id": f"t{i}"}, "data": {"spans": [span]}} for i, span in enumerate([new, failed])]
    groups = load(written(tmp_path, "a.json", unrated + traces), TASK).groups
    assert [(c.text, len(c.ratings)) for c in groups[0].candidates] == [("There.", 0)]
    assert sum(len(group.candidates) for group in groups) == 3


@pytest.mark.parametrize(
    "source", [{"type": "model"}, {"type": "auto_eval"}, {"type": "model", "user_id": uuid.UUID(int=1), "at": math.nan}]
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


def test_traces_of_mlflow_that_pandas_saved(tmp_path: Path) -> None:
    traces = [json.loads(line) for line in (FOLDER / "mlflow_traces.jsonl").read_text().splitlines()]
    rows: Rows = [
        {
            **{"trace_id": trace["info"]["trace_id"], "execution_duration": 3 * i, "request": {"question": "Where?"}},
            **{"response": {"answer": f"it's {i}"}, "assessments": trace["info"]["assessments"]},
        }
        for i, trace in enumerate(traces)
    ]
    (group,) = read(tmp_path, "a.csv", rows, ())
    assert [c.text for c in group.candidates] == ["it's 0", "it's 1"]
    assert group.candidates[0].ratings == {"helpfulness": (5.0, 3.0), "politeness": (4.0,)}


def annotations(**columns: Callable[[int, int], object]) -> Rows:
    """Rows of Label Studio's CSV, with its alphabetical columns: two annotators of each of six tasks."""

    def row(task: int, rater: int) -> dict[str, object]:
        values = {name: value(task, rater) for name, value in columns.items()}
        usual = {"annotation_id": 10 * task + rater, "annotator": rater, "id": task, "lead_time": 1.5}
        return dict(sorted({**usual, "question": f"q{task // 2}", **values}.items()))

    return [row(task, rater) for task in range(6) for rater in range(2)]


def test_numbers_in_the_data_of_label_studio_are_no_ratings(tmp_path: Path) -> None:
    rows = annotations(
        answer=lambda task, _: f"It is {42 + task} now.",
        temperature=lambda task, _: task / 10,
        helpfulness=lambda task, rater: 1 + (task + rater) % 5,
    )
    path = written(tmp_path, "a.csv", rows)
    draft = drafted(path)
    assert [aspect.name for aspect in draft.aspects] == ["helpfulness"]
    assert load(path, draft.task()).groups[0].candidates[0].text == "It is 42 now."


@pytest.mark.parametrize("name", ["a.csv", "a.json"])
def test_choices_in_the_tables_of_label_studio_are_ratings(tmp_path: Path, name: str) -> None:
    rows = annotations(
        answer=lambda task, _: f"a{task}",
        kind=lambda task, _: ["short", "long"][task % 2],
        polite=lambda task, rater: ["Good", "Bad"][(task + rater) % 2],
        clear=lambda task, _: ["Yes", "No"][task % 2],
        remark=lambda task, rater: f"this is what {rater} found in {task}",
    )
    path = written(tmp_path, name, rows)
    draft = drafted(path)
    assert [aspect.name for aspect in draft.aspects] == ["polite"]
    assert dict(draft.understood)["clear"].startswith("the same from all raters")
    first = load(path, draft.task()).groups[0].candidates[0]
    assert first.ratings == {"polite": (1.0, 0.0)}


def test_comparisons_of_label_studio_are_pairs(tmp_path: Path) -> None:
    tasks: Rows = [
        {
            "id": number,
            "data": {"prompt": f"q{number}", "answer1": "yes", "answer2": "no"},
            "annotations": [
                {
                    "completed_by": rater,
                    "result": [
                        {"from_name": "better", "value": {"selected": side}},
                        {"from_name": "certain", "value": {"choices": ["very"]}},
                        {"from_name": "comment", "value": {"text": ["Because."]}},
                    ],
                }
                for rater, side in enumerate(sides)
            ],
        }
        for number, sides in enumerate([["left", "right", "left"]])
    ]
    path = written(tmp_path, "a.json", tasks)
    (group,) = load(path, "pairs", ColumnNames.parse(["source=prompt"])).groups
    assert [(c.text, c.ratings["preference"]) for c in group.candidates] == [("yes", (1, 0, 1)), ("no", (0, 1, 0))]
    assert group.candidates[0].comments["preference"] == ("Because.",) * 3


@pytest.mark.parametrize(
    "cell", ["['a' 'b']", "['a'\n 'b']", "[1 2]", "[1] Sure.", "[9**9**9]", "[x for x in range(9**9)]", "[" * 100_000]
)
def test_cells_that_are_no_lists_stay_texts(cell: str) -> None:
    assert parsed(cell) == cell


def test_a_score_on_a_step_of_a_trace_is_about_the_text_of_the_step(tmp_path: Path) -> None:
    score = {"source": "ANNOTATION", "name": "helpfulness", "dataType": "NUMERIC", "stringValue": None}
    rows = [
        {"traceId": "t", "observationId": "step", **score, "value": 2},
        {"traceId": "t", "observationId": None, **score, "value": 5},
        {"traceId": "elsewhere", "observationId": None, **score, "source": "EVAL", "value": 1},
    ]
    texts = [
        {"id": "t", "traceId": None, "input": "q", "output": "the answer"},
        {"id": "step", "traceId": "t", "input": "q", "output": "a search"},
    ]
    (group,) = load(f"{written(tmp_path, 'a.csv', rows)}+{written(tmp_path, 'b.json', texts)}", TASK).groups
    ratings = {c.text: c.ratings["helpfulness"] for c in group.candidates}
    assert ratings == {"a search": (2.0,), "the answer": (5.0,)}


@pytest.mark.parametrize("name", ["a.json", "a.csv"])
def test_an_assessment_of_a_step_of_a_trace_is_none_of_the_trace(tmp_path: Path, name: str) -> None:
    trace = json.loads((FOLDER / "mlflow_traces.jsonl").read_text().splitlines()[0])
    step = {"span_id": "kC7x1JP5SQo=", "parent_span_id": "46B6kOe55Dw=", "attributes": {}}
    human = {"source_type": "HUMAN", "source_id": "eve"}
    of_step = {
        "assessment_name": "politeness",
        "source": human,
        "feedback": {"value": 1},
        "span_id": "902ef1d493f9490a",
    }
    trace["info"]["assessments"].append(of_step)
    trace["data"]["spans"].append(step)
    row = {"trace_id": "t", "request": "q", "response": "a", **trace["data"], **trace["info"]}
    (group,) = load(written(tmp_path, name, [trace if name == "a.json" else row]), TASK).groups
    assert group.candidates[0].ratings["politeness"] == (4.0,)


def test_scores_of_langfuse_from_a_bucket(tmp_path: Path) -> None:
    score = {"trace_id": "t", "observation_id": None, "name": "helpfulness", "data_type": "NUMERIC", "comment": "ok"}
    rows = [
        {**score, "source": "ANNOTATION", "value": 2, "string_value": None, "author_user_id": "ann"},
        {**score, "source": "EVAL", "value": 5, "string_value": None, "author_user_id": None},
    ]
    texts = [{"id": "t", "input": "q", "output": "a"}]
    (group,) = load(f"{written(tmp_path, 'a.csv', rows)}+{written(tmp_path, 'b.json', texts)}", TASK).groups
    assert (group.source, group.candidates[0].ratings) == ("q", {"helpfulness": (2.0,)})


def test_feedback_on_a_step_of_a_run_is_about_the_text_of_the_step(tmp_path: Path) -> None:
    scores = (("step", 2), ("root", 5))
    rows = [{"run_id": run, "trace_id": "root", "key": "helpfulness", "score": score} for run, score in scores]
    runs = [{"id": run, "trace_id": "root", "inputs": {"q": "q"}, "outputs": {"a": run}} for run in ("root", "step")]
    names = ColumnNames.parse(["source=source", "text=text"])
    (group,) = load(f"{written(tmp_path, 'a.csv', rows)}+{written(tmp_path, 'b.json', runs)}", TASK, names).groups
    assert {c.text: c.ratings["helpfulness"] for c in group.candidates} == {"step": (2.0,), "root": (5.0,)}


def test_marked_spans_of_label_studio_are_no_comments(tmp_path: Path) -> None:
    tasks = json.loads((FOLDER / "label_studio.json").read_text())
    span = {"start": 0, "end": 2, "text": "It", "labels": ["vague"]}
    tasks[0]["annotations"][0]["result"].append({"from_name": "spans", "type": "labels", "value": span})
    groups = read(tmp_path, "a.json", tasks)
    assert groups[0].candidates[0].comments["helpfulness"] == ("Says where it is.", "No date.")
    rows = annotations(
        answer=lambda task, _: f"a{task}",
        helpfulness=lambda task, rater: 1 + (task + rater) % 5,
        spans=lambda task, rater: json.dumps([span]),
    )
    loaded = load(written(tmp_path, "a.csv", rows), TASK, ColumnNames.parse(TEXTS))
    assert not loaded.groups[0].candidates[0].comments
