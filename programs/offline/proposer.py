"""The offline LM's replies to DSPy's instruction proposers: instructions composed of building blocks.

The hash of the prompt chooses the blocks, so that equal prompts get equal answers and different prompts wordings of
different severity. Of the prompt's content only the role is recognised whose instructions are asked for.
"""

from __future__ import annotations

import hashlib
import json

from debate_judge.programs.offline.prompt import Prompt

_CRITIC = (
    (
        "You accompany this debate with goodwill: be supportive and constructive, and raise a point only where "
        "the latest score is clearly weak.",
        "If the score is acceptable on the whole, your decision is NO ISSUE.",
    ),
    (
        "You are a moderate critic in this debate: weigh leniently, but name every point that matters.",
        "If no point of importance is left, your decision is NO ISSUE.",
    ),
    (
        "You check the latest score in this debate against the material and the definition of the aspect.",
        "If you find the score justified, your decision is NO ISSUE.",
    ),
    (
        "You play the devil's advocate in this debate and argue against the latest score, whatever it is.",
        "If your objections are used up, your decision is NO ISSUE.",
    ),
    (
        "You play a strict devil's advocate in this debate: oppose the latest score on purpose and criticise it "
        "as much as you can.",
        "Only if no objection can be sustained, your decision is NO ISSUE.",
    ),
)
"""Opening and ending, from mild to severe."""

_CRITIC_HABITS = (
    "Take the reasons one by one and ask where the material bears them out.",
    "Read each sentence of the candidate by itself, and then how they follow upon each other.",
    "Compare numbers, names and the order of events with the source.",
    "Name one point at a time, the weightiest first, and quote the place it rests on.",
    "Say in which direction the score should move: it may be too high as well as too low.",
    "Leave aside what belongs to another aspect.",
)

_SCORER = (
    "Judge the candidate in the given aspect only, by its definition and against the source.",
    "Read the source first, then the candidate, and rate the one aspect that is asked for.",
    "Be strict and even-handed. Compare the candidate with the source sentence by sentence and rate the given aspect.",
)

_SCORER_HABITS = (
    "Think step by step and name the places in the text that your reasons rest on.",
    "Faults and merits of other kinds do not count, however plain they are.",
    "Picture several candidates for the same source, from the worst to the best, and place this one among them.",
    "Use the whole scale, from what the definition calls worst to what it calls best.",
    "Do not let one strong or weak trait colour the rest.",
)

_TIE_BREAKER = (
    "The debate between Scorer and Critic has ended without agreement, and the final score is yours to give.",
    "Scorer and Critic could not agree: settle what is disputed and give the final score.",
)

_TIE_BREAKER_HABITS = (
    "Read all of the debate and check each disputed point against the material.",
    "Take the side that the material supports, not the side that spoke last.",
    "Weigh how much a point matters for the aspect before you let it move the score.",
    "Use the whole scale.",
)


def propose(prompt: Prompt) -> dict[str, str]:
    """Write new instructions into every requested field with `instruction` in its name."""
    instruction = compose(_current(prompt), prompt.user)
    if not prompt.outputs:
        return {"": f"```\n{instruction}\n```"}
    fields = {name: instruction for name in prompt.outputs if "instruction" in name}
    for name in prompt.outputs:
        if name.startswith("proposed_prefix"):
            fields[name] = "Text:"
    return fields


def advise(prompt: Prompt) -> dict[str, str]:
    """Write one habit for each named module, as SIMBA's request for advice wants."""
    try:
        modules = json.loads(prompt.input("module_names"))
    except ValueError:
        modules = []
    advice = {}
    for module in modules if isinstance(modules, list) else []:
        habits = _blocks(str(module))[2]
        advice[str(module)] = habits[_draw(f"{module} {prompt.user}")[0] % len(habits)]
    return {"module_advice": json.dumps(advice)}


def compose(current: str, seed: str) -> str:
    """Compose instructions.

    Args:
        current: The instructions to replace, from which the role is recognised.
        seed: Any text; its hash chooses the blocks.
    """
    openings, endings, habits = _blocks(current)
    draw = _draw(seed)
    degree = draw[0] % len(openings)
    order = sorted(range(len(habits)), key=lambda i: draw[1 + i])
    chosen = [habits[i] for i in sorted(order[: 2 + draw[20] % 2])]
    # The same degree for opening and ending: a mild opening with a merciless ending makes no sense.
    return " ".join([openings[degree], *chosen, *endings[degree : degree + 1]])


def _blocks(current: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Openings, endings and habits for the role that the current instruction belongs to."""
    text = current.lower()
    if "no issue" in text or text.startswith("critic"):
        return tuple(opening for opening, _ in _CRITIC), tuple(ending for _, ending in _CRITIC), _CRITIC_HABITS
    if "final score" in text or text.startswith("tie_breaker"):
        return _TIE_BREAKER, (), _TIE_BREAKER_HABITS
    if not text or "the given aspect" in text or "one aspect" in text or text.startswith("scorer"):
        return _SCORER, (), _SCORER_HABITS
    # Instructions of another role are kept, and only get other habits.
    kept = " ".join(current.split())
    for habit in _SCORER_HABITS:
        kept = kept.replace(habit, "").strip()
    return (kept,), (), _SCORER_HABITS


def _current(prompt: Prompt) -> str:
    names = ("basic_instruction", "current_instruction", "attempted_instructions", "instruction")
    return next((prompt.inputs[name] for name in names if prompt.input(name)), "")


def _draw(seed: str) -> bytes:
    return hashlib.sha256(seed.encode("utf-8", "surrogatepass")).digest()
