"""A comparison from settings to output: judges and data, one evaluation, the table, the report, the run in MLflow.

Calls that several judges need are made once, because they share the store of replies: a debate of two rounds begins
like one of three rounds, and debates with different personas begin with the same call of the Scorer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from debate_judge import data
from debate_judge.data.agreement.decisions import ABSOLUTE_MEASURES, decision_cuts, find_decision_rules
from debate_judge.data.agreement.figures import (
    AVERAGE,
    INTERVALS,
    STATISTIC_NAMES,
    UNDEFINED,
    WHY_NO_P_VALUE,
    Statistic,
)
from debate_judge.data.errors import InputError, require_writable, write_json
from debate_judge.data.files.formats import read_records
from debate_judge.data.schema import Aspect, Corpus, Level, Task, fingerprint
from debate_judge.data.splits import aspects_to_judge, require_level, split
from debate_judge.programs.dry_run import EstimateCase
from debate_judge.programs.grouping import Question, corpus_items, group_into_questions
from debate_judge.programs.judge import Judge, Judgement
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.programs.lm.limits import TooManyUnscoredError
from debate_judge.programs.lm.replies import SqlStore, StoreError, replies_folder
from debate_judge.programs.make_lm import OFFLINE, OFFLINE_NOTE, make_lm
from debate_judge.runs.command_line import EXIT_LM, RESUME_HINT, print_error
from debate_judge.runs.compare import CompareFlags, parse_metric
from debate_judge.runs.comparison.entrants import (
    Entrant,
    JudgeSpec,
    LMChoice,
    build_entrants,
    choose_lms,
    expected_judges,
    parse_judges,
)
from debate_judge.runs.comparison.figures import (
    Comparison,
    EvaluatedJudge,
    agreement_chart,
    evidence_tables,
    group_notes,
    reproduce_blocks,
)
from debate_judge.runs.estimates import (
    NO_CALLS,
    Estimate,
    EstimateTarget,
    Stage,
    estimate_blocks,
    estimate_by_dry_run,
    sampled_groups,
    text_totals,
)
from debate_judge.runs.flags import as_command, changed_settings, result_settings
from debate_judge.runs.human_ratings import resolve_data
from debate_judge.runs.progress import RunProgress, stage
from debate_judge.runs.reports.page import Report, write_pages
from debate_judge.runs.reports.tables import (
    DataTable,
    OutputBlock,
    Verbatim,
    calls_text,
    cost_table,
    markdown,
    p_text,
    power_text,
    show,
    value_text,
)
from debate_judge.runs.runner import (
    JudgeRunner,
    JudgeUsage,
    PassJob,
    group_ratings,
    group_scores,
    preflight,
    require_scored,
    run_shared_pass,
)
from debate_judge.runs.shared_flags import lm_options, require_server
from debate_judge.runs.tracking import Tracker, TrackingError, log_dataset, text_values

_SAMPLED_ITEMS = 96
"""Items that each judge scores in the dry run, over all aspects."""

_SYMBOLS: Mapping[Statistic, str] = {"pearson": "r", "spearman": "ρ", "kendall": "τ-b"}


def run(flags: CompareFlags) -> int:
    """Run a comparison and print its tables and other outputs; returns the exit code, `EXIT_LM` if a judge left too
    many texts without a score."""
    plan = prepare(flags)
    if flags.estimate is not None:
        show(*_estimate(plan))
        return 0
    with ExitStack() as stack:
        lms = {choice: _open_lm(flags, choice, stack) for choice in plan.lms}
        clients = list(lms.values())
        for lm in clients[1:]:
            lm.share_budget(clients[0])
        tracker = stack.enter_context(_tracked(plan))
        plan, incomplete = _compare_entrants(plan, lms)
        record = {**plan.comparison.to_json(), **plan.to_json()}
        if flags.json:
            write_json(flags.json, {**record, "lm_calls": {lm.model: lm.meter.counts() for lm in clients}}, "--json")
        places = _write(plan, clients, tracker, record)
        show(*_summary(plan, clients, places))
    for name in incomplete:
        remedy = f"fix the cause, or allow more with --max-unscored, and {RESUME_HINT}"
        print_error(f"{name}: {plan.comparison.failed[name]}\n  remedy:   {remedy}")
    return EXIT_LM if incomplete else 0


def _open_lm(flags: CompareFlags, choice: LMChoice, stack: ExitStack) -> JudgeLM:
    """The LM with its store of replies, which `stack` closes."""
    require_server(choice.spec, choice.api_base, flags.store)
    replies = SqlStore(replies_folder(flags.store, choice.spec))
    stack.callback(replies.close)
    lm = make_lm(
        choice.spec,
        api_base=choice.api_base,
        store=replies,
        concurrency=flags.concurrency,
        options=lm_options(flags),
        temperature=choice.temperature,
        max_tokens=choice.max_tokens,
        flag=choice.flag,
    )
    if lm.destination is not None:
        print(lm.destination, file=sys.stderr)
    return lm


# --- the plan ---


@dataclass(frozen=True)
class ComparisonPlan:
    """A checked comparison: the judges, each with its LM, and the groups."""

    flags: CompareFlags
    comparison: Comparison
    """What is compared; before the evaluation it has the judges whose scores are from files alone."""
    entrants: tuple[Entrant, ...]
    groups: str
    """What the groups are, in words."""

    @property
    def lms(self) -> tuple[LMChoice, ...]:
        """The LMs of the judges."""
        return tuple(dict.fromkeys(entrant.lm for entrant in self.entrants))

    @property
    def lm(self) -> str:
        """The LMs in one line."""
        return ", ".join(dict.fromkeys(lm.spec for lm in self.lms))

    @property
    def stand_in(self) -> str:
        """A notice where a judge has the offline stand-in for an LM, else empty."""
        return OFFLINE_NOTE if any(lm.spec == OFFLINE for lm in self.lms) else ""

    @property
    def identity(self) -> str:
        """Equal for comparisons of equal settings on equal data, which are the same run."""
        settings = {name: str(value) for name, value in result_settings(self.flags).items()}
        return fingerprint(["comparison", self.comparison.corpus.digest, settings])

    @property
    def name(self) -> str:
        """The name of the run and of its report."""
        return self.flags.name or f"compare-{self.comparison.corpus.origin.name}-{self.identity[:8]}"

    @property
    def heading(self) -> str:
        """What the numbers of the table are, and which groups they are from."""
        names = " / ".join(STATISTIC_NAMES[statistic] for statistic in self.comparison.statistics)
        return f"{self.comparison.level}-level {names} with the mean human rating; {self.groups}"

    def entrants_of(self, lm: LMChoice) -> list[Entrant]:
        """The judges that have this LM."""
        return [entrant for entrant in self.entrants if entrant.lm == lm]

    def to_json(self) -> dict[str, Any]:
        """Data, part and LM as JSON values."""
        corpus = self.comparison.corpus
        return {
            "data": {
                "name": corpus.origin.name,
                # Only the file's name: a published result should not reveal where a user keeps data.
                "location": Path(corpus.origin.location).name,
                "task": corpus.task.name,
                "aspects": [a.name for a in self.comparison.aspects],
                "part": self.flags.part,
                "groups": len(corpus.groups),
                "split_seed": self.flags.seed,
                "digest": corpus.digest,
            },
            "lm": {"spec": self.lm, "stand_in": bool(self.stand_in)},
        }


def prepare(flags: CompareFlags) -> ComparisonPlan:
    """Load the data and the judges, and check all settings, before a call is made.

    Raises:
        InputError: A setting, the data or a judge cannot be used.
    """
    specs = parse_judges(flags.judges, Path(flags.store))
    lms = choose_lms(specs, flags.lm, flags.api_base, flags.temperature, flags.max_tokens)
    file = resolve_data(flags.data)
    corpus = data.load(file, flags.task or _task_of_export(flags.data, specs), flags.columns, flags.sources)
    aspect_names = aspects_to_judge(corpus, flags.aspects or _judged_by_all(corpus, specs))
    level, statistics = _metric(flags, corpus)
    aspects = tuple(corpus.task.aspect(name) for name in aspect_names)
    built = build_entrants(specs, aspects, lms, Path(flags.personas) if flags.personas else None)
    compiled_on = frozenset[str]().union(*(entrant.compiled_on for entrant in built))
    part, groups = _select_part(corpus, aspect_names, flags, compiled_on)
    rules = find_decision_rules(corpus.groups, aspects)
    external = _external_judges(flags.external, part, aspects, corpus, {entrant.name for entrant in built})
    # Compared with a judge on the sources that it was compiled on, no other would say anything.
    names = [*(e.name for e in built if not e.overlap(part)), *external, *(e.name for e in built)]
    if not names:
        raise InputError("no judge is named", field="--judges", expected=expected_judges())
    require_writable(flags.json, "--json")
    comparison = Comparison(
        corpus=part,
        aspects=aspects,
        level=level,
        statistics=statistics,
        seed=flags.seed,
        cuts=decision_cuts(aspects, rules, flags.cut),
        decision_rules=rules,
        judges=external,
        baseline=names[0],
    )
    return ComparisonPlan(flags, comparison, tuple(built), groups)


def _select_part(
    corpus: Corpus, aspects: Sequence[str], flags: CompareFlags, compiled_on: Set[str]
) -> tuple[Corpus, str]:
    """The groups to compare on, and what they are.

    `held-out` are the groups that no export was compiled on; without an export, and where exports were compiled on all
    groups, the held-out part of a compile's split.
    """
    count = len(corpus.groups)
    if flags.part == "all":
        return corpus, f"all {count} groups of the data"
    unseen = tuple(group for group in corpus.groups if group.source_id not in compiled_on)
    if unseen and compiled_on:
        return replace(corpus, groups=unseen), f"the {len(unseen)} of {count} groups that no export was compiled on"
    try:
        held_out = split(corpus, aspects=aspects, seed=flags.seed).held_out
    except InputError as error:
        remedy = "--part all compares on all groups"
        raise error.replaced(remedy=f"{error.remedy}; {remedy}" if error.remedy else remedy) from None
    return (
        held_out,
        f"{len(held_out.groups)} held-out groups of {count} (the split of a compile with seed {flags.seed})",
    )


def _task_of_export(spec: str, judges: Sequence[JudgeSpec]) -> Task | str | None:
    """The task of the first export; None without one, and for public sets, which have a task of their own."""
    task = next((judge.export.judge.task for judge in judges if judge.export is not None), None)
    if spec == "sample":
        return task and task.name
    return None if spec.partition("=")[0] in data.LOADERS else task


def _judged_by_all(corpus: Corpus, specs: Sequence[JudgeSpec]) -> list[str]:
    """The rated aspects that every export judges; empty without exports, which means the default aspects."""
    exports = [judge.export for judge in specs if judge.export is not None]
    if not exports:
        return []
    rated = corpus.select_aspects()
    judged = [name for name in rated if all(name in export.judge.aspects for export in exports)]
    if not judged:
        raise InputError(
            "no aspect is both rated in the data and judged by every export",
            field="--data",
            expected=", ".join(exports[0].judge.aspects),
            found=", ".join(rated) or "none",
        )
    return judged


def _metric(flags: CompareFlags, corpus: Corpus) -> tuple[Level, tuple[Statistic, ...]]:
    """Level and statistics; by default those of the published tables of the task."""
    metric = parse_metric(flags.metric)
    level: Level = ("summary" if corpus.grouped else "sample") if metric.level == "auto" else metric.level
    if level != "system":
        require_level(corpus, level)
    default: tuple[Statistic, ...] = (
        ("pearson", "spearman") if corpus.task.name == "dialogue" else ("spearman", "kendall")
    )
    return level, metric.correlations or default


def _external_judges(
    named_files: Sequence[str], part: Corpus, aspects: Sequence[Aspect], full_corpus: Corpus, names_taken: Set[str]
) -> dict[str, EvaluatedJudge]:
    """Name -> scores from the file."""
    by_name: dict[str, EvaluatedJudge] = {}
    for text in named_files:
        name, equals, path = text.partition("=")
        if not (equals and name.strip() and path):
            raise InputError("not an external judge", field="--external", expected="NAME=FILE", found=text)
        name = name.strip()
        if name in names_taken or name in by_name:
            raise InputError("two judges have the same name", field="--external", expected="another name", found=name)
        by_name[name] = read_external(Path(path), part, aspects, full_corpus)
    return by_name


def read_external(path: Path, corpus: Corpus, aspects: Sequence[Aspect], full_corpus: Corpus) -> EvaluatedJudge:
    """Read the scores of an external judge: rows of {group, candidate, aspect, score}, as `debate score` writes them.

    Rows about other groups of `full_corpus` than those of `corpus`, which are compared, are left out and counted.

    Raises:
        InputError: The file cannot be read, names a group, candidate or aspect that the data do not have, has two
            scores for one item or one that is no finite number, or has no score for any item.
    """
    names = [a.name for a in aspects]
    candidates = {group.id: {c.id: None for c in group.candidates} for group in full_corpus.groups}
    keys = {(g.id, c.id, name) for name in names for g in corpus.groups for c in g.candidates}
    scores: dict[tuple[str, str, str], float | None] = {}
    lines: dict[tuple[str, str, str], int] = {}
    for record in read_records(path):
        group = record.choice("group", candidates, "give the file that the scores were made for as --data")
        candidate = record.choice("candidate", candidates[group])
        key = group, candidate, record.choice("aspect", [a.name for a in full_corpus.task.aspects])
        if key in lines:
            raise record.error(
                f"a second score for candidate {candidate!r} of group {group!r}, {key[2]}",
                "candidate",
                found=f"the first is in line {lines[key]}",
                remedy="keep one row for each group, candidate and aspect",
            )
        lines[key], scores[key] = record.line, record.optional_number("score")
    covered, ignored = sum(scores.get(key) is not None for key in keys), len(scores.keys() - keys)
    if not covered:
        raise InputError(
            "no score for any of the items that are compared",
            file=path,
            expected=f"scores of {', '.join(names)} for groups of {corpus.origin.name}",
            found=f"{ignored} rows about other groups or aspects",
        )
    note = f"scores from a file, {covered} of {len(keys)} items have a score"
    if ignored:
        note += f"; {ignored} rows are about groups or aspects that are not compared here"
    by_aspect = {
        aspect.name: [
            replace(group, scores=tuple(scores.get((group.group, c, aspect.name)) for c in group.candidates))
            for group in group_ratings(corpus, aspect)
        ]
        for aspect in aspects
    }
    return EvaluatedJudge(by_aspect, note=note)


# --- the evaluation, and its cost estimate ---


def _compare_entrants(plan: ComparisonPlan, lms: Mapping[LMChoice, JudgeLM]) -> tuple[ComparisonPlan, list[str]]:
    """Evaluate all entrants, LM by LM; returns the plan with their scores, and the judges that left too many texts
    without a score, which is an error if no other is left."""
    judges: dict[str, EvaluatedJudge] = {}
    failed: dict[str, Exception] = {}
    for choice, lm in lms.items():
        with JudgeRunner(lm) as runner:
            usable, unusable = _usable_entrants(plan, choice, runner)
            evaluated, failed_later = evaluate(runner, usable, plan.comparison.corpus, plan.comparison.aspects)
        failed |= {**unusable, **failed_later}
        for name, judge in evaluated.items():
            try:
                judgements = [j for of_aspect in judge.judgements.values() for j in of_aspect]
                require_scored(judgements, plan.flags.max_unscored, "texts")
                # The stand-in is free.
                judges[name] = replace(judge, price=None if choice.spec == OFFLINE else lm.price)
            except TooManyUnscoredError as error:
                failed[name] = error
    incomplete = {name: error for name, error in failed.items() if isinstance(error, TooManyUnscoredError)}
    if incomplete and not judges:
        raise next(iter(incomplete.values()))
    in_order = {entrant.name: judges[entrant.name] for entrant in plan.entrants if entrant.name in judges}
    why = {name: " ".join(str(error).split()) for name, error in failed.items()}
    comparison = replace(plan.comparison, judges={**in_order, **plan.comparison.judges}, failed=why)
    return replace(plan, comparison=comparison), list(incomplete)


def _usable_entrants(
    plan: ComparisonPlan, choice: LMChoice, runner: JudgeRunner
) -> tuple[list[Entrant], dict[str, Exception]]:
    """The entrants of an LM that pass the preflight, and the reason of each that fails; it is an error if all fail."""
    entrants = plan.entrants_of(choice)
    if not plan.flags.preflight:
        return entrants, {}
    usable: list[Entrant] = []
    failed: dict[str, Exception] = {}
    for entrant in entrants:
        try:
            judges = {name: aspect_judge.judge for name, aspect_judge in entrant.aspect_judges.items()}
            corpus = plan.comparison.corpus
            items = (item for aspect in plan.comparison.aspects for item in corpus_items(corpus, aspect))
            preflight(runner, judges, items, name=entrant.name)
            usable.append(entrant)
        except InputError as error:
            if isinstance(error, StoreError) or len(failed) == len(entrants) - 1:
                raise
            failed[entrant.name] = error
    return usable, failed


def evaluate(
    runner: JudgeRunner,
    entrants: Sequence[Entrant],
    corpus: Corpus,
    aspects: Sequence[Aspect],
) -> tuple[dict[str, EvaluatedJudge], Mapping[str, Exception]]:
    """Score all candidates with all entrants, whose LM is that of the runner, in one pass.

    Returns:
        Name -> evaluated judge, in the order of the entrants; and name -> why a judge cannot score any item.

    Raises:
        dspy.LMError: The LM cannot be used; replies so far are in its store.
        InputError: No judge can score any item.
    """
    usages = {entrant.name: JudgeUsage() for entrant in entrants}
    items = {aspect.name: corpus_items(corpus, aspect) for aspect in aspects}
    judges = {(entrant.name, name): entrant.aspect_judges[name].judge for entrant in entrants for name in items}
    groupings = {key: group_into_questions(judge, items[key[1]]) for key, judge in judges.items()}
    jobs = [
        PassJob(key[0], partial(_answers, judge), groupings[key].questions, usages[key[0]])
        for key, judge in judges.items()
    ]
    results, failed = run_shared_pass(runner, jobs, "judges")
    if entrants and len(failed) == len(entrants):
        raise next(iter(failed.values()))
    answers = dict(zip(groupings, results, strict=True))
    distinct = sum(len({item.key for item in of_aspect}) for of_aspect in items.values())
    evaluated: dict[str, EvaluatedJudge] = {}
    for entrant in (entrant for entrant in entrants if entrant.name not in failed):
        members = entrant.aspect_judges
        by_aspect = {a: groupings[entrant.name, a].by_item(answers[entrant.name, a]) for a in items}
        evaluated[entrant.name] = EvaluatedJudge(
            {a.name: group_scores(corpus, a, by_aspect[a.name], members[a.name].granularity) for a in aspects},
            by_aspect,
            usages[entrant.name],
            distinct,
            on_scale=all(member.judge.on_scale for member in members.values()),
            together=max(1, *(member.judge.together for member in members.values())),
            lm=entrant.lm.spec,
            compiled_on=entrant.overlap(corpus),
        )
    return evaluated, failed


def _answers(judge: Judge, question: Question) -> Awaitable[Sequence[Judgement]]:
    return judge.judge(question.items)


def _estimate(plan: ComparisonPlan) -> list[OutputBlock]:
    """The cost estimate of the comparison, for the terminal, by LM; no LM is called."""
    flags, blocks = plan.flags, list[OutputBlock]()
    for choice in plan.lms:
        sampling = {"temperature": choice.temperature, "max_tokens": choice.max_tokens}
        target = EstimateTarget.of(flags, flags.store, flags.estimate or "", choice.spec, choice.api_base, sampling)
        comparison, entrants = plan.comparison, plan.entrants_of(choice)
        estimate = estimate_evaluation(target, comparison.corpus, comparison.aspects, entrants)
        last = choice == plan.lms[-1]
        notes = ["A call that several judges need is made once, and counted for the first of them."] if last else []
        blocks += estimate_blocks(estimate, "judge", notes, with_assumptions=last)
    return blocks


def estimate_evaluation(
    target: EstimateTarget, corpus: Corpus, aspects: Sequence[Aspect], entrants: Sequence[Entrant]
) -> Estimate:
    """Estimate an evaluation, with a row for each entrant. A call that several need is counted in the first of them."""
    sample = replace(corpus, groups=sampled_groups(corpus.groups, max(1, _SAMPLED_ITEMS // len(aspects))))
    # All aspects have the same texts, so the items of one say how the sample is scaled up.
    totals = [text_totals(corpus_items(part, aspects[0])) for part in (corpus, sample)]

    def work(case: EstimateCase, runner: JudgeRunner) -> None:
        # One after the other, so that a shared call is counted in the first row.
        for entrant in entrants:
            with stage(entrant.name):
                evaluate(runner, [entrant.dry_run_copy()], sample, aspects)
            steps.advance()

    names = [entrant.name for entrant in entrants]
    with RunProgress() as progress, progress.track("dry run", 2 * len(entrants)) as steps:
        estimate = estimate_by_dry_run(target, {name: Stage.of(name, *totals) for name in names}, work)
    # A judge that makes no LM calls has a row, too.
    return replace(estimate, rows={name: estimate.rows.get(name, NO_CALLS) for name in names})


# --- what is shown ---


def _judges_table(comparison: Comparison, *, all_intervals: bool = False) -> DataTable:
    """Aspects x statistics, average, LM calls and cost per item, paired difference to the baseline with p-value.

    A value that is the best of its column has a star (`Comparison.best`). Unless `all_intervals`, the last column alone
    has intervals.
    """
    columns, statistics, judges = comparison.columns, comparison.statistics, comparison.rows
    symbols = "/".join(_SYMBOLS[s] for s in statistics)
    priced = any(judge.usd_per_thousand for judge in judges.values())
    incomplete = any(judge.unscored for judge in judges.values())
    header = ["judge", *(f"{column} {symbols}" for column in columns), "LM calls per item"]
    header += ["$ per 1,000 items"] * priced
    header += [f"Δ to {comparison.baseline}", "p (Holm)", *["unscored"] * incomplete]
    rows = []
    for name, judge in judges.items():
        row = [f"{name} (compiled on these sources)" if judge.compiled_on else name]
        for column in columns:
            values = "/".join(value_text(comparison.agreement(name, column, s).value, ".3f") for s in statistics)
            star = " *" if comparison.best[column] == name else ""
            _, space, interval = f"{comparison.agreement(name, column):.3f}".partition(" ")
            row.append(values + star + (space + interval if all_intervals or column == columns[-1] else ""))
        row.append(value_text(judge.calls))
        usd = judge.usd_per_thousand
        if priced:
            row.append(value_text(usd, ".2f" if usd is None or usd >= 1 or usd == 0 else ".2g"))
        row.append(str(comparison.differences.get(name, UNDEFINED)))
        p_value = comparison.corrected_p_values.get(name)
        row.append("–" if p_value is None else p_text(p_value)[2:].lstrip("= "))
        rows.append([*row, *[str(sum(judge.unscored.values()))] * incomplete])
    return DataTable(header, rows)


def _verdict(comparison: Comparison) -> list[str]:
    """Which judge is the best, and judges whose figures are no evidence or missing."""
    best, groups, lines = comparison.best[AVERAGE], len(comparison.corpus.groups), []
    if len(comparison.compared) > 1:
        lines.append(
            f"{best} is the best judge on average: it differs from all others (p < 0.05, Holm over all columns)."
            if best
            else f"{comparison.corpus.sources} sources are too few to tell which judge is the best on average: none "
            "differs from all others (p < 0.05, Holm over all columns)."
        )
    lines += [
        f"{name} was compiled on {judge.compiled_on} of these {groups} groups: its figures are no evidence, so it is "
        "not compared with the others."
        for name, judge in comparison.rows.items()
        if judge.compiled_on
    ]
    lines += [f"{name} has no row: {why}" for name, why in comparison.failed.items()]
    if comparison.baseline in comparison.failed:
        lines.append(f"No differences are shown, because the baseline {comparison.baseline} has no row.")
    return lines


def _notes(plan: ComparisonPlan) -> list[str]:
    """How the figures were made, and their limits."""
    comparison, judges = plan.comparison, plan.comparison.rows
    lines = [plan.heading, *_interval_notes(comparison)]
    for name, difference in comparison.differences.items():
        if text := power_text(difference, "groups"):
            lines.append(f"{name} against {comparison.baseline}: {text}")
    lines += group_notes(comparison)
    if any(judge.price for judge in judges.values()):
        lines.append("$: what each judge would cost alone, shared and cached replies included")
    if unpriced := dict.fromkeys(j.lm for j in judges.values() if j.lm not in ("", OFFLINE) and j.price is None):
        lines.append(f"no price is known for {', '.join(unpriced)}; set one with --prices FILE")
    lines += [plan.stand_in] if plan.stand_in else []
    for name, judge in judges.items():
        if judge.together > 1:
            lines.append(f"{name}: up to {judge.together} candidates of a source in one call")
        if judge.unscored:
            reasons = ", ".join(f"{reason} {count}" for reason, count in judge.unscored.items())
            lines.append(f"{name} left {sum(judge.unscored.values())} unscored: {reasons}")
    return lines


def _interval_notes(comparison: Comparison) -> list[str]:
    """How intervals, p-values and stars of the first statistic are made."""
    if comparison.level == "system":
        return [
            "correlations over systems have no intervals and no p-values: few groups leave the systems' means noisy, "
            "which pulls these correlations towards 0"
        ]
    lines, p_values = [f"95 % intervals of the first statistic: {INTERVALS}"], comparison.corrected_p_values
    if None in p_values.values():
        lines.append(f"no p-values of the paired differences: {WHY_NO_P_VALUE}")
    elif p_values:
        lines.append(
            "p-values of paired differences: sign-flip test over groups (exact up to 16 groups, else 100,000 random "
            f"flips), corrected over {len(p_values)} comparisons (Holm)"
        )
    return [*lines, *(["*: differs from every other judge in its column"] if any(comparison.best.values()) else [])]


def _summary(plan: ComparisonPlan, lms: list[JudgeLM], places: Mapping[str, str]) -> list[OutputBlock]:
    """What is printed: one screen, and before it, if verbose, all tables of the report."""
    comparison, blocks = plan.comparison, list[OutputBlock]()
    asked = [lm for lm in lms if lm.meter.requested]
    if plan.flags.verbose:
        blocks += [part for tables in evidence_tables(comparison).values() for table in tables for part in (table, "")]
        blocks += [*_notes(plan), ""]
        blocks += [part for lm in asked for part in (cost_table(lm.meter, lm.price), "")]
    return [
        *blocks,
        plan.heading,
        "",
        _judges_table(comparison),
        "",
        *_verdict(comparison),
        *(f"{name}: {judge.note}" for name, judge in comparison.rows.items() if judge.note),
        *([plan.stand_in] if plan.stand_in else []),
        *(calls_text(lm.meter, lm.price) for lm in asked),
        *(["", Verbatim("\n".join(f"{word:<8}{place}" for word, place in places.items()))] if places else []),
    ]


def _report(plan: ComparisonPlan, lms: list[JudgeLM]) -> Report:
    comparison, corpus = plan.comparison, plan.comparison.corpus
    names = {name: name for name in comparison.rows}
    costs = []
    for name, judge in comparison.rows.items():
        tokens = judge.tokens_per_item or {}
        per_item = [value_text(tokens.get(kind), ",.0f") for kind in ("fresh", "cached", "output")]
        costs.append([name, value_text(judge.calls), *per_item, value_text(judge.usd_per_thousand, ".4g")])
    header = ("judge", "LM calls per item", "input", "cached input", "output", "$ per 1,000 items")
    note = "Tokens per item that each judge would use alone; a call that several judges need is made once."
    reproduced = {
        "seed": str(plan.flags.seed),
        "LM": plan.lm,
        "data": f"{corpus.origin.name}, {plan.groups}, fingerprint {corpus.digest}",
    }
    table = _judges_table(comparison, all_intervals=True)
    return Report(
        "Comparison of judges",
        title=f"{corpus.origin.name}: {len(names)} judges, {plan.lm}",
        verdict=[*_verdict(comparison), table, *agreement_chart(comparison, names)],
        sections={
            "Statistics": _notes(plan),
            **evidence_tables(comparison),
            "Cost": [DataTable(header, costs, note), *(cost_table(lm.meter, lm.price) for lm in lms)],
            "Reproduce": reproduce_blocks(as_command("compare", plan.flags), reproduced),
        },
        comparison=comparison,
        browsed=names,
        stand_in=plan.stand_in,
    )


# --- what is written ---


def _write(plan: ComparisonPlan, lms: list[JudgeLM], tracker: Tracker, record: Mapping[str, object]) -> dict[str, str]:
    """Write the report and log the run; returns where they are, by a word for each.

    If that fails there is a warning only, so that the comparison itself is not lost.
    """
    flags, places = plan.flags, dict[str, str]()
    artifacts: dict[str, str] = {}

    def write_report() -> None:
        if flags.report == "none":
            return
        file = Path(flags.store, "comparisons", plan.name, "report.html")
        if flags.json is not None:
            file = Path(flags.json).with_name(f"{Path(flags.json).stem}-report.html")
        artifacts["report.html"] = write_pages(_report(plan, lms), file, full=flags.report == "full")
        places["Report"] = str(file)

    def log_run() -> None:
        _log(tracker, plan, record, artifacts)
        places["MLflow"] = tracker.ui_command or tracker.run_link()

    for output, write in {"report": write_report, "run": log_run}.items():
        try:
            write()
        except (InputError, TrackingError) as error:
            print(f"warning: the {output} could not be written: {error}", file=sys.stderr)
    return places


@contextmanager
def _tracked(plan: ComparisonPlan) -> Iterator[Tracker]:
    """The run of a comparison, which is opened, and asks for the login, before any LM call."""
    flags, corpus = plan.flags, plan.comparison.corpus
    with Tracker(
        uri=os.environ.get("MLFLOW_TRACKING_URI"),
        store=Path(flags.store),
        experiment=f"debate/{Path(flags.data.partition('=')[0]).stem}",
        run_name=plan.name,
        identity=plan.identity,
    ) as tracker:
        import mlflow

        params = _params(plan)
        tracker.log_settings(result_settings(flags) | params, changed_settings(flags, ("data", "judges")) | params)
        with tracker.writing():
            mlflow.set_tag("level", plan.comparison.level)
            if flags.part == "held-out":
                log_dataset("held_out", corpus, corpus.digest)
        yield tracker


def _params(plan: ComparisonPlan) -> dict[str, str]:
    return {"lm": plan.lm, "aspects": ",".join(aspect.name for aspect in plan.comparison.aspects)}


def _log(tracker: Tracker, plan: ComparisonPlan, record: Mapping[str, object], artifacts: Mapping[str, str]) -> None:
    """Log the figures, a nested run for each judge, and `artifacts` by name; metric names are those of compiles."""
    import mlflow

    comparison = plan.comparison
    for name, judge in comparison.rows.items():
        average = comparison.agreement(name)
        absolute = comparison.absolute_agreement.get(name)
        metrics: dict[str, float | None] = {
            # Agreement on sources of a compile is no evidence, and must not be sorted among figures that are.
            **average.to_metrics("in_sample_agreement" if judge.compiled_on else "agreement"),
            "calls_per_item": judge.calls,
            "unscored": average.unscored,
            **({m: absolute[AVERAGE].measures[m].value for m in ABSOLUTE_MEASURES} if absolute else {}),
        }
        own = {"judge": name, **_params(plan), **({"lm": judge.lm} if judge.lm else {})}
        tracker.log_trial(name, own, metrics)
    page = "\n\n".join(filter(None, [plan.stand_in, markdown(_judges_table(comparison))]))
    with tracker.writing():
        mlflow.set_tags(text_values({"mlflow.note.content": page, "note": plan.stand_in or None}))
        mlflow.log_dict(dict(record), "comparison.json")
        for file, text in artifacts.items():
            mlflow.log_text(text, file)
