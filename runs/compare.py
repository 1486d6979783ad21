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

from debate_judge.runs.command_line import RESUME_HINT
from debate_judge.runs.comparison.flags import CompareFlags
from debate_judge.runs.flags import run_command
from debate_judge.runs.shared_flags import require_server


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; returns the exit code (0 done, 2 bad input, 3 the LM failed, 130 interrupted)."""

    def run(flags: CompareFlags) -> int:
        if flags.lm and flags.estimate is None:
            require_server(flags.lm, flags.api_base, flags.store)
        from debate_judge.runs.comparison import job

        return job.run(flags)

    return run_command("compare", __doc__, CompareFlags, run, argv, RESUME_HINT)


if __name__ == "__main__":
    raise SystemExit(main())
