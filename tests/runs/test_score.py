"""Scoring a file: right rows in the input's order, and what of an input is refused."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from debate_judge.runs.flags.parser import EXIT_INPUT
from debate_judge.runs.runner import streaming
from debate_judge.runs.scoring import scorer
from tests.config_keys import keys
from tests.runs.score_command import ROOT, Command, line


def test_rows_in_the_order_of_the_input(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command() == 0
    rows = command.rows()
    assert [(r["group"], r["candidate"], r["aspect"]) for r in rows] == [
        (f"g{g}", f"c{c}", a) for g in range(5) for c in range(2) for a in ("tone", "help")
    ]
    # digit(): candidate g*10 + c; tone adds one.
    assert [r["score"] for r in rows[:8]] == [2, 1, 3, 2, 2, 1, 3, 2]
    first = {"group": "g0", "candidate": "c0", "aspect": "tone", "score": 2.0, "rounds": 0}
    assert rows[0] == {**first, "stop_reason": "single call", "unscored": None, "reason": "My rationale about it."}
    assert (rows[1]["rounds"], rows[1]["stop_reason"]) == (1, "no issue")
    # A single call for tone; Scorer and a content Critic for help.
    said = capsys.readouterr().err
    # The check before the run has asked three of them already.
    assert "LM calls: 33 asked, 30 executed" in said
    assert [line.split()[:4] for line in said.splitlines() if line.startswith(("scorer", "critic", "total"))] == [
        ["scorer", "0", "20", "2"],
        ["critic", "1", "10", "1"],
        ["total", "30", "3", said.split("total")[1].split()[2]],
    ]


def test_the_first_sources_are_a_start_that_more_go_on_from(command: Command) -> None:
    assert command(*keys(sources=2), "--aspects", "all") == 0
    assert [(r["group"], r["aspect"]) for r in command.rows()] == [
        (f"g{g}", aspect) for g in range(2) for _ in range(2) for aspect in ("tone", "help")
    ]
    assert command(*keys(sources=0.6)) == 0
    assert [r["group"] for r in command.rows()] == [f"g{g}" for g in range(3) for _ in range(4)]
    assert command(*keys(sources="4-5")) == 2, "these rows are not those that follow"


@pytest.mark.integration
def test_csv_in_and_out(command: Command) -> None:
    source, out = command.folder / "in.csv", command.folder / "out.csv"
    ids = ['a "b", c', "line\nend", "carriage\rreturn", "=1"]
    with source.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["group", "candidate", "source", "text"])
        writer.writerows([f"g{i}", name, "message", f"reply {i}"] for i, name in enumerate(ids))
    assert command("--in", str(source), "--out", str(out), "--aspects", "tone") == 0
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [r["candidate"] for r in rows] == ids
    assert [r["score"] for r in rows] == ["2.0", "3.0", "4.0", "5.0"]
    assert rows[0]["unscored"] == ""
    whole = out.read_bytes()
    # The header has 58 bytes; the ids with line ends stand in the rows behind it.
    for cut in [0, 1, 56, 57, 58, *range(60, len(whole), 9)]:
        out.write_bytes(whole[:cut])
        assert command("--in", str(source), "--out", str(out), "--aspects", "tone") == 0
        assert out.read_bytes() == whole, cut


def test_transcripts_hold_every_turn(command: Command) -> None:
    debates = command.folder / "debates.jsonl"
    command(*keys(transcripts=debates))
    found = [json.loads(text) for text in debates.read_text(encoding="utf-8").splitlines()]
    assert len(found) == 20
    assert [t["role"] for t in found[1]["turns"]] == ["scorer", "critic"]
    assert found[1]["turns"][0] == {
        "role": "scorer",
        "round": 0,
        "score": 1.0,
        "no_issue": False,
        "text": "My rationale about it.",
    }
    assert (found[1]["group"], found[1]["candidate"], found[1]["aspect"], found[1]["calls"]) == ("g0", "c0", "help", 2)


def test_ratings_and_texts_of_an_export_in_two_files_are_scored(command: Command) -> None:
    ratings, traces = command.folder / "scores.csv", command.folder / "traces.jsonl"
    ratings.write_text("id,traceId,source,name,dataType,value\ns1,t1,ANNOTATION,help,NUMERIC,4\n")
    traces.write_text(json.dumps({"id": "t1", "input": "message 1", "output": "reply 1"}))
    assert command("--in", f"{ratings}+{traces}") == 0
    assert [(row["aspect"], row["score"]) for row in command.rows()] == [("tone", 3.0), ("help", 2.0)]


BAD_LINES: list[tuple[str, list[str]]] = [
    ("not JSON", ["{", "line 4", "not valid JSON"]),
    (
        "empty text",
        [json.dumps({"group": "x", "source": "s", "candidates": [{"id": "c", "text": " "}]}), "line 4", "empty"],
    ),
    ("another task", [line(7, task="dialogue"), "line 4", "another task than support"]),
    ("seen before", [line(1), "line 4", "a second time", "2 lines above"]),
]


@pytest.mark.parametrize("case", [c[1] for c in BAD_LINES], ids=[c[0] for c in BAD_LINES])
def test_a_bad_line_is_named_and_all_before_it_is_scored(
    command: Command, capsys: pytest.CaptureFixture[str], case: list[str]
) -> None:
    good = [line(g) for g in range(3)]
    command.write([*good, case[0], line(8)])
    assert command() == EXIT_INPUT
    message = capsys.readouterr().err
    assert all(part in message for part in case[1:]), message
    assert [r["group"] for r in command.rows()] == [f"g{g}" for g in range(3) for _ in range(4)]


def test_groups_of_another_task_can_be_left_aside(command: Command) -> None:
    other = {"group": "d", "task": "dialogue", "source": "s", "candidates": [{"id": "c", "text": "t"}]}
    command.write([json.dumps(other), line(1)])
    assert command("--config", "task=support") == 0
    assert {r["group"] for r in command.rows()} == {"g1"}


@pytest.mark.integration
def test_only_a_bounded_number_of_items_is_read_ahead(command: Command) -> None:
    """The input is an endless pipe in effect: what is read runs ahead of what is written by the window at most."""
    command.write([line(g, candidates=1) for g in range(300)])
    read, ahead = 0, []
    group_items, score_of = scorer.group_items, scorer.score_of
    written = 0

    def counting(*arguments: Any) -> Iterator[Any]:
        nonlocal read
        for item in group_items(*arguments):
            read += 1
            yield item

    def looking(*arguments: Any) -> Any:
        nonlocal written
        written += 1
        ahead.append(read - written)
        return score_of(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scorer, "group_items", counting)
        patch.setattr(scorer, "score_of", looking)
        assert command("--concurrency", "4", *keys(preflight=False)) == 0
    assert len(ahead) == 600
    assert max(ahead) <= streaming.max_in_flight(command.lm)
    # Whether the LM is ever asked by all four at once is a matter of chance.
    assert 1 < command.lm.peak <= 4


@pytest.mark.integration
def test_help_needs_no_lm_library() -> None:
    code = "import sys; from debate_judge.runs import score\ntry: score.main(['--help'])\nexcept SystemExit: pass\n"
    code += "print(sorted({'dspy', 'mlflow', 'numpy', 'pandas', 'litellm'} & set(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.rstrip().endswith("[]")
    assert "max-unscored" in done.stdout
