"""The offline LM: parsing of prompts, writing of replies, and the roles of debates.

It parses this project's prompts and DSPy's Chat and JSON prompts; like any LM, it knows only what is in the messages.
The roles are stateless. In the debate features are named by their phrases: the Scorer measures those that the Critic's
turns name, and computes its score anew, without using an earlier one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, exp2, floor, log10

from debate_judge.programs.offline.features import (
    PHRASES,
    STOP_WORDS,
    Features,
    Rubric,
    TextKind,
    content_stems,
    measure,
    numbers_in,
    read_guide,
    rubric_for,
    sentences,
    words,
)
from debate_judge.programs.parsing import NO_ISSUE, REQUEST

# --- prompts and replies ---

_REQUEST_MARKER = f"\n\n{REQUEST}"
"""The text between the material and the requested fields in this project's prompts (`programs.role`)."""

_DSPY_REQUEST = "\n\nRespond with "
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
    wants_json: bool
    """Whether the reply has to be JSON."""
    user: str
    """The text of the last user message."""

    def input(self, name: str) -> str:
        return self.inputs.get(name, "")

    @property
    def granularity_text(self) -> str:
        """The parts of the prompt that may state the granularity of scores: the end of the aspect, and the role."""
        return f"{self.input('aspect').rpartition(chr(10))[2]}\n{self.role}"


@dataclass(frozen=True, slots=True)
class PromptQuestion:
    kind: TextKind
    aspect: str
    low: float
    high: float


def parse(system: str, user: str) -> Prompt:
    """Parse the system message and the last user message of a call."""
    material, marker, requested = user.rpartition(_REQUEST_MARKER)
    if marker:
        inputs = _sections(material)
        outputs, descriptions = {}, {}
        for name, text in _sections(requested).items():
            # Type and description as `programs.role` writes them.
            description = text.removeprefix("<").removesuffix(">")
            match = _TYPE.search(description)
            outputs[name] = match[1] if match else "str"
            descriptions[name] = description[: match.start()] if match else description
        return Prompt(inputs, inputs.get("role", ""), outputs, descriptions, False, user)
    _, marker, format_text = system.partition("Your output fields are:")
    fields, _, rest = format_text.partition("\nAll interactions will be structured")
    objective = rest.partition("your objective is:")[2].strip()
    body = user.rpartition(_DSPY_REQUEST)[0] or user
    listed_fields = _OUTPUT_LIST.findall(fields) if marker else []
    outputs = {name: type_name for name, type_name, _ in listed_fields}
    descriptions = {name: text.strip() for name, _, text in listed_fields}
    wants_json = bool(outputs) and "Outputs will be a JSON object" in rest
    return Prompt(_sections(body), objective, outputs, descriptions, wants_json, user)


def _sections(text: str) -> dict[str, str]:
    sections: dict[str, str] = {}
    for part in ("\n" + text).split("\n[[ ## ")[1:]:
        name, marker, value = part.partition(" ## ]]")
        if marker:
            sections.setdefault(name, value.strip())
    return sections


def question_of(prompt: Prompt) -> PromptQuestion:
    """The question of a prompt. Any task with a context is treated as a dialogue with a fact."""
    task, aspect = prompt.input("task").lower(), prompt.input("aspect")
    is_reply = prompt.input("context") or any(word in task for word in _DIALOGUE)
    kind: TextKind = "dialogue" if is_reply else "summary"
    match = _ASPECT.match(aspect)
    low, high = (float(match[2]), float(match[3])) if match else (1.0, 5.0)
    return PromptQuestion(kind, match[1] if match else aspect, low, high)


def render(prompt: Prompt, fields: dict[str, str]) -> str:
    """Write the reply: the values in `fields` of all requested fields, in the requested format."""
    if not prompt.outputs:
        return next(iter(fields.values()), "")
    reply_fields = {name: fields[name] for name in prompt.outputs}
    if prompt.wants_json:
        return json.dumps({n: _typed(v, prompt.outputs[n]) for n, v in reply_fields.items()}, ensure_ascii=False)
    sections = [f"[[ ## {name} ## ]]\n{text}" for name, text in reply_fields.items()]
    return "\n\n".join([*sections, "[[ ## completed ## ]]"])


NOTHING = "Nothing to say: this offline stand-in for an LM only computes text statistics."


def _typed(text: str, type_name: str) -> object:
    if type_name in ("str", "bool"):
        return text == "True" if type_name == "bool" else text
    try:
        return json.loads(text)
    except ValueError:
        return text


# --- the debate ---

PREFIX = "Text statistics: "
"""Beginning of every statement of the offline LM, so that none is mistaken for one of a real LM."""

NO_QUOTE_ABOVE = 0.75
"""The merit above which a feature is named without a quotation."""

_WHOLE = re.compile(r"whole (?:number|point)|integer|no decimals|without decimals", re.IGNORECASE)
_STEPS = re.compile(r"in steps of (\d+(?:\.\d+)?)", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"')


@dataclass(frozen=True, slots=True)
class Assessment:
    """The measurements of a candidate, and the rubric that weighs them."""

    question: PromptQuestion
    rubric: Rubric
    features: Features
    raised: frozenset[str]
    """Names of the later features that the Critic has raised so far."""

    def merit(self, all_features: bool = False) -> float:
        return self.rubric.merit(self.features, self.rubric.later if all_features else self.raised)

    def open_features(self, min_change: float) -> list[tuple[str, float]]:
        """The features that were not raised yet and change the merit by at least `min_change`, with the change."""
        effects = self.rubric.effects(self.features).items()
        return [(name, change) for name, change in effects if abs(change) >= min_change and name not in self.raised]

    def score(self, merit: float, step: float | None = None) -> str:
        """The score as text: rounded to steps from the low end of the scale, or to three digits."""
        low, high = self.question.low, self.question.high
        value = self.rubric.low + (self.rubric.high - self.rubric.low) * merit
        if step:
            value = low + step * floor((value - low) / step + 0.5)
        else:
            value = round(value, max(0, 3 - ceil(log10(high - low))))
        return f"{min(high, max(low, value)):.12g}"

    def reasons(self) -> str:
        """The first features and all raised ones, and their merit."""
        first = "; ".join(map(self.feature_text, self.rubric.first))
        raised = "; ".join(self.feature_text(name) for name in self.rubric.later if name in self.raised)
        weighed = f"; weighed in: {raised}" if raised else ""
        return f"{PREFIX}{first}{weighed}. Merit {self.merit():.2f} of 1."

    def feature_text(self, name: str) -> str:
        """A feature with its merit and, if that is not high, a quotation of its evidence."""
        merit, evidence = self.features[name]
        quotable = " ".join(evidence.replace('"', "'").split())
        quotation = f', "{quotable}"' if evidence and merit <= NO_QUOTE_ABOVE else ""
        return f"{PHRASES[name]} ({merit:.0%}){quotation}"


_NUMBERED = re.compile(r"(\w+)_(\d+)")


def reply_for_each(prompt: Prompt, reply: Callable[[Prompt], dict[str, str]]) -> dict[str, str]:
    """The reply about several candidates: that to the prompt about each of them alone, in fields with its number."""
    fields = [match for name in prompt.outputs if (match := _NUMBERED.fullmatch(name))]
    names = list(dict.fromkeys(match[1] for match in fields))
    replies: dict[str, str] = {}
    for number in dict.fromkeys(match[2] for match in fields):
        head = f"candidate_{number}"
        turns = [
            line.removeprefix(f"{head}: ")
            for line in prompt.input("debate").splitlines()
            if line.startswith(f"{head}: ")
        ]
        inputs = {**prompt.inputs, "candidate": prompt.input(head), "debate": "\n".join(turns), "candidates": ""}
        outputs = dict.fromkeys(names, "str")
        alone = reply(replace(prompt, inputs=inputs, outputs=outputs, descriptions={}))
        replies |= {f"{name}_{number}": text for name, text in alone.items()}
    return replies


def assessment_of(prompt: Prompt, candidate: str = "candidate") -> Assessment:
    """Measure the candidate of a prompt, which is in the input field `candidate`."""
    question = question_of(prompt)
    features = measure(question.kind, prompt.input("source"), prompt.input("context"), prompt.input(candidate))
    rubric = read_guide(f"{prompt.input('guide')}\n{prompt.role}")
    if rubric is None or not features.keys() >= rubric.weights.keys():
        usual = rubric_for(question.kind, question.aspect)
        rubric = replace(usual, low=question.low, high=question.high)
    return Assessment(question, rubric, features, _raised(prompt, rubric))


def _raised(prompt: Prompt, rubric: Rubric) -> frozenset[str]:
    """The later features that the prompt names: in turns of the Critic, in evaluation steps, or by other referees.

    A referee also uses one more feature, chosen by the hash of its role.
    """
    text, extra = prompt.input("debate"), set()
    if "other referees" in prompt.role.lower():
        digest = hashlib.sha256(prompt.role.encode("utf-8", "surrogatepass")).digest()[0]
        extra = {rubric.later[digest % len(rubric.later)]} if rubric.later else set()
    else:
        turns = [line for line in text.splitlines() if line.startswith("Critic, round ")]
        text = "\n".join([prompt.input("steps"), *turns])
    # Text in quotation marks is the candidate's.
    text = _QUOTED.sub("", text)
    return frozenset(extra | {name for name in rubric.later if PHRASES[name] in text})


def score(prompt: Prompt) -> dict[str, str]:
    """The Scorer, G-Eval's form and ChatEval's referee: score the first and the named features."""
    assessment = assessment_of(prompt)
    merit = assessment.merit()
    step = score_step(prompt.granularity_text)
    return {"rationale": assessment.reasons(), "score": assessment.score(merit, step)}


@lru_cache(maxsize=256)
def score_step(text: str) -> float | None:
    """The step of the requested scores, or None if any number is allowed."""
    steps = _STEPS.search(text)
    return float(steps[1]) if steps else 1.0 if _WHOLE.search(text) else None


def criticise(prompt: Prompt) -> dict[str, str]:
    """The Critic: raises the next feature that was not named yet and changes the score by at least the persona's
    threshold."""
    assessment = assessment_of(prompt)
    open_features = assessment.open_features(threshold(prompt.role))
    return {"feedback": _objection(assessment, *open_features[0]) if open_features else NO_ISSUE}


def argue_both_sides(prompt: Prompt) -> dict[str, str]:
    """The Critic that writes two briefs: the next feature that lowers the score, and the next one that raises it."""
    assessment = assessment_of(prompt)
    open_features = assessment.open_features(threshold(prompt.role))
    if not open_features:
        return {"case_for_less": NO_ISSUE, "case_for_more": NO_ISSUE}
    lower, higher = (next((i for i in open_features if (i[1] < 0) == less), None) for less in (True, False))
    return {
        "case_for_less": _objection(assessment, *lower) if lower else NOTHING,
        "case_for_more": _objection(assessment, *higher) if higher else NOTHING,
    }


def _objection(assessment: Assessment, name: str, change: float) -> str:
    direction = "lower" if change < 0 else "higher"
    return f"{PREFIX}{assessment.feature_text(name)}. This speaks for a {direction} score."


def break_tie(prompt: Prompt) -> dict[str, str]:
    """The Tie-breaker: scores all features, raised or not, and sides with the role that was nearer."""
    assessment = assessment_of(prompt)
    earlier, final = assessment.merit(), assessment.merit(all_features=True)
    # The Scorer's latest score contains what was raised; if the other features change it, the Critic was right.
    has_moved = abs(final - earlier) >= NEUTRAL_THRESHOLD / 2
    rest = [assessment.feature_text(name) for name, _ in assessment.open_features(NEUTRAL_THRESHOLD / 2)]
    not_raised = f" Not yet raised: {'; '.join(rest)}." if rest else " Nothing of weight was left unsaid."
    count = len(assessment.rubric.weights)
    reasoning = f"{PREFIX}all {count} readings give merit {final:.2f}, the debate so far {earlier:.2f}.{not_raised}"
    return {
        "reasoning": reasoning,
        "side": "Critic" if has_moved else "Scorer",
        "final_score": assessment.score(final, score_step(prompt.granularity_text)),
    }


# --- the Critic's severity: a weighted count of severe and mild words in its persona ---

# An optimizer may reword a persona, so personas are not recognised by name: each wording adds or subtracts points.
NEUTRAL_THRESHOLD = 0.04
"""The smallest change, as a share of the scale, that a Critic with a neutral persona raises."""

_THRESHOLD_RANGE = (0.005, 0.3)

_SEVERITY_WORDS: tuple[tuple[str, float], ...] = (
    (r"devil'?s advocate", 1.0),
    (r"as (?:much|hard|critical(?:ly)?|strict(?:ly)?|often|severe(?:ly)?) as (?:you can|possible)", 0.5),
    (r"strict|severe|harsh|rigorous|relentless|ruthless|merciless|uncompromising|unforgiving", 0.75),
    (r"argue against|oppos|attack|challeng|contest|refut|disprov|contradict", 0.25),
    (r"criticis|criticiz|critical|find fault|flaw|fault|objection", 0.25),
    (r"every (?:objection|point|reason|claim|detail|sentence)|each (?:reason|claim|point|detail|sentence)", 0.25),
    (r"scepti|skepti|demanding|doubt|suspic|literally|thorough|scrutin", 0.25),
    (r"only (?:if|when) (?:no|nothing|you are certain)|nothing is too small", 0.25),
    (r"mild|gentl|leniently|lenient|generous|forgiv|charitabl|tolerant|indulgent", -1.0),
    (r"moderate", -1.25),
    (r"supportive|encourag|benevolen|kindly|goodwill|friendly|sympath", -1.0),
    (r"constructive|cautious|reserved", -0.5),
    (r"only where|only major|only grave|only serious|clearly weak|on the whole|by and large", -0.5),
    (r"benefit of the doubt", -1.25),
)
_PATTERNS = tuple((re.compile(pattern), points) for pattern, points in _SEVERITY_WORDS)
_NEGATION = re.compile(r"\b(?:not|never|no|without|don't|neither|nor|avoid)\b(?:\W+\w+){0,2}\W*$")


@lru_cache(maxsize=256)
def threshold(role: str) -> float:
    """The smallest change that the Critic raises, as a share of the scale; each point of severity halves it.

    Each pattern counts once; right after a negation it counts half, with the opposite sign.
    """
    text = " ".join(role.lower().replace("’", "'").replace("no issue", "").split())
    points = 0.0
    for pattern, value in _PATTERNS:
        match = pattern.search(text)
        if match:
            points += -value / 2 if _NEGATION.search(text[: match.start()]) else value
    low, high = _THRESHOLD_RANGE
    return min(high, max(low, NEUTRAL_THRESHOLD * exp2(-points)))


# --- other judges: G-Eval's steps, ChatEval's comparisons and summaries ---

LATER_STEPS = 2
"""Number of later features in derived steps; not all, because steps are written before any candidate is seen."""


def derive_steps(prompt: Prompt) -> dict[str, str]:
    """Evaluation steps for an aspect: the rubric's first features and some later ones, by name."""
    question = question_of(prompt)
    rubric = rubric_for(question.kind, question.aspect)
    steps = [f"Look at {PHRASES[name]}." for name in (*rubric.first, *rubric.later[:LATER_STEPS])]
    steps.append(f"Weigh the findings and place the candidate between {question.low:g} and {question.high:g}.")
    return {"steps": "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))}


def compare(prompt: Prompt) -> dict[str, str]:
    """A referee's scores of two answers, computed independently."""
    step, fields, reasons = score_step(prompt.granularity_text), {}, []
    for number in ("1", "2"):
        assessment = assessment_of(prompt, f"answer_{number}")
        fields[f"score_{number}"] = assessment.score(assessment.merit(), step)
        reasons.append(f"answer {number}: {assessment.reasons().removeprefix(PREFIX)}")
    return {"rationale": PREFIX + " ".join(reasons), **fields}


def summarize(prompt: Prompt) -> dict[str, str]:
    """A summary of a discussion: the named features, and each speaker's latest score."""
    debate = prompt.input("debate")
    if not debate:
        return {"summary": NOTHING}
    phrases = [phrase for phrase in PHRASES.values() if phrase in debate]
    heads = [line.partition(": ")[0] for line in debate.splitlines()]
    latest = {head.partition(",")[0]: head for head in heads if ", score" in head}
    return {
        "summary": f"{PREFIX}named so far: {'; '.join(phrases) or 'no reading'}. "
        f"Latest: {'; '.join(latest.values()) or 'no score'}."
    }


# --- the hallucination debate ---

# Claims are sentences. The support of a claim is the share of its content words that are in the evidence, and whether
# its numbers are; negation, exchanged roles and paraphrase are not recognised.
_ABOUT_SPEAKERS = re.compile(r"\?|\b(?:i|i'm|i've|my|me|you|your|thanks|hello|hi)\b", re.IGNORECASE)
_CLAIM_LIMIT = re.compile(r"at most (\d+) claims")
_EARLIER_VERDICT = re.compile(r"^\w+, factuality (True|False), severity \d", re.MULTILINE)
_MAX_SEVERITY = 5

_MAX_MISSING = 0.4
"""A claim is factual if at most this share of its content words is missing from the evidence."""

_AGENT_BIAS = 0.15
"""Skeptic subtracts this from that share; Trust adds it after a factual verdict and subtracts it after another."""


def select_facts(prompt: Prompt) -> dict[str, str]:
    """The sentences of a reply that are not questions and do not mention the speakers."""
    facts = [sentence for sentence in sentences(prompt.input("candidate")) if not _ABOUT_SPEAKERS.search(sentence)]
    return {"facts": " ".join(facts) or "NONE"}


def extract_claims(prompt: Prompt) -> dict[str, str]:
    """The sentences of a text; if there are too many, adjacent ones are joined."""
    texts = [" ".join(sentence.split()) for sentence in sentences(prompt.input("candidate"))]
    size = -(-len(texts) // max_claims(prompt))
    claims = [" ".join(texts[i : i + size]) for i in range(0, len(texts), max(1, size))]
    return {"claims": "\n".join(claims) or "NONE"}


def max_claims(prompt: Prompt) -> int:
    """The maximum number of claims that the prompt allows."""
    limit = _CLAIM_LIMIT.search(prompt.input("task"))
    return int(limit[1]) if limit else 1_000_000


def write_queries(prompt: Prompt) -> dict[str, str]:
    """All content words of a claim, and its longest ones."""
    content = [word for word in words(prompt.input("claim")) if word not in STOP_WORDS] or ["claim"]
    longest = sorted(dict.fromkeys(content), key=lambda word: (-len(word), word))[:5]
    return {"query_1": " ".join(content), "query_2": " ".join(longest)}


def check_claim(prompt: Prompt) -> dict[str, str]:
    """An opinion about a claim, by the evidence, or about a response, by its worst sentence and the given texts."""
    claim = prompt.input("claim")
    # A question is no evidence for its answer.
    is_question = re.search(r"^Source: (?:question|prompt)\b", prompt.input("task"))
    material = prompt.input("context") if is_question else f"{prompt.input('source')}\n{prompt.input('context')}"
    evidence = prompt.input("evidence") if claim else material
    texts = [claim] if claim else sentences(prompt.input("candidate"))
    evidence_stems, numbers = {*content_stems(evidence)}, numbers_in(evidence)
    if not evidence_stems or not texts:
        opinion = f"{PREFIX}nothing is given to check it with."
        return {"opinion": opinion, "factuality": "True", "severity": "0"}
    missing, unsupported = max((_missing(text, evidence_stems), sorted(numbers_in(text) - numbers)) for text in texts)
    verdicts = _EARLIER_VERDICT.findall(prompt.input("debate"))
    max_missing = _MAX_MISSING
    if "Skeptic agent" in prompt.role:
        max_missing -= _AGENT_BIAS
    elif "Trust agent" in prompt.role and verdicts:
        max_missing += _AGENT_BIAS if verdicts[-1] == "True" else -_AGENT_BIAS
    factual = missing <= max_missing and not unsupported
    if "Leader" in prompt.role and len(set(verdicts)) == 1:
        factual = verdicts[0] == "True"
    severity = round(_MAX_SEVERITY * missing) + bool(unsupported)
    severity = min(severity, 3) if factual else max(1, min(severity, _MAX_SEVERITY))
    opinion = f"{PREFIX}{1 - missing:.0%} of the content words stand in what is given"
    opinion += f"; the number {unsupported[0]} does not." if unsupported else "."
    return {"opinion": opinion, "factuality": str(factual), "severity": str(severity)}


def _missing(text: str, evidence_stems: set[str]) -> float:
    """The share of a text's content words that are not in the evidence."""
    stems = {*content_stems(text)}
    return len(stems - evidence_stems) / len(stems) if stems else 0.0
