"""Whether candidates are read alone or side by side: where that is searched, what is tried, and what is chosen."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from debate_judge import offline_lm
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.result import Result
from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.knowledge import Knowledge, rewritten, variants_of
from debate_judge.optimize.search.outcomes import Criterion, SearchResult
from debate_judge.optimize.search.points import JudgeVariant, Point, Space
from debate_judge.optimize.search.study import Breadth, SearchPlan
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import Tuned
from debate_judge.optimize.tuners.guide import guide_of, guided
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import PLAIN, STRICT
from debate_judge.programs.judge import DebateConfig, Judge
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import Script, debater, requested, scripted_lm, section
from tests.optimize.compiles import compiled, prepared
from tests.optimize.searches import Fake, breadth, plan, search, told, tried, varied
from tests.optimize.small_corpus import small_corpus
from tests.programs.tables import Scored, reading

SPACE = Space(("none", "guide"), ("strict", "plain"), (0, 1, 2), (False, True), readings=("alone", "side by side"))
ALONE = replace(SPACE, readings=("alone",))


def price(point: Point) -> float:
    return (1 + 2 * point.rounds + 0.5 * point.tie_breaker) / (1 if point.reading == "alone" else 16)


def run(fake: Fake, storage: Path | None = None, broad: Breadth | None = None, space: Space = SPACE) -> SearchResult:
    return search({"a": cast(ChoiceScores, fake)}, space, plan(storage, broad or breadth(9)))["a"]


def probes_of(fake: Fake, reading: str) -> list[tuple[str, str, int, bool]]:
    asked = [p for p in fake.asked if p.reading == reading]
    return list(dict.fromkeys((p.knowledge, p.persona, p.rounds, p.tie_breaker) for p in asked))


# --- what is tried ---


def test_single_calls_come_in_both_readings_and_debates_in_the_judges_own() -> None:
    fake = Fake(varied, price)
    run(fake, broad=replace(breadth(99), suggestions=0))
    assert tried(fake)[:7] == [
        *("none", "guide", "none", "guide"),
        *("none strict 2", "guide strict 2"),
        "guide plain 1",
    ]


def test_what_is_tried_side_by_side_takes_nothing_from_what_is_tried_alone() -> None:
    broad = replace(breadth(7), suggestions=0)
    alone, both = Fake(varied, price), Fake(varied, price)
    run(alone, broad=broad, space=ALONE)
    run(both, broad=broad)
    assert probes_of(alone, "alone") == probes_of(both, "alone")
    assert probes_of(both, "side by side")


def test_what_is_best_alone_is_tried_side_by_side_in_the_end() -> None:
    fake = Fake(lambda p: 0.0 if (p.knowledge, p.persona, p.tie_breaker) == ("guide", "plain", True) else 3.0, price)
    found = run(fake, broad=breadth(14))
    assert ("guide", "plain") in {(p.knowledge, p.persona) for p in fake.asked if p.reading == "side by side"}
    assert (found.chosen.point.persona, found.chosen.point.reading) == ("plain", "side by side")


@pytest.mark.parametrize("stop", [0, 3, 7, 11, 16, 22, 28, 34, 40, 46, 52, 58, 64, 70, 76])
def test_a_search_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path, stop: int) -> None:
    straight = run(Fake(varied, price), broad=breadth(12))
    with pytest.raises(KeyboardInterrupt):
        run(Fake(varied, price, stop_at=min(stop, len(straight.outcomes) - 1)), tmp_path / "s.log", breadth(12))
    assert told(run(Fake(varied, price), tmp_path / "s.log", breadth(12))) == told(straight)


# --- what is chosen ---


def test_of_equal_scores_those_side_by_side_are_cheaper() -> None:
    assert run(Fake(lambda p: 0.0, price)).chosen.point == Point(
        "none", "strict", 0, False, "given", reading="side by side"
    )


def test_a_reading_that_is_clearly_better_is_chosen() -> None:
    assert run(Fake(lambda p: 3.0 * (p.reading == "alone"), price)).chosen.point.reading == "side by side"
    assert run(Fake(lambda p: 3.0 * (p.reading != "alone"), price)).chosen.point.reading == "alone"


# --- judges that read so ---

BASE = Debate(STRICT, DebateConfig(2))
PERSONAS: dict[str, Judge] = {"strict": BASE, "plain": Debate(PLAIN, DebateConfig(2))}


def test_a_judge_side_by_side_knows_what_the_one_alone_knows() -> None:
    place = frozenset({("clear", "g0")})
    guide = Knowledge("guide", lambda j: guided(j, "of all"), ((lambda j: guided(j, "of some"), place),))
    tuned = BASE.deepcopy()
    tuned.critic.signature = tuned.critic.signature.with_instructions("Look twice.")
    space = replace(SPACE, rewritten=(JudgeVariant("tuned", "tuned"),))
    found = variants_of(PERSONAS, [guide, rewritten(Tuned(tuned), [])], space)
    for variant in space.variants:
        alone, other = (found[replace(variant, reading=reading)].judge for reading in space.readings)
        assert other.instructions() == alone.instructions()
        assert other.config() == {**alone.config(), "together": 16}
    fold = found[JudgeVariant("guide", "plain", reading="side by side")].at("train", ("clear", "g0"))
    assert fold is not None
    assert (guide_of(fold), fold.together) == ("of some", 16)


# --- with an LM that reads alone and side by side ---

ASPECT = Aspect("clear", "Is it clear?", Scale(1, 5))
CORPUS = Corpus(
    Task("t", "article", "summary", (ASPECT,)),
    tuple(
        RatedGroup(
            f"g{i}",
            f"Source {i}.",
            tuple(Candidate(f"c{j}", f"Worth {(i + j) % 4 + 1}.", {"clear": ((i + j) % 4 + 1.0,)}) for j in range(4)),
        )
        for i in range(6)
    ),
    Origin("test", "nowhere"),
)


def true(prompt: str, text: str) -> float:
    return float(text.removeprefix("Worth ").rstrip("."))


def guess(prompt: str, text: str) -> float:
    return 1.0 + zlib.crc32((section(prompt, "source") + text).encode()) % 4


def reader(alone: Scored, side_by_side: Scored) -> Script:
    """Scores a candidate alone in one way, and among others in another."""
    single = debater(score=lambda prompt: str(alone(prompt, section(prompt, "candidate"))))
    several = reading(side_by_side)
    return lambda prompt: (single if "score" in requested(prompt) else several)(prompt)


def searched(script: Script) -> tuple[SearchResult, Sequence[str]]:
    space, lm = Space(("none",), ("strict",), (0,), (False,), readings=SPACE.readings), scripted_lm(script)
    with JudgeRunner(lm, progress=False) as runner:
        judges = variants_of({"strict": Debate(STRICT, DebateConfig(0))}, [], space)
        scores = ChoiceScores(judges, {"dev": CORPUS, "train": replace(CORPUS, groups=())}, (ASPECT,), runner,
                              label="clear", fixed={})  # fmt: skip
        criterion = Criterion("spearman", "summary")
        found = search({"clear": scores}, space, SearchPlan(
            criterion=criterion, breadth=breadth(4), seed=0, study="s", storage=None))["clear"]  # fmt: skip
    return found, lm.prompts


@pytest.mark.parametrize(
    ("script", "chosen", "calls"),
    [
        (reader(guess, true), "side by side", 0.25),
        (reader(true, true), "side by side", 0.25),
        (reader(true, guess), "alone", 1.0),
    ],
    ids=["better", "equal", "worse"],
)
def test_the_choice_weighs_what_it_reads_and_the_shares_of_calls(script: Script, chosen: str, calls: float) -> None:
    found, prompts = searched(script)
    assert (found.chosen.point.reading, found.chosen.calls, found.chosen.agreement) == (chosen, calls, 1.0)
    # One call for each candidate, and one for each source, or for some of them where that falls behind.
    assert len(prompts) == 24 + (3 if chosen == "alone" else 6)
    assert found.scores.variants[found.chosen.point.variant].judge.config()["together"] == (
        16 if chosen == "side by side" else 0
    )


# --- where it is searched ---


def readings(**settings: Any) -> tuple[str, ...]:
    return prepared(Settings(**settings), {STRICT.name: STRICT.text}).readings


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ("side by side", "alone")),
        ({"judge": "single"}, ("side by side", "alone")),
        ({"together": 4}, ("side by side",)),
        ({"together": 0}, ("alone",)),
        ({"judge_option": ("together=4",)}, ("side by side",)),
        ({"judge": "geval"}, ("alone",)),
        ({"score_mode": "expected"}, ("alone",)),
    ],
    ids=str,
)
def test_the_reading_is_searched_where_the_judge_has_it_and_the_user_has_not_set_it(
    settings: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert readings(**settings) == expected


def test_candidates_are_read_alone_where_each_has_a_source_of_its_own(tmp_path: Path) -> None:
    def written(candidates: int) -> str:
        def candidate(i: int, j: int) -> dict[str, Any]:
            return {"id": f"c{j}", "text": f"Text {i} {j}.", "ratings": {"coherence": 1 + (i + j) % 5}}

        rows = [
            {"task": "summarization", "group": f"g{i}", "source": f"Source number {i} is about {i * i}.",
             "candidates": [candidate(i, j) for j in range(candidates)]}
            for i in range(60)
        ]  # fmt: skip
        (tmp_path / f"{candidates}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return str(tmp_path / f"{candidates}.jsonl")

    assert readings(data=written(1)) == ("alone",)
    assert readings(data=written(2)) == ("side by side", "alone")


def test_a_judge_that_reads_side_by_side_is_measured_alone_if_that_is_wanted(tmp_path: Path) -> None:
    """As tools hand texts over; nothing else changes."""
    found: list[Result] = []
    for wanted in (False, True):
        lm = offline_lm()
        with JudgeRunner(lm, progress=False) as runner:
            settings = Settings(
                data=str(small_corpus(tmp_path)),
                aspects=("coherence",),
                max_rounds=0,
                folds=1,
                tuner="none",
                resamples=200,
                read_alone=wanted,
            )
            found.append(compiled(settings, {}, runner, lm))
    without, with_it = (result.held_out for result in found)
    alone = with_it.alone
    assert without.alone is None
    assert alone is not None
    assert with_it.calls == without.calls
    assert with_it.calls_per_item("compiled") < alone.calls == 1
    # The offline stand-in reads each text for itself.
    compiled_average = with_it.tables["compiled"].average["summary"]["spearman"]
    assert (alone.change.value, alone.agreement.value) == (0, compiled_average.value)
    before, after = (result.verdict.splitlines() for result in found)
    (said,) = set(after) - set(before)
    assert said.startswith("And if texts come one at a time? ")
    assert "1.0 LM calls per item" in said
    assert found[1].evidence()["read_alone"]["calls"] == 1
