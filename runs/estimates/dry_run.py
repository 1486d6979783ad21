"""Cost estimate of a run by a dry run: calls, tokens and money, before anything is spent.

The run's own code is executed on a sample with an LM that costs nothing, in three cases: every debate ends at once;
debates go as with the offline LM; no debate ends before its last round (`programs.dry_run`). Replies in the run's
store are not counted, because they are not paid for again. Nothing is written and no LM is called.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
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


@dataclass
class DryRunCall:
    """A call of a dry run."""

    stage: str
    role: str
    input_tokens: int
    output_tokens: int
    about_item: bool
    weight: float
    """Number of calls of the run that it represents."""


class DryRunStore:
    """The store of a dry run: returns stored replies of earlier runs, and counts all other calls.

    Args:
        stages: Name, as of `runs.runner.judge_usage.stage` -> how the calls of that stage are counted.
        stored: Replies of earlier runs; only read.
    """

    def __init__(self, stages: Mapping[str, Stage], stored: ReplyStore | None = None) -> None:
        self.calls: list[DryRunCall] = []
        """The counted calls, in order."""
        self._stages = stages
        self._stored = stored
        self._counted: dict[str, Reply] = {}

    @property
    def totals(self) -> dict[tuple[str, str], CallTotals]:
        """(row, role) -> calls and tokens."""
        totals: dict[tuple[str, str], CallTotals] = {}
        for call in self.calls:
            stage = self._stages[call.stage]
            input_tokens = call.weight * max(0.0, call.input_tokens + (stage.extra_tokens if call.about_item else 0.0))
            key = (stage.row, call.role)
            totals[key] = totals.get(key, CallTotals()) + CallTotals(
                call.weight, input_tokens, call.weight * call.output_tokens
            )
        return totals

    def count_unscaled(self, first_call: int) -> None:
        """Do not scale up the calls from index `first_call` on: the run, too, makes them for the sample alone."""
        for call in self.calls[first_call:]:
            call.weight = 1.0

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
        stage, about_item = STAGE.get(), isinstance(reply, ItemReply)
        # A call that is not about an item is made once, however many items there are.
        weight = self._stages[stage].scale if about_item else 1.0
        self.calls.append(DryRunCall(stage, role, reply.input_tokens, reply.output_tokens, about_item, weight))


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
    reply_tokens: tuple[int, int, int] = REPLY_TOKENS
    other_lms: Mapping[str, str] = field(default_factory=dict)
    """Role -> its LM, where that is another one."""

    def cases(self) -> tuple[EstimateCase, EstimateCase, EstimateCase]:
        """The three cases of the dry run; in the expected one, replies of the offline LM have their own lengths."""
        low, expected, high = self.reply_tokens
        return (
            EstimateCase("lower", low, False),
            EstimateCase("expected", expected, self.spec != OFFLINE),
            EstimateCase("upper", high),
        )

    def price(self, role: str) -> Price | None:
        """The price of a role's calls, if it is known."""
        spec = self.other_lms.get(role, self.spec)
        if spec == OFFLINE:
            return Price(0.0, 0.0, 0.0)
        server = server_address(spec, self.api_base if spec == self.spec else None)
        return price_of(spec, self.options.prices, use_litellm=server is None)


CaseTriple = tuple[CallTotals, CallTotals, CallTotals]

NO_CALLS: CaseTriple = (CallTotals(), CallTotals(), CallTotals())


@dataclass(frozen=True)
class Estimate:
    """Calls, tokens and cost of a run in the three cases."""

    rows: Mapping[str, CaseTriple]
    """A call that several rows need is counted in the first of them, which may differ between cases: the lower and
    upper values of rows may add up to more than those of the total."""
    total: CaseTriple
    target: EstimateTarget


def estimate_by_dry_run(
    target: EstimateTarget,
    stages: Mapping[str, Stage],
    work: Callable[[EstimateCase, JudgeRunner, DryRunStore], None],
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
        for case in target.cases():
            store = DryRunStore(stages, stored)
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
                work(case, runner, store)
            rows: dict[str, CallTotals] = {}
            for (stage_row, role), totals in store.totals.items():
                price = target.price(role)
                usd = None if price is None else price.cost(totals.input_tokens, 0.0, totals.output_tokens)
                name = row(stage_row, role)
                rows[name] = rows.get(name, CallTotals()) + replace(totals, usd=usd)
            by_case.append(rows)
    names = dict.fromkeys(name for rows in reversed(by_case) for name in rows)
    return Estimate(
        {name: _in_order([rows.get(name, CallTotals()) for rows in by_case]) for name in names},
        _in_order([sum(rows.values(), CallTotals()) for rows in by_case]),
        target,
    )


def _in_order(cases: Sequence[CallTotals]) -> CaseTriple:
    """The cases, such that lower <= expected <= upper."""
    low, expected, high = cases

    def bound(choose: Callable[..., float], totals: CallTotals, other: CallTotals) -> CallTotals:
        usd = None if totals.usd is None or other.usd is None else choose(totals.usd, other.usd)
        return CallTotals(
            choose(totals.calls, other.calls),
            choose(totals.input_tokens, other.input_tokens),
            choose(totals.output_tokens, other.output_tokens),
            usd,
        )

    return bound(min, low, expected), expected, bound(max, high, expected)


@contextmanager
def _stored_replies(folder: Path | None) -> Iterator[SqlStore | None]:
    """The store of a folder; None where there is none, or none that can be opened."""
    if folder is None or not os.access(folder, os.W_OK) or not (folder / FILE).exists():
        yield None
        return
    with closing(SqlStore(folder)) as store:
        yield store


def reply_tokens(text: str) -> tuple[int, int, int]:
    """Parse the value of `--estimate`: three lengths of a reply in tokens; the default ones if it is empty.

    Raises:
        InputError: It is neither.
    """
    if not text:
        return REPLY_TOKENS
    parts = [part.strip() for part in text.split(",")]
    numbers = [int(part) for part in parts if part.isdecimal()]
    if len(parts) != 3 or len(numbers) != 3 or numbers[0] < 1 or sorted(numbers) != numbers:
        example = ",".join(map(str, REPLY_TOKENS))
        raise InputError(
            "not lengths of a reply",
            field="--estimate",
            expected=f"nothing, or three numbers of tokens, lower, expected and upper, such as {example}",
            found=text,
        )
    return numbers[0], numbers[1], numbers[2]
