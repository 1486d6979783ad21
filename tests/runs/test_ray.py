"""Scoring by Ray itself: the rows of one process, although an actor and the service are killed on the way."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from debate_judge.runs import score
from debate_judge.runs.distributed import engine, pipeline
from debate_judge.runs.distributed.inputs import find_inputs, slices
from debate_judge.runs.distributed.out_folder import OutFolder
from debate_judge.runs.distributed.parts import PartShape
from debate_judge.runs.distributed.slice_reading import SliceReading
from tests.config_keys import keys
from tests.runs.distributed_run import TASK, AnsweringServer, program, write_csv, write_jsonl, write_parquet

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")

GROUPS = 90


@pytest.fixture(scope="module")
def running() -> Iterator[Any]:
    """Ray on this machine, shared by all tests of the file."""
    with pytest.MonkeyPatch.context() as patch:
        # Workers have the environment that Ray was started in.
        patch.setenv("OPENAI_API_KEY", "unused")
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "true")
        with engine.cluster(None, 2) as found:
            yield found


class Saboteur(threading.Thread):
    """Kills an actor when some parts stand, and the service a little later."""

    def __init__(self, out: Path) -> None:
        super().__init__(daemon=True)
        self.out = out
        self.killed: list[int] = []
        self.service_killed = False
        self.over = threading.Event()

    def run(self) -> None:
        self._wait_for(2)
        names = [one["name"] for one in ray.util.list_named_actors(all_namespaces=True)]
        (name,) = [name for name in names if name.startswith("debate-service-")]
        service = ray.get_actor(name, namespace=engine.NAMESPACE)
        news = ray.get(service.status.remote()).news.values()
        self.killed = [max(one.process for one in news)]
        os.kill(self.killed[0], signal.SIGKILL)
        self._wait_for(6)
        ray.kill(service, no_restart=False)
        self.service_killed = True

    def _wait_for(self, parts: int) -> None:
        while len(list(self.out.glob("part-*"))) < parts and not self.over.is_set():
            time.sleep(0.02)


@pytest.fixture(scope="module")
def scored(running: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, AnsweringServer, Saboteur]]:
    folder = tmp_path_factory.mktemp("ray")
    third = GROUPS // 3
    write_jsonl(folder / "in-0.jsonl", range(third))
    write_csv(folder / "in-1.csv", range(third, 2 * third))
    write_parquet(folder / "in-2.parquet", range(2 * third, GROUPS))
    program(folder)
    saboteur = Saboteur(folder / "out.parquet")
    with AnsweringServer(latency=0.05) as server:
        saboteur.start()
        assert run(folder, server) == 0
        saboteur.over.set()
        saboteur.join()
        yield folder, server, saboteur


def run(folder: Path, server: AnsweringServer, *more: str) -> int:
    arguments = ["--engine", "ray", folder / "program", "--in", f"file://{folder}/in-*"]
    arguments += ["--out", folder / "out.parquet", "--store", folder / "store", "--api-base", server.url]
    arguments += [*keys(part=5), "--concurrency", "8", "--rpm", "100000", *more]
    return score.main([str(part) for part in arguments])


def test_each_part_is_a_task_of_its_own(running: Any, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", range(20))
    out = OutFolder(str(tmp_path / "out.jsonl"))
    parts = pipeline.PartsToScore(
        slices(find_inputs(str(path)), ()), SliceReading(TASK), PartShape(3, 2, 512), out, frozenset()
    )
    read = pipeline.read_parts(running, parts, 2)
    # Seven parts, and the end of the slice.
    assert [rows for bundle in read.iter_internal_ref_bundles() for rows in [bundle.num_rows()]] == [1] * 8


Scored = tuple[Path, AnsweringServer, Saboteur]


def test_a_killed_actor_and_a_killed_service_lose_nothing(scored: Scored) -> None:
    folder, server, saboteur = scored
    assert saboteur.killed
    assert saboteur.service_killed
    assert len(list((folder / "out.parquet").glob("part-*"))) == GROUPS // 5
    rows = pq.read_table(folder / "out.parquet").to_pylist()
    expected = [(f"g{g}", f"c{c}", a) for g in range(GROUPS) for c in range(2) for a in ("tone", "help")]
    assert [(row["group"], row["candidate"], row["aspect"]) for row in rows] == expected
    assert all(row["unscored"] is None for row in rows)
    # Three calls for each text; of the killed actor at most what was in flight is paid again.
    assert len(server.asked) == GROUPS * 2 * 3
    assert server.asked.total() - len(server.asked) <= 4
    assert not list((folder / "out.parquet").glob("_service*"))


def test_rows_are_those_of_one_process(scored: Scored) -> None:
    folder, server, _ = scored
    alone: list[dict[str, Any]] = []
    for file in sorted(folder.glob("in-*")):
        out = folder / f"scores-{file.stem}.jsonl"
        arguments = [folder / "program", "--in", file, "--out", out, "--store", folder / "store"]
        assert score.main([*map(str, arguments), "--api-base", server.url]) == 0
        alone += [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert pq.read_table(folder / "out.parquet").to_pylist() == alone
    # The journal knew all answers.
    assert server.asked.total() - len(server.asked) <= 4


def test_the_same_command_has_nothing_left_to_do(scored: Scored, capsys: pytest.CaptureFixture[str]) -> None:
    folder, server, _ = scored
    asked = server.asked.total()
    assert run(folder, server) == 0
    assert "nothing left to do" in capsys.readouterr().err
    assert run(folder, server, "--aspects", "tone") == score.EXIT_INPUT
    assert "another aspects" in capsys.readouterr().err
    assert server.asked.total() == asked
