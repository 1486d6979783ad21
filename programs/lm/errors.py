"""Errors that end a run rather than an item: spent budgets, outages, and what would fail for every item."""

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
    """Whether every other call would fail too: a wrong key, an unknown model, an outage, a spent budget."""
    return isinstance(error, _FATAL)


def concerns_all_calls(error: Exception) -> bool:
    """Whether any other call would meet this error too: it is fatal, and no matter of what this call asks for."""
    # A judge may want a feature that the LM lacks, such as log-probabilities, beside others that do without.
    if isinstance(error, lm15.LM15Error):
        error = lm_error(error, "")
    return fatal(error) and not isinstance(error, dspy.LMUnsupportedFeatureError)


_CLASSES: tuple[tuple[type[lm15.LM15Error], type[dspy.LMError]], ...] = (
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
    """Convert what an engine raised into DSPy's class for it, with neither `key` nor another secret in it."""
    clean = clean_error(error, key)
    if isinstance(clean, dspy.LMError):
        return clean
    kind = next((ours for theirs, ours in _CLASSES if isinstance(clean, theirs)), dspy.LMUnexpectedError)
    details = ("provider", "provider_code", "status", "request_id", "retry_after")
    return kind(message=clean.message, model=model, **{name: getattr(clean, name) for name in details})


def clean_error(error: Exception, key: str | None = None) -> lm15.LM15Error | dspy.LMError:
    """An engine's error, with neither `key` nor another secret in it."""
    if isinstance(error, dspy.LMError):
        return error
    if not isinstance(error, lm15.LM15Error):
        kind = lm15.TimeoutError if isinstance(error, TimeoutError) else lm15.LM15Error
        return kind(clean_text(str(error) or "no answer in time", key))
    error.message = clean_text(error.message, key)
    error.args = (error.message,)
    return error


def retryable(error: BaseException) -> bool:
    """Whether another attempt may succeed."""
    return isinstance(error, lm15.RETRYABLE_ERRORS) or dspy.is_retryable_lm_error(error)


_ADVICE = "\n\n  To fix:"
"""Where DSPy's advice begins, which is for those who make its objects themselves."""


def describe(error: dspy.LMError, spec: str) -> str:
    """What a command says when `error` has ended its run; `spec` is the LM's, PROVIDER/MODEL."""
    return f"error: the LM failed: {str(error).partition(_ADVICE)[0].strip()}\n  remedy:   {remedy(error, spec)}"


def remedy(error: dspy.LMError, spec: str) -> str:
    """What the user can do about an error that ended a run; `spec` is the LM's, PROVIDER/MODEL."""
    variable = f"{spec.partition('/')[0].upper()}_API_KEY"
    again = "run the command again; it resumes, and finished calls are not paid for again"
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
    return f"fix the problem and {again}"
