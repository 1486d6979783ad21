"""Score new texts with an exported judge.

    python runs/score.py runs/store/exports/NAME --in texts.jsonl --out scores.jsonl
    python runs/score.py models:/NAME/1 --in texts.csv --out scores.csv --aspects coherence
    python runs/score.py EXPORT --in texts.jsonl --out scores.jsonl --lm openai/MODEL --api-base URL
    python runs/score.py EXPORT --in 's3://bucket/*.jsonl' --out s3://bucket/s.parquet --engine ray
    python runs/score.py EXPORT --in texts.xlsx --out scores.xlsx --wide --keep-columns

The input may be any format that compile takes; ratings are not needed. The output has one row per text and aspect, in
the order of the input: group, candidate, aspect, score, rounds, stop_reason, unscored, reason. With --wide it has one
row per text and columns for each aspect; with --keep-columns rows begin with the columns of the input. A missing score
is null, and unscored says why, also for a line that could not be read. With --scale raters, score estimates the raters'
mean rating, and judge_score is the judge's own. Rows are in OUT.part until all are done; to resume a run that was
stopped, run the same command again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from debate_judge.data.errors import InputError
from debate_judge.runs.command_line import RESUME_HINT, is_terminal, say
from debate_judge.runs.flags import command_settings, run_command, setting
from debate_judge.runs.reports.tables import show
from debate_judge.runs.shared_flags import (
    COLUMNS,
    MAX_UNSCORED,
    SOURCES,
    EngineFlags,
    EstimateFlags,
    ExportFlags,
    LimitFlags,
    PreflightFlags,
    require_server,
)

if TYPE_CHECKING:
    from debate_judge.runs.scoring import TextScorer


@command_settings
class ScoreFlags(ExportFlags, PreflightFlags, LimitFlags, EstimateFlags, EngineFlags):
    """Settings of one scoring run."""

    input: str = setting(..., "texts to score, in any format that compile takes", flag="--in", metavar="FILE")
    columns: tuple[str, ...] = COLUMNS
    sources: int | None = SOURCES
    out: str = setting(..., "file for the scores: .jsonl, .csv, .xlsx or .parquet", metavar="FILE")
    wide: bool = setting(False, "one row per text, with columns for each aspect's score, reason and decision")
    keep_columns: bool = setting(False, "begin each row with the columns of the input")
    aspects: tuple[str, ...] = setting((), "aspects to score, comma-separated", default_text="all that the judge knows")
    task: str | None = setting(
        None, "score only the rows of this task, the judge's, in a file of several tasks", rare=True
    )
    transcripts: str | None = setting(
        None, "also write every debate to this file, as JSON lines", metavar="FILE", rare=True
    )
    max_unscored: float = MAX_UNSCORED


def main(argv: Sequence[str] | None = None) -> int:
    """Score a file; returns the exit code.

    0 done, 2 bad input, 3 the LM failed, 4 too many items without a score, 130 interrupted.
    """
    return run_command("score", __doc__, ScoreFlags, _run, argv, RESUME_HINT)


def _run(flags: ScoreFlags) -> int:
    if flags.lm and flags.estimate is None:
        require_server(flags.lm, flags.api_base, flags.store)
    say("loading ...")
    from debate_judge.runs.scoring import TextScorer, load_judge

    if flags.estimate is not None:
        return _estimate(flags)
    if flags.engine == "ray":
        from debate_judge.runs.ray_engine import score_with_ray

        return score_with_ray(flags)
    with load_judge(flags) as judge:
        return _score(flags, TextScorer(judge, flags))


def _estimate(flags: ScoreFlags) -> int:
    from debate_judge.runs.estimates import EstimateTarget, estimate_blocks, estimate_scoring
    from debate_judge.runs.export import resolve_lm, unconfirmed_address
    from debate_judge.runs.loaded import select_aspects
    from debate_judge.runs.runner import items_of_group
    from debate_judge.runs.scoring import find_export, new_groups

    export = find_export(flags)
    # The export's address needs no confirmation, because nothing is sent.
    address = flags.api_base or unconfirmed_address(export, flags.lm, None)
    lm = resolve_lm(export, flags.lm, address, flags.max_tokens)
    target = EstimateTarget.of(flags, flags.store, flags.estimate or "", *lm)
    task, aspects = export.judge.task, select_aspects(export.judge, flags.aspects or None)
    groups = new_groups(flags, task, lambda error: None)
    items = (item for entry in groups for item in items_of_group(task, entry.group, aspects))
    estimate, count = estimate_scoring(target, export.judge, aspects, items)
    notes = [f"{count:,} items to score; equal items are scored once, and replies in --store cost nothing."]
    show(*estimate_blocks(estimate, "role", notes))
    return 0


def _score(flags: ScoreFlags, scorer: TextScorer) -> int:
    from debate_judge.data.files.groups import NO_ROWS_REMEDY
    from debate_judge.runs.progress import RunProgress
    from debate_judge.runs.scoring import open_results, scored_summary, unscored_exit_code

    input_file, lm, groups = Path(flags.input), scorer.judge.lm, scorer.groups()
    transcripts = Path(flags.transcripts) if flags.transcripts else None
    with open_results(Path(flags.out), scorer.layout(), input_file=input_file, transcripts=transcripts) as results:
        if flags.preflight:
            groups = scorer.run_preflight(groups)
        # The number of items, for the time left, is only counted where a bar shows it.
        count = scorer.count_items() if is_terminal(sys.stderr) else None
        with RunProgress(lm) as progress, progress.track("items scored", count) as item_pass:
            for item, score, row in scorer.score_groups(groups):
                results.add(item, score, row)
                item_pass.advance()
        if not results.totals.rows:
            expected = "at least one group with its candidates"
            raise InputError("no groups in the file", file=input_file, expected=expected, remedy=NO_ROWS_REMEDY)
    show(*scored_summary(lm.meter, lm.price, flags.out, results.totals), file=sys.stderr)
    return unscored_exit_code(flags, results.totals)


if __name__ == "__main__":
    raise SystemExit(main())
