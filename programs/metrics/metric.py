"""The base class of reference metrics: they ask no LM, and have the same value for every aspect.

All metrics compute in one thread, one text after the other: neither a slow metric nor the loading of a model blocks
debates, and libraries that are not thread-safe can be used.
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
import os
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from typing import Any

from debate_judge.data.errors import InputError, install_hint
from debate_judge.programs.judge import Item, Judge, Verdict
from debate_judge.programs.transcript import EMPTY, Failure, Transcript, Turn

KEPT = 8192
"""Values that each metric caches: the same text is scored once for each aspect."""


class Metric(Judge):
    """Compares a candidate with other texts. The value is on the metric's own scale and not on the aspect's.

    Raises:
        InputError: On construction, if the packages that it needs are not installed.
    """

    on_scale = False

    def __init__(self) -> None:
        super().__init__()
        require(self.kind, self.packages)

    @abstractmethod
    def measure(self, text: str, others: tuple[str, ...]) -> float:
        """The value of `text` against `others`, which are at least one; called in the metrics' own thread."""

    def against(self, item: Item) -> tuple[str, ...]:
        """The texts to compare the candidate with: references; without any the context, without that the source."""
        references = tuple(r for r in item.references if r.strip())
        return references or (item.context if item.context.strip() else item.source,)

    async def converse(self, item: Item, rounds: int) -> Transcript:
        """One turn with the value and no text. If the metric fails on a text, only this item is unscored."""
        if not item.text.strip():
            return EMPTY.add(Failure(self.kind, 0, "no text", "the candidate is empty", 0))
        others = self.against(item)
        if not any(other.strip() for other in others):
            # The value would be 0, which looks like a measured one.
            nothing = "there is no reference, context or source to compare with"
            return EMPTY.add(Failure(self.kind, 0, "no text", nothing, 0))
        loop = asyncio.get_running_loop()
        try:
            value = await loop.run_in_executor(_worker(os.getpid()), self.measure, item.text, others)
        except InputError:
            # The model or the device cannot be used, which concerns all texts.
            raise
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
            return EMPTY.add(Failure(self.kind, 0, "metric error", detail, 0))
        if not math.isfinite(value):
            return EMPTY.add(Failure(self.kind, 0, "metric error", f"the value is {value}", 0))
        return EMPTY.add(Turn(self.kind, 0, "", score=value, calls=0))

    def read_verdict(self, transcript: Transcript, rounds: int) -> Verdict:
        """The value; no call ended here."""
        return replace(super().read_verdict(transcript, rounds), stop_reason="metric")

    def dry_run_copy(self) -> Judge:
        """A metric that computes nothing: a dry run counts LM calls, and a metric makes none."""
        return _Silent()


class _Silent(Metric):
    def measure(self, text: str, others: tuple[str, ...]) -> float:
        return 0.0

    def config(self) -> dict[str, Any]:
        return {}


def absent(packages: Sequence[str]) -> tuple[str, ...]:
    """Those of the distributions that are not installed, found without importing them."""
    return tuple(name for name in packages if importlib.util.find_spec(name.replace("-", "_")) is None)


def require(kind: str, packages: Sequence[str]) -> None:
    """Check that a metric can run here.

    Raises:
        InputError: Some of its packages are not installed.
    """
    missing = absent(packages)
    if missing:
        raise InputError(
            f"the judge {kind!r} needs {', '.join(missing)}, not installed here",
            remedy=install_hint("metrics"),
        )


@lru_cache(maxsize=1)
def _worker(process: int) -> ThreadPoolExecutor:
    """The thread of the metrics, one for each process: a forked child inherits the executor but not its thread."""
    return ThreadPoolExecutor(1, thread_name_prefix="metrics")
