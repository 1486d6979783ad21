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

import psutil
import pyarrow.parquet as pq
import pytest

from debate_judge.programs.lm.store import FILE
from debate_judge.runs import score
from debate_judge.runs.distributed import driver, units
from debate_judge.runs.flags.parser import EXIT_INPUT
from tests.faulty_server import FaultyServer
from tests.runs.distributed_run import program, scoring_server, write_groups

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
        with driver.cluster(None, 2) as cluster:
            yield cluster


def actor_processes() -> list[int]:
    """The processes below this one in which an actor scores."""

    def title(process: psutil.Process) -> str:
        try:
            return " ".join(process.cmdline())
        except psutil.Error:
            return ""

    below = psutil.Process().children(recursive=True)
    return sorted(process.pid for process in below if title(process).startswith("ray::ScoringActor"))


class Saboteur(threading.Thread):
    """Kills an actor when some parts are there.

    `unstored` is how many replies were on their way from the server to the store at that moment, of both actors.
    """

    def __init__(self, folder: Path, server: FaultyServer) -> None:
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
            self.unstored += self.server.answered.total()

    def _stored(self) -> int:
        (file,) = (self.folder / "store").rglob(FILE)
        with closing(sqlite3.connect(file)) as database:
            return int(database.execute("SELECT count(*) FROM replies").fetchone()[0])


def test_a_killed_actor_loses_nothing(running: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    third = GROUPS // 3
    write_groups(tmp_path / "in-0.jsonl", range(third))
    write_groups(tmp_path / "in-1.csv", range(third, 2 * third))
    write_groups(tmp_path / "in-2.parquet", range(2 * third, GROUPS))
    arguments = [str(program(tmp_path)), "--store", str(tmp_path / "store")]

    with scoring_server(latency=0.05) as server:
        arguments += ["--api-base", server.url]
        distributed = [*arguments, "--engine", "ray", "--in", f"file://{tmp_path}/in-*", "--rpm", "100000"]
        distributed += ["--out", str(tmp_path / "out.parquet"), "--concurrency", str(CONCURRENCY)]
        saboteur = Saboteur(tmp_path, server)
        saboteur.start()
        assert score.main(distributed) == 0
        saboteur.over.set()
        saboteur.join()
        assert saboteur.killed
        rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
        expected = [(f"g{g}", f"c{c}", a) for g in range(GROUPS) for c in range(2) for a in ("tone", "help")]
        assert [(row["group"], row["candidate"], row["aspect"]) for row in rows] == expected
        assert all(row["unscored"] is None for row in rows)
        # Three calls for each text. Of the killed actor what was in flight is paid again, at most its share of
        # --concurrency, and what was answered but not yet stored; nothing that was stored.
        assert len(server.answered) == GROUPS * 2 * 3
        asked = server.answered.total()
        assert asked - len(server.answered) <= CONCURRENCY // 2 + saboteur.unstored
        # They are the rows of one process, which the store has all answers for.
        alone: list[dict[str, Any]] = []
        for file in sorted(tmp_path.glob("in-*")):
            out = tmp_path / f"scores-{file.stem}.jsonl"
            assert score.main([*arguments, "--in", str(file), "--out", str(out)]) == 0
            alone += [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        assert rows == alone
        # The same command has nothing left to do, and another one is refused.
        assert score.main(distributed) == 0
        assert "nothing left to do" in capsys.readouterr().err
        assert score.main([*distributed, "--aspects", "tone"]) == EXIT_INPUT
        assert "different aspects" in capsys.readouterr().err
        assert server.answered.total() == asked
