"""What is refused as an export: broken, missing, of another format, or asking for too much."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from debate_judge.data.errors import InputError
from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs.export.folder import load, save
from tests.runs.exports import TASK

OWN = """
from debate_judge.programs.debate.judge import Debate

class Small(Debate):
    pass
"""


def test_an_export_of_a_judge_of_ones_own_is_loaded_only_where_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = "own_judge_of_an_export", "own_judge_of_an_export:Small"
    (tmp_path / f"{module}.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    judge = CompiledJudge(TASK, {"tone": AspectJudge(build(name, JUDGES["single"].config))})
    folder = save(tmp_path / "mine", judge, lm={"spec": "offline"}, evidence={}, name="mine")
    assert json.loads((folder / "manifest.json").read_text())["aspects"]["tone"]["kind"] == name
    # The same again replaces it, for its writer has the class.
    assert save(folder, judge, lm={"spec": "offline"}, evidence={}, name="mine") == folder
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("mine")] == ["mine"]
    monkeypatch.delitem(sys.modules, module)
    with pytest.raises(InputError) as refused:
        load(folder)
    assert f"--config judge={name} " in str(refused.value)
    assert module not in sys.modules, "nothing is imported that was not named"
    with load(folder, judges=[name]) as loaded:
        assert loaded.score(text="It rained.", source="Rain fell.", aspects="tone")["tone"].score is not None
    monkeypatch.delitem(sys.modules, module)
    (tmp_path / f"{module}.py").unlink()
    with pytest.raises(InputError, match="cannot be imported"):
        load(folder, judges=[name])
