"""How often 95 % intervals hold the truth, and how often equal judges are called different, with few groups.

    python -m tests.bench.coverage --data summeval=PATH --data topical_chat=PATH --replicates 2000 --json coverage.json

The groups of each rated set are taken as the population. Judges are made from the ratings: an aspect's rating, the
mean of the other aspects, and noise that differs from group to group, in half points. Then samples of 5 to 50 groups
are drawn with replacement, and every interval of `data/agreement` is made from each, beside the percentile bootstrap
(`%`). Coverage is the share of intervals that hold the population's value. For the type-I error the judges are put in a
random order in every group, so that they are equally good: the share of p-values below .05.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from debate_judge.data.agreement.correlations import (
    agreement,
    compare,
    correlations,
    estimate_level,
)
from debate_judge.data.agreement.decisions import ABSOLUTE_MEASURES as ABSOLUTE
from debate_judge.data.agreement.decisions import (
    DECISION_MEASURES,
    DecisionResult,
    DecisionRule,
    absolute_agreement,
    evaluate_decisions,
)
from debate_judge.data.agreement.figures import GroupIndex, GroupScores, Pairs, holm_adjusted
from tests.bench.harness import Floats, Population, Row, groups_of, parser_of, populations, publish

RESAMPLES = 400
Span = tuple[float | None, float | None]
Spans = dict[str, tuple[Span, Span | None]]
"""Figure -> the interval as it is made now, and of correlations the percentile interval of the same resamples."""
Hits = dict[tuple[str, int], list[tuple[bool, bool | None]]]
"""Figure and number of groups -> for each sample, what is counted of the present method and of the percentiles."""


def percentile(replicates: Floats) -> Span:
    """The interval that this bench is a warning of."""
    known = replicates[~np.isnan(replicates)]
    if not len(known):
        return None, None
    low, high = np.quantile(known, (0.025, 0.975))
    return float(low), float(high)


def summary_intervals(population: Population, which: Sequence[int], seed: int) -> Spans:
    """Spearman within groups, and the difference of two judges, against means of resampled groups."""
    both = [population.groups(j, which) for j in (0, 1)]
    cell = agreement({"x": both[0]}, "spearman", "summary")
    apart = compare({"x": both[0]}, {"x": both[1]}, seed=seed)
    values = [_of_each_group(groups) for groups in both]
    drawn = np.random.default_rng(seed).integers(len(which), size=(RESAMPLES, len(which)))
    means = [_means(v[drawn]) for v in values]
    return {
        "summary": ((cell.low, cell.high), percentile(means[0])),
        "summary, difference": ((apart.low, apart.high), percentile(means[0] - means[1])),
    }


def _of_each_group(groups: Sequence[GroupScores]) -> Floats:
    pairs = Pairs.of(groups, GroupIndex.build({"x": groups}, 0))
    estimate = estimate_level("summary", pairs, "spearman")
    values = np.full(len(groups), np.nan)
    values[estimate.included] = estimate.pseudo_values
    return values


def _means(values: Floats) -> Floats:
    """Of what is defined in each row."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nansum(values, axis=1) / known.sum(axis=1))


def pooled_intervals(population: Population, which: Sequence[int], seed: int) -> Spans:
    """Spearman at sample level."""
    groups = population.groups(0, which)
    cell = agreement({"x": groups}, "spearman", "sample", seed=seed)
    drawn = np.random.default_rng(seed).integers(len(which), size=(RESAMPLES, len(which)))
    sides = (np.array(side, dtype=float) for side in ([g.ratings for g in groups], [g.scores for g in groups]))
    replicates = correlations(*(side[drawn].reshape(RESAMPLES, -1) for side in sides), "spearman")
    return {"sample": ((cell.low, cell.high), percentile(replicates))}


def absolute_intervals(population: Population, which: Sequence[int], seed: int) -> Spans:
    """Error, concordance and kappa of the cut, of the judge's scores moved to the raters' scale."""
    ratings, scores = (values[list(which)] for values in (population.ratings, _on_scale(population)))
    groups, cut = groups_of(ratings, scores), _cuts(population)[0]
    measures = absolute_agreement({"x": {"x": groups}}, {"x": cut}, same_scale=True, seed=seed)["x"]["x"].measures
    return {f"absolute {name}": ((measures[name].low, measures[name].high), None) for name in ABSOLUTE}


def _on_scale(population: Population) -> Floats:
    """The first judge's scores with the mean and the spread of the ratings, in half points."""
    ratings, scores = population.ratings, population.judges[0]
    moved = ratings.mean() + ratings.std() * (scores - scores.mean()) / scores.std()
    return np.clip(np.round(2 * moved) / 2, ratings.min(), ratings.max())


def decision_intervals(population: Population, which: Sequence[int], seed: int) -> Spans:
    """F1, kappa and AUROC of decisions at the upper third; kappa and recall where each source has one candidate."""
    rng = np.random.default_rng(seed)
    many = population.groups(0, rng.integers(len(population.ratings), size=4 * len(which)).tolist())
    single = [
        replace(g, candidates=(g.candidates[i],), ratings=(g.ratings[i],), scores=(g.scores[i],))
        for g, i in zip(many, rng.integers(population.ratings.shape[1], size=len(many)).tolist(), strict=True)
    ]
    several = _decided(population, population.groups(0, which), seed, ("f1", "kappa", "auroc"))
    alone = _decided(population, single, seed, ("kappa", "recall"))
    return several | {f"{name}, {SINGLE}": spans for name, spans in alone.items()}


SINGLE = "one candidate a source (x 4)"


def _decided(population: Population, groups: Sequence[GroupScores], seed: int, names: Sequence[str]) -> Spans:
    measures = _decisions(population, groups, seed).measures
    return {name: ((measures[name].low, measures[name].high), None) for name in names}


def _decisions(population: Population, groups: Sequence[GroupScores], seed: int = 0) -> DecisionResult:
    rule = DecisionRule("binary", *_cuts(population))
    # Ratings at the cut are positive here, and not those of raters who are evenly split.
    rule = replace(rule, threshold=rule.threshold - 1e-6)
    return evaluate_decisions({"x": groups}, {"x": rule}, seed=seed)["x"]


def _cuts(population: Population) -> tuple[float, float]:
    ratings, scores = (float(np.quantile(v, 2 / 3)) for v in (population.ratings, population.judges[0]))
    return ratings, scores


INTERVALS = {summary_intervals: 1, pooled_intervals: 1, absolute_intervals: 1, decision_intervals: 10}
"""Maker of intervals -> of how many samples it gets one; decisions take the longest."""


def truths(population: Population) -> dict[str, float | None]:
    first, second = (population.groups(j, population.everything) for j in (0, 1))
    measures = _decisions(population, first).measures
    moved, cut = groups_of(population.ratings, _on_scale(population)), _cuts(population)[0]
    absolute = absolute_agreement({"x": {"x": moved}}, {"x": cut}, same_scale=True, seed=0)["x"]["x"].measures
    levels: dict[str, float | None] = {
        "summary": agreement({"x": first}, "spearman", "summary").value,
        "summary, difference": compare({"x": first}, {"x": second}).value,
        "sample": agreement({"x": first}, "spearman", "sample").value,
    }
    levels |= {f"absolute {name}": measure.value for name, measure in absolute.items()}
    return levels | {
        f"{name}{more}": measures[name].value for name in DECISION_MEASURES for more in ("", f", {SINGLE}")
    }


def coverage(population: Population, sizes: Sequence[int], replicates: int, seed: int) -> Hits:
    """Whether the intervals of each sample held the truth."""
    truth = truths(population)
    rng = np.random.default_rng(seed)
    hits: Hits = defaultdict(list)
    for size in sizes:
        for replicate in range(replicates):
            which = rng.integers(len(population.ratings), size=size).tolist()
            for make in (make for make, every in INTERVALS.items() if replicate % every == 0):
                for name, (now, before) in make(population, which, seed + replicate).items():
                    value = truth[name]
                    # A figure that the sample leaves undefined promises nothing.
                    if value is not None and now[0] is not None:
                        hits[name, size].append((_holds(now, value), before and _holds(before, value)))
    return hits


def _holds(span: Span, value: float) -> bool:
    low, high = span
    return low is not None and high is not None and low - 1e-9 <= value <= high + 1e-9


def exchanged(population: Population, which: Sequence[int], rng: np.random.Generator) -> Population:
    """The drawn groups with the judges put in a random order in each, so that all judges are equally good."""
    scores = np.stack([judge[which] for judge in population.judges])
    order = np.argsort(rng.random(scores.shape[:2]), axis=0)
    scores = np.take_along_axis(scores, order[:, :, None], axis=0)
    return replace(population, ratings=population.ratings[which], judges=tuple(scores))


def type_one(population: Population, sizes: Sequence[int], replicates: int, seed: int) -> Hits:
    """Whether p < .05 for equal judges, now and by inverting a percentile interval."""
    rng = np.random.default_rng(seed)
    hits: Hits = defaultdict(list)
    for size in sizes:
        for replicate in range(replicates):
            equal = exchanged(population, rng.integers(len(population.ratings), size=size), rng)
            reference, *others = (equal.groups(j, range(size)) for j in range(len(equal.judges)))
            drawn = rng.integers(size, size=(RESAMPLES, size))
            first, old, new = _of_each_group(reference), [], []
            for other in others:
                means = _means((first - _of_each_group(other))[drawn])
                smaller = min((means <= 1e-12).sum(), (means >= -1e-12).sum())
                old.append(min(1.0, 2 * (float(smaller) + 1) / (RESAMPLES + 1)))
                new.append(compare({"x": reference}, {"x": other}, seed=replicate).p_value)
            pooled = compare({"x": reference}, {"x": others[0]}, level="sample", seed=replicate).p_value
            hits["p < .05, summary", size].append((_below(new[0]), old[0] < 0.05))
            hits["p < .05, sample", size].append((_below(pooled), None))
            both = [any(map(_below, holm_adjusted(dict(enumerate(v))).values())) for v in (new, old)]
            hits[f"p < .05, any of {len(others)}, Holm", size].append((both[0], both[1]))
    return hits


def _below(p_value: float | None) -> bool:
    return p_value is not None and p_value < 0.05


def table(name: str, hits: Mapping[tuple[str, int], Sequence[tuple[bool, bool | None]]]) -> list[Row]:
    """Shares by number of groups, now and by percentiles."""
    rows: dict[str, dict[str, object]] = {}
    for (figure, size), pairs in hits.items():
        row = rows.setdefault(figure, {"population": name, "figure": figure})
        row[f"{size} groups"] = float(np.mean([now for now, _ in pairs]))
        row[f"{size}, %"] = None if pairs[0][1] is None else float(np.mean([before for _, before in pairs]))
    return list(rows.values())


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, replicates=400, seed=0)
    parser.add_argument("--groups", default="5,7,10,20,50")
    given = parser.parse_args(argv)
    sizes = [int(n) for n in given.groups.split(",")]
    pooled: Hits = defaultdict(list)
    rows = []
    for population in (p for spec in given.data or ["sample"] for p in populations(spec, given.seed)):
        hits = coverage(population, sizes, given.replicates, given.seed)
        hits |= type_one(population, sizes, given.replicates, given.seed)
        rows += table(population.name, hits)
        for figure, pairs in hits.items():
            pooled[figure] += pairs
    publish([*rows, *table("all", pooled)], given.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
