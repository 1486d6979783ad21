"""Scoring by Ray itself: the rows of one process, although an actor is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from debate_judge.programs.lm.store import FILE
from debate_judge.runs import score
from debate_judge.runs.distributed import driver, units
from debate_judge.runs.flags.parser import EXIT_INPUT
from tests.runs.distributed_run import AnsweringServer, program, write_csv, write_jsonl, write_parquet

pytestmark = pytest.mark.integration

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")

GROUPS = 90
CONCURRENCY = 8
"""Of two actors together."""


@pytest.fixture(scope="module")
def running() -> Iterator[Any]:
    """Ray on this machine, shared by all tests of the file."""
    with pytest.MonkeyPatch.context() as patch:
        # Workers have the environment that Ray was started in.
        patch.setenv("OPENAI_API_KEY", "unused")
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "true")
        patch.setattr(units, "MIN_UNIT_BYTES", 1000)
        patch.setattr(units, "TARGET_UNITS", 1 << 20)
        with driver.cluster(None, 2) as found:
            yield found


def actor_processes() -> list[int]:
    """The processes below this one in which an actor scores."""
    parents, actors = {}, []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if (entry / "cmdline").read_bytes().startswith(b"ray::ScoringActor"):
                actors.append(int(entry.name))
        except OSError:
            continue

    def below(process: int) -> bool:
        while process not in (0, os.getpid()):
            process = parents.get(process, 0)
        return process == os.getpid()

    return sorted(process for process in actors if below(process))


class Saboteur(threading.Thread):
    """Kills an actor when some parts are there.

    `unstored` is how many replies were on their way from the server to the store at that moment, of both actors.
    """

    def __init__(self, folder: Path, server: AnsweringServer) -> None:
        super().__init__(daemon=True)
        self.folder, self.server = folder, server
        self.killed: list[int] = []
        self.unstored = 0
        self.over = threading.Event()

    def run(self) -> None:
        while len(list((self.folder / "out.parquet").glob("part-*"))) < 3 and not self.over.is_set():
            time.sleep(0.02)
        self.killed = actor_processes()[:1]
        for process in self.killed:
            # What is stored is counted while the actor is stopped: it stores nothing more.
            os.kill(process, signal.SIGSTOP)
            try:
                self.unstored = -self._stored()
            finally:
                os.kill(process, signal.SIGKILL)
            self.unstored += self.server.asked.total()

    def _stored(self) -> int:
        (file,) = (self.folder / "store").rglob(FILE)
        with closing(sqlite3.connect(file)) as database:
            return int(database.execute("SELECT count(*) FROM replies").fetchone()[0])


Scored = tuple[Path, AnsweringServer, Saboteur]


@pytest.fixture(scope="module")
def scored(running: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scored]:
    folder = tmp_path_factory.mktemp("ray")
    third = GROUPS // 3
    write_jsonl(folder / "in-0.jsonl", range(third))
    write_csv(folder / "in-1.csv", range(third, 2 * third))
    write_parquet(folder / "in-2.parquet", range(2 * third, GROUPS))
    program(folder)
    with AnsweringServer(latency=0.05) as server:
        saboteur = Saboteur(folder, server)
        saboteur.start()
        assert run(folder, server) == 0
        saboteur.over.set()
        saboteur.join()
        yield folder, server, saboteur


def run(folder: Path, server: AnsweringServer, *more: str) -> int:
    arguments = ["--engine", "ray", folder / "program", "--in", f"file://{folder}/in-*"]
    arguments += ["--out", folder / "out.parquet", "--store", folder / "store", "--api-base", server.url]
    arguments += ["--concurrency", str(CONCURRENCY), "--rpm", "100000", *more]
    return score.main([str(part) for part in arguments])


def test_a_killed_actor_loses_nothing(scored: Scored) -> None:
    folder, server, saboteur = scored
    assert saboteur.killed
    rows = pq.read_table(folder / "out.parquet").to_pylist()
    expected = [(f"g{g}", f"c{c}", a) for g in range(GROUPS) for c in range(2) for a in ("tone", "help")]
    assert [(row["group"], row["candidate"], row["aspect"]) for row in rows] == expected
    assert all(row["unscored"] is None for row in rows)
    # Three calls for each text. Of the killed actor what was in flight is paid again, at most its share of
    # --concurrency, and what was answered but not yet stored; nothing that was stored.
    assert len(server.asked) == GROUPS * 2 * 3
    assert server.asked.total() - len(server.asked) <= CONCURRENCY // 2 + saboteur.unstored


def test_rows_are_those_of_one_process(scored: Scored) -> None:
    folder, server, _ = scored
    asked = server.asked.total()
    alone: list[dict[str, Any]] = []
    for file in sorted(folder.glob("in-*")):
        out = folder / f"scores-{file.stem}.jsonl"
        arguments = [folder / "program", "--in", file, "--out", out, "--store", folder / "store"]
        assert score.main([*map(str, arguments), "--api-base", server.url]) == 0
        alone += [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert pq.read_table(folder / "out.parquet").to_pylist() == alone
    # The store knew all answers.
    assert server.asked.total() == asked


def test_the_same_command_has_nothing_left_to_do(scored: Scored, capsys: pytest.CaptureFixture[str]) -> None:
    folder, server, _ = scored
    asked = server.asked.total()
    assert run(folder, server) == 0
    assert "nothing left to do" in capsys.readouterr().err
    assert run(folder, server, "--aspects", "tone") == EXIT_INPUT
    assert "different aspects" in capsys.readouterr().err
    assert server.asked.total() == asked
