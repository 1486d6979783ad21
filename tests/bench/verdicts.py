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

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from debate_judge.data.agreement.correlations import correlations
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.inference.drift import agreement_estimate, compare_samples, margin_verdict
from debate_judge.data.inference.non_inferiority import Margins, ScoreMapping, compare_lms
from debate_judge.data.schema import Scale
from tests.bench.harness import Floats, Row, groups_of, parser_of, populations, publish

SIZES = (20, 50, 100)
MARGINS = {"carry": 0.03, "recheck": 0.05}
"""The usual ones."""
VERDICTS = {"carry": ("carry", "recompile"), "recheck": ("holds", "unclear", "worse")}
LOSSES = {"margin": 1.0, "none": 0.0, "three margins": 3.0}
NOISE = 1.2
"""Of the first judge, in standard deviations of what raters look at."""
TEXTS = 16
LARGE = 20_000
"""Sources that the true agreement is measured on."""
SHARED = 0.5
"""Share of the errors' variance that the two judges have in common."""

Scores = dict[str, list[GroupScores]]
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

    def groups(self, judge: int, noise: float, which: range) -> Scores:
        scores = self.judged(judge, noise)
        return {f"aspect {a}": groups_of(ratings[which], scores[a][which]) for a, ratings in enumerate(self.ratings)}


def with_errors(ratings: Floats, quality: Floats, rng: np.random.Generator) -> Sources:
    shared, first, second = rng.normal(size=(3, *ratings.shape))
    size = rng.uniform(0.5, 1.5, size=(1, ratings.shape[1], 1))
    errors = [size * (np.sqrt(SHARED) * shared + np.sqrt(1 - SHARED) * error) for error in (first, second)]
    return Sources(ratings, quality, (errors[0], errors[1]))


def made_up(sources: int, rng: np.random.Generator) -> Sources:
    shape = (1, sources, TEXTS)
    quality = 0.6 * rng.normal(size=(1, sources, 1)) + 0.8 * rng.normal(size=shape)
    points = 3.2 + quality + 0.7 * rng.normal(size=(3, *shape))
    return with_errors(np.clip(np.round(points), 1, 5).mean(axis=0), quality, rng)


def of_set(spec: str) -> Fresh:
    ratings = np.stack([population.ratings for population in populations(spec, 0, judges=0)])
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


def carried(sample: Sources, noise: float, size: int) -> str:
    old, new = sample.groups(0, NOISE, range(size)), sample.groups(1, noise, range(size))
    mapping = ScoreMapping(Scale(1, 5), False, None)
    return compare_lms(old, new, dict.fromkeys(old, mapping), Margins(MARGINS["carry"])).verdict


def rechecked(sample: Sources, noise: float, size: int) -> str:
    """The old sources have the scores of the first judge, the new ones those of the second."""
    then, now = sample.groups(0, NOISE, range(size)), sample.groups(1, noise, range(size, 2 * size))
    figures = [agreement_estimate(scores, "spearman", "summary") for scores in (now, then)]
    return margin_verdict(compare_samples(*figures), MARGINS["recheck"])


COMMANDS = {"carry": carried, "recheck": rechecked}


def shares(name: str, fresh: Fresh, replicates: int, seed: int) -> Iterator[Row]:
    """One row for each size, command and verdict."""
    population = fresh(LARGE, np.random.default_rng(99))
    noises = {
        (command, loss): noise_for(population, times * margin)
        for command, margin in MARGINS.items()
        for loss, times in LOSSES.items()
    }
    for size in SIZES:
        counts: Counter[tuple[str, str, str]] = Counter()
        for number in range(replicates):
            sample = fresh(2 * size, np.random.default_rng([seed, size, number]))
            for (command, loss), noise in noises.items():
                counts[command, loss, COMMANDS[command](sample, noise, size)] += 1
        for command, verdicts in VERDICTS.items():
            for verdict in verdicts:
                losses = {f"true loss: {loss}": counts[command, loss, verdict] / replicates for loss in LOSSES}
                yield {"population": name, "sources": size, "command": command, "verdict": verdict, **losses}


def main(argv: Sequence[str] | None = None) -> int:
    given = parser_of(__doc__, replicates=1000, seed=0).parse_args(argv)
    worlds: dict[str, Fresh] = {"made up": made_up, **{spec.partition("=")[0]: of_set(spec) for spec in given.data}}
    rows = [row for name, fresh in worlds.items() for row in shares(name, fresh, given.replicates, given.seed)]
    publish(rows, given.json, f"shares of {given.replicates} samples; margins: {MARGINS}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
