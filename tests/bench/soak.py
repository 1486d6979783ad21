"""A long scoring run through the real command: does it end, is every row there once, how much memory does it take?

    python -m tests.bench.soak                              20,000 items, a mix of faults
    python -m tests.bench.soak --items 100000 --faults none memory: at most 600 MB are allowed
    python -m tests.bench.soak --items 100000 --lm offline  the same without a server

`runs/score.py` runs in a process of its own, on an export and a file made for the purpose. Faults are those of
`tests/faulty_server.py`: up to three before a call succeeds; one call in 500 never does. Waits are shortened.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench.harness import ENVIRONMENT, parser_of, publish, save_export
from tests.bench.mock_server import text_of
from tests.faulty_server import FaultyServer

CANDIDATES = 10
"""Of each source."""

COMMAND = """
import re
import sys
from pathlib import Path
from debate_judge.programs.lm.settings import LMOptions
from debate_judge.runs import score, scoring

if sys.argv[2] == "mix":
    scoring.lm_options = lambda arguments: LMOptions(
        attempt_timeout=5.0, retries=8, first_wait=0.05, max_wait=0.5, max_outage=120.0
    )
code = score.main(sys.argv[3:])
Path(sys.argv[1]).write_text(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
sys.exit(code)
"""
"""What the child runs. It measures its memory itself: what the system tells of a child begins with its parent's."""

FAILING = ("429", "429 wait", "500", "502", "503", "dropped", "cut", "garbage", "page", "empty")
HARMLESS = ("twice", "mislabelled", "long", "unreadable")


@dataclass(frozen=True)
class Soak:
    """What came of a run."""

    items: int
    seconds: float
    code: int
    in_order: bool
    """Whether there is one row for each item, in their order."""
    wrong: int
    """Scores that differ from what the server meant."""
    unscored: dict[str, int]
    requests: int
    paid_twice: int
    """Calls that were made again after an answer."""
    rss_mb: float
    """Most memory that the scoring process has held."""
    cpu_seconds: float
    load: float
    """Of the machine when the run ended: more than one for each core means that others slowed it down."""


def mixed(body: bytes, attempt: int) -> str | None:
    """What goes wrong with the n-th attempt of a call; the same in every run."""
    rng = random.Random(body)
    fate = rng.random()
    if fate < 0.002:
        return rng.choice(("500", "dropped", "garbage"))
    if fate < 0.004:
        return rng.choice(("withheld", "refused"))
    faults = rng.choices((*FAILING, *HARMLESS), k=rng.choices((0, 1, 2, 3), (80, 14, 4, 2))[0])
    if fate > 0.9995:
        faults[:0] = ["slow"]
    fault = faults[attempt] if attempt < len(faults) else None
    # The Critic's reply is one field: words without its header are a criticism.
    return None if fault == "unreadable" and b"## feedback ##" in body else fault


def texts(path: Path, count: int) -> Path:
    """The input: sources of 100 words with ten candidates each."""
    rng = random.Random(3)
    words = [f"{a}{b}{c}" for a in ("ba", "co", "di") for b in ("fu", "ga", "he") for c in ("ji", "ko", "lu")]
    with path.open("w", encoding="utf-8") as file:
        for group in range(0, count, CANDIDATES):
            candidates = [
                {"id": f"c{i}", "text": f"Item-{i}: {' '.join(rng.choices(words, k=20))}."}
                for i in range(group, min(group + CANDIDATES, count))
            ]
            source = " ".join(rng.choices(words, k=100))
            file.write(json.dumps({"group": f"g{group}", "source": source, "candidates": candidates}) + "\n")
    return path


def run(items: int, *, faults: str, lm: str, rounds: int, concurrency: int) -> Soak:
    """Score `items` texts and look at what is there afterwards."""
    script = mixed if faults == "mix" else lambda body, attempt: None
    server = FaultyServer(lambda body: text_of(body) if b"Item-" in body else "OK", script)
    with tempfile.TemporaryDirectory() as name, server:
        folder = Path(name)
        peak, out = folder / "peak", folder / "out.jsonl"
        export = save_export(folder / "program", lm=lm, rounds=rounds)
        command = ["-c", COMMAND, peak, faults, export, "--in", texts(folder / "in.jsonl", items), "--out", out]
        command += ["--store", folder / "store", "--concurrency", concurrency]
        command += [] if lm == "offline" else ["--api-base", server.url]
        started = time.monotonic()
        child = os.spawnve(os.P_NOWAIT, sys.executable, [sys.executable, *map(str, command)], ENVIRONMENT)
        _, status, usage = os.wait4(child, 0)
        seconds = time.monotonic() - started
        rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        return Soak(
            items,
            seconds,
            os.waitstatus_to_exitcode(status),
            [row["candidate"] for row in rows] == [f"c{i}" for i in range(items)],
            0 if lm == "offline" else wrong_scores(rows, rounds),
            dict(Counter(row["unscored"] for row in rows if row["unscored"] is not None)),
            server.requests,
            sum(count > 1 for count in server.answered.values()),
            int(peak.read_text()) / 1024,
            usage.ru_utime + usage.ru_stime,
            os.getloadavg()[0],
        )


def wrong_scores(rows: list[dict[str, object]], rounds: int) -> int:
    """How many differ from `mock_server.text_of`, whose score is revised once for each objection."""
    expected = [1 + (item * 7 + min(item % 4, rounds)) % 5 for item in range(len(rows))]
    return sum(row["score"] not in (None, score) for row, score in zip(rows, expected, strict=True))


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, of_data=False, items=20_000, rounds=0, concurrency=64)
    parser.add_argument("--faults", choices=("mix", "none"), default="mix")
    parser.add_argument("--lm", default="openai/mock", help="openai/mock (a server on loopback) or offline")
    given = vars(parser.parse_args(argv))
    file = given.pop("json")
    soak = run(**{**given, "faults": "none" if given["lm"] == "offline" else given["faults"]})
    row = asdict(soak) | {"unscored": ", ".join(f"{count} {why}" for why, count in soak.unscored.items())}
    publish([{"figure": name, "value": value} for name, value in row.items()], file)
    return 0 if soak.code == 0 and soak.in_order and not soak.wrong else 1


if __name__ == "__main__":
    raise SystemExit(main())
