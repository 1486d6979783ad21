"""The one flow of a comparison, readable top to bottom: data, contestants, one pass, table, ablations."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import dspy

import data
from data.agreement import STATISTICS, Level, Statistic
from data.errors import InputError
from data.rated_files import require_level, require_ratings
from data.schema import Corpus
from programs import options_of, preset
from programs.lm import OFFLINE, JudgeLM, make_lm
from programs.prices import Price
from runs.ablation_job import Plan, ablate
from runs.ablation_job import render as render_ablations
from runs.ablations import ABLATIONS
from runs.bills import Billing
from runs.comparison import Comparison, Entry, Ground, compare_all, problem, score_all
from runs.comparison_output import Setting, document, figure_file, legend, part_of, tuned_elsewhere
from runs.comparison_table import plain_table, render
from runs.contestants import Contestant, contestants, expected
from runs.decision_tables import blocks
from runs.decision_tables import to_json as decisions_json
from runs.decisions import Decided, Question, called_for, decide
from runs.journal import Journal
from runs.judge_options import JudgeFlags, judge_options
from runs.lm_flags import limits
from runs.outside import read_outside
from runs.persona_files import personas
from runs.preflight import preflight, trials
from runs.published import fitting, published
from runs.published import to_json as published_json
from runs.scoring import Panel


@dataclass(frozen=True)
class Work:
    """All that a command line asks for, checked before anything is spent."""

    ground: Ground
    contestants: tuple[Contestant, ...]
    outside: Mapping[str, Entry]
    """Judge -> its scores from a file."""
    baseline: str
    questions: Mapping[str, Question]
    """Aspect -> the decision that the data call for, for aspects whose ratings are categories."""
    setting: Setting
    figure: Path | None
    plan: Plan | None
    """Of the ablations."""


def run(arguments: argparse.Namespace) -> int:
    """Print the table and whatever else was asked for; returns the exit code.

    Raises:
        InputError: Something that the user gave cannot be used.
    """
    work = prepare(arguments)
    journal = Journal(Path(arguments.store) / "replies" / arguments.lm.replace("/", "_"))
    try:
        with Panel(_lm(arguments, journal)) as panel:
            compared(arguments, work, panel)
            if work.plan is not None:
                ablated(arguments, work, work.plan, panel)
    except dspy.LMError as error:
        print(f"error: the LM failed: {error}\n  remedy:   mend it and run the same command again", file=sys.stderr)
        return 3
    finally:
        journal.close()
    return 0


def prepare(arguments: argparse.Namespace) -> Work:
    """Load and check everything.

    Raises:
        InputError: Something cannot be used.
    """
    for flag, value in (("--resamples", arguments.resamples), ("--seed", arguments.seed)):
        if value < 0:
            raise InputError("number too small", field=flag, expected="0 or more", found=value)
    figure, judges = figure_file(arguments.figure), _list(arguments.judges)
    options = judge_options(
        JudgeFlags(arguments.score_mode, arguments.roles, arguments.same_role, tuple(arguments.judge_option or ()))
    )
    corpus = data.load(arguments.data, arguments.task)
    names = _list(arguments.aspects) or list(corpus.rated_aspects())
    require_ratings(corpus, names)
    level = _level(arguments, corpus)
    aspects = tuple(corpus.task.aspect(name) for name in dict.fromkeys(names))
    found = contestants(judges, aspects, options)
    part, held_out = part_of(corpus, names, arguments.part, arguments.seed)
    ground = Ground(part, aspects, level, _statistics(arguments, corpus), arguments.resamples, arguments.seed)
    outside = _outside(arguments.outside or (), ground, corpus, {c.name for c in found})
    return Work(
        ground,
        tuple(found),
        outside,
        _baseline(arguments.baseline, [*(c.name for c in found), *outside]),
        called_for(corpus.groups, aspects),
        Setting(arguments.part, len(corpus.groups), arguments.seed, held_out, arguments.lm),
        figure,
        _plan(arguments, options) if arguments.ablations else None,
    )


def compared(arguments: argparse.Namespace, work: Work, panel: Panel) -> Comparison:
    """Score, compare and print; files are written as asked.

    Raises:
        dspy.LMError: The LM failed for good; what was answered is in its store.
        InputError: No judge could score anything.
    """
    ground, setting = work.ground, work.setting
    ready, failed = _ready(arguments, work, panel)
    entries, impossible = score_all(panel, ground, ready)
    for one in ready:
        if one.name in entries:
            entries[one.name] = entries[one.name].noted(tuned_elsewhere(one.held_out, setting))
    entries |= work.outside
    failed |= impossible
    price = _price(panel.lm, setting)
    comparison = compare_all(ground, entries, baseline=work.baseline, price=price, failed=failed)
    print(render(comparison, arguments.style, all_intervals=arguments.intervals == "all"))
    print("\n" + legend(comparison, setting, priced=price is not None))
    record = document(comparison, setting)
    decided = {
        s.name: decide(s.entry.scores, work.questions, resamples=ground.resamples, seed=ground.seed)
        for s in comparison.standings
    }
    if work.questions:
        print("\n" + _decisions(decided, arguments.style))
        record["decisions"] = decisions_json(decided)
    if arguments.published:
        print("\n" + published(ground, arguments.style))
        record["published"] = published_json(fitting(ground))
    if arguments.json:
        _write(Path(arguments.json), record)
    if work.figure is not None:
        from runs.comparison_figures import table_figure

        work.figure.parent.mkdir(parents=True, exist_ok=True)
        table_figure(comparison, setting.where, setting.note).savefig(work.figure)
    return comparison


def ablated(arguments: argparse.Namespace, work: Work, plan: Plan, panel: Panel) -> None:
    """Do the ablations, print their tables, and write their figures and all numbers to the folder.

    Raises:
        dspy.LMError: The LM failed for good; what was answered is in its store.
        InputError: The debate cannot be had with this LM or on these scales.
    """
    from runs.comparison_figures import ablation_figures

    ground, setting, folder = work.ground, work.setting, Path(arguments.ablations)
    findings = ablate(panel, ground, plan)
    print("\n" + render_ablations(findings, ground, arguments.style))
    if findings.stability and setting.lm == OFFLINE:
        print("the offline LM is deterministic: its runs cannot differ, whatever the temperature")
    record = {
        "level": ground.level,
        "statistics": list(ground.statistics),
        **setting.about(ground),
        "judge": plan.judge.config(),
        "temperature_of_repeats": None if setting.lm == OFFLINE else plan.temperature,
        **findings.to_json(),
    }
    _write(folder / "ablations.json", record)
    for name, figure in ablation_figures(findings, ground, setting.where, setting.note).items():
        figure.savefig(folder / f"{name}.png")
    print(f"\nfigures and numbers of the ablations: {folder}")


def _ready(arguments: argparse.Namespace, work: Work, panel: Panel) -> tuple[list[Contestant], dict[str, str]]:
    """The contestants whose roles this LM can play, and why the others' cannot be played.

    Raises:
        InputError: No contestant's can.
    """
    if arguments.no_preflight:
        return list(work.contestants), {}
    ready, failed = [], {}
    for one in work.contestants:
        try:
            for judge in {id(a.judge): a.judge for a in one.aspects.values()}.values():
                about = [a for a in work.ground.aspects if one.aspects[a.name].judge is judge]
                preflight(panel, trials(one.name, judge, work.ground.corpus, about))
            ready.append(one)
        except InputError as error:
            if len(failed) == len(work.contestants) - 1:
                raise
            failed[one.name] = problem(error)
    return ready, failed


def _outside(given: Sequence[str], ground: Ground, whole: Corpus, taken: Set[str]) -> dict[str, Entry]:
    """Judge -> scores from its file."""
    found: dict[str, Entry] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not (equals and name.strip() and path):
            raise InputError("not an outside judge", field="--outside", expected="NAME=FILE", found=text)
        name = name.strip()
        if name in taken or name in found:
            raise InputError("two judges of one name", field="--outside", expected="another name", found=name)
        one = read_outside(Path(path), ground.corpus, ground.aspects, known=whole)
        unscored = {"not in the file": one.missing} if one.missing else {}
        found[name] = Entry(one.scores, unscored=unscored, note=f"scores from a file, {one.coverage()}")
    return found


def _baseline(wanted: str | None, names: Sequence[str]) -> str:
    if not names:
        raise InputError("no judge is named", field="--judges", expected=expected())
    if wanted is not None and wanted not in names:
        raise InputError(
            "the baseline is not among the judges", field="--baseline", expected=", ".join(names), found=wanted
        )
    return wanted or names[0]


def _price(lm: JudgeLM, setting: Setting) -> Price | None:
    """What this run's calls cost; nobody pays the stand-in."""
    if lm.price is None or setting.lm == OFFLINE:
        return None
    return lm.price if lm.batches is None else lm.price.batch()


def _lm(arguments: argparse.Namespace, journal: Journal) -> JudgeLM:
    given = {"temperature": arguments.temperature, "max_tokens": arguments.max_tokens}
    try:
        return make_lm(
            arguments.lm,
            api_base=arguments.api_base,
            store=Billing(journal),
            concurrency=arguments.concurrency,
            options=limits(arguments),
            **{name: value for name, value in given.items() if value is not None},
        )
    except InputError:
        raise
    except ValueError as error:
        raise InputError(str(error), field="--lm", found=arguments.lm) from error


def _decisions(decided: Mapping[str, Mapping[str, Decided]], style: str) -> str:
    return "\n\n".join(f"{b.title}\n\n{plain_table(b.header, b.rows, style)}" for b in blocks(decided))


def _plan(arguments: argparse.Namespace, options: Mapping[str, Any]) -> Plan:
    return Plan(
        preset("debate", {name: value for name, value in options.items() if name in options_of("debate")}),
        personas(Path(arguments.personas) if arguments.personas else None),
        tuple(_list(arguments.ablate)) or ABLATIONS,
        arguments.max_rounds,
        arguments.repeats,
        arguments.repeat_temperature,
    )


def _level(arguments: argparse.Namespace, corpus: Corpus) -> Level:
    level: Level = arguments.level if arguments.level != "auto" else "summary" if corpus.grouped else "sample"
    if level != "system":
        require_level(corpus, level)
    return level


def _statistics(arguments: argparse.Namespace, corpus: Corpus) -> tuple[Statistic, ...]:
    """The two that the task's published tables use, unless the user names others."""
    usual = "pearson,spearman" if corpus.task.name == "dialogue" else "spearman,kendall"
    chosen = _list(arguments.statistics or usual)
    for name in chosen:
        if name not in STATISTICS:
            raise InputError("unknown statistic", field="--statistics", expected=", ".join(STATISTICS), found=name)
    return tuple(cast(Statistic, name) for name in dict.fromkeys(chosen))


def _list(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _write(path: Path, record: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8")
