"""A compile: a judge is tuned, searched, chosen, measured on sources that it never saw, and published.

    python optimize/compile.py                                   # the sample corpus, offline, no key
    python optimize/compile.py --data ratings.jsonl --lm openai/gpt-6-luna

`debate compile` is the same; `optimize.command` has its flags.
"""

from __future__ import annotations

from collections.abc import Mapping

from debate_judge.data.schema import Corpus
from debate_judge.optimize.command import main
from debate_judge.optimize.held_out import choose_export, compare_held_out, evaluate
from debate_judge.optimize.plan import CompileRun, make_plan
from debate_judge.optimize.result import Result
from debate_judge.optimize.run import log_result, open_run, write_export
from debate_judge.optimize.selection import choose, search
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuning import tune

__all__ = ["compile_judge", "learn_and_measure", "main"]


def compile_judge(
    settings: Settings, personas: Mapping[str, str], corpus: Corpus | None = None, *, progress: bool = True
) -> Result:
    """Compile a judge for the raters of a corpus and measure it on held-out sources.

    Args:
        settings: All settings of the compile.
        personas: Name -> text of the Critic's personas to try.
        corpus: Rated texts in place of those that the settings name.
        progress: Whether to show progress on stderr.

    Raises:
        InputError: Settings or data cannot be used; no LM call was made then.
        dspy.LMError: The LM failed for good; its replies are stored, and the same command resumes from there.
    """
    plan = make_plan(settings, personas, corpus)
    with open_run(plan, progress=progress) as (run, tracker):
        result = learn_and_measure(run)
        with run.runner.progress.track("writing the export, the run and the report", None):
            write_export(result)
            return log_result(result, tracker)


def learn_and_measure(run: CompileRun) -> Result:
    """A compile without its export: the same for an estimate, whose LM only counts.

    A half is a list of folds with the same train part, on which the judge is tuned once; the exported judge's split is
    the first of the first half. Without folds it is the only one.
    """
    plan, halves = run.plan, run.plan.halves
    tuned = run.each(tune, [half[0].train for half in halves], concurrent=run.tunes_concurrently)

    folds = [fold for half in halves for fold in half]
    judges = [judges for half, judges in zip(halves, tuned, strict=True) for _ in half]
    searches = run.each(search, judges, folds)
    chosen = run.each(choose, searches, folds)
    held_out = compare_held_out(plan, run.each(evaluate, chosen, folds))

    exports, why = choose_export(held_out)
    return Result(
        plan=plan,
        lm=run.runner.lm,
        compiled=chosen[0],
        searches=searches,
        held_out=held_out,
        exports=exports,
        why=why,
    )


if __name__ == "__main__":
    raise SystemExit(main())
