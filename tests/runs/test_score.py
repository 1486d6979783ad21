"""Scoring a file: right rows in the input's order, and the same file however often the run was cut short."""

from __future__ import annotations

import csv
import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest
from filelock import FileLock

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs import score
from debate_judge.runs.export import loaded
from debate_judge.runs.export.folder import save
from tests.fakes import ScriptedLM, debater, scripted_lm, section

ROOT = Path(__file__).parent.parent.parent

TASK = Task(
    "support",
    "customer message",
    "reply",
    (
        Aspect("tone", "How the reply treats the customer.", Scale(1, 5)),
        Aspect("help", "Whether it helps.", Scale(1, 5)),
    ),
)


def digit(prompt: str) -> str:
    """A score that depends on the candidate and the aspect, so that a swapped row shows."""
    number = int(section(prompt, "candidate").split()[-1])
    return str(1 + (number + section(prompt, "aspect").startswith("tone")) % 5)


SCRIPT = debater(score=digit)


def line(group: int, candidates: int = 2, **more: Any) -> str:
    texts = [{"id": f"c{i}", "text": f"reply {group * 10 + i}"} for i in range(candidates)]
    return json.dumps({"group": f"g{group}", "source": f"message {group}", "candidates": texts, **more})


class Command:
    """`score.py` in a folder of its own, with a scripted LM."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.out = folder / "out.jsonl"
        self.source = folder / "in.jsonl"
        self.lm = scripted_lm(SCRIPT)
        self.script: Callable[[str], str] = SCRIPT
        self.write([line(g) for g in range(5)])
        judges = {
            "tone": AspectJudge(build("debate", JUDGES["single"].config)),
            "help": AspectJudge(build("debate", {"persona": "plain", "rounds": 2, "tie_breaker": False})),
        }
        self.program = save(
            folder / "program", CompiledJudge(TASK, judges), lm={"spec": "scripted/lm"}, evidence={}, name="x"
        )
        monkeypatch.setattr(loaded, "make_lm", self._make)

    def _make(self, spec: str, *, store: Any, concurrency: int, **rest: Any) -> ScriptedLM:
        self.lm = scripted_lm(self.script, store=store, concurrency=concurrency, latency=0.001)
        return self.lm

    def write(self, lines: list[str]) -> None:
        self.source.write_text("".join(text + "\n" for text in lines), encoding="utf-8")

    def __call__(self, *more: str, **replace: str | Path) -> int:
        arguments: dict[str, str | Path] = {
            "--program": self.program,
            "--in": self.source,
            "--out": self.out,
            "--store": self.folder / "store",
        }
        arguments |= {"--" + k: v for k, v in replace.items()}
        return score.main([str(part) for pair in arguments.items() for part in pair] + list(more))

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self.out.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(tmp_path, monkeypatch)


def test_rows_in_the_order_of_the_input(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command() == 0
    rows = command.rows()
    assert [(r["group"], r["candidate"], r["aspect"]) for r in rows] == [
        (f"g{g}", f"c{c}", a) for g in range(5) for c in range(2) for a in ("tone", "help")
    ]
    # digit(): candidate g*10 + c; tone adds one.
    assert [r["score"] for r in rows[:8]] == [2, 1, 3, 2, 2, 1, 3, 2]
    first = {"group": "g0", "candidate": "c0", "aspect": "tone", "score": 2.0, "rounds": 0}
    assert rows[0] == {**first, "stop_reason": "single call", "unscored": None}
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


def test_ratings_and_tasks_in_the_input_are_fine_and_aspects_can_be_chosen(command: Command) -> None:
    rated = {"id": "c", "text": "reply 3", "ratings": {"tone": [4, 5]}}
    command.write([line(1, task="support"), json.dumps({"group": "r", "source": "s", "candidates": [rated]})])
    assert command("--aspects", "help") == 0
    assert [(r["group"], r["aspect"]) for r in command.rows()] == [("g1", "help"), ("g1", "help"), ("r", "help")]


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


def test_going_on_from_any_byte_gives_the_same_files(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    debates = command.folder / "debates.jsonl"
    assert command("--transcripts", str(debates)) == 0
    rows, turns = command.out.read_bytes(), debates.read_bytes()
    rng = random.Random(5)
    for cut in [0, 1, len(rows) - 1, *(rng.randrange(len(rows)) for _ in range(12))]:
        command.out.write_bytes(rows[:cut])
        # The transcript is written first: one whole line more than rows, and perhaps a torn one.
        lines = turns.splitlines(keepends=True)
        whole = rows[:cut].count(b"\n") + 1
        debates.write_bytes(
            b"".join(lines[:whole]) + (lines[whole][:30] if whole < len(lines) else b"") if cut else b""
        )
        assert command("--transcripts", str(debates)) == 0
        assert command.out.read_bytes() == rows, cut
        assert debates.read_bytes() == turns, cut
        # What was answered once is in the store.
        assert command.lm.prompts == []
    capsys.readouterr()
    assert command("--transcripts", str(debates)) == 0
    assert "nothing left to do" in capsys.readouterr().err


def test_transcripts_hold_every_turn(command: Command) -> None:
    debates = command.folder / "debates.jsonl"
    command("--transcripts", str(debates))
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


def test_an_input_that_has_grown_is_gone_on_with(command: Command) -> None:
    command()
    before = command.out.read_bytes()
    with command.source.open("a", encoding="utf-8") as file:
        file.write(line(9) + "\n")
    assert command() == 0
    assert command.out.read_bytes().startswith(before)
    assert [r["group"] for r in command.rows()[20:]] == ["g9"] * 4
    assert len(command.lm.prompts) == 6


def other_program(command: Command) -> None:
    judges = {"tone": AspectJudge(build("debate", JUDGES["debate"].config)), "help": AspectJudge(build("debate", {
        "persona": "plain", "rounds": 2, "tie_breaker": False}))}  # fmt: skip
    command.program = save(
        command.folder / "two", CompiledJudge(TASK, judges), lm={"spec": "scripted/lm"}, evidence={}, name="x"
    )


def first_text_edited(command: Command) -> None:
    command.source.write_text(command.source.read_text().replace("reply 0", "reply 1", 1))


def foreign_rows(command: Command) -> None:
    command.out.write_text('{"group": "g0", "score": 3}\n')


def rows_swapped(command: Command) -> None:
    lines = command.out.read_text().splitlines(keepends=True)
    command.out.write_text("".join([lines[1], lines[0], *lines[2:]]))


def one_row_too_many(command: Command) -> None:
    row = {
        "group": "g9",
        "candidate": "c",
        "aspect": "tone",
        "score": 1.0,
        "rounds": 0,
        "stop_reason": "",
        "unscored": None,
    }
    with command.out.open("a") as file:
        file.write(json.dumps(row) + "\n")


@pytest.mark.parametrize(
    ("change", "more", "says"),
    [
        (other_program, [], "another program"),
        (lambda c: None, ["--aspects", "tone"], "another aspects"),
        (first_text_edited, [], "input has changed"),
        (lambda c: (c.folder / "out.jsonl.state.json").unlink(), [], "made from"),
        (lambda c: (c.folder / "out.jsonl.state.json").write_text("{}"), [], "made from"),
        (lambda c: (c.folder / "out.jsonl.state.json").write_text("[" * 100_000), [], "made from"),
        (lambda c: (c.folder / "out.jsonl.state.json").write_bytes(b'{"program": "\xff'), [], "made from"),
        (foreign_rows, [], "something else"),
        (rows_swapped, [], "line 1: the file is there already, and this row is not"),
        (one_row_too_many, [], "the end of the file"),
        (lambda c: Path("late.jsonl").write_text("{}\n"), ["--transcripts", "late.jsonl"], "something else"),
    ],
)
def test_what_cannot_be_continued_is_refused_and_left_alone(
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Command], object],
    more: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(command.folder)
    command()
    change(command)
    before = command.out.read_bytes()
    capsys.readouterr()
    assert command(*more) == score.EXIT_INPUT
    message = capsys.readouterr().err
    assert says in message
    assert "remedy" in message
    assert command.out.read_bytes() == before


BAD_LINES: list[tuple[str, list[str]]] = [
    ("not JSON", ["{", "line 4", "not valid JSON"]),
    (
        "empty text",
        [json.dumps({"group": "x", "source": "s", "candidates": [{"id": "c", "text": " "}]}), "line 4", "empty"],
    ),
    ("another task", [line(7, task="dialogue"), "line 4", "another task than support"]),
    ("seen before", [line(1), "line 4", "a second time", "line 2"]),
]


@pytest.mark.parametrize("case", [c[1] for c in BAD_LINES], ids=[c[0] for c in BAD_LINES])
def test_a_bad_line_is_named_and_all_before_it_is_scored(
    command: Command, capsys: pytest.CaptureFixture[str], case: list[str]
) -> None:
    good = [line(g) for g in range(3)]
    command.write([*good, case[0], line(8)])
    assert command() == score.EXIT_INPUT
    message = capsys.readouterr().err
    assert all(part in message for part in case[1:]), message
    assert [r["group"] for r in command.rows()] == [f"g{g}" for g in range(3) for _ in range(4)]


def test_groups_of_another_task_can_be_left_aside(command: Command) -> None:
    other = {"group": "d", "task": "dialogue", "source": "s", "candidates": [{"id": "c", "text": "t"}]}
    command.write([json.dumps(other), line(1)])
    assert command(task="support") == 0
    assert {r["group"] for r in command.rows()} == {"g1"}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--in", "absent.jsonl"], "no such file"),
        (["--in", "."], "no such file"),
        (["--out", "scores.txt"], ".jsonl or .csv"),
        (["--out", "{source}"], "the same"),
        (["--transcripts", "{out}"], "the same"),
        (["--aspects", "tonne"], "did you mean 'tone'"),
        (["--task", "dialogue"], "another task"),
        (["--program", "nowhere"], "no such folder"),
        (["--concurrency", "0"], "at least 1"),
        (["--max-unscored", "7"], "a number from 0 to 1"),
    ],
)
def test_arguments_that_cannot_be_used(
    command: Command, capsys: pytest.CaptureFixture[str], more: list[str], says: str
) -> None:
    assert command(*(part.format(source=command.source, out=command.out) for part in more)) == score.EXIT_INPUT
    assert says in capsys.readouterr().err
    assert not command.out.exists() or command.out.read_bytes() == b""


def test_an_empty_file(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    command.write([])
    assert command() == score.EXIT_INPUT
    assert "no groups" in capsys.readouterr().err


def test_unscored_rows_have_a_reason_and_too_many_are_a_failure(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    command.script = debater(score=lambda p: "nine" if section(p, "candidate") in ("reply 0", "reply 21") else digit(p))
    assert command("--max-unscored", "0.2") == 0
    missing = [r for r in command.rows() if r["score"] is None]
    assert [(r["group"], r["candidate"]) for r in missing] == [("g0", "c0")] * 2 + [("g2", "c1")] * 2
    expected = {"rounds": None, "stop_reason": None, "unscored": "unreadable reply"}
    assert {k: missing[0][k] for k in expected} == expected
    assert "4 unscored: unreadable reply, e.g. scorer, round 0: no score" in capsys.readouterr().err
    # 4 of 20; the same is said of a file that is finished already.
    assert command("--max-unscored", "0.19") == score.EXIT_UNSCORED
    assert "20% of the items" in capsys.readouterr().err
    assert len(command.rows()) == 20


def test_a_wrong_key_ends_the_run_and_the_next_goes_on(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    calls = iter(range(10_000))

    def revoked(prompt: str) -> str:
        if next(calls) >= 10:
            raise dspy.LMAuthError("the key was revoked")
        return SCRIPT(prompt)

    command.script = revoked
    assert command("--concurrency", "1") == score.EXIT_LM
    message = capsys.readouterr().err
    assert "the key was revoked" in message
    assert "not paid again" in message
    assert "Traceback" not in message
    assert len(command.rows()) < 20
    command.script = SCRIPT
    assert command() == 0
    assert len(command.rows()) == 20
    # 30 calls in all, of which 10 were answered before.
    assert len(command.lm.prompts) == 20


def outage(after: int) -> Callable[[str], str]:
    calls = iter(range(10_000))

    def script(prompt: str) -> str:
        if next(calls) >= after:
            raise dspy.LMInvalidRequestError("not today")
        return SCRIPT(prompt)

    return script


def test_an_outage_stops_the_run_and_writes_no_rows_for_it(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    command.write([line(g) for g in range(40)])
    assert command(out=command.folder / "undisturbed.jsonl", store=command.folder / "other") == 0
    command.script = outage(after=30)
    assert command("--concurrency", "1") == score.EXIT_LM
    assert "no answer for 64 of the last" in capsys.readouterr().err
    assert all(r["unscored"] is None for r in command.rows())
    command.script = SCRIPT
    assert command() == 0
    assert command.out.read_bytes() == (command.folder / "undisturbed.jsonl").read_bytes()


def test_a_source_that_the_lm_cannot_take_is_no_outage(command: Command) -> None:
    command.write([line(1), line(2, candidates=40), *(line(g) for g in range(3, 40))])

    def too_long(prompt: str) -> str:
        if section(prompt, "source") == "message 2":
            raise dspy.LMInvalidRequestError("too many tokens")
        return SCRIPT(prompt)

    command.script = too_long
    assert command("--max-unscored", "0.5") == 0
    rows = command.rows()
    assert len(rows) == 4 + 80 + 37 * 4
    assert all((r["unscored"] == "lm error") == (r["group"] == "g2") for r in rows)


def test_a_run_that_accepts_everything_gives_every_item_a_row(command: Command) -> None:
    command.write([line(g) for g in range(40)])
    command.script = outage(after=30)
    assert command("--concurrency", "1", "--max-unscored", "1") == 0
    assert len(command.rows()) == 160
    assert {r["unscored"] for r in command.rows()} == {None, "lm error"}


def test_a_stop_by_the_user(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from debate_judge.runs.scoring.output import Results

    add, count = Results.add, iter(range(100))

    def stopping(self: Results, *row: Any) -> None:
        if next(count) == 7:
            raise KeyboardInterrupt
        add(self, *row)

    monkeypatch.setattr(Results, "add", stopping)
    assert command() == score.EXIT_INTERRUPTED
    assert "the same command goes on" in capsys.readouterr().err
    assert len(command.rows()) == 7
    assert command() == 0
    assert len(command.rows()) == 20


def test_only_a_bounded_number_of_items_is_read_ahead(command: Command) -> None:
    """The input is an endless pipe in effect: what is read runs ahead of what is written by the window at most."""
    from debate_judge.runs.runner import streaming

    command.write([line(g, candidates=1) for g in range(300)])
    read, ahead = 0, []
    group_items, score_of = streaming.group_items, streaming.score_of
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
        patch.setattr(streaming, "group_items", counting)
        patch.setattr(streaming, "score_of", looking)
        assert command("--concurrency", "4") == 0
    assert len(ahead) == 600
    assert max(ahead) <= streaming.window(command.lm)
    assert command.lm.peak == 4


def test_two_runs_cannot_write_to_one_file(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    command()
    with FileLock(f"{command.out}.lock"):
        assert command() == score.EXIT_INPUT
    assert "another process" in capsys.readouterr().err


def test_transcripts_can_be_had_later_at_no_cost(command: Command) -> None:
    debates = command.folder / "debates.jsonl"
    command("--transcripts", str(debates))
    whole = debates.read_bytes()
    debates.unlink()
    assert command("--transcripts", str(debates)) == 0
    assert debates.read_bytes() == whole
    assert command.lm.prompts == []


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv"])
def test_what_the_lm_did_not_answer_is_asked_again(command: Command, name: str) -> None:
    out, debates = command.folder / name, command.folder / "debates.jsonl"
    more = ["--out", str(out), "--transcripts", str(debates), "--max-unscored", "0.5"]

    def deaf(prompt: str) -> str:
        if section(prompt, "candidate") == "reply 10":
            raise dspy.LMInvalidRequestError("not today")
        return SCRIPT(prompt)

    command.script = deaf
    assert command(*more) == 0
    before = out.read_bytes()
    assert before.count(b"lm error") == 2
    # As long as it is not answered, nothing changes.
    assert command(*more) == 0
    assert out.read_bytes() == before
    command.script = SCRIPT
    assert command(*more) == 0
    assert len(command.lm.prompts) == 3
    finished, turns = out.read_bytes(), debates.read_bytes()
    out.unlink()
    debates.unlink()
    assert command(*more) == 0
    assert (out.read_bytes(), debates.read_bytes()) == (finished, turns)
    assert b"lm error" not in finished + turns


def test_rows_that_are_there_are_not_touched_while_they_are_compared(command: Command) -> None:
    """A run that is stopped while it recalls loses no row that an earlier one has written."""
    command()
    rows = command.out.read_bytes()
    first = command.out.stat()
    assert command() == 0
    assert command.out.read_bytes() == rows
    assert command.out.stat().st_mtime_ns == first.st_mtime_ns


@pytest.mark.parametrize(("flag", "name"), [("--out", "x.jsonl"), ("--transcripts", "x.jsonl"), ("--store", "x")])
@pytest.mark.parametrize("way", ["a file in the way", "a folder that is read-only"])
def test_a_place_that_cannot_be_written_is_named_with_its_flag(
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flag: str,
    name: str,
    way: str,
) -> None:
    place = command.folder / "place"
    if way == "a file in the way":
        place.write_text("mine")
    else:
        mkdir = Path.mkdir

        def refused(self: Path, *arguments: Any, **options: Any) -> None:
            if place in (self, *self.parents):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
            mkdir(self, *arguments, **options)

        monkeypatch.setattr(Path, "mkdir", refused)
    assert command(flag, str(place / name)) == score.EXIT_INPUT
    message = capsys.readouterr().err
    assert f"field '{flag}': cannot be written" in message
    assert "remedy" in message
    assert command.lm.prompts == []


SLOW = '''
"""score.py with an LM that takes 20 ms a call and notes in a file each call that it has answered."""
import sys
from debate_judge.runs import score
from debate_judge.runs.export import loaded
from tests.fakes import debater, scripted_lm, section

log = open(sys.argv[1], "a", buffering=1)

def digit(prompt):
    number = int(section(prompt, "candidate").split()[-1])
    return str(1 + (number + section(prompt, "aspect").startswith("tone")) % 5)

def script(prompt):
    text = debater(score=digit)(prompt)
    log.write("call\\n")
    return text

def make(spec, *, store, concurrency, **rest):
    return scripted_lm(script, store=store, concurrency=concurrency, latency=0.02)

loaded.make_lm = make
sys.exit(score.main(sys.argv[2:]))
'''


def test_a_killed_process_goes_on_and_pays_nothing_twice(command: Command) -> None:
    command.write([line(g) for g in range(60)])
    program, log = command.folder / "slow.py", command.folder / "calls"
    program.write_text(SLOW, encoding="utf-8")
    base = [sys.executable, str(program), str(log), "--program", str(command.program), "--in", str(command.source)]
    base += ["--concurrency", "4"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def arguments(name: str) -> list[str]:
        return [*base, "--out", str(command.folder / name), "--store", str(command.folder / ("store-" + name))]

    assert command(out=command.folder / "whole.jsonl") == 0
    assert len(command.lm.prompts) == 360

    out = command.folder / "killed.jsonl"
    for least in (10, 90):
        process = subprocess.Popen(arguments("killed.jsonl"), env=environment, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while not out.exists() or out.read_bytes().count(b"\n") < least:
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        rows = out.read_bytes()
        assert rows.count(b"\n") < 240
        assert rows.endswith(b"\n")
    subprocess.run(arguments("killed.jsonl"), env=environment, check=True, capture_output=True)
    assert out.read_bytes() == (command.folder / "whole.jsonl").read_bytes()
    # A kill can lose only what was in flight: at most 4 calls each time.
    assert 360 <= log.read_text().count("call") <= 360 + 2 * 4


def test_help_needs_no_lm_library() -> None:
    code = "import sys; from debate_judge.runs import score\ntry: score.main(['--help'])\nexcept SystemExit: pass\n"
    code += "print(sorted({'dspy', 'mlflow', 'numpy', 'pandas', 'litellm'} & set(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.rstrip().endswith("[]")
    assert "--max-unscored" in done.stdout
