"""The embedded offline LM: answers this project's prompts by text statistics, without a key and a network.

It uses only the messages of a call, has no state, and gives equal replies to equal prompts in every process; every
reply says that it is a stand-in. Paraphrase lowers the score of a summary; negation, exchanged roles ("X sued Y") and
world knowledge are not considered at all. Its agreement with raters says nothing about a language model's.

The Scorer's first score is the mean of the first features of a rubric, as if the others were equal to it; the Critic
raises the others, one in each round. In a debate features are named by their phrases: the Scorer measures those that
the Critic's turns name, and computes its score anew. A guide to the raters replaces the rubric by weights that were
fitted to ratings: its sentences are all that a prompt carries of them.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from debate_judge.programs.lm.replies import LocalTransport, Reply
from debate_judge.programs.parsing import NO_ISSUE
from debate_judge.programs.role import REQUEST
from debate_judge.programs.text_statistics import (
    FEATURES,
    REPLY_FEATURES,
    content_stems,
    measure,
    numbers_in,
    sentences,
)

MODEL = "offline/text-statistics-6"
"""The model string, which is part of the keys of calls: raise the number whenever a reply changes."""

PREFIX = "Text statistics: "
"""Beginning of every statement of the offline LM, so that none is mistaken for one of a real LM."""
NOTHING = "Nothing to say: this offline stand-in for an LM only computes text statistics."

# --- prompts: this project's, and those of DSPy's ChatAdapter ---

_OUTPUT_LIST = re.compile(r"^\d+\. `(\w+)` \((.*?)\):(.*)", re.MULTILINE)
_TYPE = re.compile(r" \(((?:Literal|list|dict)\b.*|int|float|bool)\)\Z", re.DOTALL)


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
    user: str
    """The text of the last user message."""

    def input(self, name: str) -> str:
        return self.inputs.get(name, "")


def parse(system: str, user: str) -> Prompt:
    """Parse the system message and the last user message of a call."""
    material, marker, requested = user.rpartition(f"\n\n{REQUEST}")
    if marker:
        inputs = _sections(material)
        descriptions = {name: text[1:-1] for name, text in _sections(requested).items()}
        types = {name: _TYPE.search(text) for name, text in descriptions.items()}
        outputs = {name: match[1] if match else "str" for name, match in types.items()}
        return Prompt(inputs, inputs.get("role", ""), outputs, descriptions, user)
    _, _, listed = system.partition("Your output fields are:")
    fields, _, rest = listed.partition("\nAll interactions will be structured")
    inputs, role = _sections(user.rpartition("\n\nRespond with ")[0] or user), rest.partition("your objective is:")[2]
    outputs = {name: type_name for name, type_name, _ in _OUTPUT_LIST.findall(fields)}
    descriptions = {name: text.strip() for name, _, text in _OUTPUT_LIST.findall(fields)}
    return Prompt(inputs, role.strip(), outputs, descriptions, user)


def _sections(text: str) -> dict[str, str]:
    sections: dict[str, str] = {}
    for part in ("\n" + text).split("\n[[ ## ")[1:]:
        name, marker, value = part.partition(" ## ]]")
        if marker:
            sections.setdefault(name, value.strip())
    return sections


def render(prompt: Prompt, fields: dict[str, str]) -> str:
    """Write the reply: the values in `fields` of all requested fields, in the requested format."""
    if not prompt.outputs:
        return next(iter(fields.values()), "")
    sections = [f"[[ ## {name} ## ]]\n{fields[name]}" for name in prompt.outputs]
    return "\n\n".join([*sections, "[[ ## completed ## ]]"])


# --- rubrics: the features of an aspect with their weights, and guides that replace them ---

_FIRST, _FIRST_OF_GUIDE = 2, 4
"""Number of features in the Scorer's first score, without a guide and with one, which says what else to look at."""
_RUBRICS = {
    "coheren structur organi": "order opening repetition shortest unfinished",
    "consisten faithful factual ground accura halluc truth correct support knowledge": "support numbers order topic",
    "fluen gramma natural readab understand clarity": "grammar shortest repetition unfinished",
    "relevan coverage informative content salien": "topic opening support repetition shortest",
    "": "topic support repetition numbers order opening grammar shortest",
}
"""Beginnings of words in an aspect's name -> the features that count; the empty one is for all other names."""
_ASPECT = re.compile(r"(.*?) \((-?[\d.e+-]+) to (-?[\d.e+-]+), \S+ worst, \S+ best\): ", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rubric:
    weights: Mapping[str, float]
    """Name of a feature -> its weight, in the order of use."""
    low: float
    """The score for merit 0."""
    high: float
    """The score for merit 1."""
    first: int = _FIRST


def _usual_rubric(prompt: Prompt) -> Rubric:
    """The rubric by the aspect's name, with the ends of its scale."""
    match = _ASPECT.match(prompt.input("aspect"))
    aspect, low, high = match.groups() if match else (prompt.input("aspect"), 1, 5)
    names = next(n for keys, n in _RUBRICS.items() if not keys or any(key in aspect.lower() for key in keys.split()))
    weights = dict.fromkeys(REPLY_FEATURES if prompt.input("context") else names.split(), 1.0)
    return Rubric(weights, float(low), float(high))


_WEIGHT = re.compile(r"^Weight (\d+(?:\.\d+)?) for (.+?)\.$", re.MULTILINE)
_SCORE_RANGE = re.compile(r"^Scores run from (-?\d+(?:\.\d+)?) to (-?\d+(?:\.\d+)?)\.", re.MULTILINE)
_NAMES = {phrase: name for name, (phrase, _) in FEATURES.items()}


def _guide_text(guide: Rubric) -> str:
    """The sentences of a guide, the heaviest feature first."""
    heaviest = sorted(guide.weights.items(), key=lambda pair: -pair[1])
    lines = [f"Weight {weight:.1f} for {FEATURES[name][0]}." for name, weight in heaviest]
    return "\n".join([f"Scores run from {guide.low:.2f} to {guide.high:.2f}.", *lines])


@lru_cache(maxsize=256)
def _read_guide(text: str) -> Rubric | None:
    """The rubric in a guide, or None if the text has none in the offline LM's sentences."""
    weights = {_NAMES[phrase]: float(number) for number, phrase in _WEIGHT.findall(text) if phrase in _NAMES}
    score_range = _SCORE_RANGE.search(text)
    if not any(weights.values()) or score_range is None:
        return None
    return Rubric(weights, float(score_range[1]), float(score_range[2]), _FIRST_OF_GUIDE)


# --- what the roles know of a candidate ---

_STEPS = re.compile(r"in steps of (\d+(?:\.\d+)?)", re.IGNORECASE)
_WHOLE = re.compile(r"whole (?:number|point)|integer|no decimals|without decimals", re.IGNORECASE)


class Assessment:
    """The measurements of the candidate in a prompt's input field, weighed by its guide or the usual rubric."""

    def __init__(self, prompt: Prompt, candidate: str = "candidate") -> None:
        self.features = measure(_material(prompt.inputs), prompt.input(candidate))
        usual = _usual_rubric(prompt)
        self.scale = usual.low, usual.high
        self.rubric = rubric = _read_guide(f"{prompt.input('guide')}\n{prompt.role}") or usual
        self.first, self.later = [*rubric.weights][: rubric.first], [*rubric.weights][rubric.first :]
        weights, total = rubric.weights, math.fsum(rubric.weights.values())
        first_total = math.fsum(weights[name] for name in self.first)
        self.base = math.fsum(weights[name] * self.features[name] for name in self.first) / first_total
        """The merit by the first features."""
        self.effects = {name: weights[name] * (self.features[name] - self.base) / total for name in self.later}
        """Each later feature with the change of the merit if it is raised; the changes add up."""
        # What others than the Scorer have said.
        heard = "\n".join(line for line in prompt.input("debate").splitlines() if not line.startswith("Scorer, "))
        self.raised = [name for name in self.later if FEATURES[name][0] in heard]
        # The end of the aspect and the role may state the granularity.
        granularity = f"{prompt.input('aspect').rpartition(chr(10))[2]}\n{prompt.role}"
        steps = _STEPS.search(granularity)
        self.step = float(steps[1]) if steps else 1.0 if _WHOLE.search(granularity) else None

    def merit(self, *, all_features: bool = False) -> float:
        changes = [change for name, change in self.effects.items() if all_features or name in self.raised]
        return min(1.0, max(0.0, math.fsum([self.base, *changes])))

    def open_features(self, min_change: float) -> list[tuple[str, float]]:
        """The features that were not raised yet and change the merit by at least `min_change`, with the change."""
        return [(n, change) for n, change in self.effects.items() if abs(change) >= min_change and n not in self.raised]

    def score(self, merit: float) -> str:
        """The score as text: rounded to the steps that the prompt asks for, or else to three digits."""
        low, high = self.scale
        value = self.rubric.low + (self.rubric.high - self.rubric.low) * merit
        if self.step:
            value = low + self.step * math.floor((value - low) / self.step + 0.5)
        else:
            value = round(value, max(0, 3 - math.ceil(math.log10(high - low))))
        return f"{min(high, max(low, value)):.12g}"

    def reasons(self) -> str:
        """The first features and all raised ones, and their merit."""
        first, raised = ("; ".join(map(self.describe, names)) for names in (self.first, self.raised))
        return f"{PREFIX}{first}{f'; weighed in: {raised}' if raised else ''}. Merit {self.merit():.2f} of 1."

    def describe(self, name: str) -> str:
        return f"{FEATURES[name][0]} ({self.features[name]:.0%})"


def _material(texts: Mapping[str, Any]) -> str:
    return "\n".join(filter(None, (texts.get("source"), texts.get("context"))))


# --- the debate; the single call, G-Eval's form and ChatEval's referee are scored like its Scorer ---

_NEUTRAL_THRESHOLD = 0.04
"""The smallest change, as a share of the scale, that a Critic with a neutral persona raises."""

_SEVERITY = {
    "devil's advocate": 1.5, "as you can": 1.0, "oppose": 0.5,
    "lenient": -0.75, "gentle": -2.0, "moderate": -2.0, "goodwill": -2.0,
}  # fmt: skip
"""What a persona says -> how much more severe that makes the Critic; each point halves its threshold."""


def _threshold(role: str) -> float:
    """The smallest change that the Critic raises, as a share of the scale."""
    text = " ".join(role.lower().split())
    return _NEUTRAL_THRESHOLD * math.exp2(-sum(points for says, points in _SEVERITY.items() if says in text))


def _score(prompt: Prompt) -> dict[str, str]:
    """Score the candidate, or ChatEval's two answers, independently."""
    fields = {name: name.replace("score", "answer") for name in prompt.outputs if name.startswith("score_")}
    assessed = {name: Assessment(prompt, text) for name, text in (fields or {"score": "candidate"}).items()}
    reasons = PREFIX + " ".join(one.reasons().removeprefix(PREFIX) for one in assessed.values())
    return {"rationale": reasons, **{name: one.score(one.merit()) for name, one in assessed.items()}}


def _criticise(prompt: Prompt) -> dict[str, str]:
    """The Critic raises the next feature that was not named yet and changes the score by its threshold; a Critic that
    writes two briefs raises the next one that lowers the score, and the next one that raises it.
    """
    assessment = Assessment(prompt)
    objections: dict[str, str] = {}
    for name, change in assessment.open_features(_threshold(prompt.role)):
        direction = "lower" if change < 0 else "higher"
        objections.setdefault(direction, f"{PREFIX}{assessment.describe(name)}. This speaks for a {direction} score.")
    if "feedback" in prompt.outputs:
        return {"feedback": next(iter(objections.values()), NO_ISSUE)}
    other = NOTHING if objections else NO_ISSUE
    return {"case_for_less": objections.get("lower", other), "case_for_more": objections.get("higher", other)}


def _break_tie(prompt: Prompt) -> dict[str, str]:
    """The Tie-breaker scores all features, raised or not; if that changes the score, the Critic was right."""
    assessment = Assessment(prompt)
    earlier, final = assessment.merit(), assessment.merit(all_features=True)
    rest = [assessment.describe(name) for name, _ in assessment.open_features(_NEUTRAL_THRESHOLD / 2)]
    reasoning = f"{PREFIX}all features give merit {final:.2f}, the debate so far {earlier:.2f}. {'; '.join(rest)}"
    side = "Critic" if abs(final - earlier) >= _NEUTRAL_THRESHOLD / 2 else "Scorer"
    return {"reasoning": reasoning, "side": side, "final_score": assessment.score(final)}


def _for_each(prompt: Prompt) -> dict[str, str]:
    """The reply about several candidates: that to the prompt about each of them alone, in fields with its number."""
    replies: dict[str, str] = {}
    names = [name.rpartition("_") for name in prompt.outputs]
    outputs = dict.fromkeys((name for name, _, _ in names), "str")
    for number in dict.fromkeys(number for _, _, number in names):
        head = f"candidate_{number}"
        lines = prompt.input("debate").splitlines()
        debate = "\n".join(line.removeprefix(f"{head}: ") for line in lines if line.startswith(f"{head}: "))
        inputs = {**prompt.inputs, "candidate": prompt.input(head), "debate": debate, "candidates": ""}
        alone = role_fields(replace(prompt, inputs=inputs, outputs=outputs, descriptions={}))
        replies |= {f"{name}_{number}": text for name, text in alone.items()}
    return replies


# --- the hallucination debate: claims are sentences, checked by the share of their content words in the evidence ---

_CLAIM_LIMIT = re.compile(r"at most (\d+) claims")
_MAX_MISSING = 0.4
"""A claim is factual if at most this share of its content words is missing from the evidence."""
_SKEPTICISM = 0.15
"""What Skeptic subtracts from that share."""


def _extract_claims(prompt: Prompt) -> dict[str, str]:
    """The sentences of a text; if there are too many, adjacent ones are joined."""
    texts = [" ".join(sentence.split()) for sentence in sentences(prompt.input("candidate"))]
    size = max(1, -(-len(texts) // max_claims(prompt)))
    return {"claims": "\n".join(" ".join(texts[i : i + size]) for i in range(0, len(texts), size)) or "NONE"}


def max_claims(prompt: Prompt) -> int:
    """The maximum number of claims that the prompt allows."""
    limit = _CLAIM_LIMIT.search(prompt.input("task"))
    return int(limit[1]) if limit else 1_000_000


def _check_claim(prompt: Prompt) -> dict[str, str]:
    """An opinion about a claim, by the evidence, or about a response, by its worst sentence and the given texts."""
    claim = prompt.input("claim")
    # A question is no evidence for its answer.
    is_question = re.search(r"^Source: (?:question|prompt)\b", prompt.input("task"))
    material = prompt.input("context") if is_question else _material(prompt.inputs)
    evidence = prompt.input("evidence") if claim else material
    texts = [claim] if claim else sentences(prompt.input("candidate"))
    known, numbers = set(content_stems(evidence)), numbers_in(evidence)
    if not known or not texts:
        opinion = f"{PREFIX}nothing is given to check it with."
        return {"opinion": opinion, "factuality": "True", "severity": "0"}
    missing = 0.0
    for stems, text in ((set(content_stems(text)), text) for text in texts):
        has_all_numbers = numbers_in(text) <= numbers
        missing = max(missing, len(stems - known) / max(1, len(stems)) if has_all_numbers else 1.0)
    factual = missing <= _MAX_MISSING - (_SKEPTICISM if "Skeptic agent" in prompt.role else 0)
    opinion = f"{PREFIX}{1 - missing:.0%} of the content words and numbers stand in what is given."
    severity = round(5 * missing) if factual else max(1, round(5 * missing))
    return {"opinion": opinion, "factuality": str(factual), "severity": str(severity)}


# --- tuners: guides to the raters, personas, and instructions as DSPy's proposers request them ---

_SHRINKAGE = 0.05
"""Ridge penalty, per rating, that shrinks fitted weights to equal ones for the features of the aspect's rubric."""
_PRIOR_SPREAD = 0.7
"""Share of the scale that the rubric's merits span in the prior."""
_MIN_SHARE = 0.02
"""Smallest weight in a guide, as a share of the sum of all weights."""


def _write_guide(prompt: Prompt) -> dict[str, str]:
    """Write the guide that a prompt requests; if all ratings are equal, a sentence that says so.

    Every rated text is measured like a candidate. The weights are fitted by a ridge regression within sources, because
    only differences between candidates of one source matter for their ranks, without negative ones, because every
    feature has its worse end at 0.
    """
    from scipy.optimize import nnls

    sources = [json.loads(line) for line in prompt.input("rated").splitlines() if line.startswith('{"')]
    usual, x, y = _usual_rubric(prompt), [], []
    replies = any(source.get("context") for source in sources)
    names = [name for name in FEATURES if (name in REPLY_FEATURES) == replies]
    for source in sources:
        measured = [measure(_material(source), candidate["candidate"]) for candidate in source["candidates"]]
        x.append(np.array([[features[name] for name in names] for features in measured]))
        y.append(np.array([float(candidate["raters_mean"]) for candidate in source["candidates"]]))
    if y and not any(np.ptp(ratings) for ratings in y):
        # With one candidate per source, candidates are compared across sources.
        x, y = [np.concatenate(x)], [np.concatenate(y)]
    if not any(np.ptp(ratings) for ratings in y):
        return {"guide": "The ratings shown do not differ."}
    spread = _PRIOR_SPREAD * (usual.high - usual.low) / len(usual.weights)
    prior = np.array([spread if name in usual.weights else 0.0 for name in names])
    penalty = math.sqrt(_SHRINKAGE * sum(map(len, y)))
    design = np.vstack([*(merits - merits.mean(axis=0) for merits in x), penalty * np.eye(len(names))])
    weights = nnls(design, np.concatenate([*(ratings - ratings.mean() for ratings in y), penalty * prior]))[0]
    weights = weights if weights.sum() > 0 else prior
    total = float(weights.sum())
    # The weights are in points of the scale, so their sum is the distance between the scores for merit 0 and 1.
    low = float(np.mean(np.concatenate(y))) - float(np.mean(np.concatenate(x) @ weights))
    shares = {n: 10 * w / total for n, w in zip(names, weights.tolist(), strict=True) if w > _MIN_SHARE * total}
    return {"guide": _guide_text(Rubric(shares, low, low + total))}


_CRITICS = tuple(
    f"{manner} If nothing of weight is left to say, reply NO ISSUE and nothing else."
    for manner in (
        "You accompany this debate with goodwill: raise a point only where the latest score is clearly weak.",
        "You are a moderate critic of the latest score: name every point that matters.",
        "You check the latest score against the material and the definition of the aspect.",
        "You play the devil's advocate and argue against the latest score, whatever it is.",
        "You play a strict devil's advocate: oppose the latest score and criticise it as much as you can.",
    )
)
"""Personas, from mild to severe."""
_HABITS = (
    "Think step by step and name the places in the text that your reasons rest on.",
    "Picture several candidates for the same source, from the worst to the best, and place this one among them.",
    "Use the whole scale, from what the definition calls worst to what it calls best.",
)
"""What a proposer adds to instructions, chosen by the hash of the prompt: different prompts get different ones."""
_INSTRUCTION_INPUTS = ("basic_instruction", "current_instruction", "attempted_instructions", "instruction")
"""Inputs in which proposers give the instructions to be replaced."""
_EFFECT = re.compile(r"([^;:]+): (\d+)")
"""An effect of the Critic's replies, and its count."""


def _write_persona(prompt: Prompt) -> dict[str, str]:
    """A persona that is milder if more replies moved scores away from the raters than toward them, and severer if the
    Critic gave in too early more often than rightly."""
    counts = {name.strip(): int(count) for name, count in _EFFECT.findall(prompt.input("effects"))}
    away, toward, early, rightly = (
        sum(count for name, count in counts.items() if name.endswith(end))
        for end in ("away from the raters", "toward the raters", "too early", "rightly")
    )
    severity = len(_CRITICS) // 2 + (early > rightly) + (toward > away) - (rightly > early) - (away > toward)
    return {"persona": _CRITICS[severity]}


def _propose(prompt: Prompt) -> dict[str, str]:
    """Write new instructions into every requested field with `instruction` in its name: a persona in place of a
    Critic's, a habit at the end of any other's."""
    current = " ".join(next((prompt.inputs[name] for name in _INSTRUCTION_INPUTS if prompt.input(name)), "").split())
    choice = hashlib.sha256(prompt.user.encode("utf-8", "surrogatepass")).digest()[0]
    if "latest score" in current.lower():
        instruction = _CRITICS[choice % len(_CRITICS)]
    else:
        for habit in _HABITS:
            current = current.replace(habit, "").strip()
        current = current or "Judge the candidate in the given aspect only, by its definition and against the source."
        instruction = f"{current} {_HABITS[choice % len(_HABITS)]}"
    if not prompt.outputs:
        return {"": f"```\n{instruction}\n```"}
    return {name: instruction if "instruction" in name else "Text:" for name in prompt.outputs}


# --- the engine ---

_ROLES = {
    "feedback": _criticise,
    "case_for_less": _criticise,
    "final_score": _break_tie,
    "score": _score,
    "score_1": _score,
    "claims": _extract_claims,
    "factuality": _check_claim,
    "guide": _write_guide,
    "persona": _write_persona,
}
"""Requested field -> the function of the role that has it. Requests for instructions are recognised by that word in a
field's name; all other fields get values by their type."""


def role_fields(prompt: Prompt) -> dict[str, str]:
    """Requested field -> its value, for the fields of known roles; a reply without fields has the key ""."""
    if prompt.input("candidates"):
        return _for_each(prompt)
    role = next((_ROLES[name] for name in prompt.outputs if name in _ROLES), None)
    if role is not None:
        return role(prompt)
    asks_for_text = not prompt.outputs and "new instruction" in prompt.user and "```" in prompt.user
    if asks_for_text or any("instruction" in name for name in prompt.outputs):
        return _propose(prompt)
    return {} if prompt.outputs else {"": NOTHING}


def complete_fields(prompt: Prompt, known: Mapping[str, str]) -> dict[str, str]:
    """Requested field -> its value: those of `role_fields`, and those of all others by their types."""
    return {**known, **{name: _value_for(prompt, name) for name in prompt.outputs if not known.get(name)}}


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


def is_free_text(prompt: Prompt, name: str) -> bool:
    """Whether a requested field is free text."""
    return prompt.outputs[name] == "str" and not _choices("str", prompt.descriptions.get(name, ""))


def _value_for(prompt: Prompt, name: str) -> str:
    """A value of the field's type, which depends on the candidate's merit; lists and mappings are empty. A query is the
    claim that it is about, and the checkable part of a reply is all of it.
    """
    type_name, description = prompt.outputs[name], prompt.descriptions.get(name, "")
    assessment = Assessment(prompt)
    merit = assessment.merit() if prompt.input("candidate") else 0.0
    if choices := _choices(type_name, description):
        return choices[min(int(merit * len(choices)), len(choices) - 1)]
    if type_name in ("int", "float"):
        low, high = assessment.scale
        value = low + (high - low) * merit
        return f"{value:.0f}" if type_name == "int" else f"{value:.3g}"
    if type_name == "str":
        reasons = assessment.reasons() if prompt.input("candidate") else NOTHING
        return {"facts": prompt.input("candidate")}.get(name) or prompt.input("claim") or reasons
    return "[]" if type_name.startswith("list") else "{}"


def _choices(type_name: str, description: str) -> list[str]:
    """The values of a field that has few, the one for the lowest merit first."""
    if type_name.startswith("Literal["):
        return [str(choice) for choice in ast.literal_eval(f"[{type_name[8:-1]}]")]
    match = _ALTERNATIVES.fullmatch(description.strip())
    found = ["False", "True"] if type_name == "bool" else [*match.groups()] if type_name == "str" and match else []
    return found[::-1] if found[:1] == ["yes"] else found
