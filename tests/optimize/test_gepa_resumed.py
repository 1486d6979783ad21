"""GEPA goes on where it was stopped; what ends it, and that it says nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy import lm15

from debate_judge.programs.lm.reply import Memory, Reply
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import scripted_lm, section
from tests.optimize.gepa_minds import Mind, asks_for_instructions, start, tuned


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

    async def put(self, key: str, role: str, reply: Reply) -> None:
        self.kept += 1
        await super().put(key, role, reply)


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
    assert found.instructions()["scorer"].startswith("Prefer what is large.")


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
