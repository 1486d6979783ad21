"""What a finished compile tells its user: the table of evidence and what to do next."""

from __future__ import annotations

from collections.abc import Mapping

from debate_judge.data.agreement.intervals import METHODS
from debate_judge.data.agreement.results import WHY_NONE, Agreement, Difference
from debate_judge.data.agreement.sign_flips import correct
from debate_judge.optimize.held_out import COMPARED
from debate_judge.optimize.job import Result
from debate_judge.optimize.publishing import describe
from debate_judge.programs.lm.address import without_credentials
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.flags.invocation import command
from debate_judge.runs.reports import decisions as decision_tables
from debate_judge.runs.reports import raters as rater_tables
from debate_judge.runs.reports.costs import cost_table
from debate_judge.runs.reports.text import basis, interval, p_text, power_text, text_table

_OFFLINE = (
    "The LM of this run was the embedded offline stand-in: transparent text statistics, not a language model.\n"
    "The figures show that the machinery works; they say nothing about what an LM would reach."
)


def table(result: Result) -> str:
    """Held-out agreement of the compared judges, aspect by aspect, with what was chosen."""
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
    header = ["aspect", "single call", f"uncompiled {kind}", f"compiled {kind}", "LM calls per item", "chosen on dev"]
    first = next(iter(result.searches))
    lines = [
        "",
        f"Held-out {basis(_of(result, 'compiled', first))} with the human ratings, with 95 % intervals "
        f"({len(plan.data.splits.held_out.groups)} sources, never used for tuning or choosing)",
        "",
        text_table(header, rows, rule_before_last=True),
        "",
        _undefined(result),
        *([f"Split: {joined}"] if (joined := plan.data.splits.joined_note()) else []),
        *_gains(result, kind),
        *_decisions(result),
        *_raters(result),
        f"LM calls: {result.lm_use.asked} asked, {result.lm_use.executed} executed now, the rest were answered before",
        "",
        cost_table(result.lm_use.rows),
    ]
    if plan.settings.lm == OFFLINE:
        lines += ["", _OFFLINE]
    return "\n".join(lines)


def _of(result: Result, judge: str, aspect: str) -> Agreement:
    return result.held_out.tables[judge].aspects[aspect][result.plan.data.level][result.plan.statistic]


def _gains(result: Result, kind: str) -> list[str]:
    """The paired differences and what they rest on."""
    held_out = result.held_out
    gain, over = held_out.gain, held_out.over_uncompiled
    first, second = correct([gain.p_value, over.p_value])
    how = METHODS[gain.method] if gain.method else "no interval"
    why = WHY_NONE if first is None else "p by sign flips, corrected for the two comparisons (Holm)"
    return [
        f"Compiled minus single call: {interval(gain)}, {p_text(first)}; "
        f"minus uncompiled {kind}: {interval(over)}, {p_text(second)} "
        f"({gain.groups} paired sources; intervals: {how}; {why})",
        *_power({"Compiled minus single call": gain, f"Compiled minus uncompiled {kind}": over}),
    ]


def _power(differences: Mapping[str, Difference]) -> list[str]:
    texts = {name: power_text(found) for name, found in differences.items()}
    return [f"{name}: {text}" for name, text in texts.items() if text]


def _undefined(result: Result) -> str:
    """Which groups count 0 and which are left out, and what the other convention would give."""
    parts = []
    for judge in COMPARED:
        found = [_of(result, judge, aspect) for aspect in result.searches]
        constant, undefined = sum(a.constant for a in found), sum(a.undefined for a in found)
        parts.append(f"{judge} {constant} / {undefined}, unscored {sum(a.unscored for a in found)}")
    average = result.held_out.tables["compiled"].average[result.plan.data.level][result.plan.statistic]
    return (
        "Groups with constant scores, counted 0 / groups with constant ratings, left out: "
        + "; ".join(parts)
        + ". Without the groups of constant scores the compiled average is "
        + _or_dash(average.value_without_constant)
        + ", with both kinds as 0 "
        + _or_dash(average.value_undefined_as_zero)
    )


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
