"""What a run in MLflow has besides params and metrics: data sets, the judge's prompts, debates as traces.

The prompt `FAMILY.ASPECT.ROLE`, where FAMILY is the registered model's name, gets a new version whenever a compile
changes the instructions. Its alias with the judge's name points to the version that this judge uses, as in
`prompts:/debate-summarization.coherence.scorer@NAME`. MLflow's UI compares the versions.

A run's Traces tab shows debates with the ratings of people. The traces are written from finished transcripts, of a
sample, so that no call is slowed down; the times that MLflow shows are not those of the calls.
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
    from mlflow.entities import DatasetInput

    from debate_judge.data.schema import Corpus
    from debate_judge.runs.tracking.store import TrackingStore

_LINKED_PROMPTS = "mlflow.linkedPrompts"
"""Tag with the prompts that a run's page lists."""


def dataset_input(split: str, corpus: Corpus, digest: str) -> DatasetInput:
    """One split of a corpus as an input of a run; MLflow gets columns and counts, but no text."""
    from mlflow.data.dataset_source_registry import get_dataset_source_from_json
    from mlflow.data.meta_dataset import MetaDataset
    from mlflow.entities import DatasetInput, InputTag
    from mlflow.types import ColSpec, Schema
    from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

    counts = {"groups": len(corpus.groups), "candidates": sum(len(g.candidates) for g in corpus.groups)}

    class RatedTexts(MetaDataset):
        def to_dict(self) -> dict[str, str]:
            return {**super().to_dict(), "profile": json.dumps(counts)}

    location = redact_text(corpus.origin.location)
    source_type, source_key = ("http", "url") if "://" in location else ("local", "uri")
    source = get_dataset_source_from_json(json.dumps({source_key: location}), source_type)
    ratings = [ColSpec("double", name) for name in corpus.rated_aspects()]
    columns = Schema([ColSpec("string", "group"), ColSpec("string", "candidate"), *ratings])
    dataset = RatedTexts(source, corpus.origin.name, digest[:36], columns)
    tags = [InputTag(MLFLOW_DATASET_CONTEXT, split)]
    if corpus.origin.revision:
        tags.append(InputTag("revision", corpus.origin.revision))
    return DatasetInput(dataset._to_mlflow_entity(), tags)


# --- prompts ---


def register_prompts(tracking: TrackingStore, run_id: str, judge_name: str, prompts: Mapping[str, str]) -> None:
    """Register a judge's prompts, point the alias `judge_name` to them, and link them to the judge's run."""
    alias, links = to_alias(judge_name), []
    for name, text in prompts.items():
        registered_name = prompt_name(name)
        prompt = tracking.client.load_prompt(registered_name, allow_missing=True)
        if prompt is None or prompt.template != text:
            prompt = tracking.client.register_prompt(
                registered_name, text, f"compiled as {judge_name}", {"run_id": run_id}
            )
        tracking.client.set_prompt_alias(registered_name, alias, prompt.version)
        links.append({"name": registered_name, "version": str(prompt.version)})
    # Not by `link_prompt_version_to_run`, which looks for the run in the tracking store of the process.
    tracking.client.set_tag(run_id, _LINKED_PROMPTS, json.dumps(links))


def prompt_name(text: str) -> str:
    """`text` as a prompt's name: characters that are not allowed become hyphens."""
    return re.sub(r"[^\w.-]+", "-", text, flags=re.ASCII).strip("-") or "prompt"


def to_alias(text: str) -> str:
    """`text` as an alias. MLflow keeps `latest` and `v1`, `v2`, … for itself."""
    alias = re.sub(r"[^\w-]+", "-", text, flags=re.ASCII).strip("-") or "judge"
    return f"judge-{alias}" if re.fullmatch(r"(?i)latest|v\d+", alias) else alias


def named_prompts(family: str, instructions: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Name of the prompt -> instructions, from aspect -> role -> instructions; empty ones are left out."""
    return {
        f"{family}.{aspect}.{role}": text
        for aspect, roles in instructions.items()
        for role, text in roles.items()
        if text
    }


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


def log_debates(tracking: TrackingStore, run_id: str, debates: Sequence[TracedDebate]) -> None:
    """Write debates as traces of a run: one span per turn, the score as feedback, the mean rating as expectation."""
    import mlflow
    from mlflow.entities import AssessmentSource

    # MLflow's trace exporter keeps the tracking store of the first trace that it wrote.
    mlflow.tracing.reset()
    trace_ids = [_log_trace(tracking, run_id, debate) for debate in debates]
    mlflow.flush_trace_async_logging()
    mlflow.tracing.reset()
    judge, raters = (AssessmentSource(kind, name) for kind, name in (("LLM_JUDGE", "judge"), ("HUMAN", "raters")))
    for trace_id, debate in zip(trace_ids, debates, strict=True):
        if debate.score is not None:
            mlflow.log_feedback(
                trace_id=trace_id, name=debate.aspect, value=debate.score, source=judge, rationale=debate.reason
            )
        if debate.rating is not None:
            mlflow.log_expectation(trace_id=trace_id, name=debate.aspect, value=debate.rating, source=raters)


def _log_trace(tracking: TrackingStore, run_id: str, debate: TracedDebate) -> str:
    import mlflow
    from mlflow.entities import SpanType

    root = mlflow.start_span_no_context(
        debate.judge,
        span_type=SpanType.AGENT,
        inputs={"aspect": debate.aspect, "source": debate.source, "text": debate.text},
        tags={"group": debate.group, "candidate": debate.candidate, "aspect": debate.aspect},
        metadata={"mlflow.sourceRun": run_id},
        experiment_id=tracking.experiment_id,
    )
    for turn in debate.transcript.turns:
        span = mlflow.start_span_no_context(
            f"{turn.role}, round {turn.round}" if turn.round else turn.role, span_type=SpanType.LLM, parent_span=root
        )
        span.end(outputs={"text": turn.text, "score": turn.score, "no_issue": turn.no_issue})
    root.end(outputs={"score": debate.score, "reason": debate.reason})
    trace_id: str = root.trace_id
    return trace_id
