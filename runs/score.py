"""Score new texts with an exported judge.

    python runs/score.py runs/store/exports/NAME --in texts.jsonl --out scores.jsonl
    python runs/score.py models:/NAME/1 --in texts.csv --out scores.csv --aspects coherence
    python runs/score.py EXPORT --in texts.jsonl --out scores.jsonl --lm openai/MODEL --api-base URL
    python runs/score.py EXPORT --in 's3://bucket/*.jsonl' --out s3://bucket/s.parquet --engine ray
    python runs/score.py EXPORT --in texts.xlsx --out scores.xlsx --wide --keep-columns

The input has the formats of a compile's data; ratings are not needed. Results are one row per candidate and aspect, in
the order of the input: group, candidate, aspect, score, rounds, stop_reason, unscored; where candidates or aspects
share calls, also how many there were. With --wide a row is one text, and each aspect a column; with --keep-columns
rows begin with the columns of the input. A score that is missing is null, and unscored says why. With --scale raters a
score is what the raters would give on average, by a map that the compile fitted, and judge_score is the judge's own.
The key interval adds low and high, the ends of a conformal interval on that scale, and abstain marks scores whose
interval is wider as left to people (to_people). The same command continues a run that was stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.http.address import NoServerError
from debate_judge.programs.lm.reply import replies_folder
from debate_judge.runs.flags.declared import spelled
from debate_judge.runs.flags.lm import limits, require_server
from debate_judge.runs.flags.parser import RESUMES, settings_of
from debate_judge.runs.flags.prose import is_terminal, print_error
from debate_judge.runs.reports.terminal import show
from debate_judge.runs.scoring.settings import (
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    EXIT_LM,
    EXIT_UNSCORED,
    ScoreFlags,
    ServeFlags,
)
from debate_judge.runs.scoring.uncertainty import USUAL_LEVEL, RowIntervals, interval_fields

if TYPE_CHECKING:
    from debate_judge.data.schema import Aspect, Task
    from debate_judge.programs.judge import Item, Judgement
    from debate_judge.runs.export.loaded import LoadedJudge
    from debate_judge.runs.export.manifest import Export
    from debate_judge.runs.scoring.output import Results, RowTotals
    from debate_judge.runs.scoring.rows import Row, RowForm


def main(argv: Sequence[str] | None = None) -> int:
    """Score a file; returns the exit code.

    0 done, 2 bad input, 3 the LM failed, 4 too many items without a score, 130 interrupted.
    """
    try:
        return _run(settings_of("score", __doc__, ScoreFlags, argv))
    except InputError as error:
        print_error(error)
        return EXIT_LM if isinstance(error, NoServerError) else EXIT_INPUT
    except OSError as error:
        _say(f"error: {error}\n  remedy:   fix the problem and {RESUMES}")
        return EXIT_INPUT
    except KeyboardInterrupt:
        _say(f"\nstopped; {RESUMES}")
        return EXIT_INTERRUPTED


def _run(arguments: ScoreFlags) -> int:
    if arguments.interval is not None or arguments.abstain is not None:
        arguments = replace(arguments, scale="raters", interval=arguments.interval or USUAL_LEVEL)
    # DSPy and LiteLLM would fetch a price list on import; nothing here needs it.
    import os

    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
    if arguments.lm and arguments.estimate is None:
        require_server(arguments.lm, arguments.api_base, arguments.store)
    _say("loading ...")
    import dspy

    from debate_judge.programs.lm.errors import describe

    if arguments.estimate is not None:
        return _estimate(arguments)
    try:
        if arguments.engine == "ray":
            from debate_judge.runs.distributed.command import score_distributed

            _refuse_on_ray(arguments)
            return score_distributed(arguments, _export, open_program, _made_from)
        with open_program(arguments) as judge:
            return _score(arguments, judge)
    except dspy.LMError as error:
        _say(describe(error, arguments.lm or error.model or ""))
        return EXIT_LM


def _refuse_on_ray(arguments: ScoreFlags) -> None:
    for flag, given in (("--wide", arguments.wide), ("--keep-columns", arguments.keep_columns)):
        if given:
            raise InputError(
                "rows that Ray writes are one an item, with our columns alone",
                field=flag,
                expected="rows of --engine local",
                remedy=f"leave out {flag}, and join by group and candidate",
            )


def _estimate(arguments: ScoreFlags) -> int:
    from debate_judge.runs.estimates.dry_run import reply_tokens
    from debate_judge.runs.estimates.items import estimate_scoring, scoring_target
    from debate_judge.runs.estimates.table import render
    from debate_judge.runs.export.loaded import chosen_aspects

    found = _export(arguments)
    target = scoring_target(
        found,
        arguments.lm,
        arguments.api_base,
        arguments.store,
        limits(arguments),
        max_tokens=arguments.max_tokens,
        reply_tokens=reply_tokens(arguments.estimate or ""),
    )
    aspects = chosen_aspects(found.judge, arguments.aspects or None)
    items = _items(arguments, found.judge.task, aspects)
    estimate, count = estimate_scoring(target, found.judge, aspects, items)
    notes = [f"{count:,} items to score; equal items are asked about once, and answers in --store cost nothing."]
    show(*render(estimate, "role", notes))
    return 0


def _export(arguments: ScoreFlags | ServeFlags) -> Export:
    from debate_judge.runs.export.folder import find
    from debate_judge.runs.export.from_mlflow import MLflowStore

    return find(arguments.program, arguments.judge, MLflowStore(folder=Path(arguments.store)))


def open_program(arguments: ScoreFlags | ServeFlags) -> LoadedJudge:
    """The judge that a command names, connected to its LM, after what the user should know of it was said."""
    from debate_judge.programs.make_lm import OFFLINE
    from debate_judge.runs.export.lm_choice import confirmed, lm_of
    from debate_judge.runs.export.loaded import open_judge

    found = _export(arguments)
    own = found.manifest["lm"]["spec"]
    spec = arguments.lm or own
    if spec != own:
        _say(f"note: the judge was compiled with {own}; its measured agreement does not cover {spec}")
    asks = any(chosen.judge.named_predictors() for chosen in found.judge.aspects.values())
    if spec == OFFLINE and asks:
        _say("note: scores come from the offline stand-in, which computes text statistics and is no language model")
    api_base = arguments.api_base
    if arguments.trust_export:
        api_base = confirmed(found, arguments.lm, api_base)
    if asks:
        # An address that only the export names is refused, and not tried.
        require_server(*lm_of(found, arguments.lm, api_base)[:2], arguments.store)
    store = replies_folder(arguments.store, spec)
    judge = open_judge(
        found,
        lm=arguments.lm,
        api_base=api_base,
        concurrency=arguments.concurrency,
        store=store,
        replies=arguments.replies,
        options=limits(arguments),
        max_tokens=arguments.max_tokens,
    )
    if asks and judge.lm.destination is not None:
        _say(judge.lm.destination)
    return judge


def _score(arguments: ScoreFlags, judge: LoadedJudge) -> int:
    from debate_judge.runs.runner.streaming import ahead, score_of
    from debate_judge.runs.scoring.output import open_results

    aspects = judge.choose(arguments.aspects or None)
    judge.compiled.require_calibrated(aspects, arguments.scale)
    if any(judge.compiled.aspects[aspect.name].judge.compares for aspect in aspects):
        _say("note: the judge's evidence is about comparing two candidates; here each text is scored by itself")
    source, out = Path(arguments.source), Path(arguments.out)
    transcripts = Path(arguments.transcripts) if arguments.transcripts else None
    rows: dict[tuple[str, str], Row] = {}
    judges = [judge.compiled.aspects[aspect.name].judge for aspect in aspects]
    made_from = _made_from(arguments, judge, aspects)
    first, items = ahead(
        _items(arguments, judge.task, aspects, rows), max(2, *(one.together for one in judges)) * len(aspects)
    )
    if arguments.keep_columns and not first:
        # The columns are those of the first text: without one nothing is begun.
        next(items, None)
    form, extra = _row_form(arguments, judge, aspects, rows[first[0].group, first[0].candidate] if first else {})
    spans = _intervals(arguments, judge, aspects)
    with open_results(
        out, made_from=made_from, source=source, transcripts=transcripts, form=form, extra=extra
    ) as results:
        if results.begun:
            _say(f"{out} has rows already: they are compared with what --store recalls, then the run goes on")
        if arguments.preflight:
            judge.smoke_test(first)

        def write(item: Item, judgement: Judgement) -> None:
            score = spans.applied(item, score_of(judge.compiled, item, judgement, arguments.scale))
            place = item.group, item.candidate
            results.add(item, score, rows[place])
            if item.aspect is aspects[-1]:
                del rows[place]

        _write_all(judge, items, results, write, _count(arguments, judge.task, aspects))
    tally = results.tally
    if not tally.rows:
        raise InputError("no groups in the file", file=source, expected="at least one group with its candidates")
    if tally.kept == tally.rows:
        _say(f"nothing left to do: {out} has a row for every item")
    return _told(arguments, judge, aspects, tally, spans)


def _told(
    arguments: ScoreFlags, judge: LoadedJudge, aspects: Sequence[Aspect], tally: RowTotals, spans: RowIntervals
) -> int:
    """Print what was scored and what it cost; returns the exit code."""
    from debate_judge.runs.export.intervals import held_out_intervals
    from debate_judge.runs.reports.scored import scored_summary, uncertainty_summary

    show(*scored_summary(judge.lm.meter, judge.lm.price, arguments.out, tally), to=sys.stderr)
    if arguments.interval is not None:
        held_out = held_out_intervals(judge.manifest, aspects, arguments.interval, arguments.abstain)
        show(*uncertainty_summary(held_out, spans, arguments.interval, arguments.abstain), to=sys.stderr)
    if tally.share > arguments.max_unscored:
        most = f"{spelled(ScoreFlags, 'max_unscored')} {arguments.max_unscored:g}"
        _say(
            f"error: {100 * tally.share:.0f} % of the items have no score ({most})\n"
            f"  remedy:   fix the problem and {RESUMES}"
        )
        return EXIT_UNSCORED
    return 0


def _row_form(
    arguments: ScoreFlags, judge: LoadedJudge, aspects: Sequence[Aspect], first: Row
) -> tuple[RowForm, tuple[str, ...]]:
    """The columns of the results, and the fields of a score among them that not every run has."""
    from debate_judge.runs.scoring.rows import LongRows, WideRows, extra_fields

    mapped = arguments.scale == "raters"
    extra = extra_fields([judge.compiled.aspects[aspect.name].judge for aspect in aspects], mapped=mapped)
    extra += interval_fields(arguments.interval, arguments.abstain)
    if not arguments.wide:
        return LongRows(extra, tuple(first)), extra
    # A cut is on the judge's own scale.
    cuts = {aspect.name: None if mapped else judge.cut(aspect) for aspect in aspects}
    return WideRows(cuts, extra, tuple(first)), extra


def _made_from(arguments: ScoreFlags, judge: LoadedJudge, aspects: Sequence[Aspect]) -> dict[str, Any]:
    return {
        "program": judge.fingerprint,
        "lm": judge.lm.model,
        "api_base": judge.lm.endpoint,
        "aspects": [a.name for a in aspects],
        "task": arguments.task,
        "max_tokens": arguments.max_tokens,
        "scale": arguments.scale,
        **{name: True for name in ("wide", "keep_columns") if getattr(arguments, name)},
        **{name: value for name in ("interval", "abstain") if (value := getattr(arguments, name)) is not None},
    }


def _intervals(arguments: ScoreFlags, judge: LoadedJudge, aspects: Sequence[Aspect]) -> RowIntervals:
    from debate_judge.runs.export.intervals import fitted_intervals

    if arguments.interval is None:
        return RowIntervals({}, None)
    return RowIntervals(fitted_intervals(judge.manifest, aspects, arguments.interval), arguments.abstain)


def _items(
    arguments: ScoreFlags, task: Task, aspects: Sequence[Aspect], rows: dict[tuple[str, str], Row] | None = None
) -> Iterator[Item]:
    """All items; the columns of their texts are put into `rows`."""
    from debate_judge.runs.runner.streaming import group_items
    from debate_judge.runs.scoring.new_texts import new_groups

    if arguments.engine == "ray":
        from debate_judge.runs.distributed.command import all_items

        yield from all_items(arguments, task, aspects)
        return
    keep = arguments.keep_columns
    for group in new_groups(arguments.source, task, arguments.task, arguments.columns, arguments.sources, keep=keep):
        if rows is not None:
            rows.update({(group.id, candidate.id): candidate.row for candidate in group.candidates})
        yield from group_items(task, group, aspects)


def _count(arguments: ScoreFlags, task: Task, aspects: Sequence[Aspect]) -> int | None:
    """How many items there are, for the time that is left; only looked for where a bar shows it."""
    from debate_judge.runs.scoring.new_texts import count_candidates

    if not is_terminal(sys.stderr):
        return None
    try:
        return count_candidates(arguments.source, task, arguments.columns, arguments.sources) * len(aspects)
    except InputError:
        # It is told when scoring comes to it, after the rows before it.
        return None


def _write_all(
    judge: LoadedJudge,
    items: Iterator[Item],
    results: Results,
    write: Callable[[Item, Judgement], None],
    total: int | None,
) -> None:
    from debate_judge.runs.runner.progress import RunProgress

    shown = RunProgress(judge.lm, shown=True)
    shown.start()
    try:
        with shown.over("items scored", total) as done:
            for item, judgement in judge.stream(items):
                write(item, judgement)
                done.advance()
    finally:
        shown.stop()
    results.finish()


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
