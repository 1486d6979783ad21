"""Settings: which of two wins, which decide the result, and that objectives and the second LM reach their users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from debate_judge.optimize.reflection import REFLECTION, make_reflection_lm
from debate_judge.optimize.search import study
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import guide
from debate_judge.programs.debate.personas import PERSONAS
from debate_judge.programs.lm.errors import BudgetSpentError
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.make_lm import make_lm
from debate_judge.programs.testing import scripted_lm
from debate_judge.runs.flags.judge import personas
from debate_judge.runs.flags.lm import lm_options
from debate_judge.runs.reports.costs import cost_rows
from debate_judge.runs.runner.runner import JudgeRunner
from tests.optimize.compiles import compiled, plan_of
from tests.optimize.small_corpus import small_corpus


@pytest.mark.parametrize(
    ("written", "metric", "correlation", "absolute"),
    [
        ("auto/spearman", "auto/spearman", "spearman", None),
        ("summary/kendall", "summary/kendall", "kendall", None),
        ("pearson", "auto/pearson", "pearson", None),
        ("sample", "sample/spearman", "spearman", None),
        # What is shown of agreement stays a correlation.
        ("summary/mae", "summary/mae", "spearman", "mae"),
        ("ccc", "auto/ccc", "spearman", "ccc"),
        ("kappa", "auto/kappa", "spearman", "kappa"),
    ],
)
def test_a_metric_is_a_level_and_a_correlation_or_an_absolute_measure(
    written: str, metric: str, correlation: str, absolute: str | None
) -> None:
    settings = Settings(metric=written)
    assert settings.metric == metric, "however it is written, it is the same compile"
    choice = settings.metric_choice
    assert (choice.level, choice.correlation) == (metric.partition("/")[0], correlation)
    assert (choice.absolute_measure or None) == absolute


@pytest.mark.parametrize(
    ("field", "attempt", "deadline"), [({}, 300, 900), ({"timeout": 5000.0}, 5000, 15000), ({"timeout": 0.5}, 0.5, 1.5)]
)
def test_a_call_may_take_three_times_as_long_as_an_attempt(
    field: dict[str, float], attempt: float, deadline: float
) -> None:
    options = lm_options(Settings(**field))
    assert (options.attempt_timeout, options.deadline) == (attempt, deadline)


def test_the_identity_is_what_decides_the_result() -> None:
    base = Settings().identity()
    same: list[dict[str, Any]] = [
        *({"name": "x"}, {"store": "elsewhere"}, {"json": "r.json"}),
        *({"concurrency": 2}, {"rpm": 1.0}, {"budget": "calls=1"}),
    ]
    assert {Settings(**fields).identity() for fields in same} == {base}
    different: list[dict[str, Any]] = [
        *({"data": "summeval"}, {"task": "dialogue"}, {"columns": ("text=answer",)}, {"sources": 20}),
        *({"aspects": ("coherence",)}, {"judge": "single"}, {"personas": "mine.toml"}, {"lm": "openai/m"}),
        *({"api_base": "http://localhost:8000/v1"}, {"tuner": "none"}, {"effort": "heavy"}, {"trials": 7}),
        *({"max_rounds": 1}, {"metric": "kendall"}, {"metric": "sample"}, {"seed": 1}),
        {"examples": 8},
    ]
    assert len({base, *(Settings(**fields).identity() for fields in different)}) == len(different) + 1


def test_one_name_for_run_export_model_and_prompts(tmp_path: Path) -> None:
    texts = {name: persona.text for name, persona in PERSONAS.items()}
    named, usual = (plan_of(Settings(store=str(tmp_path), **fields), texts) for fields in ({"name": "mine"}, {}))
    assert (named.name, named.model_name) == ("mine", "mine")
    assert (usual.name.startswith("sample-debate-offline-"), usual.model_name) == (True, "debate-summarization")


# --- what is maximized ---


def spied(patch: pytest.MonkeyPatch, module: Any, name: str) -> list[tuple[Any, ...]]:
    """The arguments of each call of a function of a module, filled as calls are made."""
    calls: list[tuple[Any, ...]] = []
    real = getattr(module, name)

    def spy(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        return real(*arguments, **named)

    patch.setattr(module, name, spy)
    return calls


def test_guides_are_compared_and_judges_chosen_by_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = spied(monkeypatch, study, "group_values")
    tuned = spied(monkeypatch, guide, "group_metric")
    data: dict[str, Any] = {"data": str(small_corpus(tmp_path)), "aspects": ("coherence",), "store": str(tmp_path)}
    quick: dict[str, Any] = {"max_rounds": 0, "folds": 1}
    settings = Settings(**data, **quick, metric="mae", examples=2)
    lm = make_lm("offline")
    with JudgeRunner(lm, progress=False) as runner:
        result = compiled(settings, personas(None), runner, lm)
    # Scores of groups, the objective, the level, and the scale of 1 to 5 with its cut.
    assert {(objective, level, scale.width, scale.cut) for _, objective, level, scale in chosen} == {
        ("mae", "summary", 4.0, 4.0)
    }
    assert {(objective, scale.width) for _, _, objective, scale in tuned} == {("mae", 4.0)}
    assert result.to_json()["objective"]["maximized"] == "mae"


# --- the LM that reflects ---


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that no server will see."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")


def engine() -> Any:
    return scripted_lm(lambda _: "OK").transport


@pytest.mark.parametrize(
    ("name", "endpoint"), [("openai/gpt-4o", "http://127.0.0.1:9/v1"), ("anthropic/claude-sonnet-4-5", "")]
)
def test_the_address_is_that_of_a_provider(name: str, endpoint: str) -> None:
    settings = Settings(lm="openai/gpt-4o-mini", api_base="http://127.0.0.1:9/v1", reflection_lm=name)
    lm = make_lm(settings.lm, api_base=settings.api_base, options=lm_options(settings), transport=engine())
    reflection = make_reflection_lm(settings, lm)
    assert (reflection.model, reflection.endpoint) == (name, endpoint)


def test_both_spend_one_budget() -> None:
    settings = Settings(lm="openai/gpt-4o-mini", reflection_lm="openai/gpt-4o", budget="calls=2")
    lm = make_lm(settings.lm, options=lm_options(settings), transport=engine())
    second = make_lm("openai/gpt-4o", transport=engine()).share_run(lm, REFLECTION)
    lm("first")
    second("second")
    for either in (lm, second):
        with pytest.raises(BudgetSpentError, match="2 of 2 calls"):
            either("third")


def test_the_bill_has_its_calls_in_a_row_of_their_own_at_its_own_price() -> None:
    lm = make_lm("openai/gpt-4o-mini", transport=engine())
    second = make_lm("openai/gpt-4o", transport=engine()).share_run(lm, REFLECTION)
    lm.meter.count_reply("scorer", Reply("", 1000, 100))
    second.meter.count_reply(REFLECTION, Reply("", 1000, 100))
    rows = {row["role"]: row["usd"] for row in cost_rows(lm.meter, lm.price)}
    assert rows["scorer"] == pytest.approx(lm.price.cost(1000, 0, 100))
    assert rows[REFLECTION] == pytest.approx(second.price.cost(1000, 0, 100))
    assert rows[REFLECTION] > 10 * rows["scorer"]
    assert rows["total"] == pytest.approx(rows["scorer"] + rows[REFLECTION])
