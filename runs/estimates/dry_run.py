"""Cost estimate of a run by a dry run: calls, tokens and money, before anything is spent.

The run's own code is executed on a sample, three times, with an LM that costs nothing: every debate ends at once,
debates go as those of the offline LM, no debate ends before its last round (`programs.dry_run`). What the run's store
of replies holds already is not counted, as it would not be paid for again. Nothing is written and no LM is asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.programs.dry_run import REPLY_TOKENS, DryRunEngine, EstimateCase, ItemReply
from debate_judge.programs.lm.limits.limiter import TOKENS_PER_BYTE
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.prices import Price, price_of
from debate_judge.programs.lm.reply import Reply, ReplyStore
from debate_judge.programs.lm.store import FILE, SqlStore
from debate_judge.programs.make_lm import OFFLINE, make_lm, server_address
from debate_judge.runs.runner.billing import STAGE
from debate_judge.runs.runner.debate_cache import DebateCache
from debate_judge.runs.runner.runner import JudgeRunner

IN_FLIGHT = 64
"""Calls of a dry run that are under way at once."""

NO_LIMITS = LMOptions(rpm=1e9, tpm=1e12)
"""No provider is asked, so no provider's limits are kept."""


@dataclass
class CallTotals:
    """Calls and tokens; of a whole run, so that they need not be whole numbers."""

    calls: float = 0.0
    input: float = 0.0
    output: float = 0.0
    usd: float | None = 0.0

    def __add__(self, other: CallTotals) -> CallTotals:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return CallTotals(self.calls + other.calls, self.input + other.input, self.output + other.output, usd)


@dataclass
class ItemTotals:
    """How many different items there are, and how long."""

    items: int = 0
    bytes: int = 0
    """Of their texts together."""

    @property
    def mean(self) -> float:
        return self.bytes / self.items if self.items else 0.0


@dataclass(frozen=True)
class Stage:
    """A part of the run, and how the sampled items stand for all of its items."""

    row: str
    """Of the table; several stages may share one."""
    items: float = 1.0
    """Items of the run for each sampled one."""
    longer: float = 0.0
    """Input tokens by which a call about a usual item is longer than one about a usual sampled one."""

    @classmethod
    def of(cls, row: str, everything: ItemTotals, sampled: ItemTotals) -> Stage:
        """The stage in which `sampled` items stand for `everything`."""
        if not sampled.items:
            return cls(row)
        longer = (everything.mean - sampled.mean) * TOKENS_PER_BYTE
        return cls(row, everything.items / sampled.items, longer)


@dataclass
class DryRunCall:
    """A call of a dry run."""

    stage: str
    role: str
    input: int
    output: int
    about_item: bool
    times: float
    """Calls of the run that it stands for."""


class Ledger:
    """The store of a dry run: gives out what is paid already, and counts every other reply instead of keeping it.

    Args:
        stages: Name, as of `runs.runner.billing.stage` -> how the calls of that stage are counted.
        paid: Replies of earlier runs; it is only read.
    """

    def __init__(self, stages: Mapping[str, Stage], paid: ReplyStore | None = None) -> None:
        self.asked: list[DryRunCall] = []
        """What was asked, in order."""
        self._stages = stages
        self._paid = paid
        self._now: dict[str, Reply] = {}

    @property
    def used(self) -> dict[tuple[str, str], CallTotals]:
        """(row, role) -> what it took."""
        totals: dict[tuple[str, str], CallTotals] = {}
        for call in self.asked:
            stage = self._stages[call.stage]
            read = call.times * max(0.0, call.input + (stage.longer if call.about_item else 0.0))
            where = (stage.row, call.role)
            totals[where] = totals.get(where, CallTotals()) + CallTotals(call.times, read, call.times * call.output)
        return totals

    def count_unscaled(self, begin: int) -> None:
        """Count what was asked from the call number `begin` on as it is: the run asks about no more items than that."""
        for call in self.asked[begin:]:
            call.times = 1.0

    async def get(self, key: str) -> Reply | None:
        stored = self._now.get(key)
        return await self._paid.get(key) if stored is None and self._paid is not None else stored

    async def get_or_claim(self, key: str) -> Reply | bool:
        reply = await self.get(key)
        return True if reply is None else reply

    async def release(self, key: str) -> None:
        pass

    def close(self) -> None:
        pass

    async def put(self, key: str, role: str, reply: Reply) -> None:
        self._now[key] = reply
        if not reply.input_tokens:
            # No LM's reply, but what a web search found.
            return
        stage, about = STAGE.get(), isinstance(reply, ItemReply)
        # What is not about an item is asked once, however many items there are.
        times = self._stages[stage].items if about else 1.0
        self.asked.append(DryRunCall(stage, role, reply.input_tokens, reply.output_tokens, about, times))


@dataclass(frozen=True)
class EstimateTarget:
    """The LM that would be asked, and where its replies are kept."""

    spec: str
    api_base: str | None = None
    replies: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of `make_lm`, as the run would have them."""
    options: LMOptions = field(default_factory=LMOptions)
    reply_tokens: tuple[int, int, int] = REPLY_TOKENS
    immediate: Mapping[str, str] = field(default_factory=dict)
    """Role -> the LM that plays it, for roles that are asked at once and never in batches."""

    def cases(self) -> tuple[EstimateCase, EstimateCase, EstimateCase]:
        """The cases that are run dry. The offline LM itself writes as it does in the expected one."""
        low, usual, high = self.reply_tokens
        return (
            EstimateCase("lower", low, False),
            EstimateCase("expected", usual, self.spec != OFFLINE),
            EstimateCase("upper", high),
        )

    def price(self, role: str) -> Price | None:
        """What the calls of a role cost, in batches where those are wanted and the role can be asked so."""
        spec = self.immediate.get(role, self.spec)
        if spec == OFFLINE:
            return Price(0.0, 0.0, 0.0)
        server = server_address(spec, self.api_base if spec == self.spec else None)
        price = price_of(spec, self.options.prices, use_litellm=server is None)
        return price.batch() if price is not None and self.options.batch and role not in self.immediate else price


CaseTriple = tuple[CallTotals, CallTotals, CallTotals]

NOTHING: CaseTriple = (CallTotals(), CallTotals(), CallTotals())


@dataclass(frozen=True)
class Estimate:
    """What a run would take in the three cases, row by row."""

    rows: Mapping[str, CaseTriple]
    """What several rows have in common is counted in the first that asks for it, which need not be the same one in each
    case: a row's extremes may add up to more than those of the run."""
    total: CaseTriple
    target: EstimateTarget


def dry_run_all(
    target: EstimateTarget,
    stages: Mapping[str, Stage],
    work: Callable[[EstimateCase, JudgeRunner, Ledger], None],
    row: Callable[[str, str], str] = lambda stage_row, role: stage_row,
    *,
    remember: bool = False,
) -> Estimate:
    """Dry-run a job in each case.

    Args:
        target: The LM that would be asked.
        stages: Name -> stage, for each that `work` names by `runs.runner.billing.stage`.
        work: Does what the run would do, on a sample.
        row: From a stage's row and a role to the row of the table in which the role's calls are counted.
        remember: Whether the run keeps its debates in memory (`runs.runner.debate_cache`).

    Raises:
        InputError: The spec names no LM, or the prices cannot be read.
    """
    by_case: list[dict[str, CallTotals]] = []
    with _paid(target.replies) as paid:
        for case in target.cases():
            ledger = Ledger(stages, paid)
            lm = make_lm(
                target.spec,
                api_base=target.api_base,
                store=ledger,
                concurrency=IN_FLIGHT,
                engine=DryRunEngine(case),
                options=NO_LIMITS,
                **target.settings,
            )
            with JudgeRunner(lm, progress=False, cache=DebateCache() if remember else None) as runner:
                work(case, runner, ledger)
            rows: dict[str, CallTotals] = {}
            for (stage_row, role), used in ledger.used.items():
                price = target.price(role)
                usd = None if price is None else price.cost(used.input, 0.0, used.output)
                name = row(stage_row, role)
                rows[name] = rows.get(name, CallTotals()) + replace(used, usd=usd)
            by_case.append(rows)
    names = dict.fromkeys(name for rows in reversed(by_case) for name in rows)
    return Estimate(
        {name: _ordered([rows.get(name, CallTotals()) for rows in by_case]) for name in names},
        _ordered([sum(rows.values(), CallTotals()) for rows in by_case]),
        target,
    )


def _ordered(cases: Sequence[CallTotals]) -> CaseTriple:
    """The cases such that the lower is never above the expected, nor that above the upper."""
    low, usual, high = cases

    def bound(choose: Callable[..., float], totals: CallTotals, other: CallTotals) -> CallTotals:
        usd = None if totals.usd is None or other.usd is None else choose(totals.usd, other.usd)
        return CallTotals(
            choose(totals.calls, other.calls),
            choose(totals.input, other.input),
            choose(totals.output, other.output),
            usd,
        )

    return bound(min, low, usual), usual, bound(max, high, usual)


@contextmanager
def _paid(folder: Path | None) -> Iterator[SqlStore | None]:
    """The store of a folder; None where there is none, or none that can be opened."""
    if folder is None or not os.access(folder, os.W_OK) or not any((*folder.glob(FILE), *folder.glob("*.replies"))):
        yield None
        return
    with closing(SqlStore(folder)) as store:
        yield store


def reply_tokens(text: str) -> tuple[int, int, int]:
    """Read the value of `--estimate`: three lengths of a reply in tokens, or nothing for the usual ones.

    Raises:
        InputError: It is something else.
    """
    if not text:
        return REPLY_TOKENS
    parts = [part.strip() for part in text.split(",")]
    numbers = [int(part) for part in parts if part.isdecimal()]
    if len(parts) != 3 or len(numbers) != 3 or numbers[0] < 1 or sorted(numbers) != numbers:
        usual = ",".join(map(str, REPLY_TOKENS))
        raise InputError(
            "not lengths of a reply",
            field="--estimate",
            expected=f"nothing, or three numbers of tokens, lower, expected and upper, such as {usual}",
            found=text,
        )
    return numbers[0], numbers[1], numbers[2]
