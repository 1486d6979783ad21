"""The score command over HTTP against a server that fails: the file it leaves, and what it says."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
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
from tests.faulty_server import FaultyServer

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parent.parent.parent
TASK = Task("notes", "letter", "note", (Aspect("clarity", "Is the text easy to follow?", Scale(1, 5)),))
COUNT = 150

HURRY = {"attempt_timeout": 60.0, "retries": 4, "first_wait": 0.01, "max_wait": 0.2}
"""Waits short enough for a test."""

SCALED = """
import json, sys
from debate_judge.programs.lm.options import LMOptions
from debate_judge.runs import score
from debate_judge.runs.scoring import scorer

scorer.lm_options = lambda arguments: LMOptions(**json.loads(sys.argv[1]))
sys.exit(score.main(sys.argv[2:]))
"""


def answer(body: bytes) -> str:
    """The Critic objects to every second letter, once."""
    found = re.search(rb"Letter-(\d+)", body)
    letter, heard = int(found[1]) if found else 0, body.count(b"Critic, round ")
    if b"## decision ##" in body:
        decision = "ISSUE" if letter % 2 and not heard else "NO ISSUE"
        return f"[[ ## review ## ]]\nWell.\n\n[[ ## decision ## ]]\n{decision}\n\n[[ ## feedback ## ]]\nToo kind."
    return f"[[ ## rationale ## ]]\nBecause.\n\n[[ ## score ## ]]\n{1 + (letter * 7 + heard) % 5}"


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
        self,
        server: FaultyServer,
        name: str = "out",
        *more: str,
        key: str = "sk-1",
        max_outage: float = 60.0,
        process: bool = False,
    ) -> Done:
        out = self.folder / f"{name}.jsonl"
        flags = {"--in": self.source, "--out": out, "--store": self.folder / name}
        flags |= {"--api-base": server.url, "--concurrency": "8"}
        arguments = [str(self.program), *(str(part) for pair in flags.items() for part in pair), *more]
        limits = {**HURRY, "max_outage": max_outage}
        if not process:
            err = io.StringIO()
            with pytest.MonkeyPatch.context() as patch, redirect_stderr(err):
                patch.setenv("OPENAI_API_KEY", key)
                patch.setattr(scorer, "lm_options", lambda arguments: LMOptions(**limits))
                return Done(score.main(arguments), err.getvalue(), out.read_bytes())
        done = subprocess.run(
            [sys.executable, "-c", SCALED, json.dumps(limits), *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": key},
            capture_output=True,
            text=True,
            timeout=120,
        )
        return Done(done.returncode, done.stderr, out.read_bytes())


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    folder = tmp_path_factory.mktemp("score")
    judge = build("debate", {"persona": "plain", "rounds": 2, "tie_breaker": False})
    program = save(
        folder / "program",
        CompiledJudge(TASK, {"clarity": AspectJudge(judge)}),
        lm={"spec": "openai/mock"},
        evidence={},
        name="x",
    )
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
        done = command(server, "undisturbed", process=True)
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.rows.splitlines()]
    assert [row["score"] for row in rows] == [1 + (i * 7 + i % 2) % 5 for i in range(COUNT)]
    return done.rows


@pytest.fixture
def once() -> Iterator[Callable[[], bool]]:
    first = iter([True])
    return lambda: next(first, False)  # type: ignore[return-value]


def test_a_revoked_key_ends_the_run_and_a_good_one_pays_for_the_rest_only(command: Command, undisturbed: bytes) -> None:
    with FaultyServer(answer, latency=0.005) as server:
        server.key, server.revoke_after = "sk-secret-1", 200
        stopped = command(server, "revoked", key="sk-secret-1", process=True)
        assert stopped.code == EXIT_LM
        assert "HTTP 401" in stopped.err
        assert "OPENAI_API_KEY" in stopped.err
        assert "command again" in stopped.err
        assert "Traceback" not in stopped.err
        assert "sk-secret-1" not in stopped.err
        # Whole rows of before, none for what the key could not pay for; at once: only calls in flight were refused.
        assert undisturbed.startswith(stopped.rows)
        assert 0 < stopped.rows.count(b"\n") < COUNT
        assert 0 < server.refused <= 8
        server.key, server.revoke_after = "sk-2", None
        done = command(server, "revoked", key="sk-2", process=True)
    assert done.code == 0, done.err
    assert done.rows == undisturbed
    assert set(server.answered.values()) == {1}


def test_a_server_that_comes_back_is_waited_for(command: Command, undisturbed: bytes, once: Callable[[], bool]) -> None:
    def script(body: bytes, attempt: int) -> str | None:
        if server.requests >= 150 and once():
            server.leave_for(2.5)
        return None

    with FaultyServer(answer, script, latency=0.002) as server:
        done = command(server, "back", process=True)
    assert done.code == 0, done.err
    assert done.rows == undisturbed
    assert done.err.count("does not respond") == 1
    assert done.err.count("responds again") == 1
    # A call may be cut off between the server's answer and its arrival.
    assert server.answered.total() <= len(server.answered) + 8


@pytest.mark.parametrize("way", ["gone", "429"])
def test_a_server_that_stays_away_ends_the_run_and_leaves_no_row_for_it(
    command: Command, undisturbed: bytes, once: Callable[[], bool], way: str
) -> None:
    healthy = False

    def script(body: bytes, attempt: int) -> str | None:
        if healthy or server.requests < 150:
            return None
        if way == "gone" and once():
            server.leave_for(3600)
        return None if way == "gone" else way

    with FaultyServer(answer, script, latency=0.002) as server:
        stopped = command(server, f"away-{way}", max_outage=2.0)
        assert stopped.code == EXIT_LM
        assert "no call was answered" in stopped.err
        assert "Traceback" not in stopped.err
        assert undisturbed.startswith(stopped.rows)
        assert 0 < stopped.rows.count(b"\n") < COUNT
        healthy = True
        if way == "gone":
            server.come_back()
        done = command(server, f"away-{way}")
    assert done.code == 0, done.err
    assert done.rows == undisturbed
    assert server.answered.total() <= len(server.answered) + 8


def test_an_lm_that_needs_longer_replies_is_given_them(command: Command, undisturbed: bytes) -> None:
    def script(body: bytes, attempt: int) -> str | None:
        return "long" if json.loads(body)["max_tokens"] < 9000 else None

    with FaultyServer(answer, script) as server:
        stopped = command(server, "long")
        assert stopped.code == EXIT_INPUT
        assert "max-tokens" in stopped.err
        done = command(server, "long", *keys(max_tokens=9000))
    assert done.code == 0, done.err
    assert done.rows == undisturbed
