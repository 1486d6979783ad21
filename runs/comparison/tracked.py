"""A comparison as a run in MLflow with a nested run for each judge; metric names are those of compiles."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from debate_judge.data.schema import fingerprint
from debate_judge.runs.comparison.flags import CompareFlags
from debate_judge.runs.comparison.plan import ComparisonPlan
from debate_judge.runs.comparison.results import AVERAGE, Comparison
from debate_judge.runs.comparison.table import judges_table
from debate_judge.runs.flags.declaration import changed_settings, result_settings
from debate_judge.runs.reports import absolute_agreement as absolute_agreement_tables
from debate_judge.runs.reports.tables import markdown
from debate_judge.runs.reports.text import interval_metrics
from debate_judge.runs.tracking.contents import log_dataset
from debate_judge.runs.tracking.tracker import Tracker
from debate_judge.runs.tracking.values import text_values

if TYPE_CHECKING:
    from debate_judge.runs.comparison.report import RenderedComparison


def identity_of(flags: CompareFlags, plan: ComparisonPlan) -> str:
    """Equal for comparisons of equal settings on equal data: the same run, and the same report."""
    settings = {name: str(value) for name, value in result_settings(flags).items()}
    return fingerprint(["comparison", plan.setup.corpus.digest, settings])


def name_of(flags: CompareFlags, plan: ComparisonPlan) -> str:
    """The name of the run and of its report."""
    return flags.name or f"compare-{plan.setup.corpus.origin.name}-{identity_of(flags, plan)[:8]}"


@contextmanager
def tracked(flags: CompareFlags, plan: ComparisonPlan) -> Iterator[Tracker]:
    """The run of a comparison, which is opened, and asks for the login, before any LM call.

    Raises:
        InputError: On entering: the tracking store cannot be used.
        TrackingError: A write failed.
    """
    corpus, settings = plan.setup.corpus, result_settings(flags)
    experiment = f"debate/{Path(flags.data.partition('=')[0]).stem}"
    with Tracker(
        uri=os.environ.get("MLFLOW_TRACKING_URI"),
        store=Path(flags.store),
        experiment=experiment,
        run_name=name_of(flags, plan),
        identity=identity_of(flags, plan),
    ) as tracker:
        import mlflow

        params = _params(plan)
        tracker.log_settings(settings | params, changed_settings(flags, ("data", "judges")) | params)
        with tracker.writing():
            mlflow.set_tag("level", plan.setup.level)
            if plan.context.part == "held-out":
                log_dataset("held_out", corpus, corpus.digest)
        yield tracker


def _params(plan: ComparisonPlan) -> dict[str, str]:
    return {"lm": plan.context.lm, "aspects": ",".join(aspect.name for aspect in plan.setup.aspects)}


def log_comparison(
    tracker: Tracker, plan: ComparisonPlan, rendered: RenderedComparison, artifacts: Mapping[str, str]
) -> None:
    """Log the figures, a nested run for each judge, and `artifacts` by name.

    Raises:
        TrackingError: A write failed.
    """
    import mlflow

    comparison, context = rendered.comparison, plan.context
    for name, metrics in _metrics(comparison).items():
        judge = comparison.judges[name]
        tracker.log_trial(name, {"judge": name, **_params(plan), **({"lm": judge.lm} if judge.lm else {})}, metrics)
    note = context.lm_note if context.stand_in else None
    page = "\n\n".join(filter(None, [note, markdown(judges_table(comparison))]))
    with tracker.writing():
        mlflow.set_tags(text_values({"mlflow.note.content": page, "note": note}))
        mlflow.log_dict(dict(rendered.record), "comparison.json")
        for file, text in artifacts.items():
            mlflow.log_text(text, file)


def _metrics(comparison: Comparison) -> dict[str, dict[str, float | None]]:
    """Judge -> its metrics."""
    metrics: dict[str, dict[str, float | None]] = {}
    for result in comparison.rows:
        # Agreement on sources of a compile is no evidence, and must not be sorted among figures that are.
        agreement = "in_sample_agreement" if result.judge.compiled_on else "agreement"
        average = result.agreement(AVERAGE)[comparison.setup.statistics[0]]
        metrics[result.name] = {
            **interval_metrics(agreement, average),
            "calls_per_item": result.judge.calls,
            "unscored": float(average.unscored),
            **absolute_agreement_tables.averages(comparison.absolute_agreement, result.name),
        }
    return metrics
