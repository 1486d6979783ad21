"""The offline LM's replies about several candidates or aspects: each cell as in a prompt about it alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from debate_judge.programs.offline import roles
from debate_judge.programs.offline.prompt import Prompt
from debate_judge.programs.roles.guide import with_guide

_LABEL = re.compile(r"(candidate_\d+)(?:_(\w+))?")
"""The name of a cell: a candidate, and in prompts about several aspects one of them."""

_OF_ASPECT = ("aspect", "examples", "similar")
"""Sections that each of several aspects has, named with its label; the fourth is its guide."""

_DIRECTION = {"lower": "TOO HIGH", "higher": "TOO LOW"}


def score(prompt: Prompt) -> dict[str, str]:
    """The Scorer's reasons, and each score that is asked for."""
    return _scored(prompt, "scores", roles.score, "score", "rationale")


def break_ties(prompt: Prompt) -> dict[str, str]:
    """The Tie-breaker's reasons and final scores."""
    return _scored(prompt, "final_scores", roles.break_tie, "final_score", "reasoning")


def criticise(prompt: Prompt) -> dict[str, str]:
    """The Critic's decisions, with the evidence of each issue."""
    debates = _debates(prompt)
    said = {name: roles.criticise(_about(prompt, name, debates)) for name in named(prompt, "decisions")}
    decisions: dict[str, str] = {}
    for name, one in said.items():
        issue = one["decision"] == "ISSUE"
        decisions[name] = _DIRECTION[_direction(one["feedback"])] if issue else roles.NO_ISSUE
    fields = {
        "review": roles.LABEL + " ".join(f"{n}: {one['review'].removeprefix(roles.LABEL)}" for n, one in said.items()),
        "decisions": _lines(decisions),
    }
    issues = {name: one["feedback"] for name, one in said.items() if decisions[name] != roles.NO_ISSUE}
    return fields | issues


def _scored(
    prompt: Prompt, field: str, judge: Callable[[Prompt], dict[str, str]], score: str, reasons: str
) -> dict[str, str]:
    debates = _debates(prompt)
    said = {name: judge(_about(prompt, name, debates)) for name in named(prompt, field)}
    first = next(iter(prompt.outputs))
    texts = {name: said[name][reasons] for name in (first, *named(prompt, first))}
    return {**texts, field: _lines({name: one[score] for name, one in said.items()})}


def asked(prompt: Prompt) -> int:
    """Number of cells that the reply is about."""
    return next(
        len(named(prompt, field)) for field in ("scores", "decisions", "final_scores") if field in prompt.outputs
    )


def named(prompt: Prompt, field: str) -> list[str]:
    """The names of the cells in the request for a field."""
    return list(dict.fromkeys(match[0] for match in _LABEL.finditer(prompt.descriptions[field])))


def _debates(prompt: Prompt) -> dict[str, list[str]]:
    """Name of a score -> the lines of the debate that are about it, without the name."""
    found: dict[str, list[str]] = {}
    for line in prompt.input("debate").splitlines():
        name, colon, said = line.partition(": ")
        if colon:
            found.setdefault(name, []).append(said)
    return found


def _about(prompt: Prompt, name: str, debates: Mapping[str, Sequence[str]]) -> Prompt:
    """The prompt about one cell alone that corresponds to this one."""
    match = _LABEL.fullmatch(name)
    candidate, aspect = (match[1], match[2]) if match else (name, None)
    debate = "\n".join(debates.get(name, ()))
    inputs = {**prompt.inputs, "candidate": prompt.input(candidate), "debate": debate}
    number = candidate.removeprefix("candidate_")
    if own := prompt.input(f"source_{number}"):
        inputs |= {"source": own, "context": prompt.input(f"context_{number}")}
    if aspect is not None and f"aspect_{aspect}" in inputs:
        inputs |= {section: prompt.input(f"{section}_{aspect}") for section in _OF_ASPECT}
        if guide := prompt.input(f"guide_{aspect}"):
            inputs["standard"] = with_guide(prompt.input("standard"), guide)
    return replace(prompt, inputs=inputs)


def _direction(feedback: str) -> str:
    return "lower" if feedback.endswith("speaks for a lower score.") else "higher"


def _lines(values: dict[str, str]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in values.items())
