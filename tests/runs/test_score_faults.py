"""The score command over HTTP against a server that fails: the file it leaves, and what it says."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path

import pytest

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs import build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.lm.options import LMOptions
from debate_judge.runs import score
from debate_judge.runs.export.folder import save
from debate_judge.runs.flags.parser import EXIT_INPUT, EXIT_LM
from debate_judge.runs.scoring import scorer
from tests.config_keys import keys
from tests.fakes import debater
from tests.faulty_server import FaultyServer

pytestmark = pytest.mark.integration

TASK = Task("notes", "letter", "note", (Aspect("clarity", "Is the text easy to follow?", Scale(1, 5)),))
COUNT = 150

HURRY = {"attempt_timeout": 60.0, "retries": 4, "first_wait": 0.01, "max_wait": 0.2}
"""Waits short enough for a test."""


def answer(body: bytes) -> str:
    """The Critic objects to every second letter, once."""
    prompt = json.loads(body)["messages"][-1]["content"]
    letter, objections = int(re.findall(r"Letter-(\d+)", prompt)[0]), prompt.count("Critic, round ")
    decision = "ISSUE" if letter % 2 and not objections else "NO ISSUE"
    return debater(score=str(1 + (letter * 7 + objections) % 5), decision=decision)(prompt)


@dataclass(frozen=True)
class Done:
    """What a run of the command left."""

    code: int
    err: str
    rows: bytes


@dataclass(frozen=True)
class Command:
    """The command in a folder of its own."""

    folder: Path
    program: Path
    source: Path

    def __call__(
        self, server: FaultyServer, name: str, *more: str, key: str = "sk-1", max_outage: float = 60.0
    ) -> Done:
        out, err = self.folder / f"{name}.jsonl", io.StringIO()
        flags = {"--in": self.source, "--out": out, "--store": self.folder / name, "--api-base": server.url}
        arguments = [str(self.program), *(str(part) for pair in flags.items() for part in pair), "--concurrency", "8"]
        # Waits short enough for a test.
        limits = LMOptions(attempt_timeout=60.0, retries=4, first_wait=0.01, max_wait=0.2, max_outage=max_outage)
        with pytest.MonkeyPatch.context() as patch, redirect_stderr(err):
            patch.setenv("OPENAI_API_KEY", key)
            patch.setattr(scorer, "lm_options", lambda arguments: limits)
            return Done(score.main([*arguments, *more]), err.getvalue(), out.read_bytes())


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    folder = tmp_path_factory.mktemp("score")
    judge = build("debate", {"persona": "plain", "rounds": 2, "tie_breaker": False})
    compiled = CompiledJudge(TASK, {"clarity": AspectJudge(judge)})
    program = save(folder / "program", compiled, lm={"spec": "openai/mock"}, evidence={}, name="x")
    source = folder / "in.jsonl"
    groups = (
        {"group": f"g{i}", "source": f"Letter-{i}", "candidates": [{"id": "c", "text": f"Note {i}."}]}
        for i in range(COUNT)
    )
    source.write_text("".join(json.dumps(group) + "\n" for group in groups), encoding="utf-8")
    return Command(folder, program, source)


@pytest.fixture(scope="module")
def undisturbed(command: Command) -> bytes:
    with FaultyServer(answer) as server:
        done = command(server, "undisturbed")
    assert done.code == 0, done.err
    assert [json.loads(row)["score"] for row in done.rows.splitlines()] == [
        1 + (i * 7 + i % 2) % 5 for i in range(COUNT)
    ]
    return done.rows


def begun(stopped: Done, undisturbed: bytes) -> bool:
    """Whether the run left whole rows of those that were to come, and no row for what had no answer."""
    assert "Traceback" not in stopped.err
    return undisturbed.startswith(stopped.rows) and 0 < stopped.rows.count(b"\n") < COUNT


@pytest.fixture
def once() -> Iterator[Callable[[], bool]]:
    first = iter([True])
    return lambda: next(first, False)  # type: ignore[return-value]


def test_a_revoked_key_ends_the_run_and_a_good_one_pays_for_the_rest_only(command: Command, undisturbed: bytes) -> None:
    with FaultyServer(answer, latency=0.005) as server:
        server.key, server.revoke_after = "sk-secret-1", 200
        stopped = command(server, "revoked", key="sk-secret-1")
        assert stopped.code == EXIT_LM
        assert [text for text in ("HTTP 401", "OPENAI_API_KEY", "command again") if text not in stopped.err] == []
        assert "sk-secret-1" not in stopped.err
        assert begun(stopped, undisturbed)
        assert 0 < server.refused <= 8, "only calls in flight are refused"
        server.key, server.revoke_after = "sk-2", None
        done = command(server, "revoked", key="sk-2")
    assert done.code == 0, done.err
    assert done.rows == undisturbed
    assert set(server.answered.values()) == {1}


def test_a_server_that_comes_back_is_waited_for(
    command: Command, undisturbed: bytes, once: Callable[[], bool], caplog: pytest.LogCaptureFixture
) -> None:
    def script(body: bytes, attempt: int) -> str | None:
        if server.requests >= 150 and once():
            server.leave_for(2.5)
        return None

    with FaultyServer(answer, script, latency=0.002) as server:
        done = command(server, "back")
    assert done.code == 0, done.err
    assert done.rows == undisturbed
    assert (caplog.text.count("does not respond"), caplog.text.count("responds again")) == (1, 1)
    # A call may be cut off between the server's answer and its arrival.
    assert server.answered.total() <= len(server.answered) + 8


@pytest.mark.parametrize("fault", ["gone", "429"])
def test_a_server_that_stays_away_ends_the_run_and_leaves_no_row_for_it(
    command: Command, undisturbed: bytes, once: Callable[[], bool], fault: str
) -> None:
    healthy = False

    def script(body: bytes, attempt: int) -> str | None:
        if healthy or server.requests < 150:
            return None
        if fault == "gone" and once():
            server.leave_for(3600)
        return None if fault == "gone" else fault

    with FaultyServer(answer, script, latency=0.002) as server:
        stopped = command(server, f"away-{fault}", max_outage=2.0)
        assert stopped.code == EXIT_LM
        assert "no call was answered" in stopped.err
        assert begun(stopped, undisturbed)
        healthy = True
        if fault == "gone":
            server.come_back()
        done = command(server, f"away-{fault}")
    assert done.code == 0, done.err
    assert done.rows == undisturbed
    assert server.answered.total() <= len(server.answered) + 8


def test_an_lm_that_needs_longer_replies_is_given_them(command: Command, undisturbed: bytes) -> None:
    def script(body: bytes, attempt: int) -> str | None:
        return "long" if json.loads(body)["max_tokens"] < 9000 else None

    with FaultyServer(answer, script) as server:
        stopped = command(server, "long")
        assert (stopped.code, "max-tokens" in stopped.err) == (EXIT_INPUT, True)
        assert command(server, "long", *keys(max_tokens=9000)).rows == undisturbed
