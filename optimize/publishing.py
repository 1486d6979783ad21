"""Writes the result of a compile: the export, the tracked run with its figures and tables, the report."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from debate_judge.data.errors import InputError, write_errors
from debate_judge.optimize.held_out import COMPARED
from debate_judge.optimize.plan import CompilePlan
from debate_judge.optimize.report import compile_report, description
from debate_judge.optimize.result import Result, TrackedRun
from debate_judge.optimize.verdict import describe_point
from debate_judge.programs import JUDGE_CLASSES
from debate_judge.programs.examples import examples_of, render_examples
from debate_judge.programs.judge import Judge
from debate_judge.programs.lm.settings import redact
from debate_judge.runs.export import folder
from debate_judge.runs.flags import changed_settings
from debate_judge.runs.reports.page import write_pages
from debate_judge.runs.reports.tables import cost_rows
from debate_judge.runs.tracking.model import (
    Registration,
    log_dataset,
    log_model,
    register_prompts,
    require_registrable,
)
from debate_judge.runs.tracking.store import tracking_errors
from debate_judge.runs.tracking.tracker import Tracker
from debate_judge.runs.tracking.values import CHOICE_METRIC, finite_values, text_values

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

_ALWAYS_LOGGED = ("data", "judge", "lm", "tuner", "effort", "max_rounds", "metric", "seed")
"""Settings that every run logs, even at their defaults, so that runs can be compared by them."""

_TEXTS_WARNING = (
    "\nreport.html quotes the texts of the data: take it out before the export goes to others. report-share.html "
    "quotes none.\n"
)
"""Added to the export's README if the page has texts."""


def log_plan(plan: CompilePlan, tracker: Tracker) -> None:
    """Log what is known before any LM call: settings, data and split."""
    import mlflow

    data = plan.data
    derived = {"aspects": ",".join(a.name for a in data.aspects), "level": data.level}
    tracker.log_settings(asdict(plan.settings) | derived, changed_settings(plan.settings, _ALWAYS_LOGGED) | derived)
    with tracker.writing(), tracking_errors(tracker.store.uri):
        require_registrable(plan.model_name)
        mlflow.set_tags(text_values({"note": plan.note or None, "held_out": data.evaluation_corpus.digest}))
        log_dataset("train", data.splits.train, data.splits.fingerprints["train"])
        log_dataset("dev", data.splits.dev, data.splits.fingerprints["dev"])
        log_dataset("held_out", data.evaluation_corpus, data.evaluation_corpus.digest)


def write_export(result: Result) -> None:
    """Write the exported judge with its evidence into the folder of the export."""
    settings = result.plan.settings
    given = {"temperature": settings.temperature, "max_tokens": settings.max_tokens}
    sampling = {name: value if value == "none" else result.lm.kwargs.get(name) for name, value in given.items()}
    lm = {"spec": settings.lm, "api_base": result.lm.endpoint or None, **sampling}
    folder.save(
        result.export,
        result.exported,
        lm=lm,
        evidence={**result.evidence(), "compiled_on": _compiled_on(result.plan), "identity": result.plan.identity},
        name=result.plan.name,
    )


def _compiled_on(plan: CompilePlan) -> list[str]:
    """Hashes of the sources that the exported judge was tuned or chosen on: agreement on them is no evidence."""
    return sorted({group.source_id for part in (plan.data.splits.train, plan.data.splits.dev) for group in part.groups})


def log_result(result: Result, tracker: Tracker) -> Result:
    """Log the result in its run, with the model that is its export, and write the report; returns it with both."""
    import mlflow

    logger.info("writing figures, tables, the report and the model")
    plan = result.plan
    with tracker.writing():
        mlflow.log_params(_chosen_params(result))
        mlflow.log_metrics(finite_values(_main_metrics(result)))
        mlflow.set_tags(
            text_values(
                {
                    "mlflow.note.content": description(result),
                    "exported": result.why,
                    **{
                        f"chosen/{a}": describe_point(s.chosen.point, s.chosen.calls)
                        for a, s in result.searches.items()
                    },
                }
            )
        )
        mlflow.log_dict(redact(result.to_json()), "result.json")
        if examples := _examples(result):
            mlflow.log_text(examples, "examples.txt")
        mlflow.log_table(_table(cost_rows(result.lm.meter, result.lm.price)), "costs.json")
        _log_model(result)
    tracked = TrackedRun(run_id=tracker.run_id, ui_command=tracker.ui_command, link=tracker.run_link())
    page = None if plan.settings.report == "none" else _write_report(result, tracker)
    return replace(result, tracked=tracked, report=page)


def _table(rows: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    import pandas as pd

    # dtype object: a missing number would become NaN, which is no JSON.
    return pd.DataFrame(list(rows), dtype=object)


def _examples(result: Result) -> str:
    """The rated examples in the prompts of the compiled judge; empty without any."""
    by_aspect = {aspect: examples_of(chosen.judge) for aspect, chosen in result.compiled.aspects.items()}
    return "\n\n".join(f"{aspect}\n\n{render_examples(found)}" for aspect, found in by_aspect.items() if found)


def _write_report(result: Result, tracker: Tracker) -> Path | None:
    """Write the report beside the export and log the page to share; returns the page.

    If the page cannot be written, this is only a warning, because the compile has been paid for by now.
    """
    import mlflow

    full, file = result.plan.settings.report == "full", result.export / "report.html"
    try:
        shareable = write_pages(compile_report(result), file, full=full)
        if full:
            readme = result.export / "README.md"
            with write_errors(readme, "report"), readme.open("a", encoding="utf-8") as out:
                out.write(_TEXTS_WARNING)
    except InputError as error:
        logger.warning("no report: %s", error)
        return None
    with tracker.writing():
        mlflow.log_text(shareable, file.name)
    return file


def _log_model(result: Result) -> None:
    """Log the export as a model with its prompts, and register it if its agreement is shown to be above chance."""
    plan, exported = result.plan, result.exported
    custom_kinds = sorted({chosen.judge.kind for chosen in exported.aspects.values()} - set(JUDGE_CLASSES))
    if custom_kinds:
        # The model would need the modules of these judges and everything that they import, which is not known here.
        logger.warning(
            "no MLflow model: it cannot hold the code of %s; use the export in %s",
            ", ".join(custom_kinds),
            plan.export,
        )
    else:
        log_model(plan.export, "judge", _registration(result) if result.beats_chance else None)
    register_prompts(
        plan.name,
        {
            f"{plan.model_name}.{aspect}.{role}": text
            for aspect, chosen in exported.aspects.items()
            for role, text in _instructions_in_use(chosen.judge).items()
            if text
        },
    )


def _instructions_in_use(judge: Judge) -> dict[str, str]:
    """Predictor name -> instructions, for the predictors that the judge uses."""
    predictors = {*judge.tunable(), *(["tie_breaker"] if judge.debate_config.tie_breaker else [])}
    return {name: text for name, text in judge.instructions().items() if name in predictors}


def _registration(result: Result) -> Registration:
    plan, judge = result.plan, result.exported
    task, settings, agreement = judge.task, plan.settings, result.agreement(result.exports)
    chosen = ", ".join(f"{aspect}: {aspect_judge.judge.kind}" for aspect, aspect_judge in judge.aspects.items())
    return Registration(
        name=plan.model_name,
        description=f"Judges that score a {task.candidate_label} ({', '.join(judge.aspects)}) as human raters do, one "
        "version a compile.",
        version_description=f"{plan.name}: held-out agreement {agreement}; LM {settings.lm}; {chosen}."
        + (f" {plan.note}" if plan.note else ""),
    )


def _chosen_params(result: Result) -> dict[str, str]:
    """What the compiled judge is, as parameters by which runs are compared: one value, or one for each aspect."""
    points = {aspect: search.chosen.point for aspect, search in result.searches.items()}
    params: dict[str, str] = {}
    for name, attribute in (("n", "rounds"), ("persona", "persona"), ("knowledge", "knowledge")):
        values = {aspect: str(getattr(point, attribute)) for aspect, point in points.items()}
        different = len(set(values.values())) > 1
        params[name] = ", ".join(f"{a}: {v}" for a, v in values.items()) if different else next(iter(values.values()))
    return params


def _main_metrics(result: Result) -> dict[str, float | None]:
    """The metrics of the run, which have the same names in every compile.

    `agreement` is the main one: the compiled judge's held-out agreement, averaged over aspects, in the correlation and
    at the level that are the run's parameters `metric` and `level`.
    """
    meter, held_out, searches = result.lm.meter, result.held_out, result.searches
    average = {name: result.agreement(name) for name in COMPARED}
    return {
        "agreement": average["compiled"].value,
        "agreement_low": average["compiled"].low,
        "agreement_high": average["compiled"].high,
        **{f"agreement_{name}": average[name].value for name in COMPARED if name != "compiled"},
        **{f"agreement/{aspect}": result.agreement("compiled", aspect).value for aspect in searches},
        CHOICE_METRIC: sum(s.chosen.agreement for s in searches.values()) / len(searches),
        "gain": held_out.gain.value,
        "gain_low": held_out.gain.low,
        "gain_high": held_out.gain.high,
        "gain_p_value": held_out.gain.p_value,
        "gain_of_knowledge": held_out.gain_of_knowledge.value,
        "gain_over_informed_single": held_out.gain_over_informed.value,
        "calls_per_item": held_out.calls_per_item("compiled"),
        "unscored": average["compiled"].unscored,
        "trials": sum(next(iter(searches.values())).states.values()),
        "lm_calls": meter.requested.total(),
        "input_tokens": meter.input_tokens,
        "output_tokens": meter.output_tokens,
        "usd": cost_rows(meter, result.lm.price)[-1]["usd"],
    }
