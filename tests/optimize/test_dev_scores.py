"""What a search may choose, how a choice is rated, and what it costs to read."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.agreement.tables import GroupScores
from debate_judge.data.schema import GRANULARITIES, Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.search.dev_scores import DevScores, Point, Space, agreement_for_choice
from debate_judge.programs.debate.judge import Debate, is_open
from debate_judge.programs.debate.personas import PLAIN, STRICT
from debate_judge.programs.judge import DebateConfig, Judge, corpus_items
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import debater, scripted_lm, section

SPACE = Space(("plain", "strict", "tuned"), (0, 1, 2, 3), (False, True))
"""57 points: 3 of the single call, and 3 personas x 3 rounds x 2 x 3 granularities."""


# --- what may be chosen ---


def test_the_points_of_a_space() -> None:
    points = SPACE.points()
    assert len(points) == len(set(points)) == 57
    # Where there are no rounds, nobody criticises and nothing stays open.
    assert [p for p in points if p.rounds == 0] == points[:3]
    assert points[:3] == [Point("plain", 0, False, g) for g in GRANULARITIES]
    assert [p.rounds for p in points] == sorted(p.rounds for p in points)
    assert {p.persona for p in points[3:]} == {"plain", "strict", "tuned"}


def test_the_single_call_is_always_a_choice() -> None:
    assert Space(("a",), (2,), (True,)).points()[0] == Point("a", 0, False, "given")
    assert len(Space(("a",), (0,), (False,)).points()) == 3


# --- how a choice is rated ---


def group(name: str, ratings: Sequence[float | None], scores: Sequence[float | None]) -> GroupScores:
    return GroupScores(name, tuple(str(i) for i in range(len(ratings))), tuple(ratings), tuple(scores))


GOOD = group("good", (1, 2, 3), (2, 3, 4))
REVERSED = group("reversed", (1, 2, 3), (4, 3, 2))
CONSTANT = group("constant", (1, 2, 3), (3, 3, 3))
UNRANKED = group("unranked", (2, 2, 2), (1, 2, 3))
SILENT = group("silent", (1, 2, 3), (None, None, None))


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([GOOD], 1),
        ([REVERSED], -1),
        ([GOOD, REVERSED], 0),
        # Who does not rank gains nothing by it.
        ([GOOD, CONSTANT], 0.5),
        ([GOOD, SILENT], 0.5),
        ([CONSTANT], 0),
        # Nobody can agree with raters who do not rank.
        ([GOOD, UNRANKED], 1),
        ([UNRANKED], 0),
        # Unrated and unscored candidates are left out of their group: (1, 3) and (2, 4) remain.
        ([group("partly", (1, None, 3, 2), (2, 9, 4, None))], 1),
    ],
)
def test_agreement_within_groups(groups: list[GroupScores], expected: float) -> None:
    assert agreement_for_choice({"a": groups}, "spearman", "summary") == pytest.approx(expected)


def test_agreement_over_all_candidates_pools_them() -> None:
    # Each group alone is reversed; together the ranks of ratings and scores are 1 2 3 4 and 2 1 4 3: rho = 0.6.
    groups = [group("low", (1, 2), (2, 1)), group("high", (8, 9), (9, 8))]
    assert agreement_for_choice({"a": groups}, "spearman", "sample") == pytest.approx(0.6)
    assert agreement_for_choice({"a": groups}, "spearman", "summary") == pytest.approx(-1)
    assert agreement_for_choice({"a": [CONSTANT]}, "spearman", "sample") == 0


def test_agreement_on_several_aspects_is_their_mean() -> None:
    assert agreement_for_choice({"a": [GOOD], "b": [GOOD, CONSTANT]}, "kendall", "summary") == pytest.approx(0.75)


# --- what it costs ---

ASPECTS = tuple(Aspect(name, f"How {name} is it?", Scale(1, 5)) for name in ("clear", "sound"))
TASK = Task("t", "article", "summary", ASPECTS)
CORPUS = Corpus(
    TASK,
    tuple(
        RatedGroup(
            f"g{i}",
            f"Source {i}.",
            tuple(
                Candidate(f"c{j}", f"Text {j} about {i}.", {a.name: (float(1 + (i + j) % 5),) for a in ASPECTS})
                for j in range(4)
            ),
        )
        for i in range(3)
    ),
    Origin("test", "nowhere"),
)


def dice(prompt: str, sides: int) -> int:
    return zlib.crc32(prompt.encode()) % sides


MOODY = debater(
    score=lambda prompt: str(1 + dice(prompt, 9) / 2),
    decision=lambda prompt: "NO ISSUE" if dice(prompt, 3) == 0 else "ISSUE",
    feedback=lambda prompt: f"Consider {dice(prompt, 100)}, {section(prompt, 'role')[:20]}",
    final_score=lambda prompt: str(1 + dice(prompt, 5)),
)


def variants() -> dict[str, Judge]:
    return {"plain": Debate(PLAIN, DebateConfig(3)), "strict": Debate(STRICT, DebateConfig(3))}


def every(space: Space, dev_scores: DevScores) -> Iterable[tuple[Point, Any]]:
    return ((point, dev_scores.scores(point)) for point in reversed(space.points()))


def test_all_points_are_read_off_one_debate_per_variant_and_one_tie_break_per_n(tmp_path: Path) -> None:
    space, lm = Space(("plain", "strict"), (0, 1, 2, 3), (False, True)), scripted_lm(MOODY)
    with JudgeRunner(lm, progress=False) as runner:
        dev_scores = DevScores(variants(), CORPUS, ASPECTS, runner, 3, "test")
        for _, (scores, calls) in every(space, dev_scores):
            assert set(scores) == {"clear", "sound"}
            assert [len(groups) for groups in scores.values()] == [3, 3]
            assert calls >= 1
        debates, ties = 0, 0
        items = [item for aspect in ASPECTS for item in corpus_items(CORPUS, aspect)]
        for judge in variants().values():
            transcripts = runner.converse(judge, items, 3)
            debates += sum(t.calls for t in transcripts)
            ties += sum(is_open(t.until(n)) for t in transcripts for n in (1, 2, 3))
    assert ties > 10
    # Both variants open with the same question to the same Scorer: it is paid once.
    shared = 24
    assert len(lm.prompts) == len(set(lm.prompts)) == debates - shared + ties
    # And nothing is even asked twice by the readings themselves: what was asked beyond is this test's own.
    assert lm.meter.asked.total() == 2 * debates + ties


def test_a_reading_is_what_a_debate_of_that_kind_says(tmp_path: Path) -> None:
    space = Space(("plain", "strict"), (0, 1, 2), (False, True))
    with (
        JudgeRunner(scripted_lm(MOODY), progress=False) as runner,
        JudgeRunner(scripted_lm(MOODY), progress=False) as fresh,
    ):
        dev_scores = DevScores(variants(), CORPUS, ASPECTS[:1], runner, 2, "test")
        for point, (scores, calls) in every(space, dev_scores):
            judge = variants()[point.persona].with_debate(rounds=point.rounds, tie_breaker=point.tie_breaker)
            judgements = fresh.judge(judge, corpus_items(CORPUS, ASPECTS[0]))
            assert calls == sum(j.calls for j in judgements) / 12
            reported = [ASPECTS[0].scale.at(j.score, point.granularity) for j in judgements if hasattr(j, "score")]
            assert [s for g in scores["clear"] for s in g.scores] == reported


def test_only_variants_that_were_needed_are_held(tmp_path: Path) -> None:
    with JudgeRunner(scripted_lm(MOODY), progress=False) as runner:
        dev_scores = DevScores(variants(), CORPUS, ASPECTS[:1], runner, 2, "test")
        assert not dev_scores.held
        dev_scores.scores(Point("strict", 1, False, "given"))
        assert len(dev_scores.by_rounds("strict", "clear", "spearman", "summary", seed=0)) == 3
        assert dev_scores.held == ("strict",)
