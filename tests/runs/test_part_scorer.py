"""What an actor of a distributed run does, in this process and without Ray: parts, limits, an end in order."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from debate_judge.programs.lm.options import BudgetCaps, LMOptions
from debate_judge.runs import score
from debate_judge.runs.distributed.inputs import find_inputs, slices
from debate_judge.runs.distributed.job import PartDone, ScoringJob, packed, shares_of
from debate_judge.runs.distributed.out_folder import OutFolder
from debate_judge.runs.distributed.parts import PartShape, ScoringPart, parts_of
from debate_judge.runs.distributed.pipeline import ScoringActor
from debate_judge.runs.distributed.scorer import PartScorer
from debate_judge.runs.distributed.service import RunService
from debate_judge.runs.distributed.slice_reading import SliceReading
from debate_judge.runs.export.manifest import read
from tests.runs.distributed_run import AnsweringServer, InProcess, program, write_jsonl
from tests.runs.score_command import TASK


class Scene:
    """A job, and the service that its actors share."""

    def __init__(self, folder: Path, url: str, options: LMOptions | None = None, groups: int = 12) -> None:
        self.folder = folder
        self.source = write_jsonl(folder / "in.jsonl", range(groups))
        self.out = OutFolder(str(folder / "out.jsonl"))
        self.options = options or LMOptions(first_wait=0.05)
        self.service = self.served("run", shares_of(self.options.budget, 2))
        self.job = ScoringJob(
            program=packed(read(program(folder))),
            judges=(),
            lm=None,
            api_base=url,
            concurrency=4,
            store=str(folder / "replies"),
            replies=None,
            options=self.options,
            budgeted=bool(self.options.budget),
            prices=None,
            max_tokens=None,
            aspects=("tone", "help"),
            scale="judge",
            out=self.out,
        )

    def served(self, run: str, shares: Sequence[BudgetCaps] = ()) -> InProcess:
        return InProcess(RunService(self.out, run, shares))

    @contextmanager
    def actors(self, count: int) -> Iterator[list[PartScorer]]:
        with ExitStack() as opened:
            found = [PartScorer(self.job, self.service) for _ in range(count)]
            for one in found:
                opened.callback(one.close)
            yield found

    def score(self, actors: list[PartScorer], size: int = 2) -> list[PartDone]:
        """Have the actors score all parts, each in a thread of its own."""
        (piece,) = slices(find_inputs(str(self.source)), ())
        parts = list(parts_of(piece, SliceReading(TASK), PartShape(size, 2, 512), self.out, self.out.part_names()))
        done: list[PartDone] = []

        def work(actor: PartScorer, number: int) -> None:
            for part in parts[number :: len(actors)]:
                done.append(actor.score(part))

        run_together([lambda a=actor, n=n: work(a, n) for n, actor in enumerate(actors)])
        return done

    def rows(self) -> list[str]:
        files = sorted((self.folder / "out.jsonl").glob("part-*"))
        return [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def run_together(work: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[AnsweringServer]:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    with AnsweringServer() as server:
        yield server


def test_rows_are_those_of_one_process(tmp_path: Path, server: AnsweringServer) -> None:
    scene = Scene(tmp_path, server.url)
    with scene.actors(2) as actors:
        done = scene.score(actors)
    assert sum(one.rows.rows for one in done if one.rows) == 48
    assert [one.parts for one in done if one.parts is not None] == [6]
    arguments = [tmp_path / "program", "--in", scene.source, "--out", tmp_path / "one.jsonl"]
    arguments += ["--store", tmp_path / "store", "--api-base", server.url]
    assert score.main([str(part) for part in arguments]) == 0
    assert scene.rows() == (tmp_path / "one.jsonl").read_text(encoding="utf-8").splitlines()


def test_a_part_that_is_scored_again_pays_nothing(tmp_path: Path, server: AnsweringServer) -> None:
    scene = Scene(tmp_path, server.url)
    with scene.actors(1) as actors:
        scene.score(actors)
    before, rows = server.asked.total(), scene.rows()
    assert max(server.asked.values()) == 1
    for file in (tmp_path / "out.jsonl").glob("part-*"):
        file.unlink()
    with scene.actors(2) as actors:
        done = scene.score(actors)
    assert scene.rows() == rows
    assert server.asked.total() == before
    assert sum(one.meter.executed.total() for one in done if one.meter) == 0


def test_a_budget_holds_over_two_actors(tmp_path: Path, server: AnsweringServer) -> None:
    scene = Scene(tmp_path, server.url, LMOptions(budget=BudgetCaps(calls=30), first_wait=0.05), groups=20)
    with scene.actors(2) as actors:
        done = scene.score(actors)
    assert 15 <= server.asked.total() <= 30
    failures = [one.failure for one in done if one.failure is not None]
    assert {code for code, _ in failures} == {3}
    assert "15 of 15 calls" in failures[0][1]
    # A process that replaces a killed one has no share, for that one may have spent it.
    killed = ScoringActor(scene.job, lambda: scene.service)._scored(ScoringPart("s", "s-0", b"groups"))
    assert killed.failure is not None
    assert killed.failure[0] == 3
    assert "killed" in killed.failure[1]
    assert "raise --budget" in failures[0][1]
    # What was finished stays, and a larger budget goes on from what was answered.
    finished = len(scene.rows())
    scene.service = scene.served("next", shares_of(BudgetCaps(calls=1000), 2))
    with scene.actors(2) as actors:
        scene.score(actors)
    assert len(scene.rows()) == 80 > finished
    assert max(server.asked.values()) == 1


def test_requests_a_minute_hold_over_two_actors(tmp_path: Path, server: AnsweringServer) -> None:
    # Each has half of 1200.
    scene = Scene(tmp_path, server.url, LMOptions(rpm=600, first_wait=0.05), groups=10)
    with scene.actors(2) as actors:
        begun = time.monotonic()
        scene.score(actors)
    arrived = sorted(server.arrived)
    assert len(arrived) == 60
    # Twenty a second, and one second's worth at once; a busy machine only makes them later.
    assert all(number <= 21 + 20 * (at - begun) for number, at in enumerate(arrived))


def test_refusals_cost_no_score(tmp_path: Path, server: AnsweringServer) -> None:
    server.latency, server.refuse = 0.02, 12
    scene = Scene(tmp_path, server.url, groups=15)
    with scene.actors(2) as actors:
        done = scene.score(actors)
    assert server.refused == 12
    assert sum(one.rows.rows for one in done if one.rows) == 60
    assert all(one.rows is None or not one.rows.unscored for one in done)


def test_items_without_a_score_have_rows_with_the_reason(tmp_path: Path, server: AnsweringServer) -> None:
    whole = server._answer

    def sometimes(prompt: str) -> str:
        return "no field at all" if "reply 31" in prompt else whole(prompt)

    server._answer = sometimes
    scene = Scene(tmp_path, server.url)
    with scene.actors(1) as actors:
        done = scene.score(actors)
    rows = [json.loads(line) for line in scene.rows()]
    missing = [row for row in rows if row["score"] is None]
    assert {(row["candidate"], row["unscored"]) for row in missing} == {("c1", "unreadable reply")}
    assert sum(one.rows.unscored.total() for one in done if one.rows) == len(missing) == 2


def test_a_wrong_key_ends_the_run_and_names_the_remedy(
    tmp_path: Path, server: AnsweringServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "reply", lambda body: (401, b'{"error": {"message": "wrong key sk-secret123456"}}'))
    scene = Scene(tmp_path, server.url)
    with scene.actors(2) as actors:
        done = scene.score(actors)
    code, text = next(one.failure for one in done if one.failure is not None)
    assert code == 3
    assert "OPENAI_API_KEY" in text
    assert "sk-secret123456" not in text
    assert scene.rows() == []


def test_actors_that_are_stopped_keep_what_was_in_flight(tmp_path: Path, server: AnsweringServer) -> None:
    server.latency = 0.05
    scene = Scene(tmp_path, server.url, groups=60)
    with scene.actors(2) as actors:
        stop = threading.Timer(1.0, lambda: scene.service.service.status(stop=True))
        stop.start()
        done = scene.score(actors)
        stop.join()
    status = scene.service.service.status()
    assert status.idle
    assert [one.failure for one in done if one.failure] == []
    assert any(one.rows is None and one.name for one in done)
    # All that was asked was answered and kept: the same again asks only what is new.
    scene.service = scene.served("next")
    server.latency = 0.0
    with scene.actors(1) as actors:
        scene.score(actors)
    assert len(scene.rows()) == 240
    assert max(server.asked.values()) == 1


def test_an_actor_that_does_not_see_the_folder_of_the_results_says_so(tmp_path: Path, server: AnsweringServer) -> None:
    scene = Scene(tmp_path, server.url)
    scene.out.require_made_from({"program": "p"})
    # The same path, on a machine where it is another folder.
    seen: OutFolder = pickle.loads(pickle.dumps(scene.out))
    seen.url = str(tmp_path / "other.jsonl")
    actor = ScoringActor(replace(scene.job, out=seen), lambda: scene.service)
    done = actor._scored(ScoringPart("00000-00000", "00000-00000-000000", b"groups"))
    assert done.failure is not None
    assert done.failure[0] == score.EXIT_INPUT
    assert "does not see the folder of the results" in done.failure[1]
    assert "that all machines of the cluster share, or an object store" in done.failure[1]
    assert not (tmp_path / "other.jsonl").exists()
