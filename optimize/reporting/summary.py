"""The terminal output of a finished compile: the summary and the next commands."""

from __future__ import annotations

import shlex
import textwrap

from debate_judge.optimize.reporting.formatting import guides
from debate_judge.optimize.reporting.verdict import (
    NOT_ABOVE_CHANCE,
    agreement_rows,
    evidence_tables,
    headings,
    held_out_note,
    metric_name,
    table_notes,
    verdict,
)
from debate_judge.optimize.result import Result
from debate_judge.programs.lm.http.address import without_credentials
from debate_judge.programs.lm.prices import EXAMPLE_LM
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.flags.invocation import command
from debate_judge.runs.flags.parser import command_words
from debate_judge.runs.reports.costs import calls_text, cost_rows, cost_summary
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.terminal import OutputBlock, Verbatim

_MAX_GUIDE_CHARACTERS = 340
"""Most characters of each guide in the terminal."""

_OFFLINE_NOTE = (
    "The LM of this run was the embedded offline stand-in: transparent text statistics, not a language model. "
    "The figures show that the procedure works; they say nothing about what a language model achieves."
)


def summary(result: Result) -> list[OutputBlock]:
    """The verdict in words, then held-out agreement of the compared judges, aspect by aspect, with what was chosen."""
    rows, meter = agreement_rows(result, "/"), result.lm.meter
    lines: list[OutputBlock] = [
        "",
        *(f"{question} {answer}" for question, answer in verdict(result)),
        "",
        f"Held-out {metric_name(result)} with the human ratings, with 95 % intervals ({held_out_note(result)})",
        "",
        DataTable(["aspect", *headings(result).values()], [row[:-2] for row in rows], total=True),
        "",
        "LM calls per item, in the order of the columns above, and what was chosen",
        "",
        DataTable(["aspect", "LM calls", "chosen"], [[row[0], *row[-2:]] for row in rows], total=True),
        "",
        *table_notes(result),
        *_evidence(result),
        *_guides(result),
        *_trials(result),
        calls_text(meter),
        "",
        *cost_summary(cost_rows(meter, result.lm.price)),
    ]
    if not result.beats_chance:
        lines += ["", NOT_ABOVE_CHANCE]
    if result.plan.settings.lm == OFFLINE:
        lines += ["", _OFFLINE_NOTE]
    return lines


def _guides(result: Result) -> list[str]:
    """The beginning of each guide; run and export have the full text."""
    by_aspect = guides(result.compiled)
    if not by_aspect:
        return []
    lines = ["", f"What was learnt about the raters (in full in {result.export / 'manifest.json'} and in the run)"]
    for aspect, guide in by_aspect.items():
        lines.append(f"  {aspect}: {textwrap.shorten(guide, _MAX_GUIDE_CHARACTERS, placeholder=' …')}")
    return [*lines, ""]


def _trials(result: Result) -> list[str]:
    """How many trials the search made, and how they ended."""
    search = next(iter(result.searches.values()))
    words = {"COMPLETE": "complete", "PRUNED": "pruned on a third of the sources", "FAIL": "failed: too many unscored"}
    counts = ", ".join(f"{search.states[state]} {word}" for state, word in words.items() if search.states.get(state))
    return [f"Search: {sum(search.states.values())} trials ({counts}), {len(search.outcomes)} judges to choose from"]


def _evidence(result: Result) -> list[OutputBlock]:
    printed: list[OutputBlock] = []
    for title, parts in evidence_tables(result, printed=True).items():
        if title == "Decisions":
            parts = ["Held-out decisions", *(line for part in parts for line in ("", part))]
        printed += ["", *parts, ""]
    return printed


def next_steps(result: Result) -> Verbatim:
    """The next commands for the user, started in the same way as this process."""
    settings, tracked = result.plan.settings, result.tracked
    if tracked is None:
        raise ValueError("a dry run has no next steps")
    defaults = type(settings)()
    data = " ".join(command_words(settings, ("data", "task", "columns", "aspects", "sources", "held_out", "judge")))
    # The address in an export is not used unless the user confirms it.
    server = f"--api-base {without_credentials(settings.api_base)} " if settings.api_base else ""
    lines = [
        "",
        f"Export      {result.export}",
        *([f"Report      {result.report}"] if result.report else []),
        *([f"MLflow      {tracked.ui_command}"] if tracked.ui_command else []),
        f"Run         {tracked.link}",
        f"Score       {command('score')} {shlex.quote(str(result.export))} {server}--in texts.jsonl --out scores.jsonl",
        f"Your data   {command('check')} YOUR.csv"
        if settings.data == defaults.data
        else f"Real LM     OPENAI_API_KEY=... {command('compile')} {data} --lm {EXAMPLE_LM}",
    ]
    return Verbatim("\n".join(lines))
