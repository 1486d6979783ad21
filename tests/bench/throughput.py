"""How close the debate comes to what the provider allows, and what a call costs in CPU.

    python -m tests.bench.throughput --concurrency 32,128 --json throughput.json
    python -m tests.bench.throughput --concurrency 128 --latency 1 --jitter 0.5

400 items, up to 3 rounds, 200 ms latency unless another is given, against a mock server that this script starts. The
ideal is max(longest chain x latency, calls x latency / concurrency). Beside our runner runs a hand-written aiohttp loop
that sends the very same messages with no DSPy, no store and no parsing to speak of: the floor.
"""

from __future__ import annotations

import asyncio
import random
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import aiohttp
import orjson

from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.replies import SqlStore
from debate_judge.programs.make_lm import make_lm
from debate_judge.programs.testing import scripted_lm
from debate_judge.runs.runner import JudgeRunner
from tests.bench.harness import TASK, Row, parser_of, publish
from tests.bench.mock_server import ITEM, started, text_of

ITEMS, ROUNDS = 400, 3
SYLLABLES = ["ba", "co", "di", "fu", "ga", "he", "ji", "ko", "lu", "ma", "ne", "or", "pa", "re", "si", "ta", "un", "vo"]


def workload(count: int) -> list[Item]:
    """Items with 400-word sources and 45-word candidates, each with a source of its own."""
    rng = random.Random(7)

    def words(number: int) -> str:
        return " ".join("".join(rng.choices(SYLLABLES, k=rng.randint(1, 3))) for _ in range(number))

    return [Item(str(i), "c", TASK, TASK.aspects[0], f"Item-{i} {words(400)}", words(45)) for i in range(count)]


def calls_of(item: Item) -> int:
    rounds = int(item.group) % 4
    return 1 + 2 * rounds + (1 if rounds < ROUNDS else 0)


def measured(run: Callable[[], int], expected: int) -> tuple[float, float]:
    """Wall seconds, and milliseconds of this process's CPU for each call."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    start, cpu = time.perf_counter(), usage.ru_utime + usage.ru_stime
    calls = run()
    wall, usage = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    if calls != expected:
        raise RuntimeError(f"expected {expected} calls, got {calls}")
    return wall, 1000 * (usage.ru_utime + usage.ru_stime - cpu) / calls


def ours(base: str, items: list[Item], concurrency: int, expected: int) -> tuple[float, float]:
    """The debate as the project runs it, with its store."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqlStore(Path(folder))
        lm = make_lm("openai/mock", api_base=f"{base}/v1", store=store, concurrency=concurrency)
        with JudgeRunner(lm, progress=False) as runner:
            debate = Debate()
            runner.converse(debate, workload(ITEMS + 4)[ITEMS:], ROUNDS)

            def run() -> int:
                transcripts = runner.converse(debate, items, ROUNDS)
                if any(t.failure for t in transcripts):
                    raise RuntimeError("an item failed")
                return sum(t.calls for t in transcripts)

            return measured(run, expected)


def recorded(items: list[Item]) -> list[list[dict[str, str]]]:
    """The messages of every call of the debates about `items`, without their order."""
    lm = scripted_lm(lambda prompt: text_of(prompt.encode()))
    with JudgeRunner(lm, progress=False) as runner:
        runner.converse(Debate(), items, ROUNDS)
    pairs = zip(lm.systems, lm.prompts, strict=True)
    return [[{"role": "system", "content": system}, {"role": "user", "content": user}] for system, user in pairs]


def floor(base: str, items: list[Item], concurrency: int, expected: int) -> tuple[float, float]:
    """A hand-written loop over aiohttp: the same messages, those of one debate one after the other."""
    chains: dict[str, list[list[dict[str, str]]]] = {}
    for messages in recorded(items):
        chains.setdefault(ITEM.findall(messages[1]["content"].encode())[0], []).append(messages)

    async def all_items() -> int:
        gate = asyncio.Semaphore(concurrency)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def chat(messages: list[dict[str, str]]) -> None:
                body = orjson.dumps({"model": "mock", "messages": messages, "temperature": 0.0, "max_tokens": 2000})
                async with gate, session.post(f"{base}/v1/chat/completions", data=body) as answer:
                    orjson.loads(await answer.read())["choices"][0]["message"]["content"]

            async def debate_about(chain: list[list[dict[str, str]]]) -> int:
                for messages in sorted(chain, key=lambda messages: len(messages[1]["content"])):
                    await chat(messages)
                return len(chain)

            return sum(await asyncio.gather(*map(debate_about, chains.values())))

    return measured(lambda: asyncio.run(all_items()), expected)


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, of_data=False, latency=0.2, jitter=0.0)
    parser.add_argument("--concurrency", default="32,128")
    given = parser.parse_args(argv)
    items = workload(ITEMS)
    calls = [calls_of(item) for item in items]
    rows: list[Row] = []
    with started(given.latency, given.jitter) as base:
        for concurrency in map(int, given.concurrency.split(",")):
            ideal = max(max(calls) * given.latency, sum(calls) * given.latency / concurrency)
            loop, loop_cpu = floor(base, items, concurrency, sum(calls))
            wall, cpu = ours(base, items, concurrency, sum(calls))
            rows.append(
                {
                    "concurrency": concurrency,
                    "ideal s": ideal,
                    "ours s": wall,
                    "efficiency": ideal / wall,
                    "loop s": loop,
                    "ours / loop": loop / wall,
                    "CPU ms/call": cpu,
                    "loop CPU": loop_cpu,
                    "RSS MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                }
            )
    publish(rows, given.json, f"{ITEMS} items, {sum(calls)} calls, {given.latency * 1000:.0f} ms latency")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
