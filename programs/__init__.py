"""Judges as DSPy programs. `JUDGES` names the presets; a new judge is one file and one line there.

Importing this package is cheap: a judge's module, and DSPy with it, is loaded when the judge is built.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from debate_judge.data.errors import InputError

if TYPE_CHECKING:
    from debate_judge.programs.judge import Judge

_SHARED: Mapping[str, str] = MappingProxyType(
    {
        "debate": "debate_judge.programs.debate.judge:Debate",
        "chateval": "debate_judge.programs.chateval.judge:ChatEval",
        "hallucination": "debate_judge.programs.hallucination.judge:Hallucination",
        "hallucination-check": "debate_judge.programs.hallucination.baselines:HallucinationCheck",
    }
)
"""Kind -> where its class is, for those that several presets share."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A judge by name, as it stands before any tuning."""

    kind: str
    config: Mapping[str, Any]
    summary: str
    searched: tuple[str, ...] = ()
    """What a search may change: any of persona, rounds, tie_breaker. The rest stays as it is here."""
    where: str = ""
    """`module:Class` of the kind, where no other preset has it."""


def _debate(persona: str, rounds: int, tie_breaker: bool, summary: str, searched: tuple[str, ...] = ()) -> Preset:
    return Preset("debate", {"persona": persona, "rounds": rounds, "tie_breaker": tie_breaker}, summary, searched)


_REFEREES = ("general-public", "critic", "news-author")
"""The roles that ChatEval has by default (section 4.1)."""


def _chateval(communication: str, turns: int, summary: str, roles: tuple[str, ...] = _REFEREES) -> Preset:
    return Preset("chateval", {"roles": list(roles), "communication": communication, "turns": turns}, summary)


JUDGES: Mapping[str, Preset] = MappingProxyType(
    {
        "single": _debate("devils-advocate", 0, False, "one call of the Scorer"),
        "multiagent": _debate("plain", 3, False, "debate with a neutral Critic", ("rounds", "tie_breaker")),
        "multiagent+tiebreak": _debate("plain", 3, True, "the same, settled by the Tie-breaker", ("rounds",)),
        "rouge-l": Preset(
            "rouge-l", {}, "ROUGE-L against references, no LM", where="debate_judge.programs.metrics.overlap:RougeL"
        ),
        "bleu": Preset(
            "bleu", {}, "BLEU against references, no LM", where="debate_judge.programs.metrics.overlap:Bleu"
        ),
        "bertscore": Preset(
            "bertscore",
            {"model": "roberta-large"},
            "BERTScore F1 against references, a model's own",
            where="debate_judge.programs.metrics.learned:BertScore",
        ),
        "bartscore": Preset(
            "bartscore",
            {"model": "facebook/bart-large-cnn"},
            "BARTScore: likelihood by a model",
            where="debate_judge.programs.metrics.learned:BartScore",
        ),
        "debate": _debate(
            "devils-advocate", 3, False, "debate with a devil's advocate", ("persona", "rounds", "tie_breaker")
        ),
        "debate+tiebreak": _debate(
            "devils-advocate", 3, True, "the same, settled by the Tie-breaker", ("persona", "rounds")
        ),
        "geval": Preset(
            "geval",
            {"score_mode": "text"},
            "G-Eval: derived evaluation steps, then a form with a score",
            where="debate_judge.programs.geval.judge:GEval",
        ),
        "chateval": _chateval("one-by-one", 2, "ChatEval: referees with different roles speak in turn"),
        "chateval-single": _chateval("none", 1, "ChatEval's single agent", ("evaluator",)),
        "chateval-ensemble": _chateval("none", 1, "ChatEval's roles without talk, averaged"),
        "chateval-simultaneous": _chateval("simultaneous", 2, "ChatEval with all speaking at once"),
        "chateval-summarizer": _chateval("summarizer", 2, "the same, who hear a summary of what was said"),
        "chateval-same-role": _chateval("one-by-one", 2, "ChatEval with one role for all", ("annotator",) * 3),
        "chateval-compare": Preset(
            "chateval",
            {"roles": list(_REFEREES), "communication": "one-by-one", "turns": 2, "comparing": True},
            "ChatEval on pairs: two answers side by side, in both orders, by majority vote",
        ),
        "hallucination": Preset("hallucination", {"rounds": 3}, "claims, debated against evidence", ("rounds",)),
        "hallucination-verify": Preset("hallucination", {"rounds": 0}, "claims, verified without debate"),
        "hallucination-single": Preset("hallucination-check", {}, "one call for hallucinations in the whole text"),
        "hallucination-selfcheck0": Preset("hallucination-check", {"self_check": True}, "the LM's own knowledge alone"),
        "hallucination-selfcheck3": Preset(
            "hallucination-check", {"self_check": True, "examples": 3}, "the same, with three worked examples"
        ),
    }
)


def kinds(judges: Mapping[str, Preset]) -> dict[str, str]:
    """Kind -> where its class is, `module:Class`."""
    return {**_SHARED, **{preset.kind: preset.where for preset in judges.values() if preset.where}}


KINDS: Mapping[str, str] = MappingProxyType(kinds(JUDGES))
"""Kind -> where its class is."""


def build(kind: str, config: Mapping[str, Any]) -> Judge:
    """Make the judge of a kind.

    Raises:
        KeyError: The kind is unknown.
    """
    judge: Judge = _class(kind).from_config(config)
    return judge


def options_of(name: str) -> tuple[str, ...]:
    """What a user may set about the preset `name`."""
    return _class(JUDGES[name].kind).settable


def preset(name: str, options: Mapping[str, Any]) -> Judge:
    """Make the judge of the preset `name`, with what the user set.

    Raises:
        KeyError: There is no such preset.
        InputError: The judge has no such option, or the option has no such value.
    """
    known = options_of(name)
    for option, value in options.items():
        if option not in known:
            raise InputError(
                f"the judge {name!r} has no option {option!r}",
                field="--judge-option",
                expected=f"one of {', '.join(known)}" if known else "no options for this judge",
                found=f"{option}={value}",
            )
    return build(JUDGES[name].kind, {**JUDGES[name].config, **options})


def _class(kind: str) -> type[Judge]:
    module, _, name = KINDS[kind].partition(":")
    found: type[Judge] = getattr(importlib.import_module(module), name)
    return found
