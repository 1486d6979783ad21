"""Judges with settings in brackets: how they are read, what they cost, and how runs of one judge differ."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import PERSONAS
from debate_judge.programs.judge import DebateConfig
from debate_judge.runs.comparison.results import Comparison, compare_all
from debate_judge.runs.comparison.variability import RunVariability, run_variability, variability_table
from debate_judge.runs.evaluation.entrants import Entrant, entrants, named_judges
from debate_judge.runs.evaluation.evaluate import Evaluation, evaluate
from debate_judge.runs.export import folder as export
from debate_judge.runs.flags.declaration import split_commas
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import ScriptedLM, scripted_lm
from tests.printed_output import printed
from tests.runs.rated_corpora import TASK, arguing, evaluated_judge, setup

SETUP = setup([1, 2, 5], [4, 2, 3], [5, 1, 3])
ITEMS = 9


def made(text: str, personas: Path | None = None) -> list[Entrant]:
    return entrants(named_judges(split_commas(text)), SETUP.aspects, personas)


def judge(entrant: Entrant) -> Any:
    return entrant.aspects["coherence"].judge


def evaluated(lm: ScriptedLM, text: str) -> Evaluation:
    with JudgeRunner(lm, progress=False) as runner:
        return evaluate(runner, made(text), SETUP.corpus, SETUP.aspects)


def calls(found: Evaluation) -> Mapping[str, float | None]:
    return {name: one.calls for name, one in found.judges.items()}


# --- how they are read ---


def test_settings_stand_in_brackets_and_alternatives_are_judges_of_their_own() -> None:
    found = made("debate[rounds=0|2,persona=plain],single,chateval[roles=[critic,news-author],turns=3]")
    names = ["debate[rounds=0,persona=plain]", "debate[rounds=2,persona=plain]"]
    assert [one.name for one in found] == [*names, "single", "chateval[roles=[critic,news-author],turns=3]"]
    assert [judge(one).debate_config.rounds for one in found] == [0, 2, 0, 2]
    assert judge(found[1]).instructions()["critic"] == PERSONAS["plain"].text
    assert list(judge(found[3]).role_texts) == ["critic", "news-author"]


def test_a_judge_may_be_given_a_persona_of_the_users_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('grumpy = "You never like a score."\n')
    (found,) = made("debate[persona=grumpy,tie-breaker=true]", file)
    assert judge(found).instructions()["critic"] == "You never like a score."
    assert judge(found).debate_config == DebateConfig(3, True)
    assert judge(found).config()["persona"] == "grumpy"


def test_an_export_is_varied_with_its_instructions_as_they_were_tuned(tmp_path: Path) -> None:
    tuned = Debate(rounds=3)
    tuned.scorer.signature = tuned.scorer.signature.with_instructions("Score like our raters.")
    tuned.critic.signature = tuned.critic.signature.with_instructions("Object like our raters.")
    program = CompiledJudge(TASK, {"coherence": AspectJudge(tuned, "half")})
    folder = export.save(tmp_path / "mine", program, lm={"spec": "offline"}, evidence={}, name="mine")
    assert len({id(one.export) for one in named_judges([f"{folder}[rounds=0|1|2]"])}) == 1, "opened once"
    whole, short, plain = made(f"{folder},{folder}[rounds=1,together=4],{folder}[persona=plain]")
    assert [one.name for one in (whole, short, plain)] == ["mine", "mine[rounds=1,together=4]", "mine[persona=plain]"]
    assert (judge(short).debate_config.rounds, judge(short).together) == (1, 4)
    assert judge(short).instructions() == judge(whole).instructions()
    assert short.aspects["coherence"].granularity == "half"
    told = judge(plain).instructions()
    assert (told["scorer"], told["critic"]) == ("Score like our raters.", PERSONAS["plain"].text)


# --- what they cost ---


def test_every_n_is_the_beginning_of_the_longest_debate_and_costs_no_call_more() -> None:
    lm = scripted_lm(arguing(2))
    found = evaluated(lm, "debate[rounds=0|1|2|3|4]")
    # The Critic objects twice and is content in the third round: what the debate of four rounds needs alone.
    assert lm.meter.executed.total() == 6 * ITEMS
    assert list(calls(found).values()) == [1, 3, 5, 6, 6]
    values = [SETUP.agreement(one.scores).average["summary"]["spearman"].value for one in found.judges.values()]
    # Before the second round every score is the same: a judge that ranks nothing earns 0.
    assert values == [0, 0, *[pytest.approx(1)] * 3]


def test_rounds_personas_and_styles_share_their_debates() -> None:
    lm = scripted_lm(arguing(9))
    personas = "|".join(PERSONAS)
    evaluated(lm, f"debate[rounds=0|1|3],debate[rounds=2,persona={personas}],debate[rounds=2,tie-breaker=true],"
              "debate[rounds=2,persona=plain,tie-breaker=true]")  # fmt: skip
    # Five personas share the Scorer's opening and, as this script hears no difference, all that it says; Critics do
    # not: the strict one is heard three times, the others twice. Tie-breaks: plain and strict debates at n = 2, whose
    # texts are the same here.
    assert lm.meter.executed == {"scorer": 4 * ITEMS, "critic": (3 + 4 * 2) * ITEMS, "tie-breaker": ITEMS}


def test_samples_ask_anew_and_find_their_replies_again() -> None:
    lm = scripted_lm(arguing(1), temperature=0.0)
    evaluated(lm, "debate[rounds=2]")
    once = lm.meter.executed.total()
    for _ in range(2):
        evaluated(lm, "debate[rounds=0|2,sample=1|2|3,temperature=0.7]")
        assert lm.meter.executed.total() == 4 * once
    # Fewer samples are the first of more.
    evaluated(lm, "debate[rounds=2,sample=1|2,temperature=0.7]")
    assert lm.meter.executed.total() == 4 * once


# --- how runs of one judge differ ---

SMALL = setup([1, 2, 5], [4, 2, 2], resamples=0)


def runs(*scores: tuple[float | None, ...]) -> tuple[RunVariability, Comparison]:
    def one(values: tuple[float | None, ...]) -> Any:
        given = iter(values)
        return evaluated_judge(SMALL, coherence=lambda rating, group: next(given))

    judges = {f"debate[sample={n}]": one(values) for n, values in enumerate(scores)}
    comparison = compare_all(SMALL, judges, baseline=next(iter(judges)))
    (found,) = run_variability(comparison, made(f"debate[sample={'|'.join(str(n) for n in range(len(scores)))}]"))
    return found, comparison


def test_variability_is_over_runs_and_items() -> None:
    values = [(1, 2, 5, 4, 2, 3), (5, 2, 1, 4, 2, 3), (3, 2, 4, 4, None, 3)]
    found, comparison = runs(*values)
    # The third run's second group has ratings 4 and 2 that it orders rightly.
    expected = [
        statistics.fmean([stats.spearmanr([1, 2, 5], v[:3]).statistic, second])
        for v, second in zip(values, [stats.spearmanr([4, 2, 2], [4, 2, 3]).statistic] * 2 + [1.0], strict=True)
    ]
    assert (found.judge, found.varied) == ("debate", "sample")
    assert found.agreement["coherence"] == pytest.approx(expected)
    assert found.mean_agreement("coherence") == pytest.approx(statistics.fmean(expected))
    assert found.agreement_sd("coherence") == pytest.approx(statistics.stdev(expected))
    assert found.items == 6
    # Two items vary, by 1, 5, 3 and 5, 1, 4; the one that a run left out has two equal scores.
    assert found.score_sd == pytest.approx((statistics.stdev([1, 5, 3]) + statistics.stdev([5, 1, 4])) / 6)
    assert found.share_changed == pytest.approx(2 / 6)
    assert found.to_json()["agreement"]["coherence"]["runs"] == pytest.approx(expected)
    assert "33.3 %" in printed(variability_table([found], comparison, "openai/m"))
