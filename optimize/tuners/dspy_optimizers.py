"""Helpers for tuners that use DSPy optimizers: fatal errors end the optimizer, and its output is suppressed."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator


class Abort(BaseException):
    """Carries an error past DSPy's `except Exception`, which would score it 0 and go on."""


@contextlib.contextmanager
def aborting() -> Iterator[None]:
    """Let any error in the block, which a DSPy optimizer runs, end the optimizer."""
    try:
        yield
    except Exception as error:
        raise Abort from error


@contextlib.contextmanager
def narrated_nowhere(progress: bool = True) -> Iterator[None]:
    """Run an optimizer in the block without its output; an `Abort` is raised as the error that it carries.

    Args:
        progress: Whether stderr, with progress bars and warnings, is shown nevertheless.
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
