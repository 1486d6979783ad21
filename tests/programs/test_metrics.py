"""Reference metrics against their definitions: overlap, and BERTScore and BARTScore with tiny models built here."""

from __future__ import annotations

from math import exp, inf, nan
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs import build
from debate_judge.programs.judge import Item, Judgement, Verdict
from debate_judge.programs.make_lm import make_lm
from debate_judge.programs.metrics import Bleu, Metric, RougeL
from debate_judge.runs.runner import JudgeRunner
from tests.tiny_models import skip_without, tiny_bart

TASK = Task("support", "question", "answer", (Aspect("tone", "Is it kind?", Scale(1, 5)),))


def item(text: str, *references: str, source: str = "some source", context: str = "") -> Item:
    return Item("g", text, TASK, TASK.aspects[0], source, text, context, references)


def judged(judge: Metric, *items: Item) -> list[Judgement]:
    with JudgeRunner(make_lm("offline"), progress=False) as runner:
        return runner.judge(judge, items)


def value(judge: Metric, about: Item) -> float:
    (judgement,) = judged(judge, about)
    assert isinstance(judgement, Verdict), judgement
    assert judgement.calls == 0
    return judgement.score


@pytest.mark.parametrize(
    ("judge", "text", "references", "expected"),
    [
        (Bleu(), "the cat sat on the mat", ["a dog ran", "the cat sat on the mat"], 100.0),
        # Two words: only 1-grams and 2-grams count (the effective order); brevity e^(1 - 4/2).
        (Bleu(), "the cat", ["the cat sat down"], 100 * exp(-1)),
        # 1-grams 3/4, 2-grams 1/3; no common 3-gram of 2 and no 4-gram of 1, smoothed to 1/2 and 1/4 of one.
        (Bleu(), "the cat sat up", ["the cat lay up"], 100 * (3 / 4 * 1 / 3 * (1 / 2) / 2 * (1 / 4) / 1) ** (1 / 4)),
        # Longest common subsequence 2: precision 2/3, recall 2/4.
        (RougeL(), "the cat ran", ["the cat sat down"], 2 * (2 / 3) * (2 / 4) / (2 / 3 + 2 / 4)),
        (RougeL(), "cats sat", ["dogs ran", "a cat sits"], 2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3)),
    ],
)
def test_overlap_is_what_the_definition_says(judge: Metric, text: str, references: list[str], expected: float) -> None:
    assert value(judge, item(text, *references)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("judge", [RougeL(), Bleu()], ids=lambda judge: judge.kind)
def test_references_come_before_the_context_and_that_before_the_source(judge: Metric) -> None:
    same, other = "the cat sat on the mat", "dogs ran"
    best = value(judge, item(same, same))
    assert value(judge, item(same, other, source=same, context=same)) == 0
    assert value(judge, item(same, source=other, context=same)) == best
    assert value(judge, item(same, source=same, context=other)) == 0
    # A reference, or a context, without any text is none.
    assert value(judge, item(same, " ", source=same, context=" \n")) == best
    # A text with nothing to compare it with is unscored and not 0.
    assert "no reference" in judged(judge, item(same, source=""))[0].detail


class Moody(Metric):
    kind = "rouge-l"

    def measure(self, text: str, references: tuple[str, ...]) -> float:
        if text == "raise":
            raise RuntimeError("out of memory")
        if text == "no model":
            raise InputError("no such model", field="model")
        return {"nan": nan, "inf": -inf}.get(text, float(len(text)))

    def config(self) -> dict[str, Any]:
        return {}


def test_a_text_that_the_metric_fails_on_is_unscored_and_others_are_scored() -> None:
    judgements = judged(Moody(), *map(item, ("raise", "nan", "inf", " ", "fine")))
    outcomes = [j.score if isinstance(j, Verdict) else j.reason for j in judgements]
    assert outcomes == ["metric error", "metric error", "metric error", "no text", 4.0]
    assert judgements[0].detail.endswith(", round 0: RuntimeError: out of memory")
    with pytest.raises(InputError, match="no such model"):
        judged(Moody(), item("no model"), item("fine"))


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
                inputs = tokenizer(given, return_tensors="pt").input_ids
                logits = network(input_ids=inputs, decoder_input_ids=before).logits
            total += float(logits[0, -1].log_softmax(-1)[token])
        return total / len(tokens)

    text, reference, source, context = "the cat sat", "a dog ran on the mat", "the mat is in", "a dog"
    forward, back = by_steps(reference, text), by_steps(text, reference)
    faithful = by_steps(f"{source}\n\n{context}", text)
    expected = {"faithfulness": faithful, "precision": forward, "recall": back, "f": (forward + back) / 2}
    about = item(text, reference, source=source, context=context)
    options = {"model": str(folder), "device": "cpu"}
    scores = {d: value(build("bartscore", {**options, "direction": d}), about) for d in expected}
    assert scores == pytest.approx(expected, abs=1e-4)
    assert len({round(score, 3) for score in expected.values()}) == 4
