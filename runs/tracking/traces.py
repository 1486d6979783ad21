"""Debates as MLflow's traces: the Traces tab of a run then shows what was said, beside what the raters thought.

They are written from finished transcripts, so that a sample is enough, and no call is made or slowed down for them; the
times that MLflow shows are not those of the calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from debate_judge.programs.transcript import Transcript

if TYPE_CHECKING:
    from debate_judge.runs.tracking.store import Place


@dataclass(frozen=True, slots=True)
class TracedDebate:
    """One debate with the texts that it was about."""

    judge: str
    group: str
    candidate: str
    aspect: str
    source: str
    text: str
    transcript: Transcript
    score: float | None
    reason: str
    """For the score; without one, why there is none."""
    rating: float | None
    """Mean of the raters."""


def log_debates(place: Place, run_id: str, held: Sequence[TracedDebate]) -> None:
    """Write debates as traces of a run: a span a turn, the judge's score as feedback, the raters' as expectation."""
    import mlflow
    from mlflow.entities import AssessmentSource

    # What writes traces keeps the store that was set when it wrote the first one.
    mlflow.tracing.reset()
    traces = [_trace(place, run_id, one) for one in held]
    mlflow.flush_trace_async_logging()
    mlflow.tracing.reset()
    judge, raters = (AssessmentSource(kind, name) for kind, name in (("LLM_JUDGE", "judge"), ("HUMAN", "raters")))
    for trace_id, one in zip(traces, held, strict=True):
        if one.score is not None:
            mlflow.log_feedback(trace_id=trace_id, name=one.aspect, value=one.score, source=judge, rationale=one.reason)
        if one.rating is not None:
            mlflow.log_expectation(trace_id=trace_id, name=one.aspect, value=one.rating, source=raters)


def _trace(place: Place, run_id: str, one: TracedDebate) -> str:
    import mlflow
    from mlflow.entities import SpanType

    root = mlflow.start_span_no_context(
        one.judge,
        span_type=SpanType.AGENT,
        inputs={"aspect": one.aspect, "source": one.source, "text": one.text},
        tags={"group": one.group, "candidate": one.candidate, "aspect": one.aspect},
        metadata={"mlflow.sourceRun": run_id},
        experiment_id=place.experiment_id,
    )
    for turn in one.transcript.turns:
        span = mlflow.start_span_no_context(
            f"{turn.role}, round {turn.round}" if turn.round else turn.role, span_type=SpanType.LLM, parent_span=root
        )
        span.end(outputs={"text": turn.text, "score": turn.score, "no_issue": turn.no_issue})
    root.end(outputs={"score": one.score, "reason": one.reason})
    trace_id: str = root.trace_id
    return trace_id
