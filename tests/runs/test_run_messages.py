"""What a run says before it begins and of how far it is: checks of the LM, lines and bars of progress."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dspy
import pytest
from dspy import lm15

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.programs import build_preset
from debate_judge.programs.judge import corpus_items
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.programs.lm.replies import Reply
from debate_judge.programs.lm.settings import Price
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs import progress as shown_progress
from debate_judge.runs.progress import RunProgress, stage
from debate_judge.runs.runner import JudgeRunner, preflight
from tests.fakes import Script, debater, requested, scripted_lm, section

TONE = Aspect("tone", "Is it friendly?", Scale(1, 5))
HELP = Aspect("help", "Does it help?", Scale(1, 3))
TASK = Task("notes", "letter", "note", (TONE, HELP))


def corpus(*groups: tuple[str, Sequence[str]]) -> Corpus:
    """Sources and their texts."""

    def candidates(texts: Sequence[str]) -> tuple[Candidate, ...]:
        return tuple(Candidate(f"c{i}", text, {"tone": (1.0 + i,)}) for i, text in enumerate(texts))

    rated = (RatedGroup(f"g{n}", source, candidates(texts)) for n, (source, texts) in enumerate(groups, 1))
    return Corpus(TASK, tuple(rated), Origin("x", ""))


LETTERS = corpus(*((letter, [f"Note on {letter}", "Short."]) for letter in ("A letter.", "A very long letter.", "?")))


def check(
    lm: JudgeLM,
    name: str = "debate+tiebreak",
    on: Corpus = LETTERS,
    aspects: Sequence[Aspect] = (TONE,),
    whole: bool = True,
    **options: Any,
) -> None:
    judges = dict.fromkeys((aspect.name for aspect in aspects), build_preset(name, options))
    items = [item for aspect in aspects for item in corpus_items(on, aspect)]
    with JudgeRunner(lm, progress=False) as runner:
        preflight(runner, judges, items, name="judge", whole=whole)


def failing(error: Exception, source: str = "") -> Script:
    """An LM that raises this about sources with this text, and answers about others."""

    def script(prompt: str) -> str:
        if source in section(prompt, "source"):
            raise error
        return debater()(prompt)

    return script


TOO_LONG = lm15.ContextLengthError("prompt is too long", status=400)


def test_every_role_speaks_once_about_the_longest_item() -> None:
    lm, stand_in = scripted_lm(debater()), make_lm("offline")
    check(lm)
    assert [requested(prompt)[0] for prompt in lm.prompts] == ["rationale", "feedback", "reasoning"]
    questions = {(section(prompt, "source"), section(prompt, "candidate")) for prompt in lm.prompts}
    assert questions == {("A very long letter.", "Note on A very long letter.")}
    check(lm, "rouge-l")
    check(stand_in)
    assert (len(lm.prompts), stand_in.meter.requested.total()) == (3, 0), "neither needs to be tried"
    # Each scale is tried.
    lm = scripted_lm(debater())
    check(lm, "single", aspects=(TONE, HELP, replace(TONE, name="other")))
    assert len(lm.prompts) == 2


@pytest.mark.parametrize(
    ("error", "kind"),
    [(lm15.AuthError, dspy.LMAuthError), (lm15.UnsupportedModelError, dspy.LMUnsupportedModelError)],
)
def test_a_wrong_key_and_an_unknown_model_end_it_at_the_first_call(error: Any, kind: type[Exception]) -> None:
    lm = scripted_lm(failing(error("no", status=401)))
    with pytest.raises(kind):
        check(lm)
    assert len(lm.prompts) == 1


def without_form(prompt: str) -> str:
    return "" if "feedback" in requested(prompt) else debater()(prompt)


@pytest.mark.parametrize(
    ("script", "options", "keywords", "calls"),
    [
        (failing(TOO_LONG), {}, ("does not fit", "'g2'", "--no-preflight"), 1),
        # One text may be at fault by itself: two items are tried, the role twice each.
        (without_form, {}, ("cannot play the critic", "larger or instruction-tuned"), 2 + 4),
        (debater(), {"name": "debate", "score_mode": "expected"}, ("log-probabilities", "score-mode sampled:20"), 1),
    ],
)
def test_what_the_lm_cannot_do_is_refused_with_what_to_do(
    script: Script, options: dict[str, Any], keywords: tuple[str, ...], calls: int
) -> None:
    lm = scripted_lm(script)
    with pytest.raises(InputError) as refused:
        check(lm, **options)
    assert [keyword for keyword in keywords if keyword not in str(refused.value)] == []
    assert len(lm.prompts) == calls


def test_one_item_that_fails_by_itself_stops_nothing() -> None:
    check(scripted_lm(lambda prompt: "What?" if "very long" in section(prompt, "source") else debater()(prompt)))
    # Of new texts a long one may be left unscored; where a judge is compiled, the longest must fit.
    lm = scripted_lm(failing(TOO_LONG, "very long"))
    check(lm, on=replace(LETTERS, groups=LETTERS.groups[1:]), whole=False)
    with pytest.raises(InputError, match="does not fit"):
        check(lm)


def test_the_lm_is_tried_on_a_harmless_text_where_those_of_the_data_are_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    forbidden = lm15.InvalidRequestError("forbidden", status=422)
    check(scripted_lm(failing(forbidden, "etter")), on=corpus(("A letter.", ["Note."]), ("Letters.", ["Note."])))
    assert "will have no score: LMInvalidRequestError" in caplog.text
    with pytest.raises(InputError, match="cannot play the scorer: lm error"):
        check(scripted_lm(lambda prompt: "OK" if "Reply with OK" in prompt else failing(forbidden)(prompt)))


# --- progress ---


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [False, True])
def test_a_terminal_has_a_bar_and_a_file_a_line_of_phase_calls_and_money(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown_progress, "BAR_DELAY", 0.0)
    monkeypatch.setattr(shown_progress, "FIRST_LINE", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    lm = scripted_lm(debater())
    lm.price = Price(100.0, 100.0, 0.0)
    progress = RunProgress(lm, visible=True)
    with progress, stage("fluency: search, debates dev"), progress.track("fluency: n=1\n", 30) as items:
        lm.meter.requested["scorer"] += 1
        lm.meter.count_reply("scorer", Reply("4", 14_000, 0, 100))
        items.advance()
        assert progress.text() == "search · 1 LM calls, $1.40 · fluency: n=1?: 1 of 30"
        while "search" not in stream.getvalue():
            pass
        print("printed meanwhile", file=sys.stderr)
    assert sys.stderr is stream
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", stream.getvalue())
    assert "printed meanwhile\n" in text
    assert ("━" in text) == terminal
    assert "\x1b[?25l" not in stream.getvalue(), "a run that is killed would leave the terminal without a cursor"
