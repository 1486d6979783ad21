"""What pruning saves and what it costs: LM calls of the search and held-out agreement, over many random splits.

    python -m tests.bench.pruning --data summeval=PATH --data topical_chat=PATH --splits 100

Every point of the search is scored once by the offline LM with the untuned judge; searches over splits are then
served from what was recorded, and count the calls that they would have made. Of each split 60 % of the sources are
chosen by, and what was chosen is measured on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from optuna.pruners import NopPruner

from debate_judge import data
from debate_judge.data.agreement.figures import GroupScores
from debate_judge.data.schema import Aspect, Corpus, Granularity
from debate_judge.optimize.pooling import group_values
from debate_judge.optimize.search import (
    SEARCH_LIMITS,
    ChoiceScores,
    JudgeVariant,
    Point,
    Search,
    SearchSpace,
)
from tests.bench.harness import Row, offline_runner, parser_of, publish
from tests.bench.selection import Recorded, means, recorded, splits_of

PRUNERS = {"pruned": None, "whole": NopPruner()}


class SequentialRunner:
    """Stands for a runner: what was recorded is there at once."""

    def run_concurrently(self, jobs: Sequence[Callable[[], object]]) -> list[object]:
        return [work() for work in jobs]


@dataclass
class Replayed:
    """Serves a search from what was recorded, in place of `ChoiceScores`."""

    recorded: Recorded
    aspect: Aspect
    groups: Sequence[str]
    debates: dict[tuple[JudgeVariant, str], float] = field(default_factory=dict)
    """(variant, group) -> calls of the longest debate that was asked for."""
    ties: dict[tuple[JudgeVariant, int, str], float] = field(default_factory=dict)
    runner: SequentialRunner = field(default_factory=SequentialRunner)

    def parts_of(self, variant: JudgeVariant) -> dict[str, str]:
        # As many sources to tune on as to choose by.
        half = len(self.groups) // 2
        return {group: "train" if place < half else "dev" for place, group in enumerate(self.groups)}

    def granularity(self, point: Point) -> Granularity:
        return point.granularity

    def scores(self, point: Point, group_ids: Collection[str] | None = None) -> tuple[list[GroupScores], float]:
        groups = {name: self.recorded[point][name] for name in self.groups if group_ids is None or name in group_ids}
        debated = Point(point.knowledge, point.persona, point.rounds, False, "given")
        # Personas share their first turn, which is a call for each candidate.
        first = JudgeVariant(point.knowledge, "first turn")
        for name, (scores, spent) in groups.items():
            single = float(len(scores.scores))
            calls = self.recorded[debated][name][1]
            self.debates[first, name] = single
            self.debates[point.variant, name] = max(self.debates.get((point.variant, name), 0.0), calls - single)
            if point.tie_breaker:
                self.ties[point.variant, point.rounds, name] = spent - calls
        items = sum(len(scores.scores) for scores, _ in groups.values())
        calls_per_item = sum(spent for _, spent in groups.values()) / max(1, items)
        return [scores for scores, _ in groups.values()], calls_per_item

    @property
    def calls(self) -> float:
        return sum(self.debates.values()) + sum(self.ties.values())


def searched(
    corpus: Corpus, space: SearchSpace, known: Mapping[str, Recorded], splits: int, effort: str, seed: int
) -> dict[str, dict[str, float]]:
    """With and without pruning: means of held-out agreement and of calls."""
    ids = [group.id for group in corpus.groups]
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in PRUNERS}
    for number, (choice, held_out) in enumerate(splits_of(len(ids), splits, seed)):
        for name, pruner in PRUNERS.items():
            names = [ids[i] for i in choice]
            units = {a: Replayed(points, corpus.task.aspect(a), names) for a, points in known.items()}
            search = Search(
                aspects=cast(Mapping[str, ChoiceScores], units),
                space=space,
                limits=SEARCH_LIMITS[effort],
                objective="spearman",
                level="summary",
                seed=number,
                pruner=pruner,
            )
            agreement = []
            for aspect, chosen in search.optimize().chosen.items():
                scores = [known[aspect][chosen.point][ids[i]][0] for i in held_out]
                agreement.append(np.mean(list(group_values(scores, "spearman", "summary").values())))
            rows[name].append((float(np.mean(agreement)), sum(unit.calls for unit in units.values())))
    return means(rows)


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, splits=100, seed=0)
    parser.add_argument("--effort", choices=tuple(SEARCH_LIMITS), default="light")
    parser.add_argument("--store", help="where the replies of the offline LM are kept; a temporary folder by default")
    given = parser.parse_args(argv)
    rows: list[Row] = []
    with offline_runner(given.store) as runner:
        for spec in given.data or ["sample"]:
            corpus = data.load(spec)
            figures = searched(corpus, *recorded(corpus, runner), given.splits, given.effort, given.seed)
            rows += [{"data": spec.partition("=")[0], "search": search, **row} for search, row in figures.items()]
    publish(rows, given.json, f"effort {given.effort}, {given.splits} splits")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
