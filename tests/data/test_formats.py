"""The formats that people's data come in: each must give the same groups, or an error that says what to do."""

from __future__ import annotations

import json
import logging
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from debate_judge import data
from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import Columns
from debate_judge.data.files.formats import rows
from debate_judge.data.files.groups import iter_groups, load
from debate_judge.data.schema import Aspect, Candidate, Corpus, Scale, Task, group_record
from debate_judge.data.splits import split

TASK = Task(
    "support",
    "customer message",
    "reply",
    (Aspect("tone", "How it treats the customer.", Scale(1, 5)), Aspect("solved", "Is it solved?", Scale(0, 1))),
)

Table = Sequence[Sequence[object]]

HEADER = ("group", "source", "candidate", "text", "tone", "solved")
ROWS: Table = [
    ("g1", "Where is it, please?", "a", "Over there.", 4.5, "yes"),
    ("g1", "Where is it, please?", "b", "No idea; sorry.", 2, "no"),
    ("g2", "Wann – und wo?", "a", "Morgen.", 5, ""),
]


def sheet(rows: Table) -> str:
    """One sheet of a workbook, as Excel's XML has it, beginning in its third row."""
    lines = []
    for number, row in enumerate(rows, start=3):
        cells = ""
        for place, value in enumerate(row):
            name = f"{chr(ord('A') + place)}{number}"
            if isinstance(value, bool):
                cells += f'<c r="{name}" t="b"><v>{int(value)}</v></c>'
            elif isinstance(value, int | float):
                cells += f'<c r="{name}"><v>{value}</v></c>'
            elif value != "":
                cells += f'<c r="{name}" t="inlineStr"><is><t>{escape(str(value))}</t></is></c>'
        lines.append(f'<row r="{number}">{cells}</row>')
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    return f'<?xml version="1.0"?><worksheet xmlns="{main}"><sheetData>{"".join(lines)}</sheetData></worksheet>'


def workbook(path: Path, rows: Table, more: int = 0) -> Path:
    """A workbook as Excel writes it, with further sheets that hold nothing."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    names = [f"Sheet{i + 1}" for i in range(more + 1)]
    ids = range(1, len(names) + 1)
    sheets = "".join(f'<sheet name="{n}" sheetId="{i}" r:id="rId{i}"/>' for i, n in zip(ids, names, strict=True))
    links = "".join(
        f'<Relationship Id="rId{i}" Type="{office}/worksheet" Target="worksheets/sheet{i}.xml"/>' for i in ids
    )
    parts = "".join(
        f'<Override PartName="/xl/worksheets/sheet{i}.xml" ContentType="{kind}.worksheet+xml"/>' for i in ids
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{package}/content-types"><Default Extension="xml" ContentType="application/xml"/><Default '
            'Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Override '
            f'PartName="/xl/workbook.xml" ContentType="{kind}.sheet.main+xml"/>{parts}</Types>',
        )
        archive.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{package}/relationships"><Relationship Id="r" Type="{office}/officeDocument" '
            'Target="xl/workbook.xml"/></Relationships>',
        )
        archive.writestr(
            "xl/workbook.xml", f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>{sheets}</sheets></workbook>'
        )
        archive.writestr(
            "xl/_rels/workbook.xml.rels", f'<Relationships xmlns="{package}/relationships">{links}</Relationships>'
        )
        for i in ids:
            archive.writestr(f"xl/worksheets/sheet{i}.xml", sheet(rows if i == 1 else []))
    return path


def separated(path: Path, rows: Table, mark: str, encoding: str = "utf-8", comma: bool = False) -> Path:
    def cell(value: object) -> str:
        text = str(value)
        if comma and isinstance(value, float):
            text = text.replace(".", ",")
        return f'"{text}"' if any(c in text for c in ",;\t\n") else text

    path.write_bytes("".join(mark.join(map(cell, row)) + "\r\n" for row in rows).encode(encoding))
    return path


def parquet(path: Path, rows: Table = ROWS, header: Sequence[str] = HEADER) -> Path:
    import pyarrow
    import pyarrow.parquet

    # A column of a data set has one type; a value that is missing is None.
    columns = {name: [row[i] if row[i] != "" else None for row in rows] for i, name in enumerate(header)}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def groups_of(corpus: Corpus) -> list[dict[str, object]]:
    return [group_record(group) for group in corpus.groups]


@pytest.fixture
def expected(tmp_path: Path) -> list[dict[str, object]]:
    """The groups as the project's own format has them."""
    a = {"id": "a", "text": "Over there.", "ratings": {"tone": 4.5, "solved": 1}}
    b = {"id": "b", "text": "No idea; sorry.", "ratings": {"tone": 2, "solved": 0}}
    c = {"id": "a", "text": "Morgen.", "ratings": {"tone": 5}}
    groups = [
        {"group": "g1", "source": "Where is it, please?", "candidates": [a, b]},
        {"group": "g2", "source": "Wann – und wo?", "candidates": [c]},
    ]
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(map(json.dumps, groups)))
    return groups_of(load(path, TASK))


@pytest.mark.parametrize(
    ("name", "mark", "encoding", "comma"),
    [
        ("a.csv", ",", "utf-8-sig", False),
        ("a.csv", ";", "utf-8", True),
        ("a.csv", ";", "utf-16", True),
        ("a.csv", "\t", "utf-8", True),
        ("a.tsv", "\t", "utf-16-le", False),
        ("a.tsv", "\t", "utf-8", False),
    ],
)
def test_tables_of_text_in_every_separator_and_encoding(
    tmp_path: Path, name: str, mark: str, encoding: str, comma: bool, expected: object
) -> None:
    path = separated(tmp_path / name, [HEADER, *ROWS], mark, encoding, comma)
    if encoding == "utf-16-le":
        path.write_bytes(b"\xff\xfe" + path.read_bytes())
    assert groups_of(load(path, TASK)) == expected


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_an_array_of_rows_or_of_groups(tmp_path: Path, name: str, expected: list[dict[str, object]]) -> None:
    (tmp_path / name).write_text(json.dumps(expected, indent=1))
    assert groups_of(load(tmp_path / name, TASK)) == expected
    flat = [{k: v for k, v in zip(HEADER, row, strict=True) if v != ""} for row in ROWS]
    (tmp_path / name).write_text(json.dumps(flat))
    assert groups_of(load(tmp_path / name, TASK)) == expected


def test_a_sheet_of_excel(tmp_path: Path, expected: object) -> None:
    path = workbook(tmp_path / "a.xlsx", [HEADER, *ROWS])
    assert groups_of(load(path, TASK)) == expected
    assert [record.where for record in rows(path)] == ["row 4", "row 5", "row 6"]


def test_which_of_several_sheets_is_read_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load(workbook(tmp_path / "a.xlsx", [HEADER, *ROWS], more=2), TASK)
    assert "sheet 'Sheet1', the first of 3" in caplog.text


def test_a_missing_library_for_excel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(InputError, match=r"(?s)python-calamine, which is not installed.*\[excel\].*CSV"):
        load(workbook(tmp_path / "a.xlsx", [HEADER, *ROWS]), TASK)


def test_parquet(tmp_path: Path, expected: object) -> None:
    assert groups_of(load(parquet(tmp_path / "a.parquet"), TASK)) == expected


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`datasets` keeps what it reads in the folder of the test."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    datasets.disable_progress_bars()


@pytest.mark.usefixtures("hub")
def test_a_set_of_the_hub_by_name_and_split(tmp_path: Path, expected: object) -> None:
    folder = tmp_path / "replies"
    folder.mkdir()
    parquet(folder / "train.parquet")
    corpus = data.load(f"hf:{folder}@train", TASK)
    assert groups_of(corpus) == expected
    assert (corpus.origin.name, corpus.origin.location) == ("replies", f"hf:{folder}@train")
    assert len(data.load(f"hf:{folder}", TASK).groups) == 2, "its only split needs no name"
    assert len(data.load(f"hf:{folder}@train[:2]", TASK).groups) == 1
    parquet(folder / "test.parquet")
    with pytest.raises(InputError, match=r"(?s)several splits.*train, test.*--data hf:.*@train"):
        data.load(f"hf:{folder}", TASK)
    with pytest.raises(InputError, match=r"(?s)hf:.*@dev: the set cannot be loaded.*dev"):
        data.load(f"hf:{folder}@dev", TASK)


def test_names_of_people_are_given_ours(tmp_path: Path) -> None:
    path = separated(
        tmp_path / "a.csv",
        [("question", "answer", "score_tone", "why"), ("s", "x", 4, "kind"), ("t", "y", 2, "curt")],
        ",",
    )
    named = Columns.of(["source=question", "text=answer", "tone=score_tone", "comments.tone=why"])
    one, other = (group.candidates[0] for group in load(path, TASK, named).groups)
    assert (one.text, one.ratings, one.comments) == ("x", {"tone": (4.0,)}, {"tone": ("kind",)})
    assert other.ratings == {"tone": (2.0,)}
    assert data.load(str(path), TASK, ["source=question", "text=answer", "tone=score_tone"]).digest != ""


def test_names_are_given_ours_at_every_level_of_a_group(tmp_path: Path) -> None:
    answer = {"id": 1, "answer": "x", "ratings": {"score_tone": [4, 5]}}
    (tmp_path / "a.jsonl").write_text(json.dumps({"group": "g", "question": "s", "candidates": [answer]}))
    named = Columns.of(["source=question", "text=answer", "tone=score_tone"])
    (group,) = load(tmp_path / "a.jsonl", TASK, named).groups
    assert (group.source, group.candidates) == ("s", (Candidate("1", "x", {"tone": (4.0, 5.0)}),))


def test_case_and_blanks_in_names_do_not_count(tmp_path: Path) -> None:
    path = separated(tmp_path / "a.csv", [("Source ", "TEXT", "Tone", "Comments.Tone"), ("s", "x", 4, "kind")], ",")
    (group,) = load(path, TASK).groups
    assert group.candidates[0].ratings == {"tone": (4.0,)}
    assert group.candidates[0].comments == {"tone": ("kind",)}


def test_one_column_for_each_rater(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    header = ("source", "text", "tone", "tone_1", "tone_2", "tone rater 3", "solved_A", "solved_B", "comments.tone_2")
    path = separated(tmp_path / "a.csv", [header, ("s", "x", 3.5, 4, 3, "", "pass", "Fail", "curt")], ",")
    candidate = load(path, TASK).groups[0].candidates[0]
    assert candidate.ratings == {"tone": (4.0, 3.0), "solved": (1.0, 0.0)}
    assert candidate.comments == {"tone": ("curt",)}
    assert caplog.text.count("\n") == 1
    assert "not read: 'tone' (there are columns of single raters)" in caplog.text


def test_one_row_for_each_rating(tmp_path: Path) -> None:
    header = ("question", "reply", "aspect", "rating", "rater", "comment")
    table = [
        header,
        ("s", "x", "tone", 4, "ann", "kind"),
        ("t", "z", "tone", 1, "bob", ""),
        ("s", "y", "Tone", 2, "bob", ""),
        ("s", "x", "solved", "no", "ann", ""),
        ("s", "x", "tone", 3, "bob", ""),
        ("s", "y", "tone", 5, "ann", "warm"),
    ]
    path = separated(tmp_path / "a.csv", table, ",")
    corpus = load(path, TASK, Columns.of(["source=question", "text=reply"]))
    assert [(g.source, [c.text for c in g.candidates]) for g in corpus.groups] == [("s", ["x", "y"]), ("t", ["z"])]
    x, y = corpus.groups[0].candidates
    # In the order in which the raters are met in the file, whatever the order of the rows.
    assert x.ratings == {"tone": (4.0, 3.0), "solved": (0.0,)}
    assert y.ratings == {"tone": (5.0, 2.0)}
    assert (x.comments, y.comments) == ({"tone": ("kind",)}, {"tone": ("warm",)})


def test_one_row_for_each_candidate_and_rater(tmp_path: Path) -> None:
    header = ("group", "source", "candidate", "text", "rater", "tone", "solved")
    table = [
        header,
        ("g", "s", "a", "x", 1, 4, "yes"),
        ("g", "s", "b", "y", 1, 2, ""),
        ("g", "s", "a", "x", 2, 5, "no"),
    ]
    (group,) = load(separated(tmp_path / "a.tsv", table, "\t"), TASK).groups
    assert [c.ratings for c in group.candidates] == [{"tone": (4.0, 5.0), "solved": (1.0, 0.0)}, {"tone": (2.0,)}]


@pytest.mark.parametrize(
    ("table", "place", "words"),
    [
        (
            [("source", "text", "aspect", "rating", "rater"), *[("s", "x", "tone", r, "ann") for r in (4, 5)]],
            ("line", 3, "rater"),
            "(?s)rater 'ann' has rated tone of this candidate twice.*another one in line 2",
        ),
        (
            [("source", "candidate", "text", "rater", "tone"), ("s", "a", "x", 1, 4), ("s", "a", "z", 2, 4)],
            ("line", 3, "text"),
            "(?s)differ in their text.*line 2",
        ),
        (
            [("source", "text", "tone_1", "tone_2"), ("s", "x", 4, 9)],
            ("line", 2, "tone_2"),
            "outside the scale of tone",
        ),
        ([("source", "text", "aspect", "rating"), ("s", "x", "tone", "ok")], ("line", 2, "rating"), "from 1 to 5"),
        ([("question", "text"), ("s", "x")], ("line", 2, "source"), "--columns source=question"),
        ([("source", "Answer"), ("s", "x")], ("line", 2, "text"), "--columns text=Answer"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(
    tmp_path: Path, table: Table, place: tuple[str, int, str], words: str
) -> None:
    with pytest.raises(InputError, match=words) as caught:
        load(separated(tmp_path / "a.csv", table, ","), TASK)
    assert (caught.value.unit, caught.value.line, caught.value.field) == place


@pytest.mark.parametrize("name", ["a.xlsx", "a.parquet"])
def test_a_bad_value_of_a_sheet_or_set_is_named_by_its_row(tmp_path: Path, name: str) -> None:
    table = [("s", "x", 4), ("t", "y", 7)]
    header = ("source", "text", "tone")
    path = tmp_path / name
    place = 5 if name == "a.xlsx" else 2
    workbook(path, [header, *table]) if name == "a.xlsx" else parquet(path, table, header)
    with pytest.raises(InputError, match=rf"row {place}, field 'tone': rating outside the scale"):
        load(path, TASK)


@pytest.mark.parametrize("name", ["a.xlsx", "a.parquet"])
def test_a_file_that_is_not_what_it_is_called_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("source,text\ns,x\n")
    with pytest.raises(InputError, match=f"{name}: not a .* that can be read"):
        load(tmp_path / name, TASK)
    with pytest.raises(InputError, match="no such file"):
        load(tmp_path / f"no-{name}", TASK)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (["source"], "NAME=COLUMN"),
        (["source=a", "source=b"], "each once"),
        (["tonne=b"], r"(?s)'tonne' is neither a column nor an aspect.*did you mean 'tone'"),
        (["tone=scor"], r"(?s)no column 'scor'.*did you mean 'score'"),
    ],
)
def test_names_that_fit_nothing_are_refused(tmp_path: Path, entries: list[str], words: str) -> None:
    path = separated(tmp_path / "a.csv", [("source", "text", "score"), ("s", "x", 4)], ",")
    with pytest.raises(InputError, match=words):
        load(path, TASK, Columns.of(entries))


def test_a_public_set_has_its_own_columns() -> None:
    with pytest.raises(InputError, match="the columns of sample are known"):
        data.load("sample", columns=["source=x"])


def test_what_is_not_read_is_told_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = separated(tmp_path / "a.csv", [("source", "text", "tonne", "split"), ("s", "x", 4, "dev")], ";")
    with caplog.at_level(logging.WARNING):
        load(path, TASK)
    (line,) = (record.getMessage() for record in caplog.records)
    assert line == (f"{path}: columns separated by semicolons; not read: 'tonne' (did you mean 'tone'?), 'split'")


def test_fields_that_are_not_read_are_told_at_every_level(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = [
        {"group": f"g{i}", "source": f"s{i}", "lang": "en", "candidates": [candidate]}
        for i, candidate in enumerate(
            [
                {"id": "a", "text": "x", "ratings": {"tonne": 4}},
                {"id": "a", "text": "y", "ratings": {"wit": 2}, "ms": 3},
            ]
        )
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert load(tmp_path / "a.jsonl", TASK).rated_aspects() == ()
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.endswith("not read: 'lang', 'tonne' (did you mean 'tone'?), 'ms', 'wit'")


def test_what_is_streamed_is_told_after_the_first_group(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = separated(tmp_path / "a.csv", [("source", "text", "contxt"), ("s", "x", "c"), ("t", "y", "c")], ",")
    stream = iter_groups(path, TASK)
    next(stream)
    next(stream)
    assert "'contxt' (did you mean 'context'?)" in caplog.text
    assert len(list(stream)) == 0
    assert len(caplog.records) == 1


def test_texts_without_a_source_are_groups_of_their_own(tmp_path: Path) -> None:
    table = [("text", "tone"), *[(f"Reply number {i}.", 1 + i % 5) for i in range(60)], ("Reply number 0.", 2)]
    corpus = load(separated(tmp_path / "a.csv", table, ","), TASK)
    assert len(corpus.groups) == 61
    assert {group.source for group in corpus.groups} == {""}
    assert not corpus.grouped
    parts = split(corpus, aspects=["tone"], seed=0)
    assert parts.joined == (("1", "61"),), "equal texts stay in one part"


def test_rows_with_one_source_are_one_group_wherever_they_are(tmp_path: Path) -> None:
    table = [("source", "text", "tone"), ("s", "x", 4), ("t", "z", 1), ("s ", "y", 2)]
    corpus = load(separated(tmp_path / "a.csv", table, ","), TASK)
    assert [(g.id, [c.text for c in g.candidates]) for g in corpus.groups] == [("1", ["x", "y"]), ("2", ["z"])]
