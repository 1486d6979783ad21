"""`score --engine ray` with actors in threads of this process in place of Ray, for tests of the command."""

from __future__ import annotations

import concurrent.futures
import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from debate_judge.programs import build, build_preset
from debate_judge.runs.distributed import driver, units
from tests.faulty_server import FaultyServer
from tests.runs.score_command import SCRIPT, TASK, ScoreCommand, export_of, line, over_http


class RayError(Exception):
    """As Ray's, of an actor that died."""


class RayTaskError(RayError):
    """As Ray's, of a method that raised something."""


Dies = Callable[["ActorHandle", str], bool]
"""Whether an actor dies of a unit that it is given."""


class ActorHandle:
    """An actor whose methods run in threads."""

    def __init__(self, start: Callable[[], Any], threads: int, dies_of: Dies) -> None:
        self._pool = ThreadPoolExecutor(threads)
        self._actor = self._pool.submit(start)
        self._dies_of = dies_of
        self.begun: list[str] = []
        """Units that it was given."""
        self.dead = False

    def __getattr__(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(remote=lambda *arguments: self._pool.submit(self._call, name, *arguments))

    def _call(self, name: str, *arguments: Any) -> Any:
        actor = self._actor.result()
        if name == "score":
            self.begun.append(arguments[0].name)
            self.dead = self.dead or self._dies_of(self, arguments[0].name)
        if self.dead and hasattr(actor, "_judge"):
            # What it had in flight is kept or not, as it comes.
            actor._judge.close()
        try:
            return None if self.dead else getattr(actor, name)(*arguments)
        finally:
            # Whatever a method was at, or stumbled over, while its process died.
            if self.dead:
                raise RayError("the actor died")

    def end(self) -> None:
        actor = self._actor.result()
        actor._stopping.set()
        if hasattr(actor, "_judge"):
            actor._judge.close()
        self._pool.shutdown()


class RayInThreads:
    """What the driver uses of Ray."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self) -> None:
        self.actors: list[ActorHandle] = []
        self.dies_of: Dies = lambda handle, unit: False

    def remote(self, actor_class: Callable[..., Any]) -> Any:
        def start(threads: int, arguments: tuple[Any, ...]) -> ActorHandle:
            # Sent to another process, as by Ray.
            sent = pickle.loads(pickle.dumps(arguments))
            self.actors.append(ActorHandle(lambda: actor_class(*sent), threads, self.dies_of))
            return self.actors[-1]

        return SimpleNamespace(
            options=lambda *, max_concurrency, **_: SimpleNamespace(
                remote=lambda *arguments: start(max_concurrency, arguments)
            )
        )

    def wait(self, awaited: Sequence[Future[Any]], *, num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        done, rest = concurrent.futures.wait(awaited, timeout, FIRST_COMPLETED)
        return list(done)[:num_returns], [*list(done)[num_returns:], *rest]

    def get(self, future: Future[Any]) -> Any:
        return future.result()

    def kill(self, handle: ActorHandle) -> None:
        handle.end()


class Command(ScoreCommand):
    """With actors in this process."""

    def __init__(self, folder: Path, server: FaultyServer, ray: RayInThreads) -> None:
        super().__init__(folder, program(folder), **{"engine": "ray", "in": folder / "in*", "api-base": server.url})
        self.server, self.ray = server, ray

    def lines(self) -> list[str]:
        return [line for part in self.parts() for line in (self.out / part).read_text(encoding="utf-8").splitlines()]

    def parts(self) -> list[str]:
        return sorted(file.name for file in self.out.glob("part-*"))


@contextmanager
def in_this_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """The command, with an LM that answers, and units of a few groups."""
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 400)
    monkeypatch.setattr(units, "TARGET_UNITS", 1 << 20)
    ray = RayInThreads()

    @contextmanager
    def cluster(address: str | None, actors: int) -> Iterator[RayInThreads]:
        yield ray

    monkeypatch.setattr(driver, "require_ray", lambda: None)
    monkeypatch.setattr(driver, "cluster", cluster)
    with scoring_server() as server:
        yield Command(folder, server, ray)


def program(folder: Path, spec: str = "openai/m") -> Path:
    """An export: a single call for one aspect, a debate for the other."""
    debate = build("debate", {"persona": "plain", "rounds": 1, "tie_breaker": False})
    return export_of(folder / "program", TASK, build_preset("single", {}), debate, lm=spec)


def group(number: int, candidates: int = 2) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(line(number, candidates))
    return record


def write_groups(path: Path, numbers: range) -> Path:
    """Groups as JSON Lines, or a row for each text as CSV or Parquet, by the file's name."""
    groups = [group(number) for number in numbers]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in groups), encoding="utf-8")
        return path
    frame = pd.DataFrame([(g["group"], c["id"], g["source"], c["text"]) for g in groups for c in g["candidates"]])
    frame.columns = ["group", "candidate", "source", "text"]
    (frame.to_csv if path.suffix == ".csv" else frame.to_parquet)(path, index=False)
    return path


def scoring_server(latency: float = 0.0) -> FaultyServer:
    """A chat server that scores the texts."""
    return FaultyServer(over_http(SCRIPT), latency=latency)
