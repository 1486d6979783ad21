"""Settings of every command that calls an LM: model, sampling, limits."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import Field

from debate_judge.programs.lm.http.address import base_variable, default_address, normalize_address, require_listening
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.providers import require_provider
from debate_judge.programs.lm.reply import replies_folder
from debate_judge.runs.flags.declaration import flag_group, setting

_DEFAULTS = LMOptions()
_TIMEOUT_FACTOR = _DEFAULTS.deadline / _DEFAULTS.attempt_timeout
"""Time limit of a call with its retries, as a multiple of the time limit of an attempt."""

MAX_TOKENS = (
    "maximum tokens of a reply; one that is cut off is requested again with four times as many; none: the provider's "
    "default"
)
AtLeast0 = Annotated[float, Field(ge=0)] | Literal["none"]
AtLeast1 = Annotated[int, Field(ge=1)] | Literal["none"]


@flag_group
class ConnectionFlags:
    """Where calls go, and how many are in flight at once."""

    api_base: str | None = setting(
        None, "address of an OpenAI-compatible server; keys are read from the environment", metavar="URL"
    )
    concurrency: int = setting(16, "LM calls in flight at once", ge=1, rare=True, affects_results=False)


@flag_group
class PreflightFlags(ConnectionFlags):
    """The connection of a run that tries its LM first."""

    preflight: bool = setting(
        True, "try each role on the longest text before the run", rare=True, affects_results=False
    )


@flag_group
class LMFlags(PreflightFlags):
    """The LM of all roles and how its replies are sampled."""

    lm: str = setting("offline", "PROVIDER/MODEL, or offline (text statistics, not an LM)")
    temperature: AtLeast0 = setting(
        0.0,
        "sampling temperature, unless a judge averages several samples; none: the provider's default",
        rare=True,
    )
    max_tokens: AtLeast1 = setting(2000, MAX_TOKENS, rare=True)


def require_server(
    spec: str, api_base: str | None, store: str, *, flag: str = "--api-base", stored_under: str | None = None
) -> None:
    """Refuse a server on this machine that is not running, unless the store may have all answers of the LM `spec`.

    `flag` is named in the error unless the address is from the environment; `stored_under` is the LM whose store has
    the replies, if it is not `spec`.

    Raises:
        NoServerError: Its port is refused.
        InputError: The provider is misspelt.
    """
    require_provider(spec, "--lm" if flag == "--api-base" else flag)
    variable = base_variable(spec)
    from_environment = os.environ.get(variable)
    address = api_base or from_environment or default_address(spec)
    replies = replies_folder(store, stored_under or spec)
    if "/" in spec and address and not (replies.is_dir() and any(replies.iterdir())):
        require_listening(normalize_address(address) or "", variable if from_environment and not api_base else flag)


@flag_group
class LimitFlags:
    """Rate limits, budget, timeout and prices; replies do not depend on them."""

    rpm: float | None = setting(None, "maximum requests per minute", gt=0, rare=True, affects_results=False)
    tpm: float | None = setting(
        None, "maximum tokens per minute, input and output", gt=0, rare=True, affects_results=False
    )
    budget: str | None = setting(
        None,
        "hard cap on spending: calls=N,tokens=N,usd=X",
        metavar="CAPS",
        affects_results=False,
    )
    timeout: float = setting(
        _DEFAULTS.attempt_timeout,
        f"time limit of one attempt; with retries a call may take {_TIMEOUT_FACTOR:g} times as long",
        gt=0,
        metavar="SECONDS",
        rare=True,
        affects_results=False,
    )
    prices: str | None = setting(
        None,
        "TOML file with prices per million tokens, for LMs that LiteLLM has no price for",
        metavar="FILE",
        rare=True,
        affects_results=False,
    )


@flag_group
class EstimateFlags:
    """A cost estimate in place of the run; `runs.estimates.dry_run.reply_tokens` parses its value."""

    estimate: str | None = setting(
        None,
        "print calls, tokens and cost instead of running; E,M: tokens per reply, expected and maximum",
        metavar="E,M",
        const="",
        affects_results=False,
    )


def lm_options(flags: LimitFlags) -> LMOptions:
    """The LM options in the flags.

    Raises:
        InputError: A value cannot be used.
    """
    return LMOptions.from_settings(
        rpm=flags.rpm,
        tpm=flags.tpm,
        budget=flags.budget,
        attempt_timeout=flags.timeout,
        deadline=flags.timeout * _TIMEOUT_FACTOR,
        prices=flags.prices,
    )
