"""How long does a compile wait in line? The sample, with the offline stand-in behind a server of fixed latency.

    python tests/bench/compile_over_http.py                   2 s a call, 64 in flight: about five minutes
    python tests/bench/compile_over_http.py --latency 0.5 --concurrency 16 -- --aspects fluency

Prints calls, seconds, the mean number of calls in flight, the longest chain of calls of which each began after the one
before had ended, and the seconds as a multiple of what the calls alone would take (calls x latency / concurrency).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

from debate_judge.programs.offline.engine import OfflineEngine  # noqa: E402
from tests.faulty_server import FaultyServer  # noqa: E402


def answer(body: bytes) -> str:
    messages = json.loads(body)["messages"]
    system = next((m["content"] for m in messages if m["role"] == "system"), "")
    return OfflineEngine().answer(system, messages[-1]["content"], {}).text


def longest_chain(spans: list[tuple[float, float]]) -> int:
    """The most calls of which each began after the one before had ended; `spans` are (begin, end) of all calls."""
    ends: list[float] = []
    """The earliest end of a chain of 1, 2, 3, ... calls."""
    for begin, end in sorted(spans, key=lambda span: span[1]):
        length = bisect_right(ends, begin)
        if length == len(ends):
            ends.append(end)
        else:
            ends[length] = min(ends[length], end)
    return len(ends)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=float, default=2.0, help="seconds of each call (2)")
    parser.add_argument("--concurrency", type=int, default=64, help="calls allowed in flight (64)")
    parser.add_argument("settings", nargs="*", help="further flags of compile, after --")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, FaultyServer(answer, latency=arguments.latency) as server:
        flags = ["--lm", "openai/m", "--api-base", server.url, "--concurrency", str(arguments.concurrency)]
        command = [sys.executable, str(ROOT / "optimize" / "compile.py"), *flags, "--store", folder]
        began = time.monotonic()
        code = subprocess.call(
            [*command, *arguments.settings], env={**os.environ, "OPENAI_API_KEY": "unused"}, stdout=subprocess.DEVNULL
        )
        seconds = time.monotonic() - began
        spans = server.spans
    calls = len(spans)
    alone = calls * arguments.latency / arguments.concurrency
    in_flight = sum(end - begin for begin, end in spans) / (max(e for _, e in spans) - min(b for b, _ in spans))
    print(
        f"{calls:,} calls of {arguments.latency:g} s, {arguments.concurrency} allowed in flight: {seconds:.0f} s, "
        f"{seconds / alone:.2f} x the {alone:.0f} s that they take by themselves\n"
        f"{in_flight:.1f} in flight on average; the longest chain of calls that followed one another: "
        f"{longest_chain(spans)}"
    )
    return code


if __name__ == "__main__":
    raise SystemExit(main())
