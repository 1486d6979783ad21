"""G-Eval (Liu et al. 2023): evaluation steps that the LM derives once, then a form that contains only a score.

The steps are derived from the description of task and aspect, and reused for every candidate. The score mode determines
how the form becomes a score; `programs.roles.score_modes` lists the departures from the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import dspy

from debate_judge.programs.geval.steps import Steps
from debate_judge.programs.judge import Item, Judge
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.role import NoAnswer
from debate_judge.programs.roles.score_modes import Mode, ScoringRole
from debate_judge.programs.transcript import EMPTY, Transcript, Turn


class Form(dspy.Signature):
    """You fill in an evaluation form. Apply the evaluation steps, one after the other and without writing anything
    down, to the candidate and the source, and judge by the definition of the aspect alone. The form has one field,
    the score."""

    task: str = dspy.InputField()
    source: str = dspy.InputField()
    context: str = dspy.InputField(default="")
    aspect: str = dspy.InputField()
    steps: str = dspy.InputField()
    candidate: str = dspy.InputField()
    correction: str = dspy.InputField(default="")
    score: str = dspy.OutputField(desc="one number on the aspect's scale and nothing else")


class GEval(Judge):
    """A judge by form-filling.

    Args:
        score_mode: `text`, `sampled:k` or `expected`.
        steps: Task name -> aspect name -> evaluation steps; missing ones are derived by the LM.
    """

    kind = "geval"
    settable = ("score_mode",)

    def __init__(self, score_mode: str = "text", steps: Mapping[str, Mapping[str, str]] | None = None) -> None:
        super().__init__()
        self.steps = Steps(steps)
        self.scorer = ScoringRole("scorer", Form, mode=Mode.of(score_mode))

    async def converse(self, item: Item, rounds: int) -> Transcript:
        """Fill in the form for `item`. The first item of an aspect also derives the steps, and counts their call."""
        steps = await self.steps.of(item)
        if isinstance(steps, NoAnswer):
            return EMPTY.add(steps.at("steps", 0))
        filled = await self.scorer.score(item, inputs={"steps": replies.escape(steps.value)})
        calls = steps.calls + filled.calls
        if isinstance(filled, NoAnswer):
            return EMPTY.add(replace(filled, calls=calls).at("scorer", 0))
        how = f"{filled.value.how}. " if filled.value.how else ""
        text = f"{how}By these steps: {steps.value}"
        return EMPTY.add(Turn("scorer", 0, text, score=filled.value.score, calls=calls))

    def tunable(self) -> tuple[str, ...]:
        # With given steps, the instructions of the predictor that derives steps have no effect.
        return ("scorer.predict",) if self.steps.given else ("steps.predict", "scorer.predict")

    def config(self) -> dict[str, Any]:
        """The mode and all steps derived so far, so that a rebuilt judge does not derive them again."""
        return {"score_mode": str(self.scorer.mode), "steps": self.steps.texts()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> GEval:
        """Rebuild a judge.

        Raises:
            InputError: The mode is unknown, or the steps of an aspect are empty.
        """
        return cls(str(config.get("score_mode", "text")), config.get("steps"))
