"""Compare several judges on the same data, in one table.

    python runs/compare.py --data sample --judges rouge-l,single,debate
    python runs/compare.py --data summeval --judges single,runs/store/exports/NAME --external mine=scores.jsonl
    python runs/compare.py --judges "single,debate[rounds=1|2|3],debate[persona=plain]" --lm openai/gpt-6-luna
    python runs/compare.py --data new.csv --judges "EXPORT,EXPORT[lm=openai/MODEL]"

A judge is a name (single, multiagent, debate, ... rouge-l) or an export: its folder, models:/NAME/VERSION,
models:/NAME/latest, or the id of the MLflow run that made it. Settings in brackets apply to this judge alone: a|b makes
one judge for each value, and lm=PROVIDER/MODEL gives a judge another LM. The sources scored are those that no export
was compiled on; without exports, the held-out split of a compile; with --part all, all of them, and exports that were
compiled on some are marked, because their agreement is no evidence. Calls that several judges need are made once. To
resume a comparison that was stopped, run the same command again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator

from debate_judge.programs import JUDGES
from debate_judge.runs.command_line import RESUME_HINT, print_error
from debate_judge.runs.flags import command_settings, run_command, setting
from debate_judge.runs.shared_flags import (
    CUT,
    EXPORT,
    JSON_FILE,
    MAX_TOKENS,
    MAX_UNSCORED,
    PERSONAS_FILE,
    REPORT,
    SEED,
    STORE,
    AtLeast0,
    AtLeast1,
    DataFlags,
    EstimateFlags,
    LimitFlags,
    MetricChoice,
    PreflightFlags,
    require_server,
)


def parse_metric(text: str) -> MetricChoice:
    """Parse `--metric`: the level and the correlations that a comparison shows."""
    return MetricChoice.of(text, ("summary", "sample", "system"), allow_several=True)


def _check_metric(text: str) -> str:
    parse_metric(text)
    return text


@command_settings
class CompareFlags(DataFlags, PreflightFlags, LimitFlags, EstimateFlags):
    """Settings of one comparison."""

    judges: tuple[str, ...] = setting(
        ("rouge-l", "single", "debate"),
        f"comma-separated: {', '.join(JUDGES)}, or {EXPORT}; each may have settings in brackets, such as "
        "debate[rounds=2,persona=plain] or debate[rounds=0|1|2]",
    )
    external: tuple[str, ...] = setting(
        (),
        "scores of another judge, from a file with rows of group, candidate, aspect, score; may be repeated",
        metavar="NAME=FILE",
        repeated=True,
    )
    lm: str | None = setting(
        None,
        "PROVIDER/MODEL, or offline (text statistics, not an LM)",
        default_text="that of the first export, or offline",
    )
    metric: Annotated[str, AfterValidator(_check_metric)] = setting(
        "auto",
        "level (summary: within sources, sample: pooled, system: over systems) and correlations to show",
        metavar="LEVEL/CORRELATION,...",
        default_text="the level that suits the data, and the two correlations that papers on the task report",
    )
    part: Literal["held-out", "all"] = setting(
        "held-out",
        "sources to score: those that no export was compiled on (without exports, the held-out split), or all",
    )
    store: str = STORE
    verbose: bool = setting(False, "print all tables", affects_results=False)
    seed: int = SEED
    personas: str | None = PERSONAS_FILE
    temperature: AtLeast0 | None = setting(
        None, "sampling temperature; none: the provider's default", default_text="as compiled, or 0", rare=True
    )
    max_tokens: AtLeast1 | None = setting(None, MAX_TOKENS, default_text="as compiled, or 2000", rare=True)
    cut: float | None = CUT
    max_unscored: float = MAX_UNSCORED
    report: Literal["none", "plain", "full"] = REPORT
    name: str | None = setting(None, "name of the run in MLflow", rare=True, affects_results=False)
    json: str | None = JSON_FILE


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; returns the exit code (0 done, 2 bad input, 3 the LM failed, 130 interrupted)."""

    def run(flags: CompareFlags) -> int:
        if flags.lm and flags.estimate is None:
            require_server(flags.lm, flags.api_base, flags.store)
        from debate_judge.runs.comparison import job
        from debate_judge.runs.tracking import EXIT_TRACKING, TrackingError

        try:
            return job.run(flags)
        except TrackingError as error:
            print_error(error)
            return EXIT_TRACKING

    return run_command("compare", __doc__, CompareFlags, run, argv, RESUME_HINT)


if __name__ == "__main__":
    raise SystemExit(main())
