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
from debate_judge.data.files.formats import detect_format
from debate_judge.data.files.groups import iter_groups, load
from debate_judge.data.files.reading import toml
from debate_judge.data.files.task_file import find_task, read_task
from debate_judge.data.sets import faireval, summeval, topical_chat
from debate_judge.runs.draft import draft_mapping
from tests.data import test_public_sets as public
from tests.data.files_of_rows import TASK
from tests.data.test_inputs import GOOD as GOOD_TASK
from tests.data.test_inputs import HEAD
from tests.data.test_public_sets import ARTICLE, QUESTIONS, REPLY, answers, faireval_folder
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


def commented(comments: Any) -> str:
    return line(candidates=[{"id": "a", "text": "Rain.", "comments": comments}])


def lines(records: list[dict[str, Any]]) -> str:
    return "\n".join(json.dumps(record) for record in records)


FIRST = line()
HEADER = "group,source,candidate,text,coherence\n"

Place = tuple[str, str | bytes, int | None, str | None, str]
"""Name, content, line, field, keyword."""

RATING, COMMENTS = "candidates[0].ratings.coherence", "candidates[0].comments"
JSONL: list[Place] = [
    ("not JSON", FIRST + '\n{"group": "g2" "task"}', 2, None, "not valid JSON"),
    ("array", "[" + FIRST + ", 3]", 2, None, "must be an object"),
    ("array that is not closed", "[" + FIRST, 1, None, "the JSON array is not closed"),
    ("array and more", "[" + FIRST + "]\n\n[" + FIRST + "]", 3, None, "after the end of the JSON array"),
    ("no object", "3", 1, None, "give the value a name"),
    ("not UTF-8", FIRST.encode() + b'\n{"group": "caf\xe9"}', 2, None, "not UTF-8: character 15"),
    ("half of UTF-16", FIRST.encode("utf-16")[:-1], 1, None, "not UTF-16"),
    ("NaN", FIRST.replace("[4, 5]", "NaN"), 1, None, "NaN is not a JSON number"),
    ("name twice", FIRST.replace('"fluency"', '"coherence"'), 1, None, "'coherence' occurs twice"),
    ("nested too deeply", "[" * 100000, 1, None, "fewer levels"),
    ("a nested text", line(task="summarization", candidates=..., data={"answer": "x"}), 1, "text", "text=data.answer"),
    ("endless number", rated(0).replace("0}", "9" * 5000 + "}"), 1, None, "a number has thousands of digits"),
    ("empty file", "\n\n", None, None, "no groups in the file"),
    ("misspelt field", line(source=..., sources="x"), 1, "source", "did you mean 'sources'?"),
    ("group is a list", line(group=["g"]), 1, "group", "a text or a whole number"),
    ("source is a number", line(source=7), 1, "source", "expected: a text"),
    ("blank source", line(source=" \n "), 1, "source", "source is empty"),
    ("half a character", line(source="sun \ud83d"), 1, "source", "lone surrogate"),
    ("blank reference", line(references=["one", ""]), 1, "references[1]", "is empty"),
    ("no candidates", line(candidates=[]), 1, "candidates", "at least one object"),
    ("candidate is a text", line(candidates=["Rain."]), 1, "candidates[0]", "expected: an object"),
    ("no text", line(candidates=[{"id": "a"}]), 1, "candidates[0].text", "'text' is missing"),
    ("below the scale", rated([3, 0]), 1, f"{RATING}[1]", "outside the scale of coherence"),
    ("more than a float", rated(10**400), 1, RATING, "outside the scale"),
    ("true on five points", rated(True), 1, RATING, "found:    true"),
    ("a word on two points", rated("maybe", "groundedness", task="dialogue"), 1, None, "yes/no, true/false"),
    ("comment is a number", commented({"coherence": 4}), 1, f"{COMMENTS}.coherence", "a list of texts"),
    ("one comment is a number", commented({"coherence": ["x", 4]}), 1, f"{COMMENTS}.coherence[1]", "a text"),
    ("no task", line(task=...), 1, "task", "has no task"),
    ("unknown task", line(task="sumarization"), 1, "task", "did you mean 'summarization'?"),
    ("no task file", line(task="tone.toml"), 1, "task", "no such task file"),
    ("several tasks", FIRST + "\n" + rated(0, "overall", task="dialogue").replace("0}", "1}"), 2, "task", "--task "),
    ("group twice", FIRST + "\n" + line(source="Sun."), 2, "source", "'g1'"),
]

CSV: list[Place] = [
    ("a title above the header", "Ratings,,\nsource,text,tone\n", 1, None, "a title"),
    ("a title of one cell", "Ratings\nsource,text,tone\n", 1, None, "a title"),
    ("column twice", "source,text,text\ns,x,y\n", 1, "text", "two columns have the same name"),
    ("line ends of old Macs", "text,coherence\ra,3\rb,4\r", 1, None, "carriage returns"),
    ("UTF-16 without a mark", (HEADER + "g,s,a,x,4\n").encode("utf-16-le"), 1, None, "byte order mark"),
    ("too many cells", HEADER + "g,It rained, all day,a,Rain.,4\n", 2, None, "5 cells"),
    ("several bad cells", HEADER + "g,s,a,x,9\ng,s,b,y,bad\ng,s,d,w,4;0\n", 2, "coherence", "line 3, field"),
    ("open quote", HEADER + 'g,s,a,"Rain.,4\ng,s,b,Sun.,5\n', 2, None, "not valid CSV"),
    ("not UTF-8", HEADER.encode() + b"g,s,a,caf\xe9,4\n", 2, None, "not UTF-8: character 10"),
    ("outside the scale", HEADER + 'g,"two\nlines",a,x,4\ng,"two\nlines",b,y,6\n', 4, "coherence", "from 1 to 5"),
    ("decimal comma", HEADER + 'g,s,a,x,"3,5"\ng,s,b,y,4.5\n', 2, "coherence", "decimals with a point"),
    ("fraction", HEADER + "g,s,a,x,4/5\n", 2, "coherence", "a text: '4/5'"),
    ("sources differ", HEADER + "g,s,a,x,4\ng,S,b,y,5\n", 3, "source", "differ in source"),
    ("contexts differ", "group,source,context,text\ng,s,c,x\ng,s,,y\n", 3, "context", "differ in context"),
    ("candidate twice", HEADER + "g,s,a,x,4\ng,s,a,y,5\n", 3, "candidate", "two candidates"),
]

TASKS: list[tuple[str, str | bytes, str | None, int | None, str]] = [
    ("not TOML", HEAD + "low 1\n", None, 4, "not valid TOML"),
    ("no name", GOOD_TASK.replace('name = "support"\n', ""), "name", None, "add name at the top"),
    ("unknown key", "lables = 1\n" + GOOD_TASK, "lables", None, "unknown field"),
    ("misspelt aspect key", GOOD_TASK + 'defnition = ""\n', "aspects.tone.defnition", None, "'definition'?"),
    ("empty aspects", HEAD + "[aspects]\n", "aspects", None, "at least one aspect"),
    ("aspect is a text", HEAD + '[aspects]\ntone = "kind"\n', "aspects.tone", None, "a table [aspects.tone]"),
    ("no high", GOOD_TASK.replace("high = 5\n", ""), "aspects.tone.high", None, "add high to [aspects.tone]"),
    ("low is a text", GOOD_TASK.replace("low = 1", 'low = "1"'), "aspects.tone.low", None, "number without quotes"),
    ("source is a text", GOOD_TASK + 'source = "no"\n', "aspects.tone.source", None, "true or false"),
    ("upside down", GOOD_TASK.replace("low = 1", "low = 9"), "aspects.tone", None, "low < high"),
    ("step too wide", GOOD_TASK + "step = 5\n", "aspects.tone", None, "0 < step <= high - low"),
    ("infinite", GOOD_TASK.replace("high = 5", "high = inf"), "aspects.tone.high", None, "a finite number"),
    ("reserved name", GOOD_TASK.replace("aspects.tone", "aspects.text"), "aspects", None, "'text' cannot be the name"),
    ("odd name", GOOD_TASK.replace("aspects.tone", 'aspects."a/b"'), "aspects", None, "'a/b'"),
    ("task of no text", GOOD_TASK.replace("reply", "r\xe9ply").encode("latin-1"), None, None, "not UTF-8"),
]

ARTICLES: list[tuple[str, list[dict[str, Any]], int | None, str | None, str]] = [
    ("empty", [], None, None, "no records in the file"),
    ("another layout", [{"id": "x", "article": "y"}], 1, "text", "'text' is missing"),
    ("short column", [ARTICLE, {**ARTICLE, "fluency": [5.0]}], 2, "fluency", "2 values, one per summary"),
    ("no summaries", [{**ARTICLE, "machine_summaries": []}], 1, "machine_summaries", "at least one summary"),
    ("model twice", [{**ARTICLE, "model_ids": ["M1", "M1"]}], 1, "model_ids", "a model occurs twice"),
    ("short model names", [{**ARTICLE, "model_ids": ["M1"]}], 1, "model_ids", "2 values"),
    ("text twice", [ARTICLE, {**ARTICLE, "id": "dm-2"}], 2, "text", "the text of line 1"),
    ("id twice", [ARTICLE, {**ARTICLE, "text": "Other ."}], 2, "id", "the id of line 1"),
]

REPLIES: list[tuple[str, list[dict[str, Any]], int | None, str | None, str]] = [
    ("empty", [], None, None, "no records in the file"),
    ("no scores", [{k: v for k, v in REPLY.items() if k != "scores"}], 2, "scores", "'scores' is missing"),
    ("unknown aspect", [{**REPLY, "scores": {"fluency": 1}}], 2, "scores.fluency", "no aspect 'fluency'"),
    ("system twice", [REPLY, REPLY], 13, "system_id", "a second output of 'A'"),
    ("facts differ", [REPLY, {**REPLY, "system_id": "B", "context": "x"}], 13, "context", "the context of line 2"),
]


def copied(**files: Any) -> Callable[[Path], object]:
    """A copy of FairEval in which some files are different."""
    return lambda folder: faireval_folder(folder / "copy", **files)


COPIES = [
    ("a label too few", copied(labels="TIE\nTIE\n"), "3 lines, one per question"),
    ("an unknown label", copied(labels="TIE\nGPT4\nTIE\n"), "line 2, field 'label': unknown label 'GPT4'"),
    ("an answer missing", copied(vicuna=answers("v", (1, 5))), "no answer of vicuna-13b to question 3"),
    ("an answer twice", copied(gpt=answers("g", (1, 3, 5, 3))), "question 3 occurs twice"),
    ("a question twice", copied(questions=[*QUESTIONS[:2], QUESTIONS[1]]), "question 3 occurs twice"),
    ("no questions", copied(questions=[], labels=""), "no questions"),
]

REPEATED = "text,when,reviewed_by,annotatorId,tone\n" + "".join(
    f"t{n % 6},{n},boss,a{n // 6 % 2},{1 + n % 5}\n" for n in range(12)
)
CELLS: list[Place] = [
    ("a provenance", "source,question,text,tone\nweb,Why so?,x,4\nweb,What now?,y,2\n", 2, "source", "source=question"),
    ("two texts", "text,answer,tone\na,It rains.,4\nb,The sun shines.,2\nb,Snow falls.,2\n", 2, "text", "text=answer"),
    ("raters that are not named", REPEATED, 2, "text", "rater=annotatorId"),
    ("an empty text", "source,text,tone\ns,x,1\nt,,2\n", 3, "text", "empty=skip"),
    ("texts of a candidate", "source,candidate,text,rater,tone\ns,a,x,1,4\ns,a,z,2,4\n", 3, "text", "line 2"),
    ("a question", "question,text\ns,x\n", 2, "source", "--columns source=question"),
    ("a source's id", "source_en_id,text\ns,x\n", 2, "source", "'source_en_id'"),
    ("an answer", "source,Answer\ns,x\n", 2, "text", "--columns text=Answer"),
]

FACTUALITY = [
    ("halueval", [], "no records"),
    ("halueval", [{"text": "x"}], "not a record of HaluEval"),
    ("halueval", [{"question": "x", "right_answer": "y"}], "hallucinated_answer"),
    ("halueval", [{"question": "x", "answer": "y", "hallucination": "maybe"}], "yes or no"),
    ("factool_claims", [{**public.CLAIMS, "claims": []}], "claims is empty"),
    ("factool_claims", [{**public.CLAIMS, "claims": [{"claim": "x", "label": "yes"}]}], "label"),
    ("qags", [public.QAGS, {**public.QAGS, "source": "Other ."}], "a second source"),
]


def places(file: str, read: Callable[[Path], object], contents: Iterable[Place]) -> list[object]:
    """Rows of a table of contents that are all read from a file of this name."""
    return [
        row(name, lambda: read(Path(file)), field, keyword, file, number, {file: content})
        for name, content, number, field, keyword in contents
    ]


def guess(path: Path) -> object:
    return draft_mapping(detect_format(path), ColumnNames(), "a")


# Words, numbers in quotes, and ratings that are nested or in other columns.
NO_RATINGS = [
    ("a.csv", "text,tone\n" + "x,red\ny,blue\n" * 3, "labels = {red = 1, blue = 2}"),
    ("a.csv", "text,tone\n" + 'x,"4, 5, 3"\n' * 3, "4;5"),
]


def columns(entries: str) -> object:
    return load(Path("a.csv"), TASK, ColumnNames.parse(entries.split()))


UNIEVAL = [
    {"doc_id": "d1", "system_id": "M8", "system_output": "Rain .", "source": source, "scores": {"fluency": 5}}
    for source in ("It rained .", "It snowed .")
]
PAIR = {"question": "Which?", "response_a": "The Ash.", "response_b": "Water."}
PAIRS: list[Place] = [
    ("0 to 2", lines([{**PAIR, "question": f"{n}?", "winner": n} for n in (0, 1, 2)]), 1, "winner", "0 may mean"),
    ("repeated", lines([{**PAIR, "seat": n, "winner": "A"} for n in "abcdefgh"]), 1, "winner", "repeat a pair"),
    ("one rater twice", lines([{**PAIR, "rater": "anna", "winner": w} for w in "AB"]), 2, "rater", "twice"),
    ("a strength", lines([{**PAIR, "winner": "A", "strength": 3}]), 1, "strength", "divide"),
    ("a third verdict", lines([{**PAIR, "winner": "C"}]), 1, "winner", "tie"),
]

ARRAYS: list[Place] = [
    ("no JSON in an array", '[\n{"source": "a"},\n{"source" "b"}]', 3, None, "not valid JSON"),
    ("a number in an array", '[\n{"source": "a"},\n\n7]', 4, None, "must be an object"),
]

TABLE = [
    *places("rated.jsonl", load, JSONL),
    *places("rated.csv", lambda path: load(path, "summarization"), CSV),
    *places("a.csv", lambda path: load(path, TASK), CELLS),
    *places("support.toml", read_task, [(name, text, at, field, word) for name, text, field, at, word in TASKS]),
    *places("s.jsonl", summeval.load, [(name, lines(records), *rest) for name, records, *rest in ARTICLES]),  # type: ignore[misc]
    *places(
        "t.json", topical_chat.load, [(name, json.dumps(replies, indent=1), *rest) for name, replies, *rest in REPLIES]
    ),  # type: ignore[misc]
    *places("u.jsonl", summeval.load, [("an id of two articles", lines(UNIEVAL), 2, "doc_id", "second source")]),
    *places("t.json", topical_chat.load, ARRAYS),
    *(row(name, partial(faireval.load, Path("copy")), None, word, "copy", change=copy) for name, copy, word in COPIES),
    *(
        row(f"{name} {number}", partial(data.load, f"{name}=set.json"), None, word, files={"set.json": lines(records)})
        for number, (name, records, word) in enumerate(FACTUALITY)
    ),
    row("a set without its folder", lambda: faireval.load(Path("absent")), None, "not a folder", "absent"),
    *rows(
        columns,
        ("source", None, "NAME=COLUMN"),
        ("source=a source=b", None, "each once"),
        ("tonne=b", None, "'tone'"),
        ("tone=scor", None, "'score'"),
        files={"a.csv": "source,text,score\ns,x,4\n"},
    ),
    *(
        row(f"no ratings {number}", partial(guess, Path(file)), None, word, file, files={file: content})
        for number, (file, content, word) in enumerate(NO_RATINGS)
    ),
    row("columns of a public set", lambda: data.load("sample", columns=["source=x"]), None, "sample"),
    *rows(
        data.load,
        ("sumeval", None, "'summeval'"),
        ("topicalchat=x.json", None, "'topical_chat'"),
        ("ratings.doc", None, ".jsonl"),
        ("", None, "unknown data"),
        ("summeval=", None, "no path"),
        ("sample=x.jsonl", None, "part of the package"),
        ("ratd.jsonl", None, "'rated.jsonl'"),
        ("x" * 300 + ".csv", None, "too long"),
    ),
    row("an unknown task", lambda: data.load("rated.jsonl", "dialog"), None, "'dialogue'"),
    *rows(find_task, ("suport.toml", None, "'support.toml'"), files={"support.toml": HEAD}),
    row("a document", lambda: iter_groups(Path("rated.docx")), None, ".jsonl", "rated.docx"),
    *places("x.toml", toml, [("too deep", "a = " + "[" * 20_000 + "]" * 20_000, None, None, "deeply")]),
    *places("x.toml", toml, [("too long", "a = " + "9" * 5_000, None, None, "thousands of digits")]),
    row("a folder", partial(load, Path("d.csv")), None, "cannot be", "d.csv", change=lambda f: (f / "d.csv").mkdir()),
    row("a pipe", lambda: load(Path("x.jsonl")), None, "pipe", "x.jsonl", change=lambda f: os.mkfifo(f / "x.jsonl")),
    *places("p.jsonl", lambda path: data.load(str(path), "pairs", ("source=question",)), PAIRS),
]
