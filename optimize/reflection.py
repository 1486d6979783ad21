"""The LM that writes guides and instructions for a tuner: the judge's own model unless another is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from debate_judge.programs.lm.reply import LocalTransport
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.estimates import NO_LIMITS
from debate_judge.runs.flags.lm import lm_options

if TYPE_CHECKING:
    from debate_judge.optimize.settings import Settings
    from debate_judge.programs.lm.client import JudgeLM

REFLECTION = "reflection"
"""The role of its calls in the table of costs and in estimates."""

_TEMPERATURE = 1.0
"""So that proposals differ; a repeated run finds the same replies in the store."""

_MAX_TOKENS = 4000
"""Least `max_tokens` of its calls, whose replies hold an analysis and a guide, or complete instructions."""


def make_reflection_lm(settings: Settings, lm: JudgeLM, transport: LocalTransport | None = None) -> JudgeLM:
    """The LM that `--reflection-lm` names, with the store, counts and budget of the judge's LM `lm`.

    An estimate passes the `transport` of a dry run, which has no limits.

    Raises:
        InputError: There is no such LM, or a budget in money was set and the price is unknown.
    """
    spec, api_base = settings.reflection
    return make_lm(
        spec,
        api_base=api_base,
        store=lm.store,
        concurrency=settings.concurrency,
        temperature="none" if settings.temperature == "none" else _TEMPERATURE,
        max_tokens="none" if settings.max_tokens == "none" else max(settings.max_tokens, _MAX_TOKENS),
        options=NO_LIMITS if transport is not None else lm_options(settings),
        transport=transport,
        flag="--reflection-lm",
    ).share_run(lm, REFLECTION)


def preflight_reflection(settings: Settings, lm: JudgeLM) -> None:
    """Call the reflection LM once, if it is not the judge's, so that a wrong key or name is found before the compile.

    Raises:
        dspy.LMError: The key is refused, the model unknown, the account empty.
    """
    if settings.reflection_lm not in (None, settings.lm):
        lm("Reply with OK.")
