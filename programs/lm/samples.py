"""Samples of one score that are copies: a gateway's cache answers equal requests with one reply."""

from __future__ import annotations

import logging

from debate_judge.programs.lm.reply import Messages, Reply

_LOG = logging.getLogger(__name__)

_MAX_ANSWERS = 10_000
"""Number of latest answers that are compared."""


class CopyWatch:
    """Says, once, that an LM's samples are copies of each other, so that their mean is that of a single one.

    Args:
        model: For the message.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._answers: dict[int, None] = {}
        """The latest answers with their questions and ids, hashed, the oldest first."""
        self._said = False

    def observe(self, messages: Messages, sample: int | None, reply: Reply) -> None:
        """Compare a reply that the server has just given with earlier samples; `sample` is the number of its sample."""
        if self._said or sample is None:
            return
        answer = hash((*(message["content"] for message in messages), reply.id, reply.text))
        is_copy = reply.id is not None and answer in self._answers
        if is_copy or reply.from_cache:
            self._said = True
            how = "with the id of another one" if is_copy else "from its cache"
            _LOG.warning(
                "%s: the server answers a sample %s, so that several samples are one reply; switch the cache of the "
                "gateway off, or choose the score mode text", self._model, how,
            )  # fmt: skip
        self._answers[answer] = None
        if len(self._answers) > _MAX_ANSWERS:
            del self._answers[next(iter(self._answers))]
