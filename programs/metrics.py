"""Reference metrics: they ask no LM, and have the same value for every aspect.

All compute in one thread of their own, one text after the other, so that neither a slow metric nor the loading of a
model blocks debates, and libraries need not be thread-safe. BERTScore and BARTScore need a model, which is loaded once
per process, from a folder or the hub's cache, when the first text is scored. A value depends only on the texts and the
configuration, and not on other texts.
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from statistics import fmean
from typing import Any

from debate_judge.data.errors import InputError, install_hint
from debate_judge.programs.judge import (
    EMPTY,
    Failure,
    Item,
    ItemJudge,
    Judge,
    Transcript,
    Turn,
    Verdict,
    one_of,
    whole_number,
)


class Metric(ItemJudge):
    """Compares a candidate with the references, or else the context (a dialogue's fact), or else the source.

    The value is on the metric's own scale and not on the aspect's.

    Each is a function `measure`; this class finds the texts, calls it in the metrics' own thread and caches its values.

    Raises:
        InputError: On construction, if the packages that it needs are not installed.
    """

    on_scale = False

    def __init__(self) -> None:
        super().__init__()
        if missing := missing_packages(self.packages):
            problem = f"the judge {self.kind!r} needs {', '.join(missing)}, not installed here"
            raise InputError(problem, remedy=install_hint("metrics"))

    def config(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.settable}

    @abstractmethod
    def measure(self, text: str, references: tuple[str, ...]) -> float:
        """The value of `text` compared with `references`, at least one text; called in the metrics' own thread."""

    def reference_texts(self, item: Item) -> tuple[str, ...]:
        """The texts to compare the candidate with."""
        references = tuple(r for r in item.references if r.strip())
        return references or (item.context if item.context.strip() else item.source,)

    async def converse_about(self, item: Item, rounds: int) -> Transcript:
        """One turn with the value and no text. If the metric fails on a text, only this item is unscored."""
        references = self.reference_texts(item)
        if not item.text.strip() or not any(map(str.strip, references)):
            # The value would be 0, as of a bad candidate.
            problem = "the candidate is empty, or there is no reference, context or source to compare it with"
            return EMPTY.add(Failure(self.kind, 0, "no text", problem, 0))
        try:
            value = await asyncio.get_running_loop().run_in_executor(_worker(), _value, self, item.text, references)
            if not math.isfinite(value):
                raise ValueError(f"the value is {value}")
        except InputError:
            # The model or the device cannot be used, so all texts would fail.
            raise
        except Exception as error:
            return EMPTY.add(Failure(self.kind, 0, "metric error", f"{type(error).__name__}: {error}", 0))
        return EMPTY.add(Turn(self.kind, 0, "", score=value, calls=0))

    def verdict(self, transcript: Transcript, rounds: int) -> Verdict:
        return replace(super().verdict(transcript, rounds), stop_reason="metric")

    def dry_run_copy(self) -> Judge:
        """A metric that computes nothing, because a dry run counts LM calls and a metric makes none."""
        return _NullMetric()


class _NullMetric(Metric):
    def measure(self, text: str, references: tuple[str, ...]) -> float:
        return 0.0


def missing_packages(packages: Sequence[str]) -> tuple[str, ...]:
    """The distributions among `packages` that are not installed; nothing is imported."""
    return tuple(name for name in packages if importlib.util.find_spec(name.replace("-", "_")) is None)


# Cached, because the same text is scored in every aspect.
@lru_cache(maxsize=8192)
def _value(metric: Metric, text: str, references: tuple[str, ...]) -> float:
    return metric.measure(text, references)


@lru_cache(maxsize=1)
def _worker() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="metrics")


# --- metrics of common n-grams ---

TOKENIZERS = ("13a", "intl", "char", "zh", "none")
"""Tokenizers of sacrebleu that need no further package: mteval-v13a, international, characters, Chinese, spaces."""


class RougeL(Metric):
    """ROUGE-L F1 (Lin 2004) with stemming, by `rouge-score`, from 0 to 1; the best over several references."""

    kind = "rouge-l"
    packages = ("rouge-score",)

    def measure(self, text: str, references: tuple[str, ...]) -> float:
        return float(_rouge_scorer().score_multi(references, text)["rougeL"].fmeasure)


class Bleu(Metric):
    """BLEU of one text (Papineni et al. 2002; Post 2018), by `sacrebleu`, from 0 to 100.

    The candidate is compared with all references together, as BLEU is defined, by the effective order, so that texts of
    fewer than four words have a value, and sacrebleu's default smoothing. The mean over texts is not a corpus BLEU.

    Args:
        tokenize: One of `TOKENIZERS`; `char` or `zh` for scripts without spaces between words.
    """

    kind = "bleu"
    packages = ("sacrebleu",)
    settable = ("tokenize",)

    def __init__(self, tokenize: str = "13a") -> None:
        super().__init__()
        one_of("tokenize", tokenize, TOKENIZERS)
        self.tokenize = tokenize

    def measure(self, text: str, references: tuple[str, ...]) -> float:
        return float(_bleu_scorer(self.tokenize).sentence_score(text, list(references)).score)


@lru_cache(maxsize=1)
def _rouge_scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], use_stemmer=True)


@lru_cache(maxsize=len(TOKENIZERS))
def _bleu_scorer(tokenize: str) -> Any:
    from sacrebleu.metrics import BLEU

    return BLEU(effective_order=True, tokenize=tokenize)


# --- metrics by a model, which need the extra `metrics` ---

DIRECTIONS = ("faithfulness", "precision", "recall", "f")


class ModelMetric(Metric):
    """The common options of BERTScore and BARTScore.

    Args:
        model: Name or folder of a model, as `transformers` takes it.
        device: `cpu`, `cuda`, `cuda:1`, `mps` ...; `auto` is the GPU if there is one.
    """

    def __init__(self, model: str, device: str = "auto") -> None:
        super().__init__()
        for name, value in (("model", model), ("device", device)):
            if not isinstance(value, str) or not value.strip():
                raise InputError(f"not a {name}", field=name, expected="a text", found=value)
        self.model, self.device = model, device


class BertScore(ModelMetric):
    """BERTScore F1 (Zhang et al. 2020), by `bert-score`: without IDF weights and without rescaling, about 0 to 1.

    The best over several references. Rescaling would be a linear map, which changes no correlation.

    Args:
        layers: The layer whose embeddings are compared, by default the one that bert-score has for `model`.
    """

    kind = "bertscore"
    packages = ("bert-score", "torch", "transformers")
    settable = ("model", "layers", "device")

    def __init__(self, model: str, layers: int | None = None, device: str = "auto") -> None:
        super().__init__(model, device)
        self.layers = None if layers is None else whole_number("layers", layers, minimum=1)

    def measure(self, text: str, references: tuple[str, ...]) -> float:
        scorer = _loaded(_bert_scorer, self.model, self.device, self.layers)
        return float(scorer.score([text], [list(references)], batch_size=1)[2][0])


class BartScore(ModelMetric):
    """BARTScore (Yuan et al. 2021), over `transformers`: mean log-likelihood of one text given another, at most 0.

    The mean is over all tokens of the text, including its end marks; the best over several references.

    Args:
        direction: The variant (section 3.2): `faithfulness` is the candidate given the source, followed by the context
            in the same text; `precision` the candidate given a reference; `recall` a reference given the candidate;
            `f` the mean of these two.
    """

    kind = "bartscore"
    packages = ("torch", "transformers")
    settable = ("model", "direction", "device")

    def __init__(self, model: str, direction: str = "faithfulness", device: str = "auto") -> None:
        super().__init__(model, device)
        one_of("direction", direction, DIRECTIONS)
        self.direction = direction

    def reference_texts(self, item: Item) -> tuple[str, ...]:
        if self.direction != "faithfulness":
            return super().reference_texts(item)
        return ("\n\n".join(part for part in (item.source, item.context) if part.strip()),)

    def measure(self, text: str, references: tuple[str, ...]) -> float:
        values = []
        for reference in references:
            # (condition, the text whose likelihood it is)
            forward, back = (reference, text), (text, reference)
            pairs = {"recall": [back], "f": [forward, back]}.get(self.direction, [forward])
            values.append(fmean(self._log_likelihood(*pair) for pair in pairs))
        return max(values)

    def _log_likelihood(self, condition: str, text: str) -> float:
        """Mean log-likelihood of the tokens of `text` given `condition`."""
        import torch

        tokenizer, network = _loaded(_seq2seq, self.model, self.device)
        limit = _max_length(tokenizer, network, 1024)
        source, target = (
            tokenizer([part], truncation=True, max_length=limit, return_tensors="pt").to(network.device)
            for part in (condition, text)
        )
        with torch.inference_mode():
            output = network(input_ids=source.input_ids, attention_mask=source.attention_mask, labels=target.input_ids)
        likelihoods = output.logits.log_softmax(-1).gather(-1, target.input_ids.unsqueeze(-1)).squeeze(-1)
        return float(likelihoods.sum() / target.attention_mask.sum())


# At most four models are in memory at once.
@lru_cache(maxsize=4)
def _loaded(load: Any, model: str, device: str, *options: Any) -> Any:
    """What `load` makes of a model on a device, once in a process."""
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        return load(model, device, *options)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"the model {model!r} could not be loaded",
            field="model",
            found=f"{type(error).__name__}: {error}".partition("\n")[0],
            remedy="give a folder that holds it, -J model=FOLDER, or run once with access to the hub",
        ) from error


def _bert_scorer(model: str, device: str, layers: int | None) -> Any:
    from bert_score import BERTScorer
    from bert_score.utils import model2layers

    if layers is None and model not in model2layers:
        raise InputError(
            f"bert-score does not know which layer of {model!r} to compare",
            field="layers",
            expected="the number of a layer",
            remedy="add -J layers=N; about two thirds up is a good start",
        )
    scorer = BERTScorer(model_type=model, num_layers=layers, device=device)
    # bert-score passes the tokenizer's own limit, which overflows if the tokenizer has none (its issue 205).
    scorer._tokenizer.model_max_length = _max_length(scorer._tokenizer, scorer._model, 512)
    return scorer


def _seq2seq(model: str, device: str) -> tuple[Any, Any]:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    network = AutoModelForSeq2SeqLM.from_pretrained(model)
    return AutoTokenizer.from_pretrained(model), network.float().to(device).eval()


def _max_length(tokenizer: Any, network: Any, default: int) -> int:
    """Maximum length of a text, in tokens; longer texts are truncated."""
    # Tokenizers without a limit state 10 ** 30.
    if tokenizer.model_max_length < 1_000_000:
        return int(tokenizer.model_max_length)
    return min(default, getattr(network.config, "max_position_embeddings", None) or default)
