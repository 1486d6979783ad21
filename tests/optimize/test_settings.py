"""Settings: which of two wins, which decide the result, and that objectives and the second LM reach their users."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.errors import InputError
from debate_judge.optimize.plan import make_plan
from debate_judge.optimize.run import REFLECTION
from debate_judge.optimize.settings import Settings
from debate_judge.programs.debate.prompts import PERSONAS
from debate_judge.programs.lm.limits import BudgetSpentError
from debate_judge.programs.lm.replies import Reply
from debate_judge.programs.make_lm import make_lm
from debate_judge.programs.testing import scripted_lm
from debate_judge.runs.reports.tables import cost_rows
from debate_judge.runs.shared_flags import lm_options
from tests.optimize.small_corpus import small_corpus


@pytest.mark.parametrize(
    ("written", "metric", "correlation", "absolute"),
    [
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
    named, usual = (make_plan(Settings(store=str(tmp_path), **fields), texts) for fields in ({"name": "mine"}, {}))
    assert (named.name, named.model_name) == ("mine", "mine")
    assert (usual.name.startswith("sample-debate-offline-"), usual.model_name) == (True, "debate-summarization")


# --- the LM that reflects ---


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that no server will see."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")


def engine() -> Any:
    return scripted_lm(lambda _: "OK").transport


def test_both_spend_one_budget() -> None:
    settings = Settings(lm="openai/gpt-4o-mini", reflection_lm="openai/gpt-4o", budget="calls=2")
    lm = make_lm(settings.lm, options=lm_options(settings), transport=engine())
    second = make_lm("openai/gpt-4o", transport=engine()).share_run(lm, REFLECTION)
    lm("first")
    second("second")
    for either in (lm, second):
        with pytest.raises(BudgetSpentError, match="2 of 2 calls"):
            either("third")


def test_a_budget_in_money_is_shared_by_lms_with_a_price_only() -> None:
    lm = make_lm("openai/gpt-4o-mini", options=lm_options(Settings(budget="usd=1")), transport=engine())
    with pytest.raises(ValueError, match="needs a price"):
        make_lm("openai/of-the-future", transport=engine()).share_run(lm, REFLECTION)


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


# --- held-out sources of the user's own ---


def test_all_sources_of_the_other_file_are_train_and_dev(tmp_path: Path) -> None:
    groups = [json.loads(line) for line in small_corpus(tmp_path, 12, 3).read_text().splitlines()]
    # Row numbers and the like may be the same in both files.
    held_out = [{**group, "group": groups[n]["group"]} for n, group in enumerate(groups[8:])]
    for name, part in (("d.jsonl", groups[:8]), ("h.jsonl", held_out)):
        (tmp_path / name).write_text("".join(json.dumps(group) + "\n" for group in part))
    files = {"data": str(tmp_path / "d.jsonl"), "held_out": str(tmp_path / "h.jsonl")}
    plan = make_plan(Settings(**files, aspects=("coherence",)), {})
    assert {g.source for g in plan.splits.held_out.groups} == {group["source"] for group in held_out}
    assert [len(part.groups) for part in (plan.splits.train, plan.splits.dev)] == [4, 4]
    assert len({g.id for g in plan.corpus.groups}) == 12
    assert plan.evaluation_corpus == plan.splits.held_out


def test_a_level_that_the_data_do_not_have_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "singles.csv"
    file.write_text("source,text,coherence\n" + "".join(f"source {n},text {n},{1 + n % 5}\n" for n in range(40)))
    with pytest.raises(InputError, match="only one"):
        make_plan(Settings(data=str(file), task="summarization", metric="summary/spearman"), {})
