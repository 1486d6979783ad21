"""The embedded offline LM: an engine that answers the project's prompts by text statistics.

It lets everything run without a key and without a network: debates, compilation, scoring, tests. Every reply says that
it is a stand-in. It reads only the messages it is sent, keeps nothing between calls, and gives equal answers to equal
prompts in every process.

What it measures. In a text made from a source (a summary): how closely the words follow the source and in which order,
repetition, truncated sentences, ungrammatical word pairs, numbers that are not in the source, and whether the source's
most frequent early words occur. In a reply of a conversation: how specific and how varied the words are, stock phrases
such as `I think`, run-on clauses, words in common with the conversation and with the fact.

What it misses. Paraphrase lowers the score of a summary, because faithfulness and fluency are measured by copying;
negation, exchanged roles ("X sued Y") and knowledge of the world are not recognised at all. Naturalness and
understandability of a reply are little more than length, variety and self-talk: they separate human replies from
machine replies, but hardly rank machine replies among each other (Spearman 0.1 to 0.2 there, against 0.7 for
groundedness). Measured agreement is partly due to recognising how systems write.

Agreement with the raters, on the half of the sources on which the features were chosen, so that the figures are too
high (summary level, mean over four aspects; strict devil's advocate; by the number of rounds n):

                                        n=0        n=1        n=2        n=3        tie-breaker
    SummEval, Spearman / tau-b          .31/.27    .36/.30    .42/.36    .47/.39    .48/.40
    Topical-Chat, Pearson / Spearman    .61/.58    .67/.63    .69/.64    .70/.65    .71/.67

On QAGS, which has other sources and systems, all features for consistency together reach a pooled Pearson correlation
of .47 on summaries of CNN/DM and .20 on the far more abstractive ones of XSum.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

from debate_judge.programs.lm.local_engine import LocalEngine
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.offline import other_roles
from debate_judge.programs.offline import roles as offline_roles
from debate_judge.programs.offline import tuning as offline_tuning
from debate_judge.programs.offline.roles import NOTHING, Prompt, parse, render

MODEL = "offline/text-statistics-3"
"""The model string, which is part of cache keys: raise the number whenever an answer changes."""

Speaker = Callable[[Prompt], dict[str, str]]

SPEAKERS: Mapping[str, Speaker] = MappingProxyType(
    {
        "decision": offline_roles.criticise,
        "final_score": offline_roles.break_tie,
        "score": offline_roles.score,
        "decisions": other_roles.criticise_table,
        "final_scores": other_roles.break_ties,
        "scores": other_roles.score_table,
        "score_1": other_roles.compare,
        "steps": other_roles.derive_steps,
        "summary": other_roles.sum_up,
        "facts": other_roles.select_facts,
        "claims": other_roles.extract_claims,
        "query_1": other_roles.write_queries,
        "factuality": other_roles.assess,
        "guide": offline_tuning.write_guide,
        "persona": offline_tuning.write_persona,
        "module_advice": offline_tuning.advise,
    }
)
"""Requested field -> the function that answers. Requests for instructions are recognised by that word in a field's
name; all other fields are filled in by their type."""


def fill_in(prompt: Prompt, known: Mapping[str, str]) -> dict[str, str]:
    """Requested field -> its value, from the `known_fields` of the prompt and by the types of the others."""
    if prompt.input("candidates"):
        return dict(known)
    return {**known, **{name: fill(prompt, name) for name in prompt.outputs if not known.get(name)}}


def known_fields(prompt: Prompt) -> dict[str, str]:
    """Requested field -> its value, for the fields whose names it knows; a reply without fields has the name ""."""
    speak = next((SPEAKERS[name] for name in prompt.outputs if name in SPEAKERS), None)
    if speak is not None:
        return speak(prompt)
    if any("instruction" in name for name in prompt.outputs):
        return offline_tuning.propose(prompt)
    if prompt.outputs:
        return {}
    wanted = "new instruction" in prompt.user and "```" in prompt.user
    return offline_tuning.propose(prompt) if wanted else {"": NOTHING}


class OfflineEngine(LocalEngine):
    """The stand-in as an engine of `programs.lm.client.JudgeLM`; it ignores the settings of calls."""

    def answer(self, system: str, user: str, settings: Mapping[str, Any]) -> Reply:
        prompt = parse(system, user)
        text = render(prompt, fill_in(prompt, known_fields(prompt)))
        # A token is counted as four characters.
        return Reply(text, (len(system) + len(user)) // 4, len(text) // 4)


# --- fields that it does not know by name ---

# Own judges and tuners may ask for any field. Its type and description in the prompt determine what fits: one of
# several choices, a number on a scale, yes or no, a list, or a text. If there is a candidate, the value follows its
# measured merit, except for lists and mappings.

Shape = Literal["choice", "number", "flag", "list", "mapping", "text"]

_NUMBER = re.compile(r"\b(?:number|score|rating|grade|percentage|probability)\b", re.IGNORECASE)
_SCALE = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:to|-|–|and)\s*(-?\d+(?:\.\d+)?)")
_FLAG = re.compile(r"\W*(?:true or false|yes or no)\b", re.IGNORECASE)
_WORDS = r"[\w'-]+(?: [\w'-]+)?"
_EITHER = re.compile(rf"(?:one of:? |either )?({_WORDS}(?:, {_WORDS})*),? or ({_WORDS})")
_ENDING = re.compile(r"[,;]? (?:and nothing else|only)\W*$")


def shape_of(kind: str, description: str) -> Shape:
    """The kind of value that fits into a field with this type and description in the prompt."""
    if kind in ("int", "float"):
        return "number"
    if kind == "bool":
        return "flag"
    if kind != "str":
        typed: Shape = "choice" if kind.startswith("Literal[") else "list" if kind.startswith("list") else "mapping"
        return typed
    if _FLAG.match(description):
        return "flag"
    if _choices(kind, description):
        return "choice"
    first = re.split(r"[:;.]", description, maxsplit=1)[0]
    numeric = _NUMBER.search(first) and (_SCALE.search(first) or re.search(r"\bone\b|scale", first))
    return "number" if numeric else "text"


def is_text(prompt: Prompt, name: str) -> bool:
    """Whether a requested field is free text."""
    return shape_of(prompt.outputs[name], prompt.descriptions.get(name, "")) == "text"


def fill(prompt: Prompt, name: str) -> str:
    """A value for the requested field `name`."""
    kind, description = prompt.outputs[name], prompt.descriptions.get(name, "")
    shape = shape_of(kind, description)
    if shape in ("list", "mapping"):
        texts = [NOTHING] if kind in ("list", "list[str]") and prompt.input("candidate") else []
        return json.dumps(texts) if shape == "list" else "{}"
    if not prompt.input("candidate"):
        plain = {"number": "0" if kind == "int" else "0.0", "flag": "False", "text": NOTHING}
        return plain.get(shape) or _choices(kind, description)[0]
    case = offline_roles.case_of(prompt)
    merit = case.merit()
    if shape == "text":
        return case.reasons()
    if shape == "flag":
        yes, no = ("yes", "no") if "yes" in description.lower() else ("True", "False")
        return yes if merit >= 0.5 else no
    if shape == "choice":
        choices = _choices(kind, description)
        return choices[min(int(merit * len(choices)), len(choices) - 1)]
    scale = _SCALE.search(description)
    low, high = (float(scale[1]), float(scale[2])) if scale else (case.question.low, case.question.high)
    value = low + (high - low) * merit
    whole = kind == "int" or "whole" in description or offline_roles.step_of(prompt.role) == 1
    return f"{value:.0f}" if whole else f"{value:.3g}"


def _choices(kind: str, description: str) -> list[str]:
    if kind.startswith("Literal["):
        return [str(choice) for choice in ast.literal_eval(f"[{kind[8:-1]}]")]
    either = _EITHER.fullmatch(_ENDING.sub("", description.strip()))
    return [*either[1].split(", "), either[2]] if either else []
