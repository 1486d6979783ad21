"""The embedded offline LM: a transport that answers the project's prompts by text statistics.

With it everything runs without a key and a network. It uses only the messages of a call, has no state, and gives equal
replies to equal prompts in every process; every reply says that it is a stand-in. Paraphrase lowers the score of a
summary; negation, exchanged roles ("X sued Y") and world knowledge are not considered at all. Its agreement with raters
says nothing about a language model's.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

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


# --- other fields: judges and tuners of users may request any ---

_ALTERNATIVES = re.compile(r"([\w'-]+) or ([\w'-]+)(?:,? (?:and nothing else|only))?\W*")
_SCALE = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:to|-|–|and)\s*(-?\d+(?:\.\d+)?)")


def is_free_text(prompt: Prompt, name: str) -> bool:
    """Whether a requested field is free text."""
    return prompt.outputs[name] == "str" and not _choices("str", prompt.descriptions.get(name, ""))


def value_for(prompt: Prompt, name: str) -> str:
    """A value of the field's type, which depends on the candidate's merit; lists and mappings are empty."""
    type_name, description = prompt.outputs[name], prompt.descriptions.get(name, "")
    assessment = offline_roles.assessment_of(prompt)
    merit = assessment.merit() if prompt.input("candidate") else 0.0
    choices = _choices(type_name, description)
    if choices:
        return choices[min(int(merit * len(choices)), len(choices) - 1)]
    if type_name in ("int", "float"):
        scale = _SCALE.search(description)
        low, high = map(float, scale.groups()) if scale else (assessment.question.low, assessment.question.high)
        value = low + (high - low) * merit
        return f"{value:.0f}" if type_name == "int" else f"{value:.3g}"
    if type_name == "str":
        return assessment.reasons() if prompt.input("candidate") else NOTHING
    return "[]" if type_name.startswith("list") else "{}"


def _choices(type_name: str, description: str) -> list[str]:
    """The values of a field that has few, the one for the lowest merit first."""
    if type_name.startswith("Literal["):
        return [str(choice) for choice in ast.literal_eval(f"[{type_name[8:-1]}]")]
    match = _ALTERNATIVES.fullmatch(description.strip())
    found = ["False", "True"] if type_name == "bool" else [*match.groups()] if type_name == "str" and match else []
    return found[::-1] if found[:1] == ["yes"] else found
