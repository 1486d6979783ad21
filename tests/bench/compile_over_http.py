"""How long does a compile wait in line? The sample, with the offline stand-in behind a server of fixed latency.

    python -m tests.bench.compile_over_http                   2 s a call, 64 in flight: about five minutes
    python -m tests.bench.compile_over_http --latency 0.5 --concurrency 16 -- --aspects fluency

Prints calls, seconds, what the calls alone would take (calls x latency / concurrency), the seconds as a multiple of
that, the mean number of calls in flight, and the longest chain of calls of which each began after the one before had
ended.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Sequence

from tests.bench.harness import ENVIRONMENT, ROOT, parser_of, publish
from tests.faulty_server import FaultyServer
from tests.pins.recording import answer


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


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, of_data=False, latency=2.0, concurrency=64)
    parser.add_argument("settings", nargs="*", help="further flags of compile, after --")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder, FaultyServer(answer, latency=given.latency) as server:
        flags = ["--lm", "openai/m", "--api-base", server.url, "--concurrency", str(given.concurrency)]
        command = [sys.executable, str(ROOT / "optimize" / "compile.py"), *flags, "--store", folder, *given.settings]
        began = time.monotonic()
        code = subprocess.call(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - began
        spans = server.spans
    alone = len(spans) * given.latency / given.concurrency
    figures = {
        "calls": len(spans),
        "seconds": seconds,
        "calls alone": alone,
        "multiple": seconds / alone,
        "in flight": sum(end - begin for begin, end in spans) / (max(e for _, e in spans) - min(b for b, _ in spans)),
        "longest chain": longest_chain(spans),
    }
    publish([figures], given.json)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
