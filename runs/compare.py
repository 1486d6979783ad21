"""Several judges on the same data in one table.

    python runs/compare.py --data sample --judges rouge-l,single,debate
    python runs/compare.py --data summeval --judges single,geval,debate+tiebreak,chateval --lm openai/gpt-4o-mini
    python runs/compare.py --data summeval --judges single,runs/store/exports/NAME --external mine=scores.jsonl
    python runs/compare.py --data summeval --judges single,debate --ablations figures/

A judge is a name (single, multiagent, debate, ... rouge-l) or the folder of an export. Scored are the held-out
sources of compile.py's split, unless --part all says otherwise: an export's figures on sources that it was compiled on
are no evidence. All judges score in one pass and share every reply; the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from debate_judge.data.errors import InputError
from debate_judge.programs import JUDGES
from debate_judge.runs.flags.judge import add_judge_options
from debate_judge.runs.flags.lm import add_estimate, add_limits, add_sampling


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="compare.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = parser.add_argument_group("what is scored")
    data.add_argument("--data", default="sample", help="as for compile.py (sample)")
    data.add_argument("--task", help="as for compile.py")
    data.add_argument("--aspects", help="comma-separated; all rated aspects by default")
    data.add_argument("--part", choices=("held-out", "all"), default="held-out", help="which groups (held-out)")
    data.add_argument("--seed", type=int, default=0, help="of the split and of the intervals (0)")
    judges = parser.add_argument_group("who scores")
    judges.add_argument(
        "--judges", default="rouge-l,single,debate", help=f"comma-separated: {', '.join(JUDGES)}, or an export's folder"
    )
    judges.add_argument(
        "--external",
        action="append",
        metavar="NAME=FILE",
        help="scores of any other judge: rows of group, candidate, aspect, score; may be repeated",
    )
    judges.add_argument("--lm", default="offline", help="for all judges (offline)")
    judges.add_argument("--api-base", help="address of an OpenAI-compatible server")
    judges.add_argument("--concurrency", type=int, default=16, help="LM calls in flight at once (16)")
    judges.add_argument("--store", default="runs/store", help="folder with the LM's replies (runs/store)")
    table = parser.add_argument_group("the table")
    table.add_argument("--level", choices=("auto", "summary", "sample", "system"), default="auto")
    table.add_argument("--statistics", help="comma-separated: pearson, spearman, kendall (the task's usual two)")
    table.add_argument("--baseline", help="judge that the others are compared with (the first one)")
    table.add_argument("--resamples", type=int, default=10_000, help="of the intervals (10000)")
    table.add_argument("--style", choices=("text", "markdown", "latex"), default="text")
    table.add_argument("--intervals", choices=("average", "all"), default="average", help="in which columns (average)")
    table.add_argument("--published", action="store_true", help="show what papers printed on this set beside, apart")
    table.add_argument("--figure", metavar="FILE", help="also draw the table: .png, .svg or .pdf")
    table.add_argument("--json", metavar="FILE", help="also write the table as JSON")
    ablations = parser.add_argument_group("ablations of the debate")
    ablations.add_argument("--ablations", metavar="DIR", help="do them; figures and ablations.json go to this folder")
    ablations.add_argument("--ablate", help="which: rounds, personas, styles, distribution, stability (all)")
    ablations.add_argument("--max-rounds", type=int, default=5, help="longest debate of the rounds (5)")
    ablations.add_argument("--personas", metavar="FILE", help="TOML file with personas of your own for the Critic")
    ablations.add_argument("--repeats", type=int, default=5, help="runs for the stability (5)")
    ablations.add_argument("--repeat-temperature", type=float, default=1.0, help="of these runs (1)")
    add_judge_options(parser)
    add_sampling(parser)
    add_limits(parser)
    add_estimate(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit code (0 done, 2 bad input, 3 the LM failed, 130 interrupted)."""
    arguments = build_parser().parse_args(argv)
    # DSPy and LiteLLM would fetch a price list on import; nothing here needs it.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
    try:
        from debate_judge.runs.comparison.job import run

        return run(arguments)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here, no LM call is paid twice", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
