"""The Critic's personas: five degrees, as instructions that every optimizer finds."""

from __future__ import annotations

import pytest

from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import PERSONAS, PLAIN, STRICT, Persona


def test_five_degrees_from_mildest_to_strongest() -> None:
    assert list(PERSONAS) == ["plain", "weakly-negative", "moderately-negative", "devils-advocate", "sophisticated"]
    assert all(name == persona.name for name, persona in PERSONAS.items())
    assert len({persona.text for persona in PERSONAS.values()}) == 5


def test_all_but_the_plain_one_are_devils_advocates() -> None:
    assert "advocate" not in PLAIN.text
    assert all("devil's advocate" in persona.text for persona in PERSONAS.values() if persona is not PLAIN)


@pytest.mark.parametrize("persona", PERSONAS.values(), ids=lambda p: p.name)
def test_every_persona_may_be_content(persona: Persona) -> None:
    assert "NO ISSUE" in persona.text
    # One line of text each: a persona is shown in tables and diffs.
    assert persona.text == " ".join(persona.text.split())


@pytest.mark.parametrize("persona", PERSONAS.values(), ids=lambda p: p.name)
def test_a_persona_is_the_critics_instructions_and_no_input(persona: Persona) -> None:
    signature = Debate(persona).critic.signature
    assert signature.instructions == persona.text
    assert "persona" not in signature.input_fields


def test_personas_do_not_leak_from_one_debate_into_another() -> None:
    first, second = Debate(PLAIN), Debate(STRICT)
    assert first.critic.signature.instructions == PLAIN.text
    assert second.critic.signature.instructions == STRICT.text
    assert first.scorer.signature.instructions == second.scorer.signature.instructions


def test_the_personas_cannot_be_changed_by_accident() -> None:
    with pytest.raises(TypeError):
        PERSONAS["plain"] = STRICT  # type: ignore[index]
