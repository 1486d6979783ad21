"""`score --engine ray` with actors in threads of this process in place of Ray, for tests of the command."""

from __future__ import annotations

import concurrent.futures
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from debate_judge.runs import score
from debate_judge.runs.distributed import driver, units
from tests.runs.distributed_run import AnsweringServer, program


class RayError(Exception):
    """As Ray's, of an actor that died."""


class RayTaskError(RayError):
    """As Ray's, of a method that raised something."""


Dies = Callable[["ActorHandle", str], bool]
"""Whether an actor dies of a unit that it is given."""


class ActorHandle:
    """An actor whose methods run in threads."""

    def __init__(self, made: Callable[[], Any], threads: int, dies_of: Dies) -> None:
        self._pool = ThreadPoolExecutor(threads)
        self._actor = self._pool.submit(made)
        self._dies_of = dies_of
        self.begun: list[str] = []
        """Units that it was given."""
        self.dead = False

    def __getattr__(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(remote=lambda *given: self._pool.submit(self._call, name, *given))

    def _call(self, name: str, *given: Any) -> Any:
        actor = self._actor.result()
        if name == "score":
            self.begun.append(given[0].name)
            self.dead = self.dead or self._dies_of(self, given[0].name)
        if self.dead and hasattr(actor, "_judge"):
            # What it had in flight is kept or not, as it comes.
            actor._judge.close()
        try:
            return None if self.dead else getattr(actor, name)(*given)
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

    def remote(self, made: Callable[..., Any]) -> Any:
        def start(threads: int, given: tuple[Any, ...]) -> ActorHandle:
            # Sent to another process, as by Ray.
            sent = pickle.loads(pickle.dumps(given))
            self.actors.append(ActorHandle(lambda: made(*sent), threads, self.dies_of))
            return self.actors[-1]

        return SimpleNamespace(
            options=lambda *, max_concurrency, **_: SimpleNamespace(remote=lambda *given: start(max_concurrency, given))
        )

    def wait(self, awaited: Sequence[Future[Any]], *, num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        done, rest = concurrent.futures.wait(awaited, timeout, FIRST_COMPLETED)
        return list(done)[:num_returns], [*list(done)[num_returns:], *rest]

    def get(self, future: Future[Any]) -> Any:
        return future.result()

    def kill(self, handle: ActorHandle) -> None:
        handle.end()


class Command:
    """The command in a folder of its own."""

    def __init__(self, folder: Path, server: AnsweringServer, ray: RayInThreads) -> None:
        self.folder, self.server, self.ray = folder, server, ray
        self.program = program(folder)
        self.out = folder / "out.jsonl"

    def __call__(self, *more: str, **replace: str | Path) -> int:
        arguments: dict[str, str | Path] = {
            "--engine": "ray",
            "--in": self.folder / "in*",
            "--out": self.out,
            "--store": self.folder / "store",
            "--api-base": self.server.url,
        }
        program = replace.pop("program", self.program)
        arguments |= {"--" + name.replace("_", "-"): value for name, value in replace.items()}
        flags = [str(part) for pair in arguments.items() for part in pair]
        return score.main([str(program), *flags, *more])

    def rows(self) -> list[str]:
        return [line for f in sorted(self.out.glob("part-*")) for line in f.read_text(encoding="utf-8").splitlines()]

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
    with AnsweringServer() as server:
        yield Command(folder, server, ray)
