"""BERTScore and BARTScore over tiny models made here; no real weights are had, so no published value is tested."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.errors import InputError
from debate_judge.programs import JUDGES, preset
from debate_judge.programs.judge import Unscored, Verdict
from debate_judge.programs.metrics.metric import Metric
from tests.fakes import only
from tests.programs.metric_items import _bart, item
from tests.tiny_models import skip_without, tiny_bart, tiny_bert


@pytest.fixture
def as_if_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("debate_judge.programs.metrics.metric.absent", lambda packages: ())


@pytest.mark.usefixtures("as_if_installed")
@pytest.mark.parametrize(
    ("name", "options", "field"),
    [
        ("bertscore", {"layers": 0}, "layers"),
        ("bertscore", {"layers": "17"}, "layers"),
        ("bertscore", {"model": " "}, "model"),
        ("bertscore", {"model": 3}, "model"),
        ("bartscore", {"device": ""}, "device"),
        ("bartscore", {"direction": "backwards"}, "direction"),
        ("bartscore", {"layers": 3}, "-J"),
    ],
)
def test_options_that_cannot_be_are_refused(name: str, options: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        preset(name, options)
    assert caught.value.field == field


@pytest.mark.usefixtures("as_if_installed")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("bertscore", {"model": "mine", "layers": 3, "device": "cpu"}),
        ("bartscore", {"model": "mine", "direction": "f", "device": "cuda:1"}),
    ],
)
def test_options_are_the_configuration(name: str, options: dict[str, Any]) -> None:
    assert preset(name, options).config() == options
    assert JUDGES[name].config["model"] == preset(name, {}).config()["model"]


@pytest.mark.usefixtures("as_if_installed")
def test_what_bartscore_compares() -> None:
    about = item("text", "one", "two", source="source", context="context")
    faithful = preset("bartscore", {})
    assert isinstance(faithful, Metric)
    assert faithful.against(about) == ("source\n\ncontext",)
    assert faithful.against(item("text", "one", source="source")) == ("source",)
    for direction in ("precision", "recall", "f"):
        judge = preset("bartscore", {"direction": direction})
        assert isinstance(judge, Metric)
        assert judge.against(about) == ("one", "two")
        assert judge.against(item("text", context="context")) == ("context",)


def test_nothing_heavy_is_loaded_before_a_text_is_scored() -> None:
    code = (
        "import sys; from debate_judge import programs; from debate_judge.programs.metrics import metric;"
        "metric.absent = lambda packages: ();"
        "programs.preset('bertscore', {}); programs.preset('bartscore', {});"
        "print(*{'torch', 'transformers', 'bert_score', 'sacrebleu'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == []


# --- both ---


def test_a_value_is_the_same_bit_for_bit_whatever_else_is_scored(tmp_path: Path) -> None:
    skip_without("bertscore")
    for name, folder, layers in (
        ("bertscore", tiny_bert(tmp_path), {"layers": 2}),
        ("bartscore", tiny_bart(tmp_path), {}),
    ):
        config = {"model": str(folder), "device": "cpu", **layers}
        code = (
            "import asyncio, sys; from debate_judge.programs import build\n"
            "from tests.programs.metric_items import item\n"
            f"judge = build({name!r}, {config!r})\n"
            "texts = sys.argv[1:]\n"
            "found = {t: asyncio.run(judge.judge(item(t, 'a cat', 'a dog', 'the mat'))).score for t in texts}\n"
            "print(found['the cat'].hex())"
        )
        printed = set()
        for seed, texts in (("1", ["the cat"]), ("2", ["the cat sat", "a dog ran", "the cat"])):
            done = subprocess.run(
                [sys.executable, "-c", code, *texts],
                cwd=Path(__file__).parents[2],
                env={"PYTHONHASHSEED": seed, "HF_HUB_OFFLINE": "1", "PATH": ""},
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            printed.add(done.stdout.strip())
        assert len(printed) == 1


@pytest.mark.parametrize("name", ["bertscore", "bartscore"])
def test_a_model_that_is_not_there_is_said_once_and_ends_the_run(name: str, tmp_path: Path) -> None:
    skip_without(name)
    options = {"model": str(tmp_path / "nothing")} | ({"layers": 2} if name == "bertscore" else {})
    with pytest.raises(InputError, match="could not be loaded") as caught:
        asyncio.run(only(preset(name, options).judge([item("the cat", "a cat")])))
    assert "model=FOLDER" in str(caught.value.remedy)


@pytest.mark.parametrize("name", ["bertscore", "bartscore"])
def test_the_weights_are_loaded_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without(name)
    from debate_judge.programs.metrics import learned as metrics

    loads: list[str] = []
    original = metrics._load
    monkeypatch.setattr(metrics, "_load", lambda kind, model, load: loads.append(model) or original(kind, model, load))
    folder = tiny_bert(tmp_path) if name == "bertscore" else tiny_bart(tmp_path)
    options = {"model": str(folder), "device": "cpu"} | ({"layers": 2} if name == "bertscore" else {})
    judge = preset(name, options)
    for text in ("the cat", "a dog", "the mat"):
        for aspect in (0, 1):
            assert isinstance(asyncio.run(only(judge.deepcopy().judge([item(text, "a cat", aspect=aspect)]))), Verdict)
    assert loads == [str(folder)]


def test_an_empty_candidate_is_unscored(tmp_path: Path) -> None:
    skip_without("bartscore")
    found = asyncio.run(only(_bart(tiny_bart(tmp_path)).judge([item("  ", "a cat")])))
    assert isinstance(found, Unscored)
    assert found.reason == "no text"
