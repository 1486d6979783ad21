"""What a finished compile tells its user: the table of evidence and what to do next."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from debate_judge.data.agreement.intervals import METHODS
from debate_judge.data.agreement.results import WHY_NONE, Agreement, Difference
from debate_judge.data.agreement.sign_flips import correct
from debate_judge.optimize.held_out import COMPARED, above_zero
from debate_judge.optimize.job import Result
from debate_judge.optimize.publishing import describe, guides
from debate_judge.programs.lm.address import without_credentials
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.flags.invocation import command
from debate_judge.runs.reports import calibration as calibration_tables
from debate_judge.runs.reports import decisions as decision_tables
from debate_judge.runs.reports import raters as rater_tables
from debate_judge.runs.reports.costs import cost_table
from debate_judge.runs.reports.text import basis, interval, p_text, power_text, text_table

_SHOWN_OF_A_GUIDE = 340
"""Characters of each guide in the terminal."""

_OFFLINE = (
    "The LM of this run was the embedded offline stand-in: transparent text statistics, not a language model.\n"
    "The figures show that the machinery works; they say nothing about what an LM would reach."
)


_NOT_SHOWN = (
    "Warning: held-out does not show that this judge agrees with the raters more than chance would. The export is\n"
    "written, but the model is not registered. Do not rely on its scores."
)

_HEADINGS = {
    "single": "single call",
    "informed_single": "same, informed",
    "uncompiled": "uncompiled {kind}",
    "compiled": "compiled {kind}",
}


def table(result: Result) -> str:
    """The verdict in words, then held-out agreement of the compared judges, aspect by aspect, with what was chosen."""
    plan, held_out = result.plan, result.held_out
    level, statistic = plan.data.level, plan.statistic
    rows = []
    for aspect, found in result.searches.items():
        cells = [interval(_of(result, judge, aspect)) for judge in COMPARED]
        calls = " / ".join(f"{held_out.calls[judge][aspect]:.1f}" for judge in COMPARED)
        rows.append([aspect, *cells, calls, describe(found.chosen.point, found.chosen.calls)])
    average = [interval(held_out.tables[judge].average[level][statistic]) for judge in COMPARED]
    calls = " / ".join(f"{held_out.calls_per_item(judge):.1f}" for judge in COMPARED)
    rows.append(["average", *average, calls, ""])
    kind = next(iter(result.judge.aspects.values())).judge.kind
    header = [_HEADINGS[judge].format(kind=kind) for judge in COMPARED]
    lines = [
        "",
        *verdict(result),
        *([f"{result.looks}."] if str(result.looks) else []),
        "",
        f"Held-out {_measure(result)} with the human ratings, with 95 % intervals "
        f"({len(plan.data.splits.held_out.groups)} sources, never used for tuning or choosing)",
        "",
        text_table(["aspect", *header, "LM calls per item", "chosen"], rows, rule_before_last=True),
        "",
        *_undefined(result),
        *([f"Split: {joined}"] if (joined := plan.data.splits.joined_note()) else []),
        *_gains(result, kind),
        *_decisions(result),
        *_raters(result),
        *(["", calibration_tables.render(result.calibration), ""] if result.calibration else []),
        *_guides(result),
        f"LM calls: {result.lm_use.asked} asked, {result.lm_use.executed} executed now, the rest were answered before",
        "",
        cost_table(result.lm_use.rows),
    ]
    if not above_zero(held_out.tables["compiled"].average[level][statistic]):
        lines += ["", _NOT_SHOWN]
    if plan.settings.lm == OFFLINE:
        lines += ["", _OFFLINE]
    return "\n".join(lines)


def verdict(result: Result) -> list[str]:
    """Is the judge good, is it better than a single call of the same LM, and what does it cost: in words."""
    held_out, level, statistic = result.held_out, result.plan.data.level, result.plan.statistic
    good = held_out.tables["compiled"].average[level][statistic]
    sources = len(result.plan.data.splits.held_out.groups)
    calls, single = held_out.calls_per_item("compiled"), held_out.calls_per_item("single")
    advice: dict[str, list[str]] = {}
    for aspect, gain in held_out.gains.items():
        told = _advice(gain, held_out.calls["compiled"][aspect], held_out.calls["single"][aspect])
        advice.setdefault(told, []).append(aspect)
    better = _better(held_out.gain, calls, single)
    return [
        f"Is the judge good? {_measure(result)} with the raters {interval(good)} on {sources} sources that it never saw"
        + ("." if above_zero(good) else ": agreement above chance is not shown."),
        f"Is it better than a single call of the same LM? {better} "
        + "; ".join(f"{', '.join(aspects)}: {told}" for told, aspects in advice.items())
        + ".",
        f"What does it cost? {calls:.1f} LM calls per item, the single call {single:.1f}.",
    ]


def _better(gain: Difference, calls: float, single: float) -> str:
    if gain.value is None or gain.low is None or gain.high is None:
        return "Nothing can be said."
    if gain.low > 0:
        return f"Yes, by {interval(gain)}."
    if gain.high < 0:
        return f"No, it is worse: {interval(gain)}."
    told = f"These sources cannot tell: {interval(gain)}."
    return (
        f"{told} It takes more calls, so that the single call is the cheaper choice."
        if _dearer(calls, single)
        else told
    )


def _advice(gain: Difference, calls: float, single: float) -> str:
    """What the held-out sources say about one aspect."""
    if gain.low is not None and gain.low > 0:
        return "use the compiled judge"
    if gain.high is not None and gain.high < 0:
        return "use the single call"
    if gain.value == 0 and not _dearer(calls, single):
        return "the single call it is"
    return "these sources cannot tell" + (", the single call is cheaper" if _dearer(calls, single) else "")


def _dearer(calls: float, single: float) -> bool:
    return calls > 1.05 * single


def _guides(result: Result) -> list[str]:
    """The beginning of each guide; the whole is in run and export."""
    found = guides(result.judge)
    if not found:
        return []
    lines = ["", f"What was learnt of the raters (whole in {result.export / 'manifest.json'} and in the run)"]
    for aspect, guide in found.items():
        shown = textwrap.shorten(guide, _SHOWN_OF_A_GUIDE, placeholder=" …")
        lines += textwrap.wrap(shown, 118, initial_indent=f"  {aspect}: ", subsequent_indent="    ")
    return [*lines, ""]


def _measure(result: Result) -> str:
    return basis(_of(result, "compiled", next(iter(result.searches))))


def _of(result: Result, judge: str, aspect: str) -> Agreement:
    return result.held_out.tables[judge].aspects[aspect][result.plan.data.level][result.plan.statistic]


def _gains(result: Result, kind: str) -> list[str]:
    """The paired differences and what they rest on."""
    held_out = result.held_out
    found = {
        "single call": held_out.gain,
        "single call that knows the same": held_out.over_informed,
        f"uncompiled {kind}": held_out.over_uncompiled,
    }
    corrected = correct([difference.p_value for difference in found.values()])
    gain = held_out.gain
    how = METHODS[gain.method] if gain.method else "no interval"
    why = WHY_NONE if corrected[0] is None else f"p by sign flips, corrected for {len(found)} comparisons (Holm)"
    return [
        *(
            f"Compiled minus {name}: {interval(difference)}, {p_text(p)}"
            for (name, difference), p in zip(found.items(), corrected, strict=True)
        ),
        f"({gain.groups} paired sources; intervals: {how}; {why})",
        *_power(found),
    ]


def _power(differences: Mapping[str, Difference]) -> list[str]:
    texts = {name: power_text(found) for name, found in differences.items()}
    return [f"Against the {name}, {text}" for name, text in texts.items() if text]


def _undefined(result: Result) -> list[str]:
    """Which groups count 0 and which are left out, and what the other conventions would give; empty without any."""
    counts = {}
    for judge in COMPARED:
        found = [_of(result, judge, aspect) for aspect in result.searches]
        counts[judge] = [sum(getattr(a, name) for a in found) for name in ("constant", "undefined", "unscored")]
    if not any(map(any, counts.values())):
        return []
    average = result.held_out.tables["compiled"].average[result.plan.data.level][result.plan.statistic]
    shown = "; ".join(
        f"{judge} {constant} / {flat} / {unscored}" for judge, (constant, flat, unscored) in counts.items()
    )
    return [
        "Groups of equal scores, counted 0 / groups of equal ratings, left out / items without a score: " + shown,
        "The compiled average without groups of equal scores: "
        + _or_dash(average.value_without_constant)
        + "; with both kinds of groups as 0: "
        + _or_dash(average.value_undefined_as_zero),
    ]


def _decisions(result: Result) -> list[str]:
    """The held-out decisions, where the corpus calls for any."""
    found = result.held_out.decisions
    return ["", "Held-out decisions", "", decision_tables.render(found), ""] if found else []


def _raters(result: Result) -> list[str]:
    """The held-out scores beside single raters, where the corpus has them."""
    found, plan = result.held_out.raters, result.plan
    if not found:
        return []
    shown = text_table(rater_tables.HEADER, rater_tables.rows(found))
    return ["", rater_tables.title(plan.data.level, plan.statistic), "", shown, ""]


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def next_steps(result: Result) -> str:
    """The exact commands that a user would want next, as this process was started."""
    settings = result.plan.settings
    usual = type(settings)()
    data = f"--data {settings.data} " if settings.data != usual.data else ""
    data += f"--judge {settings.judge} " if settings.judge != usual.judge else ""
    # An export's own address is not used unless it is given again.
    server = f"--api-base {without_credentials(settings.api_base)} " if settings.api_base else ""
    return "\n".join(
        [
            "",
            f"Export      {result.export}",
            "Compare     " + result.tracked.ui_hint,
            "            then open " + result.tracked.link,
            f"Score       {command('score')} --program {result.export} {server}--in texts.jsonl --out scores.jsonl",
            f"Real LM     OPENAI_API_KEY=... {command('compile')} {data}--lm openai/gpt-4o-mini",
        ]
    )
