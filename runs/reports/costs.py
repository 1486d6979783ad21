"""The cost of a run's LM calls by role and round, and what the cache saved."""

from __future__ import annotations

from typing import Any

from debate_judge.programs.lm.replies import Meter, Usage
from debate_judge.programs.lm.settings import Price
from debate_judge.runs.reports.tables import DataTable


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
    in_turn = sorted(meter.accounts.items(), key=lambda account: _turn(*account[0]))
    rows = [_row(role, number, usage, meter.prices.get(role, price)) for (role, number), usage in in_turn]
    total = _row("total", None, meter.total, price)
    if rows:
        # Roles may have different LMs, so that there is no one price for all tokens.
        for name in ("usd", "usd_saved"):
            values = [row[name] for row in rows]
            total[name] = None if None in values else sum(values)
    return [*rows, total]


def _turn(role: str, number: int) -> tuple[int, bool, str]:
    return number, role == "tie-breaker" or (number > 0 and role == "scorer"), role


def _row(role: str, number: int | None, tokens: Usage, price: Price | None) -> dict[str, Any]:
    return {
        "role": role,
        "round": number,
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


def cost_table(meter: Meter, price: Price | None) -> DataTable:
    """The cost of a run by role and round."""
    rows = cost_rows(meter, price)
    total = rows[-1]
    columns = {
        **{"calls": "calls", "cache_hits": "from cache", "fresh_input": "input", "cached_input": "cached input"},
        **{"output": "output", "stored": "tokens from cache"},
    }
    # A stand-in that costs nothing needs no column of zeros.
    priced = total["usd"] is not None and bool(total["usd"] or total["usd_saved"])
    body = [
        [
            row["role"],
            "" if row["round"] is None else str(row["round"]),
            *(f"{row[name]:,}" for name in columns),
            *([f"{row['usd']:.4f}"] if priced else []),
        ]
        for row in rows
    ]
    notes = ["Tokens by role and round. Cached input is the provider's; replies from the cache are not paid for again."]
    if total["uncounted"]:
        notes.append(f"The server did not report the tokens of {total['uncounted']:,} calls.")
    if total["usd"] is None:
        notes.append("No price is known for this LM; give one with --prices FILE.")
    elif total["usd_saved"]:
        notes.append(f"Without the cache ${total['usd_saved']:.4f} more would have been spent.")
    header = ("role", "round", *columns.values(), *(["US dollars"] if priced else []))
    return DataTable(header, body, caption="\n".join(notes), total=True)
