"""Errors that end a run rather than an item: spent budgets, outages, and what would fail for every item."""

from __future__ import annotations

import dspy
from dspy import lm15

from debate_judge.programs.lm.redaction import redact_text

NOT_LISTENING = "nothing listens"
"""`provider_code` if no server listens on a port of this machine."""
MISMATCHED = "mismatched response"
"""`provider_code` if something other than the response to the request came; the server may charge for the request."""
INCOMPLETE = "incomplete response"
"""`provider_code` if the response was incomplete or not HTTP; the server may charge for it."""
UNUSABLE = "unusable response"
"""`provider_code` if a whole response, which names the tokens to be paid, holds no reply."""
MAY_BE_CHARGED = (MISMATCHED, INCOMPLETE, UNUSABLE)


class ProviderDownError(dspy.LMError):
    """The provider is down. Earlier replies are stored; run the command again later."""

    default_code = "provider_down"


class BudgetSpentError(dspy.LMError):
    """The next call might exceed the budget. Earlier replies are stored; run the command again with a larger one."""

    default_code = "budget_spent"


class TooManyUnscoredError(dspy.LMError):
    """More texts than `max-unscored` allows have no score, so that any figure would be that of a part of them."""

    default_code = "too_many_unscored"


_FATAL = (
    dspy.LMAuthError,
    dspy.LMBillingError,
    dspy.LMConfigurationError,
    dspy.LMUnsupportedFeatureError,
    dspy.LMUnsupportedModelError,
    ProviderDownError,
    BudgetSpentError,
)


def is_fatal(error: Exception) -> bool:
    """Whether it ends the run, because other calls would fail too: a wrong key, an unknown model, an outage, ..."""
    return isinstance(error, _FATAL)


def affects_all_calls(error: Exception) -> bool:
    """Whether it is fatal for all calls of the LM, not only for those that ask for the same feature."""
    # One judge may need a feature that the LM lacks, such as log-probabilities, and others not.
    of_transport = (lm15.AuthError, lm15.BillingError, lm15.ConfigurationError, lm15.UnsupportedModelError)
    fatal = is_fatal(error) and not isinstance(error, dspy.LMUnsupportedFeatureError)
    return fatal or isinstance(error, of_transport)


def redact_error(error: Exception, key: str | None = None) -> lm15.LM15Error | dspy.LMError:
    """A transport's error without `key` and other secrets."""
    if isinstance(error, dspy.LMError):
        return error
    if not isinstance(error, lm15.LM15Error):
        error_class = lm15.TimeoutError if isinstance(error, TimeoutError) else lm15.LM15Error
        return error_class(redact_text(str(error) or "no answer in time", key))
    error.message = redact_text(error.message, key)
    error.args = (error.message,)
    return error


def is_retryable(error: BaseException) -> bool:
    """Whether another attempt may succeed."""
    return isinstance(error, lm15.RETRYABLE_ERRORS) or dspy.is_retryable_lm_error(error)


_DSPY_ADVICE = "\n\n  To fix:"
"""Beginning of DSPy's own advice in its errors, which is for programmers."""


def describe(error: dspy.LMError, spec: str) -> str:
    """The message of a command whose run was ended by `error`; `spec` is the LM, PROVIDER/MODEL."""
    return f"error: the LM failed: {str(error).partition(_DSPY_ADVICE)[0].strip()}\n  remedy:   {remedy(error, spec)}"


def remedy(error: dspy.LMError, spec: str) -> str:
    """What the user can do about an error that ended a run; `spec` is the LM, PROVIDER/MODEL."""
    variable = f"{spec.partition('/')[0].upper()}_API_KEY"
    resume = "run the command again; it resumes, and finished calls are not paid for again"
    if isinstance(error, dspy.LMNotConfiguredError):
        return f"set what is missing in the environment, then {resume}"
    if isinstance(error, dspy.LMAuthError):
        return f"give a valid key in the environment variable {variable}, then {resume}"
    if isinstance(error, dspy.LMUnsupportedModelError):
        return f"check the model's name after the slash in {spec!r}, and the address if you gave one, then {resume}"
    if isinstance(error, dspy.LMBillingError):
        return f"the account behind {variable} has no credit left: add some, then {resume}"
    if isinstance(error, TooManyUnscoredError):
        return f"fix the cause, or allow more with --max-unscored, and {resume}"
    if isinstance(error, BudgetSpentError):
        return f"raise --budget and {resume}"
    if error.provider_code == NOT_LISTENING:
        return f"start the server, or correct its address (--api-base, {spec.partition('/')[0].upper()}_API_BASE)"
    if isinstance(error, ProviderDownError):
        return f"wait until the provider answers, then {resume}"
    return f"fix the problem and {resume}"
