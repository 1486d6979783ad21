"""Long scoring runs through the real command; `pytest -m soak` runs the long ones, which take some minutes."""

from __future__ import annotations

import pytest

from tests.bench import soak

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")


def sound(result: soak.Soak) -> None:
    """Every item has its row in its place, with the server's score or with a reason, and no answer was paid again."""
    assert result.code == 0
    assert result.in_order
    assert result.wrong == 0
    assert result.paid_twice == 0
    assert result.rss_mb < 600


def test_a_short_soak() -> None:
    result = soak.run(300, faults="mix", lm="openai/mock", rounds=1, concurrency=32)
    sound(result)
    # A Scorer and a Critic each, a revision for three in four, and what failed.
    assert result.requests > 300 * 2.75 * 1.1
    assert sum(result.unscored.values()) < 15


@pytest.mark.soak
def test_20000_items_under_a_mix_of_faults() -> None:
    result = soak.run(20_000, faults="mix", lm="openai/mock", rounds=0, concurrency=64)
    sound(result)
    # One call in 250 cannot be answered, and a second question has faults of its own.
    assert set(result.unscored) <= {"lm error", "refused", "unreadable reply", "truncated"}
    assert 50 < sum(result.unscored.values()) < 160


@pytest.mark.soak
@pytest.mark.parametrize("lm", ["openai/mock", "offline"])
def test_100000_items_take_no_more_memory_than_is_allowed(lm: str) -> None:
    result = soak.run(100_000, faults="none", lm=lm, rounds=0, concurrency=64)
    sound(result)
    assert not result.unscored
