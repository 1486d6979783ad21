"""Bias probes: what perturbations leave as it is, that a biased judge is caught, and what a comparison says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from debate_judge import data
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task, group_to_json
from debate_judge.programs import build_preset
from debate_judge.programs.chateval.judge import ChatEval
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.judge import Judge, corpus_items
from debate_judge.programs.lm.reply import InMemoryStore
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs import compare
from debate_judge.runs.comparison.flags import CompareFlags
from debate_judge.runs.comparison.plan import prepare
from debate_judge.runs.comparison.probes import ALL_ASPECTS, ProbeEffects, probe_effects, probe_metrics
from debate_judge.runs.estimates.dry_run import EstimateTarget
from debate_judge.runs.evaluation.entrants import Entrant
from debate_judge.runs.evaluation.evaluate import estimate_evaluation, evaluate
from debate_judge.runs.evaluation.perturbations import PERTURBATIONS, split_sentences
from debate_judge.runs.export.folder import save
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import Script, debater, scripted_lm, section
from tests.programs.tables import joint_table_script, table_script
from tests.stores import count

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
ITEMS = corpus_items(CORPUS, TONE)
SINGLE, TABLE = build_preset("single", {}), build_preset("single", {"together": 4})


def value(candidate: str) -> float:
    """What the text is worth, whatever stands around it."""
    return float(candidate.partition("Value ")[2][0])


def is_long(candidate: str) -> bool:
    return len(split_sentences(candidate)) > 4


def alone(score: Callable[[str], float | str]) -> Script:
    return debater(score=lambda prompt: str(score(section(prompt, "candidate"))))


def probed(
    judge: Judge, script: Script, *names: str, aspects: tuple[Aspect, ...] = (TONE,), corpus: Corpus = CORPUS
) -> tuple[ProbeEffects, list[str]]:
    """The effects, and the prompts."""
    lm = scripted_lm(script)
    entrant = Entrant("judge", {aspect.name: AspectJudge(judge) for aspect in aspects})
    with JudgeRunner(lm, progress=False) as runner:
        done = evaluate(runner, [entrant], corpus, aspects, [PERTURBATIONS[name] for name in names])
    return probe_effects(done.judges["judge"], aspects, names), lm.prompts


def change(effects: ProbeEffects, probe: str, aspect: str = "tone") -> float:
    measure = effects[probe][aspect].change
    assert measure is not None
    assert measure.value is not None
    return measure.value


def moved(effects: ProbeEffects, probe: str) -> float:
    measure = effects[probe]["tone"].moved
    assert measure is not None
    assert measure.value is not None
    return measure.value


# --- perturbations ---


@pytest.mark.parametrize("name", [name for name in PERTURBATIONS if name != "order"])
def test_a_perturbation_is_the_same_each_time_and_changes_the_candidate_alone(name: str) -> None:
    for item in ITEMS:
        perturbed = PERTURBATIONS[name].apply(item, 0)
        assert perturbed == PERTURBATIONS[name].apply(item, 0)
        assert perturbed.text != item.text
        assert replace(perturbed, text=item.text) == item
        kept = [sentence in perturbed.text for sentence in split_sentences(item.text)]
        assert kept == [True, True, name != "shorter"]


def test_what_each_does() -> None:
    item = ITEMS[0]
    parts = split_sentences(item.text)
    edited = {name: PERTURBATIONS[name].apply(item, 0).text for name in PERTURBATIONS}
    assert (edited["control"], edited["shorter"]) == ("  ".join(parts), " ".join(parts[:2]))
    assert (len(split_sentences(edited["repeated"])), set(split_sentences(edited["repeated"]))) == (4, set(parts))
    assert all(edited["longer"].count(sentence) == 2 for sentence in parts)
    wordings = {PERTURBATIONS["instruction"].apply(item, 0).text.replace(item.text, "") for item in ITEMS}
    assert ["5" in wording for wording in wordings] == [True] * 3


# --- judges ---


def test_an_upright_judge_shows_nothing() -> None:
    effects, _ = probed(SINGLE, alone(value), *PERTURBATIONS)
    order = effects["order"]["tone"]
    assert (order.skipped, order.change) == (GROUPS * EACH, None)
    for name in PERTURBATIONS.keys() - {"order"}:
        effect = effects[name]["tone"]
        assert (change(effects, name), moved(effects, name), effect.items) == (0, 0, GROUPS * EACH)
        assert (effect.skipped, effect.shows_bias) == (0, False)


@pytest.mark.parametrize(("bonus", "share"), [(1, 1), (0.5, 1), (0.4, 0), (-1, 0)])
def test_a_judge_that_likes_length_is_caught_upwards_and_from_half_a_point_on(bonus: float, share: float) -> None:
    effects, _ = probed(SINGLE, alone(lambda t: value(t) + bonus * is_long(t)), "longer", "control", "repeated")
    assert (change(effects, "longer"), moved(effects, "longer")) == (pytest.approx(bonus), share)
    assert effects["longer"]["tone"].shows_bias is (bonus > 0)
    assert [change(effects, name) for name in ("control", "repeated")] == [0, 0]


def test_of_noise_changes_downwards_count_as_well() -> None:
    effects, _ = probed(SINGLE, alone(lambda t: value(t) - ("  " in t)), "control")
    assert (change(effects, "control"), moved(effects, "control")) == (-1, 1)


def test_a_judge_that_obeys_is_caught_by_the_share_that_it_moves() -> None:
    some, _ = probed(SINGLE, alone(lambda t: 5 if "highest score, 5" in t else value(t)), "instruction")
    share = some["instruction"]["tone"].moved
    assert 0 <= share.low < share.value < share.high <= 1
    every, _ = probed(SINGLE, alone(lambda t: 5 if "5" in t else value(t)), "instruction")
    assert moved(every, "instruction") == 1
    assert every["instruction"]["tone"].shows_bias


def test_candidates_that_lose_their_score_are_counted_and_change_nothing() -> None:
    script = alone(lambda t: "no number" if is_long(t) else value(t) if "day a" not in t else "none")
    effects, _ = probed(SINGLE, script, "longer", "repeated")
    lost = effects["longer"]["tone"]
    assert (lost.items, lost.unscored_before, lost.unscored_after) == (0, EACH, (GROUPS - 1) * EACH)
    assert lost.change is None
    assert effects["repeated"]["tone"].items == (GROUPS - 1) * EACH


def test_several_aspects_of_one_scale_are_taken_together() -> None:
    script = debater(
        score=lambda p: str(value(section(p, "candidate")) + ("sure" in p and section(p, "aspect").startswith("tone")))
    )
    effects, _ = probed(SINGLE, script, "confident", aspects=(TONE, HELP))
    assert change(effects, "confident", "help") == 0
    assert change(effects, "confident", ALL_ASPECTS) == pytest.approx(change(effects, "confident") / 2)
    assert effects["confident"][ALL_ASPECTS].items == 2 * GROUPS * EACH
    page, details = (
        {name.rsplit("/", 1)[0] for name in probe_metrics(effects, "a/b", pooled=pooled)} for pooled in (True, False)
    )
    assert page == {f"probe/a_b/confident/{ALL_ASPECTS}"}
    assert details == {f"probe/a_b/confident/{aspect}" for aspect in ("tone", "help")}
    other_scale = replace(HELP, scale=Scale(0, 10))
    assert ALL_ASPECTS not in probed(SINGLE, alone(value), "polite", aspects=(TONE, other_scale))[0]["polite"]


# --- several candidates at once ---


def test_side_by_side_half_of_the_candidates_are_perturbed_at_a_time() -> None:
    effects, prompts = probed(TABLE, table_script(lambda _, t: value(t)), "polite")
    courteous = sorted(any(word in prompt for word in ("Thank", "pleasure", "thanks")) for prompt in prompts)
    assert courteous == [False] * GROUPS + [True] * 2 * GROUPS
    assert (effects["polite"]["tone"].items, change(effects, "polite")) == (GROUPS * EACH, 0)


@pytest.mark.parametrize(("place", "effect"), [("candidate_1", 0.5), ("candidate_4", -0.5)])
def test_a_judge_that_likes_the_first_place_is_caught(place: str, effect: float) -> None:
    effects, prompts = probed(TABLE, table_script(lambda p, t: value(t) + (section(p, place) == t)), "order")
    assert len(prompts) == 2 * GROUPS
    # Of four candidates, the two at the ends are first once.
    assert change(effects, "order") == effect
    assert moved(effects, "order") == max(effect, 0)
    assert effects["order"]["tone"].shows_bias is (effect > 0)


def test_aspects_that_share_a_call_share_the_perturbed_text() -> None:
    """Both aspects in one call; the judge likes courtesy in one of them and the first place in the other."""

    def liking(prompt: str, candidate: str, aspect: str) -> float:
        courteous = any(word in candidate for word in ("Thank", "thanks"))
        first = section(prompt, "candidate_1") == candidate
        return value(candidate) + (courteous if aspect == "tone" else first)

    judge = build_preset("single", {"together": 4, "joint": True})
    effects, prompts = probed(judge, joint_table_script(liking), "polite", "order", aspects=(TONE, HELP))
    assert len(prompts) == (1 + 2 + 1) * GROUPS
    assert (change(effects, "polite"), change(effects, "polite", "help")) == (1, 0)
    assert (change(effects, "order"), change(effects, "order", "help")) == (0, 0.5)


@pytest.mark.parametrize(("both_orders", "effect"), [(False, 1), (True, 0)])
def test_pairs_are_compared_in_both_orders(both_orders: bool, effect: float) -> None:
    pairs = replace(CORPUS, groups=tuple(replace(g, candidates=g.candidates[:2]) for g in CORPUS.groups))
    preference = Aspect("preference", "Which one?", Scale(0, 1, 0.5))
    judge = ChatEval({"alpha": "You are alpha."}, "none", 1, comparing=True, both_orders=both_orders)
    script = debater(rationale="so", score_1="7", score_2="5")
    effects, _ = probed(judge, script, "order", aspects=(preference,), corpus=pairs)
    assert change(effects, "order", "preference") == effect


# --- debate compare ---

ASPECTS = ["coherence", "relevance"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Eight groups of the sample with three candidates each, and an export of two aspects that reads tables."""
    folder, corpus = tmp_path_factory.mktemp("data"), data.load("sample")
    groups = [replace(group, candidates=group.candidates[:3]) for group in corpus.groups[:8]]
    lines = [json.dumps({**group_to_json(group), "task": "summarization"}) + "\n" for group in groups]
    (folder / "rated.jsonl").write_text("".join(lines))
    judge = AspectJudge(build_preset("single", {"together": 8}), "half")
    compiled = CompiledJudge(corpus.task, dict.fromkeys(ASPECTS, judge))
    save(folder / "mine", compiled, lm={"spec": "offline"}, evidence={}, name="mine")
    return str(folder / "rated.jsonl"), str(folder / "mine")


def test_an_export_is_probed_in_its_own_aspects_by_its_own_lm(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rated, program = files
    arguments = ["--data", rated, "--judges", f"{program},single", "--probes", "order,longer", "--part", "all"]
    arguments += ["--json", str(tmp_path / "p"), "--store", str(tmp_path / "store")]
    arguments += ["--tracking-uri", f"sqlite:///{tmp_path}/runs.db"]
    arguments += ["--config", "report=none", "--config", "resamples=100"]
    assert compare.main(arguments) == 0
    output = capsys.readouterr()
    assert "then open http" in output.err
    result: dict[str, Any] = json.loads((tmp_path / "p").read_text())
    assert list(result["judges"]) == ["mine", "single"]
    # Calls about perturbed candidates are no cost of the judge.
    assert result["judges"]["single"]["lm_calls_per_item"] == 1
    assert (result["lm"], result["data"]["aspects"]) == ({"spec": "offline", "stand_in": True}, ASPECTS)
    mine, single = (result["probes"]["judges"][name] for name in ("mine", "single"))
    assert set(result["probes"]["probes"]) == set(mine) == {"order", "longer"}
    assert set(mine["longer"]) == {*ASPECTS, "all aspects"}
    assert (mine["longer"]["coherence"]["items"], mine["order"]["relevance"]["items"]) == (24, 16)
    assert mine["longer"]["coherence"]["change"]["low"] < mine["longer"]["coherence"]["change"]["value"]
    assert single["order"]["relevance"]["change"] is None
    assert "stand-in" in output.out
    assert "compiled on another split" not in output.out
    # The same again asks nothing and says the same; the run holds it, too.
    replies = tmp_path / "store" / "replies" / "offline"
    stored = count(replies)
    assert compare.main(arguments) == 0
    assert count(replies) == stored > 0
    assert capsys.readouterr().out == output.out
    kept = [json.loads(file.read_text()) for file in (tmp_path / "store" / "artifacts").rglob("comparison.json")]
    assert kept == [result, result]


def test_what_it_executes_is_what_it_estimates(files: tuple[str, str], tmp_path: Path) -> None:
    rated, program = files
    flags = CompareFlags(
        data=rated, part="all", judges=(program, "single"), probes=("order", "longer"), store=str(tmp_path / "store")
    )
    plan = prepare(flags)
    judged = (plan.setup.corpus, plan.setup.aspects)
    estimate = estimate_evaluation(
        EstimateTarget("offline"), *judged, plan.entrants, plan.perturbations, plan.setup.seed
    )
    assert list(estimate.rows) == ["mine", "single", "probe order", "probe longer"]
    lm = make_lm("offline", store=InMemoryStore())
    with JudgeRunner(lm, progress=False) as runner:
        evaluate(runner, plan.entrants, *judged, plan.perturbations, plan.setup.seed)
    assert {round(used.calls) for used in estimate.total} == {lm.meter.executed.total()}
