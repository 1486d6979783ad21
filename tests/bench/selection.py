"""What partial pooling earns in the choice: held-out agreement and calls of what it chooses, over many random splits.

    python tests/bench/selection.py --data summeval=PATH --data topical_chat=PATH --splits 300

Every point of the search is scored once, with the untuned judge, by the offline LM; splits then cost nothing. Of each
split 60 % of the sources are chosen by, and what was chosen is measured on the others. `best` takes for each aspect the
largest mean of its own; `untuned` is the untuned judge with all its rounds. P is the share of splits in which a rule
does worse than that, or than a single call.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

import numpy as np

from debate_judge import data
from debate_judge.data.agreement.correlations import Floats
from debate_judge.data.schema import Corpus
from debate_judge.optimize.search.choice_scores import ChoiceScores, CrossFittedJudge
from debate_judge.optimize.search.points import NO_KNOWLEDGE, JudgeVariant, Point, SearchSpace
from debate_judge.optimize.search.pooling import EvaluatedPoints, choose_points, group_values
from debate_judge.programs import build_preset
from debate_judge.programs.debate.personas import PERSONAS
from debate_judge.programs.lm.store import SqlStore
from debate_judge.programs.make_lm import OFFLINE, make_lm
from debate_judge.runs.runner.runner import JudgeRunner

CHOICE = 0.6
ROUNDS = 3


def best(found: EvaluatedPoints) -> list[int]:
    """For each aspect the largest mean, whatever it costs."""
    return [int(found.values[aspect].mean(axis=1).argmax()) for (aspect,) in found.units]


RULES = {"pooled": choose_points, "best": best}


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
        own = self.points[0]
        return self.points.index(Point(own.knowledge, own.persona, rounds, False, "given"))


def scored(corpus: Corpus, runner: JudgeRunner) -> Scored:
    """Score all points of the untuned debate on a corpus."""
    base = build_preset("debate", {})
    own = str(base.config()["persona"])
    judges = base.variants({name: persona.text for name, persona in PERSONAS.items()})
    space = SearchSpace(
        (NO_KNOWLEDGE,), (own, *(n for n in judges if n != own)), tuple(range(ROUNDS + 1)), (False, True)
    )
    variants = {JudgeVariant(NO_KNOWLEDGE, name): CrossFittedJudge(judge) for name, judge in judges.items()}
    points = sorted(space.points(), key=space.complexity)
    names = corpus.rated_aspects()
    values = np.full((len(names), len(points), len(corpus.groups)), np.nan)
    calls = np.zeros_like(values)
    for a, name in enumerate(names):
        aspect = corpus.task.aspect(name)
        held = ChoiceScores(variants, {"dev": corpus}, [aspect], runner, label=name, fixed_granularities={})
        for number, point in sorted(enumerate(points), key=lambda pair: -pair[1].rounds):
            found, _ = held.scores(point)
            by_group = group_values(found[name], "spearman", "summary")
            judgements = iter(held.judgements(point))
            for g, group in enumerate(corpus.groups):
                values[a, number, g] = by_group.get(group.id, np.nan)
                asked = [j.calls for _ in group.candidates if (j := next(judgements)) is not None]
                calls[a, number, g] = np.mean(asked)
    return Scored(points, values, calls)


def measured(found: Scored, splits: int, seed: int = 0) -> dict[str, dict[str, float]]:
    """Rule -> means over the splits, and how often it does worse than the single call and the untuned debate."""
    aspects, _, groups = found.values.shape
    fixed = {"single call": found.place(0), "untuned debate": found.place(ROUNDS)}
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in (*fixed, *RULES)}
    cut = round(CHOICE * groups)
    for number in range(splits):
        order = np.random.default_rng([seed, number]).permutation(groups)
        choice, held_out = order[:cut], order[cut:]
        chosen = {name: [point] * aspects for name, point in fixed.items()}
        for name, rule in RULES.items():
            chosen[name] = rule(_evaluated(found, choice))
        for name, points in chosen.items():
            agreement = [np.nanmean(found.values[a, p, held_out]) for a, p in enumerate(points)]
            calls = [found.calls[a, p, held_out].mean() for a, p in enumerate(points)]
            rows[name].append((float(np.mean(agreement)), float(np.mean(calls))))
    table = {name: np.array(row) for name, row in rows.items()}

    def worse(name: str, than: str) -> float:
        return float(np.mean(table[name][:, 0] < table[than][:, 0] - 1e-12))

    return {
        name: {
            "agreement": float(row[:, 0].mean()),
            "calls": float(row[:, 1].mean()),
            "worse than single": worse(name, "single call"),
            "worse than untuned": worse(name, "untuned debate"),
        }
        for name, row in table.items()
    }


def _evaluated(found: Scored, groups: Any) -> EvaluatedPoints:
    values = [v[:, groups] for v in found.values]
    return EvaluatedPoints(
        [v[:, ~np.isnan(v[0])] for v in values],
        found.calls[:, :, groups].mean(axis=2),
        [[a] for a in range(len(values))],
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", required=True, metavar="NAME=PATH", help="a rated set; repeatable")
    parser.add_argument("--splits", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", help="where the replies of the offline LM are kept; a temporary folder by default")
    parser.add_argument("--json", help="also write the figures here")
    flags = parser.parse_args(argv)
    figures = {}
    with TemporaryDirectory() as folder:
        journal = SqlStore(Path(flags.store or folder) / "replies")
        with JudgeRunner(make_lm(OFFLINE, store=journal), progress=False) as runner:
            for spec in flags.data:
                name = spec.partition("=")[0]
                figures[name] = measured(scored(data.load(spec), runner), flags.splits, flags.seed)
                print(f"\n{name}: held-out Spearman over {flags.splits} splits")
                print(f"{'rule':16}{'agreement':>10}{'calls':>7}{'P(< single)':>13}{'P(< untuned)':>14}")
                for rule, row in figures[name].items():
                    agreement, calls, single, untuned = row.values()
                    print(f"{rule:16}{agreement:10.4f}{calls:7.2f}{single:13.2f}{untuned:14.2f}")
        journal.close()
    if flags.json:
        Path(flags.json).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
