"""G-Eval (Liu et al. 2023): evaluation steps that the LM derives once, then form-filling: a reply with only a score.

The steps are derived from the description of task and aspect, and reused for every candidate. By default the score is
the paper's: the points of the scale weighted by their probabilities, or the mean of 20 samples of an LM that does not
give these. docs/judges.md lists the departures from the paper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

import dspy

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Scale
from debate_judge.programs import parsing
from debate_judge.programs.judge import EMPTY, Failure, Item, ItemJudge, Transcript, Turn
from debate_judge.programs.lm.replies import CallTag
from debate_judge.programs.role import (
    DEFAULT_SAMPLES,
    Fields,
    ParsedScore,
    Role,
    RoleReply,
    ScoreMode,
    ask_score,
    item_inputs,
    scale_points,
)

T = TypeVar("T")


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


class Once:
    """One result for all who ask for the same key while it is being made."""

    def __init__(self) -> None:
        self._running: dict[Any, asyncio.Future[Any]] = {}

    async def result(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """The result of `make`, and whether this call has made it; if its maker is interrupted, one that waits does."""
        while key in self._running:
            running = self._running[key]
            await asyncio.wait((running,))
            if not running.cancelled():
                return running.result(), False
        future = self._running[key] = asyncio.get_running_loop().create_future()
        try:
            made = await make()
            future.set_result(made)
            return made, True
        finally:
            del self._running[key]
            future.cancel()


class StepsRole(Role):
    """Derives the steps that are not given; predictor name `steps`.

    Args:
        given_steps: Task name -> aspect name -> steps, from an export or the user; the LM is not asked for these.
    """

    def __init__(self, given_steps: Mapping[str, Mapping[str, str]] | None = None) -> None:
        super().__init__("steps", Deriving)
        by_task = (given_steps or {}).items()
        self.given_steps = {(task, name): text for task, steps in by_task for name, text in steps.items()}
        for (task, name), text in self.given_steps.items():
            if not isinstance(text, str) or not text.strip():
                raise InputError(
                    "not evaluation steps", field=f"steps.{task}.{name}", expected="a non-empty text", found=text
                )
        self._derived: dict[tuple[str, str], tuple[tuple[str, str, str], str]] = {}
        """(task, aspect) -> all that the steps depend on, such as the instructions; and the steps."""
        self._once = Once()

    async def for_item(self, item: Item) -> RoleReply[str] | Failure:
        """The steps for the item's task and aspect.

        The call counts for the item that made it, and as 0 calls for all other items.
        """
        names = (item.task.name, item.aspect.name)
        if names in self.given_steps:
            return RoleReply(self.given_steps[names], 0)
        # Steps are used for all items, so they must not depend on the texts of one, or on whether it has a context.
        item = replace(item, source="", text="", context="")
        fields = item_inputs(item, "")
        key = self.signature.instructions, fields["task"], fields["aspect"]
        known_key, text = self._derived.get(names, (None, ""))
        if known_key == key:
            return RoleReply(text, 0)
        reply, made_here = await self._once.result(key, lambda: self.ask(item, _parse_steps))
        if isinstance(reply, RoleReply):
            self._derived[names] = (key, reply.value)
        return reply if made_here else replace(reply, calls=0)

    def known_steps(self) -> dict[str, dict[str, str]]:
        """Given steps and those derived with the present instructions, in the form of the constructor's argument."""
        instructions = self.signature.instructions
        derived = {names: text for names, (key, text) in self._derived.items() if key[0] == instructions}
        texts: dict[str, dict[str, str]] = {}
        for (task, aspect), text in {**derived, **self.given_steps}.items():
            texts.setdefault(task, {})[aspect] = text
        return texts


def _parse_steps(fields: Fields) -> str | parsing.Unreadable:
    return fields["steps"].strip() or parsing.Unreadable("no evaluation steps were given")


class FormFilling(dspy.Signature):
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


AUTO = "auto"
"""The paper's score: `WEIGHTED` where the LM gives log-probabilities, else `SAMPLED`."""
WEIGHTED, SAMPLED = ScoreMode("expected"), ScoreMode("sampled", DEFAULT_SAMPLES)


class GEval(ItemJudge):
    """A judge by form-filling.

    Args:
        score_mode: `auto`, or `text`, `sampled:k` or `expected`. With `auto`, the first item shows whether the LM gives
            log-probabilities; every score's text says which of the two it is, and a warning the change to samples.
        steps: Task name -> aspect name -> evaluation steps; missing ones are derived by the LM.
    """

    kind = "geval"
    settable = ("score_mode",)

    def __init__(self, score_mode: str = AUTO, steps: Mapping[str, Mapping[str, str]] | None = None) -> None:
        super().__init__()
        self.steps = StepsRole(steps)
        self.scorer = Role("scorer", FormFilling)
        self.mode = None if score_mode == AUTO else ScoreMode.parse(str(score_mode))
        self._gives_logprobs: dict[str, bool] = {}
        self._once = Once()
        self._warns = True

    async def converse_about(self, item: Item, rounds: int) -> Transcript:
        steps = await self.steps.for_item(item)
        if isinstance(steps, Failure):
            return EMPTY.add(steps)
        form = await self._fill_in(item, {"steps": parsing.escape(steps.value)})
        calls = steps.calls + form.calls
        if isinstance(form, Failure):
            return EMPTY.add(replace(form, calls=calls))
        basis = f"{form.value.basis}. " if form.value.basis else ""
        text = f"{basis}By these steps: {steps.value}"
        return EMPTY.add(Turn("scorer", 0, text, score=form.value.score, calls=calls))

    async def _fill_in(self, item: Item, inputs: Mapping[str, str]) -> RoleReply[ParsedScore] | Failure:
        if self.mode is not None:
            return await self._ask(self.mode, item, inputs)
        if not _whole_points(item.aspect.scale):
            return await self._ask(SAMPLED, item, inputs, "the points of the scale cannot be tokens")
        lm = str(getattr(self.scorer.lm or dspy.settings.lm, "model", ""))
        while lm not in self._gives_logprobs:
            reply, made_here = await self._once.result(lm, lambda: self._first(lm, item, inputs))
            if made_here:
                return reply
        if self._gives_logprobs[lm]:
            return await self._ask(WEIGHTED, item, inputs)
        return await self._ask(SAMPLED, item, inputs, _NO_LOGPROBS)

    async def _first(self, lm: str, item: Item, inputs: Mapping[str, str]) -> RoleReply[ParsedScore] | Failure:
        """Score an item and find out by it which mode the LM allows."""
        try:
            weighted = await self._ask(WEIGHTED, item, inputs)
        except dspy.LMUnsupportedFeatureError as error:
            weighted = Failure("scorer", 0, "no log-probabilities", str(error), 1)
        if isinstance(weighted, RoleReply):
            self._gives_logprobs[lm] = True
        # A provider may also refuse the parameter as a bad request, which says nothing unless samples do better.
        if isinstance(weighted, RoleReply) or weighted.reason not in ("no log-probabilities", "lm error"):
            return weighted
        sampled = await self._ask(SAMPLED, item, inputs, _NO_LOGPROBS)
        if isinstance(sampled, RoleReply):
            self._gives_logprobs[lm] = False
            if self._warns:
                _warn_of_samples(lm)
        return replace(sampled, calls=sampled.calls + weighted.calls)

    async def _ask(
        self, mode: ScoreMode, item: Item, inputs: Mapping[str, str], why: str = ""
    ) -> RoleReply[ParsedScore] | Failure:
        if mode.name != "text" and _whole_points(item.aspect.scale):
            inputs = {"steps": f"{inputs['steps']}\n\nThe score is a whole number."}
        reply = await ask_score(self.scorer, mode, item, CallTag("scorer"), inputs=inputs)
        if why and isinstance(reply, RoleReply):
            return replace(reply, value=replace(reply.value, basis=f"{why}: {reply.value.basis}"))
        return reply

    def dry_run_copy(self) -> GEval:
        copy: GEval = self.deepcopy()
        # An estimate's upper case only assumes that the LM gives none.
        copy._warns = False
        return copy

    def tunable(self) -> tuple[str, ...]:
        # With given steps, the instructions of the predictor that derives steps have no effect.
        return ("scorer",) if self.steps.given_steps else ("steps", "scorer")

    def config(self) -> dict[str, Any]:
        """The mode and all known steps, so that a rebuilt judge does not derive them again."""
        return {"score_mode": AUTO if self.mode is None else str(self.mode), "steps": self.steps.known_steps()}


_LOG = logging.getLogger(__name__)
_NO_LOGPROBS = "the LM gives no log-probabilities"


@lru_cache
def _warn_of_samples(lm: str) -> None:
    """Once for each LM, however many copies of the judge a compile makes."""
    _LOG.warning("G-Eval: %s gives no log-probabilities; scores are the mean of %d samples", lm, SAMPLED.samples)


def _whole_points(scale: Scale) -> bool:
    """Whether the points of a scale can be tokens."""
    try:
        return bool(scale_points(scale))
    except InputError:
        return False
