"""The offline LM's replies to tuners: guides to the raters, and new instructions.

For a guide it measures every rated text of the prompt like a candidate, fits feature weights to the ratings, and writes
the weights as sentences (`programs.offline.rubric`). If a later prompt contains these sentences, the Scorer uses
the weights, beginning with the heaviest features, and the Critic raises the others in their order.

Instructions, as requested by DSPy's proposers, are composed of building blocks. The hash of the prompt selects the
blocks, so that equal prompts get equal replies, and different prompts wordings of different severity. Of the content of
the prompt only the role of the instructions is recognised.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from debate_judge.programs.offline.features import DIALOGUE_FEATURES, SUMMARY_FEATURES, TextKind, measure
from debate_judge.programs.offline.roles import NOTHING, Prompt, question_of
from debate_judge.programs.offline.rubric import Rubric, guide_text, read_guide, rubric_for

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
