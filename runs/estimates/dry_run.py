"""Cost estimate of a run by a dry run: calls, tokens and money, before anything is spent.

The run's own code is executed on a sample with an LM that costs nothing, in two cases: as expected, debates go as with
the offline LM; at most, no debate ends before its last round (`programs.dry_run`). Replies in the run's
store are not counted, because they are not paid for again. Nothing is written and no LM is called.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.programs.dry_run import REPLY_TOKENS, DryRunTransport, EstimateCase, ItemReply
from debate_judge.programs.lm.limits import TOKENS_PER_BYTE
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.prices import Price, price_of
from debate_judge.programs.lm.reply import Reply, ReplyStore
from debate_judge.programs.lm.store import FILE, SqlStore
from debate_judge.programs.make_lm import OFFLINE, make_lm, server_address
from debate_judge.runs.runner.debate_cache import DebateCache
from debate_judge.runs.runner.judge_usage import STAGE
from debate_judge.runs.runner.runner import JudgeRunner

_CONCURRENCY = 64
NO_LIMITS = LMOptions(rpm=1e9, tpm=1e12)
"""Options of an LM without a provider."""


@dataclass
class CallTotals:
    """Calls and tokens, scaled up from a sample, so that they need not be whole numbers."""

    calls: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    usd: float | None = 0.0

    @property
    def tokens(self) -> float:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: CallTotals) -> CallTotals:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return CallTotals(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            usd,
        )


@dataclass
class TextTotals:
    """Number of different items or questions, and bytes of their texts."""

    count: int = 0
    bytes: int = 0

    @property
    def mean_bytes(self) -> float:
        return self.bytes / self.count if self.count else 0.0


@dataclass(frozen=True)
class Stage:
    """A part of the run, and how calls about sampled items are scaled up to all its items."""

    row: str
    """Row of the table; several stages may share one."""
    scale: float = 1.0
    """Items of the run per sampled item."""
    extra_tokens: float = 0.0
    """Input tokens by which a call about a mean item is longer than one about a mean sampled item."""

    @classmethod
    def of(cls, row: str, population: TextTotals, sampled: TextTotals) -> Stage:
        """The stage whose items or questions are `population`, of which `sampled` are in the dry run."""
        if not sampled.count:
            return cls(row)
        extra_tokens = (population.mean_bytes - sampled.mean_bytes) * TOKENS_PER_BYTE
        return cls(row, population.count / sampled.count, extra_tokens)


class CountingStore:
    """The store of a dry run: returns stored replies of earlier runs, and counts all other calls.

    Args:
        stages: Name, as of `runs.runner.judge_usage.stage` -> how the calls of that stage are counted.
        stored: Replies of earlier runs; only read.
    """

    def __init__(self, stages: Mapping[str, Stage], stored: ReplyStore | None = None) -> None:
        self.totals: dict[tuple[str, str], CallTotals] = {}
        """(row, role) -> calls and tokens."""
        self._stages = stages
        self._stored = stored
        self._counted: dict[str, Reply] = {}

    async def get(self, key: str) -> Reply | None:
        stored = self._counted.get(key)
        return await self._stored.get(key) if stored is None and self._stored is not None else stored

    async def get_or_claim(self, key: str) -> Reply | bool:
        reply = await self.get(key)
        return True if reply is None else reply

    async def release(self, key: str) -> None:
        pass

    async def discard(self, key: str) -> None:
        pass

    def close(self) -> None:
        pass

    async def put(self, key: str, role: str, reply: Reply) -> None:
        self._counted[key] = reply
        if not reply.input_tokens:
            # The result of a web search.
            return
        stage, calls, input_tokens = self._stages[STAGE.get()], 1.0, float(reply.input_tokens)
        if isinstance(reply, ItemReply):
            # A call that is not about an item is made once, however many items there are.
            calls, input_tokens = stage.scale, max(0.0, input_tokens + stage.extra_tokens)
        counted = CallTotals(calls, calls * input_tokens, calls * reply.output_tokens)
        self.totals[stage.row, role] = self.totals.get((stage.row, role), CallTotals()) + counted


@dataclass(frozen=True)
class EstimateTarget:
    """The LM of the run, and the folder of its stored replies."""

    spec: str
    """PROVIDER/MODEL, or offline."""
    api_base: str | None = None
    replies: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of `make_lm`, as the run would have them."""
    options: LMOptions = field(default_factory=LMOptions)
    reply_tokens: tuple[int, int] = REPLY_TOKENS
    other_lms: Mapping[str, str] = field(default_factory=dict)
    """Role -> its LM, where that is another one."""

    @property
    def cases(self) -> tuple[EstimateCase, EstimateCase]:
        """The two cases of the dry run; in the expected one, replies of the offline LM have their own lengths."""
        expected, most = self.reply_tokens
        return EstimateCase(expected, distinct_replies=self.spec != OFFLINE), EstimateCase(most, at_most=True)

    def price(self, role: str) -> Price | None:
        """The price of a role's calls, if it is known."""
        spec = self.other_lms.get(role, self.spec)
        if spec == OFFLINE:
            return Price(0.0, 0.0, 0.0)
        server = server_address(spec, self.api_base if spec == self.spec else None)
        return price_of(spec, self.options.prices, use_litellm=server is None)


Cases = tuple[CallTotals, CallTotals]
"""Expected, and at most."""

NO_CALLS: Cases = (CallTotals(), CallTotals())


@dataclass(frozen=True)
class Estimate:
    """Calls, tokens and money of a run in the two cases."""

    rows: Mapping[str, Cases]
    """A call that several rows need is counted in the first of them."""
    total: Cases
    target: EstimateTarget


def estimate_by_dry_run(
    target: EstimateTarget,
    stages: Mapping[str, Stage],
    work: Callable[[EstimateCase, JudgeRunner], None],
    row: Callable[[str, str], str] = lambda stage_row, role: stage_row,
    *,
    cache_debates: bool = False,
) -> Estimate:
    """Make the estimate: execute `work` in each case.

    Args:
        target: The LM of the run.
        stages: Name -> stage, for each name that `work` passes to `runs.runner.judge_usage.stage`.
        work: The code of the run, on a sample.
        row: (row of the stage, role) -> row of the table that counts the role's calls.
        cache_debates: Whether the run caches debates (`runs.runner.debate_cache`).

    Raises:
        InputError: The spec names no LM, or the prices cannot be read.
    """
    by_case: list[dict[str, CallTotals]] = []
    with _stored_replies(target.replies) as stored:
        for case in target.cases:
            store = CountingStore(stages, stored)
            lm = make_lm(
                target.spec,
                api_base=target.api_base,
                store=store,
                concurrency=_CONCURRENCY,
                transport=DryRunTransport(case),
                options=NO_LIMITS,
                **target.settings,
            )
            with JudgeRunner(lm, progress=False, cache=DebateCache() if cache_debates else None) as runner:
                work(case, runner)
            rows: dict[str, CallTotals] = {}
            for (stage_row, role), totals in store.totals.items():
                price = target.price(role)
                usd = None if price is None else price.cost(totals.input_tokens, 0.0, totals.output_tokens)
                name = row(stage_row, role)
                rows[name] = rows.get(name, CallTotals()) + replace(totals, usd=usd)
            by_case.append(rows)
    expected, most = by_case
    names = dict.fromkeys((*most, *expected))
    return Estimate(
        {name: _bounded(expected.get(name, CallTotals()), most.get(name, CallTotals())) for name in names},
        _bounded(*(sum(rows.values(), CallTotals()) for rows in by_case)),
        target,
    )


def _bounded(expected: CallTotals, most: CallTotals) -> Cases:
    """The cases, such that the second is nowhere less than the first."""
    usd = None if expected.usd is None or most.usd is None else max(expected.usd, most.usd)
    calls, input_tokens, output_tokens = (
        max(getattr(expected, name), getattr(most, name)) for name in ("calls", "input_tokens", "output_tokens")
    )
    return expected, CallTotals(calls, input_tokens, output_tokens, usd)


@contextmanager
def _stored_replies(folder: Path | None) -> Iterator[SqlStore | None]:
    """The store of a folder; None where there is none, or none that can be opened."""
    if folder is None or not os.access(folder, os.W_OK) or not (folder / FILE).exists():
        yield None
        return
    with closing(SqlStore(folder)) as store:
        yield store


def reply_tokens(text: str) -> tuple[int, int]:
    """Parse the value of `--estimate`: two lengths of a reply in tokens; the default ones if it is empty.

    Raises:
        InputError: It is neither.
    """
    if not text:
        return REPLY_TOKENS
    numbers = [int(part) for part in text.split(",") if part.strip().isdecimal()]
    if len(numbers) != 2 or text.count(",") != 1 or not 1 <= numbers[0] <= numbers[1]:
        raise InputError(
            "not lengths of a reply",
            field="--estimate",
            expected="nothing, or two numbers of tokens, expected and at most, such as "
            + ",".join(map(str, REPLY_TOKENS)),
            found=text,
        )
    return numbers[0], numbers[1]
