"""What would fail for every item is told before a run begins, with what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dspy
import pytest
from dspy import lm15

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.programs import build_preset
from debate_judge.programs.grouping import Question
from debate_judge.programs.judge import Judge, corpus_items
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner.preflight import PreflightCheck, longest_and_shortest, preflight, preflight_checks
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import Script, debater, requested, scripted_lm, section
from tests.programs.tables import joint_table_script, requested_cells, shown_candidates

TONE = Aspect("tone", "Is it friendly?", Scale(1, 5))
HELP = Aspect("help", "Does it help?", Scale(1, 3))
TASK = Task("notes", "letter", "note", (TONE, HELP))


def corpus(*groups: tuple[str, Sequence[str]]) -> Corpus:
    """Sources and their texts."""
    made = [
        RatedGroup(
            f"g{n}", source, tuple(Candidate(f"c{i}", text, {"tone": (1.0 + i,)}) for i, text in enumerate(texts))
        )
        for n, (source, texts) in enumerate(groups, 1)
    ]
    return Corpus(TASK, tuple(made), Origin("x", ""))


LETTERS = corpus(*((letter, [f"Note on {letter}", "Short."]) for letter in ("A letter.", "A very long letter.", "?")))


def checks(judge: Judge, on: Corpus, *aspects: Aspect) -> list[PreflightCheck]:
    return preflight_checks("judge", dict.fromkeys((aspect.name for aspect in aspects), judge), on, list(aspects))


def prompts_of(
    script: Script, name: str = "debate+tiebreak", aspects: Sequence[Aspect] = (TONE,), **options: Any
) -> list[str]:
    lm = scripted_lm(script)
    with JudgeRunner(lm, progress=False) as runner:
        preflight(runner, checks(build_preset(name, options), LETTERS, *aspects))
    return lm.prompts


def failing(error: Exception, source: str = "") -> Script:
    """An LM that raises this about sources with this text, and answers about others."""

    def script(prompt: str) -> str:
        if source in section(prompt, "source"):
            raise error
        return debater()(prompt)

    return script


TOO_LONG = lm15.ContextLengthError("prompt is too long", status=400)


def test_every_role_speaks_once_about_the_longest_item() -> None:
    prompts = prompts_of(debater())
    assert [requested(prompt)[0] for prompt in prompts] == ["rationale", "review", "reasoning"]
    assert {(section(prompt, "source"), section(prompt, "candidate")) for prompt in prompts} == {
        ("A very long letter.", "Note on A very long letter.")
    }
    assert prompts_of(debater(), "rouge-l") == []
    stand_in = make_lm("offline")
    with JudgeRunner(stand_in, progress=False) as runner:
        preflight(runner, checks(build_preset("debate", {}), LETTERS, TONE))
    assert not stand_in.meter.requested


def test_each_scale_is_tried() -> None:
    judge = build_preset("single", {})
    tried = [check.questions[0].items[0].aspect.name for check in checks(judge, LETTERS, TONE, HELP)]
    assert tried == ["help", "tone"]
    assert len(checks(judge, LETTERS, TONE, replace(TONE, name="other"))) == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [(lm15.AuthError, dspy.LMAuthError), (lm15.UnsupportedModelError, dspy.LMUnsupportedModelError)],
)
def test_a_wrong_key_and_an_unknown_model_end_it_at_the_first_call(error: Any, kind: type[Exception]) -> None:
    lm = scripted_lm(failing(error("no", status=401)))
    with JudgeRunner(lm, progress=False) as runner, pytest.raises(kind):
        preflight(runner, checks(build_preset("debate", {}), LETTERS, TONE))
    assert len(lm.prompts) == 1


def without_form(prompt: str) -> str:
    return "I like it." if "decision" in requested(prompt) else debater()(prompt)


def without_tables(prompt: str) -> str:
    """Keeps to the form of a reply about one candidate, and to no other."""
    return "They are all fine." if section(prompt, "candidates") else debater()(prompt)


@pytest.mark.parametrize(
    ("script", "options", "keywords"),
    [
        (failing(TOO_LONG), {}, ("does not fit", "'g2'", "preflight=false")),
        # One text may be at fault by itself: two items are tried, each twice.
        (without_form, {}, ("cannot play the critic", "larger or better instructed")),
        (debater(), {"name": "debate", "score_mode": "expected"}, ("log-probabilities", "score-mode sampled:20")),
        (without_tables, {"name": "single", "together": 4}, ("cannot play the scorer", "together = 0")),
        (
            without_tables,
            {"name": "single", "joint": True, "aspects": (TONE, HELP)},
            ("cannot play the scorer", "without joint"),
        ),
    ],
)
def test_what_the_lm_cannot_do_is_refused_with_what_to_do(
    script: Script, options: dict[str, Any], keywords: tuple[str, ...]
) -> None:
    calls = 0

    def counted(prompt: str) -> str:
        nonlocal calls
        calls += "decision" in requested(prompt) or bool(section(prompt, "candidates"))
        return script(prompt)

    with pytest.raises(InputError) as refused:
        prompts_of(counted, **options)
    assert [keyword for keyword in keywords if keyword not in str(refused.value)] == []
    assert calls == (4 if "cannot play" in keywords[0] else 0)


def test_one_item_that_fails_by_itself_stops_nothing() -> None:
    prompts_of(lambda prompt: "What?" if "very long" in section(prompt, "source") else debater()(prompt))
    # Of new texts a long one may be left unscored; where a judge is compiled, the longest must fit.
    questions = longest_and_shortest([Question((item,)) for item in corpus_items(LETTERS, TONE)])
    check = PreflightCheck("tone", build_preset("debate", {}), questions, longest_first=False)
    with JudgeRunner(scripted_lm(failing(TOO_LONG, "very long")), progress=False) as runner:
        preflight(runner, [check])
        with pytest.raises(InputError, match="does not fit"):
            preflight(runner, [replace(check, longest_first=True)])


@pytest.mark.parametrize(
    ("options", "source", "candidates", "cells"),
    [
        ({"together": 4}, "Letter 1.", 4, 4),
        ({"together": 4, "joint": True}, "Letter 1.", 4, 8),
        ({"joint": True}, "Letter 2.", 1, 2),
    ],
)
def test_a_table_is_tried_where_calls_are_shared(
    options: dict[str, Any], source: str, candidates: int, cells: int
) -> None:
    """That of the longest group, or where each candidate is read by itself, of the longest candidate."""
    sizes = (2, 4, 1)
    on = corpus(*((f"Letter {n}.", [f"Note {n}{i} " * (n + 1) for i in range(size)]) for n, size in enumerate(sizes)))
    lm = scripted_lm(joint_table_script(lambda *_: 2, lambda *_: "TOO LOW"))
    with JudgeRunner(lm, progress=False) as runner:
        preflight(runner, checks(build_preset("debate+tiebreak", options), on, TONE, HELP)[:1])
    assert {(section(prompt, "source"), len(shown_candidates(prompt))) for prompt in lm.prompts} == {
        (source, candidates)
    }
    assert len(lm.prompts) == 4
    assert len(requested_cells(lm.prompts[0], "scores")) == cells
