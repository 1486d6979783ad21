"""How close the debate comes to what the provider allows, and what a call costs in CPU.

    python tests/bench/throughput.py --concurrency 32,128 --json throughput.json
    python tests/bench/throughput.py --concurrency 128 --latency 1 --jitter 0.5

400 items, up to 3 rounds, 200 ms latency unless another is given, against a mock server that this script starts. The
ideal is max(longest chain x latency, calls x latency / concurrency). Beside our runner runs a hand-written aiohttp loop
that sends the very same messages with no DSPy, no store and no parsing to speak of: the floor.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

import aiohttp
import orjson

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from debate_judge.data.schema import Aspect, Scale, Task  # noqa: E402
from debate_judge.programs.debate.judge import Debate  # noqa: E402
from debate_judge.programs.debate.table import Critic, Opening, Revision  # noqa: E402
from debate_judge.programs.judge import Item  # noqa: E402
from debate_judge.programs.lm.client import JudgeLM  # noqa: E402
from debate_judge.programs.lm.store import SqlStore  # noqa: E402
from debate_judge.programs.make_lm import make_lm  # noqa: E402
from debate_judge.programs.roles.role import RoleLastAdapter, item_inputs  # noqa: E402
from debate_judge.programs.transcript import Transcript, Turn  # noqa: E402
from debate_judge.runs.runner.runner import JudgeRunner  # noqa: E402
from tests.bench.mock_server import started  # noqa: E402

ITEMS, ROUNDS, LATENCY = 400, 3, 0.2
SYLLABLES = ["ba", "co", "di", "fu", "ga", "he", "ji", "ko", "lu", "ma", "ne", "or", "pa", "re", "si", "ta", "un", "vo"]


def workload(count: int) -> list[Item]:
    """Items with 400-word sources and 45-word candidates, each with a source of its own."""
    rng = random.Random(7)
    aspect = Aspect("consistency", "Every claim of the summary is supported by the article.", Scale(1, 5))
    task = Task("summarization", "news article", "summary", (aspect,))

    def words(number: int) -> str:
        return " ".join("".join(rng.choices(SYLLABLES, k=rng.randint(1, 3))) for _ in range(number))

    return [Item(str(i), "c", task, aspect, f"Item-{i} {words(400)}", words(45)) for i in range(count)]


def calls_of(item: Item) -> int:
    rounds = int(item.group) % 4
    return 1 + 2 * rounds + (1 if rounds < ROUNDS else 0)


def measured(run: Callable[[], int]) -> tuple[float, float, int]:
    """Wall seconds, CPU seconds of this process, and calls."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    start, cpu = time.perf_counter(), usage.ru_utime + usage.ru_stime
    calls = run()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime - cpu, calls


def ours(base: str, items: list[Item], concurrency: int) -> tuple[float, float, int]:
    """The debate as the project runs it, with its journal."""
    with tempfile.TemporaryDirectory() as folder:
        lm: JudgeLM = make_lm(
            "openai/mock", api_base=f"{base}/v1", store=SqlStore(Path(folder)), concurrency=concurrency
        )
        with JudgeRunner(lm, progress=False) as runner:
            debate = Debate()
            runner.converse(debate, workload(ITEMS + 4)[ITEMS:], ROUNDS)

            def run() -> int:
                transcripts = runner.converse(debate, items, ROUNDS)
                if any(t.failure for t in transcripts):
                    raise RuntimeError("an item failed")
                return sum(t.calls for t in transcripts)

            return measured(run)


def floor(base: str, items: list[Item], concurrency: int) -> tuple[float, float, int]:
    """A hand-written loop over aiohttp: the same messages, calls limited breadth first."""
    adapter, debate = RoleLastAdapter(), Debate()
    roles = {"Scorer": debate.scorer.signature, "Critic": debate.critic.signature}

    def messages(speaker: str, item: Item, transcript: Transcript) -> list[dict[str, str]]:
        role = {"Scorer": Revision if transcript.turns else Opening, "Critic": Critic}[speaker]
        told = role({item.aspect.name: debate}).inputs(debate.prompt_parts(item))
        return adapter.format(roles[speaker], [], {**item_inputs(item, str(transcript)), **told})

    async def all_items() -> int:
        gate = asyncio.Semaphore(concurrency)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def chat(messages: list[dict[str, str]]) -> str:
                body = orjson.dumps({"model": "mock", "messages": messages, "temperature": 0.0, "max_tokens": 2000})
                async with gate, session.post(f"{base}/v1/chat/completions", data=body) as answer:
                    text: str = orjson.loads(await answer.read())["choices"][0]["message"]["content"]
                    return text

            async def one(item: Item) -> int:
                transcript, calls = Transcript(), 0
                for number in range(ROUNDS + 1):
                    text = await chat(messages("Scorer", item, transcript))
                    transcript = transcript.add(Turn("scorer", number, text, score=float(text[-1])))
                    calls += 1
                    if number == ROUNDS:
                        break
                    text = await chat(messages("Critic", item, transcript))
                    calls += 1
                    if "NO ISSUE" in text:
                        break
                    transcript = transcript.add(Turn("critic", number + 1, text))
                return calls

            return sum(await asyncio.gather(*(one(item) for item in items)))

    return measured(lambda: asyncio.run(all_items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", default="32,128")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--latency", type=float, default=LATENCY, metavar="SECONDS")
    parser.add_argument("--jitter", type=float, default=0.0, help="share of the latency by which it varies")
    arguments = parser.parse_args()
    latency = arguments.latency
    items = workload(ITEMS)
    expected = sum(map(calls_of, items))
    result: dict[str, dict[str, float]] = {}
    print(f"{ITEMS} items, {expected} calls, {latency * 1000:.0f} ms latency")
    print(
        "concurrency  ideal s  ours s  efficiency  loop s  loop efficiency  ours / loop  CPU ms/call  loop CPU  RSS MB"
    )
    with started(latency, arguments.jitter) as base:
        for concurrency in map(int, arguments.concurrency.split(",")):
            ideal = max(max(map(calls_of, items)) * latency, expected * latency / concurrency)
            raw_wall, raw_cpu, raw_calls = floor(base, items, concurrency)
            wall, cpu, calls = ours(base, items, concurrency)
            if not calls == raw_calls == expected:
                raise RuntimeError(f"expected {expected} calls, got {calls} and {raw_calls}")
            rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            result[str(concurrency)] = {
                "efficiency": ideal / wall,
                "raw_loop_efficiency": ideal / raw_wall,
                "ratio": raw_wall / wall,
                "cpu_ms_per_call": cpu / calls * 1000,
                "raw_loop_cpu_ms_per_call": raw_cpu / raw_calls * 1000,
                "rss_mb": rss,
                "calls": calls,
            }
            print(
                f"{concurrency:11d}  {ideal:7.2f}  {wall:6.2f}  {ideal / wall:10.3f}  {raw_wall:6.2f}  "
                f"{ideal / raw_wall:15.3f}  {raw_wall / wall:11.3f}  {cpu / calls * 1000:11.3f}  "
                f"{raw_cpu / raw_calls * 1000:8.3f}  {rss:6.0f}"
            )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
