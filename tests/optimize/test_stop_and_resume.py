"""A compile is stopped and killed at random moments, and resumed under other hash seeds: the result is the same as
without, and no call is executed twice."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.config_keys import keys
from tests.optimize.small_corpus import small_corpus

pytestmark = pytest.mark.integration

CONCURRENCY = 8
ARGUMENTS = [
    *("--aspects", "coherence", "--max-rounds", "1", *keys(trials=4), "--effort", "light"),
    *("--concurrency", str(CONCURRENCY), "--folds", "1", *keys(report="none")),
]
ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("counted_compile.py")
PLAIN = {"PYTHONPATH": f"{ROOT / '.src'}:{ROOT}", "PATH": "/usr/bin:/bin"}


def start(folder: Path, pause: float, tuner: str, hash_seed: int = 0) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    output = ["--store", str(folder / "store"), *keys(json=folder / "result.json")]
    arguments = [*ARGUMENTS, "--data", str(small_corpus(folder, 8, 3)), "--tuner", tuner, *output]
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder / "calls.log"), str(pause), *arguments],
        cwd=folder,
        env={**PLAIN, "HOME": str(folder), "PYTHONHASHSEED": str(hash_seed)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        # A process that a shell started in the background ignores Ctrl-C, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def calls(folder: Path) -> list[str]:
    log = folder / "calls.log"
    return log.read_text().split() if log.exists() else []


def result(folder: Path, tuner: str) -> dict[str, object]:
    content = json.loads((folder / "result.json").read_text())
    # What a run is called and how much of it was left to do are its own; everything else must be equal.
    for count in ("answered", "from_cache"):
        content["lm_calls"].pop(count)
    for key in ("run_id", "export"):
        content.pop(key)
    return dict(content)


@pytest.mark.parametrize("tuner", ["guide", pytest.param("gepa", marks=pytest.mark.soak)])
def test_a_compile_that_was_stopped_resumes_to_the_same_result_without_paying_twice(
    tmp_path: Path, tuner: str, new_tables: Callable[[Path], None]
) -> None:
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    for folder in (straight, killed):
        new_tables(folder / "store" / "mlflow.db")
    process = start(straight, 0.0, tuner)
    errors = process.communicate(timeout=300)[1]
    assert process.returncode == 0, errors.decode()
    needed = len(calls(straight))
    assert len(set(calls(straight))) == needed

    kills, moments = 0, sorted(random.Random(5).sample(range(1, needed), 2))
    for how, stop_after in zip((signal.SIGINT, signal.SIGKILL), moments, strict=True):
        process = start(killed, 0.002, tuner, stop_after)
        while process.poll() is None and len(calls(killed)) < stop_after:
            time.sleep(0.01)
        if process.poll() is None:
            process.send_signal(how)
            kills += 1
        output = process.communicate(timeout=60)[1].decode()
        if how == signal.SIGINT:
            assert process.returncode == 130, output
            assert "command again" in output
            assert "Traceback" not in output
    assert kills
    process = start(killed, 0.0, tuner, 4711)
    errors = process.communicate(timeout=300)[1]
    assert process.returncode == 0, errors.decode()

    assert result(killed, tuner) == result(straight, tuner)
    executed = Counter(calls(killed))
    assert set(executed) == set(calls(straight))
    # A call that was in flight when the process died had not been answered; it is asked again.
    repeated = sum(executed.values()) - len(executed)
    assert repeated <= kills * CONCURRENCY
    with closing(sqlite3.connect(killed / "store" / "mlflow.db")) as database:
        states = Counter(
            status for (status,) in database.execute("SELECT status FROM runs WHERE lifecycle_stage = 'active'")
        )
    assert states["RUNNING"] == 0
    assert states["FINISHED"] > 1


def test_two_processes_with_the_same_compile_pay_each_call_once(
    tmp_path: Path, new_tables: Callable[[Path], None]
) -> None:
    new_tables(tmp_path / "store" / "mlflow.db")
    processes = [start(tmp_path, 0.002, "guide", hash_seed) for hash_seed in (1, 2)]
    errors = [process.communicate(timeout=300)[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    assert set(Counter(calls(tmp_path)).values()) == {1}
