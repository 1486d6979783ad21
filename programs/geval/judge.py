"""G-Eval (Liu et al. 2023): evaluation steps that the LM derives once, then a form that contains only a score.

The steps are derived from the description of task and aspect, and reused for every candidate. The score mode determines
how the form becomes a score; `programs.roles.score_modes` lists the departures from the paper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import dspy

from debate_judge.data.errors import InputError
from debate_judge.programs.judge import Item, ItemJudge
from debate_judge.programs.lm.usage import CallTag
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.role import Fields, ReplyFailure, Role, RoleReply, material
from debate_judge.programs.roles.score_modes import Mode, score
from debate_judge.programs.transcript import EMPTY, Transcript, Turn


class Deriving(dspy.Signature):
    """You prepare an evaluation that others will carry out. From the task and the definition of the aspect,
    work out the steps by which a careful rater gets from the material to a score: what to look at, what to compare
    with what, which faults and merits count for this aspect and by how much they move the score along the scale.
    Raters have all of the material before them at once, see one candidate and no other, and write down nothing but
    the score: ask for nothing that this rules out, such as notes or a step to take before the candidate is read.
    The steps must serve for every candidate of the task, so name no particular text."""

    task: str = dspy.InputField()
    aspect: str = dspy.InputField()
    correction: str = dspy.InputField(default="")
    steps: str = dspy.OutputField(desc="the evaluation steps, numbered, one a line, and nothing else")


class _Question(NamedTuple):
    """Everything that the steps depend on. They are derived anew when a tuner rewrites the instructions."""

    instructions: str
    task: str
    aspect: str


class Steps(Role):
    """Derives the steps, unless they are given; predictor name `steps`.

    Args:
        given: Task name -> aspect name -> steps, from an export or the user. They are used without asking the LM.
    """

    def __init__(self, given: Mapping[str, Mapping[str, str]] | None = None) -> None:
        super().__init__("steps", Deriving)
        self.given = {(task, name): text for task, texts in (given or {}).items() for name, text in texts.items()}
        for (task, name), text in self.given.items():
            if not isinstance(text, str) or not text.strip():
                raise InputError(
                    "not evaluation steps", field=f"steps.{task}.{name}", expected="a non-empty text", found=text
                )
        self._derived: dict[tuple[str, str], tuple[_Question, str]] = {}
        self._deriving: dict[_Question, asyncio.Future[RoleReply[str] | ReplyFailure]] = {}

    async def of(self, item: Item) -> RoleReply[str] | ReplyFailure:
        """The steps for the item's task and aspect.

        Calls are counted for the item that had the steps derived; items that find them, or wait for them, have 0.
        """
        name = (item.task.name, item.aspect.name)
        if name in self.given:
            return RoleReply(self.given[name], 0)
        # Texts of one item, or whether it has a context, must not influence steps that are used for all items.
        item = replace(item, source="", text="", context="")
        fields = material(item, "")
        question = _Question(self.signature.instructions, fields["task"], fields["aspect"])
        while True:
            derived_for, text = self._derived.get(name, (None, ""))
            if derived_for == question:
                return RoleReply(text, 0)
            if question not in self._deriving:
                return await self._derive(item, name, question)
            flight = self._deriving[question]
            await asyncio.wait((flight,))
            if not flight.cancelled() and isinstance(answer := flight.result(), ReplyFailure):
                return replace(answer, calls=0)

    async def _derive(self, item: Item, name: tuple[str, str], question: _Question) -> RoleReply[str] | ReplyFailure:
        flight: asyncio.Future[RoleReply[str] | ReplyFailure] = asyncio.get_running_loop().create_future()
        self._deriving[question] = flight
        try:
            answer = await self.ask(item, _read)
            if isinstance(answer, RoleReply):
                self._derived[name] = (question, answer.value)
            flight.set_result(answer)
            return answer
        finally:
            del self._deriving[question]
            # After an error or an interrupt, one of the waiting items asks in its turn.
            flight.cancel()

    def texts(self) -> dict[str, dict[str, str]]:
        """All steps known so far, in the form of `given`; without those derived with other instructions than now."""
        now = self.signature.instructions
        known = {name: text for name, (question, text) in self._derived.items() if question.instructions == now}
        texts: dict[str, dict[str, str]] = {}
        for (task, aspect), text in {**known, **self.given}.items():
            texts.setdefault(task, {})[aspect] = text
        return texts


def _read(fields: Fields) -> str | replies.Unreadable:
    return fields["steps"].strip() or replies.Unreadable("no evaluation steps were given")


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


class GEval(ItemJudge):
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
        self.scorer = Role("scorer", Form)
        self.mode = Mode.of(str(score_mode))

    async def converse_about(self, item: Item, rounds: int) -> Transcript:
        steps = await self.steps.of(item)
        if isinstance(steps, ReplyFailure):
            return EMPTY.add(steps.at("steps", 0))
        filled = await score(
            self.scorer, self.mode, item, CallTag("scorer"), inputs={"steps": replies.escape(steps.value)}
        )
        calls = steps.calls + filled.calls
        if isinstance(filled, ReplyFailure):
            return EMPTY.add(replace(filled, calls=calls).at("scorer", 0))
        how = f"{filled.value.how}. " if filled.value.how else ""
        text = f"{how}By these steps: {steps.value}"
        return EMPTY.add(Turn("scorer", 0, text, score=filled.value.score, calls=calls))

    def tunable(self) -> tuple[str, ...]:
        # With given steps, the instructions of the predictor that derives steps have no effect.
        return ("scorer",) if self.steps.given else ("steps", "scorer")

    def config(self) -> dict[str, Any]:
        """The mode and all steps derived so far, so that a rebuilt judge does not derive them again."""
        return {"score_mode": str(self.mode), "steps": self.steps.texts()}
