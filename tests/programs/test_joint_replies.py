"""What is read of a reply about several aspects, and what is done where none comes or too much is asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from debate_judge.programs.judge import Unscored
from tests.fakes import debater, requested, section
from tests.programs.joint_cells import HONEST, THREE, TRUE, limited, name_of, true
from tests.programs.tables import joint_judge, judged, reply_limits, shown, values, wanted_cells


def line_of(prompt: str, text: str, aspect: str) -> str:
    return f"{name_of(prompt, text, aspect)}: {true(prompt, text, aspect):g}"


# --- what is read of a reply ---


def instead(text: str, aspect: str, line: str) -> Callable[[str, str], str]:
    """Another line for a cell; `line` has its name in place of {}."""
    return lambda prompt, reply: reply.replace(
        line_of(prompt, text, aspect), line.format(name_of(prompt, text, aspect))
    )


def test_what_stays_unreadable_leaves_its_cell_unscored_and_no_other() -> None:
    alone = debater(score="great")

    def script(prompt: str) -> str:
        if section(prompt, "candidate"):
            return alone(prompt)
        reply = HONEST(prompt)
        return instead("three", "coherence", "{}: great")(prompt, reply) if "scores" in requested(prompt) else reply

    judgements, lm = judged(joint_judge(1), script, THREE)
    assert values(judgements) == [*TRUE[:2], "unreadable reply", *TRUE[3:]]
    lost = judgements[2]
    assert isinstance(lost, Unscored)
    assert lost.detail.startswith("scorer, round 0: no score could be found")
    assert "[kept as " in lost.detail
    # It is no longer debated, and the other aspect of the same candidate is: alone, as the table was divided.
    debated = [prompt for prompt in lm.prompts if {"decision", "decisions"} & set(requested(prompt))]
    tables = [prompt for prompt in debated if "three" in shown(prompt).values()]
    assert not [p for p in tables if name_of(p, "three", "coherence") in wanted_cells(p, "decisions")]
    aspects = [section(p, "aspect").partition(" (")[0] for p in debated if section(p, "candidate") == "three"]
    assert aspects == ["plain style"]


@pytest.mark.parametrize(
    ("most", "shape", "calls"),
    # Whole; a pair and one; then candidates by themselves; then every cell alone.
    [(6, {(3, 2)}, 1), (4, {(1, 2), (2, 2)}, 3), (2, {(1, 2)}, 5), (1, {(1, 1)}, 11)],
)
def test_what_is_too_long_is_cut_between_candidates_and_then_between_aspects(
    most: int, shape: set[tuple[int, int]], calls: int
) -> None:
    judgements, lm = judged(joint_judge(), limited(most), THREE)
    assert values(judgements) == TRUE
    assert {(j.transcript.together, j.transcript.joint) for j in judgements} == shape
    assert len(lm.prompts) == calls
    assert sum(j.calls for j in judgements) == pytest.approx(calls)


@pytest.mark.parametrize(("limit", "given"), [(2000, 2000), (300, 900), (None, None)])
def test_a_reply_about_several_cells_has_room_for_all(limit: int | None, given: int | None) -> None:
    assert reply_limits(joint_judge(), THREE, limit) == [given]


@pytest.mark.parametrize(("most", "parts", "tried"), [(6, 1, 0), (4, 2, 1), (2, 3, 2), (1, 6, 5)])
def test_later_turns_and_the_tie_breaker_keep_to_the_parts(most: int, parts: int, tried: int) -> None:
    judgements, lm = judged(joint_judge(1, tie_breaker=True), limited(most), THREE)
    assert values(judgements) == TRUE
    # Opening, review, revision and tie-break of each part, and once what was too long.
    assert len(lm.prompts) == tried + 4 * parts
    assert sum(j.calls for j in judgements) == pytest.approx(len(lm.prompts))
