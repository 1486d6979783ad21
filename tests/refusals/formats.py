"""Files that are refused for how they are made: sheets, Parquet, sets of the hub, users' tables."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from debate_judge import data
from debate_judge.data.files import groups, reading, workbook
from debate_judge.data.files.columns import ColumnNames
from debate_judge.data.files.formats import read_records
from debate_judge.data.files.groups import load
from debate_judge.data.files.task_file import guess_task
from debate_judge.data.files.writing import require_writable, write_json
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.data.sets import faireval, hub, newsroom
from debate_judge.data.tasks import PAIRS, SUMMARIZATION
from tests.data.files_of_rows import TASK
from tests.data.test_formats import parquet
from tests.data.test_formats import workbook as sheet_file
from tests.data.test_public_sets import ARTICLE, REPLY, Rows, home
from tests.refusals.refusal import row

Change = Callable[[bytes], bytes | None]


def loaded(name: str, *columns: str, task: Task = TASK) -> Callable[[], object]:
    return lambda: load(name, task, ColumnNames.parse(columns))


def guessed(name: str = "a.csv") -> object:
    return guess_task(read_records(Path(name)), ColumnNames(), "a")


def table(*values: str, column: str = "tone") -> dict[str, str]:
    return {"a.csv": f"text,{column}\n" + "".join(f'"text {i}","{value}"\n' for i, value in enumerate(values))}


# --- workbooks and Parquet ---


def sheet(change: Change) -> Callable[[Path], object]:
    """A workbook whose only sheet has been changed, or taken out where `change` returns None."""

    def make(folder: Path) -> None:
        source = sheet_file(folder / "a.zip", [("text", "tone"), ("x", 4)])
        with zipfile.ZipFile(source) as old, zipfile.ZipFile(folder / "a.xlsx", "w", zipfile.ZIP_DEFLATED) as new:
            for name in old.namelist():
                content = change(old.read(name)) if name.endswith("sheet1.xml") else old.read(name)
                if content is not None:
                    new.writestr(name, content)

    return make


def cell(xml: bytes) -> Change:
    return lambda text: text.replace(b"</sheetData>", xml + b"</sheetData>")


LAST_CORNER = cell(b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>')
BOMB = cell(b'<row r="9"><c r="A9" t="inlineStr"><is><t>' + b"x" * (160 << 20) + b"</t></is></c></row>")
OFF_SCALE = [("s", "x", 4), ("t", "y", 7)]
NAMES = ("source", "text", "tone")


def written(**columns: Any) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(columns), folder / "a.parquet", compression="zstd", use_dictionary=False)

    return make


def a_far_date(folder: Path) -> None:
    import pyarrow as pa

    days = pa.array([1, 9_000_000_000_000], pa.timestamp("s"))
    written(text=["a", "b"], tone=[1, 2], made=pa.StructArray.from_arrays([days], ["day"]))(folder)


def broken_pages(folder: Path) -> None:
    parquet(folder / "a.parquet", OFF_SCALE, NAMES)
    content = (folder / "a.parquet").read_bytes()
    (folder / "a.parquet").write_bytes(content[:4] + b"\xff" * 100 + content[104:])


WORKBOOKS = [
    row(name, loaded("a.xlsx"), field, keyword, "a.xlsx", line, change=change, patch=patch, integration=True)
    for name, change, patch, line, field, keyword in (
        ("half a sheet", sheet(lambda text: text[: len(text) // 2]), None, None, None, "XmlError"),
        ("no sheet", sheet(lambda text: None), None, None, None, "WorksheetNotFound"),
        ("a cell in the last corner", sheet(LAST_CORNER), None, None, None, "1024 MB"),
        ("a bomb", sheet(BOMB), lambda p: p.setattr(workbook, "MAX_MEMORY", 128 << 20), None, None, "128 MB"),
        (
            "a slow sheet",
            sheet(lambda text: text),
            lambda p: p.setattr(workbook, "MAX_SECONDS", 0),
            None,
            None,
            "0 seconds",
        ),
        ("an empty sheet", lambda f: sheet_file(f / "a.xlsx", [], more=1), None, None, None, "'Sheet2'"),
        (
            "a sheet of one sentence before the data",
            lambda f: sheet_file(f / "a.xlsx", [NAMES, *OFF_SCALE], before=[("Ratings of 2026",)]),
            None,
            None,
            None,
            "'Sheet2'",
        ),
        ("a sheet off the scale", lambda f: sheet_file(f / "a.xlsx", [NAMES, *OFF_SCALE]), None, 5, "tone", "scale"),
        ("no sheet at all", lambda f: (f / "a.xlsx").write_text("source,text\ns,x\n"), None, None, None, "not a"),
    )
] + [
    row(
        "no library for sheets",
        loaded("a.xlsx"),
        None,
        "[excel]",
        "a.xlsx",
        change=lambda f: sheet_file(f / "a.xlsx", [NAMES, *OFF_SCALE]),
        patch=lambda p: p.setitem(sys.modules, "python_calamine", None),
    ),
]
PARQUET = [
    row(name, loaded("a.parquet"), field, keyword, "a.parquet", line, change=change, patch=patch, plain=True)
    for name, change, patch, line, field, keyword in (
        ("a date out of range", a_far_date, None, 2, "made", "leave the column out"),
        (
            "lists of far more values than bytes",
            written(text=["a", "b"], tone=[[True] * 100_000] * 2),
            lambda p: p.setattr(reading, "_MAX_LIST_VALUES", 10_000),
            None,
            "tone.list.element",
            "200,000 values",
        ),
        (
            "a column that unpacks to far more",
            written(text=["x" * (1 << 20)] * 8, tone=[1] * 8),
            lambda p: p.setattr(reading, "_MAX_UNPACKED", 4 << 20),
            None,
            "text",
            "unpacks",
        ),
        ("Parquet off the scale", lambda f: parquet(f / "a.parquet", OFF_SCALE, NAMES), None, 2, "tone", "scale"),
        ("Parquet of broken pages", broken_pages, None, None, None, "from its original"),
        ("no Parquet", lambda f: (f / "a.parquet").write_text("source,text\ns,x\n"), None, None, None, "not a Parquet"),
    )
]

# --- text files beyond measure ---

LONG = '{"text": "' + "x" * (2 << 20) + '"}\n'
MANY = [f"key{i}" for i in range(101)]
HUGE = [
    *(
        row(
            f"an endless line in {encoding}",
            lambda: list(reading.jsonl(Path("a.jsonl"))),
            None,
            "1 MB",
            "a.jsonl",
            1,
            {"a.jsonl": LONG.encode(encoding)},
            patch=lambda p: p.setattr(reading, "MAX_LINE_BYTES", 1 << 20),
        )
        for encoding in ("utf-8", "utf-16")
    ),
    row(
        "more rows than rated data have",
        loaded("a.csv"),
        None,
        "up to line 102",
        "a.csv",
        files={"a.csv": "text,tone\n" + "x,4\n" * 101},
        patch=lambda p: p.setattr(groups, "_MAX_RECORDS", 100),
    ),
    row(
        "a line of very many values",
        loaded("a.jsonl"),
        None,
        "1,000,000 values",
        "a.jsonl",
        1,
        {"a.jsonl": '{"text": "x", "a": [' + "[]," * 1_000_000 + "[]]}"},
        plain=True,
    ),
    row(
        "a document of very many values",
        loaded("a.json"),
        None,
        "too large",
        "a.json",
        change=lambda f: (f / "a.json").write_text('{"data": [' + "[]," * 9_000_000 + "[]]}"),
    ),
    row(
        "more aspects than anyone rates",
        guessed,
        None,
        "101",
        files={"a.csv": f"text,{','.join(MANY)}\nx{',1' * 101}\ny{',2' * 101}\n"},
    ),
    row(
        "a quote that is never closed",
        loaded("a.csv"),
        None,
        "close every quote",
        "a.csv",
        2,
        {"a.csv": 'text,tone\n"' + ("x" * (1 << 20) + "\n") * 17},
    ),
]

# --- tables of users ---

BOTH = "text,criterion,score\nx,tone,0\ny,tone,2\nx,clear/short,1\ny,clear/short,2\n"
REPEATED = "source,text,who,tone\n" + "".join(
    f"q{i // 2},text {i},p{j},{(i + j) % 5 + 1}\n" for j in range(3) for i in range(8)
)
NESTED = [{"data": {"answer": "x"}, "labels": {"tone": 4}}, {"data": {"answer": "y"}, "labels": {"tone": 9}}]
DEEP = {"a.jsonl": "\n".join(map(json.dumps, NESTED))}
PAIR = {"question": "Which river?", "response_a": "The Ash.", "response_b": "Water.", "winner": "B", "strength": 3}
USERS = [
    row("fractions", guessed, None, "4 and not 4/5", files=table("4/5", "3/5")),
    row("per cents", guessed, None, "80 and not 80%", files=table("80%", "60%")),
    row("two raters with a comma, guessed", guessed, None, "4;5", files=table("4,5", "3,4")),
    row("a point and a comma", loaded("a.csv"), "tone", "decimals with a point", "a.csv", 2, table("3,5", "4.5")),
    *(
        row(
            f"two raters in {values[0]}",
            loaded("a.csv", task=Task("t", "source", "text", (Aspect("tone", "How?", scale),))),
            "tone",
            values[0].replace(",", ";"),
            "a.csv",
            2,
            table(*values),
        )
        for values, scale in (
            (("4,5", "3,4", ""), Scale(1, 5)),
            (("75,80", "9,100", "n/a"), Scale(0, 100)),
            (("-1,2", "0,3"), Scale(-3, 3)),
            (("0,1", "1,1"), Scale(0, 1)),
        )
    ),
    row("an aspect with a stroke", guessed, "criterion", "'clear/short'", "a.csv", 4, {"a.csv": BOTH}),
    row(
        "what was summarized, called text",
        loaded("a.csv"),
        "text",
        "--columns source=text,text=summary",
        "a.csv",
        2,
        {"a.csv": "text,summary,tone\nAn article.,A summary.,4\n"},
    ),
    row(
        "names in two rows",
        loaded("a.csv"),
        None,
        "unmerge",
        "a.csv",
        2,
        {"a.csv": "text,Ann,,Bob,\n,tone,wit,tone,wit\nx,4,5,3,2\n"},
    ),
    row(
        "columns of a crowd",
        guessed,
        "text",
        "--columns text=Input.answer",
        "a.csv",
        2,
        {"a.csv": "WorkerId,Input.answer,Answer.tone\nw,x,4\n"},
    ),
    row("repeated texts", loaded("a.csv"), None, "--columns rater=who", "a.csv", files={"a.csv": REPEATED}),
    row(
        "a path off the scale",
        loaded("a.jsonl", "text=data.answer", "tone=labels.tone"),
        "labels.tone",
        "scale",
        "a.jsonl",
        2,
        DEEP,
    ),
    row("a path to nothing", loaded("a.jsonl", "text=data.reply"), None, "'data.reply'", files=DEEP, plain=True),
    row(
        "no column of comments",
        loaded("a.csv", "comments.tone=why+nota"),
        None,
        "'nota'",
        files={"a.csv": "text,tone,why,note\nx,4,because,so\n"},
        plain=True,
    ),
    row(
        "a strength of three",
        lambda: data.load("p.jsonl", PAIRS, ("source=question",)),
        "strength",
        "strength",
        "p.jsonl",
        1,
        {"p.jsonl": json.dumps(PAIR)},
    ),
    row(
        "a task that no line has",
        lambda: load(Path("a.jsonl"), "summarization"),
        None,
        "--task dialogue",
        "a.jsonl",
        files={
            "a.jsonl": json.dumps(
                {"group": "g", "task": "dialogue", "source": "s", "candidates": [{"id": "a", "text": "x"}]}
            )
        },
    ),
    row(
        "half a task file beside the data",
        lambda: load(Path("a.jsonl")),
        None,
        "missing",
        "tone.toml",
        files={
            "a.jsonl": json.dumps(
                {"group": "g", "task": "tone.toml", "source": "s", "candidates": [{"id": "a", "text": "x"}]}
            ),
            "tone.toml": 'name = "tone"\n',
        },
    ),
]

# --- public sets and the hub ---


def hub_set(folder: Path) -> None:
    (folder / "replies").mkdir()
    for split in ("train", "test"):
        parquet(folder / "replies" / f"{split}.parquet")


def own_cache(patch: pytest.MonkeyPatch) -> None:
    import datasets

    patch.setattr(datasets.config, "HF_DATASETS_CACHE", str(Path("runs", "store", "cache").absolute()))
    datasets.disable_progress_bars()


def without_network(patch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> object:
        raise OSError("no network")

    patch.setattr(hub, "fetch", lambda name, home: [])
    patch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=fail))


WRONG_ROW = {**REPLY, "system_id": "B", "system_output": ""}
SETS = [
    row(
        "a set of several splits",
        lambda: data.load("hf:replies", TASK),
        None,
        "train, test",
        "hf:replies",
        change=hub_set,
        patch=own_cache,
    ),
    row(
        "no such split",
        lambda: data.load("hf:replies@dev", TASK),
        None,
        "dev",
        "hf:replies",
        change=hub_set,
        patch=own_cache,
    ),
    *(
        row(
            f"{name} and {type(failure).__name__}",
            lambda n=name: data.load(n),  # type: ignore[misc]
            None,
            f"--data {name}=PATH",
            patch=lambda p, f=failure: home(p, f),  # type: ignore[misc]
        )
        for name in ("summeval", "topical_chat")
        for failure in (ConnectionError("no route"), FileNotFoundError("gone"), RuntimeError("closed"))
    ),
    row(
        "a set that has changed",
        lambda: data.load("summeval"),
        None,
        "changed upstream",
        patch=lambda p: home(p, Rows([{"document": "x", "id": 1}])),
    ),
    row(
        "an empty text of the hub",
        lambda: data.load("topical_chat"),
        "system_output",
        "empty",
        "topical_chat.json",
        2,
        patch=lambda p: home(p, Rows([REPLY, WRONG_ROW])),
    ),
    row("labels out of reach", faireval.load, None, "cannot be fetched", patch=without_network),
    row(
        "Newsroom without an article",
        lambda: newsroom.load(Path("n.json")),
        None,
        "no summary",
        "n.json",
        files={"n.json": json.dumps({"instances": [{"id": 1, "instance": "elm has a plough .", "annotations": {}}]})},
    ),
    *(
        row(
            f"SummEval for {name}",
            lambda t=task: data.load("summeval=s.jsonl", t),
            None,
            keyword,  # type: ignore[misc]
            files={"s.jsonl": json.dumps(ARTICLE)},
        )
        for name, task, keyword in (
            ("dialogues", "dialogue", "summarization"),
            ("fewer aspects", Task("summarization", "article", "summary", SUMMARIZATION.aspects[:2]), "fluency"),
        )
    ),
]

# --- places ---

PLACES = [
    row(
        f"{write.__name__} {name[:20]}", lambda w=write, m=more, n=name: w(Path(n), *m, "--json"), "--json", "cannot be"
    )  # type: ignore[misc]
    for write, more in ((require_writable, ()), (write_json, ({},)))
    for name in ("rated.jsonl/a.json", "judge", "x" * 300, "/proc/nothing/a.json")
]

TABLE = [*WORKBOOKS, *PARQUET, *HUGE, *USERS, *SETS, *PLACES]
