"""Settings of every command that calls an LM: which one, how it is sampled, what it may take."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from debate_judge.programs.lm.options import LMOptions
from debate_judge.runs.flags.declared import ASIDE, Flag, flag_group

_USUAL = LMOptions()

MAX_TOKENS = "longest reply; cut ones are asked again x4"


@flag_group("LM")
class EndpointFlags:
    """Where calls go and how many at once."""

    api_base: Annotated[
        str | None,
        Field(description="address of an OpenAI-compatible server; keys come from the environment"),
        Flag(metavar="URL"),
    ] = None
    concurrency: Annotated[int, Field(ge=1, description="LM calls in flight at once"), ASIDE] = 16
    no_preflight: Annotated[
        bool, Field(description="do not try each role on the longest item before the run"), ASIDE
    ] = False


@flag_group("LM")
class LMFlags(EndpointFlags):
    """The LM of all roles and how its replies are sampled."""

    lm: Annotated[str, Field(description="offline (text statistics, no LM) or PROVIDER/MODEL")] = "offline"
    temperature: Annotated[float, Field(ge=0, description="of every call that is not one of several samples")] = 0.0
    max_tokens: Annotated[int, Field(ge=1, description=MAX_TOKENS)] = 2000


@flag_group("limits on LM calls")
class LimitFlags:
    """Rate, budget and prices: they decide when calls go out and when a run stops, never what is answered."""

    rpm: Annotated[float | None, Field(gt=0, description="requests per minute that are never exceeded"), ASIDE] = None
    tpm: Annotated[float | None, Field(gt=0, description="tokens per minute, input and output, likewise"), ASIDE] = None
    budget: Annotated[
        str | None,
        Field(description="stop, to be resumed, before more is spent"),
        Flag(metavar="calls=N,tokens=N,usd=X", decides=False),
    ] = None
    deadline: Annotated[
        float, Field(gt=0, description="for one call with its retries"), Flag(metavar="SECONDS", decides=False)
    ] = _USUAL.deadline
    prices: Annotated[
        str | None, Field(description="TOML file with prices per million tokens"), Flag(metavar="FILE", decides=False)
    ] = None
    batch: Annotated[
        Literal["openai"] | None,
        Field(description="OpenAI Batch jobs, one for each role and round: half the price, replies within 24 hours"),
        ASIDE,
    ] = None


@flag_group("options")
class EstimateFlags:
    """An estimate in place of the run; its value is read by `runs.estimates.dry_run`."""

    estimate: Annotated[
        str | None,
        Field(
            description="print what the run would take (calls, tokens, money: lower, expected, upper) and stop before "
            "anything is spent; optionally with the length of a reply in tokens in each case"
        ),
        Flag(metavar="L,E,U", const=""),
    ] = None


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
        prices=flags.prices,
        batch=flags.batch,
    )
