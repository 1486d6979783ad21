"""What a user in Python or a notebook sees: names, signatures, arguments in errors, an LM object, a short result."""

from __future__ import annotations

import inspect
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import dspy
import mlflow
import pytest

import debate_judge
from debate_judge.data.errors import InputError
from debate_judge.optimize.settings import Settings
from tests.faulty_server import FaultyServer
from tests.optimize.small_corpus import small_corpus
from tests.pins.recording import answer

KEY = "sk-correct-horse-battery"


@pytest.mark.integration
def test_an_lm_object_is_used_with_its_address_and_key_and_so_is_the_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    settings: dict[str, Any] = {"aspects": ["coherence"], "max_rounds": 1, "tuner": "none", "folds": 1, "trials": 6}
    before = mlflow.get_tracking_uri()
    with FaultyServer(answer) as server:
        server.key = KEY
        lm = dspy.LM("openai/m", api_base=server.url, api_key=KEY)
        result = debate_judge.compile(
            small_corpus(tmp_path), lm=lm, store=str(tmp_path / "store"), report="none", progress=False, **settings
        )
        with result.judge as judge:
            assert judge(source="The cat sat.", text="A cat.", aspect="coherence").score is not None
        assert server.refused == 0
    assert (os.environ.get("OPENAI_API_KEY"), mlflow.get_tracking_uri()) == (None, before)
    assert str(result.export) in repr(result)
    assert "<table" in result._repr_html_()
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not [content for content in files if KEY.encode() in content]


def test_signatures_name_the_arguments_with_their_defaults() -> None:
    parameters = inspect.signature(debate_judge.compile).parameters
    assert {field.name for field in fields(Settings)} - set(parameters) == {"json", "verbose"}
    assert {name: parameters[name].default for name in ("max_rounds", "store", "folds", "effort")} == {
        name: getattr(Settings(), name) for name in ("max_rounds", "store", "folds", "effort")
    }
    assert inspect.Parameter.VAR_KEYWORD not in {parameter.kind for parameter in parameters.values()}
    assert "rounds" in inspect.signature(debate_judge.Debate).parameters
    for judge in (debate_judge.Debate(), debate_judge.Debate().forward):
        assert {"source", "text", "texts", "aspect"} <= set(inspect.signature(judge).parameters)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"lm": "opena"}, "lm"),
        ({"lm": dspy.LM("openai/m", top_p=0.5)}, "lm"),
        ({"data": "nowhere.jsonl"}, "data"),
        ({"metrik": "kendall"}, "metrik"),
        ({"judge": "debat"}, "judge"),
    ],
)
def test_errors_name_arguments_and_no_flag(arguments: dict[str, Any], field: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        debate_judge.compile(**{"store": str(tmp_path), "progress": False, **arguments})
    assert refused.value.field == field if field != "data" else refused.value.file == "nowhere.jsonl"
    assert "--" not in str(refused.value)
