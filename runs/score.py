"""Score new texts with an exported judge.

    python runs/score.py --program runs/store/exports/NAME --in texts.jsonl --out scores.jsonl
    python runs/score.py --program models:/NAME/1 --in texts.csv --out scores.csv --aspects coherence
    python runs/score.py --program EXPORT --in texts.jsonl --out scores.jsonl --lm openai/MODEL --api-base URL

The input has the formats of data/files/groups.py; ratings are not needed. Results are one row per candidate and
aspect, in the order of the input: group, candidate, aspect, score, rounds, stop_reason, unscored. A score that is
missing is null, and unscored says why. The same command continues a run that was stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from debate_judge.data.errors import InputError
from debate_judge.runs.flags.lm import add_estimate, add_limits, add_preflight, limits, listed

if TYPE_CHECKING:
    from debate_judge.data.schema import Aspect, Task
    from debate_judge.programs.judge import Item
    from debate_judge.runs.export.loaded import LoadedJudge
    from debate_judge.runs.scoring.output import Results

EXIT_INPUT, EXIT_LM, EXIT_UNSCORED, EXIT_INTERRUPTED = 2, 3, 4, 130


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="score.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--program", required=True, metavar="EXPORT", help="folder of an export, or models:/NAME/VERSION"
    )
    parser.add_argument("--in", required=True, dest="source", metavar="FILE", help=".jsonl or .csv with the texts")
    parser.add_argument("--out", required=True, metavar="FILE", help=".jsonl or .csv for the scores")
    parser.add_argument("--aspects", help="comma-separated; all that the judge scores by default")
    parser.add_argument("--task", help="score only the groups of this task; otherwise one of another task is an error")
    parser.add_argument("--lm", help="another LM than the judge was compiled with: offline or PROVIDER/MODEL")
    parser.add_argument("--api-base", metavar="URL", help="address of an OpenAI-compatible server")
    parser.add_argument("--concurrency", type=int, default=16, help="LM calls in flight at once (16)")
    parser.add_argument("--transcripts", metavar="FILE", help="also write every debate, as JSON lines")
    parser.add_argument(
        "--max-unscored",
        type=float,
        default=0.2,
        metavar="SHARE",
        help="share of items without a score that is still a success; 1 accepts all (0.2)",
    )
    parser.add_argument(
        "--store", default="runs/store", metavar="DIR", help="folder with the LM's replies (runs/store)"
    )
    parser.add_argument(
        "--max-tokens", type=int, metavar="N", help="longest reply; cut ones are asked again x4 (as compiled)"
    )
    add_preflight(parser)
    add_limits(parser)
    add_estimate(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Score a file; returns the exit code.

    0 done, 2 bad input, 3 the LM failed, 4 too many items without a score, 130 interrupted.
    """
    arguments = build_parser().parse_args(argv)
    try:
        _check(arguments)
        return _run(arguments)
    except InputError as error:
        _say(f"error: {error}")
        return EXIT_INPUT
    except OSError as error:
        _say(f"error: {error}\n  remedy:   mend it; the same command goes on from the last whole row")
        return EXIT_INPUT
    except KeyboardInterrupt:
        _say(f"\nstopped; the same command goes on from the last row in {arguments.out}, no LM call is paid twice")
        return EXIT_INTERRUPTED


def _check(arguments: argparse.Namespace) -> None:
    if arguments.concurrency < 1:
        raise InputError("number too small", field="--concurrency", expected="at least 1", found=arguments.concurrency)
    if arguments.max_tokens is not None and arguments.max_tokens < 1:
        raise InputError("number too small", field="--max-tokens", expected="at least 1", found=arguments.max_tokens)
    if not 0 <= arguments.max_unscored <= 1:
        raise InputError(
            "not a share", field="--max-unscored", expected="a number from 0 to 1", found=arguments.max_unscored
        )


def _run(arguments: argparse.Namespace) -> int:
    # DSPy and LiteLLM would fetch a price list on import; nothing here needs it.
    import os

    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
    _say("loading ...")
    import dspy

    from debate_judge.programs.lm.errors import describe
    from debate_judge.runs.scoring.outage_guard import OutageError

    if arguments.estimate is not None:
        return _estimate(arguments)
    try:
        with _judge(arguments) as judge:
            return _score(arguments, judge)
    except dspy.LMError as error:
        _say(describe(error, arguments.lm or error.model or ""))
        return EXIT_LM
    except OutageError as error:
        _say(
            f"error: the LM failed: {error}\n  remedy:   mend it and run the same command again; it goes on from the "
            "last row, and what was answered is kept and not paid again"
        )
        return EXIT_LM


def _estimate(arguments: argparse.Namespace) -> int:
    from debate_judge.runs.estimates.dry_run import Target, reply_tokens
    from debate_judge.runs.estimates.items import estimate_scoring
    from debate_judge.runs.estimates.table import render
    from debate_judge.runs.export import folder as export
    from debate_judge.runs.export.loaded import chosen_aspects, lm_of

    found = export.find(arguments.program)
    spec, api_base, settings = lm_of(found, arguments.lm, arguments.api_base, arguments.max_tokens)
    target = Target(
        spec, api_base, _replies(arguments, spec), settings, limits(arguments), reply_tokens(arguments.estimate)
    )
    aspects = chosen_aspects(found.judge, _aspects(arguments))
    items = _items(Path(arguments.source), found.judge.task, aspects, arguments.task)
    estimate, left, done = estimate_scoring(target, found.judge, aspects, items, Path(arguments.out))
    have = f"; {done:,} have rows in {arguments.out} already" if done else ""
    print(render(estimate, "role", [f"{left:,} items to score{have}; equal items are asked about once."]))
    return 0


def _aspects(arguments: argparse.Namespace) -> list[str] | None:
    return listed(arguments.aspects) if arguments.aspects else None


def _replies(arguments: argparse.Namespace, spec: str) -> Path:
    return Path(arguments.store) / "replies" / spec.replace("/", "_")


def _judge(arguments: argparse.Namespace) -> LoadedJudge:
    from debate_judge.programs.make_lm import OFFLINE
    from debate_judge.runs.export import folder as export

    found = export.find(arguments.program)
    own = found.manifest["lm"]["spec"]
    spec = arguments.lm or own
    if spec != own:
        _say(f"note: the judge was compiled with {own}; its evidence does not speak about {spec}")
    asks = any(chosen.judge.named_predictors() for chosen in found.judge.aspects.values())
    if spec == OFFLINE and asks:
        _say("note: scores come from the offline stand-in, which computes text statistics and is no language model")
    store = _replies(arguments, spec)
    return export.open_judge(
        found,
        lm=arguments.lm,
        api_base=arguments.api_base,
        concurrency=arguments.concurrency,
        store=store,
        options=limits(arguments),
        max_tokens=arguments.max_tokens,
    )


def _score(arguments: argparse.Namespace, judge: LoadedJudge) -> int:
    from debate_judge.runs.runner.streaming import ahead
    from debate_judge.runs.scoring.output import Results

    aspects = judge.choose(_aspects(arguments))
    if any(judge.compiled.aspects[aspect.name].judge.compares for aspect in aspects):
        _say("note: the judge's evidence is about comparing two candidates; here each text is scored by itself")
    source, out = Path(arguments.source), Path(arguments.out)
    transcripts = Path(arguments.transcripts) if arguments.transcripts else None
    items = _items(source, judge.task, aspects, arguments.task)
    with Results(
        out, made_from=_made_from(arguments, judge, aspects), source=source, transcripts=transcripts
    ) as results:
        before = results.resume(items)
        left, items = ahead(items, 2 * len(aspects))
        if before and left:
            _say(f"{before} rows are in {out} already; going on from there")
        if not arguments.no_preflight:
            judge.smoke_test(left)
        _append_all(judge, items, results, patient=arguments.max_unscored >= 1)
    tally = results.tally
    if not tally.rows:
        raise InputError("no groups in the file", file=source, expected="at least one group with its candidates")
    if tally.rows == before:
        _say(f"nothing left to do: {out} has a row for every item")
    _say(_summary(judge, results))
    if tally.share > arguments.max_unscored:
        _say(
            f"error: {tally.share:.0%} of the items have no score (--max-unscored {arguments.max_unscored:g})\n"
            f"  remedy:   the rows are kept; to ask again for those without a score, mend the cause, delete {out} and "
            "run the same command: what was answered is not paid again"
        )
        return EXIT_UNSCORED
    return 0


def _made_from(arguments: argparse.Namespace, judge: LoadedJudge, aspects: Sequence[Aspect]) -> dict[str, Any]:
    return {
        "program": judge.fingerprint,
        "lm": judge.lm.model,
        "api_base": judge.lm.endpoint,
        "aspects": [a.name for a in aspects],
        "task": arguments.task,
        "max_tokens": arguments.max_tokens,
    }


def _items(source: Path, task: Task, aspects: Sequence[Aspect], only: str | None) -> Iterator[Item]:
    from debate_judge.runs.runner.streaming import group_items
    from debate_judge.runs.scoring.new_texts import new_groups

    for group in new_groups(source, task, only):
        yield from group_items(task, group, aspects)


def _append_all(judge: LoadedJudge, items: Iterator[Item], results: Results, *, patient: bool) -> None:
    from tqdm import tqdm

    from debate_judge.runs.runner.streaming import score_of, window
    from debate_judge.runs.scoring.outage_guard import OutageGuard

    guard = OutageGuard(results, window(judge.lm), patient)
    with tqdm(desc="scoring", unit="item", initial=results.tally.rows, delay=2, file=sys.stderr) as bar:
        for item, judgement in judge.stream(items):
            guard.add(item, score_of(judge.compiled, item, judgement))
            bar.update()
    guard.finish()


def _summary(judge: LoadedJudge, results: Results) -> str:
    from debate_judge.runs.reports.costs import cost_rows, cost_table

    tally, meter = results.tally, judge.lm.meter
    lines = [f"{tally.rows} items in {results.path}: {tally.rows - tally.unscored.total()} scored"]
    for reason, count in tally.unscored.most_common():
        example = f", e.g. {tally.examples[reason]}" if reason in tally.examples else ""
        lines.append(f"  {count} unscored: {reason}{example}")
    lines.append(f"LM calls: {meter.asked.total()} asked, {meter.executed.total()} executed")
    if meter.asked:
        lines += ["", cost_table(cost_rows(meter, judge.lm.price))]
    return "\n".join(lines)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
