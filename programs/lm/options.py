"""How the calls to an LM are paced, retried and capped. Nothing here changes a result. Knows no DSPy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError


@dataclass(frozen=True, slots=True)
class BudgetCaps:
    """Caps on what a run may execute; None is no cap. What the store of replies answers costs nothing."""

    calls: int | None = None
    tokens: int | None = None
    """Input and output together."""
    usd: float | None = None

    def __bool__(self) -> bool:
        return not (self.calls is None and self.tokens is None and self.usd is None)

    @classmethod
    def of(cls, text: str) -> BudgetCaps:
        """Read caps such as `calls=1000`, `tokens=2e6` or `usd=5`, joined by commas.

        Raises:
            InputError: Something else stands there.
        """
        caps: dict[str, float] = {}
        for part in text.split(","):
            name, _, value = part.strip().partition("=")
            number = _number(value)
            whole = number is not None and (name == "usd" or number == int(number))
            if name not in ("calls", "tokens", "usd") or name in caps or number is None or not whole:
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
class BatchTiming:
    """How jobs of a batch service are put together and waited for. The defaults suit OpenAI's."""

    quiet: float = 1.0
    """Seconds without a new call after which the gathered calls go out: every debate waits for a reply then."""
    first_poll: float = 5.0
    """Seconds until a job is looked at again; half as much again each time, up to `longest_poll`."""
    longest_poll: float = 60.0
    patience: float = 3600.0
    """Seconds without an answer to any question about jobs after which the run ends, to be resumed."""


@dataclass(frozen=True, slots=True)
class LMOptions:
    """Limits on the calls to one LM. The defaults suit hosted providers and slow local servers alike."""

    rpm: float | None = None
    """Requests per minute that are never exceeded; None leaves the pace to what the provider refuses."""
    tpm: float | None = None
    """Tokens per minute, input and output, likewise; estimated before a call, corrected after it."""
    budget: BudgetCaps = BudgetCaps()
    prices: Path | None = None
    """TOML file with prices, which come before the table that LiteLLM brings along."""
    attempt: float = 300.0
    """Seconds until an attempt is given up. A local server may well let a call wait for minutes."""
    deadline: float = 900.0
    """Seconds that the attempts of one call and its pauses may take together; waiting for a free place or for
    the end of an outage is not counted."""
    retries: int = 3
    """Further attempts after failures that may be the call's own. Rate limits and outages use none up."""
    first_wait: float = 1.0
    """Seconds before the second attempt, doubled for each further one; by chance up to as many more."""
    longest_wait: float = 60.0
    """Cap on that, and on what a provider asks for with Retry-After."""
    patience: float = 300.0
    """Seconds for which a run waits for a provider that is down, before it ends, to be resumed later."""
    batch: str | None = None
    """`openai` sends the calls of the debates as jobs of OpenAI's Batch API: half the price, and no limit above
    but the budget concerns them. None sends each call by itself."""
    batch_pace: BatchTiming = BatchTiming()

    def __post_init__(self) -> None:
        for name in ("rpm", "tpm", "attempt", "deadline"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise InputError("number too small", field=name, expected="more than 0", found=value)
        if self.batch not in (None, "openai"):
            raise InputError("no such batch service", field="batch", expected="openai", found=self.batch)

    @classmethod
    def of(cls, *, budget: str | None = None, prices: str | Path | None = None, **flags: Any) -> LMOptions:
        """Options from the values of the flags of the same names; None is the default.

        Raises:
            InputError: A value cannot be used.
        """
        options = cls(
            budget=BudgetCaps.of(budget) if budget is not None else BudgetCaps(),
            prices=Path(prices) if prices is not None else None,
            **{name: value for name, value in flags.items() if value is not None},
        )
        longest = options.deadline
        return replace(options, attempt=min(options.attempt, longest), patience=min(options.patience, longest))


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None
