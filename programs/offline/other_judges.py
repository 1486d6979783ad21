"""The offline LM in roles of other judges than debates: G-Eval's steps, ChatEval's comparisons and summaries."""

from __future__ import annotations

from debate_judge.programs.offline import prompt as offline_prompt
from debate_judge.programs.offline import rubric as offline_rubric
from debate_judge.programs.offline.prompt import Prompt
from debate_judge.programs.offline.roles import LABEL, case_of, step_of
from debate_judge.programs.offline.rubric import FEATURES

STEPS = 2
"""Number of later rubric items in derived steps; not all, as in steps that were written before seeing any text."""


def derive_steps(prompt: Prompt) -> dict[str, str]:
    """Evaluation steps for an aspect: the rubric's first items and the heaviest later ones, by name."""
    asked = offline_prompt.question(prompt)
    rubric = offline_rubric.rubric_for(asked.kind, asked.aspect)
    heaviest = sorted((item for item in rubric.later if not item.fault), key=lambda item: -item.weight)[:STEPS]
    steps = [f"Look at {FEATURES[item.name].phrase}." for item in (*rubric.first, *heaviest)]
    steps.append(f"Weigh the findings and place the candidate between {asked.low:g} and {asked.high:g}.")
    return {"steps": "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))}


def compare(prompt: Prompt) -> dict[str, str]:
    """A referee's scores of two answers, computed independently."""
    cases = [case_of(prompt, name) for name in ("answer_1", "answer_2")]
    first, second = (case.score(case.merit(), step_of(prompt.fineness)) for case in cases)
    told = [f"answer {number}: {case.reasons().removeprefix(LABEL)}" for number, case in enumerate(cases, 1)]
    return {"rationale": LABEL + " ".join(told), "score_1": first, "score_2": second}


def sum_up(prompt: Prompt) -> dict[str, str]:
    """A summary of a discussion: the readings that were named, and each speaker's latest score."""
    said = prompt.input("debate")
    if not said:
        return {"summary": offline_prompt.NOTHING}
    points = [feature.phrase for feature in FEATURES.values() if feature.phrase in said]
    heads = [line.partition(": ")[0] for line in said.splitlines()]
    latest = {head.partition(",")[0]: head for head in heads if ", score" in head}
    return {
        "summary": f"{LABEL}named so far: {'; '.join(points) or 'no reading'}. "
        f"Latest: {'; '.join(latest.values()) or 'no score'}."
    }
