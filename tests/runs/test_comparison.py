"""The comparison: who needs which calls, what is unscored, and who takes part."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from debate_judge.data.errors import InputError
from debate_judge.programs.compiled import AspectJudge
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, Item, Judgement
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import InMemoryStore
from debate_judge.programs.make_lm import make_lm
from debate_judge.programs.transcript import Transcript, Turn
from debate_judge.runs.comparison.results import EvalSetup, compare_all
from debate_judge.runs.comparison.setup import ComparisonContext
from debate_judge.runs.comparison.table import judges_table, legend
from debate_judge.runs.evaluation.entrants import Entrant, entrants, named_judges
from debate_judge.runs.evaluation.evaluate import Evaluation, evaluate
from debate_judge.runs.evaluation.rows import EvaluatedJudge
from debate_judge.runs.runner.billing import UsageByJudge
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import debater, scripted_lm
from tests.printed_output import printed
from tests.runs.rated_corpora import COHERENCE, FLUENCY, arguing, setup, the_number

SETUP = setup([1, 2, 5], [4, 2, 3], [5, 1, 3])
ITEMS = 9


def evaluated(runner: JudgeRunner, on: EvalSetup, judges: Sequence[Entrant]) -> Evaluation:
    return evaluate(runner, judges, on.corpus, on.aspects)


def scored(lm: JudgeLM, *names: str, on: EvalSetup = SETUP) -> tuple[Mapping[str, EvaluatedJudge], Mapping[str, str]]:
    with JudgeRunner(lm) as runner:
        done = evaluated(runner, on, entrants(named_judges(names), on.aspects))
    return done.judges, done.failed


def resolve_lm(script: Callable[[str], str]) -> JudgeLM:
    return scripted_lm(script, store=UsageByJudge(InMemoryStore()))


def test_unscored_candidates_are_counted_with_their_reasons() -> None:
    lm = resolve_lm(debater(score=lambda prompt: "no number" if the_number(prompt) == "5" else the_number(prompt)))
    entries, failed = scored(lm, "single")
    assert entries["single"].unscored == {"unreadable reply": 2}
    assert failed == {}
    comparison = compare_all(SETUP, entries, baseline="single")
    assert "unscored" in printed(judges_table(comparison))
    assert comparison.results[0].table.average["summary"]["spearman"].unscored == 2
    clean = compare_all(SETUP, scored(resolve_lm(debater(score=the_number)), "single")[0], baseline="single")
    assert "unscored" not in printed(judges_table(clean))


class Impossible(Debate):
    async def judge(self, items: Sequence[Item]) -> list[Judgement]:
        raise InputError("log-probabilities are not to be had here", remedy="choose another mode")


def impossible(name: str) -> Entrant:
    return Entrant(name, {"coherence": AspectJudge(Impossible(debate_config=DebateConfig(0)))})


def test_judges_share_calls_and_each_has_the_scores_and_the_costs_that_it_has_alone() -> None:
    lm = resolve_lm(arguing(9))
    together, _ = scored(lm, "debate+tiebreak", "single", "debate")
    # One Scorer's opening and three rounds, shared by all three, and a tie-break, which one alone needs.
    assert lm.meter.executed == {"scorer": 4 * ITEMS, "critic": 3 * ITEMS, "tie-breaker": ITEMS}
    assert {name: entry.calls for name, entry in together.items()} == {"single": 1, "debate": 7, "debate+tiebreak": 8}
    for name, own in together.items():
        alone = scored(resolve_lm(arguing(9)), name)[0][name]
        assert (own.scores, own.calls, own.usage) == (alone.scores, alone.calls, alone.usage)
        # Intervals rest on sources.
        assert [group.source_id for group in own.scores["coherence"]] == [g.source_id for g in SETUP.corpus.groups]


def test_dollars_are_for_a_thousand_items_of_the_judge_alone() -> None:
    entries, _ = scored(resolve_lm(arguing(9)), "single", "debate", "rouge-l")
    usage = entries["debate"].usage
    priced, unknown = (
        {one.name: one.usd for one in compare_all(SETUP, entries, baseline="single", price=price).results}
        for price in (Price(1.0, 1.0, 2.0), None)
    )
    assert priced["debate"] == pytest.approx(1000 * (usage.fresh + 2 * usage.output) / 1e6 / ITEMS)
    assert (priced["rouge-l"], unknown) == (0, {"single": None, "debate": None, "rouge-l": 0})


def test_where_no_entrant_can_score_the_user_is_told() -> None:
    with JudgeRunner(resolve_lm(debater())) as runner, pytest.raises(InputError, match="log-probabilities"):
        evaluated(runner, SETUP, [impossible("broken")])


def test_an_entrant_that_fails_does_not_take_the_others_along() -> None:
    both = [impossible("broken"), *entrants(named_judges(["single"]), SETUP.aspects)]
    with JudgeRunner(resolve_lm(debater(score=the_number))) as runner:
        done = evaluated(runner, SETUP, both)
    entries, failed = done.judges, done.failed
    assert list(entries) == ["single"]
    assert list(failed) == ["broken"]
    assert "choose another mode" in failed["broken"]
    # As the baseline it leaves the table without differences.
    comparison = compare_all(SETUP, entries, baseline="broken", failed=failed)
    assert comparison.differences == {}
    assert comparison.to_json()["failed"] == failed


class Comparing(Debate):
    """Prefers the longer of two texts, at one call for both."""

    compares = True

    async def converse(self, items: Sequence[Item], rounds: int) -> list[Transcript]:
        if len(items) != 2:
            return await super().converse(items, rounds)
        longer = len(items[0].text) > len(items[1].text)
        turns = [Turn("scorer", 0, "", score=s, calls=c) for s, c in ((5.0 if longer else 1.0, 1), (3.0, 0))]
        return [Transcript((turns[0],)), Transcript((turns[1],))]


def test_a_judge_that_compares_is_given_pairs_where_all_candidates_come_in_pairs() -> None:
    judge = Entrant("c", {"coherence": AspectJudge(Comparing(debate_config=DebateConfig(0)))})
    pairs = setup([1, 5], [44444, 2])
    with JudgeRunner(resolve_lm(debater(score="2"))) as runner:
        entries = evaluated(runner, pairs, [judge]).judges
        found = entries["c"]
        assert [g.scores for g in found.scores["coherence"]] == [(1.0, 3.0), (5.0, 3.0)]
        assert (found.calls, found.items) == (0.5, 4)
        # A group of three: every candidate by itself.
        entries = evaluated(runner, setup([1, 5], [4, 2, 3]), [judge]).judges
    assert {s for g in entries["c"].scores["coherence"] for s in g.scores} == {2.0}


def test_the_table_says_who_saw_candidates_side_by_side_and_aspects_jointly() -> None:
    def judge(together: int = 0, joint: bool = False) -> AspectJudge:
        return AspectJudge(Debate(debate_config=DebateConfig(0), together=together, joint=joint))

    judges = {"alone": judge(), "side": judge(3), "joint": judge(joint=True), "both": judge(3, True)}
    entrants = [Entrant(name, {"coherence": one, "fluency": one}) for name, one in judges.items()]
    on = replace(setup([1, 5, 3], [4, 2, 3]), aspects=(COHERENCE, FLUENCY))
    with JudgeRunner(make_lm("offline"), progress=False) as runner:
        entries = evaluated(runner, on, entrants).judges
    assert all(entry.scores == entries["alone"].scores for entry in entries.values())
    assert {name: (e.calls, e.together, e.joint, e.items) for name, e in entries.items()} == {
        "alone": (1, 1, 1, 12),
        "side": (pytest.approx(1 / 3), 3, 1, 12),
        "joint": (pytest.approx(1 / 2), 1, 2, 12),
        "both": (pytest.approx(1 / 6), 3, 2, 12),
    }
    found = compare_all(on, entries, baseline="alone")
    assert [(one.to_json()["together"], one.to_json()["joint"]) for one in found.results] == [
        (1, 1), (3, 1), (1, 2), (3, 2)
    ]  # fmt: skip
    where = ComparisonContext("all", 2, 0, "", "offline")
    told = legend(found, where, priced=False)
    assert "joint: up to 2 aspects" in told
    assert re.search("both: up to 3 candidates .*up to 2 aspects", told)


# --- what the data can tell ---


# --- who takes part ---


def test_exports_with_the_same_folder_name_go_by_their_paths(tmp_path: Path) -> None:
    from debate_judge.programs.compiled import CompiledJudge
    from debate_judge.runs.export import folder as export
    from tests.runs.rated_corpora import TASK

    judge = CompiledJudge(TASK, {"coherence": AspectJudge(Debate(debate_config=DebateConfig(0)))})
    folders = [
        export.save(
            tmp_path / place / "mine",
            judge,
            lm={"spec": "offline"},
            evidence={"splits": {"held_out": place}},
            name="mine",
        )
        for place in ("a", "b")
    ]
    found = entrants(named_judges([str(f) for f in folders]), SETUP.aspects)
    assert [c.name for c in found] == [str(f) for f in folders]
    assert [c.held_out_fingerprint for c in found] == ["a", "b"]
    assert entrants(named_judges([str(folders[0])]), SETUP.aspects)[0].name == "mine"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("debate", "whole"), ("geval", "whole"), ("rouge-l", "given"), ("chateval-compare", "given")],
)
def test_scores_keep_to_the_steps_of_a_scale(name: str, expected: str) -> None:
    """What has no place on the scale, or is the outcome of a comparison, stays as it is."""
    stepped = replace(COHERENCE, scale=replace(COHERENCE.scale, on_steps=True))
    (found,) = entrants(named_judges([name]), (stepped, FLUENCY))
    assert {a: judge.granularity for a, judge in found.aspects.items()} == {"coherence": expected, "fluency": "given"}
