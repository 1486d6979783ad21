"""Engines that answer inside the process: the offline stand-in, the dry run, the scripted LM of tests.

Importing this loads no DSPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from debate_judge.programs.lm.reply import Messages, Reply

if TYPE_CHECKING:
    from dspy.lm15 import Request, Response


class LocalEngine:
    """An engine that answers inside the process, for both sides of a `JudgeLM`: DSPy's modules call `complete`, roles
    `chat`. A subclass has `answer`, which must not block: it runs on the event loop.
    """

    def answer(self, system: str, user: str, settings: Mapping[str, Any]) -> Reply:
        """Answer a call.

        Args:
            system: The system text, empty if there is none.
            user: The last user text; earlier turns (demonstrations) are not read.
            settings: Of the call; `complete` gives none.
        """
        raise NotImplementedError

    def complete(self, request: Request) -> Response:
        from debate_judge.programs.lm.engines import response_of

        system = request.system
        told = system if isinstance(system, str) else "".join(part.text for part in system or ())
        return response_of(request.model, self.answer(told, request.messages[-1].text or "", {}))

    async def chat(self, model: str, messages: Messages, settings: Mapping[str, Any]) -> Reply:
        system = next((m["content"] for m in messages if m["role"] == "system"), "")
        return self.answer(system, messages[-1]["content"], settings)
