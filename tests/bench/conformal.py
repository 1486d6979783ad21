"""How many ratings the intervals of `debate score` hold.

    python -m tests.bench.conformal --replicates 400
    python -m tests.bench.conformal --data summeval=PATH --replicates 200 --json conformal.json

Made-up held-out parts of 10 to 50 sources with 1, 8 or 16 texts: errors are larger at low scores, and none, a third or
two thirds of their variance is shared by the texts of a source. With --data the sources of a rated set are drawn with
replacement, and a judge is made from its ratings as in `tests/bench/coverage.py` and mapped to the raters' scale by
other sources. Intervals of 80 and 90 % are fitted to the part, and scores of other sources are looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.calibration import fit_calibration
from debate_judge.data.inference.conformal import fit_intervals
from debate_judge.data.schema import Scale
from tests.bench.harness import Population, groups_of, parser_of, populations, publish

SIZES = (10, 20, 50)
LEVELS = (0.8, 0.9)
SCALE = Scale(1, 5)
NEW = 20
"""Sources that coverage is measured on, in each replicate."""

Draw = Callable[[np.random.Generator, int], list[GroupScores]]
"""Draws sources with scores on the raters' scale and ratings."""


def made_up(texts: int, shared: float) -> Draw:
    def draw(rng: np.random.Generator, sources: int) -> list[GroupScores]:
        scores = rng.uniform(1, 5, (sources, texts))
        error = np.sqrt(shared) * rng.normal(size=(sources, 1)) + np.sqrt(1 - shared) * rng.normal(size=scores.shape)
        return groups_of(np.clip(scores + error * (0.3 + 0.6 * (5 - scores) / 4), 1, 5), scores)

    return draw


def of_set(population: Population, seed: int) -> Draw:
    """Half of a set's sources fit the map, the other half are drawn from."""
    order = np.random.default_rng(seed).permutation(len(population.ratings))
    half = len(order) // 2
    calibration = fit_calibration(population.groups(0, order[:half].tolist()), SCALE, on_scale=False)
    assert calibration is not None
    mapped = np.vectorize(calibration.map_score)(population.judges[0])

    def draw(rng: np.random.Generator, sources: int) -> list[GroupScores]:
        which = rng.choice(order[half:], size=sources)
        return groups_of(population.ratings[which], mapped[which])

    return draw


def coverage(draw: Draw, sources: int, level: float, replicates: int, seed: int) -> tuple[float, float]:
    """Share of ratings inside, and mean width."""
    rng = np.random.default_rng(seed)
    inside, widths = [], []
    for _ in range(replicates):
        intervals = fit_intervals(draw(rng, sources), SCALE, level)
        assert intervals is not None
        for group in draw(rng, NEW):
            for rating, score in zip(group.ratings, group.scores, strict=True):
                span = intervals.at(float(score or 0))
                inside.append(span.low - 1e-9 <= float(rating or 0) <= span.high + 1e-9)
                widths.append(span.width)
    return float(np.mean(inside)), float(np.mean(widths))


def main(argv: Sequence[str] | None = None) -> int:
    given = parser_of(__doc__, replicates=200, seed=0).parse_args(argv)
    worlds: dict[str, Draw] = {"1 text a source": made_up(1, 0.0)}
    for texts in (8, 16):
        for shared in (0.0, 1 / 3, 2 / 3):
            worlds[f"{texts} texts, {100 * shared:.0f} % shared"] = made_up(texts, shared)
    for spec in given.data:
        worlds |= {p.name: of_set(p, given.seed) for p in populations(spec, given.seed)}
    rows = []
    for name, draw in worlds.items():
        for sources in SIZES:
            row: dict[str, object] = {"held-out part": name, "sources": sources}
            for level in LEVELS:
                held, width = coverage(draw, sources, level, given.replicates, given.seed)
                row |= {f"in {level:.0%}": held, f"width {level:.0%}": width}
            rows.append(row)
    publish(rows, given.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
