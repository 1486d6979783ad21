"""The costs of a run by role and round: fresh, cached, cache hits, and money where prices are known."""

from __future__ import annotations

import pytest

from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.lm.usage import Meter
from debate_judge.runs.reports.costs import cost_rows, cost_table
from tests.printed_output import printed

PRICE = Price(input=1.0, cached=0.5, output=4.0)


def test_each_role_and_round_has_its_row_and_what_is_not_known_is_said() -> None:
    meter = Meter()
    meter.count_reply("scorer", Reply("a", 1000, 100, 600))
    meter.count_hit("scorer", Reply("b", 500, 50))
    meter.count_reply("scorer", Reply("c", 200, 20), round=1)
    meter.count_reply("critic", Reply("d", 300, 30), round=1)
    rows = cost_rows(meter, PRICE)
    calls = [(r["role"], r["round"], r["calls"], r["cache_hits"]) for r in rows]
    assert calls == [("scorer", 0, 1, 1), ("critic", 1, 1, 0), ("scorer", 1, 1, 0), ("total", None, 3, 1)]
    tokens = [rows[0][name] for name in ("fresh_input", "cached_input", "output", "stored")]
    assert tokens == [400, 600, 100, 550]
    # 400 fresh at 1, 600 cached at half, 100 of output at 4 dollars a million.
    assert (rows[0]["usd"], rows[0]["usd_saved"]) == pytest.approx(((400 + 300 + 400) / 1e6, (500 + 200) / 1e6))
    assert rows[-1]["usd"] == pytest.approx(sum(r["usd"] for r in rows[:-1]))
    prices = (None, PRICE, Price(0.0, 0.0, 0.0))
    unpriced, priced, free = (printed(*cost_table(cost_rows(meter, price))) for price in prices)
    assert "prices=FILE" in unpriced
    assert "dollars" not in unpriced.splitlines()[2] + free
    assert "$0.0007 more" in priced
    assert "did not report" not in priced
    meter.count_reply("scorer", Reply("e"))
    assert "of 1 calls" in printed(*cost_table(cost_rows(meter, PRICE)))
    # An LM without a price is not billed at the price of another.
    meter.prices["reflection"] = None
    meter.count_reply("reflection", Reply("f", 1000, 100))
    assert set(meter.cost(PRICE)) == {"scorer", "critic"}
