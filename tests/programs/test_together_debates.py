"""Debates about several candidates: which of them go on, and what a trace tells of each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from dspy import lm15

from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, Verdict
from debate_judge.programs.transcript import Transcript
from tests.fakes import requested, scripted_lm, section
from tests.programs.debates import hold
from tests.programs.tables import judged, or_alone, reading, shown, table_judge, values, wanted
from tests.programs.test_joint import THREE, limited
from tests.programs.test_together import FOUR, by_text, number_of


def disputing(*texts: str) -> Callable[[str, str], str | None]:
    return lambda prompt, text: "TOO LOW" if text in texts else None


def test_only_what_is_disputed_is_revised_and_debated_further() -> None:
    def score(prompt: str, text: str) -> float:
        # In a revision all scores are given anew, those that nobody disputes too.
        return by_text(prompt, text) + (0.5 if section(prompt, "debate") else 0)

    def issues(prompt: str, text: str) -> str | None:
        later = "Critic, round 1" in section(prompt, "debate")
        return "TOO LOW" if text == "two" or (text == "three" and not later) else None

    judgements, lm = judged(table_judge(2, tie_breaker=True), reading(score, issues), FOUR)
    assert values(judgements) == [1, 2.5, 3.5, 4]
    assert [(j.rounds, j.stop_reason) for j in judgements if isinstance(j, Verdict)] == [
        (1, "no issue"), (2, "tie-breaker"), (2, "no issue"), (1, "no issue"),
    ]  # fmt: skip
    first = lm.prompts[0]
    two, three = number_of(first, "two"), number_of(first, "three")
    kinds = [[name for name in requested(p) if not name.startswith("candidate")] for p in lm.prompts]
    assert kinds == [["scores"], ["review", "decisions"]] * 2 + [["scores"], ["final_scores"]]
    assert sorted(wanted(lm.prompts[3], "decisions")) == sorted([two, three])
    assert sorted(wanted(lm.prompts[2], "scores")) == [1, 2, 3, 4]
    assert wanted(lm.prompts[5], "final_scores") == [two]
    # Scorer and Critic 1/4 each, the revision of two 1/2, their second review 1/2, then one alone: 1 and 1.
    assert [j.calls for j in judgements] == [0.5, 3.5, 1.5, 0.5]
    assert sum(j.calls for j in judgements) == len(lm.prompts) == 6
    told = section(lm.prompts[3], "debate").split("\n")
    order = [1, 2, 3, 4, 1, 2, 3, 4, *sorted([two, three])]
    assert [int(line.removeprefix("candidate_").partition(":")[0]) for line in told] == order
    assert f"candidate_{two}: Critic, round 1: Too low. It says two" in told
    assert "Scorer, round 1, score 2.5" in told[-2] + told[-1]


@pytest.mark.parametrize(("cut_in", "left"), [(1, 2), (2, 2), (2, 1)])
@pytest.mark.parametrize("joint", [False, True])
def test_a_table_that_is_cut_late_is_read_at_a_smaller_n_as_if_held_so_far_alone(
    joint: bool, cut_in: int, left: int
) -> None:
    """The context holds the whole table until a round, and from then on `left` candidates."""
    items = THREE if joint else FOUR
    judge = Debate(debate_config=DebateConfig(2, tie_breaker=True), together=8, joint=joint)
    honest = limited(99) if joint else or_alone(reading(by_text, disputing("one", "two", "three")))

    def script(prompt: str) -> str:
        if f"Critic, round {cut_in}" in section(prompt, "debate") and len(shown(prompt)) > left:
            raise lm15.ContextLengthError("prompt is too long", status=400)
        return honest(prompt)

    def held(n: int, transcripts: list[Transcript] | None = None) -> tuple[list[Transcript], list[Transcript], int]:
        lm = scripted_lm(script)
        told = transcripts or hold(lm, judge.converse(items, n))
        return told, hold(lm, judge.break_ties(items, told)), len(lm.prompts)

    longest, _, _ = held(2)
    assert {t.until(cut_in - 1).together for t in longest} == {len(items) // (2 if joint else 1)}
    assert min(t.together for t in longest) <= left
    for n in (0, 1, 2):
        straight, settled, _ = held(n)
        read, from_longest, calls = held(n, [t.until(n) for t in longest])
        assert read == straight
        assert from_longest == settled
        assert sum(t.calls for t in settled) == pytest.approx(sum(t.calls for t in read) + calls)
