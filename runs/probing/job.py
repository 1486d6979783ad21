"""The steps of a probe in their order: load judges and data, score, compute effects, print the table, log the run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy

from debate_judge import data
from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import require_file, write_json
from debate_judge.data.requirements import aspects_to_judge
from debate_judge.programs.lm.errors import describe
from debate_judge.programs.lm.reply import replies_folder
from debate_judge.programs.make_lm import OFFLINE, make_lm, open_replies
from debate_judge.runs.comparison.entrants import Entrant, entrants
from debate_judge.runs.comparison.legend import Setting, part_of, tuned_elsewhere
from debate_judge.runs.comparison.results import EvalSetup
from debate_judge.runs.estimates.dry_run import Target, reply_tokens
from debate_judge.runs.estimates.table import render as estimate_table
from debate_judge.runs.export.folder import find
from debate_judge.runs.export.from_mlflow import MLflowStore
from debate_judge.runs.export.lm_choice import lm_of
from debate_judge.runs.export.manifest import Export
from debate_judge.runs.flags.lm import limits, require_server
from debate_judge.runs.probing.effects import effects_of
from debate_judge.runs.probing.estimate import estimate_probe
from debate_judge.runs.probing.flags import ProbeFlags
from debate_judge.runs.probing.keeping import keep_run
from debate_judge.runs.probing.measuring import probe_all
from debate_judge.runs.probing.perturbations import PROBES, Manipulation
from debate_judge.runs.probing.report import Found, document, render
from debate_judge.runs.reports.costs import cost_rows, cost_table
from debate_judge.runs.reports.terminal import Printed, show
from debate_judge.runs.runner.preflight import preflight, trials
from debate_judge.runs.runner.runner import JudgeRunner, require_scored


@dataclass(frozen=True)
class ProbePlan:
    """Everything that the command line asks for, loaded and checked before any call."""

    arguments: ProbeFlags
    setup: EvalSetup
    setting: Setting
    entrants: tuple[Entrant, ...]
    probes: tuple[Manipulation, ...]
    spec: str
    api_base: str | None
    sampling: Mapping[str, Any]

    @property
    def notes(self) -> dict[str, str]:
        """Judge -> a remark on how to read its figures, if there is one."""
        found = {one.name: tuned_elsewhere(one.held_out, self.setting) for one in self.entrants}
        return {name: note for name, note in found.items() if note}


def run(arguments: ProbeFlags) -> int:
    """Probe, print the table, write the other outputs; returns the exit code.

    Raises:
        InputError: An argument or a file cannot be used, or a judge cannot score.
    """
    plan = prepare(arguments)
    if arguments.estimate is not None:
        show(*estimated(plan))
        return 0
    # Where an export says which LM is asked.
    require_server(plan.spec, plan.api_base, arguments.store)
    kept = open_replies(replies_folder(arguments.store, plan.spec), plan.spec, arguments.replies)
    try:
        lm = make_lm(
            plan.spec,
            api_base=plan.api_base,
            store=kept,
            concurrency=arguments.concurrency,
            options=limits(arguments),
            **plan.sampling,
        )
        if lm.destination is not None:
            print(lm.destination, file=sys.stderr)
        with JudgeRunner(lm) as runner:
            found = _probe(plan, runner)
            if lm.meter.asked and plan.spec != OFFLINE:
                show("", *cost_table(cost_rows(lm.meter, lm.price)), to=sys.stderr)
    except dspy.LMError as error:
        print(describe(error, plan.spec), file=sys.stderr)
        return 3
    finally:
        kept.close()
    record = document(found, plan.setup, plan.setting, plan.notes)
    show(*render(found, plan.setup, plan.setting, plan.notes, all_intervals=arguments.intervals == "all"))
    if arguments.json:
        write_json(arguments.json, record, "--json")
    keep_run(arguments, found, record, plan.setup.corpus, plan.setting.held_out)
    return 0


def prepare(arguments: ProbeFlags) -> ProbePlan:
    """Load and check everything.

    Raises:
        InputError: Something cannot be used.
    """
    names = [*arguments.program, *arguments.judges]
    if not names:
        raise InputError("no judge is named", field="--program", expected="an export, or --judges")
    store = MLflowStore(arguments.tracking_uri, Path(arguments.store))
    exports = [find(address, names, store) for address in arguments.program]
    spec, api_base, sampling = _lm(arguments, exports)
    corpus = data.load(arguments.data, arguments.task, arguments.columns, arguments.sources)
    wanted = aspects_to_judge(corpus, arguments.aspects or _judged_by_all(corpus.chosen_aspects(), exports))
    aspects = tuple(corpus.task.aspect(name) for name in dict.fromkeys(wanted))
    found = entrants(names, aspects, arguments.options(), store)
    part, held_out = part_of(corpus, wanted, arguments.part, arguments.seed)
    require_file(arguments.json, "--json")
    return ProbePlan(
        arguments,
        EvalSetup(part, aspects, "summary", ("spearman",), resamples=0, seed=arguments.seed),
        Setting(arguments.part, len(corpus.groups), arguments.seed, held_out, spec),
        tuple(found),
        tuple(PROBES[name] for name in arguments.probes or PROBES),
        spec,
        api_base,
        sampling,
    )


def _judged_by_all(rated: tuple[str, ...], exports: list[Export]) -> list[str]:
    judged = [name for name in rated if all(name in export.judge.aspects for export in exports)]
    if not judged:
        raise InputError(
            "no aspect is both rated in the data and judged by every export",
            field="--data",
            expected=", ".join(exports[0].judge.aspects) if exports else "rated aspects",
            found=", ".join(rated) or "none",
        )
    return judged


def _lm(arguments: ProbeFlags, exports: list[Export]) -> tuple[str, str | None, dict[str, Any]]:
    """Spec, address and sampling: those of the first export, unless others are given."""
    spec, api_base = arguments.lm or OFFLINE, arguments.api_base
    sampling: dict[str, Any] = {"temperature": 0.0, "max_tokens": 2000}
    if exports:
        spec, api_base, own = lm_of(exports[0], arguments.lm, api_base)
        sampling |= own
    given = {"temperature": arguments.temperature, "max_tokens": arguments.max_tokens}
    return spec, api_base, sampling | {name: value for name, value in given.items() if value is not None}


def estimated(plan: ProbePlan) -> list[Printed]:
    """The table of an estimate.

    Raises:
        InputError: The lengths of replies, or the LM, cannot be used.
    """
    arguments = plan.arguments
    target = Target(
        plan.spec,
        plan.api_base,
        replies_folder(arguments.store, plan.spec),
        plan.sampling,
        limits(arguments),
        reply_tokens(arguments.estimate or ""),
    )
    found = estimate_probe(target, plan.setup, plan.entrants, plan.probes)
    return estimate_table(found, "probe", ["A call that several judges need is made once, and counted for the first."])


def _probe(plan: ProbePlan, runner: JudgeRunner) -> Found:
    """Score all candidates and compute the effects.

    Raises:
        dspy.LMError: The LM failed for good; what was answered is in its store.
        InputError: A judge cannot score, or leaves too many candidates without a score.
    """
    setup, arguments = plan.setup, plan.arguments
    if arguments.preflight:
        for one in plan.entrants:
            judges = {name: own.judge for name, own in one.aspects.items()}
            preflight(runner, trials(one.name, judges, setup.corpus, setup.aspects))
    scored, plain = probe_all(runner, setup, plan.entrants, plan.probes)
    for name, judgements in plain.items():
        require_scored(judgements, arguments.max_unscored, f"candidates, as they are, by {name}")
    items = sum(len(group.candidates) for group in setup.corpus.groups)
    return {name: effects_of(own, setup.aspects, items) for name, own in scored.items()}
