"""The comparison: who takes part, who needs which calls, and who is told apart from whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.agreement.correlations import agreement
from debate_judge.data.agreement.figures import AVERAGE
from debate_judge.data.errors import InputError
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.prompts import PERSONAS
from debate_judge.programs.judge import AspectJudge, DebateConfig, Item, Judgement, Transcript, Turn
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.programs.lm.settings import Price
from debate_judge.runs.comparison.entrants import Entrant, build_entrants, parse_judges
from debate_judge.runs.comparison.figures import Comparison, EvaluatedJudge
from debate_judge.runs.comparison.job import evaluate
from debate_judge.runs.flags import split_commas
from debate_judge.runs.reports.evidence import absolute_agreement_table
from debate_judge.runs.runner import JudgeRunner
from tests.fakes import debater, scripted_lm
from tests.runs.rated_corpora import COHERENCE, FLUENCY, TASK, arguing, evaluated_judge, setup
from tests.runs.score_command import export_of

SETUP = setup([1, 2, 5], [4, 2, 3], [5, 1, 3])
ITEMS = 9


def evaluated(lm: JudgeLM, judges: Sequence[Entrant], on: Comparison = SETUP) -> Mapping[str, EvaluatedJudge]:
    with JudgeRunner(lm, progress=False) as runner:
        return evaluate(runner, judges, on.corpus, on.aspects)[0]


def scored(script: Callable[[str], str], *names: str) -> tuple[Mapping[str, EvaluatedJudge], JudgeLM]:
    lm = scripted_lm(script)
    return evaluated(lm, build_entrants(parse_judges(names), SETUP.aspects)), lm


def entrants_of(text: str, personas: Path | None = None) -> list[Entrant]:
    return build_entrants(parse_judges(split_commas(text)), SETUP.aspects, personas_file=personas)


def single(debate: type[Debate] = Debate, **options: object) -> AspectJudge:
    return AspectJudge(debate(debate_config=DebateConfig(0), **options))


# --- who needs which calls ---


def test_judges_share_calls_and_each_has_the_scores_and_the_costs_that_it_has_alone() -> None:
    together, lm = scored(arguing(9), "debate+tiebreak", "single", "debate")
    # One Scorer's opening and three rounds, shared by all three, and a tie-break, which one alone needs.
    assert lm.meter.executed == {"scorer": 4 * ITEMS, "critic": 3 * ITEMS, "tie-breaker": ITEMS}
    assert {name: judge.calls for name, judge in together.items()} == {"single": 1, "debate": 7, "debate+tiebreak": 8}
    for name, judge in together.items():
        alone = scored(arguing(9), name)[0][name]
        assert (judge.scores, judge.calls, judge.usage) == (alone.scores, alone.calls, alone.usage)
        # Intervals rest on sources.
        assert [group.source_id for group in judge.scores["coherence"]] == [g.source_id for g in SETUP.corpus.groups]
    # Every n is the beginning of the longest debate: the Critic objects twice and is content in the third round.
    lm = scripted_lm(arguing(2))
    judges = evaluated(lm, entrants_of("debate[rounds=0|1|2|3|4]")).values()
    assert (lm.meter.executed.total(), [judge.calls for judge in judges]) == (6 * ITEMS, [1, 3, 5, 6, 6])
    # Before the second round every score is the same: a judge that ranks nothing earns 0.
    values = [agreement(judge.scores, "spearman", "summary").value for judge in judges]
    assert values == [0, 0, *[pytest.approx(1)] * 3]


def test_what_a_judge_costs_is_what_it_would_pay_alone() -> None:
    together, _ = scored(arguing(9), "single", "debate")
    usage = together["debate"].usage
    debate = replace(together["debate"], price=Price(1.0, 1.0, 2.0)).usd_per_thousand
    assert debate == pytest.approx(1000 * (usage.fresh + 2 * usage.output) / 1e6 / ITEMS)


class Impossible(Debate):
    async def judge(self, items: Sequence[Item]) -> list[Judgement]:
        raise InputError("log-probabilities are not to be had here", remedy="choose another mode")


def test_an_entrant_that_fails_does_not_take_the_others_along() -> None:
    broken, lm = Entrant("broken", {"coherence": single(Impossible)}), scripted_lm(debater())
    with JudgeRunner(lm, progress=False) as runner:
        judges, failed = evaluate(runner, [broken, *entrants_of("single")], SETUP.corpus, SETUP.aspects)
    assert (list(judges), list(failed)) == (["single"], ["broken"])
    # As the baseline it leaves the table without differences.
    assert replace(SETUP, judges=judges, baseline="broken").differences == {}
    with pytest.raises(InputError, match="log-probabilities"):
        evaluated(lm, [broken])


class Comparing(Debate):
    """Prefers the longer of two texts, at one call for both."""

    compares_pairs = True

    async def converse(self, items: Sequence[Item], rounds: int) -> list[Transcript]:
        if len(items) != 2:
            return await super().converse(items, rounds)
        score = 5.0 if len(items[0].text) > len(items[1].text) else 1.0
        return [Transcript((Turn("scorer", 0, "", score=s, calls=c),)) for s, c in ((score, 1), (3.0, 0))]


def test_a_judge_that_compares_is_given_pairs_where_all_candidates_come_in_pairs() -> None:
    judge, lm = Entrant("c", {"coherence": single(Comparing)}), scripted_lm(debater(score="2"))
    pairs = evaluated(lm, [judge], setup([1, 5], [44444, 2]))["c"]
    assert [g.scores for g in pairs.scores["coherence"]] == [(1.0, 3.0), (5.0, 3.0)]
    assert (pairs.calls, pairs.items) == (0.5, 4)
    # A group of three: every candidate by itself.
    alone = evaluated(lm, [judge], setup([1, 5], [4, 2, 3]))["c"]
    assert {score for group in alone.scores["coherence"] for score in group.scores} == {2.0}


# --- who is told apart from whom ---

MANY = setup(*([1, 2, 3, 4, 5] for _ in range(24)), aspects=(COHERENCE, FLUENCY))
Score = Callable[[float, int], float]


def right(rating: float, group: int) -> float:
    return rating


def wrong(rating: float, group: int) -> float:
    return -rating


def torn(rating: float, group: int) -> float:
    """Right and wrong by turns."""
    return rating if group % 2 else -rating


def compared(judges: Mapping[str, tuple[Score, Score]], baseline: str, on: Comparison = MANY) -> Comparison:
    """Judges by their scores of coherence and fluency."""
    names = [aspect.name for aspect in on.aspects]
    entries = {name: evaluated_judge(on, **dict(zip(names, scores, strict=False))) for name, scores in judges.items()}
    return replace(on, judges=entries, baseline=baseline)


def test_the_best_of_a_column_is_marked_where_it_differs_from_every_other_corrected_over_all_columns() -> None:
    best = compared({"a": (right, right), "b": (torn, right), "c": (wrong, wrong)}, "a").best
    assert best == {"coherence": "a", "fluency": None, AVERAGE: "a"}

    def nearly(rating: float, group: int) -> float:
        return -rating if group < 6 else rating

    # In 6 of 24 groups b is wrong: 2 / 2^6 = .031 by sign flips, significant alone, not as one of three columns.
    alone = replace(MANY, aspects=(COHERENCE,))
    assert compared({"a": (right, right), "b": (nearly, right)}, "a", alone).best["coherence"] == "a"
    comparison = compared({"a": (right, right), "b": (nearly, right)}, "a")
    assert comparison.differences["b"].p_value == pytest.approx(2 / 2**6)
    assert set(comparison.best.values()) == {None}
    # Differences are to the baseline. Of two comparisons Holm doubles the smaller p-value.
    comparison = compared({"a": (torn, torn), "b": (right, right), "c": (torn, torn)}, "a")
    assert {name: d.value for name, d in comparison.differences.items()} == {"b": pytest.approx(1), "c": 0}
    assert comparison.corrected_p_values == {"b": pytest.approx(2 * comparison.differences["b"].p_value), "c": 1}


def test_distances_are_those_of_judges_on_the_raters_scale_alone() -> None:
    on = replace(MANY, cuts={"coherence": 4.0, "fluency": 4.0})
    scores = {"high": lambda rating, group: min(5.0, rating + 1), "off": wrong, "metric": right, "right": right}
    entries = {name: evaluated_judge(on, coherence=score, fluency=score) for name, score in scores.items()}
    entries["metric"] = replace(entries["metric"], on_scale=False)
    agreement = replace(on, judges=entries, baseline="right").absolute_agreement
    # The baseline first, for changes are from it.
    assert list(agreement) == ["right", "high"]
    # 1, 2, 3, 4, 5 become 2, 3, 4, 5, 5: four of five a point off.
    assert absolute_agreement_table(agreement).rows[-1][2] == "0.80 [0.80, 0.80] (+0.80 [+0.80, +0.80])"
    assert replace(on, judges=entries, cuts={}).absolute_agreement == {}


# --- judges with settings in brackets ---


def judge(entrant: Entrant) -> Any:
    return entrant.aspect_judges["coherence"].judge


def test_settings_stand_in_brackets_and_alternatives_are_judges_of_their_own(tmp_path: Path) -> None:
    personas = tmp_path / "mine.toml"
    personas.write_text('grumpy = "You never like a score."\n')
    text = "debate[rounds=0|2,persona=plain],chateval[roles=[critic]|[critic,news-author],turns=3]"
    zero, two, alone, chat, grumpy = entrants_of(f"{text},debate[persona=grumpy,tie-breaker=true]", personas)
    assert (zero.name, two.name) == ("debate[rounds=0,persona=plain]", "debate[rounds=2,persona=plain]")
    assert [judge(entrant).debate_config.rounds for entrant in (zero, two)] == [0, 2]
    assert judge(two).instructions()["critic"] == PERSONAS["plain"].text
    assert [list(judge(entrant).role_texts) for entrant in (alone, chat)] == [["critic"], ["critic", "news-author"]]
    assert alone.name == "chateval[roles=[critic],turns=3]"
    assert judge(grumpy).instructions()["critic"] == "You never like a score."
    assert (judge(grumpy).debate_config, judge(grumpy).config()["persona"]) == (DebateConfig(3, True), "grumpy")


def test_an_export_is_varied_with_its_instructions_as_they_were_tuned(tmp_path: Path) -> None:
    tuned = Debate(rounds=3)
    tuned.scorer.signature = tuned.scorer.signature.with_instructions("Score like our raters.")
    tuned.critic.signature = tuned.critic.signature.with_instructions("Object like our raters.")
    folder, other = (
        export_of(tmp_path / place / "mine", TASK, AspectJudge(tuned, "half"), lm="offline", compiled_on=[place])
        for place in ("a", "b")
    )
    assert len({id(named.export) for named in parse_judges([f"{folder}[rounds=0|1|2]"])}) == 1, "opened once"
    whole, short, plain = entrants_of(f"{folder},{folder}[rounds=1,together=4],{folder}[persona=plain]")
    names = ["mine", "mine[rounds=1,together=4]", "mine[persona=plain]"]
    assert [entrant.name for entrant in (whole, short, plain)] == names
    assert (judge(short).debate_config.rounds, judge(short).together) == (1, 4)
    assert judge(short).instructions() == judge(whole).instructions()
    assert short.aspect_judges["coherence"].granularity == "half"
    instructions = judge(plain).instructions()
    assert (instructions["scorer"], instructions["critic"]) == ("Score like our raters.", PERSONAS["plain"].text)
    # Exports with the same folder name go by their paths, and say what they were compiled on.
    both = [(entrant.name, entrant.compiled_on) for entrant in entrants_of(f"{folder},{other}")]
    assert both == [(str(folder), {"a"}), (str(other), {"b"})]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("debate", "whole"), ("geval", "whole"), ("rouge-l", "given"), ("chateval-compare", "given")],
)
def test_scores_keep_to_the_steps_of_a_scale(name: str, expected: str) -> None:
    """What has no place on the scale, or is the outcome of a comparison, stays as it is."""
    stepped = replace(COHERENCE, scale=replace(COHERENCE.scale, on_steps=True))
    (entrant,) = build_entrants(parse_judges([name]), (stepped, FLUENCY))
    assert {a: judge.granularity for a, judge in entrant.aspect_judges.items()} == {
        "coherence": expected,
        "fluency": "given",
    }
