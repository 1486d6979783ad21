"""`--held-out FILE`: a user's own test set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from debate_judge.optimize import compile as command
from debate_judge.optimize.settings import Settings
from tests.config_keys import keys
from tests.optimize.compiles import plan_of
from tests.optimize.small_corpus import small_corpus

Group = dict[str, Any]


@pytest.fixture
def groups(tmp_path: Path) -> list[Group]:
    return [json.loads(line) for line in small_corpus(tmp_path, 12, 3).read_text().splitlines()]


def written(path: Path, groups: list[Group]) -> str:
    path.write_text("".join(json.dumps(group) + "\n" for group in groups))
    return str(path)


def settings(folder: Path, data: list[Group], held_out: list[Group], **more: Any) -> Settings:
    files = {"data": written(folder / "d.jsonl", data), "held_out": written(folder / "h.jsonl", held_out)}
    return Settings(**{**files, "aspects": ("coherence",), **more})


@pytest.mark.integration
def test_the_judge_learns_from_one_file_and_is_measured_on_the_other(
    tmp_path: Path, groups: list[Group], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "mine.jsonl", groups[:8])
    written(tmp_path / "test.jsonl", groups[8:])
    arguments = ["--data", "mine.jsonl", "--held-out", "test.jsonl", "--aspects", "coherence", "--tuner", "none"]
    quick = ["--max-rounds", "0", *keys(resamples=100, report="none", json="result.json")]
    assert command.main([*arguments, *quick]) == 0
    printed = capsys.readouterr().out
    assert "on 4 sources" in " ".join(printed.split())
    assert "--held-out test.jsonl" in printed
    assert json.loads((tmp_path / "result.json").read_text())["gain"]["groups"] == 4


def test_all_other_sources_are_train_and_dev(tmp_path: Path, groups: list[Group]) -> None:
    # Row numbers and the like may be the same in both files.
    taken = [{**group, "group": groups[n]["group"]} for n, group in enumerate(groups[8:])]
    data = plan_of(settings(tmp_path, groups[:8], taken), {}).data
    splits = data.splits
    assert {g.source for g in splits.held_out.groups} == {group["source"] for group in groups[8:]}
    assert [len(part.groups) for part in (splits.train, splits.dev)] == [4, 4]
    assert len({g.id for g in data.corpus.groups}) == 12
    assert data.evaluation_corpus == splits.held_out
