"""Hallucination detection by claims, evidence and a debate about each claim (Sun et al. 2024, section 3).

A response is divided into claims (`claims.py`), evidence is found for each (`evidence.py`), and each is verified by a
Markov chain of agents (`debate.py`). One hallucinated claim makes the response hallucinated; its score is that of its
worst claim. With 0 rounds the initial agent's opinion is final: claim verification without debate. The judge uses an
aspect's scale and not its definition: high is factual.

Departures from the paper: queries are written only if evidence has to be searched for; evidence sentences keep the
order of their text, and one that begins with a pronoun is preceded by those before it; an answer without knowledge and
without a search provider is checked by what the LM knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from debate_judge.data.errors import InputError
from debate_judge.programs.hallucination.claims import FORMS, Claim, ClaimExtractor, FactSelector, Form, form_of, joined
from debate_judge.programs.hallucination.debate import (
    AGENTS,
    SCORINGS,
    TRANSITIONS,
    Chain,
    ChainAgent,
    ClaimTurn,
    Scoring,
    agreed,
)
from debate_judge.programs.hallucination.evidence import AS_GIVEN, Evidence, Gathering, QueryWriter, make_ranker
from debate_judge.programs.hallucination.web_search import Unsearched, make_search
from debate_judge.programs.judge import DebateConfig, Item, Judge, StopReason, Verdict
from debate_judge.programs.option_values import whole_number
from debate_judge.programs.roles.role import NoAnswer
from debate_judge.programs.transcript import EMPTY, Transcript, Turn

PAPERS_MINIMUM = 2
"""Number of rounds that the paper holds about every claim (section 4.1.2), even if all agents agree in the first."""


@dataclass(frozen=True, slots=True)
class Options:
    """All that can be set about the judge, except the maximum of rounds."""

    min_rounds: int = PAPERS_MINIMUM
    """Number of rounds before which agreement does not end a debate; a lower maximum of rounds has priority. A compile
    tries both the paper's minimum and 1 (`Hallucination.variants`), and keeps any other value."""
    transition: str = "true-skeptic"
    """A key of `programs.hallucination.debate.TRANSITIONS`."""
    scoring: Scoring = "verdict+severity"
    """How a claim's verdict and severity become a score, see `programs.hallucination.debate.claim_score`."""
    form: Form | Literal["auto"] = "auto"
    """What the responses are; `auto` derives it from the task's source label."""
    short_answer: int = 40
    """Longest answer, in words, that is joined with its question into one claim without asking the LM."""
    max_claims: int = 30
    """Most claims of a response; a reply with more is refused."""
    whole: int = 1500
    """Longest knowledge, in characters, that is used as evidence as a whole."""
    snippets: int = 10
    """Number of sentences of longer knowledge, or of snippets from the web, that are evidence for a claim."""
    ranker: str = "tfidf"
    """How sentences are ranked: `tfidf`, or `dense:MODEL`."""
    search: str = "none"
    """The source of evidence if no knowledge is given: a key of `web_search.SEARCHES`, or `none`."""

    def __post_init__(self) -> None:
        choices = {"transition": tuple(TRANSITIONS), "scoring": SCORINGS, "form": ("auto", *FORMS)}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                found = getattr(self, name)
                raise InputError(f"unknown {name}", field=name, expected="one of " + ", ".join(known), found=found)
        least = {"min_rounds": 0, "short_answer": 0, "max_claims": 1, "whole": 0, "snippets": 1}
        for name, lowest in least.items():
            whole_number(name, getattr(self, name), lowest)


class Hallucination(Judge):
    """A judge by claim verification.

    Args:
        options: How claims and evidence are found and how the debate goes.
        debate_config: The maximum of rounds, used by `judge`; `converse` takes its own. There is no Tie-breaker.

    Raises:
        InputError: The ranker or the search provider is unknown, or the provider has no key.
    """

    kind = "hallucination"
    settable = tuple(field.name for field in fields(Options))

    def __init__(self, options: Options | None = None, debate_config: DebateConfig | None = None) -> None:
        super().__init__(debate_config or DebateConfig(rounds=3))
        self.options = options or Options()
        self.gathering = Gathering(
            self.options.whole,
            self.options.snippets,
            make_ranker(self.options.ranker),
            make_search(self.options.search),
        )
        self.facts = FactSelector()
        self.claims = ClaimExtractor(self.options.max_claims)
        self.queries = QueryWriter()
        self.initial, self.trust, self.skeptic, self.leader = (ChainAgent(name) for name in AGENTS)

    async def converse(self, item: Item, rounds: int) -> Transcript:
        """Check `item` with at most `rounds` rounds about each claim; claims are verified concurrently."""
        form = form_of(item.task) if self.options.form == "auto" else self.options.form
        claims, transcript = await self._detect(item, form)
        fused = self._fused(item, form)
        stated = [Claim.of(text, item.task, form, fused) for text in claims]
        checked = await asyncio.gather(*(self._check(item, form, i, c, rounds) for i, c in enumerate(stated, 1)))
        failures = []
        for part in checked:
            for turn in part.turns:
                transcript = transcript.add(turn)
            failures += [part.failure] if part.failure else []
        if not failures:
            return transcript
        # The earliest failure, so that the transcript fails at every number of rounds at which a claim failed.
        first = min(failures, key=lambda failure: failure.round)
        spent = sum(failure.calls for failure in failures)
        return transcript.add(replace(first, calls=spent))

    async def _detect(self, item: Item, form: Form) -> tuple[tuple[str, ...], Transcript]:
        transcript, text = EMPTY, item.text
        if form == "claim":
            return (text,), transcript.add(_claims_turn((text,), 0, item))
        if self._fused(item, form):
            claim = joined(item.source, text)
            return (claim,), transcript.add(_claims_turn((claim,), 0, item))
        if form == "dialogue":
            facts = await self.facts.select(item)
            if isinstance(facts, NoAnswer):
                return (), transcript.add(facts.at("facts", 0))
            text = facts.value
            transcript = transcript.add(Turn("facts", 0, text or "nothing that could be checked", calls=facts.calls))
            if not text:
                return (), transcript.add(_claims_turn((), 0, item))
        found = await self.claims.extract(item, text, form)
        if isinstance(found, NoAnswer):
            return (), transcript.add(found.at("claims", 0))
        return found.value, transcript.add(_claims_turn(found.value, found.calls, item))

    def _fused(self, item: Item, form: Form) -> bool:
        """Whether the item's only claim is its question with its answer."""
        return form == "answer" and len(item.text.split()) <= self.options.short_answer

    async def _check(self, item: Item, form: Form, number: int, claim: Claim, rounds: int) -> Transcript:
        found = await self.gathering.evidence(item, form, claim.text, self.queries)
        if isinstance(found, NoAnswer):
            return EMPTY.add(replace(found, detail=f"claim {number}: {found.detail}").at("evidence", 0))
        options = self.options
        chain = Chain(TRANSITIONS[options.transition], options.min_rounds, rounds, options.scoring)
        agents = {"initial": self.initial, "trust": self.trust, "skeptic": self.skeptic, "leader": self.leader}
        opinions, failure = await chain.verify(item, number, claim, found.value, agents)
        return Transcript((_evidence_turn(number, found.value, found.calls), *opinions), failure)

    def read_verdict(self, transcript: Transcript, rounds: int) -> Verdict:
        """The score of the worst claim, by the last opinion about each; without any claim the highest score."""
        states: dict[int, list[ClaimTurn]] = {}
        for turn in transcript.turns:
            if isinstance(turn, ClaimTurn):
                state = states.setdefault(turn.claim, [])
                if state and state[-1].round != turn.round:
                    state.clear()
                state.append(turn)
        last: list[Turn] = [state[-1] for state in states.values()]
        last = last or [turn for turn in transcript.turns if turn.role == "claims"]
        score = min(turn.score for turn in last if turn.score is not None)
        held = max(turn.round for turn in last)
        open_claims = any(not agreed(state) for state in states.values())
        reason: StopReason = "rounds over" if open_claims else "no issue" if held or not states else "single call"
        return Verdict(score, held, reason, transcript.calls, transcript)

    def variants(self, personas: Mapping[str, str]) -> dict[str, Judge]:
        """Two variants: with the paper's minimum of rounds, and with 1.

        The debate with the smaller minimum is the beginning of the other one, so searching both needs no further LM
        calls.
        """
        if self.options.min_rounds != PAPERS_MINIMUM or self.debate_config.rounds < PAPERS_MINIMUM:
            return super().variants(personas)
        shorter: Hallucination = self.deepcopy()
        shorter.options = replace(self.options, min_rounds=1)
        return {f"at least {PAPERS_MINIMUM} rounds": self, "at least 1 round": shorter}

    def dry_run_copy(self) -> Hallucination:
        one: Hallucination = self.deepcopy()
        if self.gathering.search is not None:
            one.gathering = replace(self.gathering, search=Unsearched())
        return one

    def tunable(self) -> tuple[str, ...]:
        spoken = (
            "facts",
            "claims",
            "queries",
            "initial",
            *(("trust", "skeptic", "leader") if self.debate_config.rounds else ()),
        )
        return tuple(f"{name}.predict" for name in spoken)

    def config(self) -> dict[str, Any]:
        return {**asdict(self.options), "rounds": self.debate_config.rounds}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Hallucination:
        """Rebuild a judge; what is not given is as in `Options`.

        Raises:
            InputError: An option has a value that it cannot have.
        """
        known = {field.name for field in fields(Options)}
        options = Options(**{name: value for name, value in config.items() if name in known})
        return cls(options, DebateConfig(config.get("rounds", 3)))


def _claims_turn(claims: tuple[str, ...], calls: float, item: Item) -> Turn:
    # A response without statements cannot be wrong: it gets the highest score without verification.
    score = None if claims else item.aspect.scale.high
    text = "\n".join(f"{number}. {claim}" for number, claim in enumerate(claims, 1))
    return Turn("claims", 0, text or "none", score=score, calls=calls)


def _evidence_turn(number: int, evidence: Evidence, calls: float) -> Turn:
    queries = f" for {evidence.queries[0]!r} and {evidence.queries[1]!r}" if evidence.queries else ""
    # Evidence that was given is part of the item; transcripts need no copy of it for every claim.
    text = "" if evidence.how == AS_GIVEN else f"\n{evidence.text}"
    return Turn("evidence", 0, f"claim {number}: {evidence.how}{queries}{text}", calls=calls)
