"""What was asked, what was really sent, and what it cost, by role."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from programs.calls import Reply
from programs.prices import Price


@dataclass
class Tokens:
    """Tokens by what they cost."""

    fresh: int = 0
    """Input at the full price."""
    cached: int = 0
    """Input that the provider served from its prefix cache."""
    output: int = 0
    stored: int = 0
    """Input and output of replies that the store gave: paid for earlier, or by another caller of this run."""

    def cost(self, price: Price) -> float:
        """US dollars spent on what was executed."""
        return price.of(self.fresh, self.cached, self.output)


@dataclass
class Meter:
    """Counts by role. Replies from the store cost nothing again. May be used from several threads."""

    asked: Counter[str] = field(default_factory=Counter)
    executed: Counter[str] = field(default_factory=Counter)
    tokens: dict[str, Tokens] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def ask(self, role: str) -> None:
        with self._lock:
            self.asked[role] += 1

    def spend(self, role: str, reply: Reply) -> None:
        """Count a reply that was executed."""
        with self._lock:
            self.executed[role] += 1
            tokens = self._of(role)
            tokens.fresh += reply.input_tokens - reply.cached_tokens
            tokens.cached += reply.cached_tokens
            tokens.output += reply.output_tokens

    def recall(self, role: str, reply: Reply) -> None:
        """Count a reply that the store gave."""
        with self._lock:
            self._of(role).stored += reply.input_tokens + reply.output_tokens

    def _of(self, role: str) -> Tokens:
        tokens = self.tokens.get(role)
        if tokens is None:
            tokens = self.tokens[role] = Tokens()
        return tokens

    @property
    def input_tokens(self) -> int:
        """Input tokens of executed calls, cached by the provider or not."""
        return sum(t.fresh + t.cached for t in self.tokens.values())

    @property
    def output_tokens(self) -> int:
        return sum(t.output for t in self.tokens.values())

    @property
    def cached_tokens(self) -> int:
        return sum(t.cached for t in self.tokens.values())

    def cost(self, price: Price) -> dict[str, float]:
        """Role -> US dollars spent on its executed calls."""
        return {role: tokens.cost(price) for role, tokens in sorted(self.tokens.items())}
