"""A long scoring run through the real command: does it end, is every row there once, how much memory does it take?

    python tests/bench/soak.py                              20,000 items, a mix of faults
    python tests/bench/soak.py --items 100000 --faults none memory: at most 600 MB are allowed
    python tests/bench/soak.py --items 100000 --lm offline  the same without a server

`runs/score.py` runs in a process of its own, on an export and a file made for the purpose. Faults are those of
`tests/faulty_server.py`: up to three before a call succeeds; one call in 500 never does. Waits are shortened.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

from debate_judge.data.schema import Aspect, Scale, Task  # noqa: E402
from debate_judge.programs import build  # noqa: E402
from debate_judge.programs.compiled import AspectJudge, CompiledJudge  # noqa: E402
from debate_judge.runs.export.folder import save  # noqa: E402
from tests.bench.mock_server import text_of  # noqa: E402
from tests.faulty_server import FaultyServer  # noqa: E402

TASK = Task("summarization", "news article", "summary", (Aspect("consistency", "Are the claims true?", Scale(1, 5)),))
CANDIDATES = 10
"""Of each source."""

COMMAND = """
import re
import sys
from pathlib import Path
from debate_judge.programs.lm.options import LMOptions
from debate_judge.runs import score
from debate_judge.runs.scoring import scorer

if sys.argv[2] == "mix":
    scorer.lm_options = lambda arguments: LMOptions(
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
    return faults[attempt] if attempt < len(faults) else None


def texts(folder: Path, count: int, length: int) -> Path:
    """The input: sources of so many words with ten candidates each."""
    path, rng = folder / "in.jsonl", random.Random(3)
    words = [f"{a}{b}{c}" for a in ("ba", "co", "di") for b in ("fu", "ga", "he") for c in ("ji", "ko", "lu")]
    with path.open("w", encoding="utf-8") as file:
        for group in range(0, count, CANDIDATES):
            candidates = [
                {"id": f"c{i}", "text": f"Item-{i}: {' '.join(rng.choices(words, k=20))}."}
                for i in range(group, min(group + CANDIDATES, count))
            ]
            source = " ".join(rng.choices(words, k=length))
            file.write(json.dumps({"group": f"g{group}", "source": source, "candidates": candidates}) + "\n")
    return path


def expected(item: int, rounds: int) -> int:
    """The score of `mock_server.text_of` after so many rounds: revised once for each objection."""
    return 1 + (item * 7 + min(item % 4, rounds)) % 5


@contextmanager
def server_for(faults: str) -> Iterator[FaultyServer]:
    def answer(body: bytes) -> str:
        return text_of(body) if b"Item-" in body else "OK"

    with FaultyServer(answer, mixed if faults == "mix" else lambda body, attempt: None) as server:
        yield server


def run(items: int, *, faults: str, lm: str, rounds: int, concurrency: int, words: int = 100) -> Soak:
    """Score `items` texts and look at what is there afterwards."""
    with tempfile.TemporaryDirectory() as name, server_for(faults) as server:
        folder = Path(name)
        judge = build("debate", {"persona": "plain", "rounds": rounds, "tie_breaker": False})
        judges = {"consistency": AspectJudge(judge)}
        program = save(folder / "program", CompiledJudge(TASK, judges), lm={"spec": lm}, evidence={}, name="soak")
        out = folder / "out.jsonl"
        flags = {"--in": texts(folder, items, words), "--out": out, "--store": folder / "store"}
        flags |= {"--concurrency": concurrency}
        if lm != "offline":
            flags |= {"--api-base": server.url}
        peak = folder / "peak"
        given = [str(program), *(str(part) for pair in flags.items() for part in pair)]
        arguments = ["-c", COMMAND, str(peak), faults, *given]
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path}
        started = time.monotonic()
        child = os.spawnve(os.P_NOWAIT, sys.executable, [sys.executable, *arguments], environment)
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
    scored = ((number, row["score"]) for number, row in enumerate(rows) if row["score"] is not None)
    return sum(score != expected(number, rounds) for number, score in scored)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--faults", choices=("mix", "none"), default="mix")
    parser.add_argument("--lm", default="openai/mock", help="openai/mock (a server on loopback) or offline")
    parser.add_argument("--rounds", type=int, default=0, help="of debate; 0 is a single call for each item (0)")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--words", type=int, default=100, help="of each source (100)")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    os.environ.setdefault("OPENAI_API_KEY", "unused")
    soak = run(
        arguments.items,
        faults="none" if arguments.lm == "offline" else arguments.faults,
        lm=arguments.lm,
        rounds=arguments.rounds,
        concurrency=arguments.concurrency,
        words=arguments.words,
    )
    print(
        f"{soak.items} items in {soak.seconds:.0f} s ({soak.items / soak.seconds:.0f} a second, "
        f"load {soak.load:.1f} on {os.cpu_count()} cores), {soak.cpu_seconds:.0f} s of CPU\n"
        f"{soak.requests} requests, {soak.paid_twice} calls paid twice; most memory {soak.rss_mb:.0f} MB\n"
        f"exit code {soak.code}; one row for each item in order: {'yes' if soak.in_order else 'NO'}; "
        f"{soak.wrong} wrong scores; unscored: {soak.unscored or 'none'}"
    )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(asdict(soak), indent=2) + "\n", encoding="utf-8")
    return 0 if soak.code == 0 and soak.in_order and not soak.wrong else 1


if __name__ == "__main__":
    raise SystemExit(main())
