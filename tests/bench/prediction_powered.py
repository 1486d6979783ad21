"""How often the intervals of `debate measure` hold the truth, and how many ratings the judge saves.

    python -m tests.bench.prediction_powered --replicates 2000
    python -m tests.bench.prediction_powered --data summeval=PATH --replicates 500 --json powered.json

Made-up populations: five systems; ratings have an effect of the source, one of the system in the source and the noise
of three raters, who use whole points from 1 to 5; the judge's scores follow what the raters look at with a correlation
of 0, .5 or .8 within a system, in half points, half a point too high. With --data the sources of a rated set are the
population, drawn with replacement, and the judge is made from its ratings as `tests/bench/coverage.py` makes them.
Of 500 sources 20, 50 or 100 have ratings. Printed are the coverage of means and of differences with and without the
judge, and how many ratings it saved for each 100 that there are (medians).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from debate_judge.data.inference.prediction_powered import ppi_estimate
from tests.bench.harness import Floats, parser_of, populations, publish

SIZES = (20, 50, 100)
SOURCES = 500
SYSTEMS = (-0.6, -0.2, 0.0, 0.1, 0.5)
Draw = Callable[[np.random.Generator], tuple[Floats, Floats]]
"""Draws ratings and scores of `SOURCES` sources, each of shape (sources, systems)."""


def made_up(correlation: float, sources: int = SOURCES) -> Draw:
    """A population of texts whose judge has this correlation with what raters look at."""

    def draw(rng: np.random.Generator) -> tuple[Floats, Floats]:
        shape = (sources, len(SYSTEMS))
        quality = 0.6 * rng.normal(size=(sources, 1)) + 0.8 * rng.normal(size=shape)
        judge = correlation * quality + np.sqrt(1 - correlation**2) * rng.normal(size=shape)
        points = 3.4 + np.array(SYSTEMS) + quality + 0.7 * rng.normal(size=(3, *shape))
        ratings = np.clip(np.round(points), 1, 5).mean(axis=0)
        return ratings, np.clip(np.round(2 * (3.9 + np.array(SYSTEMS) + judge)) / 2, 1, 5)

    return draw


def of_set(ratings: Floats, scores: Floats) -> Draw:

    def draw(rng: np.random.Generator) -> tuple[Floats, Floats]:
        which = rng.integers(len(ratings), size=SOURCES)
        return ratings[which], scores[which]

    return draw


def covered(draw: Draw, truth: Floats, rated: int, replicates: int, seed: int) -> dict[str, float]:
    """Share of intervals that hold the truth, and ratings saved for each 100."""
    rng = np.random.default_rng(seed)
    hits: dict[str, list[bool]] = defaultdict(list)
    saved: dict[str, list[float]] = defaultdict(list)
    pairs = list(combinations(range(len(truth)), 2))
    for _ in range(replicates):
        ratings, scores = draw(rng)
        ratings = np.where(np.arange(len(ratings))[:, None] < rated, ratings, np.nan)
        system, pair = int(rng.integers(len(truth))), list(pairs[rng.integers(len(pairs))])
        for name, chosen, contrast in (("mean", [system], [1.0]), ("difference", pair, [1.0, -1.0])):
            estimate = ppi_estimate(ratings[:, chosen], scores[:, chosen], np.array(contrast), value_range=(1, 5))
            assert estimate is not None
            true = float(np.array(contrast) @ truth[chosen])
            hits[name].append(estimate.low <= true <= estimate.high)
            hits[f"{name}, ratings alone"].append(estimate.alone_low <= true <= estimate.alone_high)
            saved[f"{name}, saved"].append(100 * estimate.saved / estimate.rated)
    shares = {name: float(np.mean(values)) for name, values in hits.items()}
    return shares | {name: float(np.median(values)) for name, values in saved.items()}


def main(argv: Sequence[str] | None = None) -> int:
    given = parser_of(__doc__, replicates=1000, seed=0).parse_args(argv)
    worlds: dict[str, tuple[Draw, Floats]] = {}
    for correlation in (0.0, 0.5, 0.8):
        truth = made_up(correlation, 1_000_000)(np.random.default_rng(99))[0].mean(axis=0)
        worlds[f"judge {correlation:g}"] = made_up(correlation), truth
    for population in (p for spec in given.data for p in populations(spec, given.seed) if p.recurring):
        draw = of_set(population.ratings, population.judges[0])
        worlds[population.name] = draw, population.ratings.mean(axis=0)
    rows = [
        {"population": name, "rated": n, **covered(draw, truth, n, given.replicates, given.seed)}
        for name, (draw, truth) in worlds.items()
        for n in SIZES
    ]
    publish(rows, given.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
