"""The flags of every command that calls an LM, in one place."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from debate_judge.programs.lm.options import LMOptions


def listed(text: str | None) -> list[str]:
    """The parts of a flag's value that are joined by commas; none for an absent flag."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Add what every reply is sampled with, and the check before the first call; all default to None."""
    group = parser.add_argument_group("replies of the LM")
    group.add_argument("--temperature", type=float, help="of every call that is not one of several samples (0)")
    group.add_argument("--max-tokens", type=int, metavar="N", help="longest reply; cut ones are asked again x4 (2000)")
    add_preflight(parser)


def add_preflight(parser: argparse.ArgumentParser) -> None:
    """Add the flag that leaves out `runs.runner.preflight`."""
    parser.add_argument(
        "--no-preflight",
        action="store_true",
        default=None,
        help="do not try each role on the longest item before the run",
    )


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the flags for pace, budget and prices; all default to None, which leaves the usual."""
    group = parser.add_argument_group("limits on LM calls")
    group.add_argument("--rpm", type=float, help="requests per minute that are never exceeded")
    group.add_argument("--tpm", type=float, help="tokens per minute, input and output, likewise")
    group.add_argument("--budget", help="stop, to be resumed, before more is spent: calls=N,tokens=N,usd=X")
    group.add_argument("--deadline", type=float, metavar="SECONDS", help="for one call with its retries (900)")
    group.add_argument("--prices", metavar="FILE", help="TOML file with prices per million tokens")
    group.add_argument(
        "--batch",
        metavar="SERVICE",
        help="openai: OpenAI Batch jobs, one for each role and round: half the price, replies within 24 hours",
    )


def add_estimate(parser: argparse.ArgumentParser) -> None:
    """Add the flag that asks for an estimate in place of the run; its value is read by `runs.estimates.dry_run`."""
    parser.add_argument(
        "--estimate",
        nargs="?",
        const="",
        metavar="L,E,U",
        help="print what the run would take (calls, tokens, money: lower, expected, upper) and stop before anything is "
        "spent; optionally with the length of a reply in tokens in each case",
    )


def limits(arguments: Any) -> LMOptions:
    """The options that the flags of `add_limits` ask for.

    Args:
        arguments: Whatever has their values as attributes of their names: parsed arguments, settings of a compile.

    Raises:
        InputError: A value cannot be used.
    """
    from debate_judge.programs.lm.options import LMOptions

    return LMOptions.of(
        rpm=arguments.rpm,
        tpm=arguments.tpm,
        budget=arguments.budget,
        deadline=arguments.deadline,
        prices=arguments.prices,
        batch=arguments.batch,
    )
