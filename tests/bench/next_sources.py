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

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from debate_judge import data  # noqa: E402
from debate_judge.data.agreement.correlations import Floats, correlations  # noqa: E402
from debate_judge.data.agreement.results import GroupScores  # noqa: E402
from debate_judge.data.inference.conformal import fit_intervals  # noqa: E402
from debate_judge.data.inference.source_sampling import (  # noqa: E402
    cluster_texts,
    inclusion_probabilities,
    rank_distance,
    systematic_sample,
)
from debate_judge.data.schema import Corpus, Scale  # noqa: E402
from debate_judge.programs import JUDGES, build  # noqa: E402
from debate_judge.programs.judge import corpus_items  # noqa: E402
from debate_judge.programs.make_lm import make_lm  # noqa: E402
from debate_judge.runs.reports.tables import DataTable  # noqa: E402
from debate_judge.runs.reports.terminal import show  # noqa: E402
from debate_judge.runs.runner.runner import JudgeRunner, group_scores  # noqa: E402
from tests.bench.rated_populations import parser_of, write_figures  # noqa: E402

SIZES = (10, 20, 40)
KNOWN = 20
DESIGNS = ("random", "kinds", "spread", "width", "rankings", "rankings, kinds")
SCORED = {
    "single": ("single", 0),
    **{f"debate, {n}": ("debate", n) for n in (1, 2, 3)},
    **{f"neutral critic, {n}": ("multiagent", n) for n in (1, 3)},
    "tie-breaker": ("debate+tiebreak", 2),
    "geval": ("geval", None),
}
"""Judge -> its preset and rounds."""


@dataclass(frozen=True)
class Pool:
    """The sources, with what every judge gives them."""

    texts: list[str]
    scores: dict[str, dict[str, list[GroupScores]]]
    """Judge -> aspect -> groups."""
    scales: dict[str, Scale]

    def agreement(self, judge: str) -> Floats:
        """Spearman within each source, shape (aspects, sources); NaN where the ratings are equal."""
        found = []
        for groups in self.scores[judge].values():
            width = max(len(g.scores) for g in groups)
            tables = [
                np.array([[*of(g), *[None] * (width - len(g.scores))] for g in groups], dtype=float)
                for of in (lambda g: g.ratings, lambda g: g.scores)
            ]
            values = correlations(*tables, ["spearman"])[0]
            ranked = np.nanmax(tables[0], axis=1) > np.nanmin(tables[0], axis=1)
            found.append(np.where(ranked, np.nan_to_num(values), np.nan))
        return np.array(found)

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
            found = fit_intervals([groups[i] for i in known], self.scales[aspect], 0.9)
            assert found is not None
            # To a tenth of a point, so that few have to be looked up.
            tenths = [[round(s, 1) for s in g.scores if s is not None] for g in groups]
            at = {tenth: found.at(tenth).width for own in tenths for tenth in own}
            widths.append([np.mean([at[tenth] for tenth in own]) for own in tenths])
        return np.mean(widths, axis=0)


def scored(specs: Sequence[str]) -> Pool:
    """Score the sources of all sets by the offline LM."""
    sets = [data.load(spec, None if spec.partition("=")[0] in data.LOADERS else "summarization") for spec in specs]
    groups = [g for one in sets for g in one.groups]
    corpus = Corpus(sets[0].task, tuple(groups), sets[0].origin)
    found: dict[str, dict[str, list[GroupScores]]] = {name: {} for name in SCORED}
    aspects = [corpus.task.aspect(name) for name in corpus.rated_aspects()]
    with JudgeRunner(make_lm("offline"), progress=False) as runner:
        for aspect in aspects:
            items = corpus_items(corpus, aspect)
            for name, (preset, rounds) in SCORED.items():
                config = {**JUDGES[preset].config, **({} if rounds is None else {"rounds": rounds})}
                judgements = runner.judge(build(JUDGES[preset].kind, config), items)
                found[name][aspect.name] = group_scores(corpus, aspect, judgements, "given")
    return Pool([g.source or g.all_texts for g in groups], found, {a.name: a.scale for a in aspects})


def simulated(pool: Pool, size: int, draws: int, seed: int) -> dict[str, dict[str, float]]:
    """Design -> how precise it is against random sources, and what its choices give away."""
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
                found = [_weighted(v[:, rest[which]], chances[which]) for v in (apart, agreement[second])]
                squares[design][:, place] += [(f - t) ** 2 / draws for f, t in zip(found, true, strict=True)]
                plain = _weighted(apart[:, rest[which]], np.ones(size))
                wrong = np.sign([found[0], plain]) != np.sign(true[0])
                lost[design] += abs(true[0]) * wrong / draws / len(pairs)
    worth = {design: squares["random"] / own for design, own in squares.items()}
    return {
        design: {
            "difference": float(np.median(worth[design][0])),
            "agreement": float(np.median(worth[design][1])),
            "given away": float(lost[design][0]),
            "unweighted": float(lost[design][1]),
        }
        for design in DESIGNS
    }


def _weighted(values: Floats, chances: Floats) -> float:
    """Mean over aspects of the mean over sources, each with the weight 1 / chance."""
    weights = np.where(np.isnan(values), 0.0, 1 / chances)
    return float(np.mean((weights * np.nan_to_num(values)).sum(axis=1) / weights.sum(axis=1)))


def main(argv: Sequence[str] | None = None) -> int:
    given = parser_of(__doc__, 200).parse_args(argv)
    pool = scored(given.data or ["sample"])
    found = {
        size: simulated(pool, size, given.replicates, given.seed) for size in SIZES if size <= len(pool.texts) - KNOWN
    }
    header = ["rated", "sources", "difference", "agreement", "given away", "unweighted"]
    rows = [
        [str(size), design, *(f"{value:.{digits}f}" for value, digits in zip(one.values(), (2, 2, 4, 4), strict=True))]
        for size, by in found.items()
        for design, one in by.items()
    ]
    show(DataTable(header, rows), f"{given.replicates} draws from {len(pool.texts) - KNOWN} sources")
    write_figures(found, given.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
