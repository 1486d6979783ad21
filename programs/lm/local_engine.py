"""Engines that answer inside the process: the offline stand-in, the dry run, the scripted LM of tests.

Importing this loads no DSPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from debate_judge.programs.lm.reply import Messages, Reply


class LocalEngine:
    """An engine that answers inside the process."""

    def answer(self, system: str, user: str, settings: Mapping[str, Any]) -> Reply:
        """Answer a call by its system text, which may be empty, and its last user text.

        It runs on the event loop and must not block. Demonstrations are not read.
        """
        raise NotImplementedError

    async def chat(self, model: str, messages: Messages, settings: Mapping[str, Any]) -> Reply:
        system = next((m["content"] for m in messages if m["role"] == "system"), "")
        return self.answer(system, messages[-1]["content"], settings)

    async def aclose(self) -> None:
        pass
