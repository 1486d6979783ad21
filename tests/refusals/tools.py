"""Exports of annotation tools that are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.data.test_layouts import FOLDER, TEXTS
from tests.data.test_layouts import TASK as SUPPORT
from tests.refusals.formats import loaded
from tests.refusals.refusal import row


def copied(*names: str) -> Callable[[Path], object]:
    return lambda folder: [shutil.copy(FOLDER / name, folder) for name in names]


def off_scale(folder: Path) -> None:
    tasks = json.loads((FOLDER / "label_studio.json").read_text())
    tasks[1]["annotations"][0]["result"][0]["value"]["rating"] = 9
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, tasks)))


def one_trace(folder: Path) -> None:
    copied("langfuse_scores.csv")(folder)
    (folder / "t.jsonl").write_text((FOLDER / "langfuse_traces.jsonl").read_text().splitlines()[0])


def a_deep_run(folder: Path) -> None:
    copied("langsmith_feedback.jsonl")(folder)
    deep = {"id": "t1", "inputs": "s", "outputs": json.loads('{"a":' * 300 + '"x"' + "}" * 300)}
    other = (FOLDER / "langsmith_runs.jsonl").read_text().splitlines()[1]
    (folder / "runs.jsonl").write_text("\n".join([json.dumps(deep), other]))


ANSWERS = "helpfulness.responses"


def made(name: str, *records: dict[str, object]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text("\n".join(map(json.dumps, records)))


def nested_argilla(folder: Path) -> None:
    answers = {"helpfulness": [{"value": 5, "user_id": "ann"}]}
    record = {"id": "r", "fields": {"question": "q", "answer": "a"}, "responses": answers, "suggestions": {}}
    made("a.jsonl", record)(folder)


def late_answers(folder: Path) -> None:
    plain: dict[str, object] = {"question": "q", "answer": "a", "helpfulness": 1}
    made("a.jsonl", *[plain] * 300, {**plain, ANSWERS: [5], f"{ANSWERS}.users": ["ann"]})(folder)


def lists_of_numpy(folder: Path) -> None:
    header = f"question,answer,{ANSWERS},{ANSWERS}.users\n"
    (folder / "a.csv").write_text(header + "q,a,\"[5, 3]\",\"['ann' 'ben']\"\n")


def comparison(texts: dict[str, object], side: str) -> Callable[[Path], object]:
    result = {"from_name": "better", "value": {"selected": side}}
    return made("a.jsonl", {"data": texts, "annotations": [{"completed_by": 1, "result": [result]}]})


TABLE = [
    row(name, loaded(files, *columns, task=SUPPORT), field, keyword, file, line, change=change)
    for name, files, columns, change, file, line, field, keyword in (
        (
            "scores of Langfuse alone",
            "langfuse_scores.csv",
            (),
            copied("langfuse_scores.csv"),
            "langfuse_scores.csv",
            None,
            None,
            "langfuse_scores.csv+",
        ),
        (
            "feedback of LangSmith alone",
            "langsmith_feedback.jsonl",
            (),
            copied("langsmith_feedback.jsonl"),
            "langsmith_feedback.jsonl",
            None,
            None,
            "langsmith_feedback.jsonl+",
        ),
        ("a trace that is not there", "langfuse_scores.csv+t.jsonl", (), one_trace, None, 6, "traceId", "t2"),
        (
            "a rating of Label Studio",
            "a.jsonl",
            TEXTS,
            off_scale,
            "a.jsonl",
            2,
            "annotations[0].result[0].value.rating",
            "scale",
        ),
        ("records of Argilla in objects", "a.jsonl", (), nested_argilla, "a.jsonl", 1, "responses", "flatten=True"),
        ("answers far below", "a.jsonl", (), late_answers, "a.jsonl", 301, None, "put a rated record first"),
        ("lists without commas", "a.csv", (), lists_of_numpy, "a.csv", 2, f"{ANSWERS}.users", "df.to_json"),
        (
            "a comparison of who knows what",
            "a.jsonl",
            (),
            comparison({"question": "q", "mine": "x", "theirs": "y"}, "left"),
            "a.jsonl",
            1,
            "data",
            "response_a, the left one",
        ),
        (
            "a comparison that names no side",
            "a.jsonl",
            (),
            comparison({"question": "q", "answer1": "x", "answer2": "y"}, "middle"),
            "a.jsonl",
            1,
            "annotations[0].result, better",
            "left or right",
        ),
        (
            "a trace of MLflow without spans",
            "a.jsonl",
            (),
            made("a.jsonl", {"info": {"trace_id": "t", "request_preview": "x" * 997 + "...", "assessments": []}}),
            "a.jsonl",
            1,
            "info.request_preview",
            "include_spans",
        ),
        (
            "a run of LangSmith without end",
            "langsmith_feedback.jsonl+runs.jsonl",
            (),
            a_deep_run,
            None,
            None,
            "text",
            "missing",
        ),
    )
]
