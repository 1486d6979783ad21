"""What can end a run, besides an item: the errors of limits and outages, and which errors concern every item."""

from __future__ import annotations

import math

import dspy
from dspy import lm15
from dspy.clients.errors import wrap_error

from debate_judge.programs.lm.redaction import clean_text

UNREACHABLE = "unreachable"
"""`provider_code` of a failure to connect, which no item can be to blame for."""
NOT_LISTENING = "nothing listens"
"""`provider_code` of a failure to connect to a port of this machine: the server is not running."""
STRAY = "stray answer"
"""`provider_code` of a failure in which something other than the call's answer came: the server may charge for it."""


class ProviderDownError(dspy.LMError):
    """The provider has answered no call for too long. Earlier replies are kept; run the command again later."""

    default_code = "provider_down"


class BudgetSpentError(dspy.LMError):
    """The next call might exceed the budget. What was answered before is kept; run again with a larger one."""

    default_code = "budget_spent"


_FATAL = (
    dspy.LMAuthError,
    dspy.LMBillingError,
    dspy.LMConfigurationError,
    dspy.LMUnsupportedFeatureError,
    dspy.LMUnsupportedModelError,
    ProviderDownError,
    BudgetSpentError,
)


def fatal(error: Exception) -> bool:
    """Whether no other item can fare better: a wrong key, an unknown model, an outage, a spent budget."""
    return isinstance(error, _FATAL)


def concerns_all_calls(error: Exception) -> bool:
    """Whether any other call would meet this error too: it is fatal, and no matter of what this call asks for."""
    # A judge may want a feature that the LM lacks, such as log-probabilities, beside others that do without.
    return fatal(error) and not isinstance(error, dspy.LMUnsupportedFeatureError)


def lm_error(error: Exception, model: str, key: str | None = None) -> dspy.LMError:
    """Convert whatever an engine raised into DSPy's class for it, with neither `key` nor another secret in it."""
    if isinstance(error, TimeoutError) and not isinstance(error, lm15.LM15Error):
        return dspy.LMTimeoutError(str(error) or "no answer in time", model=model)
    _clean_causes(error, key)
    if isinstance(error, lm15.LM15Error):
        error.message = clean_text(error.message, key)
    wrapped = wrap_error(error, model=model)
    wait = getattr(wrapped, "retry_after", None)
    if wait is not None and not (isinstance(wait, (int, float)) and 0 <= wait < math.inf):
        # DSPy's client takes it from the server as it comes; a wait that is no number would stop the limiter.
        wrapped.retry_after = None
    if isinstance(wrapped, dspy.LMError) and isinstance(error, (lm15.LM15Error, dspy.LMError)):
        return wrapped
    return dspy.LMUnexpectedError(clean_text(str(error), key), model=model)


def _clean_causes(error: BaseException, key: str | None) -> None:
    """Take secrets out of an error and what led to it, all of which a traceback prints."""
    left, seen = [error], set[int]()
    while left:
        one = left.pop()
        seen.add(id(one))
        one.args = tuple(clean_text(part, key) if isinstance(part, str) else part for part in one.args)
        left += [cause for cause in (one.__cause__, one.__context__) if cause is not None and id(cause) not in seen]


_ADVICE = "\n\n  To fix:"
"""Where DSPy's advice begins, which is for those who make its objects themselves."""


def describe(error: dspy.LMError, spec: str) -> str:
    """What a command says when `error` has ended its run; `spec` is the LM's, PROVIDER/MODEL."""
    return f"error: the LM failed: {str(error).partition(_ADVICE)[0].strip()}\n  remedy:   {remedy(error, spec)}"


def remedy(error: dspy.LMError, spec: str) -> str:
    """What the user can do about an error that ended a run; `spec` is the LM's, PROVIDER/MODEL."""
    variable = f"{spec.partition('/')[0].upper()}_API_KEY"
    again = "run the same command again; what was answered is kept and not paid again"
    if isinstance(error, (dspy.LMAuthError, dspy.LMNotConfiguredError)):
        return f"give a valid key in the environment variable {variable}, then {again}"
    if isinstance(error, dspy.LMUnsupportedModelError):
        return f"check the model's name after the slash in {spec!r}, and the address if you gave one, then {again}"
    if isinstance(error, dspy.LMBillingError):
        return f"the account behind {variable} has no credit left: add some, then {again}"
    if isinstance(error, BudgetSpentError):
        return f"raise --budget and {again}"
    if error.provider_code == NOT_LISTENING:
        return f"start the server, or correct its address (--api-base, {spec.partition('/')[0].upper()}_API_BASE)"
    if isinstance(error, ProviderDownError):
        return f"wait until the provider answers, then {again}"
    return f"mend it and {again}"
