"""What would fail for every item is told before a run begins, with what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import dspy
import pytest
from dspy import lm15

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.programs import build_preset
from debate_judge.programs.grouping import Question
from debate_judge.programs.judge import Item, Judge, corpus_items
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner.preflight import PreflightCheck, longest_and_shortest, preflight, preflight_checks
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import ScriptedLM, debater, requested, scripted_lm, section
from tests.programs.tables import joint_table_script, requested_cells
from tests.programs.tables import shown_candidates as shown_in

TONE = Aspect("tone", "Is it friendly?", Scale(1, 5))
HELP = Aspect("help", "Does it help?", Scale(1, 3))
TASK = Task("notes", "letter", "note", (TONE, HELP))


def alone(items: Sequence[Item]) -> list[Question]:
    return [Question((item,)) for item in items]


def corpus() -> Corpus:
    def group(name: str, source: str) -> RatedGroup:
        candidates = (Candidate("a", f"Note on {source}", {"tone": (1.0,)}), Candidate("b", "Short.", {"tone": (2.0,)}))
        return RatedGroup(name, source, candidates)

    return Corpus(
        TASK, (group("g1", "A letter."), group("g2", "A very long letter."), group("g3", "?")), Origin("x", "")
    )


def of_one(name: str, judge: Judge, about: Corpus, aspects: list[Aspect]) -> list[PreflightCheck]:
    """The trials of a judge of all aspects."""
    return preflight_checks(name, dict.fromkeys((aspect.name for aspect in aspects), judge), about, aspects)


def check(lm: ScriptedLM, name: str = "debate+tiebreak", **options: str) -> None:
    with JudgeRunner(lm, progress=False) as runner:
        preflight(runner, of_one(name, build_preset(name, options), corpus(), [TONE]))


def test_every_role_speaks_once_about_the_longest_item() -> None:
    lm = scripted_lm(debater())
    check(lm)
    assert [requested(prompt)[0] for prompt in lm.prompts] == ["rationale", "review", "reasoning"]
    assert {section(prompt, "source") for prompt in lm.prompts} == {"A very long letter."}
    assert {section(prompt, "candidate") for prompt in lm.prompts} == {"Note on A very long letter."}


def test_the_offline_stand_in_and_judges_without_roles_are_not_tried() -> None:
    lm = make_lm("offline")
    with JudgeRunner(lm, progress=False) as runner:
        preflight(runner, of_one("debate", build_preset("debate", {}), corpus(), [TONE]))
        assert not lm.meter.requested
    silent = scripted_lm(debater())
    check(silent, "rouge-l")
    assert not silent.prompts


def raises(error: Callable[[], Exception]) -> Callable[[str], str]:
    def script(prompt: str) -> str:
        raise error()

    return script


def test_a_wrong_key_and_an_unknown_model_end_it_at_the_first_call() -> None:
    for error, kind in ((lm15.AuthError, dspy.LMAuthError), (lm15.UnsupportedModelError, dspy.LMUnsupportedModelError)):
        lm = scripted_lm(raises(lambda error=error: error("no", status=401)))  # type: ignore[misc]
        with pytest.raises(kind):
            check(lm)
        assert len(lm.prompts) == 1


def test_a_context_that_is_too_small_names_the_group_and_the_room_that_is_needed() -> None:
    def script(prompt: str) -> str:
        raise lm15.ContextLengthError("prompt is too long", status=400)

    with pytest.raises(InputError, match="does not fit") as raised:
        check(scripted_lm(script))
    assert "'g2'" in str(raised.value)
    assert "preflight=false" in str(raised.value)


def test_replies_without_form_name_the_role_that_cannot_be_played() -> None:
    plain = debater()
    lm = scripted_lm(lambda prompt: "I like it." if "decision" in requested(prompt) else plain(prompt))
    with pytest.raises(InputError, match="cannot play the critic") as raised:
        check(lm)
    assert "larger or better instructed" in str(raised.value)
    # Two items were tried, the Critic of each asked twice: one text may be at fault by itself.
    assert sum("decision" in requested(prompt) for prompt in lm.prompts) == 4


def test_of_new_texts_a_long_one_stops_nothing() -> None:
    def script(prompt: str) -> str:
        if "very long" in section(prompt, "source"):
            raise lm15.ContextLengthError("prompt is too long", status=400)
        return debater()(prompt)

    questions = longest_and_shortest(alone(corpus_items(corpus(), TONE)))
    with JudgeRunner(scripted_lm(script), progress=False) as runner:
        preflight(runner, [PreflightCheck("tone", build_preset("debate", {}), questions, longest_first=False)])
        with pytest.raises(InputError, match="does not fit"):
            preflight(runner, [PreflightCheck("tone", build_preset("debate", {}), questions)])


def test_one_item_that_fails_by_itself_stops_nothing() -> None:
    plain = debater()
    lm = scripted_lm(lambda prompt: "What?" if "very long" in section(prompt, "source") else plain(prompt))
    check(lm)


def test_expected_scores_without_probabilities_are_told_with_the_other_modes() -> None:
    with pytest.raises(InputError, match="log-probabilities") as raised:
        check(scripted_lm(debater()), "debate", score_mode="expected")
    assert "score-mode sampled:20" in str(raised.value)


def test_each_scale_is_tried() -> None:
    both = replace(corpus(), groups=corpus().groups[:1])
    found = of_one("single", build_preset("single", {}), both, [TONE, HELP])
    assert [t.questions[0].items[0].aspect.name for t in found] == ["help", "tone"]
    assert len(of_one("single", build_preset("single", {}), both, [TONE, replace(TONE, name="other")])) == 1


# --- judges whose calls are shared ---


def broken(prompt: str) -> str:
    """An LM that keeps to the form of a reply about one candidate, and to no other."""
    return "They are all fine." if section(prompt, "candidates") else debater()(prompt)


def of_groups(*sizes: int) -> Corpus:
    """One group of each size; candidates of the second are the longest."""
    return replace(
        corpus(),
        groups=tuple(
            RatedGroup(
                f"g{n}",
                f"Letter {n}.",
                tuple(
                    Candidate(f"c{i}", f"Note {n}{i} " * (n + 1), {"tone": (1.0,), "help": (2.0,)}) for i in range(size)
                ),
            )
            for n, size in enumerate(sizes)
        ),
    )


@pytest.mark.parametrize(
    ("options", "source", "shown_candidates", "cells"),
    [
        ({"together": 4}, "Letter 1.", 4, 4),
        ({"together": 4, "joint": True}, "Letter 1.", 4, 8),
        ({"joint": True}, "Letter 2.", 1, 2),
    ],
)
def test_a_table_is_tried_where_calls_are_shared(
    options: dict[str, Any], source: str, shown_candidates: int, cells: int
) -> None:
    """That of the longest group, or where each candidate is read by itself, of the longest candidate."""
    lm = scripted_lm(joint_table_script(lambda *_: 2, lambda *_: "TOO LOW"))
    judge = build_preset("debate+tiebreak", options)
    with JudgeRunner(lm, progress=False) as runner:
        preflight(runner, of_one("debate", judge, of_groups(2, 4, 1), [TONE, HELP])[:1])
    assert [requested(prompt)[-1] for prompt in lm.prompts][:1] == ["scores"]
    assert len(lm.prompts) == 4
    for prompt in lm.prompts:
        assert section(prompt, "source") == source
        assert len(shown_in(prompt)) == shown_candidates
    assert len(requested_cells(lm.prompts[0], "scores")) == cells


@pytest.mark.parametrize("options", [{"together": 4}, {"joint": True}])
def test_an_lm_that_cannot_keep_the_form_of_a_table_is_told_before_anything_is_spent(options: dict[str, Any]) -> None:
    lm = scripted_lm(broken)
    judge = build_preset("single", options)
    with JudgeRunner(lm, progress=False) as runner, pytest.raises(InputError) as told:
        preflight(runner, of_one("single", judge, of_groups(2, 4, 3), [TONE, HELP]))
    assert "cannot play the scorer" in str(told.value)
    assert "together = 0 and without joint" in str(told.value)
    # The longest table and the shortest, each twice.
    assert len(lm.prompts) == 4
