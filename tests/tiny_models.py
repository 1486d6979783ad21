"""Tiny models with random or chosen weights, made on the spot, for metrics whose real ones would be fetched."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from debate_judge.programs import JUDGE_CLASSES, Preset
from debate_judge.programs.metrics import missing_packages

WORDS = ("the", "a", "cat", "dog", "mat", "sat", "ran", "on", "in", "and", "of", "is")
BART_SIDE = {"layers": 1, "attention_heads": 2, "ffn_dim": 32}
SPECIAL = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>"}


def skip_without(kind: str) -> None:
    """Skip the test, and say why, where the packages of a kind of judge are not installed."""
    module, _, name = JUDGE_CLASSES[kind].partition(":")
    missing = missing_packages(getattr(importlib.import_module(module), name).packages)
    if missing:
        pytest.skip(f"{kind} needs the extra 'metrics': {', '.join(missing)} not installed")


def with_tiny_model(preset: Preset, folder: Path) -> Preset:
    """The preset with a tiny model in place of its own, where it has one; skips where it cannot be made."""
    skip_without(preset.kind)
    if preset.kind == "bertscore":
        return Preset(preset.kind, {**preset.config, "model": str(tiny_bert(folder)), "layers": 2}, preset.summary)
    if preset.kind == "bartscore":
        return Preset(preset.kind, {**preset.config, "model": str(tiny_bart(folder))}, preset.summary)
    return preset


def tiny_bert(folder: Path) -> Path:
    """A BERT of two layers."""
    import torch
    from transformers import BertConfig, BertModel

    size = _tokenizer(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=size, max_position_embeddings=64, pad_token_id=0, **sizes)
    BertModel(config).save_pretrained(folder)
    return folder


def tiny_bart(folder: Path) -> Path:
    """A BART of one layer."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    size = _tokenizer(folder)
    torch.manual_seed(0)
    sizes = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in BART_SIDE.items()}
    tokens = {"pad_token_id": 0, "bos_token_id": 2, "decoder_start_token_id": 3, "forced_eos_token_id": 3}
    config = BartConfig(
        vocab_size=size, d_model=16, max_position_embeddings=64, init_std=0.5, eos_token_id=3, **sizes, **tokens
    )
    BartForConditionalGeneration(config).save_pretrained(folder)
    return folder


def _tokenizer(folder: Path) -> int:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    known = {token: number for number, token in enumerate((*SPECIAL.values(), *WORDS))}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token=SPECIAL["unk"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[(SPECIAL[end], known[SPECIAL[end]]) for end in ("cls", "sep")]
    )
    special = {f"{name}_token": token for name, token in SPECIAL.items()}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **special).save_pretrained(folder)
    return len(known)
