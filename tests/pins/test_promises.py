"""What `debate score` promises whatever happens to it: the same file, no call paid twice, no budget passed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from debate_judge.optimize import cli
from tests.config_keys import keys
from tests.pins.cases import debate, exported, write_sample
from tests.pins.recording import LM, Recorder
from tests.programs.test_hostile_texts import HOSTILE, OF_TABLES

CONCURRENCY = 4
LATENCY = 0.02
"""Seconds of an answer, so that several are in flight."""
IN_PROCESS = "import sys; from debate_judge.optimize.cli import main; sys.exit(main(sys.argv[1:]))"
AT_A_SIGN = f"import dspy, debate_judge.runs.score; print('ready', flush=True); input(); {IN_PROCESS}"
pytestmark = [pytest.mark.skipif(os.name == "nt", reason="the system has no kill -9"), pytest.mark.integration]
TEXTS = 18
"""Sources, of two candidates each."""


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "unused")
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export, with the texts in a file beside it."""
    folder = exported(tmp_path_factory.mktemp("export"))
    write_sample(folder.parent / "texts.jsonl", TEXTS, 2)
    return folder


def arguments(export: Path, server: Recorder, out: Path, *more: object) -> list[str]:
    """Arguments of `debate score` at a server; files in one folder share a store."""
    files = ["--in", export.parent / "texts.jsonl", "--out", out, "--store", out.parent / "store"]
    lm = ["--lm", LM, "--api-base", server.url, "--concurrency", CONCURRENCY, *keys(preflight=False)]
    return ["score", *map(str, [export, *files, *lm, *more])]


@pytest.fixture(scope="module")
def undisturbed(export: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, int]:
    """The output of a run that nothing disturbs, and the number of its calls."""
    out = tmp_path_factory.mktemp("undisturbed") / "out.jsonl"
    with Recorder() as server:
        debate(*arguments(export, server, out))
        assert set(server.answered.values()) == {1}
    return out.read_bytes(), server.requests


def test_a_killed_run_goes_on_to_the_same_file_and_pays_only_what_was_in_flight_again(
    export: Path, undisturbed: tuple[bytes, int], tmp_path: Path
) -> None:
    (expected, calls), out = undisturbed, tmp_path / "out.jsonl"
    # Apart by more than what may be in flight at a kill and still arrive.
    rng = random.Random(11)
    moments = [rng.randrange(start, start + calls // 6) for start in (calls // 6, calls // 2, 5 * calls // 6)]
    running: list[subprocess.Popen[bytes]] = []

    def kill(body: bytes, attempt: int) -> None:
        if moments and server.requests >= moments[0]:
            del moments[0]
            running[-1].kill()

    with Recorder(kill, latency=LATENCY) as server:
        kills = len(moments)
        for _ in range(kills):
            running.append(subprocess.Popen([sys.executable, "-c", IN_PROCESS, *arguments(export, server, out)]))
            assert running[-1].wait(600) == -signal.SIGKILL
            # A file of this name is complete.
            assert not out.exists()
        debate(*arguments(export, server, out))
        assert calls <= server.requests <= calls + kills * CONCURRENCY
    assert out.read_bytes() == expected


def test_two_processes_on_one_store_make_each_call_once(
    export: Path, undisturbed: tuple[bytes, int], tmp_path: Path
) -> None:
    (expected, calls), outs = undisturbed, [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    with Recorder(latency=LATENCY) as server:
        commands = [[sys.executable, "-c", AT_A_SIGN, *arguments(export, server, out)] for out in outs]
        both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for command in commands]
        assert [process.stdout.readline() for process in both] == [b"ready\n"] * 2
        for process in both:
            process.stdin.write(b"\n")
            process.stdin.flush()
        for process in both:
            process.communicate(timeout=600)
            assert process.returncode == 0
        assert server.requests == calls
    assert [out.read_bytes() for out in outs] == [expected, expected]


def test_a_budget_is_never_passed_and_the_run_goes_on_with_the_next(
    export: Path, undisturbed: tuple[bytes, int], tmp_path: Path
) -> None:
    (expected, calls), out = undisturbed, tmp_path / "out.jsonl"
    budget = calls // 3 + 1
    codes = []
    with Recorder(latency=LATENCY / 10) as server:
        while not codes or codes[-1] != 0:
            before = server.requests
            with contextlib.redirect_stderr(io.StringIO()) as output:
                codes.append(cli.main(arguments(export, server, out, "--budget", f"calls={budget}")))
            assert 0 < server.requests - before <= budget, output.getvalue()
        assert server.requests == calls
    assert len(codes) >= 3
    assert out.read_bytes() == expected


def second_scores(first: list[str], export: Path, folder: Path) -> list[str]:
    """The rows of the second candidate of each source, where `first` are the texts of the first candidates."""
    folder.mkdir()
    groups = [json.loads(line) for line in (export.parent / "texts.jsonl").read_text(encoding="utf-8").splitlines()]
    for group, text in zip(groups, first, strict=True):
        group["candidates"][0] = {"id": "first", "text": text}
    source, out = folder / "in.jsonl", folder / "out.jsonl"
    source.write_text("".join(json.dumps(group) + "\n" for group in groups), encoding="utf-8")
    debate("score", export, "--in", source, "--out", out, "--store", folder / "store")
    rows = [json.loads(row) for row in out.read_text(encoding="utf-8").splitlines()]
    assert all(row["score"] is not None for row in rows)
    return [row for row in rows if row["candidate"] != "first"]


def test_no_text_changes_the_score_of_another(export: Path, tmp_path: Path) -> None:
    hostile = [*HOSTILE.values(), *OF_TABLES.values()]
    plain = second_scores([f"A plain sentence, number {n}." for n in range(TEXTS)], export, tmp_path / "plain")
    assert len(plain) == 2 * TEXTS
    for start in (0, len(hostile) - TEXTS):
        assert second_scores(hostile[start : start + TEXTS], export, tmp_path / f"hostile-{start}") == plain
