"""The cost of a run's LM calls by role and round, and what the caches saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.usage import Meter, Usage
from debate_judge.runs.reports.tables import DataTable

_HEADER = ("role", "round", "calls", "from cache", "input", "cached input", "output", "tokens from cache")


def calls_text(meter: Meter, price: Price | None = None) -> str:
    """The number of LM calls that were answered, of those from the cache and those that failed, and the money spent."""
    counts = meter.counts()
    answered, cached, failed = (counts[name] for name in ("answered", "from_cache", "failed"))
    text = f"{answered:,} LM calls" + (f" ({cached:,} more from cache)" if cached else "")
    usd = 0.0 if price is None else sum(meter.cost(price).values())
    return text + (f", {failed:,} failed" if failed else "") + (f", ${usd:.2f}" if usd else "")


def cost_rows(meter: Meter, price: Price | None) -> list[dict[str, Any]]:
    """A row for each role and round, and a last one with `role` "total".

    Fields: calls (executed), cache_hits (replies found in the store), fresh_input, cached_input (served from the
    provider's prefix cache), output, stored (tokens of the cache hits), uncounted (executed calls whose tokens the
    server did not report), and usd and usd_saved (the cost of the cache hits), both None where no price is known.
    """
    rows = [
        _row(role, round_number, tokens, meter.prices.get(role, price))
        for (role, round_number), tokens in sorted(meter.accounts.items(), key=_turn_order)
    ]
    # Roles may have different LMs, so that there is no one price for all tokens.
    total = _row("total", None, meter.total, price)
    return [*rows, {**total, **{name: _sum(rows, name, total[name]) for name in ("usd", "usd_saved")}}]


def _sum(rows: Sequence[Mapping[str, Any]], name: str, empty: float | None) -> float | None:
    values = [row[name] for row in rows]
    return None if None in values else sum(values) if values else empty


def cost_table(meter: Meter, price: Price | None) -> DataTable:
    """The cost of a run by role and round."""
    rows = cost_rows(meter, price)
    # A stand-in that costs nothing needs no column of zeros.
    priced = rows[-1]["usd"] is not None and any(row["usd"] or row["usd_saved"] for row in rows)
    body = []
    for row in rows:
        numbers = [row[name] for name in ("calls", "cache_hits", "fresh_input", "cached_input", "output", "stored")]
        texts = [row["role"], "" if row["round"] is None else str(row["round"]), *(f"{n:,}" for n in numbers)]
        body.append([*texts, *([f"{row['usd']:.4f}"] if priced else [])])
    header = (*_HEADER, *(["US dollars"] if priced else []))
    return DataTable(header, body, caption="\n".join(_notes(rows)), total=True)


def _notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A legend, and what is unknown."""
    lines = ["Tokens by role and round. Cached input is the provider's; replies from the cache are not paid for again."]
    if rows[-1]["uncounted"]:
        lines.append(f"The server did not report the tokens of {rows[-1]['uncounted']:,} calls.")
    if rows[-1]["usd"] is None:
        lines.append("No price is known for this LM; give one with --prices FILE.")
    elif rows[-1]["usd_saved"]:
        lines.append(f"Without the cache ${rows[-1]['usd_saved']:.4f} more would have been spent.")
    return lines


def _row(role: str, round_number: int | None, tokens: Usage, price: Price | None) -> dict[str, Any]:
    return {
        "role": role,
        "round": round_number,
        "calls": tokens.calls,
        "cache_hits": tokens.cache_hits,
        "fresh_input": tokens.fresh,
        "cached_input": tokens.cached,
        "output": tokens.output,
        "stored": tokens.stored,
        "uncounted": tokens.uncounted,
        "usd": None if price is None else tokens.cost(price),
        "usd_saved": None if price is None else tokens.saved(price),
    }


def _turn_order(entry: tuple[tuple[str, int], Usage]) -> tuple[int, bool, str]:
    """Sort key: by round, and within a round in the order of turns."""
    (role, round_number), _ = entry
    return round_number, role == "tie-breaker" or (round_number > 0 and role == "scorer"), role
