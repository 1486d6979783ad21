"""A compile over HTTP: what needs no other result is asked at once, and the result does not depend on it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from debate_judge.optimize import compile as command
from debate_judge.programs.lm.limits import ProviderDownError
from debate_judge.programs.offline import OfflineTransport
from debate_judge.runs.runner import JudgeRunner
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
    target = ["--store", str(folder / "store"), *keys(json=folder / "result.json"), "--folds", "4"]
    lm = ["--lm", "openai/m", "--api-base", server.url, "--concurrency", "64"]
    assert command.main([*options, *target, *lm, "--data", str(small_corpus(folder, 8, 3))]) == 0
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    for key in ("run_id", "export"):
        result.pop(key)
    return result


@pytest.mark.integration
def test_the_result_is_that_of_one_step_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    with FaultyServer(offline, latency=0.01) as server:
        at_once = compiled(tmp_path / "at-once", server)
        monkeypatch.setattr(JudgeRunner, "lm_is_remote", False)
        in_turn = compiled(tmp_path / "in-turn", server)
    calls, usual = at_once.pop("lm_calls"), in_turn.pop("lm_calls")
    assert at_once == in_turn
    assert calls["per_item"] == usual["per_item"]
    # Of a stage of the search, blocks of sources may be asked for that a step after the other would not ask for.
    assert usual["answered"] <= calls["answered"] <= 1.2 * usual["answered"]


def test_the_first_failure_ends_all_works_and_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(JudgeRunner, "lm_is_remote", True)

    def fails() -> None:
        raise ProviderDownError("gone", model="m")

    with JudgeRunner(scripted_lm(lambda prompt: ""), progress=False) as runner:

        def waits(number: int) -> None:
            try:
                runner.wait(asyncio.Event().wait())
            finally:
                ended.append(number)

        nested: Sequence[Callable[[], object]] = [lambda: waits(1), fails]
        with pytest.raises(ProviderDownError, match="gone"):
            runner.run_concurrently([lambda: waits(0), lambda: runner.run_concurrently(nested)])
    assert sorted(ended) == [0, 1]
