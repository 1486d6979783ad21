"""For the page of a run in MLflow: its description, and the table of debates with the largest errors."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from debate_judge.data.agreement.results import GroupScores
from debate_judge.optimize.evaluation.comparison import HeldOutComparison
from debate_judge.optimize.plan import CompilePlan
from debate_judge.optimize.reporting.verdict import agreement_table, metric_name, verdict
from debate_judge.optimize.result import Result
from debate_judge.programs.judge import Unscored, reason_of
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.reports.tables import markdown
from debate_judge.runs.tracking.contents import TracedDebate

MAX_DEBATES = 200
"""Most debates in the run's table."""

SAMPLED_DEBATES = 12
"""Number of debates that are logged as traces, about equally many of each aspect."""


def description(result: Result) -> str:
    """The verdict and the table of held-out agreement, as Markdown."""
    lines = [
        *(f"{sentence}\n" for sentence in verdict(result)),
        f"Held-out {metric_name(result)} with the human ratings, with 95 % intervals:\n",
        markdown(agreement_table(result)),
    ]
    if result.plan.settings.lm == OFFLINE:
        lines.append("\nThe LM was the offline stand-in: text statistics, no language model.")
    return "\n".join(lines)


def debate_rows(plan: CompilePlan, held_out: HeldOutComparison) -> list[dict[str, Any]]:
    """The compiled judge's debates with ratings and single calls, those with the largest errors first.

    The error is the difference of score and mean rating in points; for a judge whose scores are not on the scale, that
    of their ranks within the group. Items without a score come last.
    """
    judged = held_out.judges["compiled"].judgements
    rows: list[dict[str, Any]] = []
    for aspect in plan.data.aspects:
        judgements = iter(judged[aspect.name])
        compiled, single = (held_out.judges[name].scores[aspect.name] for name in ("compiled", "single"))
        for compiled_group, single_group in zip(compiled, single, strict=True):
            errors = _errors(compiled_group, on_scale=plan.judge.on_scale)
            for index, candidate in enumerate(compiled_group.candidates):
                judgement = next(judgements)
                rows.append(
                    {
                        "error": errors[index],
                        "aspect": aspect.name,
                        "group": compiled_group.group,
                        "candidate": candidate,
                        "rating": compiled_group.ratings[index],
                        "score": compiled_group.scores[index],
                        "single call": single_group.scores[index],
                        "rounds": judgement.transcript.rounds,
                        "stop": judgement.reason if isinstance(judgement, Unscored) else judgement.stop_reason,
                        "calls": judgement.calls,
                        "debate": str(judgement.transcript),
                    }
                )
    rows.sort(key=lambda row: (row["error"] is None, -(row["error"] or 0.0)))
    return rows[:MAX_DEBATES]


def sampled_debates(plan: CompilePlan, held_out: HeldOutComparison) -> list[TracedDebate]:
    """A random sample of the compiled judge's debates on held-out sources, the same for equal settings."""
    rng = random.Random(plan.settings.seed)
    judged = held_out.judges["compiled"].judgements
    groups = {group.id: group for group in plan.data.evaluation_corpus.groups}
    debates: list[TracedDebate] = []
    for aspect in plan.data.aspects:
        scored = [
            (scores, index, candidate)
            for scores in held_out.judges["compiled"].scores[aspect.name]
            for index, candidate in enumerate(scores.candidates)
        ]
        sampled = rng.sample(range(len(scored)), min(len(scored), max(1, SAMPLED_DEBATES // len(plan.data.aspects))))
        for number in sorted(sampled):
            scores, index, candidate = scored[number]
            judgement, group = judged[aspect.name][number], groups[scores.group]
            (text,) = [c.text for c in group.candidates if c.id == candidate]
            transcript, score, rating = judgement.transcript, scores.scores[index], scores.ratings[index]
            name = f"{aspect.name}: {scores.group}, {candidate}"
            debates.append(TracedDebate(
                name, scores.group, candidate, aspect.name, group.source, text, transcript, score, reason_of(judgement),
                rating,
            ))  # fmt: skip
    return debates


def _errors(group: GroupScores, *, on_scale: bool) -> list[float | None]:
    pairs = list(zip(group.scores, group.ratings, strict=True))
    if on_scale:
        return [None if s is None or r is None else abs(s - r) for s, r in pairs]
    known = [(s, r) for s, r in pairs if s is not None and r is not None]
    ranked = iter(abs(a - b) for a, b in zip(_ranks([s for s, _ in known]), _ranks([r for _, r in known]), strict=True))
    return [None if s is None or r is None else next(ranked) for s, r in pairs]


def _ranks(values: Sequence[float]) -> list[float]:
    from scipy.stats import rankdata

    return [float(rank) for rank in rankdata(values)] if values else []
