"""A compile over HTTP: what needs no other result is asked at once, and the result does not depend on it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from debate_judge.optimize import compile as command
from debate_judge.programs.lm.errors import ProviderDownError
from debate_judge.programs.offline.engine import OfflineTransport
from debate_judge.runs.runner.runner import JudgeRunner
from tests.config_keys import keys
from tests.fakes import scripted_lm
from tests.faulty_server import FaultyServer
from tests.optimize.small_corpus import small_corpus


def offline(body: bytes) -> str:
    """What the offline LM says to a request."""
    messages = json.loads(body)["messages"]
    system = next((m["content"] for m in messages if m["role"] == "system"), "")
    return OfflineTransport().answer(system, messages[-1]["content"], {}).text


def compiled(folder: Path, server: FaultyServer) -> dict[str, Any]:
    folder.mkdir()
    options = ["--aspects", "coherence,fluency", "--max-rounds", "0", "--effort", "light", *keys(report="none")]
    place = ["--store", str(folder / "store"), *keys(json=folder / "result.json"), "--folds", "4"]
    lm = ["--lm", "openai/m", "--api-base", server.url, "--concurrency", "64"]
    assert command.main([*options, *place, *lm, "--data", str(small_corpus(folder, 8, 3)), *keys(resamples=200)]) == 0
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    for own in ("run_id", "export"):
        found.pop(own)
    return found


class Waiting:
    """Counts how many pieces of work wait for the LM at the same time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.most = 0
        lock, wait = threading.Lock(), JudgeRunner.wait

        def counted(runner: JudgeRunner, work: Coroutine[Any, Any, Any]) -> Any:
            with lock:
                self.now += 1
                self.most = max(self.most, self.now)
            try:
                return wait(runner, work)
            finally:
                with lock:
                    self.now -= 1

        monkeypatch.setattr(JudgeRunner, "wait", counted)


@pytest.mark.integration
def test_the_result_is_that_of_one_step_after_the_other_and_the_calls_are_on_their_way_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    waiting = Waiting(monkeypatch)
    with FaultyServer(offline, latency=0.01) as server:
        run_concurrently = compiled(tmp_path / "at-once", server)
        most, waiting.most = waiting.most, 0
        monkeypatch.setattr(JudgeRunner, "lm_is_remote", False)
        in_turn = compiled(tmp_path / "in-turn", server)
    # Two halves of the folds are tuned in two aspects.
    assert most >= 4
    assert waiting.most == 1
    calls, usual = run_concurrently.pop("lm_calls"), in_turn.pop("lm_calls")
    assert run_concurrently == in_turn
    assert calls["per_item"] == usual["per_item"]
    # Of a stage of the search, blocks of sources may be asked for that a step after the other would not ask for.
    assert usual["executed"] <= calls["executed"] <= 1.2 * usual["executed"]


def runner_of(answer: str, *, waits: bool, monkeypatch: pytest.MonkeyPatch) -> JudgeRunner:
    monkeypatch.setattr(JudgeRunner, "lm_is_remote", waits)
    return JudgeRunner(scripted_lm(lambda prompt: answer), progress=False)


def test_the_first_failure_ends_all_works_and_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []

    def fails() -> None:
        raise ProviderDownError("gone", model="m")

    with runner_of("", waits=True, monkeypatch=monkeypatch) as runner:

        def waits(number: int) -> None:
            try:
                runner.wait(forever())
            finally:
                ended.append(number)

        nested: Sequence[Callable[[], object]] = [lambda: waits(1), fails]
        with pytest.raises(ProviderDownError, match="gone"):
            runner.run_concurrently([lambda: waits(0), lambda: runner.run_concurrently(nested)])
    assert sorted(ended) == [0, 1]


async def forever() -> None:
    import asyncio

    await asyncio.Event().wait()
