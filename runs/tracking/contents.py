"""What a run in MLflow has besides params and metrics: data sets, the judge's prompts, debates as traces.

All are written inside `Tracker.writing`. The prompt `FAMILY.ASPECT.ROLE`, where FAMILY is the registered model's name,
gets a new version whenever a compile changes the instructions; its alias with the judge's name points to the version
that this judge uses, as in `prompts:/debate-summarization.coherence.scorer@NAME`.

A run's Traces tab shows debates with the ratings of people. The traces are written from finished transcripts, of a
sample, so that no call is slowed down; the times that MLflow shows are not those of the calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from debate_judge.programs.lm.redaction import redact_text
from debate_judge.programs.transcript import Transcript

if TYPE_CHECKING:
    from debate_judge.data.schema import Corpus


def log_dataset(context: str, corpus: Corpus, digest: str) -> None:
    """Log rated texts as an input of the run; MLflow gets columns and counts, but no text."""
    import mlflow
    import pandas as pd
    from mlflow.data.dataset_source_registry import get_dataset_source_from_json

    rows = [{"source": group.id, "candidate": c.id} for group in corpus.groups for c in group.candidates]
    frame = pd.DataFrame(rows, columns=["source", "candidate"]).assign(**dict.fromkeys(corpus.rated_aspects(), 0.0))
    origin, location = corpus.origin, redact_text(corpus.origin.location)
    kind, key = ("http", "url") if "://" in location else ("local", "uri")
    source = get_dataset_source_from_json(json.dumps({key: location}), kind)
    dataset = mlflow.data.from_pandas(frame, source, name=origin.name, digest=digest[:36])
    mlflow.log_input(dataset, context, {"revision": origin.revision} if origin.revision else None)


# --- prompts ---


def register_prompts(judge: str, prompts: Mapping[str, str]) -> None:
    """Register a judge's prompts, name -> text, point the alias `judge` to them, and link them to the run."""
    import mlflow.genai

    alias = to_alias(judge)
    for name, text in prompts.items():
        registered = prompt_name(name)
        prompt = mlflow.genai.load_prompt(registered, allow_missing=True, cache_ttl_seconds=0)
        if prompt is None or prompt.template != text:
            mlflow.genai.register_prompt(registered, text, commit_message=f"compiled as {judge}")
            prompt = mlflow.genai.load_prompt(registered, cache_ttl_seconds=0)
        mlflow.genai.set_prompt_alias(registered, alias, prompt.version)


def prompt_name(text: str) -> str:
    """`text` as a prompt's name: characters that are not allowed become hyphens."""
    return re.sub(r"[^\w.-]+", "-", text, flags=re.ASCII).strip("-") or "prompt"


def to_alias(text: str) -> str:
    """`text` as an alias. MLflow keeps `latest` and `v1`, `v2`, … for itself."""
    alias = re.sub(r"[^\w-]+", "-", text, flags=re.ASCII).strip("-") or "judge"
    return f"judge-{alias}" if re.fullmatch(r"(?i)latest|v\d+", alias) else alias


# --- traces ---


@dataclass(frozen=True, slots=True)
class TracedDebate:
    """One debate and the texts that were judged."""

    judge: str
    group: str
    candidate: str
    aspect: str
    source: str
    text: str
    transcript: Transcript
    score: float | None
    reason: str
    """The reason for the score; without a score, why there is none."""
    rating: float | None
    """Mean of the raters."""


def log_debates(run_id: str, debates: Sequence[TracedDebate]) -> None:
    """Write debates as traces of a run: one span per turn, the score as feedback, the mean rating as expectation."""
    import mlflow
    from mlflow.entities import AssessmentSource

    # MLflow's trace exporter keeps the tracking store of the first trace that it wrote.
    mlflow.tracing.reset()
    trace_ids = [_log_trace(run_id, debate) for debate in debates]
    mlflow.flush_trace_async_logging()
    mlflow.tracing.reset()
    judge, raters = AssessmentSource("LLM_JUDGE", "judge"), AssessmentSource("HUMAN", "raters")
    for trace, debate in zip(trace_ids, debates, strict=True):
        if debate.score is not None:
            mlflow.log_feedback(
                trace_id=trace, name=debate.aspect, value=debate.score, source=judge, rationale=debate.reason
            )
        if debate.rating is not None:
            mlflow.log_expectation(trace_id=trace, name=debate.aspect, value=debate.rating, source=raters)


def _log_trace(run_id: str, debate: TracedDebate) -> str:
    import mlflow

    # Not `start_span`, whose span would be part of a trace of the caller's.
    root = mlflow.start_span_no_context(
        debate.judge,
        span_type="AGENT",
        inputs={"aspect": debate.aspect, "source": debate.source, "text": debate.text},
        tags={"group": debate.group, "candidate": debate.candidate, "aspect": debate.aspect},
        metadata={"mlflow.sourceRun": run_id},
    )
    for turn in debate.transcript.turns:
        name = f"{turn.role}, round {turn.round}" if turn.round else turn.role
        span = mlflow.start_span_no_context(name, span_type="LLM", parent_span=root)
        span.end(outputs={"text": turn.text, "score": turn.score, "no_issue": turn.no_issue})
    root.end(outputs={"score": debate.score, "reason": debate.reason})
    trace_id: str = root.trace_id
    return trace_id
