"""DEBATE: Scorer, Critic and Tie-breaker composed into one program (DEBATE, section 2, Algorithm 1).

The paper's systems are presets and not subclasses: without rounds it is the single scorer, with a plain persona
MultiAgent, with a devil's advocate DEBATE; each with or without a Tie-breaker. No prompt depends on the number of
rounds n, so a debate of n_max rounds begins with the debate of every smaller n, which needs no further LM call.

The paper's Commander is an LM agent that passes messages on; here it is this program, because what it passes on is
decided by Algorithm 1 and an LM could only add calls and change the messages.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import dspy

from debate_judge.data.errors import InputError
from debate_judge.programs import parsing
from debate_judge.programs.debate import prompts
from debate_judge.programs.debate.prompts import (
    ADVOCATE,
    Criticism,
    Persona,
    Scoring,
    TieBreaking,
    TwoBriefs,
    find_persona,
)
from debate_judge.programs.examples import example_inputs, precedents_for
from debate_judge.programs.judge import (
    EMPTY,
    DebateConfig,
    Failure,
    Item,
    Judge,
    StopReason,
    Transcript,
    Turn,
    Verdict,
    first_success,
    whole_number,
)
from debate_judge.programs.lm.engine import JudgeLM, gather
from debate_judge.programs.lm.replies import CallTag
from debate_judge.programs.parsing import NO_ISSUE, Unreadable
from debate_judge.programs.role import (
    ParsedScore,
    RoleLastAdapter,
    RoleReply,
    ScoreMode,
    TextFailure,
    ask,
    ask_score,
    call,
    item_inputs,
)

# --- the replies ---


class Feedback(NamedTuple):
    """What the Critic replied about one text."""

    no_issue: bool
    text: str
    """What the other roles are shown."""


_NO_ISSUE = re.compile(
    r"(?:decision |feedback )?(?:there (?:is|are) )?no ?issues?(?: (?:found|remains?|remaining|left))?", re.IGNORECASE
)
_WITH_EXPLANATION = re.compile(r"(.{2,40}?)\s*(?:[.:(–—]|\s-\s)\s*(.*\S.*)")
"""NO ISSUE and its explanation: `NO ISSUE: I agree`."""
_LIMITATION = re.compile(
    r"\A(?:with|in|on|about|regarding|concerning|as|for|of|apart|other|besides|beyond|only|here)\b"
    r"|\b(?:but|however|though|although|except|yet|still|unless|issues?|wrong\w*|false|incorrect\w*|inaccura\w*"
    r"|errors?|mistakes?|problems?|missing|lacks?|fails?|too|not|never|contradict\w*|unsupported|invent\w*)\b|n['’]t\b",
    re.IGNORECASE,
)
"""Words in an explanation that restrict a NO ISSUE to a part of the text, or take it back."""


def parse_feedback(text: str) -> Feedback | Unreadable:
    """Parse a criticism. NO ISSUE counts on the first line and alone, in any case, punctuation and markup.

    Elsewhere the words may be quoted from a text under evaluation.
    """
    text = text.strip()
    if not text:
        return Unreadable("the feedback was missing")
    line = text.splitlines()[0].strip()
    explained = _WITH_EXPLANATION.fullmatch(line)
    if explained and not _LIMITATION.search(explained[2]):
        line = explained[1]
    no_issue = _NO_ISSUE.fullmatch(re.sub(r"[\W_]+", " ", line).strip()) is not None
    return Feedback(no_issue, NO_ISSUE if no_issue else text)


def parse_briefs(fields: Mapping[str, str]) -> Feedback | Unreadable:
    """Parse two briefs; NO ISSUE in place of both ends the debate."""
    less, more = (parse_feedback(fields[name]) for name in ("case_for_less", "case_for_more"))
    if isinstance(less, Unreadable) or isinstance(more, Unreadable):
        return Unreadable("a case for less and a case for more are both needed")
    if less.no_issue and more.no_issue:
        return less
    return Feedback(False, f"The case for less: {less.text}\n\nThe case for more: {more.text}")


def parse_reply(fields: Mapping[str, str], item: Item) -> ParsedScore | Feedback | Unreadable:
    """Parse a reply of any role about one candidate."""
    if "feedback" in fields:
        return parse_feedback(fields["feedback"])
    if "case_for_less" in fields:
        return parse_briefs(fields)
    score = fields["score"] if "score" in fields else fields["final_score"]
    value = parsing.parse_score(score, item.aspect.scale, item.aspect.name)
    if isinstance(value, Unreadable):
        return value
    side = f"({fields['side'].strip()}) " if fields.get("side", "").strip() else ""
    return ParsedScore(value, side + fields["rationale" if "score" in fields else "reasoning"])


# --- the table: the candidates of one source that are debated, one or several that share calls ---
#
# Each candidate has a transcript of its own. Several open ones are asked about in one call, whose reply has the role's
# fields for each; the call counts in their transcripts in equal shares. A candidate whose part of the reply cannot be
# read, and every candidate of a call that fails because of its texts, is asked about alone from then on, with the
# prompts of a debate about one candidate.

TOKENS_PER_SCORE = 250
"""Tokens that a reply may take for each of several scores; a lower `max_tokens` is raised to the sum."""


@dataclass(frozen=True)
class Speaker:
    """A role in one turn."""

    name: str
    """In transcripts and in the table of costs."""
    predictor: dspy.Predict
    text: str
    """The role's part of the prompt."""
    table_text: str
    """The same in a prompt about several candidates."""
    mode: ScoreMode | None = None
    """How the Scorer's replies become scores; None for other roles."""
    sees_precedents: bool = False


class Table:
    """The candidates of a debate, with the transcript of each.

    Args:
        judge: The debate's roles and options.
        items: Of one source and one aspect, in the order of the prompt.
        transcripts: The debate so far, one for each item; by default it has not begun.
    """

    def __init__(self, judge: Debate, items: Sequence[Item], transcripts: Sequence[Transcript] | None = None) -> None:
        self._judge = judge
        self._items = items
        self.transcripts = list(transcripts or [EMPTY] * len(items))
        """One for each item."""
        self._alone = [judge.together < 2] * len(items)
        self._failed_calls = [0.0] * len(items)
        """Shares of calls about several candidates whose replies were of no use, until the candidate's next turn."""

    def open(self) -> list[int]:
        """The candidates that are still debated."""
        return [n for n, t in enumerate(self.transcripts) if t.failure is None and not t.settled]

    async def turn(self, speaker: Speaker, candidates: Sequence[int], round: int) -> None:
        """Let a role speak about these candidates."""
        table = [number for number in candidates if not self._alone[number]]
        if len(table) > 1:
            await self._ask_about_all(speaker, table, round)
            candidates = [n for n in candidates if n not in table or self._alone[n]]
        await gather(self._ask_about(speaker, number, round) for number in candidates)

    def _record(self, speaker: Speaker, number: int, round: int, reply: RoleReply[Any] | Failure) -> None:
        calls, self._failed_calls[number] = reply.calls + self._failed_calls[number], 0.0
        entry: Turn | Failure
        if isinstance(reply, Failure):
            entry = replace(reply, calls=calls)
        elif isinstance(reply.value, Feedback):
            entry = Turn(speaker.name, round, reply.value.text, no_issue=reply.value.no_issue, calls=calls)
        else:
            entry = Turn(speaker.name, round, reply.value.rationale, score=reply.value.score, calls=calls)
        self.transcripts[number] = self.transcripts[number].add(entry)

    async def _ask_about(self, speaker: Speaker, number: int, round: int) -> None:
        item, tag = self._items[number], CallTag(speaker.name, round)
        inputs = await self._inputs(speaker, [item])
        prompt: dict[str, Any] = {"debate": str(self.transcripts[number]), "inputs": inputs}
        reply: RoleReply[Any] | Failure
        if speaker.mode is None:
            reply = await ask(speaker.predictor, item, lambda fields: parse_reply(fields, item), tag, **prompt)
        else:
            reply = await ask_score(speaker.predictor, speaker.mode, item, tag, **prompt)
        self._record(speaker, number, round, reply)

    async def _ask_about_all(self, speaker: Speaker, candidates: Sequence[int], round: int) -> None:
        items = [self._items[number] for number in candidates]
        signature = prompts.table_signature(speaker.predictor.signature, len(items))
        inputs = {
            **item_inputs(items[0], ""),
            **await self._inputs(speaker, items),
            "role": speaker.table_text,
            **prompts.table_inputs(items, [str(self.transcripts[number]) for number in candidates]),
        }
        reply = await call(
            speaker.predictor, inputs, CallTag(speaker.name, round), RoleLastAdapter(), _reply_limit(len(items)),
            signature=signature, demos=[],
        )  # fmt: skip
        share = 1 / len(items)
        for index, number in enumerate(candidates, 1):
            if isinstance(reply, Failure) and not isinstance(reply, TextFailure):
                self._record(speaker, number, round, replace(reply, calls=share))
                continue
            parsed: ParsedScore | Feedback | Unreadable | Failure = reply  # type: ignore[assignment]
            if not isinstance(reply, Unreadable | Failure):
                names = speaker.predictor.signature.output_fields
                parsed = parse_reply({name: reply[f"{name}_{index}"] for name in names}, self._items[number])
            if isinstance(parsed, Unreadable | Failure):
                self._alone[number] = True
                self._failed_calls[number] += share
            else:
                self._record(speaker, number, round, RoleReply(parsed, share))

    async def _inputs(self, speaker: Speaker, items: Sequence[Item]) -> dict[str, str]:
        judge, aspect = self._judge, items[0].aspect
        scorer, whole_points = judge.scorer, judge.mode.name == "expected"
        inputs = {**prompts.common_inputs(aspect, scorer.signature.instructions, whole_points), "role": speaker.text}
        if scorer.demos:
            inputs |= example_inputs(scorer.demos, aspect.name, items)
        if speaker.sees_precedents and judge.precedents:
            # In a thread, because a search of texts would block all other debates.
            inputs["precedents"] = await asyncio.to_thread(self._precedents, items)
        return inputs

    def _precedents(self, items: Sequence[Item]) -> str:
        demos, count = self._judge.critic.demos, self._judge.precedents
        texts = [precedents_for(item, demos, items, count) for item in items]
        if len(texts) == 1:
            return texts[0]
        return "\n".join(f"For candidate_{number}. {text}" for number, text in enumerate(texts, 1))


def _reply_limit(count: int) -> dict[str, int]:
    """`max_tokens` for a reply about `count` candidates, if the LM's own limit is lower than it needs."""
    lm = dspy.settings.lm
    limit = lm.kwargs.get("max_tokens") if isinstance(lm, JudgeLM) else None
    needed = count * TOKENS_PER_SCORE
    # A reply that is cut off would be paid for without a use.
    return {"max_tokens": needed} if limit is not None and limit < needed else {}


# --- the judge ---


class Debate(Judge):
    """A judge by debate.

    Args:
        persona: The Critic's persona, which becomes its instructions; a name is one of `PERSONAS`.
        debate_config: Replaces `rounds` and `tie_breaker`.
        score_mode: How the Scorer's replies become scores: `text`, `sampled:k` or `expected`
            (`programs.role`). `expected` asks for whole points, because each needs a token of its own. The
            Tie-breaker's score is always the number that it writes.
        rounds: n, the maximum number of rounds of Critic and Scorer; 0 is a single call of the Scorer.
        tie_breaker: Whether a Tie-breaker decides debates that end without agreement.
        together: K, the maximum number of candidates of a source that share a call (`programs.debate.judge`); 0 judges
            each alone.
        precedents: Number of rated texts most like the candidate that the Critic is shown
            (`programs.examples.with_precedents`); 0 shows none.
    """

    kind = "debate"
    shows_examples = True
    shows_precedents = True
    settable = ("score_mode", "together")

    def __init__(
        self,
        persona: Persona | str = ADVOCATE,
        debate_config: DebateConfig | None = None,
        score_mode: str = "text",
        *,
        rounds: int = 3,
        tie_breaker: bool = False,
        together: int = 0,
        precedents: int = 0,
    ) -> None:
        super().__init__(debate_config or DebateConfig(rounds, tie_breaker))
        persona = find_persona(persona) if isinstance(persona, str) else persona
        self.scorer = dspy.Predict(Scoring)
        criticism = TwoBriefs if persona.two_briefs else Criticism
        self.critic = dspy.Predict(criticism.with_instructions(persona.text))
        self.tie_breaker = dspy.Predict(TieBreaking)
        self.mode = ScoreMode.parse(score_mode)
        self.persona = persona
        self.together = whole_number("together", together)
        self.precedents = whole_number("precedents", precedents)
        if together > 1 and self.mode.name != "text":
            raise InputError(
                "samples and probabilities are those of a reply with one score",
                field="together",
                expected="score mode text where candidates share a call",
                found=str(self.mode),
            )

    # --- the roles' turns ---

    def _scorer(self, task: str, table_task: str) -> Speaker:
        own = f"You are the Scorer. {prompts.standard(self.scorer.signature.instructions)}\n"
        texts = own + task, own + table_task
        return Speaker("scorer", self.scorer, *texts, self.mode)

    def _critic(self, round: int) -> Speaker:
        # The persona word for word; escaped, because an LM that has read texts under evaluation may have written it.
        text = f"You are the Critic.\n{parsing.escape(self.critic.signature.instructions)}"
        text += f" {self.persona.later}" if self.persona.later and round > 1 else ""
        return Speaker("critic", self.critic, text, text, sees_precedents=True)

    def _tie_breaker(self) -> Speaker:
        text = f"You are the Tie-breaker. {parsing.escape(self.tie_breaker.signature.instructions)}\n"
        text += f"Scores are given by this standard: {prompts.standard(self.scorer.signature.instructions)}"
        return Speaker("tie-breaker", self.tie_breaker, text, text)

    async def converse(self, items: Sequence[Item], rounds: int) -> list[Transcript]:
        """Algorithm 1: the Scorer; then up to `rounds` times the Critic, until NO ISSUE, and the Scorer again."""
        table = Table(self, items)
        await table.turn(self._scorer(prompts.OPENING, prompts.OPENING_TABLE), table.open(), 0)
        for round in range(1, rounds + 1):
            await table.turn(self._critic(round), table.open(), round)
            await table.turn(self._scorer(prompts.REVISION, prompts.REVISION_TABLE), table.open(), round)
        return table.transcripts

    async def break_ties(self, items: Sequence[Item], transcripts: Sequence[Transcript]) -> list[Transcript]:
        table = Table(self, items, transcripts)
        disputed = [number for number in table.open() if transcripts[number].rounds]
        for round in sorted({transcripts[number].rounds for number in disputed}):
            await table.turn(self._tie_breaker(), [n for n in disputed if transcripts[n].rounds == round], round)
        return table.transcripts

    async def smoke_test(self, items: Sequence[Item]) -> Transcript:
        """Ask every role once, also those without an open debate, so that one that the LM cannot play is noticed."""
        transcripts = await self.converse(items, min(self.debate_config.rounds, 1))
        transcript = first_success(transcripts)
        if transcript.failure is not None or not self.debate_config.rounds or not self.debate_config.tie_breaker:
            return transcript
        table = Table(self, items[:1], [transcript])
        await table.turn(self._tie_breaker(), [0], transcript.rounds)
        return table.transcripts[0]

    # --- the judge contract ---

    def verdict(self, transcript: Transcript, rounds: int) -> Verdict:
        last, score = transcript.turns[-1], transcript.score
        if last.role == "tie-breaker" and last.score is not None:
            return Verdict(last.score, transcript.rounds, "tie-breaker", transcript.calls, transcript)
        if score is None:
            raise ValueError("a debate without a Scorer turn and without a failure cannot exist")
        reason: StopReason = "single call" if rounds == 0 else "no issue" if transcript.settled else "rounds over"
        return Verdict(score, transcript.rounds, reason, transcript.calls, transcript)

    def variants(self, personas: Mapping[str, str]) -> dict[str, Judge]:
        if self.debate_config.rounds == 0:
            return {self.persona.name: self}
        own = self.config()
        options = {name: own[name] for name in ("score_mode", "together", "precedents")}
        return {name: type(self)(find_persona(name, t), self.debate_config, **options) for name, t in personas.items()}

    def tunable(self) -> tuple[str, ...]:
        # A Tie-breaker is asked only after the search has chosen n, too late for a tuner.
        return ("scorer",) if self.debate_config.rounds == 0 else ("scorer", "critic")

    def config(self) -> dict[str, Any]:
        text, persona = self.critic.signature.instructions, self.persona
        return {
            "persona": persona.name if text == persona.text else "tuned",
            "persona_text": text,
            "persona_later": persona.later,
            "two_briefs": persona.two_briefs,
            "rounds": self.debate_config.rounds,
            "tie_breaker": self.debate_config.tie_breaker,
            "score_mode": str(self.mode),
            "together": self.together,
            "precedents": self.precedents,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Debate:
        persona = find_persona(str(config["persona"]), config.get("persona_text"))
        if "two_briefs" in config:
            persona = replace(persona, later=str(config["persona_later"]), two_briefs=bool(config["two_briefs"]))
        options = {name: config[name] for name in ("score_mode", "together", "precedents") if name in config}
        return cls(persona, DebateConfig(config["rounds"], config["tie_breaker"]), **options)
