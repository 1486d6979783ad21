"""Which decision a critic's reply states."""

from __future__ import annotations

import pytest

from debate_judge.programs.debate.replies import no_issue
from debate_judge.programs.roles.parsing import Unreadable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NO ISSUE", True),
        ("NO ISSUES", True),
        ("NO-ISSUE", True),
        ("**NO ISSUE**", True),
        ("[NO ISSUE]", True),
        ("no issues found.", True),
        ("There is no issue.", True),
        ("Decision: NO ISSUE", True),
        ("NO ISSUE\n\nThe score is accurate.", True),
        ("ISSUE", False),
        ("**ISSUE**", False),
        ("There is an issue.", False),
        ("Decision: ISSUE", False),
        ("ISSUE\nThe score is too high.", False),
        ("", None),
        ("yes", None),
        ("NO", None),
        ("non-issue", None),
        ("NO ISSUE or ISSUE", None),
        ("ISSUE / NO ISSUE", None),
        ("NO ISSUE. However, the second sentence is odd.", None),
        ("NO ISSUE, except that the score is far too high", None),
        ("There is no issue with grammar but the score is too high.", None),
        ("The candidate says NO ISSUE", None),
        ("ISSUE: none", None),
        ("ISSUE: too high", False),
        ("NO ISSUE (the score is fine)", True),
        ("NO ISSUE - with grammar, the facts are wrong", None),
        ("NO ISSUE (in grammar)", None),
        ("NO ISSUE - the score fits the text", True),
        ("NO ISSUE: I agree.", True),
        ("NO ISSUE\nISSUE", None),
        ("ISSUE\n\nDecision: NO ISSUE", None),
        ("TOO HIGH or TOO LOW", None),
        ("TOO HIGH? No, it stands. NO ISSUE", None),
        ("ISSUE? No, it stands. NO ISSUE", None),
    ],
)
def test_decision(text: str, expected: bool | None) -> None:
    decision = no_issue(text)
    if expected is None:
        assert isinstance(decision, Unreadable)
        assert "NO ISSUE or ISSUE" in decision.why
    else:
        assert decision is expected
