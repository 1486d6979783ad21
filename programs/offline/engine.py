"""The embedded offline LM: a transport that answers the project's prompts by text statistics.

With it everything runs without a key and a network. It uses only the messages of a call, has no state, and gives equal
replies to equal prompts in every process; every reply says that it is a stand-in. Paraphrase lowers the score of a
summary; negation, exchanged roles ("X sued Y") and world knowledge are not considered at all. Its agreement with raters
says nothing about a language model's.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from types import MappingProxyType
from typing import Any

import numpy as np

from debate_judge.programs.lm.replies import LocalTransport, Reply
from debate_judge.programs.offline import roles
from debate_judge.programs.offline.features import (
    DIALOGUE_FEATURES,
    SUMMARY_FEATURES,
    Rubric,
    TextKind,
    guide_text,
    measure,
    read_guide,
    rubric_for,
)
from debate_judge.programs.offline.roles import NOTHING, Prompt, parse, question_of, render

# --- guides to the raters ---

_SHRINKAGE = 0.05
"""Ridge penalty, per rating, that shrinks fitted weights to equal ones for the features of the aspect's rubric."""

_PRIOR_SPREAD = 0.7
"""Share of the scale that the rubric's merits span in the prior."""

_MIN_SHARE = 0.02
"""Smallest weight in a guide, as a share of the sum of all weights."""

_EFFECT = re.compile(r"([^;:]+): (\d+)")
"""An effect of the Critic's replies, and its count."""


def write_guide(prompt: Prompt) -> dict[str, str]:
    """Write the guide that a prompt requests; if all ratings are equal, a sentence that says so.

    The weights are fitted by a ridge regression within sources, because only differences between candidates of one
    source matter for their ranks, without negative ones, because every feature has its worse end at 0.
    """
    from scipy.optimize import nnls

    if "drafts" in prompt.inputs:
        return merge_guides(prompt)
    question = question_of(prompt)
    sources = _rated_sources(prompt.input("rated"))
    kind: TextKind = "dialogue" if any(s.get("context") for s in sources) else question.kind
    names = DIALOGUE_FEATURES if kind == "dialogue" else SUMMARY_FEATURES
    x = [_merits(source, kind, names) for source in sources]
    y = [np.array([float(c.get("raters_mean", 0.0)) for c in source["candidates"]]) for source in sources]
    if not any(np.ptp(ratings) for ratings in y) and y:
        # With one candidate per source, candidates are compared across sources.
        x, y = [np.concatenate(x)], [np.concatenate(y)]
    if not any(np.ptp(ratings) for ratings in y):
        return {"analysis": NOTHING, "guide": "The ratings shown do not differ."}
    usual = rubric_for(kind, question.aspect).weights
    spread = _PRIOR_SPREAD * (question.high - question.low) / len(usual)
    prior = np.array([spread if name in usual else 0.0 for name in names])
    penalty = math.sqrt(_SHRINKAGE * sum(map(len, y)))
    design = np.vstack([*(merits - merits.mean(axis=0) for merits in x), penalty * np.eye(len(names))])
    weights = nnls(design, np.concatenate([*(ratings - ratings.mean() for ratings in y), penalty * prior]))[0]
    weights = weights if weights.sum() > 0 else prior
    total = float(weights.sum())
    # The weights are in points of the scale, so their sum is the distance between the scores for merit 0 and 1.
    low = float(np.mean(np.concatenate(y))) - float(np.mean(np.concatenate(x) @ weights))
    shares = {n: 10 * w / total for n, w in zip(names, weights.tolist(), strict=True) if w > _MIN_SHARE * total}
    summary = f"Weights were fitted to {sum(map(len, y))} rated texts of {len(sources)} sources."
    return {"analysis": f"{NOTHING} {summary}", "guide": guide_text(Rubric(shares, low, low + total))}


def _rated_sources(text: str) -> list[dict[str, Any]]:
    """The records of a prompt's rated texts; lines that are none are left out."""
    records = []
    for line in text.splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return [record for record in records if isinstance(record, dict) and isinstance(record.get("candidates"), list)]


def _merits(source: Mapping[str, Any], kind: TextKind, names: Sequence[str]) -> Any:
    texts = str(source.get("source", "")), str(source.get("context", ""))
    features = [measure(kind, *texts, str(c.get("candidate", ""))) for c in source["candidates"]]
    return np.array([[of_text[name].merit for name in names] for of_text in features])


def write_persona(prompt: Prompt) -> dict[str, str]:
    """A persona that is milder if more replies moved scores away from the raters than toward them, and severer if the
    Critic gave in too early more often than rightly."""
    counts = {name.strip(): int(count) for name, count in _EFFECT.findall(prompt.input("effects"))}
    away, toward, early, rightly = (
        sum(count for name, count in counts.items() if name.endswith(end))
        for end in ("away from the raters", "toward the raters", "too early", "rightly")
    )
    severity = len(_CRITIC_OPENINGS) // 2 + (early > rightly) + (toward > away) - (rightly > early) - (away > toward)
    summary = f"Of its replies {toward} moved scores toward the raters and {away} away; {early} gave in too early."
    return {"analysis": f"{NOTHING} {summary}", "persona": f"{_CRITIC_OPENINGS[severity]} {_CRITIC_ENDINGS[severity]}"}


def merge_guides(prompt: Prompt) -> dict[str, str]:
    """The mean of several guides: of each weight, and of the ends of the score range."""
    texts = re.split(r"^Guide \d+, from \d+ texts:$", prompt.input("drafts"), flags=re.MULTILINE)
    drafts = [guide for text in texts if (guide := read_guide(text))]
    if not drafts:
        return {"guide": NOTHING}
    names = dict.fromkeys(name for draft in drafts for name in draft.weights)
    weights = {name: fmean(draft.weights.get(name, 0.0) for draft in drafts) for name in names}
    low, high = fmean(draft.low for draft in drafts), fmean(draft.high for draft in drafts)
    return {"guide": guide_text(Rubric(weights, low, high))}


# --- instructions ---

_CRITIC_OPENINGS = (
    "You accompany this debate with goodwill: be supportive and constructive, and raise a point only where the latest "
    "score is clearly weak.",
    "You are a moderate critic in this debate: weigh leniently, but name every point that matters.",
    "You check the latest score in this debate against the material and the definition of the aspect.",
    "You play the devil's advocate in this debate and argue against the latest score, whatever it is.",
    "You play a strict devil's advocate in this debate: oppose the latest score on purpose and criticise it as much as "
    "you can.",
)
"""Openings, from mild to severe."""

_CRITIC_ENDINGS = (
    "If the score is acceptable on the whole, reply NO ISSUE and nothing else.",
    "If no point of importance is left, reply NO ISSUE and nothing else.",
    "If you find the score justified, reply NO ISSUE and nothing else.",
    "If your objections are used up, reply NO ISSUE and nothing else.",
    "Only if no objection can be sustained, reply NO ISSUE and nothing else.",
)
"""One for each opening, of the same severity."""

_CRITIC_HABITS = (
    "Take the reasons one by one and ask where the material bears them out.",
    "Compare numbers, names and the order of events with the source.",
    "Name one point at a time, the weightiest first, and quote the place it rests on.",
    "Leave aside what belongs to another aspect.",
)

_SCORER_OPENINGS = (
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

_TIE_BREAKER_OPENINGS = (
    "The debate between Scorer and Critic has ended without agreement, and the final score is yours to give.",
    "Scorer and Critic could not agree: settle what is disputed and give the final score.",
)

_TIE_BREAKER_HABITS = (
    "Read all of the debate and check each disputed point against the material.",
    "Take the side that the material supports, not the side that spoke last.",
    "Weigh how much a point matters for the aspect before you let it move the score.",
    "Use the whole scale.",
)


_INSTRUCTION_INPUTS = ("basic_instruction", "current_instruction", "attempted_instructions", "instruction")
"""Inputs in which proposers give the instructions to be replaced."""


def propose(prompt: Prompt) -> dict[str, str]:
    """Write new instructions into every requested field with `instruction` in its name."""
    current = next((prompt.inputs[name] for name in _INSTRUCTION_INPUTS if prompt.input(name)), "")
    openings, endings, habits = _blocks_for(current)
    digest = _hash_bytes(prompt.user)
    severity = digest[0] % len(openings)
    order = sorted(range(len(habits)), key=lambda i: digest[1 + i])
    chosen = [habits[i] for i in sorted(order[: 2 + digest[20] % 2])]
    instruction = " ".join([openings[severity], *chosen, *endings[severity : severity + 1]])
    if not prompt.outputs:
        return {"": f"```\n{instruction}\n```"}
    prefixes = {name: "Text:" for name in prompt.outputs if name.startswith("proposed_prefix")}
    return {name: instruction for name in prompt.outputs if "instruction" in name} | prefixes


def advise(prompt: Prompt) -> dict[str, str]:
    """Write one habit for each named module, as SIMBA requests."""
    try:
        modules = json.loads(prompt.input("module_names"))
    except ValueError:
        modules = []
    advice = {}
    for module in modules if isinstance(modules, list) else []:
        habits = _blocks_for(str(module))[2]
        advice[str(module)] = habits[_hash_bytes(f"{module} {prompt.user}")[0] % len(habits)]
    return {"module_advice": json.dumps(advice)}


def _blocks_for(current: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Openings, endings and habits for the role that the current instruction belongs to."""
    text = current.lower()
    if "latest score" in text or "no issue" in text or text.startswith("critic"):
        return _CRITIC_OPENINGS, _CRITIC_ENDINGS, _CRITIC_HABITS
    if "final score" in text or text.startswith("tie_breaker"):
        return _TIE_BREAKER_OPENINGS, (), _TIE_BREAKER_HABITS
    if not text or "the given aspect" in text or "one aspect" in text or text.startswith("scorer"):
        return _SCORER_OPENINGS, (), _SCORER_HABITS
    # Instructions of another role are kept; only their habits change.
    opening = " ".join(current.split())
    for habit in _SCORER_HABITS:
        opening = opening.replace(habit, "").strip()
    return (opening,), (), _SCORER_HABITS


def _hash_bytes(seed: str) -> bytes:
    return hashlib.sha256(seed.encode("utf-8", "surrogatepass")).digest()


# --- the engine ---

MODEL = "offline/text-statistics-5"
"""The model string, which is part of the keys of calls: raise the number whenever a reply changes."""

RoleFunction = Callable[[Prompt], dict[str, str]]

ROLE_FUNCTIONS: Mapping[str, RoleFunction] = MappingProxyType(
    {
        "feedback": roles.criticise,
        "case_for_less": roles.argue_both_sides,
        "final_score": roles.break_tie,
        "score": roles.score,
        "score_1": roles.compare,
        "steps": roles.derive_steps,
        "summary": roles.summarize,
        "facts": roles.select_facts,
        "claims": roles.extract_claims,
        "query_1": roles.write_queries,
        "factuality": roles.check_claim,
        "guide": write_guide,
        "persona": write_persona,
        "module_advice": advise,
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
        return roles.reply_for_each(prompt, role_fields)
    role_function = next((ROLE_FUNCTIONS[name] for name in prompt.outputs if name in ROLE_FUNCTIONS), None)
    if role_function is not None:
        return role_function(prompt)
    if any("instruction" in name for name in prompt.outputs):
        return propose(prompt)
    if prompt.outputs:
        return {}
    wants_instructions = "new instruction" in prompt.user and "```" in prompt.user
    return propose(prompt) if wants_instructions else {"": NOTHING}


class OfflineTransport(LocalTransport):
    """The offline LM as a transport of `programs.lm.engine.JudgeLM`; of a call's settings only `logprobs` matters."""

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
    assessment = roles.assessment_of(prompt)
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
