"""The verdict on a compiled judge in words: is it good, is it better than a single call, what does it cost."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from debate_judge.data.agreement.differences import holm_adjusted
from debate_judge.data.agreement.intervals import METHODS
from debate_judge.data.agreement.results import WHY_NO_P_VALUE, Difference
from debate_judge.optimize.evaluation.comparison import (
    COMPILED_MAPPED,
    FoldFigures,
    HeldOutComparison,
    above_zero,
    costs_more,
    procedure_note,
)
from debate_judge.optimize.evaluation.held_out import COMPARED
from debate_judge.optimize.reporting.formatting import describe_point
from debate_judge.optimize.search.points import NO_KNOWLEDGE
from debate_judge.programs.judge import Judgement
from debate_judge.runs.comparison.evidence import evidence
from debate_judge.runs.reports import absolute_agreement, calibration
from debate_judge.runs.reports.html.blocks import DataTable
from debate_judge.runs.reports.text import agreement_description, interval, p_text, powers_text

if TYPE_CHECKING:
    from debate_judge.optimize.result import Result

NOT_ABOVE_CHANCE = (
    "Warning: held-out does not show that this judge agrees with the raters more than chance would. The export is "
    "written, but the model is not registered. Do not rely on its scores."
)

_HEADINGS = {
    "single": "single call",
    "informed_single": "informed single call",
    "uncompiled": "uncompiled {kind}",
    "compiled": "compiled {kind}",
}


MAPPED_HEADING = "compiled, on the raters' scale"


def headings(result: Result) -> dict[str, str]:
    """Judge, of `COMPARED` -> its name in tables."""
    return {judge: _HEADINGS[judge].format(kind=result.judge_kind) for judge in COMPARED}


def agreement_rows(result: Result, separator: str) -> list[list[str]]:
    """A row for each aspect and the average: held-out agreement of each judge of `COMPARED`, their LM calls per item
    joined by `separator`, and the choice."""
    calls = result.held_out.calls
    rows = []
    for aspect, search in result.searches.items():
        agreements = [interval(result.agreement(judge, aspect)) for judge in COMPARED]
        calls_column = separator.join(f"{calls[judge][aspect]:.1f}" for judge in COMPARED)
        rows.append([aspect, *agreements, calls_column, describe_point(search.chosen.point, search.chosen.calls)])
    calls_column = separator.join(f"{result.held_out.calls_per_item(judge):.1f}" for judge in COMPARED)
    return [*rows, ["average", *(interval(result.agreement(judge)) for judge in COMPARED), calls_column, ""]]


def held_out_note(result: Result) -> str:
    """The number of sources of the held-out figures, and that the judges never saw them."""
    note = "each from a judge that never saw it" if result.held_out.folds else "never used for tuning or choosing"
    return f"{result.plan.data.evaluation_corpus.sources} sources, {note}"


def table_notes(result: Result) -> list[str]:
    """Notes under the table of agreement: undefined groups, near-duplicates, and the paired differences."""
    joined = result.plan.data.splits.near_duplicates_note()
    return [*undefined_groups(result), *([f"Split: {joined}"] if joined else []), *paired_differences(result)]


def evidence_tables(result: Result, *, printed: bool = False) -> dict[str, list[DataTable | str]]:
    """Title -> tables of further evidence on held-out, with notes below them, for the report or, `printed`, for the
    terminal; titles without evidence are missing."""
    names = headings(result) | {COMPILED_MAPPED: MAPPED_HEADING}
    by_title: dict[str, list[DataTable | str]] = {
        kind.title: [*(kind.printed if printed else kind.tables)]
        for kind in evidence(result.held_out.comparison, names)
    }
    if result.calibration:
        by_title["Scores on the raters' scale"] = [
            calibration.table(result.calibration),
            calibration.rank_note(result.calibration),
        ]
    return {title: parts for title, parts in by_title.items() if parts}


def verdict(result: Result) -> list[tuple[str, str]]:
    """Questions with their answers: is the judge good, is it better than a single call of the same LM, what does each
    part gain, how well do single raters agree, what is exported and what does it cost, how was this measured."""
    held_out, agreement = result.held_out, result.agreement("compiled")
    sources = result.plan.data.evaluation_corpus.sources
    answers = [
        (
            "Is the judge good?",
            f"{metric_name(result)} with the raters {interval(agreement)} on {sources} sources that the judge was "
            "neither tuned nor chosen on"
            + ("." if above_zero(agreement) else ": agreement above chance is not shown."),
        ),
        (
            "Is it better than a single call of the same LM?",
            f"{_gain_in_words(held_out)} {_advice_by_aspect(held_out)}",
        ),
        ("Gain by part:", _gain_by_part(result)),
        *_absolute_agreement(held_out),
        *_rater_comparison(held_out),
        ("What is exported?", f"{result.exported.reason[0].upper()}{result.exported.reason[1:]}."),
        ("What does it cost?", _costs(result)),
    ]
    if held_out.folds:
        answers.append(("How was it measured?", _measured_by_folds(result, held_out.folds)))
    return answers


def _gain_by_part(result: Result) -> str:
    """What the knowledge about the raters and the debate each add to a single call."""
    searches = [search for evaluation in result.evaluations for search in evaluation.searches.values()]
    learnt = {search.chosen.point.knowledge for search in searches} - {NO_KNOWLEDGE}
    knowledge = "guide" if learnt <= {"guide"} else "what was learnt"
    held_out = result.held_out
    return f"{_part(knowledge, held_out.gain_of_knowledge)}; {_part('debate', held_out.gain_over_informed)}."


def _part(name: str, gain: Difference) -> str:
    if gain.value is None or gain.low is None or gain.high is None:
        return f"{name} {_or_dash(gain.value)}"
    if gain.low == gain.high == 0:
        return f"{name} 0 (not used)"
    significant = "" if gain.low > 0 or gain.high < 0 else " (not significant)"
    return f"{name} {gain.value:+.2f} [{gain.low:.2f}, {gain.high:.2f}]{significant}"


def exported_calls(result: Result) -> dict[str, float]:
    """Aspect -> LM calls per item of the exported judge, on held-out; with folds on the sources that it was chosen on,
    since it was not measured on others."""
    held_out, exported = result.held_out, result.exported.name
    if exported == "single" or not held_out.folds:
        return dict(held_out.calls[exported])
    return {aspect: search.chosen.calls for aspect, search in result.searches.items()}


def _costs(result: Result) -> str:
    calls, single_calls = exported_calls(result), result.held_out.calls_per_item("single")
    mean = f"{fmean(calls.values()):.1f} LM calls per item"
    if result.exported.name == "single":
        return f"{mean}."
    aspects: dict[str, list[str]] = {}
    for aspect, search in result.searches.items():
        choice = describe_point(search.chosen.point, search.chosen.calls, _tie_break_share(result, aspect))
        aspects.setdefault(f"{choice} ({calls[aspect]:.1f})", []).append(aspect)
    choices = "; ".join(f"{', '.join(names)}: {choice}" for choice, names in aspects.items())
    return f"{mean}, against {single_calls:.1f} for a single call. {choices}."


def _tie_break_share(result: Result, aspect: str) -> float:
    """The share of the items whose debate the exported judge's Tie-breaker ended."""
    search = result.searches[aspect]
    judgements: Sequence[Judgement | None]
    if result.held_out.folds:
        judgements = search.scores.judgements(search.chosen.point)
    else:
        judgements = result.held_out.judgements["compiled"][aspect]
    judged = [judgement for judgement in judgements if judgement is not None]
    asked = sum(any(turn.role == "tie-breaker" for turn in judgement.transcript.turns) for judgement in judged)
    return asked / len(judged) if judged else 0.0


def _measured_by_folds(result: Result, folds: FoldFigures) -> str:
    calls = result.held_out.calls_per_item("compiled")
    text = f"{procedure_note(result.plan)} Agreement and gains are those of the procedure"
    if result.exported.name == "compiled":
        text += (
            f", whose judges take {calls:.1f} LM calls per item; what is exported was compiled on all sources, and its "
            "choices and calls are its own"
        )
    values = [value for value in folds.compiled if value is not None]
    return f"{text}. By folds: {_range(values)}."


def _range(values: Sequence[float]) -> str:
    if len(values) < 2:
        return "–"
    return f"{min(values):.2f} to {max(values):.2f} (standard deviation {stdev(values):.2f})"


def _advice_by_aspect(held_out: HeldOutComparison) -> str:
    """The advice for each aspect, from intervals that hold for all aspects together."""
    advice: dict[str, list[str]] = {}
    for aspect, gain in held_out.gains.items():
        sentence = _advice(gain, held_out.calls["compiled"][aspect], held_out.calls["single"][aspect])
        advice.setdefault(sentence, []).append(aspect)
    corrected = f" (corrected for {len(held_out.gains)} aspects, Bonferroni)" if len(held_out.gains) > 1 else ""
    return "; ".join(f"{', '.join(aspects)}: {sentence}" for sentence, aspects in advice.items()) + corrected + "."


def metric_name(result: Result) -> str:
    """The name of the correlation and the level."""
    return agreement_description(result.agreement("compiled", next(iter(result.searches))))


def paired_differences(result: Result) -> list[str]:
    """The paired differences, with the number of sources, the methods, and their power."""
    held_out = result.held_out
    differences = {
        "single call": held_out.gain,
        "informed single call": held_out.gain_over_informed,
        f"uncompiled {result.judge_kind}": held_out.gain_over_uncompiled,
    }
    corrected = holm_adjusted([difference.p_value for difference in differences.values()])
    gain = held_out.gain
    methods = METHODS[gain.method] if gain.method else "no interval"
    holm = f"p by sign flips, corrected for {len(differences)} comparisons (Holm)"
    p_values = WHY_NO_P_VALUE if corrected[0] is None else holm
    return [
        *(
            f"Compiled minus {name}: {interval(difference)}, {p_text(p)}"
            for (name, difference), p in zip(differences.items(), corrected, strict=True)
        ),
        f"({gain.groups} paired sources; intervals: {methods}; {p_values})",
        *filter(None, [powers_text(differences)]),
    ]


def undefined_groups(result: Result) -> list[str]:
    """The numbers of groups that count 0 or are left out, and the average by other conventions; empty without any."""
    counts = {}
    for judge, heading in headings(result).items():
        agreements = [result.agreement(judge, aspect) for aspect in result.searches]
        counts[heading] = [sum(getattr(a, name) for a in agreements) for name in ("constant", "undefined", "unscored")]
    if not any(map(any, counts.values())):
        return []
    average = result.agreement("compiled")
    listing = "; ".join(
        f"{heading} {constant} / {undefined} / {unscored}"
        for heading, (constant, undefined, unscored) in counts.items()
    )
    return [
        "Groups of equal scores, counted 0 / groups of equal ratings, left out / items without a score: " + listing,
        "The compiled average without groups of equal scores: "
        + _or_dash(average.value_without_constant)
        + "; with both kinds of groups as 0: "
        + _or_dash(average.value_undefined_as_zero),
    ]


def _gain_in_words(held_out: HeldOutComparison) -> str:
    gain = held_out.gain
    if gain.value is None or gain.low is None or gain.high is None:
        return "Nothing can be said."
    if gain.low > 0:
        return f"Yes, by {interval(gain)}."
    if gain.high < 0:
        return f"No, it is worse: {interval(gain)}."
    return f"{gain.groups} sources are too few to tell: {interval(gain)}."


def _absolute_agreement(held_out: HeldOutComparison) -> list[tuple[str, str]]:
    """Absolute agreement, where scores are on the raters' scale."""
    changes = (
        absolute_agreement.summary_text(held_out.absolute_agreement, "compiled", COMPILED_MAPPED)
        if held_out.absolute_agreement
        else ""
    )
    return [("Is it closer to the ratings themselves?", f"Against a single call: {changes}.")] if changes else []


def _rater_comparison(held_out: HeldOutComparison) -> list[tuple[str, str]]:
    """The human ceiling, where single raters are known."""
    compared = [
        f"{aspect} {interval(agreement.judge)}, a rater {interval(agreement.ceiling)}"
        for aspect, agreement in held_out.rater_agreement.get("compiled", {}).items()
        if agreement.judge is not None and agreement.ceiling is not None
    ]
    if not compared:
        return []
    answer = f"With the mean of the other raters: {'; '.join(compared)}."
    return [("Does it agree as well as a rater does?", answer)]


def _advice(gain: Difference, calls: float, single_calls: float) -> str:
    """The advice for one aspect."""
    if gain.low is not None and gain.low > 0:
        return "use the compiled judge"
    if gain.high is not None and gain.high < 0:
        return "use the single call"
    if gain.value == 0 and not costs_more(calls, single_calls):
        return "the compiled judge does not differ from the single call"
    return "too few sources to tell" + (", the single call is cheaper" if costs_more(calls, single_calls) else "")


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
