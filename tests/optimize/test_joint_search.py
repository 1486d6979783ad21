"""Aspects in one call: where that is tried, with whose judges, at how many calls, and when it is chosen."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.context import NoTracking, Run
from debate_judge.optimize.job import _trials, prepared
from debate_judge.optimize.proof.held_out import score_held_out
from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.course import Breadth
from debate_judge.optimize.search.joint import in_company, joint_probes
from debate_judge.optimize.search.knowledge import Knowledge, variants_of
from debate_judge.optimize.search.outcomes import Criterion, Outcomes, SearchResult
from debate_judge.optimize.search.points import JudgeVariant, Point, Probe, Space
from debate_judge.optimize.search.storage import known_points, open_study
from debate_judge.optimize.search.study import SearchPlan, search
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners.guide import guided
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import STRICT
from debate_judge.programs.judge import DebateConfig
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import Script, ScriptedLM, debater, requested, scripted_lm, section
from tests.programs.tables import joint_reading, shown, wanted_cells

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
NAMES = ("clear", "warm")
SPACE = Space(("none",), ("strict",), (0,), (False,), readings=("side by side", "alone"), joint=True)
BASE = Debate(STRICT, DebateConfig(0), together=8)


def true(prompt: str, text: str, aspect: str) -> float:
    """What the raters gave."""
    worth = int(text.removeprefix("Worth ").rstrip("."))
    source = int(section(prompt, "source").removeprefix("Source ").rstrip("."))
    return float(worth) if _aspect(prompt, aspect) == "clear" else 4.0 - (worth - 1 - source) % 4


def _aspect(prompt: str, label: str) -> str:
    return label or section(prompt, "aspect").partition(" (")[0]


def guess(prompt: str, text: str, aspect: str) -> float:
    return 1.0 + zlib.crc32((section(prompt, "source") + text + aspect).encode()) % 4


def reader(jointly: Sequence[str] = NAMES) -> Script:
    """An LM that knows what the raters gave; of several aspects at once it knows those named, and guesses the rest."""
    alone = debater(score=lambda prompt: str(true(prompt, section(prompt, "candidate"), "")))

    def several(prompt: str, text: str, aspect: str) -> float:
        return (true if not aspect or aspect in jointly else guess)(prompt, text, aspect)

    return lambda prompt: (alone if "score" in requested(prompt) else joint_reading(several))(prompt)


def units(
    runner: JudgeRunner, space: Space = SPACE, kinds: Mapping[str, Sequence[Knowledge]] | None = None,
    base: Debate = BASE, train: Sequence[int] = (),
) -> dict[str, ChoiceScores]:  # fmt: skip
    dev = tuple(group for i, group in enumerate(CORPUS.groups) if i not in train)
    parts: Any = {
        "dev": replace(CORPUS, groups=dev),
        "train": replace(CORPUS, groups=[CORPUS.groups[i] for i in train]),
    }
    made = {
        aspect.name: ChoiceScores(
            variants_of({"strict": base}, (kinds or {}).get(aspect.name, ()), space),
            parts,
            (aspect,),
            runner,
            label=aspect.name,
            fixed={},
        )
        for aspect in CORPUS.task.aspects
    }
    for one in made.values():
        one.share_calls(made.values())
    return made


def searched(script: Script, storage: Path | None = None) -> tuple[dict[str, SearchResult], ScriptedLM]:
    lm = scripted_lm(script)
    plan = SearchPlan(
        criterion=Criterion("spearman", "summary"),
        breadth=Breadth(2, 1, 2, 9, candidates=1000),
        seed=0,
        study="s",
        storage=storage,
        race=False,
    )
    with JudgeRunner(lm, progress=False) as runner:
        return search(units(runner), SPACE, plan), lm


def chosen(found: Mapping[str, SearchResult]) -> dict[str, tuple[str, float]]:
    return {name: (one.chosen.point.reading, one.chosen.calls) for name, one in found.items()}


# --- what is chosen ---


def test_what_aspects_have_chosen_is_tried_with_all_of_them_in_a_call() -> None:
    found, lm = searched(reader())
    assert chosen(found) == {name: ("joint", 0.125) for name in NAMES}
    # Each aspect side by side and alone; then both of a source in one call.
    assert len(lm.prompts) == 2 * 6 + 2 * 24 + 6
    assert [len(wanted_cells(prompt, "scores")) for prompt in lm.prompts[-6:]] == [8] * 6
    judge = found["clear"].scores.variants[found["clear"].chosen.point.variant].judge
    assert (judge.together, judge.joint) == (8, True)


@pytest.mark.parametrize("jointly", [(), ("clear",)])
def test_it_is_not_chosen_where_it_is_worse_or_only_one_aspect_would_have_it(jointly: tuple[str, ...]) -> None:
    found, lm = searched(reader(jointly))
    assert chosen(found) == {name: ("side by side", 0.25) for name in NAMES}
    assert len(lm.prompts) == 2 * 6 + 2 * 24 + 6


def test_a_study_holds_it_and_is_gone_through_again(tmp_path: Path) -> None:
    first, _ = searched(reader(), tmp_path / "s.log")
    points = known_points(SPACE, open_study("s", tmp_path / "s.log"))
    again, _ = searched(reader(), tmp_path / "s.log")
    assert chosen(again) == chosen(first)
    assert {outcome.point for outcome in again["warm"].outcomes} == points
    assert {point.reading for point in points} == {"alone", "side by side", "joint"}
    # No trial is added.
    assert known_points(SPACE, open_study("s", tmp_path / "s.log")) == points


def outcomes(space: Space = SPACE, shared: bool = False) -> Outcomes:
    """Of three units with an aspect each, or of one with all of them."""
    aspects = [SimpleNamespace(name=name) for name in ("a", "b", "c")]
    of = {"a+b+c": aspects} if shared else {one.name: [one] for one in aspects}
    made = {label: SimpleNamespace(aspects=own) for label, own in of.items()}
    fallback = {label: Point("none", "strict", 0, False, "given", reading="alone") for label in made}
    return cast(Outcomes, SimpleNamespace(space=space, units=made, chosen=lambda among: fallback))


def point(rounds: int, persona: str = "strict", knowledge: str = "guide", reading: Any = "side by side") -> Point:
    return Point(knowledge, persona, rounds, False, "half", reading=reading)


def probe(rounds: int, persona: str = "strict", knowledge: str = "guide") -> Probe:
    return Probe(JudgeVariant(knowledge, persona, reading="joint"), rounds)


CHOICES: list[tuple[dict[str, Point], list[Probe]]] = [
    ({"a": point(1), "b": point(1), "c": point(2)}, [probe(1)]),
    ({"a": point(1), "b": point(2), "c": point(3)}, []),
    ({"a": point(1), "b": point(1, "plain"), "c": point(1)}, [probe(1)]),
    # Of single calls no persona is heard; what is known of the raters may differ.
    ({"a": point(0), "b": point(0, "plain"), "c": point(1)}, [probe(0, "plain"), probe(0)]),
    ({"a": point(1), "b": point(1, knowledge="none"), "c": point(2)}, [probe(1), probe(1, knowledge="none")]),
    ({"a": point(1, reading="alone"), "b": point(1), "c": point(2)}, [probe(1)]),
    ({"a": point(1, "tuned", "tuned"), "b": point(1, "tuned", "tuned"), "c": point(2)}, []),
]


@pytest.mark.parametrize(("choices", "expected"), CHOICES)
def test_tried_is_what_goes_with_another_aspects_choice(choices: dict[str, Point], expected: list[Probe]) -> None:
    space = replace(SPACE, rewritten=(JudgeVariant("tuned", "tuned"),))
    assert joint_probes(outcomes(space), choices) == expected
    assert joint_probes(outcomes(replace(space, joint=False)), choices) == []


def test_one_judge_of_all_aspects_is_in_company_by_itself() -> None:
    assert joint_probes(outcomes(shared=True), {"a+b+c": point(2)}) == [probe(2)]
    alone = {"a+b+c": point(2, reading="joint")}
    assert in_company(outcomes(shared=True), alone) == alone


def test_a_joint_choice_that_goes_with_no_other_gives_way() -> None:
    own = {"a": point(1, reading="joint"), "b": point(2, reading="joint"), "c": point(1)}
    found = in_company(outcomes(), own)
    assert (found["a"].reading, found["b"].reading, found["c"]) == ("alone", "alone", own["c"])
    pair = own | {"b": point(1, reading="joint")}
    assert in_company(outcomes(), pair) == pair


def test_where_all_is_joint_aspects_choose_the_same_speakers() -> None:
    """What an aspect alone would have chosen costs it the calls that it would have for itself."""
    worth = {
        point(1, knowledge="none"): {"a": 0.9, "b": 0.1},
        point(1, "plain"): {"a": 0.2, "b": 0.8},
        point(1, "plain", "none"): {"a": 0.7, "b": 0.3},
        point(2): {"a": 0.6, "b": 0.7},
    }

    def best(among: Any) -> dict[str, Point]:
        return {label: max(filter(among, worth), key=lambda p: worth[p][label]) for label in ("a", "b")}

    made = SimpleNamespace(
        space=Space(("none", "guide"), ("strict", "plain"), (0, 1, 2), (False,), readings=("joint",)),
        units={label: SimpleNamespace(aspects=[SimpleNamespace(name=label)]) for label in ("a", "b")},
        by_point={p: {label: SimpleNamespace(calls=1.0) for label in found} for p, found in worth.items()},
        worth=lambda points: {p: list(worth[p].values()) for p in points},
        chosen=best,
    )
    own = best(lambda p: True)
    assert (own["a"], own["b"]) == (point(1, knowledge="none"), point(1, "plain"))
    # Under the plain persona each has .7 and .8; what is known of the raters may differ.
    assert in_company(cast(Outcomes, made), own) == {"a": point(1, "plain", "none"), "b": point(1, "plain")}
    alike = dict.fromkeys(("a", "b"), point(2))
    assert in_company(cast(Outcomes, made), alike) == alike


# --- with whose judges ---


def guide(aspect: str, folds: Mapping[str, str]) -> Knowledge:
    """A guide, and another one for each train group, which was learnt without it."""

    def giving(text: str) -> Any:
        return lambda judge: guided(judge, text)

    made = tuple((giving(f"{aspect} {text}."), frozenset({(aspect, group)})) for group, text in folds.items())
    return Knowledge("guide", giving(f"{aspect} whole."), made)


def test_train_is_judged_by_what_each_aspect_has_learnt_without_the_source() -> None:
    space = replace(SPACE, knowledge=("none", "guide"), rounds=(0, 1), tie_breakers=(False, True))
    kinds = {
        "clear": [guide("clear", {"g0": "first", "g1": "second"})],
        # Of one train source nothing about warm was learnt without it.
        "warm": [guide("warm", {"g0": "first"})],
    }
    lm = scripted_lm(joint_reading(true, lambda *_: "TOO LOW"))
    at = Point("guide", "strict", 1, True, "given", reading="joint")
    with JudgeRunner(lm, progress=False) as runner:
        made = units(runner, space, kinds, Debate(STRICT, DebateConfig(1), together=8), train=(0, 1))
        scores, calls = made["warm"].scores(at)
        prompts = list(lm.prompts)
        other, _ = made["clear"].scores(at)
        # The other aspect was asked about in the same calls; so was what fewer rounds would have given.
        made["clear"].scores(replace(at, rounds=0, tie_breaker=False))
    assert lm.prompts == prompts
    assert ([g.group for g in scores["warm"]], [g.group for g in other["clear"]]) == (
        ["g2", "g3", "g4", "g5", "g0"],
        ["g2", "g3", "g4", "g5", "g0", "g1"],
    )
    # Opening, review, revision and tie-break of six sources.
    assert len(prompts) == 4 * 6
    told = {
        section(p, "source"): (section(p, "guide_clear"), section(p, "guide_warm"), len(wanted_cells(p, "scores")))
        for p in prompts
        if not section(p, "debate")
    }
    assert told["Source 0."] == ("clear first.", "warm first.", 8)
    assert told["Source 4."] == ("clear whole.", "warm whole.", 8)
    assert told["Source 1."] == ("", "", 4)
    one = next(p for p in prompts if section(p, "source") == "Source 1.")
    assert section(one, "standard").endswith("clear second.")
    assert calls == pytest.approx(4 / 8)
    assert all(len(shown(p)) == 4 for p in prompts)


# --- where it is tried ---


@pytest.mark.parametrize(
    ("settings", "joint", "reading"),
    [
        ({}, True, "side by side"),
        ({"judge": "single"}, True, "side by side"),
        ({"aspects": ("fluency",)}, False, "side by side"),
        ({"joint": True}, False, "joint"),
        ({"joint": True, "together": 4}, False, "joint"),
        ({"together": 4}, False, "side by side"),
        ({"together": 0}, False, "alone"),
        ({"judge_option": ("joint=false",)}, False, "alone"),
        ({"judge": "geval"}, False, "alone"),
        ({"score_mode": "expected"}, False, "alone"),
    ],
    ids=str,
)
def test_it_is_tried_where_the_judge_can_and_the_user_has_not_said_how_it_reads(
    settings: dict[str, Any], joint: bool, reading: str
) -> None:
    found = prepared(Settings(**settings), {STRICT.name: STRICT.text})
    assert (found.joint, found.readings[0]) == (joint, reading)
    tried = {(t.judge.together, t.judge.joint) for t in _trials(found)}
    assert ((8, True) in tried) == joint
    assert len(tried) == len(found.readings) + joint


# --- held-out ---


def test_held_out_is_scored_in_shared_calls_and_no_first_turn_is_made_twice() -> None:
    settings = Settings(aspects=("coherence", "fluency", "relevance"), folds=1)
    plan = prepared(settings, {STRICT.name: STRICT.text})
    sources = len(plan.data.splits.held_out.groups)

    def judge(rounds: int, text: str) -> AspectJudge:
        return AspectJudge(guided(Debate(STRICT, DebateConfig(rounds), together=8, joint=True), text), "half")

    # Two of three go together.
    own = {"coherence": judge(1, "One."), "fluency": judge(1, "Two."), "relevance": judge(0, "Three.")}
    lm = make_lm("offline")
    with JudgeRunner(lm, progress=False) as runner:
        run = Run(plan, runner, NoTracking(), cast(Any, None), lm)
        found = score_held_out(without_debate(run), CompiledJudge(plan.data.corpus.task, own))
    assert {granularity for _, granularity in found["compiled"].values()} == {"half"}
    shapes = {a: {j.transcript.joint for j in judgements} for a, (judgements, _) in found["compiled"].items()}
    assert shapes == {"coherence": {2}, "fluency": {2}, "relevance": {1}}
    # Three aspects of eight candidates alone; the uncompiled judge is the same here; two tables of each source.
    assert lm.meter.executed["scorer"] == sources * (3 * 8 + 1 + 1 + 1)
    assert lm.meter.executed["critic"] == sources


def without_debate(run: Run) -> Run:
    """The run with a single call for the uncompiled judge, so that its debates do not count."""
    settings = replace(run.plan.settings, together=0)
    return replace(run, plan=replace(run.plan, settings=settings, judge=run.plan.single))
