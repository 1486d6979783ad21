"""How often 95 % intervals hold the truth, and how often equal judges are called different, with few groups.

    python -m tests.bench.coverage --data summeval=PATH --data topical_chat=PATH --replicates 2000 --json coverage.json

The groups of each rated set are taken as the population. Judges are made from the ratings: an aspect's rating, the
mean of the other aspects, and noise that differs from group to group, in half points. Then samples of 5 to 50 groups
are drawn with replacement, and every interval of `data/agreement` is made from each, beside the percentile bootstrap.
Coverage is the share of intervals that hold the population's value. For the type-I error the judges are put in a random
order in every group, so that they are equally good: the share of p-values below .05.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from debate_judge.data.agreement.bootstrap import GroupIndex, LevelEstimate, rated_pairs  # noqa: E402
from debate_judge.data.agreement.classification import MEASURES, binary_decisions, classify  # noqa: E402
from debate_judge.data.agreement.correlations import correlations  # noqa: E402
from debate_judge.data.agreement.differences import compare, holm_adjusted  # noqa: E402
from debate_judge.data.agreement.intervals import fisher_z_interval  # noqa: E402
from debate_judge.data.agreement.levels import summary_level, system_level  # noqa: E402
from debate_judge.data.agreement.tables import GroupScores, agreement_table  # noqa: E402
from debate_judge.runs.reports.tables import DataTable  # noqa: E402
from debate_judge.runs.reports.terminal import show  # noqa: E402
from tests.bench.rated_populations import Floats, Population, exchanged, parser_of, populations, write_figures  # noqa: E402

SIZES = (5, 7, 10, 20, 50)
RESAMPLES = 400
Span = tuple[float | None, float | None]
Found = dict[str, tuple[Span, Span]]
"""Figure -> the interval as it is made now, and the percentile interval of the same resamples."""


def percentile(replicates: Floats) -> Span:
    """The interval that this bench is a warning of."""
    known = replicates[~np.isnan(replicates)]
    if not len(known):
        return None, None
    low, high = np.quantile(known, (0.025, 0.975))
    return float(low), float(high)


def summary_intervals(population: Population, which: Sequence[int], seed: int) -> Found:
    """Spearman within groups, and the difference of two judges, against means of resampled groups."""
    both = [population.groups(j, which) for j in (0, 1)]
    cell = agreement_table({"x": both[0]}, resamples=1, levels=("summary",)).aspects["x"]["summary"]["spearman"]
    apart = compare({"x": both[0]}, {"x": both[1]}, resamples=1, seed=seed)
    values = [_of_each_group(groups) for groups in both]
    drawn = np.random.default_rng(seed).integers(len(which), size=(RESAMPLES, len(which)))
    means = [_means(v[drawn]) for v in values]
    return {
        "summary": ((cell.low, cell.high), percentile(means[0])),
        "summary, difference": ((apart.low, apart.high), percentile(means[0] - means[1])),
    }


def _of_each_group(groups: Sequence[GroupScores]) -> Floats:
    pairs = rated_pairs(groups, GroupIndex.build({"x": groups}, 0))
    found = summary_level(pairs, ["spearman"]).by_group
    assert found is not None
    return found[0]


def _means(values: Floats) -> Floats:
    """Of what is defined in each row."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nansum(values, axis=1) / known.sum(axis=1))


def pooled_intervals(population: Population, which: Sequence[int], seed: int) -> Found:
    """Spearman at sample and system level."""
    groups = population.groups(0, which)
    cell = agreement_table({"x": groups}, resamples=1, levels=("sample",)).aspects["x"]["sample"]["spearman"]
    drawn = np.random.default_rng(seed).integers(len(which), size=(RESAMPLES, len(which)))
    sides = (np.array(side, dtype=float) for side in ([g.ratings for g in groups], [g.scores for g in groups]))
    replicates = correlations(*(side[drawn].reshape(RESAMPLES, -1) for side in sides), ["spearman"])[0]
    found: Found = {"sample": ((cell.low, cell.high), percentile(replicates))}
    if population.recurring:
        found["system"] = _replicated(groups, partial(system_level, resamples=RESAMPLES, seed=seed))
    return found


def drawn_systems(population: Population, which: Sequence[int], seed: int) -> Found:
    """Spearman at system level where the systems are a sample, too, resampled or not."""
    width = population.ratings.shape[1]
    columns = np.random.default_rng(seed).integers(width, size=width).tolist()
    groups = population.groups(0, which, columns)
    return {
        "system, systems drawn": _replicated(
            groups, partial(system_level, draw_systems=True, resamples=RESAMPLES, seed=seed)
        ),
        "system, drawn but taken as fixed": _replicated(groups, partial(system_level, resamples=RESAMPLES, seed=seed)),
    }


def _replicated(groups: Sequence[GroupScores], level: Callable[..., LevelEstimate]) -> tuple[Span, Span]:
    estimate = level(rated_pairs(groups, GroupIndex.build({"x": groups}, 0)), ["spearman"])
    assert estimate.replicates is not None
    span = fisher_z_interval(float(estimate.values[0]), estimate.replicates[0], estimate.units, estimate.observations)
    return (span.low, span.high), percentile(estimate.replicates[0])


def decision_intervals(population: Population, which: Sequence[int], seed: int) -> Found:
    """F1, kappa and AUROC of decisions at the upper third, several in a group."""
    return _decided(population, which, seed, None, ("f1", "kappa", "auroc"))


def single_intervals(population: Population, which: Sequence[int], seed: int) -> Found:
    """Kappa and recall where each source has one candidate; there are four times as many sources as groups."""
    rng = np.random.default_rng(seed)
    many = rng.integers(len(population.ratings), size=4 * len(which)).tolist()
    found = _decided(population, many, seed, rng, ("kappa", "recall"))
    return {f"{name}, one candidate a source (x 4)": spans for name, spans in found.items()}


def _decided(
    population: Population, which: Sequence[int], seed: int, one: np.random.Generator | None, names: Sequence[str]
) -> Found:
    cuts = [float(np.quantile(v, 2 / 3)) for v in (population.ratings, population.judges[0])]
    groups = population.groups(0, which)
    if one is not None:
        at = one.integers(population.ratings.shape[1], size=len(groups))
        groups = [
            replace(g, candidates=(g.candidates[i],), ratings=(g.ratings[i],), scores=(g.scores[i],))
            for g, i in zip(groups, at.tolist(), strict=True)
        ]
    decisions = binary_decisions(groups, *cuts)
    now = classify(decisions, "positive", resamples=RESAMPLES, seed=seed).measures
    by_group = [[d for d in decisions if d.source == g.group] for g in groups]
    rng = np.random.default_rng(seed)
    replicates: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(RESAMPLES // 4):
        drawn = [d for i in rng.integers(len(groups), size=len(groups)) for d in by_group[i]]
        measures = classify(drawn, "positive", resamples=0).measures
        for name in names:
            value = measures[name].value
            replicates[name].append(np.nan if value is None else value)
    return {name: ((now[name].low, now[name].high), percentile(np.array(replicates[name]))) for name in names}


INTERVALS = (summary_intervals, pooled_intervals, drawn_systems, decision_intervals, single_intervals)


def truths(population: Population) -> dict[str, float]:
    """The population's values."""
    first, second = (population.groups(j, population.everything) for j in (0, 1))
    table = agreement_table({"x": first}, resamples=0).aspects["x"]
    cuts = [float(np.quantile(v, 2 / 3)) for v in (population.ratings, population.judges[0])]
    measures = classify(binary_decisions(first, *cuts), "positive", resamples=0).measures
    found = {level: table[level]["spearman"].value for level in ("summary", "sample", "system")}  # type: ignore[index]
    found["summary, difference"] = compare({"x": first}, {"x": second}, resamples=0).value
    found["system, systems drawn"] = found["system, drawn but taken as fixed"] = found["system"]
    for name in MEASURES:
        found[name] = found[f"{name}, one candidate a source (x 4)"] = measures[name].value
    return {name: value for name, value in found.items() if value is not None}


def coverage(
    population: Population, sizes: Sequence[int], replicates: int, seed: int
) -> dict[str, dict[int, tuple[float, float, int]]]:
    """Figure -> number of groups -> coverage now, of the percentile bootstrap, and how many intervals there were."""
    truth = truths(population)
    rng = np.random.default_rng(seed)
    hits: dict[str, dict[int, list[tuple[bool, bool]]]] = {}
    for size in sizes:
        for replicate in range(replicates):
            which = rng.integers(len(population.ratings), size=size).tolist()
            for make in INTERVALS:
                # Decisions take the longest, so that they are given a tenth of the replicates.
                slow = make in (decision_intervals, single_intervals)
                if (make is drawn_systems and not population.recurring) or (slow and replicate % 10):
                    continue
                for name, (now, before) in make(population, which, seed + replicate).items():
                    # A figure that the sample leaves undefined promises nothing.
                    if name in truth and now[0] is not None:
                        held = (_holds(now, truth[name]), _holds(before, truth[name]))
                        hits.setdefault(name, {}).setdefault(size, []).append(held)
    return {
        name: {size: (*np.mean(held, axis=0).tolist(), len(held)) for size, held in by_size.items()}
        for name, by_size in hits.items()
    }


def _holds(span: Span, value: float) -> bool:
    low, high = span
    return low is not None and high is not None and low - 1e-9 <= value <= high + 1e-9


def type_one(
    population: Population, sizes: Sequence[int], replicates: int, seed: int
) -> dict[str, dict[int, tuple[float, float]]]:
    """Test -> number of groups -> share of p < .05 for equal judges now, and by inverting a percentile interval."""
    rng = np.random.default_rng(seed)
    found: dict[str, dict[int, list[tuple[bool, bool]]]] = {}
    for size in sizes:
        for replicate in range(replicates):
            which = rng.integers(len(population.ratings), size=size)
            equal = exchanged(population, which, rng)
            one, *others = (equal.groups(j, range(size)) for j in range(len(equal.judges)))
            values = [_of_each_group(groups) for groups in (one, *others)]
            drawn = rng.integers(size, size=(RESAMPLES, size))
            old, new = [], []
            for other, value in zip(others, values[1:], strict=True):
                apart = (values[0] - value)[drawn]
                means = _means(apart)
                smaller = min((means <= 1e-12).sum(), (means >= -1e-12).sum())
                old.append(min(1.0, 2 * (float(smaller) + 1) / (RESAMPLES + 1)))
                new.append(compare({"x": one}, {"x": other}, resamples=0, seed=replicate).p_value)
            pooled = compare({"x": one}, {"x": others[0]}, resamples=0, level="sample", seed=replicate).p_value
            rows = {
                "summary": (_below(new[0]), old[0] < 0.05),
                "sample": (_below(pooled), False),
                f"any of {len(others)}, Holm": (
                    any(map(_below, holm_adjusted(new))),
                    any(map(_below, holm_adjusted(old))),
                ),
            }
            for name, row in rows.items():
                found.setdefault(name, {}).setdefault(size, []).append(row)
    return {
        name: {size: tuple(np.mean(rows, axis=0).tolist()) for size, rows in by_size.items()}  # type: ignore[misc]
        for name, by_size in found.items()
    }


def _below(p_value: float | None) -> bool:
    return p_value is not None and p_value < 0.05


def table(found: Mapping[str, Mapping[int, Sequence[float]]], sizes: Sequence[int]) -> DataTable:
    """Now / percentile bootstrap, by number of groups."""
    rows = [
        [name, *(f"{by_size[n][0]:.3f} / {by_size[n][1]:.3f}" if n in by_size else "–" for n in sizes)]
        for name, by_size in found.items()
    ]
    return DataTable(["", *(f"{n} groups" for n in sizes)], rows)


def mean(found: Sequence[Mapping[str, Mapping[int, Sequence[float]]]]) -> dict[str, dict[int, list[float]]]:
    """Over populations that have a figure."""
    names = dict.fromkeys(name for one in found for name in one)
    return {
        name: {
            size: np.mean([one[name][size][:2] for one in found if size in one.get(name, {})], axis=0).tolist()
            for size in dict.fromkeys(n for one in found for n in one.get(name, {}))
        }
        for name in names
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, 400)
    parser.add_argument("--groups", default=",".join(map(str, SIZES)))
    given = parser.parse_args(argv)
    sizes = [int(n) for n in given.groups.split(",")]
    covered, wrong = [], []
    for spec in given.data or ["sample"]:
        for population in populations(spec, given.seed):
            covered.append(coverage(population, sizes, given.replicates, given.seed))
            wrong.append(type_one(population, sizes, given.replicates, given.seed))
            show(f"\n{population.name}: coverage, now / percentile bootstrap\n", table(covered[-1], sizes))
            show(f"\n{population.name}: p < .05 for equal judges\n", table(wrong[-1], sizes))
            sys.stdout.flush()
    show(f"\nmean over {len(covered)} aspects: coverage\n", table(mean(covered), sizes))
    show(f"\nmean over {len(wrong)} aspects: p < .05 for equal judges\n", table(mean(wrong), sizes))
    record = {"coverage": mean(covered), "type_one": mean(wrong), "replicates": given.replicates}
    write_figures(record, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
