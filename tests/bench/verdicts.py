"""How often `debate carry` and `debate recheck` say what is not so, and how often they can say what is.

    python -m tests.bench.verdicts --replicates 1000
    python -m tests.bench.verdicts --data summeval=PATH --replicates 1000 --json verdicts.json

Two judges whose true agreement with the raters differs by a known amount. Made-up sources have 16 texts whose ratings
share an effect of the source, with the noise of three raters in whole points; the judges score in half points, with
errors of which half are common to both and whose size differs from source to source. With --data the sources of a
rated set are the population, drawn with replacement, and the judges are made from the ratings of all its aspects. Each
sample has a pair of judges of its own. The noise of the second one is set so that its true agreement is lower by the
margin, by nothing, or by three margins.
Printed are shares of samples of 20, 50 and 100 sources; in a recheck there are as many new as old ones.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from debate_judge.data.agreement.correlations import Floats, correlations  # noqa: E402
from debate_judge.data.agreement.results import GroupScores  # noqa: E402
from debate_judge.data.inference.drift import (  # noqa: E402
    agreement_estimate,
    compare_samples,
    margin_verdict,
)
from debate_judge.data.inference.non_inferiority import Margins, ScoreMapping, compare_lms  # noqa: E402
from debate_judge.data.schema import Scale  # noqa: E402
from debate_judge.runs.reports.tables import DataTable  # noqa: E402
from debate_judge.runs.reports.terminal import show  # noqa: E402
from tests.bench.rated_populations import parser_of, populations, write_figures  # noqa: E402

SIZES = (20, 50, 100)
CARRY, RECHECK = 0.03, 0.05
"""The usual margins."""
LOSSES = {"margin": 1.0, "none": 0.0, "three margins": 3.0}
NOISE = 1.2
"""Of the first judge, in standard deviations of what raters look at."""
TEXTS = 16
LARGE = 20_000
"""Sources that the true agreement is measured on."""
SHARED = 0.5
"""Share of the errors' variance that the two judges have in common."""

Scores = dict[str, list[GroupScores]]
Shares = dict[str, dict[str, dict[str, float]]]
"""Command -> true loss -> verdict -> share of samples."""
Fresh = Callable[[int, np.random.Generator], "Sources"]


@dataclass(frozen=True)
class Sources:
    """Sources of a population; arrays of shape (aspects, sources, texts)."""

    ratings: Floats
    quality: Floats
    """What the judges see, of standard deviation 1."""
    errors: tuple[Floats, Floats]
    """Of the two judges, for a noise of 1."""

    def judged(self, judge: int, noise: float) -> Floats:
        return np.round(2 * (3 + self.quality + noise * self.errors[judge])) / 2

    def agreement(self, judge: int, noise: float) -> float:
        """Summary-level Spearman, averaged over aspects; groups of equal ratings are left out."""
        scores = self.judged(judge, noise)
        by_group = [correlations(r, s, ["spearman"])[0] for r, s in zip(self.ratings, scores, strict=True)]
        ranked = [np.ptp(r, axis=1) > 0 for r in self.ratings]
        return float(np.mean([np.nan_to_num(v[here]).mean() for v, here in zip(by_group, ranked, strict=True)]))

    def groups(self, judge: int, noise: float, which: Sequence[int]) -> Scores:
        ids = tuple(f"s{i}" for i in range(self.ratings.shape[2]))
        scores = self.judged(judge, noise)
        return {
            f"aspect {a}": [
                GroupScores(f"g{i}", ids, tuple(self.ratings[a, s].tolist()), tuple(scores[a, s].tolist()))
                for i, s in enumerate(which)
            ]
            for a in range(len(self.ratings))
        }


def with_errors(ratings: Floats, quality: Floats, rng: np.random.Generator) -> Sources:
    shared, first, second = rng.normal(size=(3, *ratings.shape))
    size = rng.uniform(0.5, 1.5, size=(1, ratings.shape[1], 1))
    errors = [size * (np.sqrt(SHARED) * shared + np.sqrt(1 - SHARED) * own) for own in (first, second)]
    return Sources(ratings, quality, (errors[0], errors[1]))


def made_up(sources: int, rng: np.random.Generator) -> Sources:
    shape = (1, sources, TEXTS)
    quality = 0.6 * rng.normal(size=(1, sources, 1)) + 0.8 * rng.normal(size=shape)
    points = 3.2 + quality + 0.7 * rng.normal(size=(3, *shape))
    return with_errors(np.clip(np.round(points), 1, 5).mean(axis=0), quality, rng)


def of_set(spec: str) -> Fresh:
    ratings = np.stack([one.ratings for one in populations(spec, 0, judges=0)])
    quality = (ratings - ratings.mean(axis=(1, 2), keepdims=True)) / ratings.std(axis=(1, 2), keepdims=True)

    def draw(sources: int, rng: np.random.Generator) -> Sources:
        which = rng.integers(ratings.shape[1], size=sources)
        return with_errors(ratings[:, which], quality[:, which], rng)

    return draw


def noise_for(population: Sources, loss: float) -> float:
    """The noise of the second judge with which it agrees less than the first by `loss`, by bisection."""
    wanted, low, high = population.agreement(0, NOISE) - loss, 0.1, 10.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if population.agreement(1, middle) > wanted else (low, middle)
    return (low + high) / 2


def carried(sample: Sources, noise: float, which: Sequence[int]) -> str:
    old, new = sample.groups(0, NOISE, which), sample.groups(1, noise, which)
    mapping = ScoreMapping(Scale(1, 5), False, None)
    return compare_lms(old, new, dict.fromkeys(old, mapping), Margins(CARRY)).verdict


def rechecked(sample: Sources, noise: float, old: Sequence[int], new: Sequence[int]) -> str:
    """The old sources have the scores of the first judge, the new ones those of the second."""
    then, now = sample.groups(0, NOISE, old), sample.groups(1, noise, new)
    figures = [agreement_estimate(scores, "spearman", "summary") for scores in (now, then)]
    return margin_verdict(compare_samples(*figures), RECHECK)


def shares(draw: Callable[[int], Sources], noises: dict[str, dict[str, float]], size: int, replicates: int) -> Shares:
    found: dict[str, dict[str, Counter[str]]] = {c: {loss: Counter() for loss in LOSSES} for c in noises}
    for number in range(replicates):
        sample = draw(number)
        for loss in LOSSES:
            found["carry"][loss][carried(sample, noises["carry"][loss], range(size))] += 1
            verdict = rechecked(sample, noises["recheck"][loss], range(size), range(size, 2 * size))
            found["recheck"][loss][verdict] += 1
    return {
        command: {loss: {v: n / replicates for v, n in counts.items()} for loss, counts in by.items()}
        for command, by in found.items()
    }


def world(fresh: Fresh, given: Namespace) -> dict[int, Shares]:
    """Size -> shares of samples."""
    population = fresh(LARGE, np.random.default_rng(99))
    noises = {
        command: {loss: noise_for(population, times * margin) for loss, times in LOSSES.items()}
        for command, margin in (("carry", CARRY), ("recheck", RECHECK))
    }

    def draw(number: int, size: int) -> Sources:
        return fresh(2 * size, np.random.default_rng([given.seed, size, number]))

    return {n: shares(lambda number, n=n: draw(number, n), noises, n, given.replicates) for n in SIZES}


def main(argv: Sequence[str] | None = None) -> int:
    given = parser_of(__doc__, 1000).parse_args(argv)
    found = {"made up": world(made_up, given)}
    found |= {spec.partition("=")[0]: world(of_set(spec), given) for spec in given.data}
    header = ["population", "sources", "command", "verdict", *(f"true loss: {loss}" for loss in LOSSES)]
    rows = [
        [name, str(n), command, verdict, *(f"{by[loss].get(verdict, 0):.3f}" for loss in LOSSES)]
        for name, by_size in found.items()
        for n, commands in by_size.items()
        for command, by in commands.items()
        for verdict in (("carry", "recompile") if command == "carry" else ("holds", "unclear", "worse"))
    ]
    show(DataTable(header, rows), f"shares of n = {given.replicates} samples; margins: {CARRY:g} and {RECHECK:g}")
    write_figures(found, given.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
