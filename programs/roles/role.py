"""One turn of a role: its inputs, the LM call, and a second call if the reply cannot be read."""

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
"""Temperature of calls that draw one of several samples (G-Eval, section 2; FairEval's multiple evidence)."""


class Fields(dict[str, str]):
    """Output field -> its text in the reply; a missing field is an empty text."""

    logprobs: Alternatives | None = None
    """The reply's tokens with their alternatives, if they were requested and returned."""


class JudgeSignature(dspy.Signature):
    """Evaluate."""

    # The fields have the order of the prompt: what most calls share comes first, and the debate, which only grows,
    # comes last, so that a provider's prefix cache covers as much as possible.
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
    """What was read from a reply, and the number of LM calls that it took."""

    value: T
    calls: float


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why there is no usable reply, and the number of LM calls made."""

    reason: UnscoredReason
    detail: str
    calls: float

    def at(self, role: str, number: int) -> Failure:
        """As the failure of `role` in round `number`."""
        return Failure(role, number, self.reason, self.detail, self.calls)


class Role(dspy.Module):
    """One speaker: a single predictor, named `predict`, whose instructions an optimizer may rewrite.

    Args:
        speaker: Its name in transcripts, failures and the table of costs.
        signature: Its input and output fields; usually a subclass of `JudgeSignature`.
        instructions: Replace the signature's own.
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
        """Ask the LM, and a second time with what was wrong if the reply cannot be read.

        The second prompt has another text than the first, so no cache can answer it with the first reply.

        Args:
            item: The item to ask about.
            read: Parses the fields of a reply.
            debate: The debate so far.
            inputs: Further input fields, which win over those of `material`. Texts in them that come from a data set or
                an LM must already be escaped. A field `role` replaces the role's instructions.
            settings: For these calls only, as `JudgeLM.ask` takes them, e.g. those of `sample`.

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
        """Call the predictor through DSPy if there is a trace or callbacks to inform, else call the LM directly.

        Both ways send the same messages; the second saves 0.5 ms of bookkeeping per call.
        """
        lm, signature = dspy.settings.lm, self.predict.signature
        watched = dspy.settings.trace is not None or dspy.settings.callbacks
        # Calls with settings never go through DSPy: its predictors drop the sample number, and k equal messages without
        # one would be a single call.
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
        """For messages: the beginning of the last reply, and its key in the store of replies."""
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
    """The answer for an item whose call failed, after `calls` calls.

    Raises:
        dspy.LMError: The error itself, if the LM cannot be used at all.
    """
    if isinstance(error, UnusableError):
        return NoAnswer(error.reason, f"the LM ended its reply with {error.reason!r}", calls)
    if fatal(error):
        raise error
    too_long = isinstance(error, dspy.ContextWindowExceededError)
    return NoAnswer("too long" if too_long else "lm error", f"{type(error).__name__}: {error}", calls)


_DSPY_SETTINGS = {"temperature": "temperature", "sample": "rollout_id"}
"""Setting of a call -> its name in DSPy, for LMs that are not a `JudgeLM`."""


def sample(number: int) -> dict[str, Any]:
    """Settings of a call that draws one of several samples; its number makes it another call than the others."""
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
    """The description of an aspect in prompts: name, scale and definition."""
    scale = aspect.scale
    return f"{aspect.name} ({scale}, {scale.low:g} worst, {scale.high:g} best): {aspect.definition}"


# Cached, because a source is in every prompt about any of its candidates.
_escaped = lru_cache(maxsize=1024)(replies.escape)
