"""How DSPy's own modules reach a `JudgeLM`: engines with the LM's store, counts, limits and retries."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from dspy._vendor.lm15.serde import request_to_dict
from dspy.lm15 import Request, Response

from debate_judge.programs.lm.engines import reply_of, response_of
from debate_judge.programs.lm.limits.caller import Caller
from debate_judge.programs.lm.reply import Reply

if TYPE_CHECKING:
    from debate_judge.programs.lm.client import JudgeLM


class _Numbered:
    """Keys for DSPy's requests.

    Equal requests are meant as new samples there, so the n-th one of a process has its own key; a run that
    is repeated asks in the same order and finds each of them again.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._asked: Counter[str] = Counter()

    def key(self, request: Request) -> tuple[str, int]:
        """The key of this request, and the size of its texts."""
        text = json.dumps([self._endpoint, request_to_dict(request)], sort_keys=True, ensure_ascii=False)
        first = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        self._asked[first] += 1
        return hashlib.blake2b(f"{first} {self._asked[first]}".encode(), digest_size=16).hexdigest(), len(text)


class AwaitedEngine:
    """What DSPy's asynchronous modules await, with the LM's store, meter, limits and retries."""

    def __init__(self, engine: Any, lm: JudgeLM) -> None:
        self.role = "proposer"
        """What the counts call these calls."""
        self._engine = engine
        self._lm = lm
        self._numbered = _Numbered(lm.endpoint)

    async def complete(self, request: Request) -> Response:
        return await self.call(request, self._lm.caller)

    async def call(self, request: Request, caller: Caller) -> Response:
        """The response to `request`, from the store or made by `caller`."""
        lm = self._lm
        key, size = self._numbered.key(request)
        lm.meter.ask(self.role)
        reply = lm.store.get(key)
        if reply is not None:
            lm.meter.hit(self.role, reply)
        else:
            send, keep = partial(self._send, request), partial(lm.keep, key, self.role)
            claim, limit = lm.new_claim(key), request.config.max_tokens
            reply = await claim.fetch() or await caller.call(send, size, limit, keep, claim.release, claim=claim)
            if claim.found is not None:
                lm.meter.hit(self.role, reply)
        return response_of(request.model, reply)

    async def _send(self, request: Request) -> Reply:
        response = self._engine.complete(request)
        # An engine that answers inside the process need not be awaited.
        return reply_of(await response if inspect.isawaitable(response) else response)


class StoredEngine:
    """What DSPy's synchronous modules call (instruction proposers): the same calls, for threads without a loop."""

    def __init__(self, engine: AwaitedEngine, lm: JudgeLM) -> None:
        self._engine = engine
        self._lm = lm

    def complete(self, request: Request) -> Response:
        return self._lm.sync_calls.run(partial(self._on_loop, request))

    async def _on_loop(self, request: Request, apart: bool) -> Response:
        if not apart:
            return await self._engine.complete(request)
        try:
            return await self._engine.call(request, self._lm.caller.apart())
        finally:
            await self._lm.close_connections()
