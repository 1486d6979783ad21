"""A role whose calls can differ from one another: further inputs, a temperature, the number of a sample.

`programs.roles.role.Role` asks with the material alone and with the LM's own settings. Here one question is bound
to its own inputs and settings first; the predictor stays the same, so a tuner's instructions reach every call.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Self

import dspy
from dspy.signatures.signature import Signature

from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.roles.expected_score import Alternatives
from debate_judge.programs.roles.role import ADAPTER, Fields, Role

SAMPLING_TEMPERATURE = 1.0
"""Of every call that is one of several samples (G-Eval, section 2; FairEval's multiple evidence)."""


def sample(number: int) -> dict[str, Any]:
    """Settings of one of several samples; without a number of its own it would be the same call as the others."""
    return {"temperature": SAMPLING_TEMPERATURE, "sample": number}


class Sampled(Role):
    """A speaker that can be bound to one question at a time."""

    def __init__(self, signature: type[Signature], instructions: str | None = None, speaker: str | None = None) -> None:
        super().__init__(signature, instructions)
        if speaker is not None:
            self.speaker = speaker
        self._inputs: Mapping[str, str] = {}
        self._settings: Mapping[str, Any] = {}
        self.logprobs: Alternatives | None = None
        """Of a bound copy: the last reply's tokens with their alternatives, where they were asked for and given."""

    def bound(self, inputs: Mapping[str, str] | None = None, settings: Mapping[str, Any] | None = None) -> Self:
        """The same speaker for one question.

        Args:
            inputs: Input fields besides the material, or in place of it. They must be disarmed already.
            settings: Of these calls only, as `JudgeLM.ask` takes them.
        """
        one = copy.copy(self)
        one._inputs, one._settings, one.logprobs = inputs or {}, settings or {}, None
        return one

    def _asked(self, inputs: dict[str, str]) -> tuple[dict[str, str], Mapping[str, Any]]:
        if self._inputs or self._settings:
            known = self.predict.signature.input_fields
            inputs = {name: text for name, text in {**inputs, **self._inputs}.items() if name in known}
        return inputs, self._settings

    async def _reply(self, inputs: dict[str, str]) -> Fields:
        signature = self.predict.signature
        inputs, settings = self._asked(inputs)
        if not settings:
            return await super()._reply(inputs)
        lm = dspy.settings.lm
        if not isinstance(lm, JudgeLM):
            config = {"temperature": self._settings.get("temperature"), "rollout_id": self._settings.get("sample")}
            prediction = await self.predict.acall(**inputs, config={k: v for k, v in config.items() if v is not None})
            return {name: prediction[name] or "" for name in signature.output_fields}
        # Not through DSPy even where somebody watches: its adapters hand no sample number on, and equal
        # messages without one are one call, not k.
        reply = await lm.ask(ADAPTER.format(signature, self.predict.demos, inputs), self.speaker, **self._settings)
        self.logprobs = reply.logprobs
        return ADAPTER.fields(signature, reply)
