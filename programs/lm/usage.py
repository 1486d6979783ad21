"""Usage accounts: calls requested and executed, tokens and cost, by role and round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace

from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import Reply


@dataclass(frozen=True, slots=True)
class CallTag:
    """What the engine knows of a call besides its request. Equal requests with a tag and `sample` are one call."""

    role: str = "proposer"
    """Role in the debate, for the accounts."""
    round: int = 0
    """Round of the debate, for the accounts."""
    sample: int | None = None
    """Number of a sample; part of the call's key."""


CALL_TAG: ContextVar[CallTag | None] = ContextVar("call_tag", default=None)
"""Set around a call, read by the LM's engine. Without a tag, as in DSPy's proposers, equal requests are new samples."""

REPLY_KEYS: ContextVar[list[str] | None] = ContextVar("reply_keys", default=None)
"""A list that the engine adds the keys of the replies to, so that a caller can discard those that it cannot use."""


@dataclass
class Usage:
    """Numbers of calls and tokens, by price."""

    calls: int = 0
    """Executed."""
    cache_hits: int = 0
    """Replies from the store: paid for by an earlier run, or by another caller of this run."""
    fresh: int = 0
    """Input at the full price."""
    cached: int = 0
    """Input that the provider served from its prefix cache."""
    output: int = 0
    stored_input: int = 0
    """Input of the replies from the store."""
    stored_output: int = 0
    uncounted: int = 0
    """Executed calls whose tokens the server did not report."""

    @property
    def stored(self) -> int:
        """Tokens of the replies from the store."""
        return self.stored_input + self.stored_output

    def cost(self, price: Price) -> float:
        """US dollars spent on what was executed."""
        return price.cost(self.fresh, self.cached, self.output)

    def saved(self, price: Price) -> float:
        """US dollars that the store's replies would have cost without any cache."""
        return price.cost(self.stored_input, 0, self.stored_output)

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass
class Meter:
    """Counts calls and tokens by role and round. Other threads may read it."""

    requested: Counter[str] = field(default_factory=Counter)
    accounts: dict[tuple[str, int], Usage] = field(default_factory=dict)
    """(role, round) -> what its calls used."""
    failed: Counter[str] = field(default_factory=Counter)
    """Requested, and neither answered nor in the store, after all attempts."""
    prices: dict[str, Price | None] = field(default_factory=dict)
    """Role -> price, for roles of a second LM."""

    def count_request(self, role: str) -> None:
        self.requested[role] += 1

    def count_reply(self, role: str, reply: Reply, *, round: int = 0) -> None:
        """Count a reply of an executed call."""
        usage = self._account(role, round)
        usage.calls += 1
        usage.uncounted += not (reply.input_tokens or reply.output_tokens)
        usage.fresh += reply.input_tokens - reply.cached_tokens
        usage.cached += reply.cached_tokens
        usage.output += reply.output_tokens

    def count_hit(self, role: str, reply: Reply, *, round: int = 0) -> None:
        """Count a reply from the store."""
        usage = self._account(role, round)
        usage.cache_hits += 1
        usage.stored_input += reply.input_tokens
        usage.stored_output += reply.output_tokens

    def counts(self) -> dict[str, int]:
        """Numbers of calls: `requested`, of these `answered`, `failed` and `from_cache`; the rest were cancelled."""
        counts = {"requested": self.requested, "answered": self.executed, "failed": self.failed}
        return {name: count.copy().total() for name, count in counts.items()} | {"from_cache": self.total.cache_hits}

    def snapshot(self) -> Meter:
        """A copy without prices, for another process."""
        accounts = {key: replace(usage) for key, usage in self.accounts.copy().items()}
        return Meter(self.requested.copy(), accounts, self.failed.copy())

    @classmethod
    def sum(cls, meters: Iterable[Meter]) -> Meter:
        """The counts of several processes together."""
        total = cls()
        for meter in meters:
            total.requested.update(meter.requested)
            total.failed.update(meter.failed)
            for key, usage in meter.accounts.items():
                total.accounts[key] = total.accounts.get(key, Usage()) + usage
        return total

    def _account(self, role: str, round: int) -> Usage:
        return self.accounts.setdefault((role, round), Usage())

    @property
    def executed(self) -> Counter[str]:
        """Role -> its executed calls."""
        return Counter({role: usage.calls for role, usage in self.by_role.items() if usage.calls})

    @property
    def by_role(self) -> dict[str, Usage]:
        """Role -> what its calls used, over all rounds."""
        by_role: dict[str, Usage] = {}
        for (role, _), usage in sorted(self.accounts.copy().items()):
            by_role[role] = by_role.get(role, Usage()) + usage
        return by_role

    @property
    def total(self) -> Usage:
        """All calls together."""
        return sum(self.accounts.copy().values(), Usage())

    @property
    def input_tokens(self) -> int:
        """Input tokens of executed calls, cached by the provider or not."""
        return self.total.fresh + self.total.cached

    @property
    def output_tokens(self) -> int:
        return self.total.output

    def cost(self, price: Price) -> dict[str, float]:
        """Role -> US dollars spent on its executed calls."""
        prices = ((role, usage, self.prices.get(role, price)) for role, usage in self.by_role.items())
        return {role: usage.cost(role_price) for role, usage, role_price in prices if role_price is not None}
