"""One table of files that cannot be used: each must be refused with its line, its field and words that help."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.errors import InputError
from debate_judge.data.files.groups import iter_groups, load
from debate_judge.data.files.reading import lines, toml
from debate_judge.data.files.task_file import find_task

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


FIRST = line()

# (name, content, line, field, words of the message)
JSONL: list[tuple[str, str | bytes, int | None, str | None, list[str]]] = [
    ("not JSON", FIRST + '\n{"group": "g2" "task"}', 2, None, ["not valid JSON", "column 16"]),
    ("cut off", FIRST[:-10], 1, None, ["not valid JSON"]),
    ("pretty-printed", json.dumps(GOOD, indent=1), 1, None, ["every record on one line"]),
    ("indented below one line", '{"a": 1,\n"b": 2}', 1, None, ["every record on one line"]),
    ("array", "[" + FIRST + ", 3]", 1, None, ["must be an object", "a number"]),
    ("array that is not closed", "[" + FIRST, 1, None, ["the JSON array is not closed"]),
    ("array and more", "[" + FIRST + "]\n\n[" + FIRST + "]", 3, None, ["after the end of the JSON array", "one array"]),
    ("no object", "3", 1, None, ["must be an object", "a number"]),
    ("not UTF-8", FIRST.encode() + b'\n{"group": "caf\xe9"}', 2, None, ["not UTF-8: byte 15", "0xe9"]),
    ("half of UTF-16", FIRST.encode("utf-16")[:-1], 1, None, ["not UTF-16", "save the file as UTF-8"]),
    ("NaN", FIRST.replace("[4, 5]", "NaN"), 1, None, ["NaN is not a JSON number"]),
    ("name twice", FIRST.replace('"fluency"', '"coherence"'), 1, None, ["'coherence' occurs twice"]),
    ("nested too deeply", "[" * 100_000, 1, None, ["nested too deeply"]),
    ("endless number", rated(0).replace("0}", "9" * 5000 + "}"), 1, None, ["a number has thousands of digits"]),
    ("empty file", "\n\n", None, None, ["no groups in the file"]),
    ("no group", line(group=...), 1, "group", ["'group' is missing", "fields task, source, candidates"]),
    ("misspelt field", line(source=..., sources="x"), 1, "source", ["is it called 'sources'?"]),
    ("group is a list", line(group=["g"]), 1, "group", ["a text or a whole number", "a list"]),
    ("group is true", line(group=True), 1, "group", ["found:    true"]),
    ("source is a number", line(source=7), 1, "source", ["expected: a text", "a number: 7"]),
    ("blank source", line(source=" \n "), 1, "source", ["source is empty"]),
    ("half a character", line(source="sun \ud83d"), 1, "source", ["lone surrogate", "position 5", "\\ud83d"]),
    ("context is a number", line(context=4), 1, "context", ["expected: a text"]),
    ("blank reference", line(references=["one", ""]), 1, "references[1]", ["is empty"]),
    ("no candidates", line(candidates=[]), 1, "candidates", ["at least one object"]),
    ("candidate is a text", line(candidates=["Rain."]), 1, "candidates[0]", ["expected: an object"]),
    ("no id", line(candidates=[{"text": "x"}]), 1, "candidates[0].id", ["'id' is missing"]),
    ("blank id", line(candidates=[{"id": "", "text": "x"}]), 1, "candidates[0].id", ["is empty"]),
    ("no text", line(candidates=[{"id": "a"}]), 1, "candidates[0].text", ["'text' is missing"]),
    ("blank text", line(candidates=[{"id": "a", "text": "\t"}]), 1, "candidates[0].text", ["text is empty"]),
    (
        "candidate twice",
        line(candidates=[{"id": "a", "text": "x"}, {"id": "b", "text": "y"}, {"id": "a", "text": "z"}]),
        1,
        "candidates[2].id",
        ["'g1' has two candidates with the id 'a'", "candidates[0]"],
    ),
    ("ratings is a list", line(candidates=[{"id": "a", "text": "x", "ratings": [3]}]), 1, None, ["an object"]),
    ("above the scale", rated(5.01), 1, "candidates[0].ratings.coherence", ["from 1 to 5", "found:    5.01"]),
    ("below the scale", rated([3, 0]), 1, "candidates[0].ratings.coherence[1]", ["outside the scale of coherence"]),
    ("more than a float", rated(10**400), 1, "candidates[0].ratings.coherence", ["outside the scale"]),
    ("number in quotes", rated("4"), 1, "candidates[0].ratings.coherence", ["without quotes", "a text: '4'"]),
    ("decimal comma", rated("4,5"), 1, "candidates[0].ratings.coherence", ["decimals with a point"]),
    ("true on five points", rated(True), 1, "candidates[0].ratings.coherence", ["found:    true"]),
    ("yes on five points", rated("yes"), 1, "candidates[0].ratings.coherence", ["a text: 'yes'"]),
    (
        "a rater without value",
        rated([4, None]),
        1,
        "candidates[0].ratings.coherence[1]",
        ["leave out the raters", "found:    null"],
    ),
    ("a word on two points", rated("maybe", "groundedness", task="dialogue"), 1, None, ["yes/no, true/false"]),
    ("comments are a text", commented("good"), 1, "candidates[0].comments", ["expected: an object", "'good'"]),
    ("comment is a number", commented({"coherence": 4}), 1, "candidates[0].comments.coherence", ["a list of texts"]),
    (
        "one comment is a number",
        commented({"coherence": ["well told", 4]}),
        1,
        "candidates[0].comments.coherence[1]",
        ["expected: a text", "a number: 4"],
    ),
    (
        "half a character in a comment",
        commented({"coherence": "\ud83d"}),
        1,
        "candidates[0].comments.coherence",
        ["lone surrogate"],
    ),
    ("no task", line(task=...), 1, "task", ["names no task", "--task", "rated.jsonl --write-task FILE.toml"]),
    ("unknown task", line(task="sumarization"), 1, "task", ["did you mean 'summarization'?"]),
    ("no task file", line(task="tone.toml"), 1, "task", ["no such task file", "tone.toml"]),
    ("several tasks", FIRST + "\n" + rated(0, "overall", task="dialogue").replace("0}", "1}"), 2, "task", ["--task "]),
    ("group twice", FIRST + "\n" + line(source="Sun."), 2, "group", ["'g1'", "the id of line 1"]),
    (
        "source twice",
        FIRST + "\n" + line(group="g2", source="It rained  all day\nin Elm. "),
        2,
        "source",
        ["'g1' and 'g2' have the same source text", "line 1"],
    ),
]

HEADER = "group,source,candidate,text,coherence\n"

CSV: list[tuple[str, str | bytes, int | None, str | None, list[str]]] = [
    ("header only", HEADER, None, None, ["no groups in the file"]),
    ("no text", "group,source\ng,x\n", 2, "text", ["'text' is missing", "--columns text=COLUMN"]),
    ("misspelt source", "sources,text\ng,x\n", 2, "source", ["is it called 'sources'?", "--columns source=COLUMN"]),
    ("a title above the header", "Ratings,,\nsource,text,tone\n", 1, None, ["a title", "delete the rows above"]),
    ("a title of one cell", "Ratings\nsource,text,tone\n", 2, None, ["a title", "delete the rows above"]),
    ("column twice", "source,text,text\ns,x,y\n", 1, "text", ["two columns have the same name"]),
    ("line ends of old Macs", "text,coherence\ra,3\rb,4\r", 1, None, ["not valid CSV", "new-line character"]),
    ("too many cells", HEADER + "g,It rained, all day,a,Rain.,4\n", 2, None, ["5 cells", "6 cells", "double quotes"]),
    (
        "several bad cells",
        HEADER + "g,s,a,x,9\ng,s,b,y,bad\ng,s,c,z,4\ng,s,d,w,4;0\n",
        2,
        "coherence",
        ["line 3, field 'coherence'", "'bad'", "line 5, field 'coherence'"],
    ),
    ("open quote", HEADER + 'g,s,a,"Rain.,4\ng,s,b,Sun.,5\n', 2, None, ["not valid CSV", "close every quote"]),
    ("not UTF-8", HEADER.encode() + b"g,s,a,caf\xe9,4\n", 2, None, ["not UTF-8: byte 10"]),
    ("outside the scale", HEADER + 'g,"two\nlines",a,x,4\ng,"two\nlines",b,y,6\n', 4, "coherence", ["from 1 to 5"]),
    ("infinite", HEADER + "g,s,a,x,1e999\n", 2, "coherence", ["outside the scale", "inf"]),
    ("decimal comma", HEADER + 'g,s,a,x,"3,5"\ng,s,b,y,4.5\n', 2, "coherence", ["decimals with a point"]),
    ("fraction", HEADER + "g,s,a,x,4/5\n", 2, "coherence", ["a text: '4/5'", "the number alone: 4 and"]),
    ("percentage", HEADER + "g,s,a,x,80%\n", 2, "coherence", ["a text: '80%'", "the number alone: 80 and"]),
    ("a rater without value", HEADER + "g,s,a,x,4;;5\n", 2, "coherence", ["leave out the raters"]),
    ("sources differ", HEADER + "g,s,a,x,4\ng,S,b,y,5\n", 3, "source", ["differ in source", "line 2", "found:    'S'"]),
    (
        "contexts differ",
        "group,source,context,candidate,text\ng,s,c,a,x\ng,s,,b,y\n",
        3,
        "context",
        ["differ in context", "found:    ''"],
    ),
    (
        "tasks differ",
        "group,source,task,candidate,text\ng,s,summarization,a,x\ng,s,dialogue,b,y\n",
        3,
        "task",
        ["differ in task", "'dialogue'"],
    ),
    (
        "candidate twice",
        HEADER + "g,s,a,x,4\ng,s,a,y,5\n",
        3,
        "candidate",
        ["two candidates", "line 2", "name of the system"],
    ),
    ("blank text", HEADER + "g,s,a,,4\n", 2, "text", ["text is empty"]),
    ("merged sources", "source,text\ns,x\n,y\n", 3, "source", ["source is empty", "unmerge its cells"]),
    ("source twice", "group,source,text\ng,s,x\nh,s,y\n", 3, "source", ["'g' and 'h'", "into one group"]),
]


def _refused(path: Path, content: str | bytes, task: str | None) -> InputError:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        load(path, task)
    return caught.value


def _check(error: InputError, path: Path, line: int | None, field: str | None, words: list[str]) -> None:
    assert error.file == str(path)
    assert error.line == line
    if field is not None:
        assert error.field == field
    for word in words:
        assert word in str(error)


@pytest.mark.parametrize(("name", "content", "line", "field", "words"), JSONL, ids=[row[0] for row in JSONL])
def test_json_lines_are_refused_with_their_place(
    tmp_path: Path, name: str, content: str | bytes, line: int | None, field: str | None, words: list[str]
) -> None:
    path = tmp_path / "rated.jsonl"
    _check(_refused(path, content, None), path, line, field, words)


@pytest.mark.parametrize(("name", "content", "line", "field", "words"), CSV, ids=[row[0] for row in CSV])
def test_tables_are_refused_with_their_place(
    tmp_path: Path, name: str, content: str | bytes, line: int | None, field: str | None, words: list[str]
) -> None:
    path = tmp_path / "rated.csv"
    _check(_refused(path, content, "summarization"), path, line, field, words)


def test_the_line_that_the_table_starts_from_is_good(tmp_path: Path) -> None:
    path = tmp_path / "rated.jsonl"
    path.write_text(FIRST)
    assert load(path).groups[0].candidates[0].ratings == {"coherence": (4.0, 5.0), "fluency": (5.0,)}


def test_groups_before_the_bad_line_are_handed_out(tmp_path: Path) -> None:
    path = tmp_path / "rated.jsonl"
    path.write_text(FIRST + "\nnot json\n")
    groups = iter_groups(path)
    assert next(groups).group.id == "g1"
    with pytest.raises(InputError, match="line 2"):
        next(groups)


def test_a_missing_file_is_answered_with_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "ratings.jsonl").write_text(FIRST)
    with pytest.raises(InputError, match=r"(?s)no such file.*did you mean 'ratings\.jsonl'"):
        load(tmp_path / "rating.jsonl")


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    for name in ("x" * 300 + ".jsonl", "x" * 300 + ".csv"):
        with pytest.raises(InputError, match="cannot be read: File name too long"):
            load(tmp_path / name)
    with pytest.raises(InputError, match="no such task file"):
        find_task("x" * 300 + ".toml")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "rated.jsonl"
    folder.mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        load(folder)


def test_other_suffixes_are_refused_before_reading(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"(?s)\.jsonl.*\.csv.*\.docx"):
        iter_groups(tmp_path / "rated.docx")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a = " + "[" * 20_000 + "]" * 20_000, "nested too deeply"),
        ("a = " + "9" * 5_000, "a number has thousands of digits"),
    ],
)
def test_toml_that_no_parser_can_hold_is_refused(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(content)
    with pytest.raises(InputError, match=words):
        toml(tmp_path / "x.toml")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.jsonl")
    for read in (lambda path: list(lines(path)), toml):
        with pytest.raises(InputError, match="this is a pipe"):
            read(tmp_path / "x.jsonl")
