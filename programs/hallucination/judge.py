"""Hallucination detection by claims, evidence and a debate about each claim (Sun et al. 2024, section 3).

A response is divided into claims, evidence is found for each (`evidence.py`), and each is verified by a debate. One
hallucinated claim makes the response hallucinated: its score is that of its worst claim. With 0 rounds the initial
agent's opinion is final: claim verification without debate. The judge uses only the scale of an aspect, not its
definition: a high score is factual.

The debate about a claim is a Markov chain (section 3.3, appendix A.1). The initial agent's opinion is the state S0. In
each later state three agents speak: S1 is Trust, Skeptic, Leader and S2 is Skeptic, Trust, Leader. Which of the two
comes next depends only on the judgement of the previous state's last speaker. The chain ends, once the minimum of
rounds is reached, with a state whose speakers agree, or at the maximum. S0 has one speaker and so always agrees: with a
minimum of 0, the initial opinion is final. No prompt depends on the number of rounds, so a chain begins with every
shorter one.

docs/judges.md lists the departures from the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import dspy

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Scale
from debate_judge.programs import parsing
from debate_judge.programs.hallucination.evidence import (
    ANSWER_NOTE,
    SEARCHED,
    Extracting,
    Querying,
    ResponseType,
    Search,
    Selecting,
    extract_claims,
    find_evidence,
    find_search,
    parse_facts,
    placeholder_search,
    response_type_of,
)
from debate_judge.programs.judge import (
    EMPTY,
    DebateConfig,
    Failure,
    Item,
    ItemJudge,
    Judge,
    StopReason,
    Transcript,
    Turn,
    Verdict,
    one_of,
    whole_number,
)
from debate_judge.programs.lm.engine import gather
from debate_judge.programs.role import Fields, Role, RoleReply, task_description

S1 = ("trust", "skeptic", "leader")
S2 = ("skeptic", "trust", "leader")

TRANSITIONS: Mapping[str, Mapping[bool, tuple[str, ...]]] = MappingProxyType(
    {
        "true-skeptic": {True: S2, False: S1},
        "true-trust": {True: S1, False: S2},
        "always-skeptic": {True: S2, False: S2},
        "always-trust": {True: S1, False: S1},
    }
)
"""Policy -> verdict of the previous state's last speaker -> the next state (equations 1 and 2; table 4)."""

MAX_SEVERITY = 5
_GRADES = (
    "0 no error; 1 a slip that leaves the statement as good as right, such as a misspelt name or a rounded figure; 2 "
    "a wrong or unsupported detail beside the point of the statement, such as a wrong term, or a year or number that "
    "it mentions in passing; 3 an error that misleads about something essential while the core holds, such as a gross"
    " exaggeration or a context that was twisted; 4 the core is contradicted: what it is checked against speaks of "
    "the same matter and says otherwise, as where someone else did it, or where the year or number is what the "
    "statement is about; 5 the core is invented: what it is checked against says nothing of the matter"
)
_GIVEN = (
    "The evidence is all that counts, with what a careful reader concludes from it; whether the claim is true in the "
    "world does not."
)
_SEARCHED = "The evidence was found on the web and may be beside the point or in error."
_NONE = "No evidence could be had: judge by what you know for certain."
_FACTUAL = (
    "The claim is factual if all of it is borne out, slips of severity 1 apart; it is not if any part is contradicted "
    "or finds no support."
)
"""The criterion of all agents."""

OPINION = "your analysis and your view of whether the claim is factual, with the evidence that it rests on"
FACTUALITY = "True or False and nothing else"
SEVERITY = f"one whole number from 0 to 5, below 4 with True and above 0 with False, and nothing else: {_GRADES}"


_OWN_VIEW = (
    " Do not repeat what was said before: take it as the starting point of a view of your own, and support that by the "
    "evidence. Close with whether the claim is factual and how severe its error is."
)

AGENTS: Mapping[str, str] = MappingProxyType(
    {
        "initial": "You check a claim against evidence. Compare the two point by point: who, what, where, when, how "
        "many, and how they relate. Say whether the claim is factual and how severe its error is.",
        "trust": "You are the Trust agent, one of three who debate a claim. To trust means that you believe the "
        "opinion of the agent before you as far as you possibly can. Read it beside claim and evidence: say what in it "
        "is right and why, and strengthen it by what else the evidence has for it; what is wrong in it, say that too, "
        "with the reason. Then examine the claim itself." + _OWN_VIEW,
        "skeptic": "You are the Skeptic agent, one of three who debate a claim. To be sceptical means that you must "
        "call the opinion of the agent before you into question, and doubt it as far as you possibly can. Hold each of "
        "its statements against claim and evidence: does the evidence really bear it out? Point out every error and "
        "whatever misleads, and say why. Then examine the claim itself for anything in which it and the evidence do "
        "not agree." + _OWN_VIEW,
        "leader": "You are the Leader, one of three who debate a claim. You are given the opinions of the other two: "
        "Trust believes the opinion before it as far as it can and Skeptic doubts it as far as it can. Take these "
        "characters into account, weigh the strengths and the weaknesses of both sides, and draw from them the most "
        "accurate and reliable conclusion about the claim that the evidence allows." + _OWN_VIEW,
    }
)
"""Name -> instructions of the agent's own predictor (appendix A.1, in our words)."""


class Verifying(dspy.Signature):
    __doc__ = AGENTS["initial"]

    task: str = dspy.InputField()
    evidence: str = dspy.InputField(default="")
    claim: str = dspy.InputField()
    debate: str = dspy.InputField(default="")
    correction: str = dspy.InputField(default="")
    opinion: str = dspy.OutputField(desc=OPINION)
    factuality: str = dspy.OutputField(desc=FACTUALITY)
    severity: str = dspy.OutputField(desc=SEVERITY)


@dataclass(frozen=True, slots=True)
class ClaimAssessment:
    """An agent's opinion on a claim, with its verdict."""

    text: str
    factual: bool
    severity: int
    """From 0, no error, to 5, invented."""


@dataclass(frozen=True, slots=True)
class ClaimTurn(Turn):
    """A turn about a claim; its score is the claim's on the aspect's scale."""

    claim: int = 1
    """Number of the claim, from 1."""
    factual: bool = True
    severity: int = 0

    def __str__(self) -> str:
        """The opinion as other agents read it, on one line, so that no text can pose as another agent's opinion."""
        text = " ".join(self.text.split())
        return f"{self.role.capitalize()}, factuality {self.factual}, severity {self.severity}: {text}"


def claim_turn(agent: str, round: int, reply: RoleReply[ClaimAssessment], scale: Scale, claim: int = 1) -> ClaimTurn:
    """The turn of an agent's reply about a claim.

    The score on the aspect's scale is graded by severity: factual claims are on the upper half of the scale and
    hallucinated ones on the lower, so that the middle separates the verdicts.
    """
    opinion, half = reply.value, (scale.high - scale.low) / 2
    if opinion.factual:
        score = scale.high - half * opinion.severity / MAX_SEVERITY
    else:
        score = scale.low + half * (MAX_SEVERITY - opinion.severity) / MAX_SEVERITY
    return ClaimTurn(agent, round, opinion.text, score, False, reply.calls, claim, opinion.factual, opinion.severity)


def parse_assessment(fields: Fields) -> ClaimAssessment | parsing.Unreadable:
    """Parse opinion, factuality and severity; a severity that contradicts the verdict is refused."""
    factual = parse_factuality(fields)
    if isinstance(factual, parsing.Unreadable):
        return factual
    severity = parsing.parse_score(fields["severity"], Scale(0, MAX_SEVERITY))
    if isinstance(severity, parsing.Unreadable) or severity != int(severity):
        return parsing.Unreadable(f"the severity must be one whole number from 0 to {MAX_SEVERITY} and nothing else")
    if factual and severity >= MAX_SEVERITY - 1:
        return parsing.Unreadable(f"a factual claim cannot have an error of severity {severity:g}")
    if not factual and severity == 0:
        return parsing.Unreadable("a claim that is not factual has an error: its severity cannot be 0")
    return ClaimAssessment(fields["opinion"], factual, int(severity))


def parse_factuality(fields: Fields) -> bool | parsing.Unreadable:
    """Parse the verdict alone."""
    factual = parsing.parse_score(fields["factuality"], Scale(0, 1))
    if isinstance(factual, parsing.Unreadable) or factual not in (0, 1):
        return parsing.Unreadable("the factuality must be True or False and nothing else")
    return factual == 1


def all_agree(state: Sequence[ClaimTurn]) -> bool:
    """Whether all speakers of a state have the same verdict."""
    return len({opinion.factual for opinion in state}) == 1


PAPER_MIN_ROUNDS = 2
"""The paper's minimum of rounds about every claim (section 4.1.2), even if all agents agree in the first."""

MAX_CLAIMS = 30
"""Maximum number of claims of a response; a reply with more is refused."""

MAX_SHORT_ANSWER = 40
"""Maximum length, in words, of an answer that becomes one claim together with its question, without an LM call."""


class Hallucination(ItemJudge):
    """A judge by claim verification.

    Args:
        rounds: The maximum of rounds. There is no Tie-breaker.
        min_rounds: Number of rounds before which agreement does not end a debate; a lower maximum has priority. A
            compile tries both the paper's minimum and 1 (`variants`), and keeps any other value.
        transition: A key of `TRANSITIONS`.
        search: The source of evidence if no knowledge is given: a name in `SEARCHES`, or any function from a query to
            texts, also an asynchronous one. A judge with a function of its own can be exported by a subclass that
            gives it to this constructor.
        agents: Name in `AGENTS` -> instructions in place of the built-in ones, such as a paper's own wording.

    Raises:
        InputError: An option has a value that it cannot have, or the search provider has no key.
    """

    kind = "hallucination"
    settable = ("min_rounds", "transition", "search", "agents")

    def __init__(
        self,
        rounds: int = 3,
        min_rounds: int = PAPER_MIN_ROUNDS,
        transition: str = "true-skeptic",
        search: str | Search = "none",
        agents: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(DebateConfig(rounds))
        one_of("transition", transition, TRANSITIONS)
        self.min_rounds = whole_number("min_rounds", min_rounds)
        self.transition, self.agents = transition, dict(agents or {})
        self.search, self.look_up = find_search(search)
        self.facts = Role("facts", Selecting)
        self.claims = Role("claims", Extracting)
        self.queries = Role("queries", Querying)
        for name, text in self.agents.items():
            one_of("agents", name, AGENTS)
            if not isinstance(text, str) or not text.strip():
                raise InputError("not an agent", field=f"agents.{name}", expected="a non-empty text", found=text)
        roles = (Role(name, Verifying, self.agents.get(name, text)) for name, text in AGENTS.items())
        self.initial, self.trust, self.skeptic, self.leader = roles

    async def converse_about(self, item: Item, rounds: int) -> Transcript:
        """Verify the item's claims concurrently, each with at most `rounds` rounds."""
        claims, note, transcript = await self._claims_of(item)
        debates = await gather(
            self._verify(item, number, claim, note, rounds) for number, claim in enumerate(claims, 1)
        )
        turns = transcript.turns + tuple(turn for debate in debates for turn in debate.turns)
        failures = [debate.failure for debate in debates if debate.failure is not None]
        if not failures:
            return replace(transcript, turns=turns)
        # The earliest failure, so that the transcript fails at every number of rounds at which a claim failed.
        earliest = min(failures, key=lambda failure: failure.round)
        return Transcript(turns, replace(earliest, calls=sum(failure.calls for failure in failures)))

    async def _claims_of(self, item: Item) -> tuple[tuple[str, ...], str, Transcript]:
        """The claims of a response, what the agents are told about them, and the turns or the failure so far."""
        response_type, label = response_type_of(item.task), item.task.candidate_label
        note, transcript, text = f"The claim stands in this kind of text: {label}.", EMPTY, item.text
        claims: RoleReply[tuple[str, ...]] | Failure
        if response_type == "claim":
            claims, note = RoleReply((text,), 0), ""
        elif response_type == "answer" and len(text.split()) <= MAX_SHORT_ANSWER:
            # A short answer is no statement without its question: `Which city is the capital of Peru? Lima.`
            claims = RoleReply((" ".join(f"{item.source} {text}".split()),), 0)
            note = f"The claim is a question with its {label}. {ANSWER_NOTE}"
        else:
            if response_type == "dialogue":
                facts = await self.facts.ask(item, parse_facts)
                if isinstance(facts, Failure):
                    return (), note, EMPTY.add(facts)
                text = facts.value
                transcript = EMPTY.add(Turn("facts", 0, text or "nothing that could be checked", calls=facts.calls))
            claims = RoleReply((), 0)
            if text:
                claims = await extract_claims(self.claims, item, text, response_type, MAX_CLAIMS)
        if isinstance(claims, Failure):
            return (), note, transcript.add(claims)
        # A response without claims cannot be wrong: it gets the highest score without verification.
        score = None if claims.value else item.aspect.scale.high
        listed = "\n".join(f"{number}. {claim}" for number, claim in enumerate(claims.value, 1))
        return claims.value, note, transcript.add(Turn("claims", 0, listed or "none", score, calls=claims.calls))

    async def _verify(self, item: Item, number: int, claim: str, note: str, rounds: int) -> Transcript:
        """Find evidence for a claim and debate it; a failure ends the transcript."""
        transcript = EMPTY

        def failed(reply: Failure) -> Transcript:
            return transcript.add(replace(reply, detail=f"claim {number}: {reply.detail}"))

        found = await find_evidence(item, claim, self.queries, self.search, self.look_up)
        if isinstance(found, Failure):
            return failed(found)
        evidence = found.value
        transcript = EMPTY.add(Turn("evidence", 0, f"claim {number}: {evidence}", calls=found.calls))
        evidence_note = _NONE if not evidence.text else _SEARCHED if evidence.method == SEARCHED else _GIVEN
        inputs = {
            "task": parsing.escape_cached(f"{note} {evidence_note} {_FACTUAL}".lstrip()),
            "evidence": parsing.escape(evidence.text),
            "claim": parsing.escape(claim),
        }
        state: list[ClaimTurn] = []
        speakers: tuple[str, ...] = ("initial",)
        for round in range(rounds + 1):
            if round:
                if round > self.min_rounds and all_agree(state):
                    break
                speakers = TRANSITIONS[self.transition][state[-1].factual]
            previous, state = state, []
            for name in speakers:
                # The Leader reads both others of its state; each of these reads the agent that spoke just before.
                visible = state if name == "leader" else (state or previous)[-1:]
                debate = "\n\n".join(map(str, visible))
                role: Role = getattr(self, name)
                reply = await role.ask(item, parse_assessment, round=round, debate=debate, inputs=inputs)
                if isinstance(reply, Failure):
                    return failed(reply)
                state.append(claim_turn(name, round, reply, item.aspect.scale, number))
                transcript = transcript.add(state[-1])
        return transcript

    def verdict(self, transcript: Transcript, rounds: int) -> Verdict:
        """The score of the worst claim, by the last opinion about each claim; the highest score if there is none."""
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
        last_round = max(turn.round for turn in last)
        open_claims = any(not all_agree(state) for state in states.values())
        reason: StopReason = "rounds over" if open_claims else "no issue" if last_round or not states else "single call"
        return Verdict(score, last_round, reason, transcript.calls, transcript)

    def variants(self, personas: Mapping[str, str]) -> dict[str, Judge]:
        """Two variants: with the paper's minimum of rounds, and with 1, whose debate is the beginning of the other."""
        if self.min_rounds != PAPER_MIN_ROUNDS or self.debate_config.rounds < PAPER_MIN_ROUNDS:
            return super().variants(personas)
        shorter: Hallucination = self.deepcopy()
        shorter.min_rounds = 1
        return {f"at least {PAPER_MIN_ROUNDS} rounds": self, "at least 1 round": shorter}

    def dry_run_copy(self) -> Hallucination:
        copy: Hallucination = self.deepcopy()
        copy.search, copy.look_up = ("placeholder", self.look_up and placeholder_search)
        return copy

    def tunable(self) -> tuple[str, ...]:
        debaters = ("trust", "skeptic", "leader") if self.debate_config.rounds else ()
        return ("facts", "claims", "queries", "initial", *debaters)

    def config(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.settable} | {"rounds": self.debate_config.rounds}


# --- the baselines: one call over the whole response (section 4.1.1) ---
#
# The plain check compares the response with the source and all given knowledge. In the self-check, after Factool (Chern
# et al. 2023), the LM checks the statements by its own knowledge: it sees the source but no given knowledge, and three
# worked examples or none. In the few-shot check, after HaluEval (Li et al. 2023), it sees labelled examples of the
# types of hallucination besides the source, and replies with a verdict alone.

PLAIN = (
    "You check whether a response is factual. Compare all that it states with what is given and with what a careful "
    "reader concludes from that. It is factual if nothing in it is contradicted or without support; one hallucinated "
    "statement makes it not factual. Say whether it is factual and how severe its worst error is."
)
SELF_CHECK = (
    "You check a response for statements that are not factual, by what you know yourself and by the source where the "
    "source has it. Go through the response statement by statement, step by step: what does it say, is that so, "
    "and if not, what would be right? One false statement makes the response not factual. Close with whether it is "
    "factual and how severe its worst error is."
)

FEW_SHOT = (
    "You decide whether a response contains anything hallucinated, that is not factual, by the types of hallucination "
    "that the examples show, by the source and by what you know of the world. It is factual if it contains nothing of "
    "the kind. Reply with the verdict alone."
)

CHECKS: Mapping[str, str] = MappingProxyType({"plain": PLAIN, "self-check": SELF_CHECK, "few-shot": FEW_SHOT})
"""Name of a check -> its instructions."""

EXAMPLES: tuple[tuple[str, str, str, bool, int], ...] = (
    (
        "How many moons does Mars have?",
        "Mars has two moons, Phobos and Deimos.",
        "Statement: Mars has two moons. That is so. Statement: they are Phobos and Deimos. Both were found in 1877 and "
        "no other is known. Nothing is wrong.",
        True,
        0,
    ),
    (
        "Who painted the ceiling of the Sistine Chapel?",
        "It was painted by Raphael between 1508 and 1512.",
        "Statement: Raphael painted it. Michelangelo did; Raphael worked in other rooms of the palace. Statement: "
        "between 1508 and 1512. The years are right. The answer to the question itself is false.",
        False,
        4,
    ),
    (
        "Tell me about the river Rhine.",
        "The Rhine rises in the Alps and flows into the North Sea. It is the longest river in Europe.",
        "Statement: it rises in the Alps. So it does. Statement: it flows into the North Sea. So it does, in the "
        "Netherlands. Statement: it is Europe's longest river. The Volga is almost three times as long. That misleads "
        "about the size of the river.",
        False,
        3,
    ),
)
"""(source, response, opinion, factuality, severity), about general knowledge that is in none of the public sets."""


SHOTS: Mapping[ResponseType, tuple[tuple[str, str, str, bool], ...]] = MappingProxyType(
    {
        "answer": (
            ("the question is misunderstood", "Who wrote the play on which the film is based?", "The film.", False),
            ("the world says otherwise", "Which is the longest river of Africa?", "The Congo.", False),
            ("nothing", "Which is the longest river of Africa?", "The Nile.", True),
            ("too general for what was asked", "In which city was Chopin born?", "In Europe.", False),
            ("it does not follow", "Which is older, Rome or Oslo?", "Oslo, since it is the smaller one.", False),
            ("nothing", "What do Goethe and Schiller have in common?", "Both were German writers.", True),
        ),
        "dialogue": (
            ("the world says otherwise", "[Human]: Who played the lead in Casablanca?", "Cary Grant did.", False),
            ("nothing", "[Human]: Who played the lead in Casablanca?", "Humphrey Bogart. Have you seen it?", True),
            ("one thing is taken for another", "[Human]: I like Dune, the novel.", "Yes, Asimov at his best.", False),
            ("it is off the matter", "[Human]: Is Everest the highest?", "Yes, K2 is the highest.", False),
        ),
        "document": (
            ("it is not in the document", "The town bought a bus.", "The town bought two red buses.", False),
            ("nothing", "The town bought a bus.", "A bus was bought by the town.", True),
            ("it contradicts the document", "The mayor lost by 12 votes.", "The mayor won narrowly.", False),
            ("it does not follow", "Sales fell in May.", "The firm will close because sales fell.", False),
        ),
    }
)
"""Type of the response -> (what is hallucinated, source, response, factuality), in no public set."""


class Checking(dspy.Signature):
    __doc__ = PLAIN

    examples: str = dspy.InputField(default="")
    task: str = dspy.InputField()
    source: str = dspy.InputField()
    context: str = dspy.InputField(default="")
    candidate: str = dspy.InputField()
    correction: str = dspy.InputField(default="")
    opinion: str = dspy.OutputField(desc=OPINION.replace("the claim", "the response"))
    factuality: str = dspy.OutputField(desc=FACTUALITY)
    severity: str = dspy.OutputField(desc=SEVERITY)


class HallucinationCheck(ItemJudge):
    """A judge by one call; predictor name `checker`.

    Args:
        check: A key of `CHECKS`.
        examples: Number of worked examples in the prompt of a self-check, 0 to 3.
    """

    kind = "hallucination-check"
    settable = ("check", "examples")

    def __init__(self, check: str = "plain", examples: int = 0) -> None:
        super().__init__(DebateConfig(rounds=0))
        one_of("check", check, CHECKS)
        self.check = check
        self.examples = whole_number("examples", examples, maximum=len(EXAMPLES) if check == "self-check" else 0)
        signature = Checking.delete("opinion").delete("severity") if check == "few-shot" else Checking
        self.checker = Role("checker", signature, CHECKS[check])

    async def converse_about(self, item: Item, rounds: int) -> Transcript:
        response_type = response_type_of(item.task)
        context = item.context if self.check == "plain" else ""
        task = f"{task_description(item.task, bool(context))} The candidate is the response."
        if response_type == "answer" and self.check != "few-shot":
            task = f"{task} {ANSWER_NOTE}"
        examples: list[str] = []
        if self.check == "self-check":
            examples = [
                f"Source: {source}\nResponse: {text}\nOpinion: {opinion}\nFactuality: {factual}\nSeverity: {severity}"
                for source, text, opinion, factual, severity in EXAMPLES[: self.examples]
            ]
        elif self.check == "few-shot":
            examples = [
                f"Hallucinated: {fault}\nSource: {source}\nResponse: {response}\nFactuality: {factual}"
                for fault, source, response, factual in SHOTS["answer" if response_type == "claim" else response_type]
            ]
        inputs = {"task": task, "examples": "\n\n".join(examples)} | ({} if context else {"context": ""})
        parse = parse_verdict if self.check == "few-shot" else parse_assessment
        reply = await self.checker.ask(item, parse, inputs=inputs)
        if isinstance(reply, Failure):
            return EMPTY.add(reply)
        return EMPTY.add(claim_turn("checker", 0, reply, item.aspect.scale))

    def config(self) -> dict[str, Any]:
        return {"check": self.check, "examples": self.examples}


def parse_verdict(fields: Fields) -> ClaimAssessment | parsing.Unreadable:
    """Parse a verdict without a severity; it counts as the mildest or the gravest, so that scores are two."""
    factual = parse_factuality(fields)
    if isinstance(factual, parsing.Unreadable):
        return factual
    return ClaimAssessment("", factual, 0 if factual else MAX_SEVERITY)
