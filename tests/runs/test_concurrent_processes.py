"""Processes that were killed, or run at the same time: each call is paid once, and none disturbs another."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from debate_judge.optimize.compile import main
from debate_judge.runs.tracking.store import open_tracking_store
from tests.config_keys import keys
from tests.fakes import debater
from tests.faulty_server import FaultyServer
from tests.optimize.small_corpus import small_corpus
from tests.runs.score_command import over_http

pytestmark = pytest.mark.integration


def _compiled(begin: Barrier, arguments: Sequence[str]) -> None:
    begin.wait(60)
    os._exit(main(arguments))


def test_compiles_at_once_pay_once_for_what_they_have_in_common(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    spawn = multiprocessing.get_context("spawn")
    begin = spawn.Barrier(2)
    with FaultyServer(over_http(debater(score=lambda prompt: str(1 + len(prompt) % 5))), latency=0.01) as server:
        data = small_corpus(tmp_path, groups=8, candidates=3)
        # Once for both: MLflow is imported, and its tables made, in seconds.
        open_tracking_store(None, tmp_path / "store", "debate/small")
        common = ["--data", str(data), "--lm", "openai/mock", "--api-base", server.url]
        common += ["--store", str(tmp_path / "store"), "--aspects", "coherence", "--tuner", "none", "--effort", "light"]
        common += ["--max-rounds", "0", *keys(trials=1, preflight=False, report="none")]
        runs = (["--name", "one"], ["--name", "another", "--seed", "1"])
        processes = [spawn.Process(target=_compiled, args=(begin, (*common, *more)), daemon=True) for more in runs]
        for process in processes:
            process.start()
        for process in processes:
            process.join(120)
        assert [process.exitcode for process in processes] == [0, 0]
        assert set(server.answered.values()) == {1}
    assert all((tmp_path / "store" / "exports" / name).is_dir() for name in ("one", "another"))
    # Nor is a page made where none is wanted.
    assert not list((tmp_path / "store" / "exports").rglob("report*"))
