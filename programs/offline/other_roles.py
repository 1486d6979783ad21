"""The offline LM's other roles: G-Eval, ChatEval, the hallucination debate."""

from __future__ import annotations

import re

from debate_judge.programs.offline.features import STOP_WORDS, content_stems, numbers_in, sentences, words
from debate_judge.programs.offline.roles import (
    NOTHING,
    PREFIX,
    Prompt,
    assessment_of,
    question_of,
    score_step,
)
from debate_judge.programs.offline.rubric import PHRASES, rubric_for

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
