"""The result of a compile, and what is shown of it: the verdict in sentences, its tables, one screen of the terminal,
the report, the page of the run in MLflow, JSON."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from html import escape
from io import StringIO
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Literal

from debate_judge.data.agreement.figures import (
    AVERAGE,
    INTERVALS,
    UNDEFINED,
    WHY_NO_P_VALUE,
    Figure,
    holm_adjusted,
    plain,
)
from debate_judge.data.calibration import CalibrationEffect
from debate_judge.optimize.held_out import (
    COMPARED,
    COMPILED_MAPPED,
    HeldOutComparison,
    above_zero,
    calibration_effects,
    costs_more,
    folds_json,
    procedure_note,
)
from debate_judge.optimize.plan import CompilePlan
from debate_judge.optimize.search import NO_KNOWLEDGE, JudgeVariant, Outcome, Search, describe_point
from debate_judge.optimize.tuners.guide import guide_of
from debate_judge.programs.judge import AspectJudge, CompiledJudge
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.programs.lm.settings import EXAMPLE_LM, without_credentials
from debate_judge.runs.command_line import command
from debate_judge.runs.comparison.figures import agreement_chart, group_notes, point, reproduce_blocks
from debate_judge.runs.comparison.figures import evidence_tables as tables_of
from debate_judge.runs.flags import as_command, command_words
from debate_judge.runs.loaded import LoadedJudge, load
from debate_judge.runs.reports.evidence import calibration_blocks
from debate_judge.runs.reports.page import Chart, Point, Quotation, Report, ReportBlock, Warned
from debate_judge.runs.reports.tables import (
    DataTable,
    OutputBlock,
    Verbatim,
    calls_text,
    correlation_label,
    correlation_name,
    cost_table,
    markdown,
    p_text,
    power_text,
    show,
    value_text,
)

if TYPE_CHECKING:
    import pandas as pd

    from debate_judge.runs.tracking import Tracker


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """A finished compile. Shown, it is the table by aspect, the verdict, and where the judge is."""

    plan: CompilePlan
    lm: JudgeLM
    """The judge's LM; its meter has counted the calls of the compile."""
    compiled: CompiledJudge
    """The compiled judge, whether or not it is exported; with folds the one compiled from all sources."""
    searches: Sequence[Search]
    """The search that chose the compiled judge, and with folds those that chose the judge of each fold."""
    held_out: HeldOutComparison
    exports: Literal["compiled", "single"]
    """Which judge is exported, of `COMPARED`."""
    why: str
    """Why that one."""
    report: Path | None = None
    """The HTML page; None if the settings want none or it could not be written."""
    tracked: Tracker | None = None
    """The run in MLflow; None for a dry run."""

    @property
    def chosen(self) -> Mapping[str, Outcome]:
        """Aspect -> the configuration of the compiled judge, with its agreement on train and dev."""
        return self.searches[0].chosen

    @cached_property
    def exported(self) -> CompiledJudge:
        """The judge that is exported."""
        if self.exports == "compiled":
            return self.compiled
        single = AspectJudge(self.plan.single.deepcopy())
        return CompiledJudge(self.compiled.task, dict.fromkeys(self.compiled.aspects, single))

    @property
    def export(self) -> Path:
        """The folder of the exported judge, for `load` and `debate score`."""
        return self.plan.export

    @cached_property
    def judge(self) -> LoadedJudge:
        """The exported judge, a DSPy program with the LM that it was compiled with, at the same address."""
        return load(self.export, api_base=self.plan.settings.api_base)

    def __repr__(self) -> str:
        text = StringIO()
        show(agreement_table(self, brief=True), "", *verdict(self), "", *self._places, file=text)
        return text.getvalue().rstrip()

    def _repr_html_(self) -> str:
        import pandas as pd

        table = agreement_table(self, brief=True)
        frame = pd.DataFrame(list(table.rows), columns=list(table.header))
        lines = [f"<p>{escape(line)}</p>" for line in (*verdict(self), *self._places)]
        return "\n".join([frame.to_html(index=False, border=0), *lines])

    @property
    def _places(self) -> list[str]:
        places = {"Export": self.export, "Report": self.report, "MLflow": self.tracked and self.tracked.run_link()}
        return [f"{name}: {place}" for name, place in places.items() if place]

    @property
    def verdict(self) -> str:
        """Agreement, gain over a single call and its parts, what is exported, how it was measured: a line each."""
        return "\n".join(verdict(self))

    def agreement(self, judge: str, aspect: str | None = None) -> Figure:
        """Held-out agreement of a judge of `COMPARED` in one aspect, or averaged, in the correlation and at the level
        that are reported."""
        return self.held_out.agreement(judge, aspect or AVERAGE)

    @property
    def beats_chance(self) -> bool:
        """Whether held-out shows that the exported judge agrees with the raters more than chance would."""
        return above_zero(self.agreement(self.exports))

    @property
    def judge_kind(self) -> str:
        """The kind of the compiled judge."""
        return next(iter(self.compiled.aspects.values())).judge.kind

    @property
    def table(self) -> pd.DataFrame:
        """Held-out agreement in the correlation and at the level that was chosen by.

        One row for each aspect and the average; for each compared judge (`single`, `informed_single`, `compiled`) the
        columns (judge, `value`), (judge, `low`) and (judge, `high`), the ends of the 95 % interval.
        """
        import pandas as pd

        columns = {
            (judge, end): [getattr(self.agreement(judge, aspect), end) for aspect in (*self.chosen, None)]
            for judge in COMPARED
            for end in ("value", "low", "high")
        }
        frame = pd.DataFrame(columns, index=[*self.chosen, "average"], dtype=float)
        return frame.rename_axis(columns=["judge", "figure"])

    @cached_property
    def calibration(self) -> Mapping[str, CalibrationEffect]:
        """Aspect -> the effect on held-out of mapping scores to the raters' scale."""
        return calibration_effects(self.plan, self.compiled, self.held_out)

    def evidence(self) -> dict[str, Any]:
        """The results and how they were measured, as JSON values: for the export's manifest, and most of `to_json`."""
        held_out, gain, plan = self.held_out, self.held_out.gain, self.plan
        splits, origin = plan.splits, plan.corpus.origin
        return {
            "chosen": {aspect: asdict(chosen.point) for aspect, chosen in self.chosen.items()},
            "exported": {"judge": self.exports, "why": self.why},
            "exported_lm_calls_per_item": exported_calls(self),
            "held_out": {name: plain(held_out.tables[name]) for name in COMPARED},
            **held_out.evidence_to_json(),
            "calibration": {aspect: effect.to_json() for aspect, effect in self.calibration.items()},
            "gain": {**plain(gain), "power": gain.power},
            "gains": {aspect: plain(aspect_gain) for aspect, aspect_gain in held_out.gains.items()},
            "gain_of_knowledge": plain(held_out.gain_of_knowledge),
            "gain_over_informed_single": plain(held_out.gain_over_informed),
            "near_duplicates": [list(ids) for ids in plan.splits.joined],
            **({"folds": folds_json(plan, held_out)} if held_out.fold_agreement else {}),
            "guides": guides(self.compiled),
            "lm_calls_per_item": {name: held_out.calls_per_item(name) for name in COMPARED},
            "objective": {"statistic": plan.statistic, "level": plan.level, "maximized": plan.objective},
            "data": asdict(replace(origin, location=Path(origin.location).name)),
            # With folds there is no held-out part: the exported judge uses all sources.
            "splits": {part: digest for part, digest in splits.fingerprints.items() if getattr(splits, part).groups},
            "seed": plan.settings.seed,
            **({"note": plan.note} if plan.note else {}),
        }

    def to_json(self) -> dict[str, Any]:
        """The result as JSON; every number finite or null."""
        return {
            **self.evidence(),
            "lm_calls": {**self.lm.meter.counts(), "per_item": self.held_out.calls_per_item("compiled")},
            "export": str(self.export),
            **({"run_id": self.tracked.run_id} if self.tracked else {}),
        }


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
    return correlation_name(result.plan.level, result.plan.statistic)


def sources(result: Result) -> int:
    """Number of sources that the figures are from."""
    return result.plan.evaluation_corpus.sources


def agreement_table(result: Result, *, brief: bool = False) -> DataTable:
    """Held-out agreement and LM calls per item of the judges of `COMPARED`, and what was chosen, by aspect.

    If `brief`, only the compiled judge has intervals and LM calls.
    """
    names, calls = headings(result), result.held_out.calls
    aspects: list[str | None] = [*result.chosen, *([None] if len(result.chosen) > 1 else [])]
    rows = []
    for aspect in aspects:
        agreement = {judge: result.agreement(judge, aspect) for judge in COMPARED}
        cells = [value_text(a.value) if brief and judge != "compiled" else str(a) for judge, a in agreement.items()]
        counts = [
            result.held_out.calls_per_item(judge) if aspect is None else calls[judge][aspect] for judge in COMPARED
        ]
        per_item = " / ".join(f"{count:.1f}" for count in (counts[-1:] if brief else counts))
        rows.append(
            [
                aspect or "average",
                *cells,
                per_item,
                describe_point(result.chosen[aspect].point, result.chosen[aspect].calls) if aspect else "",
            ]
        )
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
        f"The compiled judge agrees with the raters: {metric_name(result)} {agreement} on {count} held-out "
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


def evidence_tables(result: Result) -> dict[str, list[OutputBlock]]:
    """Title -> tables of further figures on held-out, with notes below them."""
    by_title = tables_of(result.held_out, headings(result))
    if effects := result.calibration:
        by_title["Scores on the raters' scale"] = calibration_blocks(effects)
    return by_title


def exported_calls(result: Result) -> dict[str, float]:
    """Aspect -> LM calls per item of the exported judge, on held-out; with folds on the sources that it was chosen on,
    since it was not measured on others."""
    held_out, exported = result.held_out, result.exports
    if exported == "single" or not held_out.fold_agreement:
        return dict(held_out.calls[exported])
    return {aspect: chosen.calls for aspect, chosen in result.chosen.items()}


def _gain_in_words(held_out: HeldOutComparison) -> str:
    gain, by_aspect, single = held_out.gain, _gain_by_aspect(held_out), "a single call of the same LM"
    if gain.value is None or gain.low is None or gain.high is None:
        return f"Its difference from {single} could not be estimated."
    if gain.low > 0:
        return f"It is better than {single} by {gain}{by_aspect}."
    if gain.high < 0:
        return f"It is worse than {single}: {gain}{by_aspect}."
    return f"{gain.groups} sources are too few to tell whether it is better than {single}: {gain}{by_aspect}."


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


def _finding(gain: Figure, more_calls: bool) -> str:
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
        others = single[aspect].measures if aspect in single else {}
        cells = [
            f"{name} {decided.measures[measure]}, a single call {others.get(measure, UNDEFINED)}"
            for measure, name in (("accuracy", "accuracy"), ("kappa", "Cohen's kappa"))
            if measure in decided.measures
        ]
        sentences.append(f"Decisions on {aspect}: {'; '.join(cells)}.")
    return sentences


def _human_ceiling(held_out: HeldOutComparison) -> list[str]:
    """How well a single rater agrees with the others, and the judge with the same ones."""
    compared = [
        f"{aspect} {raters.judge}, a rater {raters.ceiling}"
        for aspect, raters in held_out.rater_agreement.get("compiled", {}).items()
        if raters.judge.value is not None and raters.ceiling.value is not None
    ]
    return [f"Beside the human ceiling, agreement with the other raters: {'; '.join(compared)}."] if compared else []


def _gain_by_part(result: Result) -> str:
    """What the knowledge about the raters and the debate each add to a single call."""
    chosen = [outcome for search in result.searches for outcome in search.chosen.values()]
    learnt = {outcome.point.knowledge for outcome in chosen} - {NO_KNOWLEDGE}
    knowledge = "guide" if learnt <= {"guide"} else "what was learnt"
    held_out = result.held_out
    return (
        f"Gain by part: {_part(knowledge, held_out.gain_of_knowledge)}; {_part('debate', held_out.gain_over_informed)}."
    )


def _part(name: str, gain: Figure) -> str:
    if gain.value is None or gain.low is None or gain.high is None:
        return f"{name} {value_text(gain.value)}"
    if gain.low == gain.high == 0:
        return f"{name} 0 (not used)"
    significant = "" if gain.low > 0 or gain.high < 0 else " (not significant)"
    return f"{name} {gain.value:+.2f} [{gain.low:.2f}, {gain.high:.2f}]{significant}"


def _differences(result: Result) -> list[str]:
    """The paired differences from the compiled judge, with their method and power."""
    held_out, names = result.held_out, headings(result)
    differences = {names["single"]: held_out.gain, names["informed_single"]: held_out.gain_over_informed}
    corrected = holm_adjusted({name: difference.p_value for name, difference in differences.items()})
    holm = f"p by sign flips, corrected for {len(differences)} comparisons (Holm)"
    lines = []
    for name, difference in differences.items():
        power = power_text(difference)
        line = f"Compiled minus {name}: {difference}, {p_text(corrected[name])}"
        lines.append(f"{line}; {power}" if power else line)
    p_values = WHY_NO_P_VALUE if held_out.gain.p_value is None else holm
    return [*lines, f"({held_out.gain.groups} paired sources; intervals: {INTERVALS}; {p_values})"]


def summary(result: Result, *, verbose: bool = False) -> list[OutputBlock]:
    """One screen; if `verbose`, all tables of the report come before it."""
    unscored, joined = result.agreement("compiled").unscored, result.plan.splits.near_duplicates_note()
    return [
        *(_details(result) if verbose else []),
        f"Held-out {metric_name(result)} with the human ratings, {sources(result)} sources, 95 % intervals",
        "",
        agreement_table(result, brief=True),
        "",
        *verdict(result),
        *([f"{unscored:,} items have no score."] if unscored else []),
        *([f"Split: {joined}"] if joined else []),
        *([] if result.beats_chance else [NOT_ABOVE_CHANCE]),
        *([f"{note} These figures do not tell you what an LM achieves."] if (note := result.plan.note) else []),
        calls_text(result.lm.meter, result.lm.price),
        "",
        next_steps(result),
    ]


def _details(result: Result) -> list[OutputBlock]:
    blocks: list[OutputBlock] = [agreement_table(result), "", *further_findings(result), ""]
    for title, parts in evidence_tables(result).items():
        blocks += [title, *(block for part in parts for block in ("", part)), ""]
    for aspect, guide in guides(result.compiled).items():
        blocks += [f"Guide: {aspect}", guide, ""]
    return [*blocks, *_trials(result), "", cost_table(result.lm.meter, result.lm.price), ""]


def _trials(result: Result) -> list[str]:
    """How many trials the search made, and how they ended."""
    search = result.searches[0]
    words = {"COMPLETE": "complete", "PRUNED": "pruned on a part of the sources", "FAIL": "failed: too many unscored"}
    counts = ", ".join(f"{search.states[state]} {word}" for state, word in words.items() if search.states.get(state))
    return [f"Search: {sum(search.states.values())} trials ({counts}), {len(search.outcomes)} judges to choose from"]


def next_steps(result: Result) -> Verbatim:
    """Where the results are, and the next commands, started in the same way as this process."""
    settings, tracked = result.plan.settings, result.tracked
    if tracked is None:
        raise ValueError("a dry run has no next steps")
    data = " ".join(command_words(settings, ("data", "task", "columns", "aspects", "sources", "held_out", "judge")))
    # The address in an export is not used unless the user confirms it.
    server = f"--api-base {without_credentials(settings.api_base)} " if settings.api_base else ""
    lines = [
        f"Export     {result.export}",
        *([f"Report     {result.report}"] if result.report else []),
        f"MLflow     {tracked.ui_command or tracked.run_link()}",
        f"Score      {command('score')} {shlex.quote(str(result.export))} {server}--in texts.jsonl --out scores.jsonl",
        f"Your data  {command('check')} YOUR.csv"
        if settings.data == type(settings)().data
        else f"Real LM    OPENAI_API_KEY=... {command('compile')} {data} --lm {EXAMPLE_LM}",
    ]
    return Verbatim("\n".join(lines))


_BIASED = "On train and dev; the best of many such figures is biased upward."


def compile_report(result: Result) -> Report:
    """The report of a compile."""
    plan, meter, names = result.plan, result.lm.meter, headings(result)
    warning = [] if result.beats_chance else [Warned(NOT_ABOVE_CHANCE)]
    chart = agreement_chart(result.held_out, {judge: names[judge] for judge in COMPARED})
    return Report(
        "Compiled judge",
        title=f"{plan.corpus_name}: {result.judge_kind}, {plan.settings.lm}",
        verdict=[*warning, *verdict(result), agreement_table(result), *chart],
        sections={
            "Statistics": further_findings(result),
            "What was learnt about the raters": _learnt_about_raters(result),
            "Agreement by rounds and persona": _agreement_by_rounds(result),
            **evidence_tables(result),
            "Cost": [f"{calls_text(meter, result.lm.price)}.", cost_table(meter, result.lm.price)],
            "Reproduce": _reproduce(result),
        },
        comparison=result.held_out,
        browsed={judge: names[judge] for judge in ("compiled", "single")},
        stand_in=plan.note or "",
    )


def _learnt_about_raters(result: Result) -> list[ReportBlock]:
    judge, before = result.compiled, result.plan.judge.instructions()
    blocks: list[ReportBlock] = [Quotation(f"Guide: {aspect}", guide) for aspect, guide in guides(judge).items()]
    changes = [
        Quotation(f"{aspect}: instructions of {role}", after)
        for aspect, chosen in judge.aspects.items()
        for role, after in chosen.judge.instructions().items()
        if after != before[role]
    ]
    if not blocks and not changes:
        return ["The judge has no guide, and its instructions are unchanged."]
    note = "Instructions of the judge's roles, where the compile changed them."
    return [*blocks, *([note] if changes else []), *changes]


def _agreement_by_rounds(result: Result) -> list[ReportBlock]:
    plan = result.plan
    charts: list[ReportBlock] = []
    for aspect, scores in result.searches[0].aspects.items():
        chosen, label = result.chosen[aspect].point, ""
        series: dict[str, Sequence[Point]] = {}
        by_rounds = scores.agreement_by_rounds(plan.statistic, plan.level, plan.settings.seed)
        for variant, values in by_rounds.items():
            series[variant_name(variant)] = tuple(p for n, value in enumerate(values) for p in point(n, value))
            label = label or correlation_label(plan.level, plan.statistic, values[-1])
        if any(len(points) > 1 for points in series.values()):
            chart = Chart(aspect, "lines", f"{label}; without Tie-breaker, scores not rounded", series)
            if not chosen.tie_breaker:
                chart = replace(chart, chosen=(variant_name(chosen.variant), chosen.rounds))
            charts.append(chart)
    return [_BIASED, *charts] if charts else []


def _reproduce(result: Result) -> list[ReportBlock]:
    settings, plan = result.plan.settings, result.plan
    parts = {"train": plan.splits.train, "dev": plan.splits.dev, "held-out": plan.evaluation_corpus}
    rows = {
        "seed": str(settings.seed),
        "LM": settings.lm,
        "data": f"{plan.corpus.origin.name}, fingerprint {plan.corpus.digest}",
        **{name: f"{part.sources} sources, fingerprint {part.digest}" for name, part in parts.items()},
        "settings": f"fingerprint {plan.identity}",
    }
    note = "The same settings, data and LM replies give the same result; answered calls are not repeated."
    return [*reproduce_blocks(as_command("compile", settings), rows), note]


def description(result: Result) -> str:
    """The verdict and the table of held-out agreement, as Markdown."""
    lines = [
        *(f"{sentence}\n" for sentence in verdict(result)),
        f"Held-out {metric_name(result)} with the human ratings, with 95 % intervals:\n",
        markdown(agreement_table(result)),
    ]
    if result.plan.note:
        lines.append(f"\n{result.plan.note}")
    return "\n".join(lines)
