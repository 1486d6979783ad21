"""A budget that is never exceeded: the most that a call may cost is reserved before it, its real cost charged after."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from debate_judge.programs.lm.errors import BudgetSpentError
from debate_judge.programs.lm.options import BudgetCaps
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import Reply

TOKENS_PER_BYTE = 0.27
"""Tokens per byte of UTF-8 text, until the first reply gives a measured ratio: about a quarter in English."""


@dataclass(frozen=True, slots=True)
class TokenNeed:
    """The tokens that a call is expected to use, and the most it can use."""

    tokens: float = 0.0
    """Expected, input and output together."""
    most_input: float = 0.0
    most_output: float = 0.0
    batch: bool = False
    """Whether it goes out in a batch job, at half the price."""


NOTHING = TokenNeed()


class TokenEstimator:
    """Estimates the tokens of a call before it is made, from the replies so far."""

    def __init__(self) -> None:
        # Half a token per byte is more than any usual text needs.
        self._mean, self._most = TOKENS_PER_BYTE, 0.5
        self._mean_output, self._most_output = 300.0, 1000.0
        self._seen = 0

    def need(self, size: int, max_tokens: int | None) -> TokenNeed:
        """The need of a call with `size` bytes of text and a reply of at most `max_tokens`, if that is set."""
        most_output = max_tokens or 4 * self._most_output
        mean_output = min(self._mean_output, most_output)
        # Servers add some tokens around each message.
        return TokenNeed(size * self._mean + mean_output, size * self._most + 32, most_output)

    def learn(self, size: int, reply: Reply) -> None:
        """Take in how many tokens a call of `size` bytes used, if the provider has said so."""
        if not reply.input_tokens or not size:
            return
        ratio = reply.input_tokens / size
        weight = max(0.05, 1 / (1 + self._seen))
        self._mean += weight * (ratio - self._mean)
        self._mean_output += weight * (reply.output_tokens - self._mean_output)
        self._most = max(1.1 * ratio, self._most if self._seen else 0.0)
        self._most_output = max(self._most_output, float(reply.output_tokens))
        self._seen += 1

    def used(self, size: int, reply: Reply) -> tuple[float, float]:
        """Input and output tokens of a call, estimated if the provider does not report them."""
        if reply.input_tokens:
            return reply.input_tokens, reply.output_tokens
        return size * self._mean, reply.output_tokens or len(reply.text.encode()) * self._mean


class Budget:
    """Keeps a run within its caps, calls in flight included. Safe to use from several threads."""

    def __init__(self, budget: BudgetCaps, price: Price | None) -> None:
        if budget.usd is not None and price is None:
            raise ValueError("a budget in money needs a price")
        self._budget = budget
        self._price = price or Price(0.0, 0.0, 0.0)
        self._batch_price = self._price.batch()
        self._paid = [0.0, 0.0, 0.0]
        self._held = [0.0, 0.0, 0.0]
        self._lock = threading.Lock()

    def beside(self, price: Price | None) -> Budget:
        """The same caps and the same account, for the calls of another model at its own price."""
        if self._budget.usd is not None and price is None:
            raise ValueError("a budget in money needs a price")
        one = copy.copy(self)
        one._price = price or Price(0.0, 0.0, 0.0)
        one._batch_price = one._price.batch()
        return one

    @property
    def final(self) -> bool:
        """Whether what is lacking now, with no call in flight, is lacking for good."""
        return True

    def admits(self, need: TokenNeed) -> bool:
        """Whether this call can be made without exceeding any cap, whatever comes of those in flight."""
        budget, most = self._budget, self.most(need)
        caps = (budget.calls, budget.tokens, budget.usd)
        return all(
            cap is None or paid + held + wanted <= cap * (1 + 1e-12)
            for cap, paid, held, wanted in zip(caps, self._paid, self._held, most, strict=True)
        )

    def reserve(self, need: TokenNeed) -> None:
        """Reserve the most that a call may cost."""
        with self._lock:
            self._add(self._held, self.most(need))

    def release(self, need: TokenNeed) -> None:
        """Undo `reserve` for a call that is over."""
        with self._lock:
            self._add(self._held, [-most for most in self.most(need)])

    def charge(self, used: tuple[float, float], cached: int, *, batch: bool = False) -> None:
        """Charge a reply: its input and output tokens, `cached` of the input at the lower price."""
        cost = self._at(batch).of(used[0] - cached, cached, used[1])
        with self._lock:
            self._add(self._paid, (1.0, used[0] + used[1], cost))

    @staticmethod
    def _add(account: list[float], amounts: Sequence[float]) -> None:
        # In place, for a budget beside this one has the same lists.
        account[:] = [a + b for a, b in zip(account, amounts, strict=True)]

    def forfeit(self, need: TokenNeed) -> None:
        """Charge a request that was sent and whose answer is lost: the most that it may have cost."""
        with self._lock:
            self._add(self._paid, self.most(need))

    def most(self, need: TokenNeed) -> tuple[float, float, float]:
        """Calls, tokens and US dollars that a call may take at most."""
        cost = self._at(need.batch).of(need.most_input, 0.0, need.most_output)
        return 1.0, need.most_input + need.most_output, cost

    def _at(self, batch: bool) -> Price:
        return self._batch_price if batch else self._price

    def spent(self) -> BudgetSpentError:
        """The error for a spent budget, with what was used of each cap."""
        budget, (calls, tokens, usd) = self._budget, self._paid
        lines = []
        if budget.calls is not None:
            lines.append(f"{calls:,.0f} of {budget.calls:,} calls")
        if budget.tokens is not None:
            lines.append(f"{tokens:,.0f} of {budget.tokens:,} tokens")
        if budget.usd is not None:
            lines.append(f"${usd:.4f} of ${budget.usd:g}")
        return BudgetSpentError(f"the next call might exceed the budget: {', '.join(lines)} are spent")
