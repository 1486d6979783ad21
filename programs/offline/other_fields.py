"""The offline LM's values for fields that it does not know by name: any value of the field's type.

Own judges and tuners may ask for any field. Its type and description in the prompt determine what fits: one of several
choices, a number on a scale, yes or no, a list, or a text. If there is a candidate, the value follows its measured
merit, except for lists and mappings.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Literal

from debate_judge.programs.offline import prompt as offline_prompt
from debate_judge.programs.offline.prompt import Prompt
from debate_judge.programs.offline.roles import case_of, step_of

Shape = Literal["choice", "number", "flag", "list", "mapping", "text"]

_NUMBER = re.compile(r"\b(?:number|score|rating|grade|percentage|probability)\b", re.IGNORECASE)
_SCALE = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:to|-|–|and)\s*(-?\d+(?:\.\d+)?)")
_FLAG = re.compile(r"\W*(?:true or false|yes or no)\b", re.IGNORECASE)
_WORDS = r"[\w'-]+(?: [\w'-]+)?"
_EITHER = re.compile(rf"(?:one of:? |either )?({_WORDS}(?:, {_WORDS})*),? or ({_WORDS})")
_ENDING = re.compile(r"[,;]? (?:and nothing else|only)\W*$")


def shape_of(kind: str, told: str) -> Shape:
    """The kind of value that fits into a field.

    Args:
        kind: Its type as written in the prompt; `str` if there is none.
        told: Its description; empty if there is none.
    """
    if kind in ("int", "float"):
        return "number"
    if kind == "bool":
        return "flag"
    if kind != "str":
        found: Shape = "choice" if kind.startswith("Literal[") else "list" if kind.startswith("list") else "mapping"
        return found
    if _FLAG.match(told):
        return "flag"
    if _choices(kind, told):
        return "choice"
    first = re.split(r"[:;.]", told, maxsplit=1)[0]
    numeric = _NUMBER.search(first) and (_SCALE.search(first) or re.search(r"\bone\b|scale", first))
    return "number" if numeric else "text"


def is_text(prompt: Prompt, name: str) -> bool:
    """Whether a requested field is free text."""
    return shape_of(prompt.outputs[name], prompt.descriptions.get(name, "")) == "text"


def fill(prompt: Prompt, name: str) -> str:
    """A value for the requested field `name`."""
    kind, told = prompt.outputs[name], prompt.descriptions.get(name, "")
    shape = shape_of(kind, told)
    if shape in ("list", "mapping"):
        texts = [offline_prompt.NOTHING] if kind in ("list", "list[str]") and prompt.input("candidate") else []
        return json.dumps(texts) if shape == "list" else "{}"
    if not prompt.input("candidate"):
        plain = {"number": "0" if kind == "int" else "0.0", "flag": "False", "text": offline_prompt.NOTHING}
        return plain.get(shape) or _choices(kind, told)[0]
    case = case_of(prompt)
    merit = case.merit()
    if shape == "text":
        return case.reasons()
    if shape == "flag":
        yes, no = ("yes", "no") if "yes" in told.lower() else ("True", "False")
        return yes if merit >= 0.5 else no
    if shape == "choice":
        choices = _choices(kind, told)
        return choices[min(int(merit * len(choices)), len(choices) - 1)]
    scale = _SCALE.search(told)
    low, high = (float(scale[1]), float(scale[2])) if scale else (case.question.low, case.question.high)
    value = low + (high - low) * merit
    return f"{value:.0f}" if kind == "int" or "whole" in told or step_of(prompt.role) == 1 else f"{value:.3g}"


def _choices(kind: str, told: str) -> list[str]:
    if kind.startswith("Literal["):
        return [str(choice) for choice in ast.literal_eval(f"[{kind[8:-1]}]")]
    either = _EITHER.fullmatch(_ENDING.sub("", told.strip()))
    return [*either[1].split(", "), either[2]] if either else []
