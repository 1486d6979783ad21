"""Scoring a file: right rows in the input's order, of the input's columns, and what is refused."""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from debate_judge.data.schema import Scale
from debate_judge.programs import build_preset
from debate_judge.runs import runner, scoring
from debate_judge.runs.command_line import EXIT_INPUT
from tests.config_keys import keys
from tests.fakes import debater, section
from tests.runs.score_command import TABLE, TASK, Command, export_of, line


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_rows_in_the_order_of_the_input_and_transcripts_with_every_turn(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    debates = command.folder / "debates.jsonl"
    assert command(*keys(transcripts=debates)) == 0
    rows = command.rows()
    places = [(f"g{g}", f"c{c}", aspect) for g in range(5) for c in range(2) for aspect in ("tone", "help")]
    assert [(r["group"], r["candidate"], r["aspect"]) for r in rows] == places
    # digit(): candidate g*10 + c; tone adds one.
    assert [r["score"] for r in rows[:8]] == [2, 1, 3, 2, 2, 1, 3, 2]
    first = {"group": "g0", "candidate": "c0", "aspect": "tone", "score": 2.0, "rounds": 0}
    assert rows[0] == {**first, "stop_reason": "single call", "unscored": None, "reason": "My rationale about it."}
    assert (rows[1]["rounds"], rows[1]["stop_reason"]) == (1, "no issue")
    # A single call for tone; Scorer and a content Critic for help. The check before the run has asked three already.
    assert "30 LM calls (3 more from cache)" in capsys.readouterr().err
    judged = [json.loads(text) for text in debates.read_text(encoding="utf-8").splitlines()]
    assert [(t["group"], t["candidate"], t["aspect"]) for t in judged] == places
    assert (judged[1]["calls"], [turn["role"] for turn in judged[1]["turns"]]) == (2, ["scorer", "critic"])
    opening = {"role": "scorer", "round": 0, "score": 1.0, "no_issue": False, "text": "My rationale about it."}
    assert judged[1]["turns"][0] == opening


def test_the_first_sources_are_a_start_that_more_go_on_from(command: Command) -> None:
    assert command(*keys(sources=2), "--aspects", "all") == 0
    assert [r["group"] for r in command.rows()] == [f"g{g}" for g in range(2) for _ in range(4)]
    assert command(*keys(sources=3)) == 0
    assert [r["group"] for r in command.rows()] == [f"g{g}" for g in range(3) for _ in range(4)]


def test_ratings_and_texts_of_an_export_in_two_files_are_scored(command: Command) -> None:
    ratings, traces = command.folder / "scores.csv", command.folder / "traces.jsonl"
    ratings.write_text("id,traceId,source,name,dataType,value\ns1,t1,ANNOTATION,help,NUMERIC,4\n")
    traces.write_text(json.dumps({"id": "t1", "input": "message 1", "output": "reply 1"}))
    assert command("--in", f"{ratings}+{traces}") == 0
    assert [(row["aspect"], row["score"]) for row in command.rows()] == [("tone", 3.0), ("help", 2.0)]


EMPTY_TEXT = json.dumps({"group": "x", "source": "s", "candidates": [{"id": "c", "text": "\u200b \n"}]})


@pytest.mark.parametrize(
    ("bad", "problem"),
    [("{", "not valid JSON"), (EMPTY_TEXT, "empty"), (line(1), "a second time")],
)
def test_a_record_that_cannot_be_read_has_a_reason_and_the_others_are_scored(
    command: Command, bad: str, problem: str
) -> None:
    command.write([*(line(g) for g in range(3)), bad, line(8)])
    assert command(*keys(max_unscored=0.2)) == 0
    rows = command.rows()
    assert [row["group"] for row in rows] == [f"g{g}" for g in range(3) for _ in range(4)] + ["line 4"] * 2 + ["g8"] * 4
    assert [row["unscored"] for row in rows if row["score"] is None] == ["cannot be read"] * 2
    assert problem in rows[12]["reason"]


@pytest.mark.parametrize(
    ("suffix", "wide"),
    [(".csv", True), (".csv", False), (".parquet", True), pytest.param(".xlsx", False, marks=pytest.mark.integration)],
)
def test_a_row_of_a_table_that_cannot_be_read_has_a_reason_and_the_others_are_scored(
    command: Command, suffix: str, wide: bool
) -> None:
    """The first row, two in the midst, and in a text table two that are broken."""
    good = [("a", f"message {g}", f"reply {10 * g + c}", g * 10 + c) for g in range(3) for c in range(2)]
    rows: list[tuple[Any, ...]] = [("a", "message 9", "\u200b", 0), *good, ("a", "message 3", None, 0)]
    rows.insert(3, ("a", "message 0", " ", 0))
    frame = pd.DataFrame(rows, columns=["id", "source", "text", "note"])
    table = command.folder / f"texts{suffix}"
    if suffix == ".csv":
        frame.to_csv(table, index=False)
        broken = b"b,message 4,a,reply 1,2\nc,message 5,caf\xe9,3\nd,message 6,reply 60,4\n"
        table.write_bytes(table.read_bytes() + broken)
    elif suffix == ".xlsx":
        pytest.importorskip("xlsxwriter", reason="pip install -e '.[test]' has it")
        frame.to_excel(table, index=False)
    else:
        frame.to_parquet(table)
    flags = ["--wide"] if wide else ["--aspects", "help"]
    assert command("--in", str(table), "--keep-columns", *flags, *keys(max_unscored=0.5)) == 0
    scored = [(row["text"], row["help"] if wide else row["score"]) for row in command.rows() if row.get("source")]
    expected = [(text, 1 + number % 5) for _, _, text, number in good] + [("reply 60", 1)] * (suffix == ".csv")
    assert scored == expected
    reasons = [row["help_reason" if wide else "reason"] for row in command.rows() if not row.get("source")]
    assert len(reasons) == (5 if suffix == ".csv" else 3)
    assert all("cannot be read: " in reason for reason in reasons)


def test_a_record_of_another_task_ends_the_run(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    command.write([*(line(g) for g in range(3)), line(7, task="dialogue"), line(8)])
    assert command() == EXIT_INPUT
    message = capsys.readouterr().err
    assert "line 4" in message
    assert "another task than support" in message
    # The rows before it are kept beside the place of the file.
    assert not command.out.exists()
    command.out = command.out.with_name("out.jsonl.part")
    assert [r["group"] for r in command.rows()] == [f"g{g}" for g in range(3) for _ in range(4)]


@pytest.mark.integration
def test_only_a_bounded_number_of_items_is_read_ahead(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The input is an endless pipe in effect: what is read runs ahead of what is written by the window at most."""
    command.write([line(g, candidates=1) for g in range(100)])
    items_of_group, score_of = scoring.items_of_group, scoring.score_of
    read, ahead = list[Any](), list[int]()

    def counting(*arguments: Any) -> Iterator[Any]:
        for item in items_of_group(*arguments):
            read.append(item)
            yield item

    def looking(*arguments: Any) -> Any:
        ahead.append(len(read) - len(ahead))
        return score_of(*arguments)

    monkeypatch.setattr(scoring, "items_of_group", counting)
    monkeypatch.setattr(scoring, "score_of", looking)
    assert command("--concurrency", "4", *keys(preflight=False)) == 0
    assert len(ahead) == 200
    assert max(ahead) <= runner.max_in_flight(command.lm) < 200
    assert 1 < command.lm.peak <= 4


# --- scores that can be joined: one row a text, the input's columns, sheets and Parquet ---


def test_a_row_a_text_with_the_inputs_columns(command: Command) -> None:
    out = command.folder / "out.csv"
    assert command(*command.write_table(), "--wide", "--keep-columns", out=out) == 0
    rows = read_csv(out)
    assert list(rows[0]) == [
        *("id", "customer", "reason", "answer", "note", "group", "candidate", "tone", "help"),
        *("tone_reason", "tone_unscored", "help_reason", "help_unscored"),
    ]
    assert [row["id"] for row in rows] == ["007", "008", "010"]
    assert rows[2]["note"] == 'two\nlines, and a "quote"'
    # digit(): the number of the candidate; tone adds one.
    assert [(row["tone"], row["help"]) for row in rows] == [("2.0", "1.0"), ("3.0", "2.0"), ("4.0", "3.0")]


def test_ids_of_any_characters_come_back_as_they_were(command: Command) -> None:
    out, ids = command.folder / "out.csv", ['a "b", c', "line\nend", "carriage\rreturn", "=1", "@x", "-1", "-x"]
    command.source = command.folder / "in.csv"
    texts = {"group": range(7), "candidate": ids, "source": "message", "text": [f"reply {i}" for i in range(7)]}
    pd.DataFrame(texts).to_csv(command.source, index=False, quoting=csv.QUOTE_ALL)
    assert command("--aspects", "tone", out=out) == 0
    assert [(r["candidate"], r["score"], r["unscored"]) for r in read_csv(out)] == [
        # What a sheet would take for a formula is guarded.
        ("'" * (name in ("=1", "@x", "-x")) + name, f"{1 + (number + 1) % 5}.0", "")
        for number, name in enumerate(ids)
    ]


def test_groups_of_json_keep_what_belongs_to_group_and_candidate(command: Command) -> None:
    command.write([line(0, domain="bank", tags=["x", None]), line(1, domain=None, tags=[])])
    assert command("--wide", "--keep-columns") == 0
    assert [(r["group"], r["candidate"], r["domain"], r["tags"]) for r in command.rows()] == [
        (f"g{g}", f"c{c}", *kept) for g, kept in enumerate([("bank", ["x", None]), (None, [])]) for c in range(2)
    ]
    # A column that the first text lacks stands before the results all the same.
    command.write([line(0), line(1, domain="bank")])
    out = command.folder / "new.csv"
    assert command("--wide", "--keep-columns", out=out) == 0
    assert [(row["group"], row["domain"]) for row in read_csv(out)] == [*[("g0", "")] * 2, *[("g1", "bank")] * 2]
    names = list(read_csv(out)[0])
    assert names.index("domain") < names.index("tone")


def test_a_yes_no_aspect_has_a_decision(command: Command) -> None:
    safe = replace(TASK.aspects[1], name="safe", scale=Scale(0, 1))
    command.program = export_of(command.folder / "safe", replace(TASK, aspects=(safe,)), build_preset("single", {}))
    command.script = debater(score=lambda prompt: str(int(section(prompt, "candidate").split()[-1]) % 2))
    assert command("--wide") == 0
    assert {(row["safe"], row["safe_decision"]) for row in command.rows()} == {(0.0, False), (1.0, True)}


def test_sheets_hold_texts_as_texts_and_numbers_as_numbers(command: Command) -> None:
    pytest.importorskip("xlsxwriter", reason="pip install -e '.[test]' has it")
    import python_calamine

    numbered = "n," + TABLE.replace("\n007", "\n3,007").replace("\n008", "\n,008").replace("\n010", "\n14,010")
    numbered = numbered.replace("reply 1,\n", "reply 1,https://a.example/\n")
    out = command.folder / "out.xlsx"
    assert command(*command.write_table(numbered), "--wide", "--keep-columns", out=out) == 0
    header, *rows = python_calamine.CalamineWorkbook.from_path(out).get_sheet_by_index(0).to_python()
    values = [dict(zip(header, row, strict=True)) for row in rows]
    assert [(v["id"], v["n"], v["tone"]) for v in values] == [("007", 3.0, 2.0), ("008", "", 3.0), ("010", 14.0, 4.0)]
    # A formula would be shown by its result.
    assert values[0]["note"] == "=1+1"
    # Of links a sheet holds a limited number.
    assert values[1]["note"] == "https://a.example/"
    with zipfile.ZipFile(out) as archive:
        assert b"hyperlink" not in archive.read("xl/worksheets/sheet1.xml")


@pytest.mark.parametrize(
    ("header", "columns", "score"),
    [
        ("frage,antwort", (), 5),
        # New texts have no ratings; those of another table may have our names.
        ("source,text", (), 5),
        # What the user writes wins over what was learnt.
        ("frage,antwort,rewritten", ("--columns", "text=rewritten"), 1),
    ],
)
def test_columns_are_named_once(command: Command, header: str, columns: tuple[str, ...], score: int) -> None:
    task = replace(TASK, columns={"source": "frage", "text": "antwort", "ratings": {"tone": "ton"}})
    command.program = export_of(command.folder / "learnt", task, build_preset("single", {}))
    command.write_table(f"{header}\nwhat?,reply 3{',reply 4' if columns else ''}\n")
    assert command("--aspects", "tone", *columns) == 0
    assert command.rows()[0]["score"] == score
