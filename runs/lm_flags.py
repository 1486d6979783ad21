"""The flags of every command that calls an LM, in one place."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from programs.lm_options import LMOptions


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the flags for pace, budget and prices; all default to None, which leaves the usual."""
    group = parser.add_argument_group("limits on LM calls")
    group.add_argument("--rpm", type=float, help="requests per minute that are never exceeded")
    group.add_argument("--tpm", type=float, help="tokens per minute, input and output, likewise")
    group.add_argument("--budget", help="stop, to be resumed, before more is spent: calls=N,tokens=N,usd=X")
    group.add_argument("--deadline", type=float, metavar="SECONDS", help="for one call with its retries (900)")
    group.add_argument("--prices", metavar="FILE", help="TOML file with prices per million tokens")


def limits(arguments: argparse.Namespace) -> LMOptions:
    """The options that the flags of `add_limits` ask for.

    Raises:
        InputError: A value cannot be used.
    """
    from programs.lm_options import LMOptions

    return LMOptions.of(
        rpm=arguments.rpm,
        tpm=arguments.tpm,
        budget=arguments.budget,
        deadline=arguments.deadline,
        prices=arguments.prices,
    )
