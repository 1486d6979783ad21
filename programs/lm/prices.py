"""What tokens cost: the user's table first, then the one that LiteLLM brings along. Unknown is not free."""

from __future__ import annotations

import importlib.util
import json
import math
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens."""

    input: float
    cached: float
    """Input tokens that the provider served from its prefix cache."""
    output: float

    def of(self, fresh: float, cached: float, output: float) -> float:
        """US dollars for so many tokens of each kind."""
        return (fresh * self.input + cached * self.cached + output * self.output) / 1e6

    def batch(self) -> Price:
        """The price in a batch job: half. Not every model is given a discount on cached input there, so none counts."""
        return Price(self.input / 2, self.input / 2, self.output / 2)


def price_of(model: str, table: Path | None = None, *, listed: bool = True) -> Price | None:
    """The price of a model, or None where nobody has said one.

    Args:
        model: As DSPy knows it, PROVIDER/MODEL.
        table: TOML file with a section for each model, named like `model` or without its provider:

            ["openai/gpt-4o-mini"]
            input = 0.15     # US dollars for a million tokens
            cached = 0.075   # like input if left out
            output = 0.60
        listed: Whether to look into LiteLLM's table, which is no help for a server of one's own.

    Raises:
        InputError: The table cannot be read.
    """
    names = (model, model.partition("/")[2])
    own = {} if table is None else read_prices(table)
    for name in names:
        if name in own:
            return own[name]
    if listed:
        for name in names:
            info = _listed().get(name) or {}
            if isinstance(info.get("input_cost_per_token"), (int, float)):
                first, output = info["input_cost_per_token"], info.get("output_cost_per_token") or 0.0
                cached = info.get("cache_read_input_token_cost")
                return Price(1e6 * first, 1e6 * (first if cached is None else cached), 1e6 * output)
    return None


def read_prices(path: Path) -> dict[str, Price]:
    """Read a table of prices.

    Raises:
        InputError: It is no TOML, or a section lacks a number or has something else.
    """
    try:
        sections = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError("prices could not be read", file=path, expected="a TOML file", found=str(error)) from error
    return {model: _price(path, model, section) for model, section in sections.items()}


def _price(path: Path, model: str, section: object) -> Price:
    if not isinstance(section, dict) or not {"input", "output"} <= set(section) <= {"input", "cached", "output"}:
        raise InputError(
            "not a price",
            file=path,
            field=model,
            expected="input and output, and cached if it differs, in US dollars for a million tokens",
            found=section,
        )
    for name, value in section.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise InputError("not a price", file=path, field=f"{model}.{name}", expected="0 or more", found=value)
    first = float(section["input"])
    return Price(first, float(section.get("cached", first)), float(section["output"]))


@lru_cache(maxsize=1)
def _listed() -> dict[str, dict[str, Any]]:
    """LiteLLM's local table, without importing LiteLLM, which would take seconds and ask the network."""
    spec = importlib.util.find_spec("litellm")
    if spec is None or spec.origin is None:
        return {}
    path = Path(spec.origin).with_name("model_prices_and_context_window_backup.json")
    try:
        table: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return table
