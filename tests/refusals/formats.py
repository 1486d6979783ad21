"""Files that are refused for how they are made: sheets, Parquet, sets of the hub, tables of users and of tools."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from debate_judge import data
from debate_judge.data.files import groups, reading, workbook
from debate_judge.data.files.columns import ColumnNames
from debate_judge.data.files.formats import detect_format
from debate_judge.data.files.groups import load
from debate_judge.data.files.writing import require_writable, write_json
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.data.sets import faireval, hub
from debate_judge.data.tasks import SUMMARIZATION
from debate_judge.runs.draft import draft_mapping
from tests.data.files_of_rows import TASK
from tests.data.test_formats import parquet
from tests.data.test_formats import workbook as sheet_file
from tests.data.test_layouts import FOLDER, TEXTS
from tests.data.test_layouts import TASK as SUPPORT
from tests.data.test_public_sets import ARTICLE, REPLY, Rows, home
from tests.refusals.refusal import row

Change = Callable[[bytes], bytes | None]


def loaded(name: str, *columns: str, task: Task | str | None = TASK) -> Callable[[], object]:
    return lambda: load(name, task, ColumnNames.parse(columns))


def guessed(name: str = "a.csv") -> object:
    return draft_mapping(detect_format(name), ColumnNames(), "a")


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


def sheets(*rows: tuple[object, ...], **more: Any) -> Callable[[Path], object]:
    return lambda folder: sheet_file(folder / "a.xlsx", list(rows), **more)


def limited(module: Any, **limits: int) -> Callable[[pytest.MonkeyPatch], object]:
    return lambda patch: [patch.setattr(module, name, value) for name, value in limits.items()]


WORKBOOKS = [
    row(name, loaded("a.xlsx"), field, keyword, "a.xlsx", line, change=change, patch=patch, integration=True)
    for name, change, patch, line, field, keyword in (
        ("half a sheet", sheet(lambda text: text[: len(text) // 2]), None, None, None, "XmlError"),
        ("no sheet", sheet(lambda text: None), None, None, None, "WorksheetNotFound"),
        ("a cell in the last corner", sheet(LAST_CORNER), None, None, None, "1024 MB"),
        ("a bomb", sheet(BOMB), limited(workbook, MAX_MEMORY=128 << 20), None, None, "128 MB"),
        ("a slow sheet", sheet(lambda text: text), limited(workbook, MAX_SECONDS=0), None, None, "0 seconds"),
        ("an empty sheet", sheets(more=1), None, None, None, "'Sheet2'"),
        ("a title sheet", sheets(NAMES, *OFF_SCALE, before=[("Ratings of 2026",)]), None, None, None, "'Sheet2'"),
        ("a sheet off the scale", sheets(NAMES, *OFF_SCALE), None, 5, "tone", "scale"),
        ("no sheet at all", lambda f: (f / "a.xlsx").write_text("source,text\ns,x\n"), None, None, None, "not a"),
    )
]
WITHOUT = {"patch": lambda p: p.setitem(sys.modules, "python_calamine", None), "change": sheets(NAMES, *OFF_SCALE)}
WORKBOOKS.append(row("no library for sheets", loaded("a.xlsx"), None, "[excel]", "a.xlsx", **WITHOUT))

MANY_LISTS = written(text=["a", "b"], tone=[[True] * 100_000] * 2)
LONG_TEXTS = written(text=["x" * (1 << 20)] * 8, tone=[1] * 8)
PARQUET = [
    row(name, loaded("a.parquet"), field, keyword, "a.parquet", line, change=change, patch=patch, plain=True)
    for name, change, patch, line, field, keyword in (
        ("a date out of range", a_far_date, None, None, "made", "leave the column out"),
        ("long lists", MANY_LISTS, limited(reading, _MAX_LIST_VALUES=10_000), None, "tone.list.element", "200,000"),
        ("long texts", LONG_TEXTS, limited(reading, _MAX_UNPACKED=4 << 20), None, "text", "unpacks"),
        ("Parquet off the scale", lambda f: parquet(f / "a.parquet", OFF_SCALE, NAMES), None, 2, "tone", "scale"),
        ("Parquet of broken pages", broken_pages, None, None, None, "from its original"),
        ("no Parquet", lambda f: (f / "a.parquet").write_text("source,text\ns,x\n"), None, None, None, "not a Parquet"),
    )
]

# --- text files beyond measure ---


def filled(
    file: str, start: str, piece: str, count: int, end: str = "", encoding: str = "utf-8"
) -> Callable[[Path], object]:
    """A file that is made only when it is needed."""
    return lambda folder: (folder / file).write_text(start + piece * count + end, encoding=encoding)


ENDLESS = limited(reading, MAX_LINE_BYTES=1 << 20)
MANY_ASPECTS = f"text,{','.join(f'key{i}' for i in range(101))}\nx{',1' * 101}\ny{',2' * 101}\n"
HUGE = [
    row(name, loaded(file), None, keyword, file, line, change=filled(file, *content), patch=patch)
    for name, file, content, patch, line, keyword in (
        ("an endless line", "a.jsonl", ('{"text": "', "x", 2 << 20), ENDLESS, 1, "1 MB"),
        ("one in UTF-16", "a.jsonl", ('{"text": "', "x", 2 << 20, "", "utf-16"), ENDLESS, 1, "1 MB"),
        ("too many rows", "a.csv", ("text,tone\n", "x,4\n", 101), limited(groups, _MAX_RECORDS=100), None, "line 102"),
        ("a line of values", "a.jsonl", ('{"text": "x", "a": [', "[],", 1_000_000, "[]]}"), None, 1, "1,000,000"),
        ("a document of values", "a.json", ('{"data": [', "[],", 9_000_000, "[]]}"), None, None, "too large"),
    )
]
HUGE.append(row("too many aspects", guessed, None, "101", files={"a.csv": MANY_ASPECTS}))

# --- tables of users ---

NESTED = [{"data": {"answer": "x"}, "labels": {"tone": 4}}, {"data": {"answer": "y"}, "labels": {"tone": 9}}]
PATHS = ("text=data.answer", "tone=labels.tone")
DEEP = {"a.jsonl": "\n".join(map(json.dumps, NESTED))}
DIALOGUE = {"group": "g", "task": "dialogue", "source": "s", "candidates": [{"id": "a", "text": "x"}]}
OF_DIALOGUE = {"a.jsonl": json.dumps(DIALOGUE)}
OF_A_FILE = {"a.jsonl": json.dumps({**DIALOGUE, "task": "tone.toml"}), "tone.toml": 'name = "tone"\n'}
COMMENTED = {"a.csv": "text,tone,why,note\nx,4,because,so\n"}


def of_scale(low: float, high: float) -> Callable[[], object]:
    return loaded("a.csv", task=Task("t", "source", "text", (Aspect("tone", "How?", Scale(low, high)),)))


LABELLED = "".join(f"A text {i}.,accept,{rater},4\n" for i in range(9) for rater in "ab")
MISREAD = (
    ("what was summarized", "text,summary,tone\nAn article.,A summary.,4\n", 2, "text", "source=text,text=summary"),
    ("repeated texts beside labels", f"text,answer,who,tone\n{LABELLED}", 2, "text", "rater=who"),
    ("columns of a crowd", "WorkerId,Input.answer,Answer.tone\nw,x,4\n", 2, "text", "text=Input.answer"),
)
UNESCAPED = {"a.tsv": 'text\ttone\nx\t4\n"Yes\t3\ny\t2\nno"\t1\n'}
OF_ANOTHER_MEANING = {"a.csv": "task,text,tone\nrewrite,x,4\n"}
USERS = [
    *(
        row(name, loaded("a.csv"), field, keyword, "a.csv", line, {"a.csv": text})
        for name, text, line, field, keyword in MISREAD
    ),
    row("quotes that are not escaped", loaded("a.tsv"), None, "over several rows", "a.tsv", 3, UNESCAPED),
    row("another task", loaded("a.csv", task=None), "task", "rename the column", "a.csv", 2, OF_ANOTHER_MEANING),
    row("fractions", guessed, None, "4 and not 4/5", files=table("4/5", "3/5")),
    row("dates", guessed, None, "such as 4/5", files=table("2024-05-04", "2024-05-03")),
    row("three raters in a cell", guessed, None, "4;5", files=table("4,5,3", "3,4,4")),
    row("per cents", guessed, None, "80 and not 80%", files=table("80%", "60%")),
    row("two raters with a comma, guessed", guessed, None, "4;5", files=table("4,5", "3,4")),
    *(
        row(f"two raters in {first}", of_scale(*scale), "tone", keyword, "a.csv", 2, table(first, second))
        for first, second, scale, keyword in (("75,80", "9,100", (0, 100), "75;80"), ("0,1", "1,1", (0, 1), "0;1"))
    ),
    row("a path off the scale", loaded("a.jsonl", *PATHS), "labels.tone", "scale", "a.jsonl", 2, DEEP),
    row("a path to nothing", loaded("a.jsonl", "text=data.reply"), None, "'data.reply'", files=DEEP, plain=True),
    row("no such comments", loaded("a.csv", "comments.tone=why+nota"), None, "'nota'", files=COMMENTED, plain=True),
    row("no line of this task", loaded("a.jsonl", task="summarization"), None, "--task", "a.jsonl", files=OF_DIALOGUE),
    row("half a task file by the data", loaded("a.jsonl", task=None), None, "missing", "tone.toml", files=OF_A_FILE),
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


EMPTY_REPLY = {**REPLY, "system_id": "B", "system_output": ""}
HUB = {"change": hub_set, "patch": own_cache}
SUMMEVAL = {"s.jsonl": json.dumps(ARTICLE)}
OLDER_TASK = Task("summarization", "article", "summary", SUMMARIZATION.aspects[:2])
SETS = [
    *(
        row(f"hf:{name}", partial(data.load, f"hf:{name}", TASK), None, keyword, "hf:replies", **HUB)
        for name, keyword in (("replies", "train, test"), ("replies@dev", "dev"))
    ),
    *(
        row(f"no {name}", partial(data.load, name), None, f"--data {name}=PATH", patch=partial(home, answer=error))
        for name, error in (("summeval", ConnectionError("no route")), ("topical_chat", RuntimeError("closed")))
    ),
    *(
        row(
            f"{name}, {keyword}", partial(data.load, name), field, keyword, file, line, patch=partial(home, answer=rows)
        )
        for name, rows, file, line, field, keyword in (
            ("summeval", Rows([{"document": "x", "id": 1}]), None, None, None, "changed upstream"),
            ("topical_chat", Rows([REPLY, EMPTY_REPLY]), "topical_chat.json", 2, "system_output", "empty"),
        )
    ),
    row("labels out of reach", faireval.load, None, "cannot be fetched", patch=without_network),
    *(
        row(f"SummEval for {task}"[:30], partial(data.load, "summeval=s.jsonl", task), None, keyword, files=SUMMEVAL)
        for task, keyword in (("dialogue", "summarization"), (OLDER_TASK, "fluency"))
    ),
]

# --- places ---

PLACES = [
    row(f"{write.__name__} {name[:20]}", partial(write, Path(name), *more, "--json"), "--json", "cannot be")
    for write, more in ((require_writable, ()), (write_json, ({},)))
    for name in ("rated.jsonl/a.json", "judge", "/proc/nothing/a.json")
]

# --- exports of annotation tools ---


def exported(*names: str) -> Callable[[Path], object]:
    return lambda folder: [shutil.copy(FOLDER / name, folder) for name in names]


def off_scale(folder: Path) -> None:
    tasks = json.loads((FOLDER / "label_studio.json").read_text())
    tasks[1]["annotations"][0]["result"][0]["value"]["rating"] = 9
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, tasks)))


def one_trace(folder: Path) -> None:
    exported("langfuse_scores.csv")(folder)
    (folder / "t.jsonl").write_text((FOLDER / "langfuse_traces.jsonl").read_text().splitlines()[0])


def a_deep_run(folder: Path) -> None:
    exported("langsmith_feedback.jsonl")(folder)
    deep = {"id": "t1", "inputs": "s", "outputs": json.loads('{"a":' * 300 + '"x"' + "}" * 300)}
    other = (FOLDER / "langsmith_runs.jsonl").read_text().splitlines()[1]
    (folder / "runs.jsonl").write_text("\n".join([json.dumps(deep), other]))


ANSWERS = "helpfulness.responses"


def recorded(name: str, *records: dict[str, object]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text("\n".join(map(json.dumps, records)))


def nested_argilla(folder: Path) -> None:
    answers = {"helpfulness": [{"value": 5, "user_id": "ann"}]}
    fields = {"question": "q", "answer": "a"}
    recorded("a.jsonl", {"id": "r", "fields": fields, "responses": answers, "suggestions": {}})(folder)


def lists_of_numpy(folder: Path) -> None:
    header = f"question,answer,{ANSWERS},{ANSWERS}.users\n"
    (folder / "a.csv").write_text(header + "q,a,\"[5, 3]\",\"['ann' 'ben']\"\n")


def comparison(texts: dict[str, object], side: str) -> Callable[[Path], object]:
    result = {"from_name": "better", "value": {"selected": side}}
    return recorded("a.jsonl", {"data": texts, "annotations": [{"completed_by": 1, "result": [result]}]})


CUT_OFF = recorded("a.jsonl", {"info": {"trace_id": "t", "request_preview": "x" * 997 + "...", "assessments": []}})
LANGFUSE, LANGSMITH = "langfuse_scores.csv", "langsmith_feedback.jsonl"
OTHER_TEXTS: dict[str, object] = {"question": "q", "mine": "x", "theirs": "y"}
RATING = "annotations[0].result[0].value.rating"
TOOLS = [
    row(name, loaded(files, *columns, task=SUPPORT), field, keyword, file, line, change=change)
    for name, files, columns, change, file, line, field, keyword in (
        ("Langfuse alone", LANGFUSE, (), exported(LANGFUSE), LANGFUSE, None, None, f"{LANGFUSE}+"),
        ("LangSmith alone", LANGSMITH, (), exported(LANGSMITH), LANGSMITH, None, None, f"{LANGSMITH}+"),
        ("a trace that is not there", f"{LANGFUSE}+t.jsonl", (), one_trace, None, 6, "traceId", "t2"),
        ("a rating of Label Studio", "a.jsonl", TEXTS, off_scale, "a.jsonl", 2, RATING, "scale"),
        ("records of Argilla in objects", "a.jsonl", (), nested_argilla, "a.jsonl", 1, "responses", "flatten=True"),
        ("lists without commas", "a.csv", (), lists_of_numpy, "a.csv", 2, f"{ANSWERS}.users", "df.to_json"),
        ("unknown texts", "a.jsonl", (), comparison(OTHER_TEXTS, "left"), "a.jsonl", 1, "data", "response_a, the left"),
        ("a trace without spans", "a.jsonl", (), CUT_OFF, "a.jsonl", 1, "info.request_preview", "include_spans"),
        ("a run of LangSmith without end", f"{LANGSMITH}+runs.jsonl", (), a_deep_run, None, None, "text", "missing"),
    )
]

TABLE = [*WORKBOOKS, *PARQUET, *HUGE, *USERS, *SETS, *PLACES, *TOOLS]
