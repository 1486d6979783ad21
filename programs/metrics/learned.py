"""Reference metrics that need a model of their own: BERTScore and BARTScore, by the extra `metrics`.

A model is loaded once per process, from a folder or the hub's cache, when the first text is scored. A value depends
only on the texts and the configuration, and not on what else is scored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from debate_judge.data.errors import InputError
from debate_judge.programs.judge import Item
from debate_judge.programs.metrics.metric import KEPT, Metric
from debate_judge.programs.option_values import one_of, whole_number

T = TypeVar("T")

DIRECTIONS = ("faithfulness", "precision", "recall", "f")

_LOADED = 4
"""Most models in memory at once."""

_LONGEST = {"bertscore": 512, "bartscore": 1024}
"""Tokens of a text that are read if the model's tokenizer has no limit of its own."""


class ModelMetric(Metric):
    """The common options of both metrics."""

    def __init__(self, model: str, device: str = "auto") -> None:
        """
        Args:
            model: Name or folder of a model, as `transformers` takes it.
            device: `cpu`, `cuda`, `cuda:1`, `mps` ...; `auto` is the GPU if there is one.
        """
        super().__init__()
        for name, value in (("model", model), ("device", device)):
            if not isinstance(value, str) or not value.strip():
                raise InputError(f"not a {name}", field=name, expected="a text", found=value)
        self.model, self.device = model, device


class BertScore(ModelMetric):
    """BERTScore F1 (Zhang et al. 2020), by `bert-score`: without IDF weights and without rescaling, about 0 to 1.

    Compared with the references, of which the best counts; without any with the context (a dialogue's fact), without
    that with the source. Rescaling is a linear map, which changes no correlation.
    """

    kind = "bertscore"
    packages = ("bert-score", "torch", "transformers")
    settable = ("model", "layers", "device")

    def __init__(self, model: str, layers: int | None = None, device: str = "auto") -> None:
        """`layers` is the layer whose embeddings are compared, by default the one that bert-score has for `model`."""
        super().__init__(model, device)
        self.layers = None if layers is None else whole_number("layers", layers, least=1)

    def measure(self, text: str, others: tuple[str, ...]) -> float:
        return _bert_score(self.model, self.layers, self.device, text, others)


class BartScore(ModelMetric):
    """BARTScore (Yuan et al. 2021), over `transformers`: mean log-likelihood of one text given another, at most 0.

    `direction` says which texts (section 3.2):

    - `faithfulness`: the candidate given the source and, in the same text after it, the context; the default;
    - `precision`: the candidate given a reference;
    - `recall`: a reference given the candidate;
    - `f`: the mean of these two.

    Of several references the best counts; without any the context (a dialogue's fact) is used, without that the source.
    The mean is over all tokens of the text, including its end marks.
    """

    kind = "bartscore"
    packages = ("torch", "transformers")
    settable = ("model", "direction", "device")

    def __init__(self, model: str, direction: str = "faithfulness", device: str = "auto") -> None:
        super().__init__(model, device)
        one_of("direction", direction, DIRECTIONS)
        self.direction = direction

    def against(self, item: Item) -> tuple[str, ...]:
        if self.direction != "faithfulness":
            return super().against(item)
        return ("\n\n".join(part for part in (item.source, item.context) if part.strip()),)

    def measure(self, text: str, others: tuple[str, ...]) -> float:
        return _bart_score(self.model, self.direction, self.device, text, others)


@lru_cache(maxsize=KEPT)
def _bert_score(model: str, layers: int | None, device: str, text: str, others: tuple[str, ...]) -> float:
    _, _, f1 = _bert_scorer(model, layers, device).score([text], [list(others)], batch_size=1)
    return float(f1[0])


@lru_cache(maxsize=_LOADED)
def _bert_scorer(model: str, layers: int | None, device: str) -> Any:
    from bert_score import BERTScorer
    from bert_score.utils import model2layers

    if layers is None and model not in model2layers:
        raise InputError(
            f"bert-score does not know which layer of {model!r} to compare",
            field="layers",
            expected="the number of a layer",
            remedy="add -J layers=N; about two thirds up is a good start",
        )
    scorer = _load("bertscore", model, lambda: BERTScorer(model_type=model, num_layers=layers, device=_device(device)))
    # bert-score passes the tokenizer's own limit, which overflows if the tokenizer has none (its issue 205).
    scorer._tokenizer.model_max_length = _limit("bertscore", scorer._tokenizer, scorer._model)
    return scorer


@lru_cache(maxsize=KEPT)
def _bart_score(model: str, direction: str, device: str, text: str, others: tuple[str, ...]) -> float:
    values = []
    for other in others:
        directions = [] if direction == "recall" else [_log_likelihood(model, device, other, text)]
        directions += [_log_likelihood(model, device, text, other)] if direction in ("recall", "f") else []
        values.append(sum(directions) / len(directions))
    return max(values)


def _log_likelihood(model: str, device: str, given: str, text: str) -> float:
    """Mean log-likelihood of a text given another, over its tokens."""
    import torch

    tokenizer, network = _seq2seq(model, device)
    limit = _limit("bartscore", tokenizer, network)
    read, target = (
        tokenizer([part], truncation=True, max_length=limit, return_tensors="pt").to(network.device)
        for part in (given, text)
    )
    with torch.inference_mode():
        logits = network(input_ids=read.input_ids, attention_mask=read.attention_mask, labels=target.input_ids).logits
    likelihoods = logits.log_softmax(-1).gather(-1, target.input_ids.unsqueeze(-1)).squeeze(-1)
    return float(likelihoods.sum() / target.attention_mask.sum())


@lru_cache(maxsize=_LOADED)
def _seq2seq(model: str, device: str) -> tuple[Any, Any]:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    def load() -> tuple[Any, Any]:
        network = AutoModelForSeq2SeqLM.from_pretrained(model)
        return AutoTokenizer.from_pretrained(model), network.float().to(_device(device)).eval()

    return _load("bartscore", model, load)


def _load(kind: str, model: str, load: Callable[[], T]) -> T:
    try:
        return load()
    except Exception as error:
        raise InputError(
            f"the model {model!r} of the judge {kind!r} could not be loaded",
            field="model",
            found=f"{type(error).__name__}: {error}".partition("\n")[0],
            remedy="give a folder that holds it, -J model=FOLDER, or run once where the hub can be reached",
        ) from error


def _device(name: str) -> str:
    import torch

    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


def _limit(kind: str, tokenizer: Any, network: Any) -> int:
    """Longest text in tokens that the model reads; longer texts are cut."""
    usual = _LONGEST[kind]
    # Tokenizers without a limit have 10 ** 30 here.
    if tokenizer.model_max_length < 1_000_000:
        return int(tokenizer.model_max_length)
    return min(usual, getattr(network.config, "max_position_embeddings", None) or usual)
