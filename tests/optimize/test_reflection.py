"""The second LM of a compile: made like the first, on one budget and one bill, tried before anything is spent."""

from __future__ import annotations

from typing import Any

import pytest

from debate_judge.optimize.reflection import REFLECTION, reflection_lm
from debate_judge.optimize.settings import Settings
from debate_judge.programs.lm.errors import BudgetSpentError
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.make_lm import make_lm
from debate_judge.programs.testing import scripted_lm
from debate_judge.runs.flags.lm import lm_options
from debate_judge.runs.reports.costs import cost_rows


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that no server will see."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")


def engine() -> Any:
    return scripted_lm(lambda _: "OK").scripted


@pytest.mark.parametrize(
    ("name", "endpoint"), [("openai/gpt-4o", "http://127.0.0.1:9/v1"), ("anthropic/claude-sonnet-4-5", "")]
)
def test_the_address_is_that_of_a_provider(name: str, endpoint: str) -> None:
    settings = Settings(lm="openai/gpt-4o-mini", api_base="http://127.0.0.1:9/v1", reflection_lm=name)
    lm = make_lm(settings.lm, api_base=settings.api_base, options=lm_options(settings), engine=engine())
    reflection = reflection_lm(settings, lm)
    assert (reflection.model, reflection.endpoint) == (name, endpoint)


def test_both_spend_one_budget() -> None:
    settings = Settings(lm="openai/gpt-4o-mini", reflection_lm="openai/gpt-4o", budget="calls=2")
    lm = make_lm(settings.lm, options=lm_options(settings), engine=engine())
    second = make_lm("openai/gpt-4o", engine=engine()).share_run(lm, REFLECTION)
    lm("first")
    second("second")
    for either in (lm, second):
        with pytest.raises(BudgetSpentError, match="2 of 2 calls"):
            either("third")


def test_the_bill_has_its_calls_in_a_row_of_their_own_at_its_own_price() -> None:
    lm = make_lm("openai/gpt-4o-mini", engine=engine())
    second = make_lm("openai/gpt-4o", engine=engine()).share_run(lm, REFLECTION)
    lm.meter.count_reply("scorer", Reply("", 1000, 100))
    second.meter.count_reply(REFLECTION, Reply("", 1000, 100))
    rows = {row["role"]: row["usd"] for row in cost_rows(lm.meter, lm.price)}
    assert rows["scorer"] == pytest.approx(lm.price.cost(1000, 0, 100))
    assert rows[REFLECTION] == pytest.approx(second.price.cost(1000, 0, 100))
    assert rows[REFLECTION] > 10 * rows["scorer"]
    assert rows["total"] == pytest.approx(rows["scorer"] + rows[REFLECTION])
