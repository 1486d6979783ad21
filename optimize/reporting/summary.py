"""What a finished compile prints: the table by aspect, the verdict, and where to go on, on one screen."""

from __future__ import annotations

import shlex

from debate_judge.optimize.reporting.formatting import guides
from debate_judge.optimize.reporting.verdict import (
    NOT_ABOVE_CHANCE,
    agreement_table,
    evidence_tables,
    further_findings,
    metric_name,
    sources,
    verdict,
)
from debate_judge.optimize.result import Result
from debate_judge.programs.lm.http.address import without_credentials
from debate_judge.programs.lm.prices import EXAMPLE_LM
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.flags.invocation import command
from debate_judge.runs.flags.parser import command_words
from debate_judge.runs.reports.costs import calls_text, cost_table
from debate_judge.runs.reports.tables import OutputBlock, Verbatim

_OFFLINE_NOTE = (
    "The LM was the offline stand-in, which is text statistics and not a language model: these figures do not tell you "
    "what an LM achieves."
)


def summary(result: Result, *, verbose: bool = False) -> list[OutputBlock]:
    """One screen; if `verbose`, all tables of the report come before it."""
    unscored, joined = result.agreement("compiled").unscored, result.plan.data.splits.near_duplicates_note()
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
        *([_OFFLINE_NOTE] if result.plan.settings.lm == OFFLINE else []),
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
    search = next(iter(result.searches.values()))
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
        f"MLflow     {tracked.ui_command or tracked.link}",
        f"Score      {command('score')} {shlex.quote(str(result.export))} {server}--in texts.jsonl --out scores.jsonl",
        f"Your data  {command('check')} YOUR.csv"
        if settings.data == type(settings)().data
        else f"Real LM    OPENAI_API_KEY=... {command('compile')} {data} --lm {EXAMPLE_LM}",
    ]
    return Verbatim("\n".join(lines))
