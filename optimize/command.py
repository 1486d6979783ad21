"""The command `debate compile`: from its flags to `optimize.compile`, and from the result to the terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

from debate_judge.data.errors import require_writable, write_json
from debate_judge.optimize.settings import Settings
from debate_judge.runs.command_line import RESUME_HINT, print_error
from debate_judge.runs.flags import command_settings, run_command
from debate_judge.runs.reports.tables import show
from debate_judge.runs.shared_flags import EstimateFlags, require_server

DESCRIPTION = """Compile a judge that agrees with your raters, and measure it on held-out sources. To resume a compile
that was stopped, run the same command again; finished LM calls are not paid for again.

    debate compile                                   # the sample corpus, offline, no key
    debate compile --data ratings.jsonl --lm openai/gpt-6-luna
    debate compile --config settings.toml --seed 1
"""


@command_settings
class CompileFlags(Settings, EstimateFlags):
    """The settings of the command: those of a compile, and `--estimate`, which replaces it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a compile; returns the exit code (0 done, 2 bad input, 3 the LM failed, 4 tracking failed, 130 stopped)."""
    return run_command("compile", DESCRIPTION, CompileFlags, _run, argv, RESUME_HINT)


def _run(flags: CompileFlags) -> int:
    settings = Settings(**{field.name: getattr(flags, field.name) for field in fields(Settings)})
    estimate = flags.estimate
    if estimate is None:
        require_server(settings.lm, settings.api_base, settings.store)
        require_server(*settings.reflection, settings.store, flag="--reflection-lm", stored_under=settings.lm)
    with _messages(verbose=settings.verbose):
        return _compile(settings) if estimate is None else _estimate(settings, estimate)


def _estimate(settings: Settings, reply_lengths: str) -> int:
    from debate_judge.optimize.estimate import estimate_compile, notes
    from debate_judge.optimize.plan import make_plan
    from debate_judge.runs.estimates import estimate_blocks
    from debate_judge.runs.shared_flags import personas

    plan = make_plan(settings, personas(Path(settings.personas) if settings.personas else None))
    show(*estimate_blocks(estimate_compile(plan, reply_lengths), "stage", notes(plan)))
    return 0


def _compile(settings: Settings) -> int:
    from debate_judge.optimize.compile import compile_judge
    from debate_judge.optimize.result import summary
    from debate_judge.runs.shared_flags import personas
    from debate_judge.runs.tracking import EXIT_TRACKING, TrackingError

    require_writable(settings.json, "--json")
    try:
        result = compile_judge(settings, personas(Path(settings.personas) if settings.personas else None))
    except TrackingError as error:
        print_error(error)
        return EXIT_TRACKING
    show(*summary(result, verbose=settings.verbose))
    if settings.json:
        write_json(settings.json, result.to_json(), "--json")
    return 0


@contextmanager
def _messages(*, verbose: bool) -> Iterator[None]:
    """Show the project's warnings on stderr, and if `verbose` all messages; other loggers stay as they are."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("debate_judge")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)
