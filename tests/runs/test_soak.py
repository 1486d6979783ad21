"""Long scoring runs through the real command; `pytest -m soak` runs the long ones, which take some minutes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench import soak

pytestmark = pytest.mark.integration

LONG = {"lm": "openai/mock", "rounds": 0, "concurrency": 64}


@pytest.mark.parametrize(
    ("items", "options", "unscored"),
    [
        # A Scorer and a Critic each, a revision for three in four, and what failed.
        (300, {"faults": "mix", "lm": "openai/mock", "rounds": 1, "concurrency": 32}, range(15)),
        # One call in 250 cannot be answered, and a second question has faults of its own.
        pytest.param(20_000, {"faults": "mix", **LONG}, range(51, 160), marks=pytest.mark.soak),
        pytest.param(100_000, {"faults": "none", **LONG}, range(1), marks=pytest.mark.soak),
        pytest.param(100_000, {"faults": "none", **LONG, "lm": "offline"}, range(1), marks=pytest.mark.soak),
    ],
)
def test_every_item_has_its_row_and_no_answer_is_paid_again(
    items: int, options: dict[str, Any], unscored: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    result = soak.run(items, **options)
    assert (result.code, result.in_order, result.wrong, result.paid_twice) == (0, True, 0, 0)
    assert result.rss_mb < 600
    assert sum(result.unscored.values()) in unscored
    assert set(result.unscored) <= {"lm error", "refused", "unreadable reply", "truncated"}
    if options["rounds"]:
        assert result.requests > items * 2.75 * 1.1
