"""Runs a compile whose offline LM writes down each call that it executes, slowly enough to be killed.

python counted_compile.py LOG SECONDS_PER_CALL [arguments of compile.py]
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import Mapping
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

from debate_judge.optimize import compile as command
from debate_judge.programs import offline
from debate_judge.programs.lm.replies import Messages, Reply


def main() -> int:
    log, pause = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT), float(sys.argv[2])
    answer = offline.OfflineTransport.chat

    async def counted(
        self: offline.OfflineTransport, model: str, messages: Messages, settings: Mapping[str, Any]
    ) -> Reply:
        await asyncio.sleep(pause)
        reply = await answer(self, model, messages, settings)
        os.write(log, f"{hashlib.sha256(messages[-1]['content'].encode()).hexdigest()}\n".encode())
        return reply

    offline.OfflineTransport.chat = counted  # type: ignore[method-assign]
    return command.main(sys.argv[3:])


if __name__ == "__main__":
    raise SystemExit(main())
