"""What choosing the sources that people rate next saves against drawing them at random.

    python -m tests.bench.next_sources --data summeval=PATH --data dialogues.jsonl --replicates 200

The sources of all sets, which are rated for one task, form a pool; the offline LM scores it once, by eight judges. In
each draw 20 sources are those that a compile knew, and 10, 20 or 40 of the others are rated: at random, spread over
kinds of sources, or with a probability that grows with the spread of a judge's scores, the width of the intervals
around them, or the distance of two judges' rankings (`data/inference/source_sampling.py`). Two judges are then compared
by what was rated, each source with the weight 1 / probability. For the mean of aspects, and the median pair of judges,
are printed the precision of the difference and of one judge's agreement, as a multiple of that of random sources (the
mean squared error of the latter, divided), and how much agreement the choice of the better judge gives away on the
whole pool, with these weights and without, as a compile chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from debate_judge import data
from debate_judge.data.agreement.correlations import correlations
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.inference.conformal import fit_intervals
from debate_judge.data.inference.source_sampling import (
    cluster_texts,
    inclusion_probabilities,
    rank_distance,
    systematic_sample,
)
from debate_judge.data.schema import Corpus, Scale
from debate_judge.programs import JUDGES, build
from debate_judge.programs.judge import corpus_items
from debate_judge.runs.runner.runner import group_scores
from tests.bench.harness import Floats, Row, offline_runner, parser_of, publish

SIZES = (10, 20, 40)
KNOWN = 20
DESIGNS = ("random", "kinds", "spread", "width", "rankings", "rankings, kinds")
SCORED = {
    "single": ("single", {"rounds": 0}),
    **{f"debate, {n}": ("debate", {"rounds": n}) for n in (1, 2, 3)},
    **{f"neutral critic, {n}": ("multiagent", {"rounds": n}) for n in (1, 3)},
    "tie-breaker": ("debate+tiebreak", {"rounds": 2}),
    "geval": ("geval", {}),
}
"""Judge -> its preset, and what is set otherwise."""


@dataclass(frozen=True)
class Pool:
    """The sources, with what every judge gives them."""

    texts: list[str]
    scores: dict[str, dict[str, list[GroupScores]]]
    """Judge -> aspect -> groups."""
    scales: dict[str, Scale]

    def agreement(self, judge: str) -> Floats:
        """Spearman within each source, shape (aspects, sources); NaN where the ratings are equal."""
        by_aspect = []
        for groups in self.scores[judge].values():
            width = max(len(g.scores) for g in groups)
            tables = [
                np.array([[*of(g), *[None] * (width - len(g.scores))] for g in groups], dtype=float)
                for of in (lambda g: g.ratings, lambda g: g.scores)
            ]
            values = correlations(*tables, ["spearman"])[0]
            ranked = np.nanmax(tables[0], axis=1) > np.nanmin(tables[0], axis=1)
            by_aspect.append(np.where(ranked, np.nan_to_num(values), np.nan))
        return np.array(by_aspect)

    def distance(self, first: str, second: str) -> Floats:
        """Of two judges' rankings, root mean square over aspects, shape (sources,)."""
        pairs = zip(self.scores[first].values(), self.scores[second].values(), strict=True)
        return np.asarray(np.sqrt(np.mean([rank_distance(a, b) ** 2 for a, b in pairs], axis=0)))

    def spread(self, judge: str) -> Floats:
        """Of a judge's scores within each source, mean over aspects."""
        return np.mean([[np.std(g.scores) for g in groups] for groups in self.scores[judge].values()], axis=0)

    def width(self, judge: str, known: Sequence[int]) -> Floats:
        """Of the intervals around a judge's scores, fitted to some sources, mean over texts and aspects."""
        widths = []
        for aspect, groups in self.scores[judge].items():
            intervals = fit_intervals([groups[i] for i in known], self.scales[aspect], 0.9)
            assert intervals is not None
            # To a tenth of a point, so that few have to be looked up.
            tenths = [[round(s, 1) for s in g.scores if s is not None] for g in groups]
            at = {tenth: intervals.at(tenth).width for scores in tenths for tenth in scores}
            widths.append([np.mean([at[tenth] for tenth in scores]) for scores in tenths])
        return np.mean(widths, axis=0)


def scored(specs: Sequence[str]) -> Pool:
    """Score the sources of all sets by the offline LM."""
    sets = [data.load(spec, None if spec.partition("=")[0] in data.LOADERS else "summarization") for spec in specs]
    corpus = Corpus(sets[0].task, tuple(g for corpus in sets for g in corpus.groups), sets[0].origin)
    scores: dict[str, dict[str, list[GroupScores]]] = {name: {} for name in SCORED}
    aspects = [corpus.task.aspect(name) for name in corpus.rated_aspects()]
    with offline_runner() as runner:
        for aspect in aspects:
            items = corpus_items(corpus, aspect)
            for name, (preset, changes) in SCORED.items():
                judge = build(JUDGES[preset].kind, {**JUDGES[preset].config, **changes})
                scores[name][aspect.name] = group_scores(corpus, aspect, runner.judge(judge, items), "given")
    return Pool([g.source or g.all_texts for g in corpus.groups], scores, {a.name: a.scale for a in aspects})


def simulated(pool: Pool, size: int, draws: int, seed: int) -> list[Row]:
    """For each design how precise it is against random sources, and what its choices give away."""
    judges = list(pool.scores)
    agreement = {name: pool.agreement(name) for name in judges}
    pairs = list(combinations(judges, 2))
    distance = {pair: pool.distance(*pair) for pair in pairs}
    spread = {name: pool.spread(name) for name in judges}
    squares = {design: np.zeros((2, len(pairs))) for design in DESIGNS}
    lost = {design: np.zeros(2) for design in DESIGNS}
    for number in range(draws):
        rng = np.random.default_rng([seed, size, number])
        order = rng.permutation(len(pool.texts))
        known, rest = order[:KNOWN], order[KNOWN:]
        kinds = cluster_texts([pool.texts[i] for i in rest], size, number)
        width = {name: pool.width(name, known) for name in judges}
        for place, (first, second) in enumerate(pairs):
            apart = agreement[second] - agreement[first]
            true = [float(np.nanmean(values[:, rest])) for values in (apart, agreement[second])]
            priorities = {"spread": spread[second], "width": width[second], "rankings": distance[first, second]}
            for design in DESIGNS:
                priority = priorities.get(design.partition(",")[0], np.ones(len(order)))[rest]
                chances = inclusion_probabilities(priority, size)
                which = systematic_sample(chances, kinds if "kinds" in design else np.zeros_like(kinds), rng)
                estimates = [_weighted(v[:, rest[which]], chances[which]) for v in (apart, agreement[second])]
                squares[design][:, place] += [(e - t) ** 2 / draws for e, t in zip(estimates, true, strict=True)]
                plain = _weighted(apart[:, rest[which]], np.ones(size))
                wrong = np.sign([estimates[0], plain]) != np.sign(true[0])
                lost[design] += abs(true[0]) * wrong / draws / len(pairs)
    rows: list[Row] = []
    for design in DESIGNS:
        worth = np.median(squares["random"] / squares[design], axis=1).tolist()
        figures = zip(("difference", "agreement", "given away", "unweighted"), [*worth, *lost[design]], strict=True)
        rows.append({"rated": size, "sources": design, **{name: float(value) for name, value in figures}})
    return rows


def _weighted(values: Floats, chances: Floats) -> float:
    """Mean over aspects of the mean over sources, each with the weight 1 / chance."""
    weights = np.where(np.isnan(values), 0.0, 1 / chances)
    return float(np.mean((weights * np.nan_to_num(values)).sum(axis=1) / weights.sum(axis=1)))


def main(argv: Sequence[str] | None = None) -> int:
    given = parser_of(__doc__, replicates=200, seed=0).parse_args(argv)
    pool = scored(given.data or ["sample"])
    sizes = [size for size in SIZES if size <= len(pool.texts) - KNOWN]
    rows = [row for size in sizes for row in simulated(pool, size, given.replicates, given.seed)]
    publish(rows, given.json, f"{given.replicates} draws from {len(pool.texts) - KNOWN} sources")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
