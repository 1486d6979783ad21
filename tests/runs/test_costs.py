"""The costs of a run by role and round: fresh, cached, cache hits, and money where prices are known."""

from __future__ import annotations

import pytest

from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.lm.usage import Meter
from debate_judge.runs.reports.costs import cost_rows, cost_table
from tests.printed_output import printed

PRICE = Price(input=1.0, cached=0.5, output=4.0)


def meter() -> Meter:
    found = Meter()
    found.count_reply("scorer", Reply("a", 1000, 100, 600))
    found.count_hit("scorer", Reply("b", 500, 50))
    found.count_reply("scorer", Reply("c", 200, 20), round=1)
    found.count_reply("critic", Reply("d", 300, 30), round=1)
    return found


def test_each_role_and_round_has_its_row_in_the_order_of_a_debate() -> None:
    rows = cost_rows(meter(), PRICE)
    assert [(r["role"], r["round"], r["calls"], r["cache_hits"]) for r in rows] == [
        ("scorer", 0, 1, 1),
        ("critic", 1, 1, 0),
        ("scorer", 1, 1, 0),
        ("total", None, 3, 1),
    ]
    first = rows[0]
    assert (first["fresh_input"], first["cached_input"], first["output"], first["stored"]) == (400, 600, 100, 550)
    # 400 fresh at 1, 600 cached at half, 100 of output at 4 dollars a million.
    assert first["usd"] == pytest.approx((400 + 300 + 400) / 1e6)
    assert first["usd_saved"] == pytest.approx((500 + 200) / 1e6)
    assert rows[-1]["usd"] == pytest.approx(sum(r["usd"] for r in rows[:-1]))


def test_the_table_says_what_is_not_known() -> None:
    assert "US dollars" not in printed(*cost_table(cost_rows(meter(), None))).splitlines()[2]
    assert "prices=FILE" in printed(*cost_table(cost_rows(meter(), None)))
    priced = printed(*cost_table(cost_rows(meter(), PRICE)))
    assert "0.0011" in priced
    assert "$0.0007 more" in priced
    # A stand-in that costs nothing needs no column of zeros.
    free = printed(*cost_table(cost_rows(meter(), Price(0.0, 0.0, 0.0))))
    assert "dollars" not in free
    uncounted = meter()
    uncounted.count_reply("scorer", Reply("e"))
    assert "did not report" not in priced
    assert "of 1 calls" in printed(*cost_table(cost_rows(uncounted, PRICE)))


def test_an_lm_without_a_price_is_not_billed_at_the_other_ones() -> None:
    found = meter()
    found.prices["reflection"] = None
    found.count_reply("reflection", Reply("f", 1000, 100))
    assert set(found.cost(PRICE)) == {"scorer", "critic"}
