"""Messages of commands whose run was ended by an error."""

from __future__ import annotations

import dspy
import pytest

from debate_judge.programs.lm.errors import BudgetSpentError, ProviderDownError, describe

ADVICE = "\n\n  To fix:\n    - Pass the key explicitly (api_key= on dspy.LM)\n"


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (dspy.LMAuthError("HTTP 401: wrong" + ADVICE), "OPENAI_API_KEY"),
        (dspy.LMNotConfiguredError("no key" + ADVICE), "OPENAI_API_KEY"),
        (dspy.LMUnsupportedModelError("HTTP 404: no such model"), "'openai/m'"),
        (dspy.LMBillingError("insufficient_quota"), "no credit left"),
        (BudgetSpentError("60 of 60 calls are spent"), "raise --budget"),
        (ProviderDownError("no call was answered for 300 s"), "wait until the provider answers"),
    ],
)
def test_the_message_has_a_remedy_for_users(error: dspy.LMError, remedy: str) -> None:
    text = describe(error, "openai/m")
    assert remedy in text
    assert "run the command again" in text
    assert "api_key" not in text
    assert "To fix" not in text
