"""Transports that answer inside the process: the offline stand-in, the dry run, the scripted LM of tests.

Importing this loads no DSPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from debate_judge.programs.lm.reply import Messages, Reply


class LocalTransport:
    """A transport that answers inside the process.

    A subclass defines `answer`, which must not block: it runs on the event loop.
    """

    def answer(self, system: str, user: str, settings: Mapping[str, Any]) -> Reply:
        """Answer a call.

        Args:
            system: The system text, empty if there is none.
            user: The last user text; earlier turns (demonstrations) are not read.
            settings: Those of the call.
        """
        raise NotImplementedError

    async def chat(self, model: str, messages: Messages, settings: Mapping[str, Any]) -> Reply:
        system = next((m["content"] for m in messages if m["role"] == "system"), "")
        return self.answer(system, messages[-1]["content"], settings)

    async def aclose(self) -> None:
        pass
