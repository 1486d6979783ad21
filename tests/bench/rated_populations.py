"""Rated sets as populations that samples of groups are drawn from, with judges made from the ratings."""

from __future__ import annotations

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from debate_judge import data
from debate_judge.data.agreement.tables import GroupScores

Floats = NDArray[np.float64]
JUDGES = 5


@dataclass(frozen=True)
class Population:
    """One aspect of a rated set, with judges; arrays of shape (groups, candidates)."""

    name: str
    ratings: Floats
    judges: tuple[Floats, ...]
    recurring: bool
    """Whether candidate i is the same system in all groups."""

    def groups(self, judge: int, which: Sequence[int], columns: Sequence[int] | None = None) -> list[GroupScores]:
        """The scores of one judge for some groups, which may recur."""
        columns = range(self.ratings.shape[1]) if columns is None else columns
        ids = tuple(f"s{i}" for i in range(len(columns)))
        rows = [(self.ratings[g, columns].tolist(), self.judges[judge][g, columns].tolist()) for g in which]
        return [GroupScores(f"g{i}", ids, tuple(r), tuple(s)) for i, (r, s) in enumerate(rows)]

    @property
    def everything(self) -> range:
        return range(len(self.ratings))


def populations(spec: str, seed: int, judges: int = JUDGES) -> Iterator[Population]:
    """One for each aspect in whose groups the ratings usually differ; its judges' agreement is .3 to .6."""
    corpus = data.load(spec)
    size = min(len(g.candidates) for g in corpus.groups)
    ids = {tuple(c.id for c in g.candidates) for g in corpus.groups}
    tables = {
        name: np.array([[g.candidates[i].rating(name) for i in range(size)] for g in corpus.groups], dtype=float)
        for name in corpus.rated_aspects()
    }
    rng = np.random.default_rng(seed)
    for name, ratings in tables.items():
        if np.isnan(ratings).any() or np.mean(np.ptp(ratings, axis=1) > 0) < 0.8:
            continue
        others = np.mean([_standard(t) for n, t in tables.items() if n != name] or [_standard(ratings)], axis=0)
        made = []
        for _ in range(judges):
            noise = rng.normal(size=ratings.shape) * rng.uniform(1.0, 4.0, size=(len(ratings), 1))
            made.append(np.round(2 * (_standard(ratings) + others + noise)) / 2)
        yield Population(f"{corpus.origin.name} {name}", ratings, tuple(made), len(ids) == 1)


def _standard(values: Floats) -> Floats:
    return np.asarray((values - values.mean()) / values.std())


def exchanged(population: Population, which: NDArray[np.int_], rng: np.random.Generator) -> Population:
    """The drawn groups with the judges put in a random order in each, so that all judges are equally good."""
    scores = np.stack([judge[which] for judge in population.judges])
    order = np.argsort(rng.random(scores.shape[:2]), axis=0)
    scores = np.take_along_axis(scores, order[:, :, None], axis=0)
    return Population(population.name, population.ratings[which], tuple(scores), population.recurring)


def parser_of(description: str | None, replicates: int) -> ArgumentParser:
    """The arguments that all benches on populations have."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", default=[], help="a rated set as population; repeatable")
    parser.add_argument("--replicates", type=int, default=replicates, help="samples of each population and size")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="also write the figures to this file")
    return parser


def write_figures(figures: object, file: str | None) -> None:
    if file:
        Path(file).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
