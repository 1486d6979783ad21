"""GEPA: what it finds, and what the reflecting LM is shown."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from debate_judge.optimize.tuners import GuideLimits
from debate_judge.optimize.tuners.guide import guide_of
from debate_judge.programs.debate.personas import STRICT
from debate_judge.programs.roles.guide import HEADING
from tests.fakes import scripted_lm, section
from tests.optimize.gepa_minds import GUIDE, STORY, Mind, asks_for_instructions, start, tuned


def shown(prompt: str) -> list[dict[str, Any]]:
    """The calls that a request for instructions shows, with what is said about each."""
    text = section(prompt, "examples_with_feedback").partition("\n\nRespond with")[0]
    found: list[dict[str, Any]] = json.loads(text)
    return found


def test_instructions_that_agree_with_the_raters_are_found_and_the_guide_is_kept() -> None:
    judge = start()
    before = judge.instructions()
    found = tuned(scripted_lm(Mind("Prefer what is large.")), judge)
    text = found.instructions()["scorer"]
    assert text.startswith("Prefer what is large.")
    assert guide_of(found) == GUIDE
    assert judge.instructions() == before
    assert found.debate_config == judge.debate_config
    assert found.instructions()["tie_breaker"] == before["tie_breaker"]


def test_it_starts_from_the_guide_and_returns_that_where_nothing_is_better() -> None:
    mind = Mind("No help at all.")
    found = tuned(scripted_lm(mind))
    assert guide_of(found) == GUIDE
    assert found.instructions()["critic"] == STRICT.text
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
    guide = f"Rate large high. {'Many words here. ' * 9}"
    text = f"Prefer what is large. Think {STORY}. Be brief.\n\n{HEADING}\n{guide}"
    found = tuned(scripted_lm(Mind(text)), guide=GuideLimits(words=8))
    told = found.instructions()["scorer"]
    assert "lighthouse" not in told
    assert "Prefer what is large." in told
    assert "Be brief." in told
    kept = tuned(scripted_lm(Mind("Prefer what is large.\n\n1. Be brief. Be kind.\n2. Be fair.")))
    assert kept.instructions()["scorer"].startswith("Prefer what is large.\n\n1. Be brief. Be kind.\n2. Be fair.")
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
