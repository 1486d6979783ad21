"""BERTScore and BARTScore against their definitions, with tiny models that are built here."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs import build, build_preset
from debate_judge.programs.judge import Item, Verdict
from debate_judge.programs.metrics import metric
from debate_judge.programs.metrics.metric import Metric
from tests.fakes import only
from tests.tiny_models import skip_without, tiny_bart, tiny_bert

TASK = Task("t", "source", "text", (Aspect("a", "Good.", Scale(1, 5)), Aspect("b", "Nice.", Scale(1, 5))))


def item(text: str, *references: str, source: str = "a cat", context: str = "", aspect: int = 0) -> Item:
    return Item("g", "c", TASK, TASK.aspects[aspect], source, text, context, references)


def _bart(folder: Path, direction: str = "faithfulness", **options: Any) -> Metric:
    judge = build("bartscore", {"model": str(folder), "direction": direction, "device": "cpu", **options})
    assert isinstance(judge, Metric)
    return judge


def value(judge: Metric, about: Item) -> float:
    found = asyncio.run(only(judge.judge([about])))
    assert isinstance(found, Verdict), found
    assert found.calls == 0
    return found.score


@pytest.fixture
def bert(tmp_path: Path) -> Metric:
    skip_without("bertscore")
    return _bert(tiny_bert(tmp_path))


def _bert(folder: Path, **options: Any) -> Metric:
    judge = build("bertscore", {"model": str(folder), "layers": 2, "device": "cpu", **options})
    assert isinstance(judge, Metric)
    return judge


def _greedy(folder: Path, text: str, other: str) -> float:
    """F1 by the definition: each token's best cosine in the other text, the marks at the ends not averaged."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()

    def vectors(of: str) -> Any:
        with torch.no_grad():
            found = network(**tokenizer(of, return_tensors="pt")).last_hidden_state[0]
        return found / found.norm(dim=-1, keepdim=True)

    cosines = vectors(text) @ vectors(other).T
    precision = float(cosines.max(1).values[1:-1].mean())
    recall = float(cosines.max(0).values[1:-1].mean())
    return 2 * precision * recall / (precision + recall)


def test_bertscore_is_what_the_definition_says(bert: Metric) -> None:
    folder = Path(bert.config()["model"])
    texts = ("the dog ran", "a cat sat on the mat", "the cat is in and on a mat")
    by_text = [value(bert, item("the cat sat", text)) for text in texts]
    assert by_text == pytest.approx([_greedy(folder, "the cat sat", text) for text in texts], abs=1e-5)
    assert value(bert, item("the cat sat", "the cat sat")) == pytest.approx(1)
    assert value(bert, item("the cat sat", *texts)) == pytest.approx(max(by_text), abs=1e-5)
    assert len(set(by_text)) == 3


def test_bertscore_truncates_long_texts_also_without_a_tokenizer_limit(tmp_path: Path) -> None:
    skip_without("bertscore")
    long = " ".join(["cat sat on the mat"] * 50)
    for folder in (tiny_bert(tmp_path), tiny_bert(tmp_path, longest=None)):
        assert value(_bert(folder), item(long, "the dog ran")) != 0


def test_bertscore_needs_a_layer_for_a_model_that_it_does_not_know(bert: Metric) -> None:
    judge = build("bertscore", {"model": bert.config()["model"]})
    with pytest.raises(InputError, match=r"layers=N"):
        asyncio.run(only(judge.judge([item("the cat", "a cat")])))


def test_bartscore_conditions_on_the_right_text(tmp_path: Path) -> None:
    skip_without("bartscore")
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    folder = tiny_bart(tmp_path)
    network, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)

    def by_steps(given: str, text: str) -> float:
        """Token by token, as a decoder writes."""
        tokens, total = tokenizer(text).input_ids, 0.0
        for n, token in enumerate(tokens):
            before = torch.tensor([[network.config.decoder_start_token_id, *tokens[:n]]])
            with torch.no_grad():
                read = tokenizer(given, return_tensors="pt").input_ids
                logits = network(input_ids=read, decoder_input_ids=before).logits
            total += float(logits[0, -1].log_softmax(-1)[token])
        return total / len(tokens)

    text, reference, source, context = "the cat sat", "a dog ran on the mat", "the mat is in", "a dog"
    about = item(text, reference, source=source, context=context)
    forward, back = by_steps(reference, text), by_steps(text, reference)
    expected = {
        "faithfulness": by_steps(f"{source}\n\n{context}", text),
        "precision": forward,
        "recall": back,
        "f": (forward + back) / 2,
    }
    assert len({round(v, 3) for v in expected.values()}) == 4
    assert {d: value(_bart(folder, d), about) for d in expected} == pytest.approx(expected, abs=1e-4)


@pytest.fixture
def as_if_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("debate_judge.programs.metrics.metric.missing_packages", lambda packages: ())


@pytest.mark.usefixtures("as_if_installed")
def test_the_texts_that_bartscore_compares() -> None:
    about = item("text", "one", "two", source="source", context="context")
    faithful = build_preset("bartscore", {})
    assert isinstance(faithful, Metric)
    assert faithful.reference_texts(about) == ("source\n\ncontext",)
    assert faithful.reference_texts(item("text", "one", source="source")) == ("source",)
    for direction in ("precision", "recall", "f"):
        judge = build_preset("bartscore", {"direction": direction})
        assert isinstance(judge, Metric)
        assert judge.reference_texts(about) == ("one", "two")
        assert judge.reference_texts(item("text", context="context")) == ("context",)


@pytest.mark.parametrize("name", ["bertscore", "bartscore"])
def test_a_missing_model_ends_the_run_with_one_message(name: str, tmp_path: Path) -> None:
    skip_without(name)
    options = {"model": str(tmp_path / "nothing")} | ({"layers": 2} if name == "bertscore" else {})
    with pytest.raises(InputError, match="could not be loaded") as caught:
        asyncio.run(only(build_preset(name, options).judge([item("the cat", "a cat")])))
    assert "model=FOLDER" in str(caught.value.remedy)


@pytest.mark.parametrize("name", ["bertscore", "bartscore"])
def test_the_weights_are_loaded_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without(name)
    loads: list[str] = []
    original = metric._load
    monkeypatch.setattr(metric, "_load", lambda kind, model, load: loads.append(model) or original(kind, model, load))
    folder = tiny_bert(tmp_path) if name == "bertscore" else tiny_bart(tmp_path)
    options = {"model": str(folder), "device": "cpu"} | ({"layers": 2} if name == "bertscore" else {})
    judge = build_preset(name, options)
    for text in ("the cat", "a dog", "the mat"):
        for aspect in (0, 1):
            assert isinstance(asyncio.run(only(judge.deepcopy().judge([item(text, "a cat", aspect=aspect)]))), Verdict)
    assert loads == [str(folder)]
