"""Scripts that follow the protocol, for the scripted LM of `debate_judge.testing`, and what stands in a prompt.

lm = scripted_lm(debater(score="4", decision="NO ISSUE"))
with JudgeRunner(lm) as runner: ...
assert len(lm.prompts) == 2
"""

from __future__ import annotations

import re
from collections.abc import Callable

from debate_judge.programs.testing import Script, ScriptedLM, in_turn, scripted_lm

__all__ = ["Script", "ScriptedLM", "debater", "in_turn", "requested", "scripted_lm", "section"]


def debater(**fields: str | Callable[[str], str]) -> Script:
    """A script that follows the protocol: it fills in whatever fields the prompt asks for.

    Args:
        fields: Field name -> its content, or a function of the prompt; other fields get a plain sentence, and
            scores and decisions `3` and `NO ISSUE`.
    """
    usual: dict[str, str | Callable[[str], str]] = {"score": "3", "final_score": "3", "decision": "NO ISSUE"}
    known = {**usual, **fields}

    def script(prompt: str) -> str:
        asked = requested(prompt)
        values = {name: known.get(name, f"My {name} about it.") for name in asked}
        texts = {name: value if isinstance(value, str) else value(prompt) for name, value in values.items()}
        return "\n\n".join(f"[[ ## {name} ## ]]\n{text}" for name, text in texts.items())

    return script


def requested(prompt: str) -> list[str]:
    """Names of the fields that a prompt asks for: what stands after its last `Reply with`."""
    return re.findall(r"^\[\[ ## (\w+) ## \]\]$", prompt[prompt.rindex("Reply with") :], re.MULTILINE)


def section(prompt: str, name: str) -> str:
    """The part of a prompt under the header `name`, or an empty text."""
    end = r"(?=\n\n\[\[ ## |\n\nReply with these fields:|\Z)"
    found = re.search(rf"^\[\[ ## {name} ## \]\]\n(.*?){end}", prompt, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""
