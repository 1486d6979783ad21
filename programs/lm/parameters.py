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
from dataclasses import dataclass
from typing import Any

from dspy import lm15

from debate_judge.programs.lm.reply import Reply

_LOG = logging.getLogger(__name__)

_REMOVABLE = ("temperature", "top_p", "seed")
"""The judge is the same without them, whatever is wrong with them. Log-probabilities it may need."""
_LIMITED = {
    "logprobs": (r"(?:top_?|sample )?logprobs", 1),
    "max_tokens": (r"max(?:imum)?[_ ]?(?:completion|output|new)?[_ ]?tokens", 16),
}
"""Parameter -> its names in errors, and the least number that can be a limit of it."""
_REFUSED = re.compile(
    r"(?:\bnot|un|n['\u2019]t) ?support|deprecated|not (?:permitted|allowed|available)|unexpected|unrecognized|unknown",
    re.IGNORECASE,
)
_LIMIT = re.compile(
    r"at most|too (?:large|high|long)|maximum|max allowed|exceed|(?:less|lower|greater) than|no more than|<=?|\u2264|>"
    r"|up to|between|range|above|limit",
    re.IGNORECASE,
)
_BELOW = re.compile(r"(?:less|lower) than(?! or equal)\D*$|<\s*$", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.\-])(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:_\d{3})*)(?!\w)(\s*\(?exclusive)?")
"""A whole number that is no part of a name, such as that of a model."""
_NOT_ABOUT_IT = re.compile(r"HTTP \d+: |\b(?:code|status)['\"]*:?\s*['\"]?\d{3}\b")
_ROOM = (
    r"(?P<prompt>\d+) \+ \d+ > (?P<context>\d+)",
    r"must be <= (?P<context>\d+)\. Given: (?P<prompt>\d+) .?inputs",
    r"context (?:length|window|size|limit)\D{0,20}(?P<context>\d+).*?"
    r"(?P<prompt>\d+) (?:(?:input|prompt) tokens|(?:tokens )?(?:in the messages|from the input|in your prompt)"
    r"|of text input)",
)
"""How errors name the tokens of the context and of the prompt."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A parameter that an error names."""

    name: str
    limit: int | None = None
    """The largest value that is allowed; None if it is none."""
    of_all_calls: bool = True
    """Whether it is about the model; else about this call's prompt."""


class ProviderParameters:
    """What one model refuses, learnt from its errors.

    Args:
        model: For messages.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._limits: dict[str, int | None] = {}

    def accepted(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings without what the model is known to refuse."""
        return _within(settings, self._limits)

    def allow_more_tokens(self, max_tokens: int) -> bool:
        """Whether a reply that was cut off at `max_tokens` may be longer, as far as is known."""
        return self.accepted({"max_tokens": 4 * max_tokens}) != self.accepted({"max_tokens": max_tokens})

    async def call(self, send: Callable[[dict[str, Any]], Awaitable[Reply]], settings: Mapping[str, Any]) -> Reply:
        """Call `send` with the settings; if an error names one of them, again without it or within its limit.

        Raises:
            lm15.LM15Error: Of `send`.
        """
        accepted, refusals = self.accepted(settings), dict[str, Refusal]()
        while True:
            try:
                reply = await send(accepted)
                break
            except (lm15.InvalidRequestError, lm15.ContextLengthError, lm15.CapabilityError) as error:
                refusal = refused_parameter(str(error), accepted)
                if refusal is None or refusal.name in refusals:
                    raise
                refusals[refusal.name] = refusal
                accepted = _within(accepted, {refusal.name: refusal.limit})
        for refusal in refusals.values():
            if refusal.of_all_calls:
                self._learn(refusal)
        return reply

    def _learn(self, refusal: Refusal) -> None:
        if self._limits.get(refusal.name, -1) == refusal.limit:
            # Several calls were in flight.
            return
        self._limits[refusal.name] = refusal.limit
        name = refusal.name.replace("_", "-")
        if refusal.limit is None:
            _LOG.warning("%s takes no %s; it is left out from now on", self._model, name)
        else:
            _LOG.warning("%s takes %s up to %d, which holds from now on", self._model, name, refusal.limit)


def _within(settings: Mapping[str, Any], limits: Mapping[str, int | None]) -> dict[str, Any]:
    limited = {name: limits.get(name, value) for name, value in settings.items()}
    return {name: min(limit, settings[name]) for name, limit in limited.items() if limit is not None}


def refused_parameter(message: str, settings: Mapping[str, Any]) -> Refusal | None:
    """The parameter of `settings` that an error names; None if it names none that can be changed."""
    message = _NOT_ABOUT_IT.sub("", message)
    for pattern in _ROOM:
        if "max_tokens" in settings and (found := re.search(pattern, message, re.IGNORECASE | re.DOTALL)):
            room = int(found["context"]) - int(found["prompt"])
            return Refusal("max_tokens", room, of_all_calls=False) if 0 < room < settings["max_tokens"] else None
    for name, (pattern, least) in _LIMITED.items():
        if name in settings and re.search(rf"\b{pattern}\b", message, re.IGNORECASE):
            if _LIMIT.search(message) and (limit := _largest_allowed(message, least, settings[name])):
                return Refusal(name, limit)
            if name == "max_tokens" and _REFUSED.search(message):
                return Refusal(name)
    named = [name for name in _REMOVABLE if name in settings and re.search(rf"\b{name}\b", message, re.IGNORECASE)]
    return Refusal(named[0]) if named else None


def _largest_allowed(message: str, least: int, value: int) -> int | None:
    """The largest number below `value` that a message names, from `least` on."""
    numbers = []
    for found in _NUMBER.finditer(message):
        number = int(re.sub(r"\D", "", found[0]))
        numbers.append(number - bool(found[1] or _BELOW.search(message[: found.start()])))
    return max((number for number in numbers if least <= number < value), default=None)
