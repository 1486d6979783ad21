"""Fixtures for the tests of compiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from debate_judge.optimize.search import study
from debate_judge.optimize.search.points import Probe, Space


@pytest.fixture(scope="session")
def _suggestions() -> dict[str, Probe]:
    return {}


@pytest.fixture
def remembered_sampler(_suggestions: dict[str, Probe], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the sampler once for each state of a search, for tests that go through the same search many times.

    It decides by nothing but its arguments, which tests/optimize/test_search.py tests without this.
    """
    sampled = study._sampled

    def remembered(trials: Sequence[Any], space: Space, seed: int, left: Sequence[Probe]) -> Probe:
        key = repr(([(t.params, t.state, t.values) for t in trials], space, seed, list(left)))
        if key not in _suggestions:
            _suggestions[key] = sampled(trials, space, seed, left)
        return _suggestions[key]

    monkeypatch.setattr(study, "_sampled", remembered)
