"""One LM turn: what a role is given to read, its call, and the second call where a reply cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

import dspy
from dspy.signatures.signature import Signature
from dspy.utils.exceptions import AdapterParseError

from debate_judge.data.schema import Aspect
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.errors import fatal
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.adapter import RoleLastAdapter, UnreadableError, UnusableError
from debate_judge.programs.roles.expected_score import Alternatives
from debate_judge.programs.roles.wording import kinds
from debate_judge.programs.transcript import Failure, UnscoredReason

ADAPTER = RoleLastAdapter()

T = TypeVar("T")

SAMPLING_TEMPERATURE = 1.0
"""Of every call that is one of several samples (G-Eval, section 2; FairEval's multiple evidence)."""


class Fields(dict[str, str]):
    """Output field -> text, as the reply had it; an absent field is an empty text."""

    logprobs: Alternatives | None = None
    """The reply's tokens with their alternatives, where they were asked for and given."""


class JudgeSignature(dspy.Signature):
    """Evaluate."""

    # The order of these fields is the order in the prompt: what most calls share comes first, and the
    # debate, which only grows, comes last, so that a provider's prefix cache reaches as far as it can.
    standard: str = dspy.InputField(default="")
    examples: str = dspy.InputField(default="")
    task: str = dspy.InputField()
    source: str = dspy.InputField()
    context: str = dspy.InputField(default="")
    aspect: str = dspy.InputField()
    rules: str = dspy.InputField(default="")
    similar: str = dspy.InputField(default="")
    candidate: str = dspy.InputField()
    debate: str = dspy.InputField(default="")
    role: str = dspy.InputField(default="")
    correction: str = dspy.InputField(default="")


@dataclass(frozen=True, slots=True)
class RoleReply(Generic[T]):
    """A reply that could be read, and the LM calls it took."""

    value: T
    calls: float


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why nothing usable came, and the LM calls spent on it."""

    reason: UnscoredReason
    detail: str
    calls: float

    def at(self, role: str, number: int) -> Failure:
        """The failure that it is in round `number` of a transcript."""
        return Failure(role, number, self.reason, self.detail, self.calls)


class Role(dspy.Module):
    """One speaker: a single predictor, named `predict`, whose instructions an optimizer may rewrite.

    Args:
        speaker: What transcripts, failures and the table of costs call it.
        signature: What it reads and which fields it replies with; mostly a subclass of `JudgeSignature`.
        instructions: In place of the signature's own.
    """

    def __init__(self, speaker: str, signature: type[Signature], instructions: str | None = None) -> None:
        super().__init__()
        self.speaker = speaker
        self.predict = dspy.Predict(signature if instructions is None else signature.with_instructions(instructions))

    async def ask(
        self,
        item: Item,
        read: Callable[[Fields], T | replies.Unreadable],
        *,
        debate: str = "",
        inputs: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> RoleReply[T] | NoAnswer:
        """Ask, and once more with what was wrong if the reply cannot be read.

        The second question differs from the first in its text, so no cache can answer it with the first reply.

        Args:
            item: What is asked about.
            read: From the fields of a reply to what it says.
            debate: What was said before.
            inputs: Input fields besides those that `material` makes of the item, or in place of them. Texts in them
                that a data set or an LM wrote must be escaped already. With a `role` among them the role is told that
                in place of its instructions.
            settings: Of these calls only, as `JudgeLM.ask` takes them, e.g. those of `sample`.

        Raises:
            dspy.LMError: The LM cannot be used at all; a failure of this call alone is a `NoAnswer`.
        """
        asked = {**material(item, debate), **(inputs or {})}
        settings = settings or {}
        why = ""
        for attempt in (1, 2):
            asked["correction"] = f"Your last reply could not be used: {why}." if why else ""
            try:
                fields = await self._reply(asked, settings)
            except (dspy.LMError, UnusableError) as error:
                return failed_call(error, attempt)
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
        return NoAnswer("unreadable reply", why + self._last_reply(asked, settings), 2)

    async def _reply(self, inputs: dict[str, str], settings: Mapping[str, Any]) -> Fields:
        """Call the predictor through DSPy where a trace or callbacks want to see it, else the LM at once.

        Both ways send the same messages; the second spares 0.5 ms of bookkeeping a call.
        """
        lm, signature = dspy.settings.lm, self.predict.signature
        watched = dspy.settings.trace is not None or dspy.settings.callbacks
        # Calls with settings never go through DSPy: its predictors hand no sample number on, and equal messages
        # without one are one call, not k.
        if isinstance(lm, JudgeLM) and (settings or not watched):
            reply = await lm.ask(ADAPTER.format(signature, self.predict.demos, inputs), self.speaker, **settings)
            fields = Fields(ADAPTER.fields(signature, reply))
            fields.logprobs = reply.logprobs
            if dspy.settings.trace is not None:
                known = {name: text for name, text in inputs.items() if name in signature.input_fields}
                dspy.settings.trace.append((self.predict, known, dspy.Prediction(**fields)))
            return fields
        config: dict[str, Any] = {"speaker": self.speaker} if isinstance(lm, JudgeLM) else {}
        config |= {theirs: settings[ours] for ours, theirs in _DSPY_SETTINGS.items() if ours in settings}
        known = {name: text for name, text in inputs.items() if name in signature.input_fields}
        with dspy.context(adapter=ADAPTER):
            prediction = await self.predict.acall(**known, config=config)
        return Fields({name: prediction[name] or "" for name in signature.output_fields})

    def _last_reply(self, inputs: dict[str, str], settings: Mapping[str, Any]) -> str:
        """The beginning of the last reply, and the key under which the store keeps it whole, for people to look at."""
        lm = dspy.settings.lm
        if not isinstance(lm, JudgeLM):
            return ""
        found = lm.kept(ADAPTER.format(self.predict.signature, self.predict.demos, inputs), **settings)
        if found is None:
            return ""
        key, reply = found
        text = replies.excerpt(reply.text)
        return (f"; the reply was: {text}" if text else "") + f" [kept as {key}]"


def failed_call(error: dspy.LMError | UnusableError, calls: float) -> NoAnswer:
    """What an error makes of the item that the call was about, `calls` having been made.

    Raises:
        dspy.LMError: The error itself, where the LM cannot be used at all.
    """
    if isinstance(error, UnusableError):
        return NoAnswer(error.reason, f"the LM ended its reply with {error.reason!r}", calls)
    if fatal(error):
        raise error
    too_long = isinstance(error, dspy.ContextWindowExceededError)
    return NoAnswer("too long" if too_long else "lm error", f"{type(error).__name__}: {error}", calls)


_DSPY_SETTINGS = {"temperature": "temperature", "sample": "rollout_id"}
"""Setting of a call -> what DSPy calls it, for an LM that is none of ours."""


def sample(number: int) -> dict[str, Any]:
    """Settings of one of several samples; without a number of its own it would be the same call as the others."""
    return {"temperature": SAMPLING_TEMPERATURE, "sample": number}


def material(item: Item, debate: str) -> dict[str, str]:
    """The input fields of an item. Every text that a data set or an agent wrote is escaped."""
    return {
        "task": f"{kinds(item.task, bool(item.context))} One aspect of the candidate is rated.",
        "source": _escaped(item.source),
        "context": _escaped(item.context),
        "aspect": aspect_text(item.aspect),
        "candidate": _escaped(item.text),
        "debate": replies.escape(debate),
    }


def aspect_text(aspect: Aspect) -> str:
    """An aspect as every role reads it: name, scale and definition."""
    scale = aspect.scale
    return f"{aspect.name} ({scale}, {scale.low:g} worst, {scale.high:g} best): {aspect.definition}"


# A source is read in every turn of every debate about any of its candidates.
_escaped = lru_cache(maxsize=1024)(replies.escape)
