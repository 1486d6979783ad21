"""How DSPy's own modules reach a `JudgeLM`: an engine with the LM's store, counts, limits and retries."""

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


class StoredEngine:
    """What DSPy's own modules call (instruction proposers), with the LM's store, meter, budget and retries.

    DSPy wants two objects, one whose `complete` is called and one whose `complete` is awaited: `AwaitedEngine` makes
    the second out of this one.
    """

    def __init__(self, engine: Any, async_engine: Any, lm: JudgeLM) -> None:
        self.role = "proposer"
        """What the counts call these calls."""
        self._engine = engine
        self._async_engine = async_engine
        self._lm = lm
        self._numbered = _Numbered(lm.endpoint)

    def complete(self, request: Request) -> Response:
        key, size, reply = self._look_up(request)
        if reply is None:
            send = partial(self._send, request)
            reply = self._lm.caller.call_sync(send, size, request.config.max_tokens)
            self._lm.keep(key, self.role, reply)
        return response_of(request.model, reply)

    async def acomplete(self, request: Request) -> Response:
        key, size, reply = self._look_up(request)
        if reply is None:
            send = partial(self._asend, request)
            keep = partial(self._lm.keep, key, self.role)
            reply = await self._lm.caller.call(send, size, request.config.max_tokens, keep)
        return response_of(request.model, reply)

    def _look_up(self, request: Request) -> tuple[str, int, Reply | None]:
        """Key, size and, where the store has it, the reply of a request, which is counted."""
        key, size = self._numbered.key(request)
        self._lm.meter.ask(self.role)
        stored = self._lm.store.get(key)
        if stored is not None:
            self._lm.meter.hit(self.role, stored)
        return key, size, stored

    def _send(self, request: Request) -> Reply:
        return reply_of(self._engine.complete(request))

    async def _asend(self, request: Request) -> Reply:
        response = self._async_engine.complete(request)
        # An engine that answers inside the process has one `complete` for both.
        return reply_of(await response if inspect.isawaitable(response) else response)


class AwaitedEngine:
    """The side of a `StoredEngine` that DSPy's asynchronous modules await."""

    def __init__(self, engine: StoredEngine) -> None:
        self._engine = engine

    async def complete(self, request: Request) -> Response:
        return await self._engine.acomplete(request)
