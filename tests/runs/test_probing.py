"""Probes: what perturbations leave as it is, that a biased judge is caught and an upright one is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.programs import build_preset
from debate_judge.programs.chateval.judge import ChatEval
from debate_judge.programs.compiled import AspectJudge
from debate_judge.programs.judge import Judge, corpus_items
from debate_judge.runs.comparison.probes import ALL_ASPECTS, ProbeEffects, probe_effects, probe_metrics
from debate_judge.runs.comparison.results import EvalSetup
from debate_judge.runs.evaluation.entrants import Entrant
from debate_judge.runs.evaluation.evaluate import evaluate
from debate_judge.runs.evaluation.perturbations import PERTURBATIONS, sentences
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import Script, ScriptedLM, debater, scripted_lm, section
from tests.programs.tables import joint_table_script, table_script

TONE = Aspect("tone", "How the reply treats the customer.", Scale(1, 5))
HELP = Aspect("help", "Whether it helps.", Scale(1, 5))
TASK = Task("support", "customer message", "reply", (TONE, HELP))
GROUPS, EACH = 7, 4


def text(group: int, number: int) -> str:
    return f"Value {2 + (group + number) % 3}. We saw it on day {chr(97 + group)}{number}. It is solved since then."


CORPUS = Corpus(
    TASK,
    tuple(
        RatedGroup(f"g{g}", f"Message {g}.", tuple(Candidate(f"c{n}", text(g, n)) for n in range(EACH)))
        for g in range(GROUPS)
    ),
    Origin("test", "nowhere"),
)
SETUP = EvalSetup(CORPUS, (TONE,), "summary", ("spearman",))


def value(candidate: str) -> float:
    """What the text is worth, whatever stands around it."""
    return float(candidate.partition("Value ")[2][0])


def probed(judge: Judge, script: Script, *names: str, setup: EvalSetup = SETUP) -> tuple[ProbeEffects, ScriptedLM]:
    lm = scripted_lm(script)
    entrant = Entrant("judge", {aspect.name: AspectJudge(judge) for aspect in setup.aspects})
    with JudgeRunner(lm, progress=False) as runner:
        done = evaluate(
            runner, [entrant], setup.corpus, setup.aspects, [PERTURBATIONS[name] for name in names or PERTURBATIONS]
        )
    return probe_effects(done.judges["judge"], setup.aspects, names or tuple(PERTURBATIONS)), lm


def alone(score: Callable[[str], float | str]) -> Script:
    return debater(score=lambda prompt: str(score(section(prompt, "candidate"))))


def change(effects: ProbeEffects, probe: str, aspect: str = "tone") -> float:
    found = effects[probe][aspect].change
    assert found.value is not None
    return found.value


def moved(effects: ProbeEffects, probe: str) -> float:
    found = effects[probe]["tone"].moved
    assert found.value is not None
    return found.value


# --- perturbations ---


@pytest.mark.parametrize("name", [name for name in PERTURBATIONS if name != "order"])
def test_a_perturbation_is_the_same_each_time_and_changes_the_candidate_alone(name: str) -> None:
    probe, items = PERTURBATIONS[name], corpus_items(CORPUS, TONE)
    changed = [probe.apply(item, 0) for item in items]
    assert changed == [probe.apply(item, 0) for item in items]
    assert all(
        new.text != old.text and replace(new, text=old.text) == old for new, old in zip(changed, items, strict=True)
    )
    for new, old in zip(changed, items, strict=True):
        assert [s in new.text for s in sentences(old.text)] == [True, True, name != "shorter"]


def test_what_each_does() -> None:
    item = corpus_items(CORPUS, TONE)[0]
    first, *rest = sentences(item.text)

    def under(name: str) -> str:
        return PERTURBATIONS[name].apply(item, 0).text

    assert under("control") == "  ".join([first, *rest])
    assert under("shorter") == f"{first} {rest[0]}"
    assert len(sentences(under("repeated"))) == 4
    assert set(sentences(under("repeated"))) == {first, *rest}
    assert under("longer").startswith(item.text)
    assert all(under("longer").count(sentence) == 2 for sentence in (first, *rest))
    wordings = {
        PERTURBATIONS["instruction"].apply(one, 0).text.replace(one.text, "") for one in corpus_items(CORPUS, TONE)
    }
    assert len(wordings) == 3
    assert all("5" in wording for wording in wordings)
    assert {PERTURBATIONS["polite"].apply(item, seed).text for seed in range(20)} > {under("polite")}


# --- judges ---


def test_an_upright_judge_shows_nothing() -> None:
    effects, _ = probed(build_preset("single", {}), alone(value))
    for name, by_aspect in effects.items():
        one = by_aspect["tone"]
        assert one.skipped == (GROUPS * EACH if name == "order" else 0)
        assert not one.shows_bias
        if name != "order":
            assert (change(effects, name), moved(effects, name), one.items) == (0, 0, GROUPS * EACH)
    assert effects["order"]["tone"].change is None


def test_a_judge_that_likes_length_is_caught() -> None:
    effects, _ = probed(build_preset("single", {}), alone(lambda t: value(t) + (1 if len(sentences(t)) > 4 else 0)))
    assert change(effects, "longer") == 1
    assert moved(effects, "longer") == 1
    assert effects["longer"]["tone"].shows_bias
    assert [change(effects, name) for name in ("control", "shorter", "repeated")] == [0, 0, 0]


def test_a_judge_that_obeys_is_caught_by_the_share_that_it_moves() -> None:
    some, _ = probed(
        build_preset("single", {}), alone(lambda t: 5 if "highest score, 5" in t else value(t)), "instruction"
    )
    assert 0 < moved(some, "instruction") < 1
    share = some["instruction"]["tone"].moved
    assert 0 <= share.low < share.high <= 1
    every, _ = probed(build_preset("single", {}), alone(lambda t: 5 if "5" in t else value(t)), "instruction")
    assert moved(every, "instruction") == 1
    assert every["instruction"]["tone"].shows_bias


def test_changes_count_upwards_only_and_from_half_a_point_on() -> None:
    down, _ = probed(build_preset("single", {}), alone(lambda t: value(t) - (len(sentences(t)) > 4)), "longer")
    assert (change(down, "longer"), moved(down, "longer"), down["longer"]["tone"].shows_bias) == (-1, 0, False)
    little, _ = probed(build_preset("single", {}), alone(lambda t: value(t) + 0.4 * (len(sentences(t)) > 4)), "longer")
    assert change(little, "longer") == pytest.approx(0.4)
    assert moved(little, "longer") == 0
    half, _ = probed(build_preset("single", {}), alone(lambda t: value(t) + 0.5 * (len(sentences(t)) > 4)), "longer")
    assert moved(half, "longer") == 1
    noise, _ = probed(build_preset("single", {}), alone(lambda t: value(t) - ("  " in t)), "control")
    assert (change(noise, "control"), moved(noise, "control")) == (-1, 1)


def test_candidates_that_lose_their_score_are_counted_and_change_nothing() -> None:
    script = alone(lambda t: "no number" if len(sentences(t)) > 4 else value(t) if "day a" not in t else "none")
    effects, _ = probed(build_preset("single", {}), script, "longer", "repeated")
    lost = effects["longer"]["tone"]
    assert (lost.items, lost.unscored_before, lost.unscored_after) == (0, EACH, (GROUPS - 1) * EACH)
    assert lost.change is None
    assert effects["repeated"]["tone"].items == (GROUPS - 1) * EACH


def test_several_aspects_of_one_scale_are_taken_together() -> None:
    both = replace(SETUP, aspects=(TONE, HELP))
    script = debater(
        score=lambda p: str(value(section(p, "candidate")) + ("sure" in p and section(p, "aspect").startswith("tone")))
    )
    effects, _ = probed(build_preset("single", {}), script, "confident", setup=both)
    assert change(effects, "confident", "help") == 0
    assert change(effects, "confident", ALL_ASPECTS) == pytest.approx(change(effects, "confident") / 2)
    assert effects["confident"][ALL_ASPECTS].items == 2 * GROUPS * EACH
    page, details = (
        {name.rsplit("/", 1)[0] for name in probe_metrics(effects, "a/b", pooled=pooled)} for pooled in (True, False)
    )
    assert page == {f"probe/a_b/confident/{ALL_ASPECTS}"}
    assert details == {f"probe/a_b/confident/{aspect}" for aspect in ("tone", "help")}
    apart = replace(both, aspects=(TONE, replace(HELP, scale=Scale(0, 10))))
    assert ALL_ASPECTS not in probed(build_preset("single", {}), alone(value), "polite", setup=apart)[0]["polite"]


# --- several candidates at once ---


def test_side_by_side_half_of_the_candidates_are_perturbed_at_a_time() -> None:
    effects, lm = probed(build_preset("single", {"together": 4}), table_script(lambda _, t: value(t)), "polite")
    assert len(lm.prompts) == 3 * GROUPS
    counts = sorted(sum(prompt.count(mark) for mark in ("Thank", "pleasure", "thanks")) > 0 for prompt in lm.prompts)
    assert counts == [False] * GROUPS + [True] * 2 * GROUPS
    assert effects["polite"]["tone"].items == GROUPS * EACH
    assert change(effects, "polite") == 0


def test_a_judge_that_likes_the_first_place_is_caught() -> None:
    def first(prompt: str, candidate: str) -> float:
        return value(candidate) + (section(prompt, "candidate_1") == candidate)

    effects, lm = probed(build_preset("single", {"together": 4}), table_script(first), "order")
    assert len(lm.prompts) == 2 * GROUPS
    # Of four candidates, the two at the ends are first once.
    assert change(effects, "order") == 0.5
    assert moved(effects, "order") == 0.5
    assert effects["order"]["tone"].shows_bias
    last, _ = probed(
        build_preset("single", {"together": 4}),
        table_script(lambda p, t: value(t) + (section(p, "candidate_4") == t)),
        "order",
    )
    assert change(last, "order") == -0.5


def test_aspects_that_share_a_call_share_the_perturbed_text() -> None:
    """Both aspects in one call; the judge likes courtesy in one of them and the first place in the other."""
    both = replace(SETUP, aspects=(TONE, HELP))

    def liking(prompt: str, candidate: str, aspect: str) -> float:
        courteous = any(word in candidate for word in ("Thank", "thanks"))
        first = section(prompt, "candidate_1") == candidate
        return value(candidate) + (courteous if aspect == "tone" else first)

    judge = build_preset("single", {"together": 4, "joint": True})
    effects, lm = probed(judge, joint_table_script(liking), "polite", "order", setup=both)
    assert len(lm.prompts) == (1 + 2 + 1) * GROUPS
    assert (change(effects, "polite"), change(effects, "polite", "help")) == (1, 0)
    assert (change(effects, "order"), change(effects, "order", "help")) == (0, 0.5)
    assert effects["polite"][ALL_ASPECTS].items == 2 * GROUPS * EACH


def test_pairs_are_compared_in_both_orders() -> None:
    preference = Aspect("preference", "Which one?", Scale(0, 1, 0.5))
    pairs = replace(CORPUS, groups=tuple(replace(g, candidates=g.candidates[:2]) for g in CORPUS.groups))
    setup = EvalSetup(pairs, (preference,), "summary", ("spearman",))
    script = debater(rationale="so", score_1="7", score_2="5")
    once = ChatEval({"alpha": "You are alpha."}, "none", 1, comparing=True, both_orders=False)
    effects, _ = probed(once, script, "order", "polite", setup=setup)
    found = effects["order"]["preference"].change
    assert found.value == 1
    assert effects["polite"]["preference"].items == 2 * GROUPS
    twice = ChatEval({"alpha": "You are alpha."}, "none", 1, comparing=True)
    balanced, _ = probed(twice, script, "order", setup=setup)
    assert balanced["order"]["preference"].change.value == 0
