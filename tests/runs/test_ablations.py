"""Ablations: what is read off costs no call, what is repeated is asked anew, and every figure has its table."""

from __future__ import annotations

import json
import statistics
import zlib
from typing import Any

import pytest
from matplotlib.figure import Figure
from scipy import stats

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Scale
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import PERSONAS
from debate_judge.programs.judge import DebateConfig
from debate_judge.programs.make_lm import OFFLINE, make_lm
from debate_judge.runs.comparison.ablations.distribution import bins, distributions, steadiness
from debate_judge.runs.comparison.ablations.plan import AblationPlan, Findings, ablate, render
from debate_judge.runs.comparison.ablations.studies import USUAL, by_rounds, by_style, record_debates, repeats
from debate_judge.runs.comparison.figures import ablation_figures
from debate_judge.runs.comparison.results import AVERAGE, EvalSetup, Scores
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import Script, ScriptedLM, debater, scripted_lm
from tests.printed import printed
from tests.programs.engines import call_key
from tests.programs.tables import reading, shown
from tests.runs.rated import COHERENCE, FLUENCY, arguing, entry, setup, the_number

SETUP = setup([1, 2, 5], [4, 2, 3], [5, 1, 3])
ITEMS = 9
TEXTS = {name: persona.text for name, persona in PERSONAS.items()}


def plan(*which: str, **changes: Any) -> AblationPlan:
    return AblationPlan(Debate(debate_config=DebateConfig(2)), TEXTS, which, **{"max_rounds": 3, "runs": 2, **changes})


def ablated(lm: ScriptedLM, *which: str, on: EvalSetup = SETUP, **changes: Any) -> Findings:
    with JudgeRunner(lm, progress=False) as runner:
        return ablate(runner, on, plan(*which, **changes))


def test_every_n_is_read_off_the_longest_debate_at_no_call() -> None:
    lm = scripted_lm(arguing(2))
    with JudgeRunner(lm, progress=False) as runner:
        held = record_debates(runner, SETUP, {"d": (Debate(), 4)})["d"]
        asked = lm.meter.asked.total()
        study = by_rounds(SETUP, held, 4)
        assert lm.meter.asked.total() == asked
    # The Critic objects twice and is content in the third round.
    assert asked == lm.meter.executed.total() == 6 * ITEMS
    assert {n: v.calls for n, v in study.variants.items()} == {"0": 1, "1": 3, "2": 5, "3": 6, "4": 6}
    values = {n: v.table.average["summary"]["spearman"].value for n, v in study.variants.items()}
    # Before the second round every score is the same: a judge that ranks nothing earns 0.
    assert values == {"0": 0, "1": 0, "2": pytest.approx(1), "3": pytest.approx(1), "4": pytest.approx(1)}
    assert study.variants["0"].difference is None
    assert study.variants["2"].difference is not None


def test_reading_off_gives_what_a_shorter_debate_gives() -> None:
    lm = scripted_lm(arguing(2))
    with JudgeRunner(lm, progress=False) as runner:
        longest = record_debates(runner, SETUP, {"d": (Debate(), 4)})["d"]
        for n in range(4):
            shorter = record_debates(runner, SETUP, {"d": (Debate(), n)})["d"]
            assert longest.at(SETUP, n) == shorter.at(SETUP, n)


def test_all_ablations_share_their_debates() -> None:
    lm = scripted_lm(arguing(9))
    ablated(lm, "rounds", "personas", "styles", "distribution")
    # Five personas share the Scorer's opening and, as this script hears no difference, all that it says; Critics do
    # not: the strict one is heard three times, the others twice. Tie-breaks: plain and strict debates at n = 2, whose
    # texts are the same here.
    assert lm.meter.executed == {"scorer": 4 * ITEMS, "critic": (3 + 4 * 2) * ITEMS, "tie-breaker": ITEMS}


def test_styles_differ_by_critic_and_tie_breaker() -> None:
    def script(prompt: str) -> str:
        devil = "take none of the Scorer's reasons on trust" in prompt
        return debater(score="3", decision="ISSUE" if devil else "NO ISSUE", final_score=the_number)(prompt)

    lm = scripted_lm(script)
    with JudgeRunner(lm, progress=False) as runner:
        judges = Debate(debate_config=DebateConfig(2)).variants(TEXTS)
        held = record_debates(runner, SETUP, {name: (judges[name], 2) for name in ("plain", "devils-advocate")})
        study = by_style(runner, SETUP, held, 2)
    assert {name: v.calls for name, v in study.variants.items()} == {
        "plain": 2,
        "plain + tie-breaker": 2,
        "devil's advocate": 5,
        "devil's advocate + tie-breaker": 6,
    }
    # Only where the Tie-breaker is heard does anybody say the truth.
    assert study.variants["devil's advocate + tie-breaker"].table.average["summary"]["spearman"].value == pytest.approx(
        1
    )
    assert study.variants["devil's advocate"].table.average["summary"]["spearman"].value == 0
    assert lm.meter.executed["tie-breaker"] == ITEMS


def test_repeats_ask_anew_and_find_their_replies_again() -> None:
    lm = scripted_lm(arguing(1), temperature=0.0)
    with JudgeRunner(lm, progress=False) as runner:
        record_debates(runner, SETUP, {"d": (Debate(), 2)})
        once = lm.meter.executed.total()
        for _ in range(2):
            found = repeats(runner, SETUP, Debate(), 2, 3, 0.7)
            assert len(found) == 3
            assert lm.meter.executed.total() == 4 * once
        # Fewer runs are the first of more.
        repeats(runner, SETUP, Debate(), 2, 2, 0.7)
        assert lm.meter.executed.total() == 4 * once


def test_a_repeat_is_the_same_lm_but_for_temperature_and_identity() -> None:
    lm = scripted_lm(debater(), temperature=0.0, max_tokens=50)
    one, other = lm.another_sample(1, 0.7), lm.another_sample(2, 0.7)
    messages = [{"role": "user", "content": "hello"}]
    assert len({call_key(x, messages) for x in (lm, one, other)}) == 3
    # A judge that samples by itself numbers its samples; they must differ between runs as well.
    assert call_key(one, messages, temperature=1.0, sample=0) != call_key(other, messages, temperature=1.0, sample=0)
    assert (one.kwargs, lm.kwargs["temperature"]) == ({**lm.kwargs, "temperature": 0.7}, 0.0)
    assert one.recorded.limiter is lm.recorded.limiter
    assert one.meter is lm.meter
    assert one.store is lm.store
    assert make_lm(OFFLINE).another_sample(1, 0.7).kwargs["temperature"] is None


# --- spread ---


def scores(on: EvalSetup, *values: float | None) -> Scores:
    given = iter(values)
    return entry(on, coherence=lambda rating, group: next(given)).scores


SMALL = setup([1, 2, 5], [4, 2, 2], resamples=0)


def test_distributions_are_counted_by_point_beside_the_ratings() -> None:
    (found,) = distributions(SMALL, {"judge": scores(SMALL, 1, 2.5, 5, 5, None, 2.4)}).values()
    assert found.points == ("1", "2", "3", "4", "5")
    assert found.ratings.shares == pytest.approx((1 / 6, 3 / 6, 0, 1 / 6, 1 / 6))
    judge = found.judges["judge"]
    assert judge.count == 5
    # 2.5 goes up, 2.4 down.
    assert judge.shares == pytest.approx((1 / 5, 1 / 5, 1 / 5, 0, 2 / 5))
    assert judge.mean == pytest.approx(15.9 / 5)
    assert judge.total_variation == pytest.approx((1 / 30 + 9 / 30 + 6 / 30 + 5 / 30 + 7 / 30) / 2)
    # Areas between the two distribution functions: 1-2, 2-2.4, 2.4-2.5, 2.5-4, 4-5.
    areas = [1 * abs(1 / 6 - 1 / 5), 0.4 * abs(4 / 6 - 1 / 5), 0.1 * abs(4 / 6 - 2 / 5), 1.5 * abs(4 / 6 - 3 / 5)]
    assert judge.wasserstein == pytest.approx(sum(areas) + 1 * abs(5 / 6 - 3 / 5))


def test_scores_like_the_ratings_have_no_distance() -> None:
    (found,) = distributions(SMALL, {"judge": scores(SMALL, 1, 2, 5, 4, 2, 2)}).values()
    assert (found.judges["judge"].wasserstein, found.judges["judge"].total_variation) == (0, 0)


@pytest.mark.parametrize(
    ("scale", "names", "places"),
    [
        (Scale(0, 1), ("0", "1"), {0: 0, 0.49: 0, 0.5: 1, 1: 1}),
        (Scale(0, 1, 0.25), ("0", "0.25", "0.5", "0.75", "1"), {0.3: 1, 0.4: 2}),
        (Scale(0, 100), ("0–10", "90–100"), {0: 0, 9.9: 0, 10: 1, 100: 9}),
    ],
)
def test_points_of_a_scale(scale: Scale, names: tuple[str, ...], places: dict[float, int]) -> None:
    found, place = bins(scale)
    assert set(names) <= set(found)
    assert {value: place(value) for value in places} == places


def test_steadiness_is_over_runs_and_items() -> None:
    values = [(1, 2, 5, 4, 2, 3), (5, 2, 1, 4, 2, 3), (3, 2, 4, 4, None, 3)]
    found = steadiness(SMALL, [scores(SMALL, *v) for v in values])
    # The third run's second group has ratings 4 and 2 that it orders rightly.
    expected = [
        statistics.fmean([stats.spearmanr([1, 2, 5], v[:3]).statistic, second])
        for v, second in zip(values, [stats.spearmanr([4, 2, 2], [4, 2, 3]).statistic] * 2 + [1.0], strict=True)
    ]
    assert found.agreement["coherence"] == found.agreement[AVERAGE] == pytest.approx(expected)
    assert found.mean(AVERAGE) == pytest.approx(statistics.fmean(expected))
    assert found.deviation(AVERAGE) == pytest.approx(statistics.stdev(expected))
    assert found.items == 6
    # Two items vary, by 1, 5, 3 and 5, 1, 4; the one that a run left out has two equal scores.
    assert found.score_deviation == pytest.approx((statistics.stdev([1, 5, 3]) + statistics.stdev([5, 1, 4])) / 6)
    assert found.changed == pytest.approx(2 / 6)
    assert found.unscored == 1


def test_steadiness_of_equal_runs() -> None:
    found = steadiness(SMALL, [scores(SMALL, 1, 2, 5, 4, 2, 3)] * 3)
    assert (found.deviation(AVERAGE), found.score_deviation, found.changed) == (0, 0, 0)


def test_an_undefined_run_leaves_no_mean() -> None:
    found = steadiness(SMALL, [scores(SMALL, 1, 2, 5, 4, 2, 3), scores(SMALL, *[None] * 6)])
    assert found.mean(AVERAGE) is None
    assert found.deviation(AVERAGE) is None


# --- all together ---


@pytest.fixture(scope="module")
def findings() -> Findings:
    return ablated(scripted_lm(arguing(1)), *USUAL, on=setup([1, 2, 5], [4, 2, 3], aspects=(COHERENCE, FLUENCY)))


def test_what_is_not_asked_for_is_not_done() -> None:
    lm = scripted_lm(arguing(1))
    found = ablated(lm, "distribution")
    assert set(found.to_json()) == {"distribution"}
    assert lm.meter.executed["critic"] == 2 * ITEMS


def test_json_has_all_numbers(findings: Findings) -> None:
    found = json.loads(json.dumps(findings.to_json(), allow_nan=False))
    assert set(found) == set(USUAL)
    assert list(found["rounds"]["variants"]) == ["0", "1", "2", "3"]
    assert list(found["personas"]["variants"]) == list(PERSONAS)
    assert set(found["distribution"]["fluency"]["judges"]) == {"single", "debate"}
    assert len(found["stability"]["debate"]["agreement"]["average"]["runs"]) == 2


def test_there_is_a_table_and_a_figure_for_each(findings: Findings) -> None:
    on = setup([1, 2, 5], [4, 2, 3], aspects=(COHERENCE, FLUENCY))
    text = printed(*render(findings, on, "text"))
    for part in ("number of rounds n", "Critic's persona", "debating style", "Distribution of scores", "Stability"):
        assert part in text
    figures: dict[str, Figure] = ablation_figures(findings, on, "held-out", "LM: test")
    assert list(figures) == list(USUAL)
    for figure in figures.values():
        figure.draw_without_rendering()
        assert figure.get_supxlabel() == "LM: test"
    assert figures["rounds"].axes[0].get_ylabel() == "held-out summary-level Spearman, 2 groups"
    assert "2 groups" in figures["stability"].axes[0].get_xlabel()
    assert len(figures["distribution"].axes) == 2
    bars = [bar.get_height() for bar in figures["distribution"].axes[0].patches]
    assert sum(bars[:5]) == pytest.approx(100)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"which": ("round",)}, "unknown ablation"),
        ({"max_rounds": 0}, "--max-rounds"),
        ({"runs": 1}, "--repeats"),
        ({"temperature": -1.0}, "temperature"),
    ],
)
def test_plans_that_cannot_be_done(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        AblationPlan(Debate(), TEXTS, **changes)


# --- the order of candidates that are judged together ---


def ordered(script: Script) -> tuple[Findings, ScriptedLM]:
    lm = scripted_lm(script)
    judge = Debate(debate_config=DebateConfig(1), together=8)
    with JudgeRunner(lm, progress=False) as runner:
        return ablate(runner, SETUP, AblationPlan(judge, TEXTS, ("order",))), lm


def test_an_lm_that_scores_by_place_shows_in_five_orders() -> None:
    found, lm = ordered(reading(lambda prompt, text: 5 if shown(prompt)[1] == text else 1))
    single, debate = found.order["single"], found.order["debate"]
    assert len(single.agreement["average"]) == len(debate.agreement["average"]) == 5
    assert single.items == ITEMS
    assert single.changed is not None
    assert single.changed > 0.5
    assert (single.deviation("average") or 0) > 0.05
    # Each group in five orders, some of which are the same; the Critic is content with all of them.
    opened = [tuple(shown(prompt).values()) for prompt in lm.prompts[: len(lm.prompts) // 2]]
    assert 3 < len(set(opened)) == len(lm.prompts) / 2 <= 15
    text = printed(*render(found, SETUP, "text"))
    assert "Order of the candidates that are judged together: mean ± standard deviation of agreement over 5" in text
    assert set(found.to_json()) == {"order"}


def test_an_lm_that_reads_each_by_itself_shows_none() -> None:
    found, _ = ordered(reading(lambda prompt, text: 1 + zlib.crc32(text.encode()) % 5))
    changes = [(one.changed, one.score_deviation, one.deviation("average")) for one in found.order.values()]
    assert changes == [(0, 0, 0)] * 2


def test_what_is_judged_alone_has_no_order() -> None:
    with pytest.raises(InputError, match="no order"):
        plan("order")
