"""The embedded offline LM: an engine that answers the project's prompts by text statistics.

It lets everything run without a key and without a network: debates, compilation, scoring, tests. Every reply says that
it is a stand-in. It reads only the messages it is sent, keeps nothing between calls, and gives equal answers to equal
prompts in every process.

What it measures. In a text made from a source (a summary): how closely the words follow the source and in which order,
repetition, truncated sentences, ungrammatical word pairs, numbers that are not in the source, and whether the source's
most frequent early words occur. In a reply of a conversation: how specific and how varied the words are, stock phrases
such as `I think`, run-on clauses, words in common with the conversation and with the fact.

What it misses. Paraphrase lowers the score of a summary, because faithfulness and fluency are measured by copying;
negation, exchanged roles ("X sued Y") and knowledge of the world are not recognised at all. Naturalness and
understandability of a reply are little more than length, variety and self-talk: they separate human replies from
machine replies, but hardly rank machine replies among each other (Spearman 0.1 to 0.2 there, against 0.7 for
groundedness). Measured agreement is partly due to recognising how systems write.

Agreement with the raters, on the half of the sources on which the features were chosen, so that the figures are too
high (summary level, mean over four aspects; strict devil's advocate; by the number of rounds n):

                                        n=0        n=1        n=2        n=3        tie-breaker
    SummEval, Spearman / tau-b          .31/.27    .36/.30    .42/.36    .47/.39    .48/.40
    Topical-Chat, Pearson / Spearman    .61/.58    .67/.63    .69/.64    .70/.65    .71/.67

On QAGS, which has other sources and systems, all readings for consistency together reach a pooled Pearson correlation
of .47 on summaries of CNN/DM and .20 on the far more abstractive ones of XSum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from debate_judge.programs.lm.local_engine import LocalEngine
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.offline import claims as offline_claims
from debate_judge.programs.offline import other_fields, other_judges
from debate_judge.programs.offline import prompt as offline_prompt
from debate_judge.programs.offline import proposer as offline_proposer
from debate_judge.programs.offline import raters as offline_raters
from debate_judge.programs.offline import roles as offline_roles
from debate_judge.programs.offline import tables as offline_tables
from debate_judge.programs.offline.prompt import Prompt

MODEL = "offline/text-statistics-3"
"""The model string, which is part of cache keys: raise the number whenever an answer changes."""

Speaker = Callable[[Prompt], dict[str, str]]

SPEAKERS: Mapping[str, Speaker] = MappingProxyType(
    {
        "decision": offline_roles.criticise,
        "final_score": offline_roles.break_tie,
        "score": offline_roles.score,
        "decisions": offline_tables.criticise,
        "final_scores": offline_tables.break_ties,
        "scores": offline_tables.score,
        "score_1": other_judges.compare,
        "steps": other_judges.derive_steps,
        "summary": other_judges.sum_up,
        "facts": offline_claims.select_facts,
        "claims": offline_claims.extract_claims,
        "query_1": offline_claims.write_queries,
        "factuality": offline_claims.assess,
        "guide": offline_raters.write_guide,
        "module_advice": offline_proposer.advise,
    }
)
"""Requested field -> the function that answers. Requests for instructions are recognised by that word in a field's
name; all other fields are filled in by their type (`programs.offline.other_fields`)."""


def fill_in(prompt: Prompt, known: Mapping[str, str]) -> dict[str, str]:
    """Requested field -> its value; the reply to a prompt without fields has the name "".

    Args:
        prompt: What is asked.
        known: `known_fields` of the same prompt.
    """
    if prompt.input("candidates"):
        return dict(known)
    return {**known, **{name: other_fields.fill(prompt, name) for name in prompt.outputs if not known.get(name)}}


def known_fields(prompt: Prompt) -> dict[str, str]:
    """Requested field -> its value, for the fields whose names it knows."""
    speak = next((SPEAKERS[name] for name in prompt.outputs if name in SPEAKERS), None)
    if speak is None:
        speak = offline_proposer.propose if _asks_for_instruction(prompt) else _nothing
    return speak(prompt)


def _asks_for_instruction(prompt: Prompt) -> bool:
    if prompt.outputs:
        return any("instruction" in name for name in prompt.outputs)
    return "new instruction" in prompt.user and "```" in prompt.user


def _nothing(prompt: Prompt) -> dict[str, str]:
    return {} if prompt.outputs else {"": offline_prompt.NOTHING}


class OfflineEngine(LocalEngine):
    """The stand-in as an engine of `programs.lm.client.JudgeLM`; it ignores the settings of calls."""

    caches_prefixes = False

    def answer(self, system: str, user: str, settings: Mapping[str, Any]) -> Reply:
        prompt = offline_prompt.parse(system, user)
        text = offline_prompt.render(prompt, fill_in(prompt, known_fields(prompt)))
        # A token is counted as four characters.
        return Reply(text, (len(system) + len(user)) // 4, len(text) // 4)
