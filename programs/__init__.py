"""Judges as DSPy programs. `JUDGES` names the presets, `KINDS` the classes behind them.

Importing this package is cheap: a judge's module, and DSPy with it, is loaded when the judge is built.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from programs.judge import Judge

KINDS: Mapping[str, str] = MappingProxyType(
    {"debate": "programs.debate:Debate", "rouge-l": "programs.reference:RougeL"}
)
"""Kind -> where its class is. A new judge is one file and one line here, and one in `JUDGES`."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A judge by name, as it stands before any tuning."""

    kind: str
    config: Mapping[str, Any]
    summary: str
    searched: tuple[str, ...] = ()
    """What a search may change: any of persona, rounds, tie_breaker. The rest stays as it is here."""


def _debate(persona: str, rounds: int, tie_breaker: bool, summary: str, searched: tuple[str, ...] = ()) -> Preset:
    return Preset("debate", {"persona": persona, "rounds": rounds, "tie_breaker": tie_breaker}, summary, searched)


JUDGES: Mapping[str, Preset] = MappingProxyType(
    {
        "single": _debate("devils-advocate", 0, False, "one call of the Scorer"),
        "multiagent": _debate("plain", 3, False, "debate with a neutral Critic", ("rounds", "tie_breaker")),
        "multiagent+tiebreak": _debate("plain", 3, True, "the same, settled by the Tie-breaker", ("rounds",)),
        "rouge-l": Preset("rouge-l", {}, "ROUGE-L against references, no LM"),
        "debate": _debate(
            "devils-advocate", 3, False, "debate with a devil's advocate", ("persona", "rounds", "tie_breaker")
        ),
        "debate+tiebreak": _debate(
            "devils-advocate", 3, True, "the same, settled by the Tie-breaker", ("persona", "rounds")
        ),
    }
)


def build(kind: str, config: Mapping[str, Any]) -> Judge:
    """Make the judge of a kind.

    Raises:
        KeyError: The kind is unknown.
    """
    module, _, name = KINDS[kind].partition(":")
    judge: Judge = getattr(importlib.import_module(module), name).from_config(config)
    return judge
