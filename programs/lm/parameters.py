"""Parameters of calls that a provider refuses, although its model can be used without them or with less of them.

Which parameters a model takes is not known from its name: gateways have aliases, Azure has deployments with names of
their own. An error that names a parameter is therefore taken at its word, and the call is repeated without it. Only
if that call is answered is the parameter left out of later calls, so that nothing that a text makes a server say
changes them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from dspy import lm15

from debate_judge.programs.lm.reply import Reply

_LOG = logging.getLogger(__name__)

_REMOVABLE = ("temperature", "max_tokens", "top_p", "seed")
"""The judge is the same without them. Log-probabilities it may need."""
_REFUSED = re.compile(
    r"(not |un)support|does not support|only the default|deprecated|not (permitted|allowed|available)|unexpected"
    r"|unrecognized|unknown|may only be set|cannot (be|both)|must be 1\b|should be (set to )?1\b",
    re.IGNORECASE,
)
_LIMIT = re.compile(
    r"at most|too (large|high|long)|maximum|exceed|less than|no more than|<=|\u2264|up to|between|in the range|above"
    r"|> \d",
    re.IGNORECASE,
)
_MAX_TOKENS = "max_(?:completion_|output_|new_)?tokens"
_NUMBER = re.compile(r"\d[\d,_]*")


class ProviderParameters:
    """What one model refuses, learnt from its errors.

    Args:
        model: For messages.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._removed: set[str] = set()
        self._limits: dict[str, int] = {}

    def accepted(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings without what the model is known to refuse."""
        return {
            name: min(value, self._limits[name]) if name in self._limits else value
            for name, value in settings.items()
            if name not in self._removed
        }

    async def call(self, send: Callable[[dict[str, Any]], Awaitable[Reply]], settings: Mapping[str, Any]) -> Reply:
        """Call `send` with the settings; if an error names one of them, again without it or within its limit.

        Raises:
            lm15.LM15Error: Of `send`.
        """
        accepted, changes = self.accepted(settings), dict[str, int | None]()
        while True:
            try:
                reply = await send(accepted)
                break
            except (lm15.InvalidRequestError, lm15.ContextLengthError, lm15.CapabilityError) as error:
                change = refused_parameter(str(error), accepted)
                if change is None or change[0] in changes:
                    raise
                name, limit = change
                changes[name] = limit
                accepted = {key: value for key, value in accepted.items() if key != name}
                if limit is not None:
                    accepted[name] = limit
        for name, limit in changes.items():
            self._learn(name, limit)
        return reply

    def _learn(self, name: str, limit: int | None) -> None:
        if limit is None and name not in self._removed:
            self._removed.add(name)
            _LOG.warning("%s takes no %s; it is left out from now on", self._model, name.replace("_", "-"))
        elif limit is not None and name == "logprobs" and self._limits.get(name) != limit:
            # The room for a reply differs from prompt to prompt.
            self._limits[name] = limit
            _LOG.warning("%s gives the log-probabilities of at most %d alternatives", self._model, limit)


def refused_parameter(message: str, settings: Mapping[str, Any]) -> tuple[str, int | None] | None:
    """The parameter of `settings` that an error names, and the largest value that it allows, None if it allows none;
    None if the error names no parameter that can be changed."""
    message = re.sub(r"HTTP \d+: ", "", message)
    if (room := _room_in_context(message)) is not None and room < settings.get("max_tokens", 0):
        return "max_tokens", room
    for name, pattern, least in (("logprobs", "top_?logprobs", 1), ("max_tokens", _MAX_TOKENS, 16)):
        if name in settings and re.search(rf"\b{pattern}\b", message) and _LIMIT.search(message):
            numbers = [int(re.sub("[,_]", "", text)) for text in _NUMBER.findall(message)]
            if lower := [number for number in numbers if least <= number < settings[name]]:
                return name, max(lower)
    named = [name for name in _REMOVABLE if name in settings and re.search(rf"\b{name}\b", message)]
    return (named[0], None) if named and _REFUSED.search(message) else None


def _room_in_context(message: str) -> int | None:
    """The tokens that a context leaves for a reply, by an error that names the context's length and the prompt's."""
    context = re.search(r"(?i)context (?:length|window|size)\D{0,20}(\d+)", message)
    prompt = re.search(
        r"(\d+) (?:(?:input|prompt) tokens|(?:tokens )?(?:in the messages|from the input|in your prompt))", message
    )
    room = int(context[1]) - int(prompt[1]) if context and prompt else 0
    return room if room > 0 else None
