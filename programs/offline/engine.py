"""The embedded offline LM: a transport that answers the project's prompts by text statistics.

With it everything runs without a key and a network: debates, compilation, scoring, tests. Every reply says that it is a
stand-in. It uses only the messages of a call, has no state, and gives equal replies to equal prompts in every process.

What it measures: how closely the words follow the source and in which order, repetition, ungrammatical word pairs,
numbers that are not in the source, and whether the source's most frequent early words occur; in a reply of a
conversation how specific and how varied the words are, talk of oneself, words shared with the conversation and the fact
(`programs.offline.features`). So paraphrase lowers the score of a summary; negation, exchanged roles ("X sued Y") and
world knowledge are not considered at all. Its agreement with raters says nothing about a language model's.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

from debate_judge.programs.lm.reply import LocalTransport, Reply
from debate_judge.programs.offline import other_roles
from debate_judge.programs.offline import roles as offline_roles
from debate_judge.programs.offline import tuning as offline_tuning
from debate_judge.programs.offline.roles import NOTHING, Prompt, parse, render

MODEL = "offline/text-statistics-5"
"""The model string, which is part of the keys of calls: raise the number whenever a reply changes."""

RoleFunction = Callable[[Prompt], dict[str, str]]

ROLE_FUNCTIONS: Mapping[str, RoleFunction] = MappingProxyType(
    {
        "feedback": offline_roles.criticise,
        "case_for_less": offline_roles.argue_both_sides,
        "final_score": offline_roles.break_tie,
        "score": offline_roles.score,
        "score_1": other_roles.compare,
        "steps": other_roles.derive_steps,
        "summary": other_roles.summarize,
        "facts": other_roles.select_facts,
        "claims": other_roles.extract_claims,
        "query_1": other_roles.write_queries,
        "factuality": other_roles.check_claim,
        "guide": offline_tuning.write_guide,
        "persona": offline_tuning.write_persona,
        "module_advice": offline_tuning.advise,
    }
)
"""Requested field -> the function of the role that has it. Requests for instructions are recognised by that word in a
field's name; all other fields get values by their type."""


def complete_fields(prompt: Prompt, known: Mapping[str, str]) -> dict[str, str]:
    """Requested field -> its value: those of `role_fields`, and those of all others by their types."""
    return {**known, **{name: value_for(prompt, name) for name in prompt.outputs if not known.get(name)}}


def role_fields(prompt: Prompt) -> dict[str, str]:
    """Requested field -> its value, for the fields of known roles; a reply without fields has the key ""."""
    if prompt.input("candidates"):
        return offline_roles.reply_for_each(prompt, role_fields)
    role_function = next((ROLE_FUNCTIONS[name] for name in prompt.outputs if name in ROLE_FUNCTIONS), None)
    if role_function is not None:
        return role_function(prompt)
    if any("instruction" in name for name in prompt.outputs):
        return offline_tuning.propose(prompt)
    if prompt.outputs:
        return {}
    wants_instructions = "new instruction" in prompt.user and "```" in prompt.user
    return offline_tuning.propose(prompt) if wants_instructions else {"": NOTHING}


class OfflineTransport(LocalTransport):
    """The offline LM as a transport of `programs.lm.client.JudgeLM`; of a call's settings only `logprobs` matters."""

    def answer(self, system: str, user: str, settings: Mapping[str, Any]) -> Reply:
        prompt = parse(system, user)
        fields, value = complete_fields(prompt, role_fields(prompt)), None
        if settings.get("logprobs") and "score" in prompt.outputs:
            value = float(fields["score"])
            fields["score"] = f"{round(value)}"
        text = render(prompt, fields)
        logprobs = None if value is None else score_logprobs(text, fields["score"], value)
        # Four characters count as a token.
        return Reply(text, (len(system) + len(user)) // 4, len(text) // 4, logprobs=logprobs)


def score_logprobs(text: str, written: str, value: float) -> list[list[tuple[str, float]]]:
    """Log-probabilities of a reply that ends with the whole number `written`, whose mean over the points is `value`."""
    start = text.rindex(written)
    low = math.floor(value)
    weights = {str(low): 1 - (value - low), str(low + 1): value - low}
    points = [(point, math.log(weight)) for point, weight in weights.items() if weight > 0]
    points.sort(key=lambda point: point[0] != written)
    rest = text[start + len(written) :]
    return [[(text[:start], 0.0)], [*points], *([[(rest, 0.0)]] if rest else [])]


# --- other fields ---

# Judges and tuners of users may request any field. Its type and description in the prompt determine the kind of its
# value: one of several choices, a number on a scale, yes or no, a list, a mapping, or a text. If there is a candidate,
# the value depends on its measured merit, except for lists and mappings.

FieldKind = Literal["choice", "number", "flag", "list", "mapping", "text"]

_NUMBER = re.compile(r"\b(?:number|score|rating|grade|percentage|probability)\b", re.IGNORECASE)
_SCALE = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:to|-|–|and)\s*(-?\d+(?:\.\d+)?)")
_FLAG = re.compile(r"\W*(?:true or false|yes or no)\b", re.IGNORECASE)
_WORDS = r"[\w'-]+(?: [\w'-]+)?"
_ALTERNATIVES = re.compile(rf"(?:one of:? |either )?({_WORDS}(?:, {_WORDS})*),? or ({_WORDS})")
_SUFFIX = re.compile(r"[,;]? (?:and nothing else|only)\W*$")


def field_kind(type_name: str, description: str) -> FieldKind:
    """The kind of value for a field with this type and description in the prompt."""
    if type_name in ("int", "float"):
        return "number"
    if type_name == "bool":
        return "flag"
    if type_name.startswith("Literal["):
        return "choice"
    if type_name != "str":
        return "list" if type_name.startswith("list") else "mapping"
    if _FLAG.match(description):
        return "flag"
    if _choices(type_name, description):
        return "choice"
    first = re.split(r"[:;.]", description, maxsplit=1)[0]
    numeric = _NUMBER.search(first) and (_SCALE.search(first) or re.search(r"\bone\b|scale", first))
    return "number" if numeric else "text"


def is_free_text(prompt: Prompt, name: str) -> bool:
    """Whether a requested field is free text."""
    return field_kind(prompt.outputs[name], prompt.descriptions.get(name, "")) == "text"


def value_for(prompt: Prompt, name: str) -> str:
    """A value for the requested field `name`."""
    type_name, description = prompt.outputs[name], prompt.descriptions.get(name, "")
    kind = field_kind(type_name, description)
    if kind in ("list", "mapping"):
        texts = [NOTHING] if type_name in ("list", "list[str]") and prompt.input("candidate") else []
        return json.dumps(texts) if kind == "list" else "{}"
    if not prompt.input("candidate"):
        defaults = {"number": "0" if type_name == "int" else "0.0", "flag": "False", "text": NOTHING}
        return defaults.get(kind) or _choices(type_name, description)[0]
    assessment = offline_roles.assessment_of(prompt)
    merit = assessment.merit()
    if kind == "text":
        return assessment.reasons()
    if kind == "flag":
        positive, negative = ("yes", "no") if "yes" in description.lower() else ("True", "False")
        return positive if merit >= 0.5 else negative
    if kind == "choice":
        choices = _choices(type_name, description)
        return choices[min(int(merit * len(choices)), len(choices) - 1)]
    scale = _SCALE.search(description)
    low, high = (float(scale[1]), float(scale[2])) if scale else (assessment.question.low, assessment.question.high)
    value = low + (high - low) * merit
    is_integer = type_name == "int" or "whole" in description or offline_roles.score_step(prompt.role) == 1
    return f"{value:.0f}" if is_integer else f"{value:.3g}"


def _choices(type_name: str, description: str) -> list[str]:
    if type_name.startswith("Literal["):
        return [str(choice) for choice in ast.literal_eval(f"[{type_name[8:-1]}]")]
    match = _ALTERNATIVES.fullmatch(_SUFFIX.sub("", description.strip()))
    return [*match[1].split(", "), match[2]] if match else []
