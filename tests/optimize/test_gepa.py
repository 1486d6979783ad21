"""GEPA: what it finds, what the reflecting LM is shown, that it goes on where it stopped, and what ends it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy import lm15

from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.examples import examples
from debate_judge.optimize.tuners import TUNERS, Effort, GuideLimits, Tuning, as_tuned
from debate_judge.optimize.tuners.guide import guide_of
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import STRICT
from debate_judge.programs.judge import DebateConfig, Judge
from debate_judge.programs.lm.reply import Memory, Reply
from debate_judge.programs.roles.guide import HEADING
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import ScriptedLM, debater, scripted_lm, section

ASPECT = Aspect("charm", "Whether it charms. 1 not at all, 5 very much.", Scale(1, 5))
GUIDE = "Raters have habits."
STORY = "of an old lighthouse keeper and his seven cats in winter"


def corpus(sources: int = 9) -> Corpus:
    """Candidates end in a number from 0 to 3; raters give one more."""
    groups = tuple(
        RatedGroup(
            f"g{g}",
            f"source number {g} tells {STORY}",
            tuple(Candidate(f"c{c}", f"text {g} {c}", {"charm": (float(c + 1),)}) for c in range(4)),
        )
        for g in range(sources)
    )
    return Corpus(Task("toy", "question", "answer", (ASPECT,)), groups, Origin("toy", "toy.jsonl"))


def asks_for_instructions(prompt: str) -> bool:
    return "[[ ## examples_with_feedback ## ]]" in prompt


class Mind:
    """Writes a guide and instructions, and plays all roles.

    The Scorer gives 2 to all, but where its task says `large` what the raters give. The Critic moves the score of
    candidates 0 and 3 to 1 in the first round, and of all others to 3 in the second.
    """

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.shown: list[str] = []
        """The requests for instructions."""

    def __call__(self, prompt: str) -> str:
        if asks_for_instructions(prompt):
            self.shown.append(prompt)
            text = self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]
            return f"[[ ## new_instruction ## ]]\n{text}\n\n[[ ## completed ## ]]"
        if "[[ ## rated ## ]]" in prompt:
            return f"[[ ## analysis ## ]]\nNothing.\n\n[[ ## guide ## ]]\n{GUIDE}\n\n[[ ## completed ## ]]"
        number = int(section(prompt, "candidate").split()[-1])
        spoken = section(prompt, "debate").count("Critic, round")
        if "large" in section(prompt, "standard"):
            return debater(score=str(number + 1), decision="NO ISSUE")(prompt)
        score = (2, 1 if number in (0, 3) else 2, 1 if number in (0, 3) else 3)[spoken]
        return debater(score=str(score), decision="ISSUE")(prompt)


def start(rounds: int = 2) -> Debate:
    return Debate(STRICT, DebateConfig(rounds))


def tuned(lm: ScriptedLM, judge: Judge | None = None, *, sources: int = 9, trials: int = 6, **values: Any) -> Judge:
    with JudgeRunner(lm, progress=False) as runner:
        found = TUNERS["gepa"](
            Tuning(
                judge=judge or start(),
                examples=examples(corpus(sources), [ASPECT], grouped=True, seed=0),
                statistic="spearman",
                feedback=None,
                runner=runner,
                reflection=lm,
                personas={},
                effort=Effort(1, trials),
                label="charm",
                **{"seed": 0, **values},
            )
        )
    return as_tuned(found).judge


def shown(prompt: str) -> list[dict[str, Any]]:
    """The calls that a request for instructions shows, with what is said about each."""
    text = section(prompt, "examples_with_feedback").partition("\n\nRespond with")[0]
    found: list[dict[str, Any]] = json.loads(text)
    return found


def test_instructions_that_agree_with_the_raters_are_found_and_the_guide_is_kept() -> None:
    judge = start()
    before = judge.instructions()
    found = tuned(scripted_lm(Mind("Prefer what is large.")), judge)
    text = found.instructions()["scorer.predict"]
    assert text.startswith("Prefer what is large.")
    assert guide_of(found) == GUIDE
    assert judge.instructions() == before
    assert found.debate_config == judge.debate_config
    assert found.instructions()["tie_breaker.predict"] == before["tie_breaker.predict"]


def test_it_starts_from_the_guide_and_returns_that_where_nothing_is_better() -> None:
    mind = Mind("No help at all.")
    found = tuned(scripted_lm(mind))
    assert guide_of(found) == GUIDE
    assert found.instructions()["critic.predict"] == STRICT.text
    assert mind.shown
    assert all(GUIDE in prompt for prompt in mind.shown if "You are the Scorer" in prompt)
    without = {name: text.partition(HEADING)[0].rstrip() for name, text in found.instructions().items()}
    assert without == start().instructions()


def test_each_call_is_shown_with_what_came_of_that_very_call() -> None:
    mind = Mind("No help at all.")
    tuned(scripted_lm(mind), trials=20)
    seen: Counter[tuple[str, int]] = Counter()
    for call in (call for prompt in mind.shown for call in shown(prompt)):
        number = int(call["Inputs"]["candidate"].split()[-1])
        rating, spoken = number + 1.0, call["Inputs"].get("debate", "").count("Critic, round")
        scores = [2.0, 1.0 if number in (0, 3) else 2.0, 1.0 if number in (0, 3) else 3.0]
        first = call["Feedback"].splitlines()[0]
        role = "critic" if "decision" in call["Generated Outputs"] else "scorer"
        seen[role, spoken] += 1
        if role == "scorer" and spoken == 0:
            assert first.startswith("The score 2 is ")
            assert first.endswith(f"raters' mean {'of' if rating == 2 else 'is'} {rating:.2f}.")
        elif role == "scorer":
            before, after = scores[spoken - 1 : spoken + 1]
            if before == after:
                assert first.startswith(f"After the critique the score stayed at {after:g}, ")
            else:
                verb = "rightly followed" if abs(after - rating) < abs(before - rating) else "should not have followed"
                assert first.startswith(f"The Scorer {verb} the critique: the score went from {before:g} to {after:g}")
        else:
            before = scores[spoken]
            due = abs(before - rating) > 0.5
            assert first.startswith("An issue was to be raised" if due else "NO ISSUE would have been right")
            assert f"the score {before:g} was " in first
    assert set(seen) == {("scorer", 0), ("scorer", 1), ("scorer", 2), ("critic", 0), ("critic", 1)}


def test_what_all_calls_read_is_shown_with_the_first_alone() -> None:
    mind = Mind("No help at all.")
    tuned(scripted_lm(mind))
    for prompt in mind.shown:
        first, *others = (call["Inputs"] for call in shown(prompt))
        assert {"standard", "role", "aspect", "source", "candidate"} <= set(first)
        assert others
        assert all("standard" not in inputs and "aspect" not in inputs for inputs in others)
        assert all({"source", "candidate"} <= set(inputs) for inputs in others)


def test_proposals_are_kept_by_sources_that_they_were_not_written_from() -> None:
    mind = Mind("No help at all.")
    tuned(scripted_lm(mind), sources=12, trials=12)
    reflected = {int(n) for prompt in mind.shown for n in re.findall(r"source number (\d+)", prompt)}
    assert len(reflected) == 6
    lm = scripted_lm(Mind("Prefer what is large."))
    tuned(lm, sources=12)
    new = [prompt for prompt in lm.prompts if "large" in section(prompt, "standard")]
    assert {int(section(prompt, "candidate").split()[1]) for prompt in new} >= set(range(12)) - reflected


def test_instructions_quote_no_text_and_a_guide_keeps_its_limit() -> None:
    text = f"Prefer what is large. Think {STORY}. Be brief.\n\n{HEADING}\nRate large high. {'Many words here. ' * 9}"
    found = tuned(scripted_lm(Mind(text)), guide=GuideLimits(words=8))
    told = found.instructions()["scorer.predict"]
    assert "lighthouse" not in told
    assert "Prefer what is large." in told
    assert "Be brief." in told
    kept = tuned(scripted_lm(Mind("Prefer what is large.\n\n1. Be brief. Be kind.\n2. Be fair.")))
    assert kept.instructions()["scorer.predict"].startswith(
        "Prefer what is large.\n\n1. Be brief. Be kind.\n2. Be fair."
    )
    assert guide_of(found).split() == ["Rate", "large", "high.", "Many", "words", "here."]


def test_a_reply_without_instructions_is_one_attempt_less() -> None:
    class Mute(Mind):
        def __call__(self, prompt: str) -> str:
            super().__call__(prompt) if asks_for_instructions(prompt) else None
            return "no fields here" if asks_for_instructions(prompt) else super().__call__(prompt)

    mind = Mute("unused")
    assert guide_of(tuned(scripted_lm(mind), trials=3)) == GUIDE
    assert mind.shown


def test_equal_seeds_find_the_same_and_ask_the_same() -> None:
    asked = []
    for _ in range(2):
        lm = scripted_lm(Mind("Be bold.", "Prefer what is large.", "Be shy."), latency=0.001)
        asked.append((tuned(lm, seed=3).instructions(), Counter(lm.prompts)))
    assert asked[0] == asked[1]


# --- stopping ---


class Stopping:
    """A mind that dies once at its n-th reply."""

    def __init__(self, mind: Callable[[str], str], number: int, error: BaseException) -> None:
        self.mind, self.left, self.error = mind, number, error

    def __call__(self, prompt: str) -> str:
        self.left -= 1
        if self.left == 0:
            raise self.error
        return self.mind(prompt)


def by_attempt(prompt: str) -> str:
    """Instructions that get better with the attempt, so that candidates descend from one another."""
    if not asks_for_instructions(prompt):
        return Mind("")(prompt)
    attempt = int(re.findall(r"This is attempt (\d+)", prompt)[0])
    text = "Prefer what is large." if attempt > 2 else f"Be bold, {attempt}."
    return f"[[ ## new_instruction ## ]]\n{text}\n\n[[ ## completed ## ]]"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], list[str]]:
    """What a run that nothing stops finds and asks."""
    lm = scripted_lm(by_attempt)
    found = tuned(lm, folder=tmp_path_factory.mktemp("whole"))
    return found.instructions(), lm.prompts


class CountingMemory(Memory):
    def __init__(self) -> None:
        super().__init__()
        self.kept = 0

    def put(self, key: str, role: str, reply: Reply) -> None:
        self.kept += 1
        super().put(key, role, reply)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.8, 0.95])
def test_it_goes_on_where_an_outage_stopped_it_to_the_same_result(
    tmp_path: Path, whole: tuple[dict[str, str], list[str]], share: float
) -> None:
    expected, needed = whole
    store, folder = CountingMemory(), tmp_path / "stopped"
    script = Stopping(by_attempt, int(share * len(needed)), lm15.AuthError("wrong key"))
    first = scripted_lm(script, store=store)
    with pytest.raises(dspy.LMAuthError, match="wrong key"):
        tuned(first, folder=folder)
    kept, second = store.kept, scripted_lm(by_attempt, store=store)
    assert tuned(second, folder=folder).instructions() == expected
    # Only what had no reply yet is asked again: the call that failed, and those that were in flight with it.
    again = Counter(first.prompts) & Counter(second.prompts)
    assert again.total() <= len(first.prompts) - kept
    assert set(first.prompts) | set(second.prompts) == set(needed)


def test_it_goes_on_from_its_own_state(tmp_path: Path, whole: tuple[dict[str, str], list[str]]) -> None:
    expected, needed = whole
    store, folder = Memory(), tmp_path / "stopped"
    asked: list[str] = []

    def interrupted(prompt: str) -> str:
        asked.append(prompt)
        if len(asked) > 0.9 * len(needed):
            raise lm15.AuthError("wrong key")
        return by_attempt(prompt)

    with pytest.raises(dspy.LMAuthError):
        tuned(scripted_lm(interrupted, store=store), folder=folder)
    (state,) = folder.glob("gepa-*/gepa_state.bin")
    assert state.stat().st_size > 0
    # Without the store the replies are lost: fewer calls than a whole run needs show that iterations were not repeated.
    lm = scripted_lm(by_attempt)
    assert tuned(lm, folder=folder).instructions() == expected
    assert sum(map(asks_for_instructions, lm.prompts)) < sum(map(asks_for_instructions, needed))


def test_another_start_has_a_state_of_its_own(tmp_path: Path) -> None:
    tuned(scripted_lm(Mind("No help at all.")), folder=tmp_path)
    found = tuned(scripted_lm(Mind("Prefer what is large.")), start(1), folder=tmp_path)
    assert len(list(tmp_path.glob("gepa-*"))) == 2
    assert found.instructions()["scorer.predict"].startswith("Prefer what is large.")


@pytest.mark.parametrize("when", [asks_for_instructions, lambda prompt: "large" in section(prompt, "standard")])
def test_a_fatal_error_is_raised_and_no_score_made_of_it(when: Callable[[str], bool]) -> None:
    mind = Mind("Prefer what is large.")

    def failing(prompt: str) -> str:
        if when(prompt):
            raise lm15.AuthError("wrong key")
        return mind(prompt)

    with pytest.raises(dspy.LMAuthError, match="wrong key"):
        tuned(scripted_lm(failing))


def test_an_error_of_our_own_is_raised_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("debate_judge.optimize.tuners.gepa.call_feedback", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        tuned(scripted_lm(Mind("No help at all.")))


def test_an_interrupt_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    converse, held = JudgeRunner.converse, iter(range(100))

    def interrupted(self: JudgeRunner, *args: Any, **kwargs: Any) -> Any:
        if next(held) == 20:
            raise KeyboardInterrupt
        return converse(self, *args, **kwargs)

    monkeypatch.setattr(JudgeRunner, "converse", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tuned(scripted_lm(Mind("No help at all.")))


def test_it_says_nothing_on_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    tuned(scripted_lm(Mind("No help at all.")), trials=3)
    assert capfd.readouterr().out == ""
