"""Scores that can be joined: one row a text, the input's columns, sheets and Parquet, and columns named once."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pandas as pd
import pytest

from debate_judge import data
from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs import check
from debate_judge.runs.export.folder import save
from debate_judge.runs.flags.parser import EXIT_INPUT
from tests.config_keys import keys
from tests.fakes import debater, section
from tests.runs.score_command import SCRIPT, TASK, Command, line

TABLE = """id,customer,reason,answer,note
007,message 0,a,reply 0,=1+1
008,message 0,b,reply 1,
010,message 2,c,reply 12,"two
lines, and a ""quote\"\""
"""
NAMED = ("--columns", "source=customer,text=answer")


def table(command: Command) -> None:
    command.source = command.folder / "in.csv"
    command.source.write_text(TABLE)


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_a_text_with_the_inputs_columns(command: Command) -> None:
    table(command)
    out = command.folder / "out.csv"
    assert command(*NAMED, "--wide", "--keep-columns", out=out) == 0
    rows = read_csv(out)
    assert list(rows[0]) == [
        *("id", "customer", "reason", "answer", "note", "group", "candidate", "tone", "help"),
        *("tone_reason", "tone_unscored", "help_reason", "help_unscored"),
    ]
    assert [row["id"] for row in rows] == ["007", "008", "010"]
    assert rows[2]["note"] == 'two\nlines, and a "quote"'
    # digit(): the number of the candidate; tone adds one.
    assert [(row["tone"], row["help"]) for row in rows] == [("2.0", "1.0"), ("3.0", "2.0"), ("4.0", "3.0")]
    assert rows[0]["tone_reason"] == "My rationale about it."
    assert rows[0]["tone_unscored"] == ""


def test_long_rows_keep_columns_and_call_ours_otherwise_where_names_meet(command: Command) -> None:
    table(command)
    out = command.folder / "out.jsonl"
    assert command(*NAMED, "--keep-columns", out=out) == 0
    first = json.loads(out.read_text().splitlines()[0])
    assert first["reason"] == "a"
    assert first["judge_reason"] == "My rationale about it."
    assert [first["aspect"], first["score"]] == ["tone", 2.0]


def test_groups_of_json_keep_what_belongs_to_group_and_candidate(command: Command) -> None:
    command.write([line(0, domain="bank", tags=["x", None]), line(1, domain=None, tags=[])])
    assert command("--wide", "--keep-columns") == 0
    rows = command.rows()
    assert [(r["group"], r["candidate"], r["domain"], r["tags"]) for r in rows] == [
        ("g0", "c0", "bank", ["x", None]),
        ("g0", "c1", "bank", ["x", None]),
        ("g1", "c0", None, []),
        ("g1", "c1", None, []),
    ]


def test_a_column_that_the_first_text_lacks_is_refused_by_name(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    command.write([line(0), line(1, domain="bank")])
    assert command("--wide", "--keep-columns") == EXIT_INPUT
    message = capsys.readouterr().err
    assert "no field 'domain'" in message
    assert "'g1'" in message


def test_a_yes_no_aspect_has_a_decision(command: Command) -> None:
    from dataclasses import replace

    from debate_judge.data.schema import Scale

    safe = replace(TASK, aspects=(replace(TASK.aspects[1], name="safe", scale=Scale(0, 1)),))
    judges = {"safe": AspectJudge(build("debate", JUDGES["single"].config))}
    command.program = save(
        command.folder / "safe", CompiledJudge(safe, judges), lm={"spec": "scripted/lm"}, evidence={}, name="x"
    )
    command.script = debater(score=lambda prompt: str(int(section(prompt, "candidate").split()[-1]) % 2))
    assert command("--wide") == 0
    rows = command.rows()
    assert {(row["safe"], row["safe_decision"]) for row in rows} == {(0.0, False), (1.0, True)}


@pytest.mark.integration
@pytest.mark.parametrize("name", ["out.jsonl", "out.csv", "out.xlsx", "out.parquet"])
def test_a_stop_at_any_byte_changes_no_byte_of_the_file(command: Command, name: str) -> None:
    if name.endswith("xlsx"):
        pytest.importorskip("xlsxwriter", reason="pip install -e '.[test]' has it")
    table(command)
    out = command.folder / name
    growing = out if name.endswith(("jsonl", "csv")) else out.with_name(name + ".rows.jsonl")
    flags = (*NAMED, "--wide", "--keep-columns")
    assert command(*flags, out=command.folder / "rows.jsonl") == 0
    assert command(*flags, out=out) == 0
    whole = out.read_bytes()
    rows = whole if growing == out else (command.folder / "rows.jsonl").read_bytes()
    assert growing.exists() is (growing == out)
    for cut in [1, len(rows) // 3, len(rows) - 1, len(rows)]:
        growing.write_bytes(rows[:cut])
        assert command(*flags, out=out) == 0
        assert out.read_bytes() == whole, cut
        assert command.lm.prompts == []


def test_sheets_hold_texts_as_texts_and_numbers_as_numbers(command: Command) -> None:
    pytest.importorskip("xlsxwriter", reason="pip install -e '.[test]' has it")
    import python_calamine

    table(command)
    command.source.write_text(TABLE.replace("id,", "id,n,").replace("\n0", "\n0", 1).replace("007,", "007,3,").replace(
        "008,", "008,,").replace("010,", "010,14,"))  # fmt: skip
    out = command.folder / "out.xlsx"
    assert command(*NAMED, "--wide", "--keep-columns", out=out) == 0
    header, *rows = python_calamine.CalamineWorkbook.from_path(out).get_sheet_by_index(0).to_python()
    values = [dict(zip(header, row, strict=True)) for row in rows]
    assert [value["id"] for value in values] == ["007", "008", "010"]
    assert [value["n"] for value in values] == [3.0, "", 14.0]
    assert [value["tone"] for value in values] == [2.0, 3.0, 4.0]
    # A formula would be shown by its result.
    assert values[0]["note"] == "=1+1"


def test_parquet_has_one_type_a_column_also_where_nothing_has_a_score(command: Command) -> None:
    table(command)
    command.script = lambda prompt: "no score at all"
    out = command.folder / "out.parquet"
    assert command(*NAMED, "--wide", *keys(max_unscored=1, preflight=False), out=out) == 0
    frame = pd.read_parquet(out)
    assert list(frame.columns[:4]) == ["group", "candidate", "tone", "help"]
    assert str(frame["tone"].dtype).lower() == "float64"
    assert frame["tone"].isna().all()
    assert set(frame["tone_unscored"]) == {"unreadable reply"}


def test_a_text_that_had_no_score_may_have_one_later(command: Command) -> None:
    def failing(prompt: str) -> str:
        if section(prompt, "aspect").startswith("help") and section(prompt, "candidate").endswith("1"):
            return "no score"
        return SCRIPT(prompt)

    table(command)
    out = command.folder / "out.csv"
    command.script = failing
    flags = (*NAMED, "--wide", *keys(max_unscored=1))
    assert command(*flags, out=out) == 0
    assert [row["help"] for row in read_csv(out)] == ["1.0", "", "3.0"]
    command.script = SCRIPT
    # Answers of another store: what is scored now stands in a row that was there without.
    assert command(*flags, "--store", str(command.folder / "other"), out=out) == 0
    assert [row["help"] for row in read_csv(out)] == ["1.0", "2.0", "3.0"]


def test_columns_are_named_once(command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rated = tmp_path / "rated.csv"
    lines = [f"what {i}?;reply {i}{j};{1 + (i + j) % 5};{1 + (2 * i + j) % 5}" for i in range(20) for j in range(2)]
    rated.write_text("\n".join(["frage;antwort;tone;help", *lines]))
    task_file = tmp_path / "support.toml"
    names = "source=frage,text=antwort"
    assert check.main([str(rated), "--columns", names, "--write-task", str(task_file)]) == 0
    assert "--columns" not in capsys.readouterr().out
    corpus = data.load(str(rated), str(task_file))
    assert len(corpus.groups) == 20
    assert dict(corpus.task.columns) == {"source": "frage", "text": "antwort"}
    judge = CompiledJudge(corpus.task, {"tone": AspectJudge(build("debate", JUDGES["single"].config))})
    command.program = save(tmp_path / "learnt", judge, lm={"spec": "scripted/lm"}, evidence={}, name="x")
    # New texts have no ratings; those of another table may have our names.
    for header in ("frage,antwort", "source,text"):
        command.source = tmp_path / "new.csv"
        command.source.write_text(f"{header}\nwhat?,reply 3\n")
        assert command("--aspects", "tone", out=tmp_path / f"{header}.jsonl") == 0
        assert json.loads((tmp_path / f"{header}.jsonl").read_text())["score"] is not None
    # What the user writes wins over what was learnt.
    command.source.write_text("frage,antwort,rewritten\nwhat?,reply 3,reply 4\n")
    assert command("--aspects", "tone", "--columns", "text=rewritten", out=tmp_path / "mine.jsonl") == 0
    assert json.loads((tmp_path / "mine.jsonl").read_text())["score"] == 1.0
