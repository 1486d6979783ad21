"""How the offline LM reads a request and writes a reply: this project's prompts, and DSPy's Chat and JSON prompts.

Only the messages count. What is not in them is lost to it, as it would be to any LM.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache

from debate_judge.programs.offline.rubric import Kind
from debate_judge.programs.roles.parsing import REQUEST
from debate_judge.programs.roles.preamble import TASK

OURS = f"\n\n{REQUEST}"
"""What stands between the material and the fields to fill in (programs/roles/adapter.py)."""

SCORER = "You are the Scorer."
"""The role of whoever was told all else with the panel."""

_THEIRS = "\n\nRespond with "
_OUTPUT_LIST = re.compile(r"^\d+\. `(\w+)` \((.*?)\):", re.MULTILINE)
_ASPECT = re.compile(r"(.*?) \((-?[\d.e+-]+) to (-?[\d.e+-]+), \S+ worst, \S+ best\): ", re.DOTALL)
_DIALOGUE = ("dialog", "conversation", "reply", "chat", "utterance")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request, taken apart."""

    inputs: dict[str, str]
    role: str
    """The instructions of whoever is asked to speak."""
    outputs: dict[str, str]
    """Requested field -> its type as written in the prompt; `str` where none is written. Empty for plain prompts."""
    json: bool
    user: str

    def input(self, name: str) -> str:
        return self.inputs.get(name, "")


@dataclass(frozen=True, slots=True)
class JudgedQuestion:
    """What is to be judged, and on which scale."""

    kind: Kind
    aspect: str
    low: float
    high: float


def parse(system: str, user: str) -> Prompt:
    """Take a request apart."""
    material, ours, requested = user.rpartition(OURS)
    if ours:
        inputs = _sections(material)
        outputs = dict.fromkeys(_sections(requested), "str")
        return Prompt(inputs, _role(inputs), outputs, False, user)
    _, listed, after = system.partition("Your output fields are:")
    fields, _, rest = after.partition("\nAll interactions will be structured")
    objective = rest.partition("your objective is:")[2].strip()
    body = user.rpartition(_THEIRS)[0] if _THEIRS in user else user
    outputs = dict(_OUTPUT_LIST.findall(fields)) if listed else {}
    wants_json = bool(outputs) and "Outputs will be a JSON object" in rest
    return Prompt(_sections(body), objective, outputs, wants_json, user)


def _role(inputs: dict[str, str]) -> str:
    """What the speaker is told: at the end of the prompt, or of what the whole panel is told."""
    role = inputs.get("role", "")
    return inputs.get("panel", "").partition(TASK)[2] if role == SCORER else role


def _sections(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in ("\n" + text).split("\n[[ ## ")[1:]:
        name, marker, value = part.partition(" ## ]]")
        if marker:
            found.setdefault(name, value.strip())
    return found


def question(prompt: Prompt) -> JudgedQuestion:
    """Read kind, aspect and scale. A context makes a conversation of anything: it is what the answer may draw on."""
    return _question(prompt.input("task"), prompt.input("aspect"), bool(prompt.input("context")))


@lru_cache(maxsize=256)
def _question(task: str, aspect: str, context: bool) -> JudgedQuestion:
    kind: Kind = "dialogue" if context or any(word in task.lower() for word in _DIALOGUE) else "summary"
    match = _ASPECT.match(aspect)
    if match is None:
        return JudgedQuestion(kind, aspect, 1.0, 5.0)
    return JudgedQuestion(kind, match[1], float(match[2]), float(match[3]))


def render(prompt: Prompt, fields: dict[str, str]) -> str:
    """Write the requested fields in the requested form; what nobody filled gets a harmless value of its type."""
    if not prompt.outputs:
        return next(iter(fields.values()), "")
    filled = {name: fields.get(name) or _filler(kind) for name, kind in prompt.outputs.items()}
    if prompt.json:
        return json.dumps({n: _typed(v, prompt.outputs[n]) for n, v in filled.items()}, ensure_ascii=False)
    sections = [f"[[ ## {name} ## ]]\n{text}" for name, text in filled.items()]
    return "\n\n".join([*sections, "[[ ## completed ## ]]"])


NOTHING = "Nothing to say: this offline stand-in for an LM only computes text statistics."


def _filler(kind: str) -> str:
    if kind.startswith("Literal["):
        return kind[8:-1].split(",")[0].strip().strip("'\"")
    simple = {"bool": "False", "int": "0", "float": "0.0"}
    if kind in simple:
        return simple[kind]
    return "[]" if kind.startswith("list") else "{}" if kind.startswith("dict") else NOTHING


def _typed(text: str, kind: str) -> object:
    if kind == "str":
        return text
    if kind == "bool":
        return text == "True"
    try:
        return json.loads(text)
    except ValueError:
        return text
