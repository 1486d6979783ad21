"""A user's own judge: the required methods, its name, the offline LM and the dry run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import dspy
import pytest

from debate_judge.programs import JUDGES, build, build_preset, find_preset
from debate_judge.programs.judge import DebateConfig, Item, ItemJudge
from debate_judge.programs.metrics.metric import Metric
from debate_judge.programs.roles.role import Fields, JudgeSignature, Role
from debate_judge.programs.testing import check_judge
from debate_judge.programs.transcript import EMPTY, Transcript, Turn

CODE = """
from debate_judge.programs.debate.judge import Debate

class Small(Debate):
    @classmethod
    def from_config(cls, config):
        return super().from_config({"persona": "plain", "rounds": 2, "tie_breaker": False, **config})
"""


class Weighing(JudgeSignature):
    """Weigh the candidate."""

    musings: str = dspy.OutputField(desc="whatever comes to your mind")
    side: Literal["poor", "fair", "good"] = dspy.OutputField(desc="one word")
    weight: int = dspy.OutputField(desc="a grade from 1 to 10")
    percent: str = dspy.OutputField(desc="one number from 0 to 100 and nothing else")
    sound: bool = dspy.OutputField()
    agreed: str = dspy.OutputField(desc="yes or no and nothing else")
    advice: str = dspy.OutputField(desc="keep or drop")
    names: list[str] = dspy.OutputField(desc="the names in it")


class Scales(ItemJudge):
    """A judge whose fields the offline LM does not know."""

    def __init__(self, strict: bool = False) -> None:
        super().__init__()
        self.strict = strict
        self.weigher = Role("weigher", Weighing)
        self.fields: Fields = {}

    async def converse_about(self, item: Item, rounds: int) -> Transcript:
        def read(fields: Fields) -> float:
            self.fields = fields
            return {"poor": item.aspect.scale.low, "good": item.aspect.scale.high}.get(fields["side"], 3.0)

        answer = await self.weigher.ask(item, read)
        return EMPTY.add(Turn("weigher", 0, "", score=answer.value, calls=answer.calls))

    def config(self) -> dict[str, Any]:
        return {"strict": self.strict}


def test_a_judge_without_a_required_method_cannot_be_created() -> None:
    class Half(ItemJudge):
        async def converse_about(self, item: Item, rounds: int) -> Transcript:
            return EMPTY

    class Silent(Metric):
        def config(self) -> dict[str, Any]:
            return {}

    with pytest.raises(TypeError, match=r"Half.*config"):
        Half()  # type: ignore[abstract]
    with pytest.raises(TypeError, match=r"Silent.*measure"):
        Silent()  # type: ignore[abstract]


def test_check_judge_names_the_violation() -> None:
    class Loose(Scales):
        def config(self) -> dict[str, Any]:
            return {"strict": not self.strict}

    class Boasting(Scales):
        def tunable(self) -> tuple[str, ...]:
            return ("nobody",)

    with pytest.raises(AssertionError, match="another configuration"):
        check_judge(Loose())
    with pytest.raises(AssertionError, match=r"`tunable` names predictors that do not exist; found \('nobody"):
        check_judge(Boasting())


def test_an_import_path_names_a_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_judge_of_a_test.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    name = "own_judge_of_a_test:Small"
    assert find_preset(name).kind == name
    assert build_preset(name, {"score_mode": "sampled:2"}).config()["score_mode"] == "sampled:2"
    judge = build(name, {**JUDGES["debate"].config, "rounds": 1})
    assert (judge.kind, judge.debate_config) == (name, DebateConfig(1, False))


def test_the_offline_lm_answers_fields_by_type_and_description() -> None:
    judge = Scales()
    check_judge(judge)
    fields = judge.fields
    assert fields["musings"].startswith("Text statistics: ")
    assert fields["side"] in ("poor", "fair", "good")
    assert 1 <= int(fields["weight"]) <= 10
    assert 0 <= float(fields["percent"]) <= 100
    assert fields["sound"] in ("True", "False")
    assert fields["agreed"] in ("yes", "no")
    assert fields["advice"] in ("keep", "drop")
    assert all(isinstance(name, str) for name in json.loads(fields["names"]))
