"""What ends a scoring run and what does not: stops at any byte, keys, outages, and what the next run makes of it."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stderr
from dataclasses import dataclass
from typing import Any

import dspy
import pytest
from filelock import FileLock

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs import build
from debate_judge.programs.lm.settings import LMOptions
from debate_judge.runs import scoring
from debate_judge.runs.command_line import EXIT_INPUT, EXIT_INTERRUPTED, EXIT_LM
from debate_judge.runs.scoring import EXIT_UNSCORED, ResultWriter
from tests.bench import soak
from tests.config_keys import keys
from tests.fakes import debater, section
from tests.faulty_server import FaultyServer
from tests.runs.score_command import SCRIPT, Command, ScoreCommand, digit, export_of, line, over_http


@pytest.mark.parametrize(
    "name", ["out.jsonl", "out.csv", "out.parquet", pytest.param("out.xlsx", marks=pytest.mark.integration)]
)
def test_the_same_command_gives_the_same_bytes_at_no_cost(command: Command, name: str) -> None:
    if name.endswith("xlsx"):
        pytest.importorskip("xlsxwriter", reason="pip install -e '.[test]' has it")
    flags, out = (*command.write_table(), "--wide", "--keep-columns"), command.folder / name
    assert command(*flags, out=out) == 0
    whole = out.read_bytes()
    # What a killed run left.
    out.with_name(f"{name}.part").write_bytes(b'{"torn')
    assert command(*flags, out=out) == 0
    assert out.read_bytes() == whole
    assert command.lm.prompts == []
    assert sorted(file.name for file in command.folder.glob(f"{name}*")) == [name, f"{name}.lock"]
    # A file of another form may be someone's: it is not replaced, and nothing is asked for.
    assert command(*(flag for flag in flags if flag != "--wide"), *keys(preflight=False), out=out) == EXIT_INPUT
    out.write_bytes(b"edited")
    assert command(*flags, out=out) == EXIT_INPUT
    assert (out.read_bytes(), command.lm.prompts) == (b"edited", [])


def test_transcripts_can_be_had_later_and_an_input_may_grow(command: Command) -> None:
    debates = command.folder / "debates.jsonl"
    assert command() == 0
    before = command.out.read_bytes()
    assert command(*keys(transcripts=debates)) == 0
    assert command.lm.prompts == []
    assert debates.read_text().count("\n") == 20
    with command.source.open("a", encoding="utf-8") as file:
        file.write(line(9) + "\n")
    assert command() == 0
    assert command.out.read_bytes().startswith(before)
    assert [r["group"] for r in command.rows()[20:]] == ["g9"] * 4
    assert len(command.lm.prompts) == 6


def test_unscored_rows_have_a_reason_and_too_many_are_a_failure(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    command.script = debater(score=lambda p: "nine" if section(p, "candidate") in ("reply 0", "reply 21") else digit(p))
    assert command(*keys(max_unscored=0.2)) == 0
    missing = [r for r in command.rows() if r["score"] is None]
    assert [(r["group"], r["candidate"]) for r in missing] == [("g0", "c0")] * 2 + [("g2", "c1")] * 2
    assert (missing[0]["rounds"], missing[0]["unscored"]) == (None, "unreadable reply")
    assert "4 unscored: unreadable reply" in capsys.readouterr().err
    # 4 of 20; the same is said of a file that is finished already.
    assert command(*keys(max_unscored=0.19)) == EXIT_UNSCORED
    assert "20 % of the items" in capsys.readouterr().err


def test_two_runs_cannot_write_to_one_file(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    command()
    with FileLock(f"{command.out}.lock"):
        assert command() == EXIT_INPUT
    assert "another process" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "layout"), [("out.jsonl", ()), ("out.csv", ("--wide",))])
def test_what_the_lm_did_not_answer_is_asked_again(command: Command, name: str, layout: tuple[str, ...]) -> None:
    out, debates = command.folder / name, command.folder / "debates.jsonl"
    more = ["--out", str(out), *layout, *keys(transcripts=debates, max_unscored=0.5)]

    def deaf(prompt: str) -> str:
        if section(prompt, "candidate") == "reply 10" and section(prompt, "aspect").startswith("help"):
            raise dspy.LMInvalidRequestError("not today")
        return SCRIPT(prompt)

    command.script = deaf
    assert command(*more) == 0
    before = out.read_bytes()
    assert before.count(b"not today") == 1
    command.script = SCRIPT
    assert command(*more) == 0
    assert len(command.lm.prompts) == 2
    finished, turns = out.read_bytes(), debates.read_bytes()
    out.unlink()
    debates.unlink()
    assert command(*more) == 0
    assert (out.read_bytes(), debates.read_bytes()) == (finished, turns)
    assert b"lm error" not in finished + turns


# --- over HTTP, against a server that fails ---

TASK = Task("notes", "letter", "note", (Aspect("clarity", "Is the text easy to follow?", Scale(1, 5)),))
COUNT = 150


@over_http
def answer(prompt: str) -> str:
    """The Critic objects to every second letter, once."""
    if "Letter-" not in prompt:
        return "I am here."
    letter, objections = int(re.findall(r"Letter-(\d+)", prompt)[0]), prompt.count("Critic, round ")
    feedback = "It wanders." if letter % 2 and not objections else "NO ISSUE"
    return debater(score=str(1 + (letter * 7 + objections) % 5), feedback=feedback)(prompt)


@dataclass(frozen=True)
class Done:
    """What a run of the command left."""

    code: int
    err: str
    rows: bytes


@dataclass(frozen=True)
class HttpCommand:
    """The command against a server, with an output and a store by this name."""

    command: ScoreCommand

    def __call__(
        self, server: FaultyServer, name: str, *more: str, key: str = "sk-1", max_outage: float = 60.0
    ) -> Done:
        out, err = self.command.folder / f"{name}.jsonl", io.StringIO()
        places = {"out": out, "store": self.command.folder / name, "api-base": server.url}
        # Waits short enough for a test.
        limits = LMOptions(attempt_timeout=60.0, retries=4, first_wait=0.01, max_wait=0.2, max_outage=max_outage)
        with pytest.MonkeyPatch.context() as patch, redirect_stderr(err):
            patch.setenv("OPENAI_API_KEY", key)
            patch.setattr(scoring, "lm_options", lambda arguments: limits)
            code = self.command(*more, **places)
            rows = out if out.exists() else out.with_name(f"{out.name}.part")
            return Done(code, err.getvalue(), rows.read_bytes())


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> HttpCommand:
    folder = tmp_path_factory.mktemp("score")
    judge = build("debate", {"persona": "plain", "rounds": 2, "tie_breaker": False})
    command = ScoreCommand(folder, export_of(folder / "program", TASK, judge, lm="openai/mock"), concurrency="8")
    rows = [{"group": f"g{i}", "source": f"Letter-{i}", "candidate": "c", "text": f"Note {i}."} for i in range(COUNT)]
    command.source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return HttpCommand(command)


@pytest.fixture(scope="module")
def undisturbed(http: HttpCommand) -> bytes:
    with FaultyServer(answer) as server:
        done = http(server, "undisturbed")
    assert done.code == 0, done.err
    scores = [json.loads(row)["score"] for row in done.rows.splitlines()]
    assert scores == [1 + (i * 7 + i % 2) % 5 for i in range(COUNT)]
    return done.rows


def begun(stopped: Done, undisturbed: bytes) -> bool:
    """Whether the run left rows of those that were to come, and no row for what had no answer."""
    assert "Traceback" not in stopped.err
    return undisturbed.startswith(stopped.rows) and 0 < stopped.rows.count(b"\n") < COUNT


@pytest.mark.integration
def test_a_server_that_comes_back_is_waited_for(
    http: HttpCommand, undisturbed: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    absences = iter([2.5])

    def script(body: bytes, attempt: int) -> str | None:
        if server.requests >= 150 and (seconds := next(absences, 0)):
            server.leave_for(seconds)
        return None

    with FaultyServer(answer, script, latency=0.002) as server:
        done = http(server, "back")
    assert done.code == 0, done.err
    assert done.rows == undisturbed
    assert (caplog.text.count("does not respond"), caplog.text.count("responds again")) == (1, 1)
    # A call may be cut off between the server's answer and its arrival.
    assert server.answered.total() <= len(server.answered) + 8


@pytest.mark.integration
def test_an_interrupt_waits_for_what_was_sent_and_pays_nothing_twice(
    http: HttpCommand, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, count = ResultWriter.add, iter(range(1000))

    def stopping(self: ResultWriter, *row: Any) -> None:
        if next(count) == 40:
            raise KeyboardInterrupt
        add(self, *row)

    with FaultyServer(answer, latency=0.1) as server:
        with monkeypatch.context() as patch:
            patch.setattr(ResultWriter, "add", stopping)
            assert http(server, "interrupted", "--concurrency", "16").code == EXIT_INTERRUPTED
        assert server.requests == server.answered.total(), "the replies to all requests were waited for"
        done = http(server, "interrupted")
    assert done.rows == undisturbed
    assert set(server.answered.values()) == {1}


@pytest.mark.integration
def test_a_revoked_key_ends_the_run_and_a_good_one_pays_for_the_rest_only(
    http: HttpCommand, undisturbed: bytes
) -> None:
    with FaultyServer(answer, latency=0.005) as server:
        server.key, server.revoke_after = "sk-secret-1", 200
        stopped = http(server, "revoked", key="sk-secret-1")
        assert stopped.code == EXIT_LM
        assert [text for text in ("HTTP 401", "OPENAI_API_KEY", "command again") if text not in stopped.err] == []
        assert "sk-secret-1" not in stopped.err
        assert begun(stopped, undisturbed)
        assert 0 < server.refused <= 8, "only calls in flight are refused"
        server.key, server.revoke_after = "sk-2", None
        done = http(server, "revoked", key="sk-2")
    assert done.code == 0, done.err
    assert done.rows == undisturbed
    assert set(server.answered.values()) == {1}


@pytest.mark.integration
@pytest.mark.parametrize("fault", ["gone", "429"])
def test_a_server_that_stays_away_ends_the_run_and_leaves_no_row_for_it(
    http: HttpCommand, undisturbed: bytes, fault: str
) -> None:
    healthy, absences = False, iter([3600])

    def script(body: bytes, attempt: int) -> str | None:
        if healthy or server.requests < 150:
            return None
        if fault == "gone":
            if seconds := next(absences, 0):
                server.leave_for(seconds)
            return None
        return fault

    with FaultyServer(answer, script, latency=0.002) as server:
        stopped = http(server, f"away-{fault}", max_outage=2.0)
        assert stopped.code == EXIT_LM
        assert "no call was answered" in stopped.err
        assert begun(stopped, undisturbed)
        healthy = True
        if fault == "gone":
            server.come_back()
        done = http(server, f"away-{fault}")
    assert done.code == 0, done.err
    assert done.rows == undisturbed
    assert server.answered.total() <= len(server.answered) + 8


# --- long runs; `pytest -m soak` runs the long ones, which take some minutes ---

LONG = {"lm": "openai/mock", "rounds": 0, "concurrency": 64}


@pytest.mark.integration
@pytest.mark.parametrize(
    ("items", "options", "unscored"),
    [
        # A Scorer and a Critic each, a revision for three in four, and what failed.
        (300, {"faults": "mix", "lm": "openai/mock", "rounds": 1, "concurrency": 32}, range(15)),
        # One call in 250 cannot be answered, and a second question has faults of its own.
        pytest.param(20_000, {"faults": "mix", **LONG}, range(51, 160), marks=pytest.mark.soak),
        pytest.param(100_000, {"faults": "none", **LONG}, range(1), marks=pytest.mark.soak),
        pytest.param(100_000, {"faults": "none", **LONG, "lm": "offline"}, range(1), marks=pytest.mark.soak),
    ],
)
def test_every_item_has_its_row_and_no_answer_is_paid_again(
    items: int, options: dict[str, Any], unscored: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    result = soak.run(items, **options)
    assert (result.code, result.in_order, result.wrong, result.paid_twice) == (0, True, 0, 0)
    assert result.rss_mb < 600
    assert sum(result.unscored.values()) in unscored
    assert set(result.unscored) <= {"lm error", "refused", "unreadable reply", "truncated"}
    if options["rounds"]:
        assert result.requests > items * 2.75 * 1.1
