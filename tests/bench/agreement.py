"""How long agreement with intervals takes: 100,000 rows in 1,000 groups.

    python tests/bench/agreement.py --rows 100000 --groups 1000

Timed are the table of every statistic at every level, and the difference of two judges at each level, with scores of
few and of many different values.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from debate_judge.data.agreement.tables import LEVELS, GroupScores, agreement_table, compare


def judges(rows: int, groups: int, decimals: int) -> tuple[list[GroupScores], list[GroupScores]]:
    """Two judges whose scores have so many decimals, beside ratings in whole points."""
    rng = np.random.default_rng(0)
    quality = rng.normal(3, 1, size=(groups, rows // groups))
    ratings = np.round(quality + rng.normal(0, 0.5, size=quality.shape)).clip(1, 5)
    ids = tuple(map(str, range(quality.shape[1])))

    def scored(noise: float) -> list[GroupScores]:
        scores = np.round(quality + rng.normal(0, noise, size=quality.shape), decimals)
        both = enumerate(zip(ratings.tolist(), scores.tolist(), strict=True))
        return [GroupScores(f"g{i}", ids, tuple(r), tuple(s)) for i, (r, s) in both]

    return scored(0.7), scored(0.8)


def timed(what: str, work: Callable[[], object]) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    print(f"{what:40} {time.perf_counter() - wall:6.1f} s  {time.process_time() - cpu:6.1f} s CPU", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=1_000)
    given = parser.parse_args(argv)
    for decimals, name in ((1, "few values"), (12, "many values")):
        first, second = judges(given.rows, given.groups, decimals)
        timed(f"{name}: table", lambda one=first: agreement_table({"x": one}))  # type: ignore[misc]
        for level in LEVELS:
            timed(
                f"{name}: difference, {level} level",
                lambda a=first, b=second, at=level: compare({"x": a}, {"x": b}, level=at),  # type: ignore[misc]
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
