"""Prices of models: from the user's table, else from LiteLLM's; None for an unknown model, never 0."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from debate_judge.data.files import reading
from debate_judge.data.files.records import Record

EXAMPLE_LM = "openai/gpt-6-luna"
"""The LM that messages and pages name as an example; not one that its provider is about to retire."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float
    cached: float
    """Input tokens that the provider served from its prefix cache."""
    output: float

    def cost(self, fresh: float, cached: float, output: float) -> float:
        """US dollars for numbers of uncached input, cached input and output tokens."""
        return (fresh * self.input + cached * self.cached + output * self.output) / 1e6


def price_of(model: str, table: Path | None = None, *, use_litellm: bool = True) -> Price | None:
    """The price of a model, or None where it is unknown.

    Args:
        model: As DSPy knows it, PROVIDER/MODEL.
        table: TOML file with a section for each model, named like `model` or without its provider:

            ["openai/gpt-6-luna"]
            input = 0.10     # US dollars per million tokens
            cached = 0.01    # like input if left out
            output = 0.50
        use_litellm: Whether to look into LiteLLM's table; its prices do not apply to a server of the user's own.

    Raises:
        InputError: The table is not TOML, or a section lacks a number or has another field.
    """
    sections = None if table is None else reading.toml(table, "table of prices")
    user_prices = {} if sections is None else {name: _read_price(sections.child(name)) for name in sections.values}
    if (price := user_prices.get(model) or user_prices.get(model.partition("/")[2])) is not None:
        return price
    info = (litellm_table().get(model) or litellm_table().get(model.partition("/")[2]) or {}) if use_litellm else {}
    if not isinstance(info.get("input_cost_per_token"), (int, float)):
        return None
    input_price, output = info["input_cost_per_token"], info.get("output_cost_per_token") or 0.0
    cached = info.get("cache_read_input_token_cost")
    return Price(1e6 * input_price, 1e6 * (input_price if cached is None else cached), 1e6 * output)


def _read_price(record: Record) -> Price:
    record.refuse_unknown_fields(("input", "cached", "output"))
    prices = {name: record.number(name) for name in ("input", "output", *record.values)}
    for name, value in prices.items():
        if value < 0:
            expected = "0 or more US dollars for a million tokens"
            raise record.error("not a price", name, expected=expected, found=value)
    return Price(prices["input"], prices.get("cached", prices["input"]), prices["output"])


@lru_cache(maxsize=1)
def litellm_table() -> dict[str, dict[str, Any]]:
    """LiteLLM's local table, without importing LiteLLM, which would take seconds and use the network."""
    spec = importlib.util.find_spec("litellm")
    if spec is None or spec.origin is None:
        return {}
    path = Path(spec.origin).with_name("model_prices_and_context_window_backup.json")
    table: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return table
