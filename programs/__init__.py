"""Judges as DSPy programs. `JUDGES` has the presets by name; any other judge is named by its `module:Class`.

Importing this package is cheap: a judge's module, and DSPy with it, is loaded when the judge is built.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from debate_judge.data.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from debate_judge.programs.judge import Judge

_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")

JUDGE_CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "debate": "debate_judge.programs.debate.judge:Debate",
        "geval": "debate_judge.programs.geval:GEval",
        "chateval": "debate_judge.programs.chateval:ChatEval",
        "hallucination": "debate_judge.programs.hallucination.judge:Hallucination",
        "hallucination-check": "debate_judge.programs.hallucination.judge:HallucinationCheck",
        "rouge-l": "debate_judge.programs.metrics:RougeL",
        "bleu": "debate_judge.programs.metrics:Bleu",
        "bertscore": "debate_judge.programs.metrics:BertScore",
        "bartscore": "debate_judge.programs.metrics:BartScore",
    }
)
"""Kind -> `module:Class` of the built-in judges; the kind of any other class is its `module:Class`."""


@dataclass(frozen=True, slots=True)
class Preset:
    """The class and the configuration of an untuned judge."""

    kind: str
    """A key of `JUDGE_CLASSES`, or `module:Class`."""
    config: Mapping[str, Any]
    """What the class's `from_config` takes."""
    summary: str
    """A one-line description."""
    dimensions: tuple[str, ...] = ()
    """What a compile searches over: any of persona, rounds, tie_breaker."""


def _debate(persona: str, rounds: int, tie_breaker: bool, summary: str, dimensions: tuple[str, ...] = ()) -> Preset:
    return Preset("debate", {"persona": persona, "rounds": rounds, "tie_breaker": tie_breaker}, summary, dimensions)


_REFEREES = ("general-public", "critic", "news-author")
"""ChatEval's default roles (section 4.1): two of them discuss in two turns (section 3.2), three are the ensemble."""


def _chateval(communication: str, turns: int, summary: str, roles: tuple[str, ...] = _REFEREES[:2]) -> Preset:
    return Preset("chateval", {"roles": list(roles), "communication": communication, "turns": turns}, summary)


JUDGES: Mapping[str, Preset] = MappingProxyType(
    {
        "single": _debate("devils-advocate", 0, False, "one call of the Scorer"),
        "multiagent": _debate("plain", 3, False, "debate with a neutral Critic", ("rounds", "tie_breaker")),
        "multiagent+tiebreak": _debate("plain", 3, True, "the same, decided by the Tie-breaker", ("rounds",)),
        "rouge-l": Preset("rouge-l", {}, "ROUGE-L against references, no LM"),
        "bleu": Preset("bleu", {}, "BLEU against references, no LM"),
        "bertscore": Preset(
            "bertscore", {"model": "roberta-large"}, "BERTScore F1 against references, with a local model"
        ),
        "bartscore": Preset(
            "bartscore", {"model": "facebook/bart-large-cnn"}, "BARTScore: likelihood by a local model"
        ),
        "debate": _debate(
            "devils-advocate", 3, False, "debate with a devil's advocate", ("persona", "rounds", "tie_breaker")
        ),
        "debate+tiebreak": _debate(
            "devils-advocate", 3, True, "the same, decided by the Tie-breaker", ("persona", "rounds")
        ),
        "geval": Preset("geval", {}, "G-Eval: derived evaluation steps, then a form with a score"),
        "chateval": _chateval("one-by-one", 2, "ChatEval: referees with different roles speak in turn"),
        "chateval-single": _chateval("none", 1, "ChatEval's single agent", ("evaluator",)),
        "chateval-ensemble": _chateval("none", 1, "ChatEval's roles without a discussion, averaged", _REFEREES),
        "chateval-simultaneous": _chateval("simultaneous", 2, "ChatEval with all speaking at once"),
        "chateval-summarizer": _chateval("summarizer", 2, "the same, with a summary of the discussion to read"),
        "chateval-compare": Preset(
            "chateval",
            {"roles": list(_REFEREES[:2]), "communication": "one-by-one", "turns": 2, "comparing": True},
            "ChatEval on pairs: two answers side by side, in both orders, by majority vote",
        ),
        "hallucination": Preset("hallucination", {"rounds": 3}, "claims, debated against evidence", ("rounds",)),
        "hallucination-verify": Preset(
            "hallucination",
            {"rounds": 0},
            "claims, verified without debate: stands in for Factool, in prompts of our own",
        ),
        "hallucination-single": Preset("hallucination-check", {}, "one call for hallucinations in the whole text"),
        "self-check-0": Preset(
            "hallucination-check", {"check": "self-check"}, "Factool's self-check: the LM's own knowledge alone"
        ),
        "self-check-3": Preset(
            "hallucination-check", {"check": "self-check", "examples": 3}, "the same, with three worked examples"
        ),
        "halueval-few-shot": Preset(
            "hallucination-check",
            {"check": "few-shot"},
            "HaluEval's few-shot check: a verdict alone, by labelled examples",
        ),
    }
)


def find_preset(name: str) -> Preset:
    """The preset `name`: a key of `JUDGES`, or `module:Class` for that class with its default configuration."""
    if name in JUDGES:
        return JUDGES[name]
    if ":" in name:
        return Preset(name, {}, (judge_class(name).__doc__ or name).partition("\n")[0])
    expected = f"one of {', '.join(JUDGES)}, or module:Class"
    remedy = did_you_mean(name, JUDGES, cutoff=0.4)
    raise InputError(f"unknown judge {name!r}", field="--judge", expected=expected, remedy=remedy)


def judge_class(kind: str) -> type[Judge]:
    """The class of a kind: a key of `JUDGE_CLASSES`, or `module:Class`. Importing its module runs the code in it."""
    from debate_judge.programs.judge import Judge

    def refusal(problem: str, remedy: str, actual: object = kind) -> InputError:
        return InputError(problem, field="--judge", expected="module:Class of a judge", found=actual, remedy=remedy)

    if kind.startswith("__main__:"):
        raise refusal("a judge in the running script cannot be imported elsewhere", "move it into a module of its own")
    judge = import_object(JUDGE_CLASSES.get(kind, kind), "--judge", "a judge", "my_package.my_module:MyJudge")
    if not isinstance(judge, type) or not issubclass(judge, Judge):
        actual = "there is no such class" if judge is None else repr(judge)
        raise refusal(f"{kind!r} is not a judge", "name a subclass of debate_judge.programs.judge.Judge", actual)
    if judge.kind != kind:
        remedy = f"use {judge.kind}" if ":" in judge.kind else f"remove the line `kind = {judge.kind!r}` from the class"
        raise refusal(f"the class at {kind!r} has another `kind`", remedy, judge.kind)
    return judge


def import_object(path: str, field: str, what: str, example: str) -> Any:
    """The object at `path`, a `module:Class`; None if the module has none. Importing the module runs the code in it.

    An error names the flag `field`, says `what` is expected and gives an `example`.
    """

    def refusal(problem: str, remedy: str) -> InputError:
        return InputError(problem, field=field, expected=f"module:Class of {what}", found=path, remedy=remedy)

    module, _, name = path.partition(":")
    if not _MODULE.fullmatch(module) or not name.isidentifier():
        raise refusal(f"not the import path of {what}", f"write it like {example}")
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        remedy = "install it, or set PYTHONPATH to the folder that it is in"
        raise refusal(f"the module {module!r} cannot be imported: {error}", remedy) from error


def build(kind: str, config: Mapping[str, Any]) -> Judge:
    """Make a judge of a kind from its configuration."""
    return judge_class(kind).from_config(config)


def options_of(name: str) -> tuple[str, ...]:
    """Names of the options that a user may set for a preset."""
    return judge_class(find_preset(name).kind).settable


def build_preset(name: str, options: Mapping[str, Any]) -> Judge:
    """Make the judge of a preset (see `find_preset`) with the options that the user set."""
    settable, preset = options_of(name), find_preset(name)
    for option, value in options.items():
        if option not in settable:
            raise InputError(
                f"the judge {name!r} has no option {option!r}",
                field="-J",
                expected=f"one of {', '.join(settable)}" if settable else "no options for this judge",
                found=f"{option}={value}",
                remedy=did_you_mean(option, settable),
            )
    try:
        return build(preset.kind, {**preset.config, **options})
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"the judge {name!r} cannot be made: {error!r}",
            field="--judge",
            expected="a class whose `from_config` takes {} and the options in `settable`",
            found=dict(options),
        ) from error
