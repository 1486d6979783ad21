"""How close `score --engine ray` comes to what the provider allows, and what a killed actor costs.

    python tests/bench/distributed.py --items 100000 --actors 1,2,4 --rpm 6000 --json distributed.json

Items of one call each against a mock server that this script starts, all on this machine. The ideal is
max(calls / rpm, calls x latency / concurrency). In the middle of each run one actor is killed (SIGKILL). Then it is
checked that there is a row for every item, and that the server was asked each prompt once, but for what the killed
actor had in flight. Time runs from the first request that the server sees to the last; memory is that of the largest
actor.
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
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.config_keys import keys

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from debate_judge.data.schema import Aspect, Scale, Task  # noqa: E402
from debate_judge.programs import JUDGES, build  # noqa: E402
from debate_judge.programs.compiled import AspectJudge, CompiledJudge  # noqa: E402
from debate_judge.runs.export.folder import save  # noqa: E402
from tests.bench.mock_server import started  # noqa: E402

TASK = Task("summarization", "article", "summary", (Aspect("consistency", "Every claim is supported.", Scale(1, 5)),))
WORDS = ("council", "voted", "plan", "bridge", "debate", "cost", "place", "river", "year", "tax", "mayor", "street")


@dataclass
class Measured:
    """One run."""

    actors: int
    items: int
    seconds: float = 0.0
    ideal: float = 0.0
    calls: int = 0
    different: int = 0
    rows: int = 0
    whole_seconds: float = 0.0
    """With the start of Ray and of the actors."""
    killed: int = 0
    memory: list[float] = field(default_factory=list)
    """MB of the largest actor at each quarter of the calls."""
    server_cpu: float = 0.0

    @property
    def efficiency(self) -> float:
        return self.ideal / self.seconds


def write_items(folder: Path, count: int, files: int = 4) -> None:
    for number in range(files):
        with (folder / f"in-{number}.jsonl").open("w", encoding="utf-8") as file:
            for item in range(number, count, files):
                source = f"Item-{item} " + " ".join(WORDS[(item + i) % len(WORDS)] for i in range(60))
                candidate = {"id": "c", "text": f"The council voted, says report {item}."}
                file.write(json.dumps({"group": f"g{item}", "source": source, "candidates": [candidate]}) + "\n")


def stats(base: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{base}/stats", timeout=60) as answer:
        found: dict[str, float] = json.load(answer)
    return found


def actors_of(driver: int) -> dict[int, float]:
    """Process -> MB, of the actors that descend from a driver."""
    parents: dict[int, int] = {}
    found: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if (entry / "cmdline").read_bytes().startswith(b"ray::ScoringActor"):
                pages = int((entry / "statm").read_text().split()[1])
                found[int(entry.name)] = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
        except (OSError, IndexError):
            continue

    def descends(process: int) -> bool:
        while process not in (0, driver):
            process = parents.get(process, 0)
        return process == driver

    return {process: size for process, size in found.items() if descends(process)}


def measure(base: str, folder: Path, given: argparse.Namespace, actors: int) -> Measured:
    result = Measured(actors, given.items)
    place = folder / f"run-{actors}"
    command = [sys.executable, "-m", "debate_judge.runs.score", "--engine", "ray", *keys(actors=actors)]
    command += [str(folder / "program"), "--in", str(folder / "in-*.jsonl")]
    command += ["--out", str(place / "out.parquet"), "--store", str(place / "store"), "--api-base", f"{base}/v1"]
    command += [
        *keys(preflight=False),
        "--concurrency",
        str(given.concurrency),
        *(["--rpm", str(given.rpm)] if given.rpm else []),
    ]
    urllib.request.urlopen(urllib.request.Request(f"{base}/reset", method="POST"), timeout=60).close()
    began, quarter = time.monotonic(), 1
    with subprocess.Popen(command, env={**os.environ, "OPENAI_API_KEY": "unused"}) as driver:
        while driver.poll() is None:
            time.sleep(1.0)
            done = stats(base)["requests"]
            if done * 4 >= quarter * given.items and (sizes := actors_of(driver.pid)):
                result.memory.append(round(max(sizes.values())))
                quarter += 1
                if quarter == 3 and not given.spare:
                    victim = max(sizes)
                    os.kill(victim, signal.SIGKILL)
                    result.killed += 1
    result.whole_seconds = time.monotonic() - began
    if driver.returncode:
        raise RuntimeError(f"the command ended with {driver.returncode}")
    last = stats(base)
    result.seconds, result.server_cpu = last["seconds"], last["cpu"]
    result.calls, result.different = int(last["requests"]), int(last["different"])
    result.ideal = max(
        given.items * 60 / given.rpm if given.rpm else 0.0, given.items * given.latency / given.concurrency
    )
    result.rows = rows_of(place / "out.parquet")
    check(result, given)
    return result


def rows_of(folder: Path) -> int:
    import pyarrow.parquet as pq

    table = pq.read_table(folder, columns=["group", "unscored"])
    if table["unscored"].null_count != len(table):
        raise RuntimeError("an item has no score")
    return len(set(table["group"].to_pylist()))


def check(result: Measured, given: argparse.Namespace) -> None:
    if result.rows != given.items:
        raise RuntimeError(f"{given.items - result.rows} items were lost")
    in_flight = result.killed * -(-given.concurrency // result.actors)
    if result.different != given.items or result.calls - result.different > in_flight:
        raise RuntimeError(f"{result.calls} calls of {result.different} prompts, at most {in_flight} in flight")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--actors", default="1,2,4")
    parser.add_argument("--rpm", type=float, default=0.0, help="requests a minute; 0 is no limit")
    parser.add_argument("--latency", type=float, default=1.0, help="seconds from request to answer")
    parser.add_argument("--concurrency", type=int, default=64, help="calls in flight, of all actors together")
    parser.add_argument("--spare", action="store_true", help="kill no actor")
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    print("actors   items  ideal s  seconds  efficiency  items/s  calls twice  lost  actor MB by quarter  whole s")
    results = []
    with tempfile.TemporaryDirectory() as name, started(given.latency) as base:
        folder = Path(name)
        judge = AspectJudge(build("debate", JUDGES["single"].config))
        compiled = CompiledJudge(TASK, {"consistency": judge})
        save(folder / "program", compiled, lm={"spec": "openai/mock"}, evidence={}, name="bench")
        write_items(folder, given.items)
        for actors in map(int, given.actors.split(",")):
            one = measure(base, folder, given, actors)
            results.append({**asdict(one), "efficiency": one.efficiency})
            print(
                f"{actors:6d}  {one.items:6d}  {one.ideal:7.1f}  {one.seconds:7.1f}  {one.efficiency:10.3f}  "
                f"{one.items / one.seconds:7.1f}  {one.calls - one.different:11d}  {one.items - one.rows:4d}  "
                f"{'/'.join(f'{size:.0f}' for size in one.memory):>19}  {one.whole_seconds:7.1f}",
                flush=True,
            )
            if given.json:
                Path(given.json).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
