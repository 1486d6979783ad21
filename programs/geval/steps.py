"""The evaluation steps of G-Eval, derived by the LM once for each task and aspect."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

import dspy

from debate_judge.data.errors import InputError
from debate_judge.programs.judge import Item
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.role import Fields, NoAnswer, Role, RoleReply, material


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


@dataclass(frozen=True, slots=True)
class _Question:
    """Everything that the steps depend on. They are derived anew when a tuner rewrites the instructions."""

    instructions: str
    task: str
    aspect: str


class Steps(Role):
    """Derives the steps, unless they are given; predictor name `steps.predict`.

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
        self._deriving: dict[_Question, asyncio.Future[RoleReply[str] | NoAnswer]] = {}

    async def of(self, item: Item) -> RoleReply[str] | NoAnswer:
        """The steps for the item's task and aspect.

        Calls are counted for the item that had the steps derived; items that find them, or wait for them, have 0.
        """
        name = (item.task.name, item.aspect.name)
        if name in self.given:
            return RoleReply(self.given[name], 0)
        # Texts of one item, or whether it has a context, must not influence steps that are used for all items.
        item = replace(item, source="", text="", context="")
        question = self._question(item)
        while True:
            asked, text = self._derived.get(name, (None, ""))
            if asked == question:
                return RoleReply(text, 0)
            if question not in self._deriving:
                return await self._derive(item, name, question)
            flight = self._deriving[question]
            await asyncio.wait((flight,))
            if not flight.cancelled() and isinstance(found := flight.result(), NoAnswer):
                return replace(found, calls=0)

    async def _derive(self, item: Item, name: tuple[str, str], question: _Question) -> RoleReply[str] | NoAnswer:
        flight: asyncio.Future[RoleReply[str] | NoAnswer] = asyncio.get_running_loop().create_future()
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

    def _question(self, item: Item) -> _Question:
        asked = material(item, "")
        return _Question(self.predict.signature.instructions, asked["task"], asked["aspect"])

    def texts(self) -> dict[str, dict[str, str]]:
        """All steps known so far, in the form of `given`; without those derived with other instructions than now."""
        now = self.predict.signature.instructions
        known = {name: text for name, (asked, text) in self._derived.items() if asked.instructions == now}
        known |= self.given
        texts: dict[str, dict[str, str]] = {}
        for (task, aspect), text in known.items():
            texts.setdefault(task, {})[aspect] = text
        return texts


def _read(fields: Fields) -> str | replies.Unreadable:
    return fields["steps"].strip() or replies.Unreadable("no evaluation steps were given")
