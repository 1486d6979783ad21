"""Files of data and tasks that are refused by their content: each is named with its line and its field."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from debate_judge import data
from debate_judge.data.files.columns import ColumnNames
from debate_judge.data.files.formats import detect_format, toml
from debate_judge.data.files.groups import load
from debate_judge.data.tasks import find_task, read_task
from debate_judge.runs.draft import draft_mapping
from tests.data.files_of_rows import TASK
from tests.data.test_inputs import GOOD as GOOD_TASK
from tests.data.test_inputs import HEAD
from tests.data.test_public_sets import ARTICLE, faireval_folder
from tests.refusals.refusal import row, rows

GOOD: dict[str, Any] = {
    "group": "g1",
    "task": "summarization",
    "source": "It rained all day in Elm.",
    "candidates": [
        {"id": "a", "text": "Rain in Elm.", "ratings": {"coherence": [4, 5], "fluency": 5}},
        {"id": "b", "text": "Elm rain.", "ratings": {"coherence": 2}},
    ],
}


def line(**changes: Any) -> str:
    return json.dumps({key: value for key, value in {**GOOD, **changes}.items() if value is not ...})


def rated(value: Any, aspect: str = "coherence", **changes: Any) -> str:
    return line(candidates=[{"id": "a", "text": "Rain.", "ratings": {aspect: value}}], **changes)


def lines(records: list[dict[str, Any]]) -> str:
    return "\n".join(json.dumps(record) for record in records)


FIRST = line()
HEADER = "group,source,candidate,text,coherence\n"

Place = tuple[str, str | bytes, int | None, str | None, str]
"""Name, content, line, field, keyword."""

RATING = "candidates[0].ratings.coherence"
JSONL: list[Place] = [
    ("not JSON", FIRST + '\n{"group": "g2" "task"}', 2, None, "not valid JSON"),
    ("not UTF-8", FIRST.encode() + b'\n{"group": "caf\xe9"}', 2, None, "not UTF-8: the byte 0xe9"),
    ("NaN", FIRST.replace("[4, 5]", "NaN"), 1, None, "NaN is not a JSON number"),
    ("a nested text", line(task="summarization", candidates=..., data={"answer": "x"}), 1, "text", "text=data.answer"),
    ("endless number", rated(0).replace("0}", "9" * 5000 + "}"), 1, None, "5000 digits"),
    ("empty file", "\n\n", None, None, "no groups in the file"),
    ("misspelt field", line(source=..., sources="x"), 1, "source", "did you mean 'sources'?"),
    ("half a character", line(source="sun \ud83d"), 1, "source", "lone surrogate"),
    ("below the scale", rated([3, 0]), 1, f"{RATING}[1]", "outside the scale of coherence"),
    ("a word on two points", rated("maybe", "groundedness", task="dialogue"), 1, None, "yes/no, true/false"),
    ("several tasks", FIRST + "\n" + rated(0, "overall", task="dialogue").replace("0}", "1}"), 2, "task", "--task "),
    ("group twice", FIRST + "\n" + line(source="Sun."), 2, "source", "'g1'"),
]

CSV: list[Place] = [
    ("a title above the header", "Ratings,,\nsource,text,tone\n", 1, None, "a title"),
    ("UTF-16 without a mark", (HEADER + "g,s,a,x,4\n").encode("utf-16-le"), 1, None, "byte order mark"),
    ("several bad cells", HEADER + "g,s,a,x,9\ng,s,b,y,bad\ng,s,d,w,4;0\n", 2, "coherence", "line 3, field"),
    ("outside the scale", HEADER + 'g,"two\nlines",a,x,4\ng,"two\nlines",b,y,6\n', 4, "coherence", "from 1 to 5"),
    ("sources differ", HEADER + "g,s,a,x,4\ng,S,b,y,5\n", 3, "source", "differ in source"),
    ("candidate twice", HEADER + "g,s,a,x,4\ng,s,a,y,5\n", 3, "candidate", "two candidates"),
]

TASKS: list[tuple[str, str | bytes, str | None, int | None, str]] = [
    ("unknown key", "lables = 1\n" + GOOD_TASK, "lables", None, "unknown field"),
    ("no high", GOOD_TASK.replace("high = 5\n", ""), "aspects.tone.high", None, "add high to [aspects.tone]"),
    ("reserved name", GOOD_TASK.replace("aspects.tone", "aspects.text"), "aspects", None, "'text' cannot be the name"),
]

REPEATED = "text,when,reviewed_by,annotatorId,tone\n" + "".join(
    f"t{n % 6},{n},boss,a{n // 6 % 2},{1 + n % 5}\n" for n in range(12)
)
CELLS: list[Place] = [
    ("a provenance", "source,question,text,tone\nweb,Why so?,x,4\nweb,What now?,y,2\n", 2, "source", "source=question"),
    ("raters that are not named", REPEATED, 2, "text", "rater=annotatorId"),
    ("two raters or a decimal", 'text,tone\nx,"4,5"\ny,"3,4"\n', 2, "tone", "4;5"),
    ("an empty text", "source,text,tone\ns,x,1\nt,,2\n", 3, "text", "empty=skip"),
]

TEXTS = '[{"text": "x"}]'
OTHER, ARRAY = {**ARTICLE, "text": "Other ."}, '[\n{"a": "b"},\n{"a" "b"}]'
MAYBE = {"question": "x", "answer": "y", "hallucination": "maybe"}


def labelled(folder: Path) -> None:
    """A copy of FairEval with a label of its own."""
    faireval_folder(folder / "copy", labels="TIE\nGPT4\nTIE\n")


def data_of(name: str, path: Path) -> object:
    return data.load(f"{name}={path}")


def places(file: str, read: Callable[[Path], object], contents: Iterable[Place]) -> list[object]:
    """Rows of a table of contents that are all read from a file of this name."""
    return [
        row(name, lambda: read(Path(file)), field, keyword, file, number, {file: content})
        for name, content, number, field, keyword in contents
    ]


def guess(path: Path) -> object:
    return draft_mapping(detect_format(path), ColumnNames(), "a")


def columns(entries: str) -> object:
    return load(Path("a.csv"), TASK, ColumnNames.parse(entries.split()))


PAIR = {"question": "Which?", "response_a": "The Ash.", "response_b": "Water."}
PAIRS: list[Place] = [
    ("0 to 2", lines([{**PAIR, "question": f"{n}?", "winner": n} for n in (0, 1, 2)]), 1, "winner", "0 may mean"),
    ("a third verdict", lines([{**PAIR, "winner": "C"}]), 1, "winner", "tie"),
    ("a strength of 3", lines([{**PAIR, "winner": "A", "strength": 3}]), 1, "strength", "divide all strengths"),
    ("one text", lines([{**PAIR, "winner": "A"}, {"question": "?", "response_a": "A"}]), 2, "response_b", "missing"),
]

TABLE = [
    *places("rated.jsonl", load, JSONL),
    *places("rated.csv", lambda path: load(path, "summarization"), CSV),
    *places("a.csv", lambda path: load(path, TASK), CELLS),
    *places("support.toml", read_task, [(name, text, at, field, word) for name, text, field, at, word in TASKS]),
    *places(
        "s.jsonl",
        partial(data_of, "summeval"),
        [
            ("no record", "", None, None, "no records in the file"),
            ("an id twice", lines([ARTICLE, OTHER]), 2, "id", "the id of line 1"),
        ],
    ),
    *places("t.json", partial(data_of, "topical_chat"), [("an array", ARRAY, 3, None, "not valid JSON")]),
    *places(
        "set.json", partial(data_of, "halueval"), [("a third label", lines([MAYBE]), 1, "hallucination", "yes, no")]
    ),
    row("an unknown label", lambda: data_of("faireval", Path("copy")), None, "'GPT4'", "copy", change=labelled),
    *rows(
        columns,
        ("source", None, "NAME=COLUMN"),
        ("tone=scor", None, "'score'"),
        files={"a.csv": "source,text,score\ns,x,4\n"},
    ),
    *places(
        "a.csv", guess, [("words", "text,tone\n" + "x,red\ny,blue\n" * 3, None, None, "labels = {red = 1, blue = 2}")]
    ),
    row("columns of a public set", lambda: data.load("sample", columns=["source=x"]), None, "sample"),
    *rows(
        data.load,
        ("summeval=", None, "no path"),
        ("ratd.jsonl", None, "'rated.jsonl'"),
        ("x" * 300 + ".csv", None, "too long"),
    ),
    row("an unknown task", lambda: data.load("rated.jsonl", "dialog"), None, "'dialogue'"),
    *rows(find_task, ("suport.toml", None, "'support.toml'"), files={"support.toml": HEAD}),
    *places("x.toml", toml, [("too deep", "a = " + "[" * 20_000 + "]" * 20_000, None, None, "deeply")]),
    row("a folder", partial(load, Path("d.csv")), None, "cannot be", "d.csv", change=lambda f: (f / "d.csv").mkdir()),
    *places(
        "a.json",
        partial(load, task="summarization"),
        [("two arrays", f"{TEXTS}\n{TEXTS}", 2, None, "all records into one")],
    ),
    *places(
        "b.jsonl", guess, [("half a name", lines([{"text": "one two", "to\ud83d": 1}]), 1, "to\ud83d", "surrogate")]
    ),
    row(
        "no workbook",
        lambda: load(Path("x.xlsx")),
        None,
        "directory",
        "x.xlsx",
        change=lambda f: (f / "x.xlsx").mkdir(),
    ),
    row("a pipe", lambda: load(Path("x.jsonl")), None, "pipe", "x.jsonl", change=lambda f: os.mkfifo(f / "x.jsonl")),
    *places("p.jsonl", lambda path: data.load(str(path), "pairs", ("source=question",)), PAIRS),
]
