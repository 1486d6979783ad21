"""What Scorer, Critic and Tie-breaker share: the material they read, and asking again when a reply is unreadable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

import dspy
from dspy.signatures.signature import Signature
from dspy.utils.exceptions import AdapterParseError

from debate_judge.programs.judge import Item
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.errors import fatal
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.adapter import RoleLastAdapter, UnreadableError, UnusableError
from debate_judge.programs.transcript import UnscoredReason

ADAPTER = RoleLastAdapter()

T = TypeVar("T")
Fields = dict[str, str]
"""Output field -> text, as the reply had it; an absent field is an empty text."""


class JudgeSignature(dspy.Signature):
    """Evaluate."""

    # The order of these fields is the order in the prompt: what most calls share comes first, and the
    # debate, which only grows, comes last, so that a provider's prefix cache reaches as far as it can.
    panel: str = dspy.InputField(default="")
    task: str = dspy.InputField()
    source: str = dspy.InputField()
    context: str = dspy.InputField(default="")
    aspect: str = dspy.InputField()
    candidate: str = dspy.InputField()
    debate: str = dspy.InputField(default="")
    correction: str = dspy.InputField(default="")
    speaker: str = dspy.InputField(default="")


@dataclass(frozen=True, slots=True)
class RoleReply(Generic[T]):
    """A reply that could be read, and the LM calls it took."""

    value: T
    calls: int


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why nothing usable came, and the LM calls spent on it."""

    reason: UnscoredReason
    detail: str
    calls: int


class Role(dspy.Module):
    """One speaker: a single named predictor whose instructions an optimizer may rewrite."""

    speaker = "role"

    def __init__(self, signature: type[Signature], instructions: str | None = None) -> None:
        super().__init__()
        self.predict = dspy.Predict(signature if instructions is None else signature.with_instructions(instructions))

    async def ask(
        self, item: Item, debate: str, read: Callable[[Fields], T | replies.Unreadable], preamble: str = ""
    ) -> RoleReply[T] | NoAnswer:
        """Ask, and once more with what was wrong if the reply cannot be read.

        The second question differs from the first in its text, so no cache can answer it with the first reply.

        Args:
            item: What is asked about.
            debate: What was said before.
            read: From the fields of a reply to what it says.
            preamble: What all members of the debate are told (`programs.roles.preamble`).
        """
        inputs = material(item, debate)
        if preamble:
            inputs |= {"panel": preamble, "speaker": self.speaker.capitalize()}
        why = ""
        for attempt in (1, 2):
            correction = f"Your last reply could not be used: {why}." if why else ""
            try:
                fields = await self._reply({**inputs, "correction": correction})
            except dspy.LMError as error:
                if fatal(error):
                    raise
                too_long = isinstance(error, dspy.ContextWindowExceededError)
                return NoAnswer("too long" if too_long else "lm error", f"{type(error).__name__}: {error}", attempt)
            except UnusableError as error:
                return NoAnswer(error.reason, f"the LM ended its reply with {error.reason!r}", attempt)
            except AdapterParseError:
                why = "the reply was empty"
                continue
            except UnreadableError as error:
                why = error.why
                continue
            value = read(fields)
            if not isinstance(value, replies.Unreadable):
                return RoleReply(value, attempt)
            why = value.why
        return NoAnswer("unreadable reply", why + self._evidence({**inputs, "correction": correction}), 2)

    async def _reply(self, inputs: dict[str, str]) -> Fields:
        """Call the predictor: through DSPy where somebody watches (a trace, callbacks), else by the short way.

        Both ways send the same messages; the short one spares 0.5 ms of bookkeeping a call.
        """
        lm = dspy.settings.lm
        if dspy.settings.trace is not None or dspy.settings.callbacks or not isinstance(lm, JudgeLM):
            prediction = await self.predict.acall(**inputs)
            return {name: prediction[name] or "" for name in self.predict.signature.output_fields}
        reply = await lm.ask(ADAPTER.format(self.predict.signature, self.predict.demos, inputs), self.speaker)
        return ADAPTER.fields(self.predict.signature, reply)

    def _evidence(self, inputs: dict[str, str]) -> str:
        """The beginning of the last reply, and the key under which the store keeps it whole, for people to look at."""
        lm = dspy.settings.lm
        inputs, settings = self._asked(inputs)
        found = (
            lm.kept(ADAPTER.format(self.predict.signature, self.predict.demos, inputs), **settings)
            if isinstance(lm, JudgeLM)
            else None
        )
        if found is None:
            return ""
        key, reply = found
        text = replies.excerpt(reply.text)
        return (f"; the reply was: {text}" if text else "") + f" [kept as {key}]"

    def _asked(self, inputs: dict[str, str]) -> tuple[dict[str, str], Mapping[str, Any]]:
        """What is really asked: input fields, and settings of the call."""
        return inputs, {}


def material(item: Item, debate: str) -> dict[str, str]:
    """The input fields of an item. Every text that a data set or an agent wrote is disarmed."""
    task, aspect = item.task, item.aspect
    sentence = f"The source is a {task.source_label}; the candidate is a {task.candidate_label}."
    if item.context:
        sentence += f" The context is a {task.context_label} that belongs to the source."
    scale = aspect.scale
    return {
        "task": sentence + " One aspect of the candidate is rated.",
        "source": _escaped(item.source),
        "context": _escaped(item.context),
        "aspect": f"{aspect.name} ({scale}, {scale.low:g} worst, {scale.high:g} best): {aspect.definition}",
        "candidate": _escaped(item.text),
        "debate": replies.escape(debate),
    }


# A source is read in every turn of every debate about any of its candidates.
_escaped = lru_cache(maxsize=1024)(replies.escape)
