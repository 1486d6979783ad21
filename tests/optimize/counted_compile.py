"""Runs a compile whose offline LM writes down each call that it executes, slowly enough to be killed.

python counted_compile.py LOG SECONDS_PER_CALL [arguments of compile.py]
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

from dspy.lm15 import Request, Response

from optimize import compile as command
from programs import offline


def main() -> int:
    log, pause = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT), float(sys.argv[2])
    answer = offline.AsyncOfflineEngine.complete

    async def counted(self: offline.AsyncOfflineEngine, request: Request) -> Response:
        await asyncio.sleep(pause)
        response = await answer(self, request)
        digest = hashlib.sha256((request.messages[-1].text or "").encode()).hexdigest()
        os.write(log, f"{digest}\n".encode())
        return response

    offline.AsyncOfflineEngine.complete = counted  # type: ignore[method-assign]
    return command.main(sys.argv[3:])


if __name__ == "__main__":
    raise SystemExit(main())
