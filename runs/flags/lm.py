"""Settings of every command that calls an LM: which one, how it is sampled, what it may take."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from debate_judge.programs.lm.address import address_of, base_variable, require_listening
from debate_judge.programs.lm.options import LMOptions
from debate_judge.runs.flags.declared import flag_group, setting

_USUAL = LMOptions()

MAX_TOKENS = "longest reply; cut ones are asked again x4"


@flag_group("LM")
class EndpointFlags:
    """Where calls go and how many at once."""

    api_base: str | None = setting(
        None, "address of an OpenAI-compatible server; keys come from the environment", metavar="URL"
    )
    concurrency: int = setting(16, "LM calls in flight at once", ge=1, decides=False)
    no_preflight: bool = setting(False, "do not try each role on the longest item before the run", decides=False)


@flag_group("LM")
class LMFlags(EndpointFlags):
    """The LM of all roles and how its replies are sampled."""

    lm: str = setting("offline", "offline (text statistics, no LM) or PROVIDER/MODEL")
    temperature: float = setting(0.0, "of every call that is not one of several samples", ge=0)
    max_tokens: int = setting(2000, MAX_TOKENS, ge=1)


def require_server(spec: str, api_base: str | None, store: str) -> None:
    """Refuse a server on this machine that is not running, unless the store may have all answers of it.

    Args:
        spec: PROVIDER/MODEL.
        api_base: The flag; without it the address may be in the environment.
        store: Of the run.

    Raises:
        NoServerError: Its port is refused.
    """
    variable = base_variable(spec)
    address = api_base or os.environ.get(variable) or ""
    known = Path(store) / "replies" / spec.replace("/", "_")
    if "/" in spec and address and not (known.is_dir() and any(known.iterdir())):
        require_listening(address_of(address) or "", "--api-base" if api_base else variable)


@flag_group("limits on LM calls")
class LimitFlags:
    """Rate, budget and prices: they decide when calls go out and when a run stops, never what is answered."""

    rpm: float | None = setting(None, "requests per minute that are never exceeded", gt=0, decides=False)
    tpm: float | None = setting(None, "tokens per minute, input and output, likewise", gt=0, decides=False)
    budget: str | None = setting(
        None, "stop, to be resumed, before more is spent", metavar="calls=N,tokens=N,usd=X", decides=False
    )
    deadline: float = setting(_USUAL.deadline, "for one call with its retries", gt=0, metavar="SECONDS", decides=False)
    attempt: float | None = setting(
        None,
        f"for one attempt of a call; {_USUAL.attempt:g}, or the deadline where that is shorter",
        gt=0,
        metavar="SECONDS",
        decides=False,
    )
    prices: str | None = setting(None, "TOML file with prices per million tokens", metavar="FILE", decides=False)
    batch: Literal["openai"] | None = setting(
        None, "OpenAI Batch jobs, one for each role and round: half the price, replies within 24 hours", decides=False
    )


@flag_group("options")
class EstimateFlags:
    """An estimate in place of the run; its value is read by `runs.estimates.dry_run`."""

    estimate: str | None = setting(
        None,
        "print what the run would take (calls, tokens, money: lower, expected, upper) and stop before "
        "anything is spent; optionally with the length of a reply in tokens in each case",
        metavar="L,E,U",
        const="",
    )


def limits(flags: LimitFlags) -> LMOptions:
    """The options that the flags ask for.

    Raises:
        InputError: A value cannot be used.
    """
    return LMOptions.of(
        rpm=flags.rpm,
        tpm=flags.tpm,
        budget=flags.budget,
        deadline=flags.deadline,
        attempt=flags.attempt,
        prices=flags.prices,
        batch=flags.batch,
    )
