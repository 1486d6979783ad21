"""The offline LM's roles beyond a debate about one candidate: tables of cells, G-Eval, ChatEval, hallucinations.

Of several candidates or aspects, each cell is judged as in a prompt about it alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from debate_judge.programs.offline.features import STOP, sentences, stem, values, words
from debate_judge.programs.offline.roles import (
    LABEL,
    NOTHING,
    Prompt,
    break_tie,
    case_of,
    criticise,
    question_of,
    score,
    step_of,
)
from debate_judge.programs.offline.rubric import PHRASES, rubric_for
from debate_judge.programs.roles.guide import with_guide
from debate_judge.programs.roles.parsing import NO_ISSUE

# --- tables of candidates and aspects ---

_LABEL = re.compile(r"(candidate_\d+)(?:_(\w+))?")
"""The name of a cell: a candidate, and in prompts about several aspects one of them."""

_OF_ASPECT = ("aspect", "examples", "similar")
"""Sections that each of several aspects has, named with its label; the fourth is its guide."""


def score_table(prompt: Prompt) -> dict[str, str]:
    """The Scorer's reasons, and each score that is asked for."""
    return _scored(prompt, "scores", score, "score", "rationale")


def break_ties(prompt: Prompt) -> dict[str, str]:
    """The Tie-breaker's reasons and final scores."""
    return _scored(prompt, "final_scores", break_tie, "final_score", "reasoning")


def criticise_table(prompt: Prompt) -> dict[str, str]:
    """The Critic's decisions, with the evidence of each issue."""
    replies = _by_cell(prompt, "decisions", criticise)
    issues = {name: reply["feedback"] for name, reply in replies.items() if reply["decision"] != NO_ISSUE}
    decisions = dict.fromkeys(replies, NO_ISSUE)
    for name, feedback in issues.items():
        decisions[name] = "TOO HIGH" if feedback.endswith("speaks for a lower score.") else "TOO LOW"
    reviews = (f"{name}: {reply['review'].removeprefix(LABEL)}" for name, reply in replies.items())
    return {"review": LABEL + " ".join(reviews), "decisions": _lines(decisions), **issues}


def _scored(
    prompt: Prompt, field: str, judge: Callable[[Prompt], dict[str, str]], score: str, reasons: str
) -> dict[str, str]:
    replies = _by_cell(prompt, field, judge)
    first = next(iter(prompt.outputs))
    texts = {name: replies[name][reasons] for name in (first, *named(prompt, first))}
    return {**texts, field: _lines({name: reply[score] for name, reply in replies.items()})}


def cell_count(prompt: Prompt) -> int:
    """Number of cells that the reply is about."""
    fields = ("scores", "decisions", "final_scores")
    return next(len(named(prompt, field)) for field in fields if field in prompt.outputs)


def named(prompt: Prompt, field: str) -> list[str]:
    """The names of the cells in the request for a field."""
    return list(dict.fromkeys(match[0] for match in _LABEL.finditer(prompt.descriptions[field])))


def _by_cell(prompt: Prompt, field: str, judge: Callable[[Prompt], dict[str, str]]) -> dict[str, dict[str, str]]:
    """Name of a cell for which `field` is asked -> the reply to the prompt that corresponds to it alone."""
    debates: dict[str, list[str]] = {}
    for line in prompt.input("debate").splitlines():
        name, _, text = line.partition(": ")
        debates.setdefault(name, []).append(text)
    replies = {}
    for name, match in {match[0]: match for match in _LABEL.finditer(prompt.descriptions[field])}.items():
        candidate, aspect = match[1], match[2]
        inputs = {**prompt.inputs, "candidate": prompt.input(candidate), "debate": "\n".join(debates.get(name, ()))}
        if f"aspect_{aspect}" in inputs:
            inputs |= {section: prompt.input(f"{section}_{aspect}") for section in _OF_ASPECT}
            if guide := prompt.input(f"guide_{aspect}"):
                inputs["standard"] = with_guide(prompt.input("standard"), guide)
        replies[name] = judge(replace(prompt, inputs=inputs))
    return replies


def _lines(values: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in values.items())


# --- other judges: G-Eval's steps, ChatEval's comparisons and summaries ---

STEPS = 2
"""Number of later rubric items in derived steps; not all, as in steps that were written before seeing any text."""


def derive_steps(prompt: Prompt) -> dict[str, str]:
    """Evaluation steps for an aspect: the rubric's first items and the heaviest later ones, by name."""
    question = question_of(prompt)
    rubric = rubric_for(question.kind, question.aspect)
    heaviest = sorted((item for item in rubric.later if not item.fault), key=lambda item: -item.weight)[:STEPS]
    steps = [f"Look at {PHRASES[item.name]}." for item in (*rubric.first, *heaviest)]
    steps.append(f"Weigh the findings and place the candidate between {question.low:g} and {question.high:g}.")
    return {"steps": "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))}


def compare(prompt: Prompt) -> dict[str, str]:
    """A referee's scores of two answers, computed independently."""
    cases = [case_of(prompt, name) for name in ("answer_1", "answer_2")]
    first, second = (case.score(case.merit(), step_of(prompt.fineness)) for case in cases)
    reasons = [f"answer {number}: {case.reasons().removeprefix(LABEL)}" for number, case in enumerate(cases, 1)]
    return {"rationale": LABEL + " ".join(reasons), "score_1": first, "score_2": second}


def sum_up(prompt: Prompt) -> dict[str, str]:
    """A summary of a discussion: the features that were named, and each speaker's latest score."""
    debate = prompt.input("debate")
    if not debate:
        return {"summary": NOTHING}
    points = [phrase for phrase in PHRASES.values() if phrase in debate]
    heads = [line.partition(": ")[0] for line in debate.splitlines()]
    latest = {head.partition(",")[0]: head for head in heads if ", score" in head}
    return {
        "summary": f"{LABEL}named so far: {'; '.join(points) or 'no reading'}. "
        f"Latest: {'; '.join(latest.values()) or 'no score'}."
    }


# --- the hallucination debate ---

# Claims are sentences. A claim counts as supported as far as its content words and numbers stand in the evidence;
# negation, exchanged roles and paraphrase are not seen, and nothing is known of the world.
_ADDRESS = re.compile(r"\?|\b(?:i|i'm|i've|my|me|you|your|thanks|hello|hi)\b", re.IGNORECASE)
_MAX_UNITS = re.compile(r"at most (\d+) claims")
_BEFORE = re.compile(r"^\w+, factuality (True|False), severity \d", re.MULTILINE)
_SEVEREST = 5

_PATIENCE = 0.4
"""Largest share of a claim's content words that may be missing from the evidence of a factual claim."""

_LEANING = 0.15
"""What Trust adds to that share after a factual verdict, and Skeptic subtracts."""


def select_facts(prompt: Prompt) -> dict[str, str]:
    """The sentences of a reply that neither ask a question nor mention the speakers."""
    kept = [sentence for sentence in sentences(prompt.input("candidate")) if not _ADDRESS.search(sentence)]
    return {"facts": " ".join(kept) or "NONE"}


def extract_claims(prompt: Prompt) -> dict[str, str]:
    """The sentences of a text; if there are too many, neighbours are joined."""
    stated = [" ".join(sentence.split()) for sentence in sentences(prompt.input("candidate"))]
    size = -(-len(stated) // most_claims(prompt))
    claims = [" ".join(stated[i : i + size]) for i in range(0, len(stated), max(1, size))]
    return {"claims": "\n".join(claims) or "NONE"}


def most_claims(prompt: Prompt) -> int:
    """How many claims the prompt allows."""
    limit = _MAX_UNITS.search(prompt.input("task"))
    return int(limit[1]) if limit else 1_000_000


def write_queries(prompt: Prompt) -> dict[str, str]:
    """All content words of a claim, and its longest ones."""
    content = [word for word in words(prompt.input("claim")) if word not in STOP] or ["claim"]
    longest = sorted(dict.fromkeys(content), key=lambda word: (-len(word), word))[:5]
    return {"query_1": " ".join(content), "query_2": " ".join(longest)}


def assess(prompt: Prompt) -> dict[str, str]:
    """An opinion about a claim by the evidence, or about a response, sentence by sentence, by the given texts."""
    claim = prompt.input("claim")
    # A question says nothing about its answer.
    asks = re.search(r"^Source: (?:question|prompt)\b", prompt.input("task"))
    given = prompt.input("context") if asks else f"{prompt.input('source')}\n{prompt.input('context')}"
    ground = prompt.input("evidence") if claim else given
    stated = [claim] if claim else sentences(prompt.input("candidate"))
    known, numbers = _stems(ground), values(ground)
    if not known or not stated:
        opinion = f"{LABEL}nothing is given to check it with."
        return {"opinion": opinion, "factuality": "True", "severity": "0"}
    absent, unseen = max((_missing(text, known), sorted(values(text) - numbers)) for text in stated)
    before = _BEFORE.findall(prompt.input("debate"))
    patience = _PATIENCE
    if "Skeptic agent" in prompt.role:
        patience -= _LEANING
    elif "Trust agent" in prompt.role and before:
        patience += _LEANING if before[-1] == "True" else -_LEANING
    factual = absent <= patience and not unseen
    if "Leader" in prompt.role and len(set(before)) == 1:
        factual = before[0] == "True"
    severity = round(_SEVEREST * absent) + bool(unseen)
    severity = min(severity, 3) if factual else max(1, min(severity, _SEVEREST))
    opinion = f"{LABEL}{1 - absent:.0%} of the content words stand in what is given"
    opinion += f"; the number {unseen[0]} does not." if unseen else "."
    return {"opinion": opinion, "factuality": str(factual), "severity": str(severity)}


def _stems(text: str) -> set[str]:
    return {stem(word) for word in words(text) if word not in STOP}


def _missing(text: str, known: set[str]) -> float:
    """The share of the content words of a text that are not known."""
    stems = _stems(text)
    return len(stems - known) / len(stems) if stems else 0.0
