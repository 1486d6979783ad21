"""How close `score --engine ray` comes to what the provider allows, and what a killed actor costs.

    python -m tests.bench.distributed --items 100000 --actors 1,2,4 --rpm 6000 --json distributed.json

Items of one call each against a mock server that this script starts, all on this machine. The ideal is
max(calls / rpm, calls x latency / concurrency). In the middle of each run one actor is killed (SIGKILL). Then it is
checked that there is a row for every item, and that the server was asked each prompt once, but for what the killed
actor had in flight. Time runs from the first request that the server sees to the last; memory is that of the largest
actor, in MB at each quarter of the calls; whole seconds include the start of Ray and of the actors.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.bench.harness import ENVIRONMENT, Row, parser_of, publish, save_export
from tests.bench.mock_server import started
from tests.config_keys import keys

WORDS = ("council", "voted", "plan", "bridge", "debate", "cost", "place", "river", "year", "tax", "mayor", "street")


def write_items(folder: Path, count: int, files: int = 4) -> None:
    for number in range(files):
        with (folder / f"in-{number}.jsonl").open("w", encoding="utf-8") as file:
            for item in range(number, count, files):
                source = f"Item-{item} " + " ".join(WORDS[(item + i) % len(WORDS)] for i in range(60))
                candidate = {"id": "c", "text": f"The council voted, says report {item}."}
                file.write(json.dumps({"group": f"g{item}", "source": source, "candidates": [candidate]}) + "\n")


def stats(base: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{base}/stats", timeout=60) as answer:
        counts: dict[str, float] = json.load(answer)
    return counts


def actors_of(driver: int) -> dict[int, float]:
    """Process -> MB, of the actors that descend from a driver."""
    import psutil

    actors = {}
    for process in psutil.Process(driver).children(recursive=True):
        try:
            if "".join(process.cmdline()).startswith("ray::ScoringActor"):
                actors[process.pid] = process.memory_info().rss / 1e6
        except psutil.Error:
            continue
    return actors


def measure(base: str, folder: Path, given: argparse.Namespace, actors: int) -> Row:
    place = folder / f"run-{actors}"
    command = [sys.executable, "-m", "debate_judge.runs.score", str(folder / "program"), "--engine", "ray"]
    command += ["--in", str(folder / "in-*.jsonl"), "--out", str(place / "out.parquet")]
    command += ["--store", str(place / "store"), "--api-base", f"{base}/v1", "--concurrency", str(given.concurrency)]
    command += [*keys(actors=actors, preflight=False), *(["--rpm", str(given.rpm)] if given.rpm else [])]
    urllib.request.urlopen(urllib.request.Request(f"{base}/reset", method="POST"), timeout=60).close()
    began, memory = time.monotonic(), []
    with subprocess.Popen(command, env=ENVIRONMENT) as driver:
        while driver.poll() is None:
            time.sleep(1.0)
            quarter = (len(memory) + 1) * given.items / 4
            if stats(base)["requests"] >= quarter and (sizes := actors_of(driver.pid)):
                memory.append(round(max(sizes.values())))
                if len(memory) == 2:
                    os.kill(max(sizes), signal.SIGKILL)
    if driver.returncode:
        raise RuntimeError(f"the command ended with {driver.returncode}")
    last = stats(base)
    twice = int(last["requests"] - last["different"])
    in_flight = -(-given.concurrency // actors)
    if last["different"] != given.items or twice > in_flight:
        raise RuntimeError(f"{last['different']} prompts and {twice} calls made again, at most {in_flight} in flight")
    check_rows(place / "out.parquet", given.items)
    by_rate = given.items * 60 / given.rpm if given.rpm else 0.0
    ideal = max(by_rate, given.items * given.latency / given.concurrency)
    return {
        "actors": actors,
        "items": given.items,
        "ideal s": ideal,
        "seconds": last["seconds"],
        "efficiency": ideal / last["seconds"],
        "items/s": given.items / last["seconds"],
        "calls twice": twice,
        "actor MB": "/".join(map(str, memory)),
        "whole s": time.monotonic() - began,
    }


def check_rows(folder: Path, items: int) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(folder, columns=["group", "unscored"])
    if table["unscored"].null_count != len(table):
        raise RuntimeError("an item has no score")
    if missing := items - len(set(table["group"].to_pylist())):
        raise RuntimeError(f"{missing} items were lost")


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, of_data=False, items=100_000, rpm=0.0, latency=1.0, concurrency=64)
    parser.add_argument("--actors", default="1,2,4")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name, started(given.latency) as base:
        folder = Path(name)
        save_export(folder / "program")
        write_items(folder, given.items)
        publish([measure(base, folder, given, actors) for actors in map(int, given.actors.split(","))], given.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
