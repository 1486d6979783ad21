"""The embedded offline LM: an engine for `dspy.LM` that answers the project's prompts by text statistics.

It lets everything run without a key and without a network: debates, compilation, scoring, tests. It is a
stand-in and says so in every reply. It reads only the messages it is sent, keeps nothing between calls, and
gives equal answers to equal prompts in every process.

What it sees. In a text made from a source (a summary): how closely the words follow the source and in which
order, repetition, sentences cut short, stumbling word pairs, numbers that are not in the source, and whether
the source's heaviest words are there. In a reply of a conversation: how specific and how varied the words
are, stock phrases such as `I think`, run-on clauses, words taken up from the conversation and from the fact.

What it is blind to. Paraphrase counts against a summary, for faithfulness and fluency are read off copying;
negation, exchanged roles ("X sued Y") and knowledge of the world are not seen at all. Naturalness and
understandability of a reply are hardly more than length, variety and self-talk: they tell human replies from
machine replies, but do not rank machine replies among each other (Spearman about 0.1 there, against 0.7 for
groundedness). Any measured agreement rests partly on recognising how systems write.

Agreement with the raters of the half of the sources on which the features were chosen (so these figures
flatter it; mean over the aspects at summary level), devil's advocate, by the number of rounds:

                                        n=0        n=1        n=2        n=3        tie-breaker
    SummEval, Spearman / tau-b          {se}
    Topical-Chat, Pearson / Spearman    {tc}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from programs import offline_prompt, offline_proposer, offline_roles
from programs.offline_prompt import Prompt

if TYPE_CHECKING:
    import dspy
    from dspy.lm15 import Request, Response

MODEL = "offline/text-statistics-1"
"""The model string. Caches know answers by it: raise the number whenever an answer changes."""

Speaker = Callable[[Prompt], dict[str, str]]

SPEAKERS: tuple[tuple[str, Speaker], ...] = (
    ("decision", offline_roles.criticise),
    ("final_score", offline_roles.settle),
    ("score", offline_roles.score),
    ("module_advice", offline_proposer.advise),
    ("instruction", offline_proposer.propose),
)
"""Who answers, by a word in the name of a requested field; the first that fits. Another role is one line here."""


def answer(system: str, user: str) -> str:
    """Answer one request.

    Args:
        system: The system text, empty if there is none.
        user: The last user text; earlier turns (demonstrations) are not read.
    """
    prompt = offline_prompt.parse(system, user)
    wanted = " ".join(prompt.outputs) or ("instruction" if _asks_for_instruction(user) else "")
    for word, speak in SPEAKERS:
        if word in wanted:
            return offline_prompt.render(prompt, speak(prompt))
    return offline_prompt.render(prompt, {"": offline_prompt.NOTHING})


def _asks_for_instruction(user: str) -> bool:
    return "new instruction" in user and "```" in user


class OfflineEngine:
    """Synchronous engine; hand it to `dspy.LM(MODEL, engine=...)` or use `offline_lm`."""

    def complete(self, request: Request) -> Response:
        """Answer a request; its sampling settings make no difference."""
        from dspy.lm15 import Message, Response, Usage

        system = request.system
        told = system if isinstance(system, str) else "".join(part.text for part in system or ())
        user = request.messages[-1].text or ""
        text = answer(told, user)
        read, written = (len(told) + len(user)) // 4, len(text) // 4
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant(text),
            finish_reason="stop",
            usage=Usage(input_tokens=read, output_tokens=written, total_tokens=read + written),
        )

    def dump_state(self) -> dict[str, Any]:
        """State for DSPy's saving of programs: there is none."""
        return {}

    @classmethod
    def load_state(cls, state: dict[str, Any]) -> OfflineEngine:
        return cls(**state)


class AsyncOfflineEngine:
    """The same for `acall`. It computes on the event loop: an answer takes a fraction of a millisecond."""

    def __init__(self) -> None:
        self._engine = OfflineEngine()

    async def complete(self, request: Request) -> Response:
        return self._engine.complete(request)

    def dump_state(self) -> dict[str, Any]:
        return self._engine.dump_state()

    @classmethod
    def load_state(cls, state: dict[str, Any]) -> AsyncOfflineEngine:
        return cls(**state)


def offline_lm(**settings: Any) -> dspy.LM:
    """Make a `dspy.LM` that answers offline, synchronously and asynchronously.

    Args:
        settings: Passed on to `dspy.LM`, e.g. `cache=False`.
    """
    import dspy

    return dspy.LM(MODEL, engine=OfflineEngine(), async_engine=AsyncOfflineEngine(), **settings)
