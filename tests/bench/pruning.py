"""What pruning saves and what it costs: LM calls of the search and held-out agreement, over many random splits.

    python tests/bench/pruning.py --data summeval=PATH --data topical_chat=PATH --splits 100

Every point of the search is scored once by the offline LM with the untuned judge; searches over splits are then
served from what was recorded, and count the calls that they would have made. Of each split 60 % of the sources are
chosen by, and what was chosen is measured on the others.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

import numpy as np
from optuna.pruners import NopPruner

from debate_judge import data
from debate_judge.data.agreement.tables import GroupScores
from debate_judge.data.schema import Aspect, Corpus, Granularity
from debate_judge.optimize.search.choice_scores import ChoiceScores, CrossFittedJudge
from debate_judge.optimize.search.outcomes import Criterion
from debate_judge.optimize.search.points import NO_KNOWLEDGE, JudgeVariant, Point, SearchSpace
from debate_judge.optimize.search.pooling import group_values
from debate_judge.optimize.search.study import SEARCH_LIMITS, SearchPlan, Strategy, Study
from debate_judge.programs import build_preset
from debate_judge.programs.debate.personas import PERSONAS
from debate_judge.programs.lm.store import SqlStore
from debate_judge.programs.make_lm import OFFLINE, make_lm
from debate_judge.runs.runner.runner import JudgeRunner

SHARE = 0.6
ROUNDS = 3

Recorded = Mapping[Point, Mapping[str, tuple[GroupScores, float]]]
"""Point -> group -> its scores, and LM calls for all of its candidates."""


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
    asked: dict[tuple[JudgeVariant, str], float] = field(default_factory=dict)
    """(variant, group) -> calls of the longest debate that was asked for."""
    ties: dict[tuple[JudgeVariant, int, str], float] = field(default_factory=dict)

    runner: SequentialRunner = field(default_factory=SequentialRunner)

    @property
    def aspects(self) -> tuple[Aspect, ...]:
        return (self.aspect,)

    def prefetch(self, points: Iterable[Point], only: Collection[str] | None = None) -> None:
        for point in points:
            self.scores(point, only=only)

    def granularity(self, aspect: str, point: Point) -> Granularity:
        return point.granularity

    def scores(self, point: Point, only: Collection[str] | None = None) -> tuple[dict[str, list[GroupScores]], float]:
        groups = [name for name in self.groups if only is None or name in only]
        found = [self.recorded[point][name] for name in groups]
        debated = Point(point.knowledge, point.persona, point.rounds, False, "given")
        for name in groups:
            # Personas share their first turn, which is a call for each candidate.
            first = JudgeVariant(point.knowledge, "first turn")
            single = float(len(self.recorded[point][name][0].scores))
            calls = self.recorded[debated][name][1]
            self.asked[first, name] = single
            self.asked[point.variant, name] = max(self.asked.get((point.variant, name), 0.0), calls - single)
            if point.tie_breaker:
                self.ties[point.variant, point.rounds, name] = self.recorded[point][name][1] - calls
        items = sum(len(scores.scores) for scores, _ in found)
        return {self.aspect.name: [scores for scores, _ in found]}, sum(calls for _, calls in found) / max(1, items)

    @property
    def calls(self) -> float:
        return sum(self.asked.values()) + sum(self.ties.values())


def space_of(judges: Collection[str], own: str) -> SearchSpace:
    return SearchSpace(
        (NO_KNOWLEDGE,), (own, *(n for n in judges if n != own)), tuple(range(ROUNDS + 1)), (False, True)
    )


def recorded(corpus: Corpus, runner: JudgeRunner) -> tuple[SearchSpace, dict[str, Recorded]]:
    """Aspect -> what every point of the untuned debate does on a corpus."""
    base = build_preset("debate", {})
    own = str(base.config()["persona"])
    judges = base.variants({name: persona.text for name, persona in PERSONAS.items()})
    space = space_of(list(judges), own)
    variants = {JudgeVariant(NO_KNOWLEDGE, name): CrossFittedJudge(judge) for name, judge in judges.items()}
    found: dict[str, Recorded] = {}
    for name in corpus.rated_aspects():
        held = ChoiceScores(
            variants, {"dev": corpus}, [corpus.task.aspect(name)], runner, label=name, fixed_granularities={}
        )
        by_point: dict[Point, dict[str, tuple[GroupScores, float]]] = {}
        for point in sorted(space.points(), key=lambda point: -point.rounds):
            scores, _ = held.scores(point)
            told = iter(held.judgements(point))
            calls = [sum(j.calls for _ in group.candidates if (j := next(told)) is not None) for group in corpus.groups]
            by_point[point] = {
                group.group: (group, float(spent)) for group, spent in zip(scores[name], calls, strict=True)
            }
        found[name] = by_point
    return space, found


def measured(
    corpus: Corpus, space: SearchSpace, found: Mapping[str, Recorded], splits: int, effort: str, seed: int = 0
) -> dict[str, dict[str, float]]:
    """With and without pruning: means of calls and held-out agreement, and how often the two choose alike."""
    ids = [group.id for group in corpus.groups]
    rows: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    alike, dropped = [], []
    for number in range(splits):
        order = np.random.default_rng([seed, number]).permutation(ids)
        cut = round(SHARE * len(ids))
        choice, held_out = [str(i) for i in order[:cut]], {str(i) for i in order[cut:]}
        chosen = {}
        for pruning in rows:
            units = {name: Replayed(own, corpus.task.aspect(name), choice) for name, own in found.items()}
            criterion = Criterion("spearman", "summary")
            strategy = Strategy() if pruning else Strategy(pruner=lambda expensive: NopPruner())
            plan = SearchPlan(
                criterion=criterion,
                limits=SEARCH_LIMITS[effort],
                seed=number,
                study_name="s",
                storage=None,
                strategy=strategy,
            )
            study = Study(cast(Mapping[str, ChoiceScores], units), space, plan)
            study.optimize()
            results = study.results()
            chosen[pruning] = {name: result.chosen.point for name, result in results.items()}
            agreement = [
                np.mean(list(group_values(
                    [scores for name, (scores, _) in found[aspect][point].items() if name in held_out],
                    "spearman", "summary",
                ).values()))
                for aspect, point in chosen[pruning].items()
            ]  # fmt: skip
            rows[pruning].append((float(np.mean(agreement)), sum(unit.calls for unit in units.values())))
            if pruning:
                result = next(iter(results.values()))
                dropped.append(len(result.pruned) / (len(result.pruned) + len(result.outcomes)))
        alike.append(np.mean([chosen[True][name] == chosen[False][name] for name in found]))
    return {
        "pruned" if pruning else "whole": {
            "agreement": float(np.mean([a for a, _ in row])),
            "calls": float(np.mean([c for _, c in row])),
        }
        for pruning, row in rows.items()
    } | {"both": {"chosen alike": float(np.mean(alike)), "points pruned": float(np.mean(dropped))}}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", required=True, metavar="NAME=PATH", help="a rated set; repeatable")
    parser.add_argument("--splits", type=int, default=100)
    parser.add_argument("--effort", choices=tuple(SEARCH_LIMITS), default="light")
    parser.add_argument("--store", help="where the replies of the offline LM are kept; a temporary folder by default")
    parser.add_argument("--json", help="also write the figures here")
    flags = parser.parse_args(argv)
    figures: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        journal = SqlStore(Path(flags.store or folder) / "replies")
        with JudgeRunner(make_lm(OFFLINE, store=journal), progress=False) as runner:
            for spec in flags.data:
                name, corpus = spec.partition("=")[0], data.load(spec)
                figures[name] = measured(corpus, *recorded(corpus, runner), flags.splits, flags.effort)
                print(f"\n{name}, effort {flags.effort}, {flags.splits} splits")
                for which, row in figures[name].items():
                    print(f"{which:8}" + "".join(f"  {what} {value:,.4f}" for what, value in row.items()))
        journal.close()
    if flags.json:
        Path(flags.json).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
