"""The verdict on a compiled judge in sentences, its tables and choices in words, for terminal, report and MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from debate_judge.data.agreement.figures import INTERVALS, WHY_NO_P_VALUE, Difference, holm_adjusted
from debate_judge.optimize.held_out import (
    COMPARED,
    COMPILED_MAPPED,
    HeldOutComparison,
    above_zero,
    costs_more,
    procedure_note,
)
from debate_judge.optimize.search.points import NO_KNOWLEDGE, JudgeVariant, Point
from debate_judge.optimize.tuners.guide import guide_of
from debate_judge.programs.judge import CompiledJudge
from debate_judge.runs.comparison.figures import evidence_tables as tables_of
from debate_judge.runs.comparison.figures import group_notes
from debate_judge.runs.reports.evidence import calibration_table, rank_note
from debate_judge.runs.reports.tables import DataTable, agreement_description, interval, p_text, power_text, value_text

if TYPE_CHECKING:
    from debate_judge.optimize.result import Result


def describe_point(point: Point, calls: float = 1.0) -> str:
    """A choice in words, e.g. `guide, n = 2, devils-advocate, tie-breaker, half points`.

    Without rounds, some judges make several `calls` per item, and metrics none.
    """
    single = "single call" if round(calls) == 1 else "n = 0"
    parts = [single] if point.rounds == 0 else [f"n = {point.rounds}", point.persona]
    if point.knowledge != NO_KNOWLEDGE and point.persona != point.knowledge:
        parts.insert(0, point.knowledge)
    elif point.rounds == 0 and point.knowledge != NO_KNOWLEDGE:
        parts.append(point.knowledge)
    if point.tie_breaker and point.rounds:
        parts.append("tie-breaker")
    if point.granularity != "given":
        parts.append(f"{point.granularity} points")
    return ", ".join(parts)


def variant_name(variant: JudgeVariant) -> str:
    """The name of a variant in charts."""
    knowledge = "" if variant.knowledge in (NO_KNOWLEDGE, variant.persona) else f" + {variant.knowledge}"
    return f"{variant.persona}{knowledge}"


def guides(judge: CompiledJudge) -> dict[str, str]:
    """Aspect -> the guide in the judge's instructions, for aspects with a guide."""
    by_aspect = {aspect: guide_of(chosen.judge) for aspect, chosen in judge.aspects.items()}
    return {aspect: guide for aspect, guide in by_aspect.items() if guide}


NOT_ABOVE_CHANCE = (
    "Warning: the held-out sources do not show that this judge agrees with the raters better than chance. The export "
    "is written, but the model is not registered. Do not rely on its scores."
)

_HEADINGS = {
    "single": "single call",
    "informed_single": "informed single call",
    "compiled": "compiled {kind}",
    COMPILED_MAPPED: "compiled, on the raters' scale",
}


def headings(result: Result) -> dict[str, str]:
    """Judge, of `COMPARED` or `COMPILED_MAPPED` -> its name in tables."""
    return {judge: heading.format(kind=result.judge_kind) for judge, heading in _HEADINGS.items()}


def metric_name(result: Result) -> str:
    """Level and name of the correlation."""
    return agreement_description(result.agreement("compiled", next(iter(result.searches))))


def sources(result: Result) -> int:
    """Number of sources that the figures are from."""
    return result.plan.data.evaluation_corpus.sources


def agreement_table(result: Result, *, brief: bool = False) -> DataTable:
    """Held-out agreement and LM calls per item of the judges of `COMPARED`, and what was chosen, by aspect.

    If `brief`, only the compiled judge has intervals and LM calls.
    """
    names, calls = headings(result), result.held_out.calls
    aspects: list[str | None] = [*result.searches, *([None] if len(result.searches) > 1 else [])]
    rows = []
    for aspect in aspects:
        cells = []
        for judge in COMPARED:
            agreement = result.agreement(judge, aspect)
            cells.append(interval(agreement) if judge == "compiled" or not brief else value_text(agreement.value))
        per_item = [
            result.held_out.calls_per_item(judge) if aspect is None else calls[judge][aspect] for judge in COMPARED
        ]
        counts = [f"{count:.1f}" for count in (per_item[-1:] if brief else per_item)]
        chosen = result.searches[aspect].chosen if aspect is not None else None
        choice = "" if chosen is None else describe_point(chosen.point, chosen.calls)
        rows.append([aspect or "average", *cells, " / ".join(counts), choice])
    header = ["aspect", *(names[judge] for judge in COMPARED), "LM calls" if brief else "LM calls per item", "chosen"]
    return DataTable(header, rows, total=len(aspects) > 1)


def verdict(result: Result) -> list[str]:
    """Five sentences: agreement with the raters, the gain over a single call of the same LM and its parts, what is
    exported and what it costs, how all this was measured; before the last, what is known of decisions and single
    raters."""
    held_out, agreement, count = result.held_out, result.agreement("compiled"), sources(result)
    shown = "" if above_zero(agreement) else ", which does not show agreement above chance"
    single = held_out.calls_per_item("single")
    cost = f"{fmean(exported_calls(result).values()):.1f} LM calls per item"
    measured = (
        procedure_note(result.plan)
        if held_out.fold_agreement
        else f"Measured on {count} sources that were used neither for tuning nor for choosing."
    )
    return [
        f"The compiled judge agrees with the raters: {metric_name(result)} {interval(agreement)} on {count} held-out "
        f"sources{shown}.",
        _gain_in_words(held_out),
        _gain_by_part(result),
        f"Exported: {result.why}; {cost}" + ("." if result.exports == "single" else f" (a single call: {single:.1f})."),
        *_decisions(held_out),
        *_human_ceiling(held_out),
        measured,
    ]


def further_findings(result: Result) -> list[str]:
    """Sentences for the report and `--verbose`: the differences between folds, groups without information, the paired
    differences and what they could detect."""
    held_out = result.held_out
    findings = []
    if held_out.fold_agreement:
        values = [value for value in held_out.fold_agreement if value is not None]
        if len(values) > 1:
            spread = f"{min(values):.2f} to {max(values):.2f}, standard deviation {stdev(values):.2f}"
            findings.append(f"Agreement by fold: {spread}.")
        findings.append(
            "These figures are of the folds' judges; the exported judge was compiled on all sources, and may choose "
            "differently."
        )
    return [*findings, *group_notes(held_out, headings(result)), *_differences(result)]


def evidence_tables(result: Result) -> dict[str, list[DataTable | str]]:
    """Title -> tables of further figures on held-out, with notes below them."""
    by_title: dict[str, list[DataTable | str]] = {
        title: [*tables] for title, tables in tables_of(result.held_out, headings(result)).items()
    }
    if effects := result.calibration:
        by_title["Scores on the raters' scale"] = [calibration_table(effects), rank_note(effects)]
    return by_title


def exported_calls(result: Result) -> dict[str, float]:
    """Aspect -> LM calls per item of the exported judge, on held-out; with folds on the sources that it was chosen on,
    since it was not measured on others."""
    held_out, exported = result.held_out, result.exports
    if exported == "single" or not held_out.fold_agreement:
        return dict(held_out.calls[exported])
    return {aspect: search.chosen.calls for aspect, search in result.searches.items()}


def _gain_in_words(held_out: HeldOutComparison) -> str:
    gain = held_out.gain
    by_aspect = _gain_by_aspect(held_out)
    if gain.value is None or gain.low is None or gain.high is None:
        return "Its difference from a single call of the same LM could not be estimated."
    if gain.low > 0:
        return f"It is better than a single call of the same LM by {interval(gain)}{by_aspect}."
    if gain.high < 0:
        return f"It is worse than a single call of the same LM: {interval(gain)}{by_aspect}."
    return (
        f"{gain.groups} sources are too few to tell whether it is better than a single call of the same LM: "
        f"{interval(gain)}{by_aspect}."
    )


def _gain_by_aspect(held_out: HeldOutComparison) -> str:
    """The finding for each aspect, from intervals that hold for all aspects together."""
    if len(held_out.gains) < 2:
        return ""
    findings: dict[str, list[str]] = {}
    for aspect, gain in held_out.gains.items():
        more_calls = costs_more(held_out.calls["compiled"][aspect], held_out.calls["single"][aspect])
        findings.setdefault(_finding(gain, more_calls), []).append(aspect)
    by_aspect = "; ".join(f"{finding} in {', '.join(aspects)}" for finding, aspects in findings.items())
    return f"; {by_aspect} (corrected for {len(held_out.gains)} aspects, Bonferroni)"


def _finding(gain: Difference, more_calls: bool) -> str:
    if gain.low is not None and gain.low > 0:
        return "better"
    if gain.high is not None and gain.high < 0:
        return "worse"
    return "no different" if gain.value == 0 and not more_calls else "too few sources to tell"


def _decisions(held_out: HeldOutComparison) -> list[str]:
    """How often the judges decide as the raters do, for aspects whose ratings are decisions."""
    single = held_out.decisions.get("single", {})
    sentences = []
    for aspect, decided in held_out.decisions.get("compiled", {}).items():
        cells = []
        for measure, name in (("accuracy", "accuracy"), ("kappa", "Cohen's kappa")):
            if measure in decided.measures:
                other = single[aspect].measures.get(measure) if aspect in single else None
                cells.append(f"{name} {interval(decided.measures[measure])}, a single call {interval(other)}")
        sentences.append(f"Decisions on {aspect}: {'; '.join(cells)}.")
    return sentences


def _human_ceiling(held_out: HeldOutComparison) -> list[str]:
    """How well a single rater agrees with the others, and the judge with the same ones."""
    compared = [
        f"{aspect} {interval(raters.judge)}, a rater {interval(raters.ceiling)}"
        for aspect, raters in held_out.rater_agreement.get("compiled", {}).items()
        if raters.judge is not None and raters.ceiling is not None
    ]
    return [f"Beside the human ceiling, agreement with the other raters: {'; '.join(compared)}."] if compared else []


def _gain_by_part(result: Result) -> str:
    """What the knowledge about the raters and the debate each add to a single call."""
    searches = [search for by_aspect in result.all_searches for search in by_aspect.values()]
    learnt = {search.chosen.point.knowledge for search in searches} - {NO_KNOWLEDGE}
    knowledge = "guide" if learnt <= {"guide"} else "what was learnt"
    held_out = result.held_out
    return (
        f"Gain by part: {_part(knowledge, held_out.gain_of_knowledge)}; {_part('debate', held_out.gain_over_informed)}."
    )


def _part(name: str, gain: Difference) -> str:
    if gain.value is None or gain.low is None or gain.high is None:
        return f"{name} {value_text(gain.value)}"
    if gain.low == gain.high == 0:
        return f"{name} 0 (not used)"
    significant = "" if gain.low > 0 or gain.high < 0 else " (not significant)"
    return f"{name} {gain.value:+.2f} [{gain.low:.2f}, {gain.high:.2f}]{significant}"


def _differences(result: Result) -> list[str]:
    """The paired differences from the compiled judge, with their method and power."""
    held_out, names = result.held_out, headings(result)
    differences: Mapping[str, Difference] = {
        names["single"]: held_out.gain,
        names["informed_single"]: held_out.gain_over_informed,
    }
    corrected = holm_adjusted({name: difference.p_value for name, difference in differences.items()})
    holm = f"p by sign flips, corrected for {len(differences)} comparisons (Holm)"
    lines = []
    for name, difference in differences.items():
        power = power_text(difference)
        line = f"Compiled minus {name}: {interval(difference)}, {p_text(corrected[name])}"
        lines.append(f"{line}; {power}" if power else line)
    p_values = WHY_NO_P_VALUE if held_out.gain.p_value is None else holm
    return [*lines, f"({held_out.gain.groups} paired sources; intervals: {INTERVALS}; {p_values})"]
