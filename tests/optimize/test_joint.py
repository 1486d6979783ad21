"""How candidates and aspects are read: side by side, alone or jointly; where each is tried, and when it is chosen."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from debate_judge import offline_lm
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.evaluation.held_out import evaluate_held_out
from debate_judge.optimize.job import _preflight_checks
from debate_judge.optimize.plan import CompileRun
from debate_judge.optimize.result import Result
from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.knowledge import Knowledge, VariantJudges
from debate_judge.optimize.search.outcomes import Outcomes, drop_unshareable_joint_points
from debate_judge.optimize.search.points import Point, SearchSpace
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners.guide import add_guide
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import ADVOCATE
from debate_judge.programs.judge import DebateConfig
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import debater, requested, scripted_lm, section
from tests.optimize.compiles import compiled, plan_of
from tests.optimize.searches import limits_of, plan, search
from tests.optimize.small_corpus import small_corpus
from tests.programs.tables import joint_table_script, requested_cells

CLEAR, WARM = Aspect("clear", "Is it clear?", Scale(1, 5)), Aspect("warm", "Is it warm?", Scale(1, 5))
CORPUS = Corpus(
    Task("t", "article", "summary", (CLEAR, WARM)),
    tuple(
        RatedGroup(
            f"g{i}",
            f"Source {i}.",
            tuple(
                Candidate(f"c{j}", f"Worth {(i + j) % 4 + 1}.", {"clear": ((i + j) % 4 + 1.0,), "warm": (4.0 - j,)})
                for j in range(4)
            ),
        )
        for i in range(6)
    ),
    Origin("test", "nowhere"),
)
SPACE = SearchSpace(("none",), ("strict",), (0,), (False,), readings=("side by side", "alone"), joint=True)


def true_rating(prompt: str, text: str, aspect: str) -> float:
    """What the raters gave."""
    worth, source = int(text.removeprefix("Worth ").rstrip(".")), int(section(prompt, "source")[len("Source ") : -1])
    aspect = aspect or section(prompt, "aspect").partition(" (")[0]
    return float(worth) if aspect == "clear" else 4.0 - (worth - 1 - source) % 4


def units(
    runner: JudgeRunner, space: SearchSpace = SPACE, rounds: int = 0, train: Sequence[int] = (),
    kinds: Mapping[str, Sequence[Knowledge]] | None = None,
) -> dict[str, ChoiceScores]:  # fmt: skip
    """The scores of both aspects, which share their calls; `train` are the indices of the train sources."""
    groups = enumerate(CORPUS.groups)
    dev = replace(CORPUS, groups=tuple(group for i, group in groups if i not in train))
    parts: Any = {"dev": dev, "train": replace(CORPUS, groups=tuple(CORPUS.groups[i] for i in train))}
    base = Debate(ADVOCATE, DebateConfig(rounds), together=8)
    units_of_aspects = {}
    for aspect in CORPUS.task.aspects:
        judges = VariantJudges({"strict": base}, (kinds or {}).get(aspect.name, ()), space)
        options: Any = {"label": aspect.name, "fixed_granularities": {}}
        units_of_aspects[aspect.name] = ChoiceScores(judges, parts, (aspect,), runner, **options)
    for unit in units_of_aspects.values():
        unit.share_calls(units_of_aspects.values())
    return units_of_aspects


# --- where it is tried ---


@pytest.mark.parametrize(
    ("settings", "joint", "readings"),
    [
        ({}, True, ("side by side", "alone")),
        ({"judge": "single"}, True, ("side by side", "alone")),
        ({"aspects": ("fluency",)}, False, ("side by side", "alone")),
        ({"joint": True}, False, ("joint",)),
        ({"joint": True, "together": 4}, False, ("joint",)),
        ({"together": 4}, False, ("side by side",)),
        ({"together": 0}, False, ("alone",)),
        ({"judge_option": ("joint=false",)}, False, ("alone",)),
        ({"judge": "geval"}, False, ("alone",)),
        ({"score_mode": "expected"}, False, ("alone",)),
        ({"data": "one.jsonl"}, False, ("alone",)),
    ],
    ids=str,
)
def test_readings_are_tried_where_the_judge_can_and_the_user_has_set_none(
    settings: dict[str, Any], joint: bool, readings: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rated = [{"id": "c", "text": f"Text {n}.", "ratings": {"coherence": 1 + n % 5}} for n in range(60)]
    lines = [{"group": f"g{n}", "source": f"Source {n} is of {n * n}.", "candidates": [c]} for n, c in enumerate(rated)]
    Path("one.jsonl").write_text("\n".join(json.dumps({"task": "summarization", **line}) for line in lines))
    compile_plan = plan_of(Settings(**settings), {ADVOCATE.name: ADVOCATE.text})
    assert (compile_plan.joint_allowed, compile_plan.readings) == (joint, readings)
    checked = {(check.judge.together, check.judge.joint) for check in _preflight_checks(compile_plan)}
    assert ((16, True) in checked) == joint
    assert len(checked) == len(readings) + joint


# --- what is chosen ---


@pytest.mark.parametrize("jointly", [("clear", "warm"), ("clear",), ()])
def test_joint_points_are_tried_last_and_chosen_unless_they_are_worse_for_an_aspect(jointly: Sequence[str]) -> None:
    """The LM knows what the raters gave; of several aspects at once it knows `jointly`, and guesses the rest."""
    alone = debater(score=lambda prompt: str(true_rating(prompt, section(prompt, "candidate"), "")))

    def several(prompt: str, text: str, aspect: str) -> float:
        if not aspect or aspect in jointly:
            return true_rating(prompt, text, aspect)
        return 1.0 + zlib.crc32((section(prompt, "source") + text + aspect).encode()) % 4

    lm = scripted_lm(lambda prompt: (alone if "score" in requested(prompt) else joint_table_script(several))(prompt))
    with JudgeRunner(lm, progress=False) as runner:
        results = search(units(runner), SPACE, plan(None, limits_of(9)))
    chosen = [(result.chosen.point.reading, result.chosen.calls) for result in results.values()]
    assert chosen == [("joint", 0.125) if len(jointly) == 2 else ("side by side", 0.25)] * 2
    # Each aspect side by side and alone; then both of a source in one call.
    assert len(lm.prompts) == 2 * 6 + 2 * 24 + 6
    assert [len(requested_cells(prompt, "scores")) for prompt in lm.prompts[-6:]] == [8] * 6
    if len(jointly) == 2:
        judge = results["clear"].scores.variants[results["clear"].chosen.point.variant].judge
        assert (judge.together, judge.joint) == (16, True)


def point(rounds: int, persona: str = "strict", knowledge: str = "guide") -> Point:
    return Point(knowledge, persona, rounds, False, "half", reading="side by side")


def test_if_all_points_are_joint_aspects_choose_the_same_configuration() -> None:
    """What an aspect alone would have chosen costs it the calls that it would have for itself."""
    worth = {
        point(1, knowledge="none"): {"a": 0.9, "b": 0.1},
        point(1, "plain"): {"a": 0.2, "b": 0.8},
        point(1, "plain", "none"): {"a": 0.7, "b": 0.3},
        point(2): {"a": 0.6, "b": 0.7},
    }

    def best(among: Any) -> dict[str, Point]:
        return {label: max(filter(among, worth), key=lambda p: worth[p][label]) for label in ("a", "b")}

    outcomes = SimpleNamespace(
        space=SearchSpace(("none", "guide"), ("strict", "plain"), (0, 1, 2), (False,), readings=("joint",)),
        units={label: SimpleNamespace(aspects=[SimpleNamespace(name=label)]) for label in ("a", "b")},
        by_point={p: {label: SimpleNamespace(calls=1.0) for label in by_label} for p, by_label in worth.items()},
        posterior_means=lambda points: {p: list(worth[p].values()) for p in points},
        choose=best,
    )
    alone = best(lambda p: True)
    assert (alone["a"], alone["b"]) == (point(1, knowledge="none"), point(1, "plain"))
    # Under the plain persona each has .7 and .8; what is known of the raters may differ.
    shared = {"a": point(1, "plain", "none"), "b": point(1, "plain")}
    assert drop_unshareable_joint_points(cast(Outcomes, outcomes), alone) == shared
    alike = dict.fromkeys(("a", "b"), point(2))
    assert drop_unshareable_joint_points(cast(Outcomes, outcomes), alike) == alike


def guide(aspect: str, folds: Mapping[str, str]) -> Knowledge:
    """A guide, and another one for each train group, which was learnt without it."""

    def giving(text: str) -> Any:
        return lambda judge: add_guide(judge, text)

    fold_guides = tuple((giving(f"{aspect} {text}."), frozenset({(aspect, group)})) for group, text in folds.items())
    return Knowledge("guide", giving(f"{aspect} whole."), fold_guides)


def test_train_is_judged_by_what_each_aspect_has_learnt_without_the_source() -> None:
    space = replace(SPACE, knowledge=("none", "guide"), rounds=(0, 1), tie_breakers=(False, True))
    # Of one train source nothing about warm was learnt without it.
    kinds = {"clear": [guide("clear", {"g0": "first", "g1": "second"})], "warm": [guide("warm", {"g0": "first"})]}
    lm = scripted_lm(joint_table_script(true_rating, lambda *_: "TOO LOW"))
    at = Point("guide", "strict", 1, True, "given", reading="joint")
    with JudgeRunner(lm, progress=False) as runner:
        by_aspect = units(runner, space, 1, (0, 1), kinds)
        scores, calls = by_aspect["warm"].scores(at)
        prompts = list(lm.prompts)
        scores_of_clear, _ = by_aspect["clear"].scores(at)
        # The other aspect was asked about in the same calls; so was what fewer rounds would have given.
        by_aspect["clear"].scores(replace(at, rounds=0, tie_breaker=False))
    assert lm.prompts == prompts
    assert [g.group for g in scores["warm"]] == ["g2", "g3", "g4", "g5", "g0"]
    assert [g.group for g in scores_of_clear["clear"]] == ["g2", "g3", "g4", "g5", "g0", "g1"]
    # Opening, review, revision and tie-break of six sources.
    assert len(prompts) == 4 * 6
    assert calls == pytest.approx(4 / 8)
    guides = {
        section(p, "source"): (section(p, "guide_clear"), section(p, "guide_warm"), len(requested_cells(p, "scores")))
        for p in prompts
        if not section(p, "debate")
    }
    assert guides["Source 0."] == ("clear first.", "warm first.", 8)
    assert guides["Source 4."] == ("clear whole.", "warm whole.", 8)
    assert guides["Source 1."] == ("", "", 4)
    prompt = next(p for p in prompts if section(p, "source") == "Source 1.")
    assert section(prompt, "standard").endswith("clear second.")


# --- held-out ---


def test_held_out_is_scored_in_shared_calls_and_no_first_turn_is_made_twice() -> None:
    settings = Settings(aspects=("coherence", "fluency", "relevance"), folds=1)
    whole = plan_of(settings, {ADVOCATE.name: ADVOCATE.text})

    def judge(rounds: int, text: str) -> AspectJudge:
        return AspectJudge(add_guide(Debate(ADVOCATE, DebateConfig(rounds), together=8, joint=True), text), "half")

    # Two of three go together.
    aspect_judges = {"coherence": judge(1, "One."), "fluency": judge(1, "Two."), "relevance": judge(0, "Three.")}
    lm = make_lm("offline")
    with JudgeRunner(lm, progress=False) as runner:
        # A single call for the uncompiled judge, so that its debates do not count.
        single = replace(whole, settings=replace(settings, together=0), judge=whole.single)
        run = CompileRun(single, runner, None, cast(Any, None), lm)
        by_judge = evaluate_held_out(run, CompiledJudge(whole.data.corpus.task, aspect_judges), {}).judgements
    assert {granularity for _, granularity in by_judge["compiled"].values()} == {"half"}
    shapes = {a: {j.transcript.joint for j in judgements} for a, (judgements, _) in by_judge["compiled"].items()}
    assert shapes == {"coherence": {2}, "fluency": {2}, "relevance": {1}}
    # Three aspects of eight candidates alone; the uncompiled judge is the same here; two tables of each source.
    sources = len(whole.data.splits.held_out.groups)
    assert lm.meter.executed["scorer"] == sources * (3 * 8 + 1 + 1 + 1)
    assert lm.meter.executed["critic"] == sources


def test_a_judge_that_reads_side_by_side_is_measured_alone_if_that_is_wanted(tmp_path: Path) -> None:
    """As tools hand texts over; nothing else changes."""
    usual: dict[str, Any] = {"data": str(small_corpus(tmp_path)), "aspects": ("coherence",), "tuner": "none"}
    usual |= {"max_rounds": 0, "folds": 1, "resamples": 200}
    results: list[Result] = []
    for wanted in (False, True):
        lm = offline_lm()
        with JudgeRunner(lm, progress=False) as runner:
            results.append(compiled(Settings(**usual, read_alone=wanted), {}, runner, lm))
    without, with_it = (result.held_out for result in results)
    alone = with_it.read_alone
    assert without.read_alone is None
    assert with_it.calls == without.calls
    assert with_it.calls_per_item("compiled") < alone.calls == 1
    # The offline stand-in reads each text for itself.
    average = with_it.tables["compiled"].average["summary"]["spearman"]
    assert (alone.change.value, alone.agreement.value) == (0, average.value)
    before, after = (result.verdict.splitlines() for result in results)
    (line,) = set(after) - set(before)
    assert "one at a time" in line
    assert "1.0 LM calls per item" in line
    assert results[1].evidence()["read_alone"]["calls"] == 1
