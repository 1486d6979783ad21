"""What a run in MLflow holds besides settings and numbers: its data sets, its judge's prompts, debates as traces.

The prompt `FAMILY.ASPECT.ROLE`, whose family is the registered model's name, gets a new version whenever a compile
wrote other instructions, and the alias that is the judge's name points to the version that this judge speaks by, as in
`prompts:/debate-summarization.coherence.scorer@NAME`. The registry shows versions beside each other, with their
difference.

Traces show in a run's Traces tab what was said, beside what the raters thought. They are written from finished
transcripts, so that a sample is enough, and no call is made or slowed down for them; the times that MLflow shows are
not those of the calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from debate_judge.programs.lm.redaction import redact_text
from debate_judge.programs.transcript import Transcript

if TYPE_CHECKING:
    from debate_judge.data.schema import Corpus
    from debate_judge.runs.tracking.store import TrackingStore

_LINKED = "mlflow.linkedPrompts"
"""Tag from which a run's page knows its prompts."""


def log_dataset(part: str, corpus: Corpus, digest: str) -> None:
    """Log one part of a corpus as an input of the active run; MLflow gets its columns and counts, and no text."""
    import mlflow
    from mlflow.data.dataset_source_registry import get_dataset_source_from_json
    from mlflow.data.meta_dataset import MetaDataset
    from mlflow.exceptions import MlflowException
    from mlflow.types import ColSpec, Schema

    counts = {"groups": len(corpus.groups), "candidates": sum(len(g.candidates) for g in corpus.groups)}

    class RatedTexts(MetaDataset):
        def to_dict(self) -> dict[str, str]:
            return {**super().to_dict(), "profile": json.dumps(counts)}

    location = redact_text(corpus.origin.location)
    kind, key = ("http", "url") if "://" in location else ("local", "uri")
    source = get_dataset_source_from_json(json.dumps({key: location}), kind)
    ratings = [ColSpec("double", name) for name in corpus.rated_aspects()]
    columns = Schema([ColSpec("string", "group"), ColSpec("string", "candidate"), *ratings])
    dataset = RatedTexts(source, corpus.origin.name, digest[:36], columns)
    tags = {"revision": corpus.origin.revision} if corpus.origin.revision else None
    try:
        mlflow.log_input(dataset, context=part, tags=tags)
    except MlflowException:
        # MLflow looks whether the data set is known and then adds it: of two runs that do so at once one fails.
        mlflow.log_input(dataset, context=part, tags=tags)


# --- prompts ---


def register_prompts(place: TrackingStore, run_id: str, judge: str, prompts: Mapping[str, str]) -> None:
    """Register a judge's prompts by name, point the alias `judge` to them, and link them to the run that made it."""
    alias, linked = alias_of(judge), []
    for name, text in prompts.items():
        known = prompt_name(name)
        prompt = place.client.load_prompt(known, allow_missing=True)
        if prompt is None or prompt.template != text:
            prompt = place.client.register_prompt(known, text, f"compiled as {judge}", {"run_id": run_id})
        place.client.set_prompt_alias(known, alias, prompt.version)
        linked.append({"name": known, "version": str(prompt.version)})
    # As `link_prompt_version_to_run` would, which looks for the run in the store of the process instead of in this one.
    place.client.set_tag(run_id, _LINKED, json.dumps(linked))


def prompt_name(text: str) -> str:
    """`text` as a prompt's name: what is not allowed there becomes a hyphen."""
    return re.sub(r"[^\w.-]+", "-", text, flags=re.ASCII).strip("-") or "prompt"


def alias_of(text: str) -> str:
    """`text` as an alias. MLflow keeps `latest` and `v1`, `v2`, … for itself."""
    alias = re.sub(r"[^\w-]+", "-", text, flags=re.ASCII).strip("-") or "judge"
    return f"judge-{alias}" if re.fullmatch(r"(?i)latest|v\d+", alias) else alias


def prompts_of(family: str, instructions: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Aspect -> role -> instructions as registered prompts, without those that a role does not have."""
    return {
        f"{family}.{aspect}.{role}": text
        for aspect, roles in instructions.items()
        for role, text in roles.items()
        if text
    }


# --- traces ---


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


def log_debates(place: TrackingStore, run_id: str, held: Sequence[TracedDebate]) -> None:
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


def _trace(place: TrackingStore, run_id: str, one: TracedDebate) -> str:
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
