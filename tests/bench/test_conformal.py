"""The bench of conformal intervals runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.conformal import coverage, made_up, main


def test_the_bench_prints_coverage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "c.json"
    assert main(["--replicates", "1", "--json", str(out)]) == 0
    assert set(json.loads(out.read_text())["8 texts, 33 % shared"]) == {"10", "20", "50"}
    assert "16 texts, 67 % shared" in capsys.readouterr().out


def test_wider_intervals_hold_more() -> None:
    found = [coverage(made_up(4, 0.5), 20, level, 3, seed=1) for level in (0.6, 0.9)]
    assert found[0][0] < found[1][0]
    assert found[0][1] < found[1][1]
