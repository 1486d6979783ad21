"""Items and scripted agents for the tests of the hallucination debate."""

from __future__ import annotations

from typing import Any

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs.hallucination.judge import Hallucination
from debate_judge.programs.judge import Item
from tests.fakes import ScriptedLM, debater, scripted_lm, section

ASPECT = Aspect("factuality", "Is all of it factual?", Scale(0, 1))
QA = Task("questions", "question", "answer", (ASPECT,), "knowledge")
ITEM = Item("g", "c", QA, ASPECT, "Which city?", "Lima.", "Lima is the capital.")
SPEAKERS = {
    "You are the Trust": "trust",
    "You are the Skeptic": "skeptic",
    "You are the Leader": "leader",
    "You check a claim": "initial",
    "You take a text apart": "claims",
    "You prepare a reply": "facts",
    "You look for evidence": "queries",
    "You check a response": "checker",
    "You check whether": "checker",
}


def speaker(prompt: str) -> str:
    role = section(prompt, "role")
    return next(name for start, name in SPEAKERS.items() if role.startswith(start))


def view_reply(factual: bool, severity: int, opinion: str) -> str:
    return f"[[ ## opinion ## ]]\n{opinion}\n\n[[ ## factuality ## ]]\n{factual}\n\n[[ ## severity ## ]]\n{severity}"


def calls_of(lm: ScriptedLM) -> list[tuple[str, str]]:
    """(speaker, the debate in its prompt) in the order of the calls."""
    return [(speaker(prompt), section(prompt, "debate")) for prompt in lm.prompts]


def judge(rounds: int = 3, **options: Any) -> Hallucination:
    return Hallucination(rounds, **options)


BARE = Item("g", "c", Task("questions", "question", "answer", (ASPECT,)), ASPECT, "Which city?", "Lima.")
ARTICLE = " ".join(f"Sentence number {n} says nothing of note." for n in range(45)) + " Robbers struck in the city."


def checker() -> ScriptedLM:
    fields = {"query_1": "robbery city", "query_2": "police appeal", "claims": "Ann won.", "factuality": "True"}
    return scripted_lm(debater(severity="0", **fields))
