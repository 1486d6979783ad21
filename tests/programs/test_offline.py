"""The offline LM: what it must see on small texts."""

from __future__ import annotations

import pytest

from debate_judge.data.schema import Aspect
from debate_judge.data.tasks import DIALOGUE, SUMMARIZATION
from debate_judge.programs.debate.personas import PERSONAS, STRICT
from debate_judge.programs.debate.table import Criticism, Scoring
from debate_judge.programs.judge import Item
from debate_judge.programs.offline import roles as offline_roles
from debate_judge.programs.offline import rubric as offline_rubric
from debate_judge.programs.roles import parsing as replies
from tests.programs.offline_items import DEFECTS, LIVELY, SOURCE, STOCK, WRONG_NUMBER, ask, final, item

LEAD = SOURCE[: SOURCE.index(" Traffic")]


def scored(asked: Item, debate: str = "", role: str | None = None) -> float:
    value = replies.score(ask(Scoring, asked, debate, role)["score"], asked.aspect.scale)
    assert not isinstance(value, replies.Unreadable)
    return value


def critique(asked: Item, role: str) -> list[str]:
    """All that a Critic of this character raises, until it is content."""
    said: list[str] = []
    for number in range(1, 20):
        reply = ask(Criticism, asked, "\n\n".join(said), role)
        if reply["decision"] == replies.NO_ISSUE:
            return said
        said.append(f"Critic, round {number}: {reply['feedback']}")
    raise AssertionError("the Critic never stops")


def test_only_the_critics_own_words_change_the_score() -> None:
    asked = item("consistency", WRONG_NUMBER)
    alone = scored(asked)
    raised = critique(asked, STRICT.text)[0]
    assert "numbers that the source does not have (1)" in raised
    assert scored(asked, raised) < alone
    assert scored(asked, f"Scorer, round 0, score 1: I gave 1.\n\n{raised}") == scored(asked, raised)
    # Said by another speaker, quoted, or in other words, it is no evidence.
    words = "numbers that the source does not have (1)"
    for said in (f"Scorer, round 0, score 2: {words}", f'Critic, round 1: it says "{words}"', "Critic, round 1: no!"):
        assert scored(asked, said) == alone


@pytest.mark.parametrize(("aspect", "text"), DEFECTS)
def test_an_obvious_defect_costs_points(aspect: str, text: str) -> None:
    assert final(item(aspect, text)) < final(item(aspect)) - 0.25


@pytest.mark.parametrize("aspect", ["naturalness", "coherence", "engagingness", "groundedness", "overall"])
def test_stock_phrases_are_rated_below_a_reply_with_something_to_say(aspect: str) -> None:
    assert final(item(aspect, STOCK, DIALOGUE)) < final(item(aspect, LIVELY, DIALOGUE))


def test_a_stronger_persona_never_raises_fewer_items() -> None:
    by_strength = sorted(PERSONAS.values(), key=lambda p: -offline_roles.threshold(p.text))
    raised = [[len(critique(item(*defect), p.text)) for p in by_strength] for defect in DEFECTS]
    assert raised == [sorted(counts) for counts in raised]
    assert sum(counts[0] for counts in raised) < sum(counts[-1] for counts in raised) - len(DEFECTS)


def test_a_personas_wording_sets_the_threshold_by_degree() -> None:
    degree = offline_roles.threshold
    order = ["weakly-negative", "moderately-negative", "plain", "devils-advocate"]
    thresholds = [degree(PERSONAS[name].text) for name in order]
    assert thresholds == sorted(thresholds, reverse=True)
    assert degree("You are a critic.") == 0.04
    assert degree("You are a lenient critic.") == 0.08
    assert degree("You are not a lenient critic.") < 0.04
    assert degree("You play the devil's advocate.") == 0.02
    assert degree("You play the devil's advocate. Be strict.") < 0.02


@pytest.mark.parametrize("aspect", [*SUMMARIZATION.aspects, *DIALOGUE.aspects])
def test_a_candidate_without_words_is_rated_in_every_aspect(aspect: Aspect) -> None:
    task = SUMMARIZATION if aspect in SUMMARIZATION.aspects else DIALOGUE
    assert aspect.scale.contains(final(item(aspect.name, "???", task)))


def test_an_aspect_of_another_name_is_rated_by_the_whole() -> None:
    assert offline_rubric.rubric_for("summary", "charm") is offline_rubric.RUBRICS["summary"]["overall"]
    assert offline_rubric.rubric_for("summary", "Factual accuracy") is offline_rubric.RUBRICS["summary"]["consistency"]
    assert offline_rubric.rubric_for("dialogue", "consistency") is offline_rubric.RUBRICS["dialogue"]["groundedness"]


def test_no_phrase_is_part_of_another() -> None:
    phrases = list(offline_rubric.PHRASES.values())
    assert [(a, b) for a in phrases for b in phrases if a != b and a in b] == []
