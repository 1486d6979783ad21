"""For the page of a run in MLflow: its description, and debates as traces."""

from __future__ import annotations

import random

from debate_judge.optimize.held_out import HeldOutComparison
from debate_judge.optimize.plan import CompilePlan
from debate_judge.optimize.reporting.verdict import agreement_table, metric_name, verdict
from debate_judge.optimize.result import Result
from debate_judge.programs.judge import reason_of
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.reports.tables import markdown
from debate_judge.runs.tracking.contents import TracedDebate

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
