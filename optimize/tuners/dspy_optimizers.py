"""What tuners that are DSPy optimizers have in common: errors that end the run there, and their silence."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator


class Abort(BaseException):
    """Carries a fatal error past DSPy's `except Exception`, which would score it and go on."""


@contextlib.contextmanager
def aborting() -> Iterator[None]:
    """Let any error of the block, which a DSPy optimizer runs, end the optimizer."""
    try:
        yield
    except Exception as error:
        raise Abort from error


@contextlib.contextmanager
def narrated_nowhere(progress: bool = True) -> Iterator[None]:
    """Run an optimizer in this block: what it tells goes nowhere, and an aborted one raises what it was aborted by.

    Args:
        progress: Whether what goes to stderr is shown all the same: bars and warnings.
    """
    import optuna

    logger, verbosity = logging.getLogger("dspy"), optuna.logging.get_verbosity()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with contextlib.ExitStack() as stack:
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
            if not progress:
                stack.enter_context(contextlib.redirect_stderr(nowhere))
            yield
    except Abort as abort:
        raise abort.__cause__ or abort from None
    finally:
        logger.setLevel(level)
        optuna.logging.set_verbosity(verbosity)
