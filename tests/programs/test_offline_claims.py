"""The offline LM's part in the hallucination debate: what it can see, and that it says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import dspy
import pytest

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs.hallucination.baselines import HallucinationCheck
from debate_judge.programs.hallucination.evidence import SNIPPETS, WHOLE
from debate_judge.programs.hallucination.judge import Hallucination
from debate_judge.programs.judge import Item, Judge, Verdict
from debate_judge.programs.offline import other_roles
from debate_judge.programs.offline.roles import Prompt, parse, render
from tests.fakes import only, scripted_lm

ASPECT = Aspect("factuality", "Is all of it factual?", Scale(0, 1))
NEWS = Task("news", "article", "summary", (ASPECT,))
QA = Task("questions", "question", "answer", (ASPECT,))
ARTICLE = "Robbers took 500 pounds from a van in Glasgow. Police asked witnesses to come forward."

SPEAKERS: dict[str, Callable[[Prompt], dict[str, str]]] = {
    "facts": other_roles.select_facts,
    "claims": other_roles.extract_claims,
    "query_1": other_roles.write_queries,
    "factuality": other_roles.assess,
}


def answer(prompt: str) -> str:
    parsed = parse("", prompt)
    speak = next(SPEAKERS[name] for name in parsed.outputs if name in SPEAKERS)
    return render(parsed, speak(parsed))


def judged(task: Task, source: str, text: str, judge: Judge | None = None, context: str = "") -> Verdict:
    item = Item("g", "c", task, ASPECT, source, text, context)
    lm = scripted_lm(answer)

    async def under_lm() -> Verdict:
        with dspy.context(lm=lm, trace=None):
            verdict = await only((judge or Hallucination()).judge([item]))
            assert isinstance(verdict, Verdict), verdict
            return verdict

    return asyncio.run(under_lm())


@pytest.mark.parametrize(
    ("text", "factual"),
    [
        ("Robbers took 500 pounds in Glasgow.", True),
        ("Robbers took 900 pounds in Glasgow.", False),
        ("Farmers sold apples at markets across Norway.", False),
        ("Robbers took 500 pounds in Glasgow. Farmers sold apples at markets.", False),
    ],
)
def test_words_and_numbers_without_ground_are_seen(text: str, factual: bool) -> None:
    for judge in (None, HallucinationCheck()):
        verdict = judged(NEWS, ARTICLE, text, judge)
        assert (verdict.score > 0.5) is factual
        assert any("Text statistics: " in turn.text for turn in verdict.transcript.turns)


def test_long_knowledge_is_searched_and_a_debate_held() -> None:
    knowledge = f"{ARTICLE} {' '.join(f'Rain fell on day {n}.' for n in range(WHOLE // SNIPPETS))}"
    verdict = judged(NEWS, knowledge, "Police asked witnesses.", Hallucination(2))
    # Claims, queries, the initial agent and two rounds.
    assert (verdict.score, verdict.calls) == (1.0, 9)
