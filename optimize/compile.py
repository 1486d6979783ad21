"""Compile a judge for your human raters.

    python optimize/compile.py                                   # the sample corpus, offline, no key
    python optimize/compile.py --data ratings.jsonl --lm openai/gpt-4o-mini
    python optimize/compile.py --data summeval --aspects coherence,relevance --tuner none
    python optimize/compile.py --config settings.toml --seed 1

This file only parses arguments and prints; the flow is `optimize/job.py`.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from debate_judge.data.errors import InputError
from debate_judge.optimize.settings import EFFORTS, Settings, from_arguments
from debate_judge.optimize.tuners import TUNERS
from debate_judge.programs import JUDGES
from debate_judge.runs.flags.judge import add_judge_options
from debate_judge.runs.flags.lm import add_estimate, add_limits, add_sampling

if TYPE_CHECKING:
    from debate_judge.optimize.job import Result

EXIT_INPUT, EXIT_LM, EXIT_TRACKING, EXIT_INTERRUPTED = 2, 3, 4, 130


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="compile.py",
        description="Compile a judge for your human raters and prove it on sources that it never saw.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=None,
    )
    d = Settings()
    data = parser.add_argument_group("data")
    data.add_argument("--data", help=f"sample, summeval, topical_chat, NAME=PATH, or a .jsonl or .csv file ({d.data})")
    data.add_argument("--task", help="task of the data: summarization, dialogue, or your task file (.toml)")
    data.add_argument("--aspects", help="comma-separated; all rated aspects by default")
    data.add_argument(
        "--level", help=f"agreement to choose by: summary (within groups), sample (pooled) or auto ({d.level})"
    )
    judge = parser.add_argument_group("judge")
    judge.add_argument("--judge", help=f"{', '.join(JUDGES)} ({d.judge})")
    judge.add_argument("--personas", help="TOML file with personas of your own for the Critic")
    judge.add_argument("--lm", help=f"offline (text statistics, no LM) or PROVIDER/MODEL ({d.lm})")
    judge.add_argument("--api-base", help="address of an OpenAI-compatible server; keys come from the environment")
    judge.add_argument("--concurrency", type=int, help=f"LM calls in flight at once ({d.concurrency})")
    add_judge_options(parser)
    add_sampling(parser)
    add_limits(parser)
    judge.add_argument(
        "--max-unscored",
        type=float,
        metavar="SHARE",
        help=f"of dev or held-out items; more is an error ({d.max_unscored})",
    )
    search = parser.add_argument_group("optimization")
    search.add_argument("--tuner", help=f"{', '.join(TUNERS)} ({d.tuner})")
    search.add_argument("--effort", help=f"of the tuner: {', '.join(EFFORTS)} ({d.effort})")
    search.add_argument(
        "--trials", type=int, help=f"points that the search over n and the rest may visit, per aspect ({d.trials})"
    )
    search.add_argument(
        "--max-rounds", type=int, help=f"longest debate to consider; 0 is a single call ({d.max_rounds})"
    )
    search.add_argument("--objective", help=f"spearman, pearson or kendall ({d.objective})")
    search.add_argument(
        "--tolerance", type=float, help=f"dev agreement that may be given up for fewer LM calls ({d.tolerance})"
    )
    search.add_argument("--shared", action="store_true", default=None, help="one judge for all aspects together")
    search.add_argument("--seed", type=int, help=f"of the split, the tuner, the search and the intervals ({d.seed})")
    search.add_argument("--resamples", type=int, help=f"of the held-out intervals ({d.resamples})")
    output = parser.add_argument_group("tracking and output")
    output.add_argument("--name", help="of the run and its export")
    output.add_argument("--tracking-uri", help="MLflow server; an embedded store under --store by default")
    output.add_argument("--store", help=f"folder for replies, studies, runs and exports ({d.store})")
    output.add_argument("--json", metavar="FILE", help="also write the result as JSON")
    output.add_argument("--config", metavar="FILE", help="TOML file with any of these settings; flags win")
    add_estimate(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a compile; returns the exit code (0 done, 2 bad input, 3 the LM failed, 4 tracking failed, 130 stopped)."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    try:
        settings = from_arguments(arguments)
        return _run(settings, arguments.estimate)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_INPUT
    except KeyboardInterrupt:
        print(
            "\nstopped; run the same command again and it goes on from here, no LM call is paid twice", file=sys.stderr
        )
        return EXIT_INTERRUPTED


def _run(settings: Settings, estimate: str | None) -> int:
    # DSPy and LiteLLM would fetch a price list on import; nothing here needs it.
    import os

    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
    with _progress_lines():
        return _compile(settings) if estimate is None else _estimate(settings, estimate)


def _estimate(settings: Settings, lengths: str) -> int:
    from debate_judge.optimize.estimate import estimate_compile, notes
    from debate_judge.runs.estimates.table import render
    from debate_judge.runs.flags.named_texts import personas

    found = estimate_compile(settings, personas(Path(settings.personas) if settings.personas else None), lengths)
    print(render(found, "stage", notes(settings)))
    return 0


def _compile(settings: Settings) -> int:
    import dspy

    from debate_judge.optimize.job import compile_judge
    from debate_judge.optimize.summary import next_steps, table
    from debate_judge.programs.lm.errors import describe
    from debate_judge.runs.flags.named_texts import personas
    from debate_judge.runs.tracking.tracker import TrackingError

    try:
        result = compile_judge(settings, personas(Path(settings.personas) if settings.personas else None))
    except dspy.LMError as error:
        print(describe(error, settings.lm), file=sys.stderr)
        return EXIT_LM
    except TrackingError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_TRACKING
    print(table(result))
    print(next_steps(result))
    if settings.json:
        _write_json(Path(settings.json), result)
    return 0


@contextmanager
def _progress_lines() -> Iterator[None]:
    """Show the project's own progress on stderr; other libraries' loggers stay as they are."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("debate_judge")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        logger.info("loading libraries")
        yield
    finally:
        logger.removeHandler(handler)


def _write_json(path: Path, result: Result) -> None:
    path.write_text(json.dumps(result.to_json(), indent=2, allow_nan=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
