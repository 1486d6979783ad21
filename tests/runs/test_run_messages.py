"""What a run says before it begins and of how far it is: checks of the LM, lines and bars of progress."""

from __future__ import annotations

import io
import logging
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
from debate_judge.programs.grouping import Question
from debate_judge.programs.judge import Judge, corpus_items
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner.judge_usage import stage
from debate_judge.runs.runner.preflight import PreflightCheck, longest_and_shortest, preflight, preflight_checks
from debate_judge.runs.runner.progress import FIRST_REPLY_DELAY, LINE_INTERVAL, RunPhase, RunProgress
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import Script, debater, requested, scripted_lm, section
from tests.programs.tables import shown_candidates, table_script

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


def checks(judge: Judge, on: Corpus, aspects: Sequence[Aspect]) -> list[PreflightCheck]:
    return preflight_checks("judge", dict.fromkeys((aspect.name for aspect in aspects), judge), on, aspects)


def check(
    lm: JudgeLM,
    name: str = "debate+tiebreak",
    on: Corpus = LETTERS,
    aspects: Sequence[Aspect] = (TONE,),
    **options: Any,
) -> None:
    with JudgeRunner(lm, progress=False) as runner:
        preflight(runner, checks(build_preset(name, options), on, aspects))


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
    single, same_scale = build_preset("single", {}), replace(TONE, name="other")
    tried = [check.questions[0].items[0].aspect.name for check in checks(single, LETTERS, (TONE, HELP, same_scale))]
    assert sorted(tried) == ["help", "tone"]


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
        (failing(TOO_LONG), {}, ("does not fit", "'g2'", "preflight=false"), 1),
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
    questions = longest_and_shortest([Question((item,)) for item in corpus_items(LETTERS, TONE)])
    trial = PreflightCheck("tone", build_preset("debate", {}), questions, longest_first=False)
    with JudgeRunner(scripted_lm(failing(TOO_LONG, "very long")), progress=False) as runner:
        preflight(runner, [trial])
        with pytest.raises(InputError, match="does not fit"):
            preflight(runner, [replace(trial, longest_first=True)])


def test_a_table_of_the_longest_group_is_tried_where_calls_are_shared() -> None:
    sizes = (2, 4, 1)
    on = corpus(*((f"Letter {n}.", [f"Note {n}{i} " * (n + 1) for i in range(size)]) for n, size in enumerate(sizes)))
    lm = scripted_lm(table_script(lambda *_: 2, lambda *_: "Too low."))
    check(lm, on=on, aspects=(TONE,), together=4)
    questions = [(section(prompt, "source"), len(shown_candidates(prompt))) for prompt in lm.prompts]
    assert questions[:2] == [("Letter 1.", 4)] * 2


# --- progress ---

PHASES = [RunPhase("tuning", 0.2, 2), RunPhase("search", 0.6, 3), RunPhase("held-out", 0.2, 1)]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def progress(clock: Clock) -> RunProgress:
    """The progress of a run whose calls cost 10 cents."""
    lm = scripted_lm(debater())
    lm.price = Price(100.0, 100.0, 0.0)
    progress = RunProgress(lm, visible=False, clock=clock)
    progress.start()
    return progress


def figures(line: str) -> list[str]:
    return re.findall(r"\d+(?:\.\d+)?", line)


def spend(progress: RunProgress, calls: int) -> None:
    for _ in range(calls):
        progress.lm.meter.count_request("scorer")
        progress.lm.meter.count_reply("scorer", Reply("4", 1000, 0, 100))


def visible(text: str) -> str:
    """What has been written, without what steers the terminal."""
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)


def test_step_items_agreement_calls_money_and_time_in_one_text_as_wide_as_the_terminal(
    progress: RunProgress, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    stream = io.StringIO()
    progress.phases = PHASES
    progress.best_value = 0.617
    with stage("fluency: tuning"), progress.track("guides", 4):
        pass
    with stage("fluency: search, debates dev"):
        for _ in range(2):
            with progress.track("debates", 10):
                pass
        with progress.track("fluency: n=1", 10) as items:
            for _ in range(5):
                items.advance()
            spend(progress, 14)
            clock.now += 70
            # Of the search 2.5 of 3 passes: .2 + .6 * 2.5 / 3 = .7 of the work in 70 s.
            assert progress.share == pytest.approx(0.7)
            assert figures(progress.line()) == ["2", "3", "0.62", "14", "20", "1.40", "2.00", "30", "1", "5", "10"]
            progress.tick(stream, terminal=True)
    progress.stop()
    assert max(map(len, visible(stream.getvalue()).splitlines())) <= 60
    text = " ".join(visible(stream.getvalue()).split())
    parts = ("step 2 of 3, search", "14 LM calls of about 20", "$1.40 of about $2.00", "30 s left", "5 of 10")
    assert [part for part in parts if part not in text] == []


def test_passes_without_phases_are_extrapolated_one_by_one(progress: RunProgress, clock: Clock) -> None:
    with progress.track("judges", 10):
        spend(progress, 40)
        clock.now += 100
    with progress.track("ablations", 10) as items:
        for _ in range(5):
            items.advance()
        spend(progress, 20)
        clock.now += 30
        assert figures(progress.line()) == ["60", "80", "6.00", "8.00", "30", "5", "10"]


def test_the_share_never_falls_and_steps_go_forwards(progress: RunProgress) -> None:
    shares = []
    progress.phases = PHASES
    for name in ("a: tuning", "a: search, debates dev", "b: tuning", "a: held-out", "a: search, debates dev", "odd"):
        with stage(name), progress.track(name, 2) as items:
            items.advance()
            shares.append(progress.share)
    assert shares == sorted(shares)
    assert progress.line().startswith("step 3 of 3, held-out")
    assert progress.share == pytest.approx(1.0)


def test_lines_come_now_and_then_where_there_is_no_terminal(progress: RunProgress, clock: Clock) -> None:
    stream = io.StringIO()
    clock.now += 8
    progress.tick(stream, terminal=False)
    assert stream.getvalue() == "", "nothing has been asked"
    progress.lm.meter.count_request("scorer")
    for _ in range(12):
        progress.tick(stream, terminal=False)
        clock.now += 1
    (waiting,) = stream.getvalue().splitlines()
    assert f"{progress.lm.model} ({FIRST_REPLY_DELAY:.0f} s)" in waiting
    with progress.track("scoring", 10) as items:
        items.advance()
        spend(progress, 1)
        assert "waiting" not in progress.line()
        for _ in range(2 * int(LINE_INTERVAL)):
            clock.now += 1
            progress.tick(stream, terminal=False)
    lines = stream.getvalue().splitlines()[1:]
    assert len(lines) == 2
    assert all("1 of 10" in line for line in lines)


def test_on_a_terminal_one_bar_is_drawn_again_and_again(
    progress: RunProgress, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    stream = io.StringIO()
    progress.phases = PHASES
    with stage("a: search, debates dev"), progress.track("debates", 4) as items:
        progress.tick(stream, terminal=True)
        assert stream.getvalue() == "", "what is over at once needs no bar"
        clock.now += 3
        for _ in range(2):
            items.advance()
            spend(progress, 1)
            progress.tick(stream, terminal=True)
        before = stream.getvalue()
        progress.tick(stream, terminal=True)
        assert stream.getvalue() == before, "nothing is drawn where nothing is new"
    progress.stop()
    assert " 30% " in visible(stream.getvalue()), "half a pass of three: .2 + .6 / 6"
    assert (before.count("\n"), before.count("\x1b[1A")) == (2, 1), "two lines, drawn over the two before"
    assert "\x1b[?25l" not in stream.getvalue(), "a run that is killed would leave the terminal without a cursor"


def test_what_is_written_meanwhile_stands_above_the_bar(
    progress: RunProgress, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    handler = logging.StreamHandler(stream)
    # A handler of a library, and the one that looks for the stream anew.
    for library in (handler, logging.lastResort):
        logging.getLogger("of.a.library").addHandler(library)
    with progress.track("debates", 4):
        clock.now += 3
        progress.tick(stream, terminal=True)
        for write in (
            lambda: handler.emit(logging.makeLogRecord({"msg": "logged [/x] by a library"})),
            lambda: print("printed", file=sys.stderr),
        ):
            before = len(stream.getvalue())
            write()
            # The bar is erased, the line written whole, and the bar drawn below it.
            erased, _, text = stream.getvalue()[before:].partition("\x1b[2K")
            assert erased.strip("\r") == ""
            assert re.search(r"(logged \[/x\] by a library|printed)\n(.*\n)*.*debates: 0 of 4", visible(text))
    progress.stop()
    assert sys.stderr is handler.stream is stream
    logging.getLogger("of.a.library").handlers.clear()
