"""What partial pooling earns in the choice: held-out agreement and calls of what it chooses, over many random splits.

    python -m tests.bench.selection --data summeval=PATH --data topical_chat=PATH --splits 300

Every point of the search is scored once, with the untuned judge, by the offline LM; splits then cost nothing. Of each
split 60 % of the sources are chosen by, and what was chosen is measured on the others. `best` takes for each aspect the
largest mean of its own; `untuned debate` has all its rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from debate_judge import data
from debate_judge.data.agreement.figures import GroupScores
from debate_judge.data.schema import Corpus
from debate_judge.optimize.pooling import choose_points, group_values
from debate_judge.optimize.search import NO_KNOWLEDGE, ChoiceScores, CrossFittedJudge, JudgeVariant, Point, SearchSpace
from debate_judge.programs import build_preset
from debate_judge.programs.debate.prompts import PERSONAS
from debate_judge.runs.runner import JudgeRunner
from tests.bench.harness import Floats, Row, offline_runner, parser_of, publish

CHOICE = 0.6
ROUNDS = 3

Recorded = Mapping[Point, Mapping[str, tuple[GroupScores, float]]]
"""Point -> group -> its scores, and LM calls for all of its candidates."""


def recorded(corpus: Corpus, runner: JudgeRunner) -> tuple[SearchSpace, dict[str, Recorded]]:
    """Aspect -> what every point of the untuned debate does on a corpus."""
    base = build_preset("debate", {})
    default = str(base.config()["persona"])
    judges = base.variants({name: persona.text for name, persona in PERSONAS.items()})
    personas = (default, *(name for name in judges if name != default))
    space = SearchSpace((NO_KNOWLEDGE,), personas, tuple(range(ROUNDS + 1)), (False, True))
    variants = {JudgeVariant(NO_KNOWLEDGE, name): CrossFittedJudge(judge) for name, judge in judges.items()}
    by_aspect: dict[str, Recorded] = {}
    for name in corpus.rated_aspects():
        held = ChoiceScores(variants, {"dev": corpus}, corpus.task.aspect(name), runner, label=name)
        by_point: dict[Point, dict[str, tuple[GroupScores, float]]] = {}
        # A debate contains every shorter one.
        for point in sorted(space.points(), key=lambda point: -point.rounds):
            scores, _ = held.scores(point)
            judgements = iter(held.judgements(point))
            calls = [sum(j.calls for _ in g.candidates if (j := next(judgements)) is not None) for g in corpus.groups]
            groups = zip(scores, calls, strict=True)
            by_point[point] = {group.group: (group, float(spent)) for group, spent in groups}
        by_aspect[name] = by_point
    return space, by_aspect


def splits_of(groups: int, splits: int, seed: int) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Places of the groups that are chosen by, and of those that are held out."""
    for number in range(splits):
        order = np.random.default_rng([seed, number]).permutation(groups).tolist()
        cut = round(CHOICE * groups)
        yield order[:cut], order[cut:]


@dataclass(frozen=True)
class Scored:
    """Everything that splits need to know of a corpus."""

    points: Sequence[Point]
    """The plainest first."""
    values: Floats
    """Agreement of shape (aspects, points, groups); NaN where the raters do not rank."""
    calls: Floats
    """LM calls per item, of the same shape."""

    def place(self, rounds: int) -> int:
        """Of the untuned judge, with so many rounds."""
        plainest = self.points[0]
        return self.points.index(Point(plainest.knowledge, plainest.persona, rounds, False, "given"))

    def evaluated(self, groups: Sequence[int]) -> tuple[list[Floats], Floats]:
        values = [v[:, groups] for v in self.values]
        ranked = [v[:, ~np.isnan(v[0])] for v in values]
        return ranked, self.calls[:, :, groups].mean(axis=2)


def scored(corpus: Corpus, runner: JudgeRunner) -> Scored:
    space, by_aspect = recorded(corpus, runner)
    points = sorted(space.points(), key=space.complexity)
    values, calls = [], []
    for by_point in by_aspect.values():
        for point in points:
            groups = by_point[point]
            known = group_values([scores for scores, _ in groups.values()], "spearman", "summary")
            values.append([known.get(g.id, np.nan) for g in corpus.groups])
            calls.append([groups[g.id][1] / len(g.candidates) for g in corpus.groups])
    shape = (len(by_aspect), len(points), len(corpus.groups))
    return Scored(points, np.reshape(values, shape), np.reshape(calls, shape))


def best(values: Sequence[Floats], calls: Floats) -> list[int]:
    """For each aspect the largest mean, whatever it costs."""
    return [int(by_point.mean(axis=1).argmax()) for by_point in values]


RULES = {"pooled": choose_points, "best": best}


def measured(known: Scored, splits: int, seed: int = 0) -> dict[str, dict[str, float]]:
    """Rule -> means over the splits."""
    aspects, _, groups = known.values.shape
    fixed = {"single call": known.place(0), "untuned debate": known.place(ROUNDS)}
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in (*fixed, *RULES)}
    for choice, held_out in splits_of(groups, splits, seed):
        chosen = {name: [point] * aspects for name, point in fixed.items()}
        chosen |= {name: rule(*known.evaluated(choice)) for name, rule in RULES.items()}
        for name, points in chosen.items():
            agreement = [np.nanmean(known.values[a, p, held_out]) for a, p in enumerate(points)]
            calls = [known.calls[a, p, held_out].mean() for a, p in enumerate(points)]
            rows[name].append((float(np.mean(agreement)), float(np.mean(calls))))
    return means(rows)


def means(rows: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, dict[str, float]]:
    """Name -> mean agreement and mean calls."""
    columns = ("agreement", "calls")
    return {name: dict(zip(columns, np.mean(row, axis=0).tolist(), strict=True)) for name, row in rows.items()}


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, splits=300, seed=0)
    parser.add_argument("--store", help="where the replies of the offline LM are kept; a temporary folder by default")
    given = parser.parse_args(argv)
    rows: list[Row] = []
    with offline_runner(given.store) as runner:
        for spec in given.data or ["sample"]:
            figures = measured(scored(data.load(spec), runner), given.splits, given.seed)
            rows += [{"data": spec.partition("=")[0], "rule": rule, **row} for rule, row in figures.items()]
    publish(rows, given.json, f"held-out Spearman over {given.splits} splits")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
