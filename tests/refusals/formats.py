"""Files that are refused for how they are made: sheets, Parquet, sets of the hub, tables of users and of tools."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from debate_judge import data
from debate_judge.data.errors import write_json
from debate_judge.data.files import formats, workbook
from debate_judge.data.files.columns import ColumnNames
from debate_judge.data.files.formats import detect_format
from debate_judge.data.files.groups import load
from debate_judge.data.schema import Task
from debate_judge.runs.draft import draft_mapping
from tests.data.files_of_rows import TASK
from tests.data.test_formats import workbook as sheet_file
from tests.data.test_layouts import FOLDER, TEXTS
from tests.data.test_layouts import TASK as SUPPORT
from tests.data.test_public_sets import Rows, home
from tests.refusals.refusal import row


def loaded(name: str, *columns: str, task: Task | str | None = TASK) -> Callable[[], object]:
    return lambda: load(name, task, ColumnNames.parse(columns))


def guessed(name: str = "a.csv") -> object:
    return draft_mapping(detect_format(name), ColumnNames(), "a")


# --- workbooks and Parquet ---


def sheet(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """A workbook whose only sheet has been changed."""

    def make(folder: Path) -> None:
        source = sheet_file(folder / "a.zip", [("text", "tone"), ("x", 4)])
        with zipfile.ZipFile(source) as old, zipfile.ZipFile(folder / "a.xlsx", "w", zipfile.ZIP_DEFLATED) as new:
            for name in old.namelist():
                new.writestr(name, change(old.read(name)) if name.endswith("sheet1.xml") else old.read(name))

    return make


def half(xml: bytes) -> bytes:
    return xml[: len(xml) // 2]


def bomb(xml: bytes) -> bytes:
    cell = b'<row r="9"><c r="A9" t="inlineStr"><is><t>' + b"x" * (160 << 20) + b"</t></is></c></row>"
    return xml.replace(b"</sheetData>", cell + b"</sheetData>")


OFF_SCALE = [("s", "x", 4), ("t", "y", 7)]
NAMES = ("source", "text", "tone")


def long_texts(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"text": ["x" * (1 << 20)] * 8, "tone": [1] * 8})
    pq.write_table(table, folder / "a.parquet", compression="zstd", use_dictionary=False)


def sheets(*rows: tuple[object, ...], **more: Any) -> Callable[[Path], object]:
    return lambda folder: sheet_file(folder / "a.xlsx", list(rows), **more)


def limited(module: Any, **limits: int) -> Callable[[pytest.MonkeyPatch], object]:
    return lambda patch: [patch.setattr(module, name, value) for name, value in limits.items()]


WORKBOOKS = [
    row(name, loaded("a.xlsx"), field, keyword, "a.xlsx", line, change=change, patch=patch, integration=True)
    for name, change, patch, line, field, keyword in (
        ("half a sheet", sheet(half), None, None, None, "XmlError"),
        ("a bomb", sheet(bomb), limited(workbook, MAX_MEMORY=128 << 20), None, None, "128 MB"),
        ("a sheet off the scale", sheets(NAMES, *OFF_SCALE), None, 5, "tone", "scale"),
    )
]
WITHOUT = {"patch": lambda p: p.setitem(sys.modules, "python_calamine", None), "change": sheets(NAMES, *OFF_SCALE)}
WORKBOOKS.append(row("no library for sheets", loaded("a.xlsx"), None, "[excel]", "a.xlsx", **WITHOUT))

SMALL = limited(formats, _MAX_UNPACKED=4 << 20)
PARQUET = [
    row("long texts", loaded("a.parquet"), "text", "unpacks", "a.parquet", change=long_texts, patch=SMALL, plain=True)
]

# --- text files beyond measure ---


def filled(file: str, start: str, piece: str, count: int, end: str = "") -> Callable[[Path], object]:
    """A file that is made only when it is needed."""
    return lambda folder: (folder / file).write_text(start + piece * count + end)


ENDLESS = limited(formats, MAX_LINE_BYTES=1 << 20)
MANY_ASPECTS = f"text,{','.join(f'key{i}' for i in range(101))}\nx{',1' * 101}\ny{',2' * 101}\n"
HUGE = [
    row(name, loaded(file), None, keyword, file, line, change=filled(file, *content), patch=patch)
    for name, file, content, patch, line, keyword in (
        ("an endless line", "a.jsonl", ('{"text": "', "x", 2 << 20), ENDLESS, 1, "1 MB"),
        ("a line of values", "a.jsonl", ('{"text": "x", "a": [', "[],", 1_000_000, "[]]}"), None, 1, "1,000,000"),
    )
]
HUGE.append(row("too many aspects", guessed, None, "101", files={"a.csv": MANY_ASPECTS}))

# --- tables of users ---

NESTED = [{"data": {"answer": "x"}, "labels": {"tone": 4}}, {"data": {"answer": "y"}, "labels": {"tone": 9}}]
PATHS = ("text=data.answer", "tone=labels.tone")
DEEP = {"a.jsonl": "\n".join(map(json.dumps, NESTED))}
DIALOGUE = {"group": "g", "task": "dialogue", "source": "s", "candidates": [{"id": "a", "text": "x"}]}
OF_DIALOGUE = {"a.jsonl": json.dumps(DIALOGUE)}


SUMMARIZED = {"a.csv": "text,summary,tone\nAn article.,A summary.,4\n"}
UNESCAPED = {"a.tsv": 'text\ttone\nx\t4\n"Yes\t3\ny\t2\nno"\t1\n'}
OF_ANOTHER_MEANING = {"a.csv": "task,text,tone\nrewrite,x,4\n"}
USERS = [
    row("a source as text", loaded("a.csv"), "text", "source=text,text=summary", "a.csv", 2, SUMMARIZED),
    row("quotes that are not escaped", loaded("a.tsv"), None, "over several rows", "a.tsv", 3, UNESCAPED),
    row("another task", loaded("a.csv", task=None), "task", "rename the column", "a.csv", 2, OF_ANOTHER_MEANING),
    row("a path off the scale", loaded("a.jsonl", *PATHS), "labels.tone", "scale", "a.jsonl", 2, DEEP),
    row("no line of this task", loaded("a.jsonl", task="summarization"), None, "--task", "a.jsonl", files=OF_DIALOGUE),
]

# --- public sets ---

CHANGED, NO_ROUTE = Rows([{"document": "x", "id": 1}]), ConnectionError("no route")
SETS = [
    row("no network", partial(data.load, "summeval"), None, "=PATH", patch=partial(home, answer=NO_ROUTE)),
    row("a folder to write to", partial(write_json, Path("support"), {}, "--json"), "--json", "cannot be"),
    row("a new layout", partial(data.load, "summeval"), None, "changed upstream", patch=partial(home, answer=CHANGED)),
]

# --- exports of annotation tools ---

LANGFUSE = "langfuse_scores.csv"


def copied(folder: Path) -> None:
    shutil.copy(FOLDER / LANGFUSE, folder)


def off_scale(folder: Path) -> None:
    tasks = json.loads((FOLDER / "label_studio.json").read_text())
    tasks[1]["annotations"][0]["result"][0]["value"]["rating"] = 9
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, tasks)))


RATED, RATING = loaded("a.jsonl", *TEXTS, task=SUPPORT), "annotations[0].result[0].value.rating"
TOOLS = [
    row("scores without texts", loaded(LANGFUSE, task=SUPPORT), None, f"{LANGFUSE}+", LANGFUSE, change=copied),
    row("a rating of Label Studio", RATED, RATING, "scale", "a.jsonl", 2, change=off_scale),
]

TABLE = [*WORKBOOKS, *PARQUET, *HUGE, *USERS, *SETS, *TOOLS]
