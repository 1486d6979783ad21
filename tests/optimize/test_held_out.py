"""Held-out sources: a file of the user's own."""

from __future__ import annotations

import json
from pathlib import Path

from debate_judge.optimize.settings import Settings
from tests.optimize.compiles import plan_of
from tests.optimize.small_corpus import small_corpus


def test_all_sources_of_the_other_file_are_train_and_dev(tmp_path: Path) -> None:
    groups = [json.loads(line) for line in small_corpus(tmp_path, 12, 3).read_text().splitlines()]
    # Row numbers and the like may be the same in both files.
    held_out = [{**group, "group": groups[n]["group"]} for n, group in enumerate(groups[8:])]
    for name, part in (("d.jsonl", groups[:8]), ("h.jsonl", held_out)):
        (tmp_path / name).write_text("".join(json.dumps(group) + "\n" for group in part))
    files = {"data": str(tmp_path / "d.jsonl"), "held_out": str(tmp_path / "h.jsonl")}
    data = plan_of(Settings(**files, aspects=("coherence",)), {}).data
    assert {g.source for g in data.splits.held_out.groups} == {group["source"] for group in held_out}
    assert [len(part.groups) for part in (data.splits.train, data.splits.dev)] == [4, 4]
    assert len({g.id for g in data.corpus.groups}) == 12
    assert data.evaluation_corpus == data.splits.held_out
