"""What a compile plans of its work, from which the time left is told, against what it does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from debate_judge.optimize import compile as command
from debate_judge.runs.runner.progress import ItemPass, RunProgress
from tests.config_keys import keys
from tests.optimize.small_corpus import small_corpus

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    "more",
    [
        ["--aspects", "coherence"],
        pytest.param(["--aspects", "coherence,fluency", "--effort", "medium"], marks=pytest.mark.soak),
    ],
)
def test_a_search_makes_about_as_many_passes_as_were_planned(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, int] = {}
    planned: dict[str, int] = {}
    over = RunProgress.over

    @contextmanager
    def counted(self: RunProgress, what: str, total: int | None) -> Iterator[ItemPass]:
        with over(self, what, total) as one:
            if self.phases:
                phase = self.phases[self._step]
                planned[phase.name] = phase.passes
                made[phase.name] = made.get(phase.name, 0) + 1
            yield one

    monkeypatch.setattr(RunProgress, "over", counted)
    data = ["--data", str(small_corpus(tmp_path, groups=24, candidates=4)), "--folds", "1", *keys(preflight=False)]
    assert command.main([*data, *more, *keys(resamples=100, report="none"), "--store", str(tmp_path / "s")]) == 0
    assert 0.5 < made["search"] / planned["search"] < 2
