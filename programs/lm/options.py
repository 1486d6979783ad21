"""Rate limits, timeouts, retries and budget of the calls to an LM. Nothing here changes a result. Imports no DSPy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from debate_judge.data.errors import InputError

Temperature = float | Literal["none"]
"""Of sampling; `none` leaves it to the provider."""
MaxTokens = int | Literal["none"]
"""Longest reply, in tokens; `none` leaves it to the provider."""


@dataclass(frozen=True, slots=True)
class BudgetCaps:
    """Caps on the calls that a run executes; None is no cap. Replies from the store cost nothing."""

    calls: int | None = None
    tokens: int | None = None
    """Input and output together."""
    usd: float | None = None

    def __bool__(self) -> bool:
        return not (self.calls is None and self.tokens is None and self.usd is None)

    def share(self, processes: int) -> BudgetCaps:
        """The caps of each of several processes."""
        calls, tokens = self.calls, self.tokens
        return BudgetCaps(
            None if calls is None else calls // processes,
            None if tokens is None else tokens // processes,
            None if self.usd is None else self.usd / processes,
        )

    @classmethod
    def parse(cls, text: str) -> BudgetCaps:
        """Read caps such as `calls=1000`, `tokens=2e6` or `usd=5`, joined by commas.

        Raises:
            InputError: The text has another form.
        """
        caps: dict[str, float] = {}
        for part in text.split(","):
            name, _, value = part.strip().partition("=")
            number = _positive_number(value)
            valid = number is not None and (name == "usd" or number == int(number))
            if name not in ("calls", "tokens", "usd") or name in caps or number is None or not valid:
                raise InputError(
                    "the budget cannot be read",
                    field="--budget",
                    expected="calls=N, tokens=N and usd=X, each at most once, joined by commas",
                    found=part,
                )
            caps[name] = number
        calls, tokens = caps.get("calls"), caps.get("tokens")
        return cls(None if calls is None else int(calls), None if tokens is None else int(tokens), caps.get("usd"))


@dataclass(frozen=True, slots=True)
class LMOptions:
    """Limits on the calls to one LM. The defaults suit hosted providers and slow local servers alike."""

    rpm: float | None = None
    """Maximum requests per minute; None adapts to the provider's limits."""
    tpm: float | None = None
    """Maximum tokens per minute, input and output; estimated before a call, corrected after it."""
    budget: BudgetCaps = BudgetCaps()
    prices: Path | None = None
    """TOML file with prices; it overrides LiteLLM's table."""
    attempt_timeout: float = 300.0
    """Seconds until an attempt is given up. A local server may well let a call wait for minutes."""
    deadline: float = 900.0
    """Seconds that the attempts of one call and its pauses may take together, without waiting for a slot or for
    the end of an outage."""
    retries: int = 3
    """Further attempts after failures that may be the call's own. Rate limits and outages do not count."""
    first_wait: float = 1.0
    """Seconds before the second attempt, doubled for each further one, plus random jitter of up to this value."""
    max_wait: float = 60.0
    """Maximum number of seconds before an attempt, also if a provider asks for more with Retry-After."""
    max_outage: float = 300.0
    """Seconds for which a run waits for a provider that is down before it ends, to be resumed later."""

    def __post_init__(self) -> None:
        for name in ("rpm", "tpm", "attempt_timeout", "deadline"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise InputError("number too small", field=name, expected="more than 0", found=value)

    def share(self, processes: int) -> LMOptions:
        """The options of each of several processes that share the limits."""
        rpm, tpm = self.rpm and self.rpm / processes, self.tpm and self.tpm / processes
        return replace(self, rpm=rpm, tpm=tpm, budget=self.budget.share(processes))

    @classmethod
    def from_settings(
        cls, *, budget: str | None = None, prices: str | Path | None = None, **settings: Any
    ) -> LMOptions:
        """Options from the values of settings; None is the default.

        Raises:
            InputError: A value cannot be used.
        """
        options = cls(
            budget=BudgetCaps.parse(budget) if budget is not None else BudgetCaps(),
            prices=Path(prices) if prices is not None else None,
            **{name: value for name, value in settings.items() if value is not None},
        )
        deadline = options.deadline
        return replace(
            options,
            attempt_timeout=min(options.attempt_timeout, deadline),
            max_outage=min(options.max_outage, deadline),
        )


def _positive_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None
