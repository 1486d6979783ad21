"""Reads the prompts that the offline LM gets, writes its replies, and plays the roles of debates.

It parses this project's prompts and DSPy's Chat and JSON prompts; like any LM, it knows only what is in the messages.
The roles are stateless. Features are named by their phrase in the debate: the Scorer measures those that the Critic's
turns name, and computes its score anew, without using an earlier one.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, exp2, floor, log10

from debate_judge.programs.offline import rubric as offline_rubric
from debate_judge.programs.offline.features import Kind, measured
from debate_judge.programs.offline.rubric import PHRASES, Features, Rubric, Weighting
from debate_judge.programs.roles.parsing import NO_ISSUE, REQUEST

# --- prompts and replies ---

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
    def fineness(self) -> str:
        """The parts of the prompt that may say the granularity of scores: the end of the aspect, and the role."""
        return f"{self.input('aspect').rpartition(chr(10))[2]}\n{self.role}"


@dataclass(frozen=True, slots=True)
class JudgedQuestion:
    kind: Kind
    aspect: str
    low: float
    high: float


def parse(system: str, user: str) -> Prompt:
    """Parse the system message and the last user message of a call."""
    material, ours, requested = user.rpartition(OURS)
    if ours:
        inputs = _sections(material)
        outputs, descriptions = {}, {}
        for name, text in _sections(requested).items():
            # Type and description as `programs.roles.role` writes them.
            description = text.removeprefix("<").removesuffix(">")
            match = _TYPE.search(description)
            outputs[name] = match[1] if match else "str"
            descriptions[name] = description[: match.start()] if match else description
        return Prompt(inputs, inputs.get("role", ""), outputs, descriptions, False, user)
    _, listed, after = system.partition("Your output fields are:")
    fields, _, rest = after.partition("\nAll interactions will be structured")
    objective = rest.partition("your objective is:")[2].strip()
    body = user.rpartition(_THEIRS)[0] or user
    listed_fields = _OUTPUT_LIST.findall(fields) if listed else []
    outputs = {name: kind for name, kind, _ in listed_fields}
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


def question_of(prompt: Prompt) -> JudgedQuestion:
    """The question of a prompt. Any task with a context is treated as a dialogue with a fact."""
    task, aspect = prompt.input("task").lower(), prompt.input("aspect")
    is_reply = prompt.input("context") or any(word in task for word in _DIALOGUE)
    kind: Kind = "dialogue" if is_reply else "summary"
    match = _ASPECT.match(aspect)
    low, high = (float(match[2]), float(match[3])) if match else (1.0, 5.0)
    return JudgedQuestion(kind, match[1] if match else aspect, low, high)


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
    if kind in ("str", "bool"):
        return text == "True" if kind == "bool" else text
    try:
        return json.loads(text)
    except ValueError:
        return text


# --- the debate ---

LABEL = "Text statistics: "
"""Beginning of every statement of the offline LM, so that it is not mistaken for that of a real LM."""

ALL_IS_WELL = 0.75
"""The merit above which a feature is given without a quotation."""

_WHOLE = re.compile(r"whole (?:number|point)|integer|no decimals|without decimals", re.IGNORECASE)
_STEPS = re.compile(r"in steps of (\d+(?:\.\d+)?)", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"')


@dataclass(frozen=True, slots=True)
class Assessment:
    """The measurements of a candidate, and the rubric that weighs them."""

    question: JudgedQuestion
    rubric: Rubric
    features: Features
    raised: frozenset[str]
    """Names of the later items that the Critic has brought up so far."""
    ends: tuple[float, float]
    """The scores of merit 0 and 1: the ends of the scale, or those in a guide to the raters."""

    def merit(self, everything: bool = False) -> float:
        names = {item.name for item in self.rubric.later} if everything else self.raised
        return self.rubric.weigh(self.features, names)

    def open_items(self, least: float) -> list[tuple[Weighting, float]]:
        """The items that were not raised yet and change the score by at least `least`, with the change."""
        effects = self.rubric.effects(self.features)
        return [(item, change) for item, change in effects if abs(change) >= least and item.name not in self.raised]

    def score(self, merit: float, step: float | None = None) -> str:
        """The score as text: in steps from the low end of the scale, or with three digits across the scale."""
        low, high = self.question.low, self.question.high
        value = self.ends[0] + (self.ends[1] - self.ends[0]) * merit
        if step:
            value = low + step * floor((value - low) / step + 0.5)
        else:
            value = round(value, max(0, 3 - ceil(log10(high - low))))
        return f"{min(high, max(low, value)):.12g}"

    def reasons(self, merit: float | None = None) -> str:
        """The heaviest features of the first look, and all raised ones; `merit` if it is not theirs."""
        heaviest = sorted(self.rubric.first, key=lambda item: -item.weight)[:2]
        taken = [self.spoken(item) for item in self.rubric.later if item.name in self.raised]
        weighed = f"; weighed in: {'; '.join(taken)}" if taken else ""
        shown_merit = self.merit() if merit is None else merit
        return f"{LABEL}{'; '.join(map(self.spoken, heaviest))}{weighed}. Merit {shown_merit:.2f} of 1."

    def spoken(self, item: Weighting) -> str:
        """An item as text: with its value and, if its merit is not high, a quotation of its place in the text."""
        feature = self.features[item.name]
        well = (item.merit(self.features) or 0.0) > ALL_IS_WELL
        plain = " ".join(feature.evidence.replace('"', "'").split())
        place = f', "{plain}"' if feature.evidence and not well else ""
        return offline_rubric.spoken(item.name, feature) + place


def case_of(prompt: Prompt, candidate: str = "candidate") -> Assessment:
    """Measure the candidate of a prompt, which is in the input field `candidate`."""
    question = question_of(prompt)
    features = measured(question.kind, prompt.input("source"), prompt.input("context"), prompt.input(candidate))
    rubric = offline_rubric.rubric_for(question.kind, question.aspect)
    guide = offline_rubric.read_guide(f"{prompt.input('standard')}\n{prompt.role}")
    ends = (question.low, question.high)
    if guide is not None:
        rubric, ends = guide.applied(question.kind, rubric), (guide.low, guide.high)
    return Assessment(question, rubric, features, _raised(prompt, rubric), ends)


def _raised(prompt: Prompt, rubric: Rubric) -> frozenset[str]:
    """The later items that the prompt names: in turns of the Critic, in evaluation steps, or by other referees.

    A referee also looks at one more item, chosen by the hash of its role.
    """
    text, extra = prompt.input("debate"), set()
    if "other referees" in prompt.role.lower():
        draw = hashlib.sha256(prompt.role.encode("utf-8", "surrogatepass")).digest()[0]
        extra = {rubric.later[draw % len(rubric.later)].name}
    else:
        turns = [line for line in text.splitlines() if line.startswith("Critic, round ")]
        text = "\n".join([prompt.input("steps"), *turns])
    # Text in quotation marks is the candidate's.
    text = _QUOTED.sub("", text)
    return frozenset(extra | {item.name for item in rubric.later if PHRASES[item.name] in text})


def score(prompt: Prompt) -> dict[str, str]:
    """The Scorer, G-Eval's form and ChatEval's referee: the first look and the named items; a Critic that scores blind
    looks at all of them."""
    case = case_of(prompt)
    merit = case.merit(everything=BLIND in prompt.role)
    if prompt.role == CONTRARY:
        merit = float(merit < 0.5)
    return {"rationale": case.reasons(merit), "score": case.score(merit, step_of(prompt.fineness))}


BLIND = "before you have seen any score"
"""The words by which a Critic that scores blind is known (`programs.debate.prompts`)."""

CONTRARY = "Give the score that is farthest from the Scorer's."
"""Role of a dry run in which nobody agrees."""


@lru_cache(maxsize=256)
def step_of(text: str) -> float | None:
    """The step of the scores that are asked for, or None if any number is allowed."""
    steps = _STEPS.search(text)
    return float(steps[1]) if steps else 1.0 if _WHOLE.search(text) else None


def criticise(prompt: Prompt) -> dict[str, str]:
    """The Critic: raises the next feature that was not named yet and changes the score by the persona's threshold."""
    case = case_of(prompt)
    least = threshold(prompt.role)
    open_items = case.open_items(least)
    checked = len(case.rubric.later)
    if not open_items:
        review = f"{LABEL}none of {checked} readings would still move the score by {least:.1%} of the scale or more."
        return {"review": review, "decision": NO_ISSUE, "feedback": review}
    item, change = open_items[0]
    direction = "lower" if change < 0 else "higher"
    review = f"{LABEL}{len(open_items)} of {checked} readings would still move the score; the first is taken up."
    feedback = f"{LABEL}{case.spoken(item)}. This speaks for a {direction} score."
    return {"review": review, "decision": "ISSUE", "feedback": feedback}


def break_tie(prompt: Prompt) -> dict[str, str]:
    """The Tie-breaker: weighs all features, raised or not, and sides with the role that was nearer."""
    case = case_of(prompt)
    now, final = case.merit(), case.merit(everything=True)
    # The Scorer's latest score contains what was raised; if the other features change it, the Critic was right.
    moved = abs(final - now) >= PLAIN_THRESHOLD / 2
    rest = [case.spoken(item) for item, _ in case.open_items(PLAIN_THRESHOLD / 2)]
    unheard = f" Not yet raised: {'; '.join(rest)}." if rest else " Nothing of weight was left unsaid."
    count = len(case.rubric.items)
    reasoning = f"{LABEL}all {count} readings give merit {final:.2f}, the debate so far {now:.2f}.{unheard}"
    return {
        "reasoning": reasoning,
        "side": "Critic" if moved else "Scorer",
        "final_score": case.score(final, step_of(prompt.fineness)),
    }


# --- how severe the Critic is, by a weighted count of stern and mild words in its persona ---

# An optimizer may reword a persona, so personas are not recognised by name: each wording adds or subtracts points.
PLAIN_THRESHOLD = 0.04
"""The least change of merit, as a share of the scale, that a Critic with a neutral persona raises."""

_BOUNDS = (0.005, 0.3)

_WORDING: tuple[tuple[str, float], ...] = (
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
_PATTERNS = tuple((re.compile(pattern), points) for pattern, points in _WORDING)
_NEGATION = re.compile(r"\b(?:not|never|no|without|don't|neither|nor|avoid)\b(?:\W+\w+){0,2}\W*$")


@lru_cache(maxsize=256)
def threshold(role: str) -> float:
    """The least change of merit that the Critic raises; each point of sternness halves it.

    Each kind of wording counts once; right after a negation it counts half, with the opposite sign.
    """
    text = " ".join(role.lower().replace("’", "'").replace("no issue", "").split())
    points = 0.0
    for pattern, value in _PATTERNS:
        match = pattern.search(text)
        if match:
            points += -value / 2 if _NEGATION.search(text[: match.start()]) else value
    low, high = _BOUNDS
    return min(high, max(low, PLAIN_THRESHOLD * exp2(-points)))
