"""Judges with settings in brackets: how they are read, what they cost, and how runs of one judge differ."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import PERSONAS
from debate_judge.programs.judge import DebateConfig
from debate_judge.runs.comparison.results import compare_all
from debate_judge.runs.comparison.variability import run_variability, variability_table
from debate_judge.runs.evaluation.entrants import Entrant, entrants, named_judges
from debate_judge.runs.evaluation.evaluate import Evaluation, evaluate
from debate_judge.runs.evaluation.rows import EvaluatedJudge
from debate_judge.runs.export.folder import save
from debate_judge.runs.flags.declaration import split_commas
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import ScriptedLM, scripted_lm
from tests.printed_output import printed
from tests.runs.rated_corpora import COHERENCE, FLUENCY, TASK, arguing, evaluated_judge, setup

SETUP = setup([1, 2, 5], [4, 2, 3], [5, 1, 3])
ITEMS = 9


def made(text: str, personas: Path | None = None) -> list[Entrant]:
    return entrants(named_judges(split_commas(text)), SETUP.aspects, personas)


def judge(entrant: Entrant) -> Any:
    return entrant.aspects["coherence"].judge


def evaluated(lm: ScriptedLM, text: str) -> Evaluation:
    with JudgeRunner(lm, progress=False) as runner:
        return evaluate(runner, made(text), SETUP.corpus, SETUP.aspects)


# --- how they are read ---


def test_settings_stand_in_brackets_and_alternatives_are_judges_of_their_own(tmp_path: Path) -> None:
    personas = tmp_path / "mine.toml"
    personas.write_text('grumpy = "You never like a score."\n')
    plain = ["debate[rounds=0,persona=plain]", "debate[rounds=2,persona=plain]"]
    text = "debate[rounds=0|2,persona=plain],chateval[roles=[critic,news-author],turns=3]"
    zero, two, chat, own = made(f"{text},debate[persona=grumpy,tie-breaker=true]", personas)
    assert [entrant.name for entrant in (zero, two)] == plain
    assert chat.name == "chateval[roles=[critic,news-author],turns=3]"
    assert [judge(entrant).debate_config.rounds for entrant in (zero, two)] == [0, 2]
    assert judge(two).instructions()["critic"] == PERSONAS["plain"].text
    assert list(judge(chat).role_texts) == ["critic", "news-author"]
    assert judge(own).instructions()["critic"] == "You never like a score."
    assert (judge(own).debate_config, judge(own).config()["persona"]) == (DebateConfig(3, True), "grumpy")


def test_an_export_is_varied_with_its_instructions_as_they_were_tuned(tmp_path: Path) -> None:
    tuned = Debate(rounds=3)
    tuned.scorer.signature = tuned.scorer.signature.with_instructions("Score like our raters.")
    tuned.critic.signature = tuned.critic.signature.with_instructions("Object like our raters.")
    program = CompiledJudge(TASK, {"coherence": AspectJudge(tuned, "half")})
    folder = save(tmp_path / "mine", program, lm={"spec": "offline"}, evidence={}, name="mine")
    assert len({id(named.export) for named in named_judges([f"{folder}[rounds=0|1|2]"])}) == 1, "opened once"
    whole, short, plain = made(f"{folder},{folder}[rounds=1,together=4],{folder}[persona=plain]")
    assert [one.name for one in (whole, short, plain)] == ["mine", "mine[rounds=1,together=4]", "mine[persona=plain]"]
    assert (judge(short).debate_config.rounds, judge(short).together) == (1, 4)
    assert judge(short).instructions() == judge(whole).instructions()
    assert short.aspects["coherence"].granularity == "half"
    instructions = judge(plain).instructions()
    assert (instructions["scorer"], instructions["critic"]) == ("Score like our raters.", PERSONAS["plain"].text)
    # Exports with the same folder name go by their paths, and say what they were not tuned on.
    (tmp_path / "b").mkdir()
    evidence = {"splits": {"held_out": "b"}}
    other = save(tmp_path / "b" / "mine", program, lm={"spec": "offline"}, evidence=evidence, name="mine")
    both = made(f"{folder},{other}")
    assert [one.name for one in both] == [str(folder), str(other)]
    assert [one.held_out_fingerprint for one in both] == ["", "b"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("debate", "whole"), ("geval", "whole"), ("rouge-l", "given"), ("chateval-compare", "given")],
)
def test_scores_keep_to_the_steps_of_a_scale(name: str, expected: str) -> None:
    """What has no place on the scale, or is the outcome of a comparison, stays as it is."""
    stepped = replace(COHERENCE, scale=replace(COHERENCE.scale, on_steps=True))
    (entrant,) = entrants(named_judges([name]), (stepped, FLUENCY))
    assert {a: judge.granularity for a, judge in entrant.aspects.items()} == {"coherence": expected, "fluency": "given"}


# --- what they cost ---


def test_every_n_is_the_beginning_of_the_longest_debate_and_costs_no_call_more() -> None:
    lm = scripted_lm(arguing(2))
    judges = evaluated(lm, "debate[rounds=0|1|2|3|4]").judges.values()
    # The Critic objects twice and is content in the third round: what the debate of four rounds needs alone.
    assert lm.meter.executed.total() == 6 * ITEMS
    assert [one.calls for one in judges] == [1, 3, 5, 6, 6]
    values = [SETUP.agreement(one.scores).average["summary"]["spearman"].value for one in judges]
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
    calls = lm.meter.executed.total()
    # Fewer samples are the first of more.
    for rounds, samples in (("0|2", "1|2|3"), ("0|2", "1|2|3"), ("2", "1|2")):
        evaluated(lm, f"debate[rounds={rounds},sample={samples},temperature=0.7]")
        assert lm.meter.executed.total() == 4 * calls


# --- how runs of one judge differ ---


def test_variability_is_over_runs_and_items() -> None:
    small = setup([1, 2, 5], [4, 2, 2], resamples=0)

    def run(*scores: float | None) -> EvaluatedJudge:
        values = iter(scores)
        return evaluated_judge(small, coherence=lambda rating, group: next(values))

    values = [(1, 2, 5, 4, 2, 3), (5, 2, 1, 4, 2, 3), (3, 2, 4, 4, None, 3)]
    judges = {f"debate[sample={n}]": run(*scores) for n, scores in enumerate(values)}
    comparison = compare_all(small, judges, baseline="debate[sample=0]")
    (variability,) = run_variability(comparison, made("debate[sample=0|1|2]"))
    # The third run's second group has ratings 4 and 2 that it orders rightly.
    expected = [
        statistics.fmean([stats.spearmanr([1, 2, 5], v[:3]).statistic, second])
        for v, second in zip(values, [stats.spearmanr([4, 2, 2], [4, 2, 3]).statistic] * 2 + [1.0], strict=True)
    ]
    assert (variability.judge, variability.varied, variability.items) == ("debate", "sample", 6)
    assert variability.agreement["coherence"] == pytest.approx(expected)
    assert variability.mean_agreement("coherence") == pytest.approx(statistics.fmean(expected))
    assert variability.agreement_sd("coherence") == pytest.approx(statistics.stdev(expected))
    # Two items vary, by 1, 5, 3 and 5, 1, 4; the one that a run left out has two equal scores.
    assert variability.score_sd == pytest.approx((statistics.stdev([1, 5, 3]) + statistics.stdev([5, 1, 4])) / 6)
    assert variability.share_changed == pytest.approx(2 / 6)
    assert variability.to_json()["agreement"]["coherence"]["runs"] == pytest.approx(expected)
    assert "33.3 %" in printed(variability_table([variability], comparison, "openai/m"))
