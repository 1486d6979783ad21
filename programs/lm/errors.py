"""What can end a run, besides an item: the errors of limits and outages, and which errors concern every item."""

from __future__ import annotations

import dspy
from dspy import lm15

from debate_judge.programs.lm.redaction import clean_text

NOT_LISTENING = "nothing listens"
"""`provider_code` of a failure to connect to a port of this machine: the server is not running."""
STRAY = "stray answer"
"""`provider_code` of a failure in which something other than the call's answer came: the server may charge for it."""
BROKEN = "broken answer"
"""`provider_code` of a failure in which an answer had begun and was not whole, or was no HTTP: it may be charged."""


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


_CLASSES: tuple[tuple[type[Exception], type[dspy.LMError]], ...] = (
    (TimeoutError, dspy.LMTimeoutError),
    (lm15.ContextLengthError, dspy.ContextWindowExceededError),
    (lm15.AuthError, dspy.LMAuthError),
    (lm15.BillingError, dspy.LMBillingError),
    (lm15.RateLimitError, dspy.LMRateLimitError),
    (lm15.UnsupportedModelError, dspy.LMUnsupportedModelError),
    (lm15.InvalidRequestError, dspy.LMInvalidRequestError),
    (lm15.TimeoutError, dspy.LMTimeoutError),
    (lm15.ServerError, dspy.LMServerError),
    (lm15.CapabilityError, dspy.LMUnsupportedFeatureError),
    (lm15.NotConfiguredError, dspy.LMNotConfiguredError),
    (lm15.ConfigurationError, dspy.LMConfigurationError),
    (lm15.TransportError, dspy.LMTransportError),
)
"""What an engine raises -> what DSPy makes of it; the first that fits."""


def lm_error(error: Exception, model: str, key: str | None = None) -> dspy.LMError:
    """What an attempt raised, in DSPy's class for it, with neither `key` nor another secret in it."""
    if isinstance(error, dspy.LMError):
        return error
    kind = next((ours for theirs, ours in _CLASSES if isinstance(error, theirs)), dspy.LMUnexpectedError)
    details = {name: getattr(error, name, None) for name in ("provider_code", "status", "retry_after")}
    text = getattr(error, "message", "") or str(error) or "no answer in time"
    return kind(message=clean_text(text, key), model=model, **details)


_ADVICE = "\n\n  To fix:"
"""Where DSPy's advice begins, which is for those who make its objects themselves."""


def describe(error: dspy.LMError, spec: str) -> str:
    """What a command says when `error` has ended its run; `spec` is the LM's, PROVIDER/MODEL."""
    return f"error: the LM failed: {str(error).partition(_ADVICE)[0].strip()}\n  remedy:   {_remedy(error, spec)}"


def _remedy(error: dspy.LMError, spec: str) -> str:
    provider = spec.partition("/")[0].upper()
    again = "run the command again; it resumes, and finished calls are not paid for again"
    if isinstance(error, (dspy.LMAuthError, dspy.LMNotConfiguredError)):
        return f"give a valid key in the environment variable {provider}_API_KEY, then {again}"
    if isinstance(error, dspy.LMUnsupportedModelError):
        return f"check the model's name after the slash in {spec!r}, and the address if you gave one, then {again}"
    if isinstance(error, dspy.LMBillingError):
        return f"the account behind {provider}_API_KEY has no credit left: add some, then {again}"
    if isinstance(error, BudgetSpentError):
        return f"raise --budget and {again}"
    if error.provider_code == NOT_LISTENING:
        return f"start the server, or correct its address (--api-base, {provider}_API_BASE)"
    if isinstance(error, ProviderDownError):
        return f"wait until the provider answers, then {again}"
    return f"fix the problem and {again}"
