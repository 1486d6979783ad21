"""Parses the prompts that the offline LM gets, this project's and DSPy's Chat and JSON prompts, and writes its replies.

Like any LM, it knows only what is in the messages.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache

from debate_judge.programs.offline.rubric import Kind
from debate_judge.programs.roles.parsing import REQUEST

OURS = f"\n\n{REQUEST}"
"""The text between the material and the requested fields (programs/roles/adapter.py)."""

_THEIRS = "\n\nRespond with "
_OUTPUT_LIST = re.compile(r"^\d+\. `(\w+)` \((.*?)\):(.*)", re.MULTILINE)
_TYPE = re.compile(r" \(((?:Literal|list|dict)\b.*|int|float|bool)\)\Z", re.DOTALL)
_ASPECT = re.compile(r"(.*?) \((-?[\d.e+-]+) to (-?[\d.e+-]+), \S+ worst, \S+ best\): ", re.DOTALL)
_DIALOGUE = ("dialog", "conversation", "reply", "chat", "utterance")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A parsed prompt."""

    inputs: dict[str, str]
    """Input field -> text."""
    role: str
    """The instructions of the role that is asked to reply."""
    outputs: dict[str, str]
    """Requested field -> its type as written in the prompt, else `str`. Empty for prompts without fields."""
    descriptions: dict[str, str]
    """Requested field -> its description, if the prompt has one."""
    json: bool
    """Whether the reply has to be JSON."""
    user: str
    """The text of the last user message."""

    def input(self, name: str) -> str:
        return self.inputs.get(name, "")

    @property
    def instructions(self) -> str:
        """All instructions of the role: the standard that all roles of a debate read, and its own."""
        return f"{self.input('standard')}\n{self.role}"

    @property
    def fineness(self) -> str:
        """The parts of the prompt that may say the granularity of scores: the end of the aspect, and the role."""
        return f"{self.input('aspect').rpartition(chr(10))[2]}\n{self.role}"


@dataclass(frozen=True, slots=True)
class JudgedQuestion:
    """The kind of text, the aspect and its scale."""

    kind: Kind
    aspect: str
    low: float
    high: float


def parse(system: str, user: str) -> Prompt:
    """Parse the system message and the last user message of a call."""
    material, ours, requested = user.rpartition(OURS)
    if ours:
        inputs = _sections(material)
        asked = {name: _typed_description(text) for name, text in _sections(requested).items()}
        outputs = {name: kind for name, (kind, _) in asked.items()}
        return Prompt(
            inputs, inputs.get("role", ""), outputs, {name: told for name, (_, told) in asked.items()}, False, user
        )
    _, listed, after = system.partition("Your output fields are:")
    fields, _, rest = after.partition("\nAll interactions will be structured")
    objective = rest.partition("your objective is:")[2].strip()
    body = user.rpartition(_THEIRS)[0] if _THEIRS in user else user
    found = _OUTPUT_LIST.findall(fields) if listed else []
    outputs = {name: kind for name, kind, _ in found}
    wants_json = bool(outputs) and "Outputs will be a JSON object" in rest
    told = {name: text.strip() for name, _, text in found}
    return Prompt(_sections(body), objective, outputs, told, wants_json, user)


def _typed_description(text: str) -> tuple[str, str]:
    """Type and description of a field as `programs.roles.adapter` writes them."""
    told = text.removeprefix("<").removesuffix(">")
    match = _TYPE.search(told)
    return (match[1], told[: match.start()]) if match else ("str", told)


def _sections(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in ("\n" + text).split("\n[[ ## ")[1:]:
        name, marker, value = part.partition(" ## ]]")
        if marker:
            found.setdefault(name, value.strip())
    return found


def question(prompt: Prompt) -> JudgedQuestion:
    """The question of a prompt. Any task with a context is treated as a dialogue with a fact."""
    return _question(prompt.input("task"), prompt.input("aspect"), bool(prompt.input("context")))


@lru_cache(maxsize=256)
def _question(task: str, aspect: str, context: bool) -> JudgedQuestion:
    kind: Kind = "dialogue" if context or any(word in task.lower() for word in _DIALOGUE) else "summary"
    match = _ASPECT.match(aspect)
    if match is None:
        return JudgedQuestion(kind, aspect, 1.0, 5.0)
    return JudgedQuestion(kind, match[1], float(match[2]), float(match[3]))


def render(prompt: Prompt, fields: dict[str, str]) -> str:
    """Write the reply: the values in `fields` of all requested fields, in the requested form."""
    if not prompt.outputs:
        return next(iter(fields.values()), "")
    # For a table of candidates the prompt explains one section, and the reply has one for each.
    filled = fields if prompt.input("candidates") else {name: fields[name] for name in prompt.outputs}
    if prompt.json:
        return json.dumps({n: _typed(v, prompt.outputs[n]) for n, v in filled.items()}, ensure_ascii=False)
    sections = [f"[[ ## {name} ## ]]\n{text}" for name, text in filled.items()]
    return "\n\n".join([*sections, "[[ ## completed ## ]]"])


NOTHING = "Nothing to say: this offline stand-in for an LM only computes text statistics."


def _typed(text: str, kind: str) -> object:
    if kind == "str":
        return text
    if kind == "bool":
        return text == "True"
    try:
        return json.loads(text)
    except ValueError:
        return text
