"""The roles of a debate, and the table of scores that it is about.

A role is a `dspy.Predict` of the debate, and its instructions are all that an optimizer may rewrite: the Scorer's are
the standard of all roles, the Critic's its persona.

A table has candidates of one source, in one aspect or several. Each score is a cell with a transcript of its own; a
candidate alone in one aspect is a table of one cell. Every role
sees the whole table. The Critic is asked about the cells that are still open, the Scorer revises those that the Critic
disputes, and the Tie-breaker decides those that stay open; all others are settled and keep their scores. A call counts
in the transcripts of the cells that it asked about, in equal shares.

If a reply leaves out a cell or contradicts itself about one, the LM is asked once more about these cells only. What
stays unreadable, and a call that fails because of its texts (the context is too small, the reply too long, one text is
refused), is asked again about each half of the candidates, for a single candidate about each half of the aspects, and
so on; what an earlier call has said about the others is kept. A cell that is then alone is judged further with the
prompts of a debate about one candidate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import dspy

from debate_judge.programs.debate import prompts
from debate_judge.programs.debate import replies as table_replies
from debate_judge.programs.debate.prompts import Cell, Part, PromptParts, aspects_in, candidates_in, label, listed
from debate_judge.programs.debate.replies import Objection
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.loop import gather
from debate_judge.programs.lm.usage import CallTag
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.parsing import Unreadable, escape
from debate_judge.programs.roles.role import (
    SAMPLING,
    Fields,
    JudgeSignature,
    ReplyFailure,
    RoleLastAdapter,
    RoleReply,
    ask,
    call,
)
from debate_judge.programs.roles.score_modes import ParsedScore, mean_of, score
from debate_judge.programs.transcript import BLIND_CRITIC, EMPTY, Transcript, Turn

if TYPE_CHECKING:
    from debate_judge.programs.debate.judge import Debate

T = TypeVar("T")

TOKENS_PER_SCORE, TOKENS_PER_SCORE_JOINT = 250, 150
"""Tokens of a reply for each score, in calls about one aspect and about several. A lower `max_tokens` is raised to the
sum, which for 16 candidates in five aspects is still below the longest reply of LMs."""

_ROUNDING = 1e-9
"""By which the distance of two scores may seem smaller than it is."""

Readings = dict[Cell, T | Unreadable]
"""Cell -> what a reply says about it, or why that cannot be read."""

Answer = RoleReply[Any] | ReplyFailure
"""What was said about a cell: a `ParsedScore` or an `Objection`."""


# --- the roles ---


class Scoring(JudgeSignature):
    """Judge the candidate in the given aspect alone, by its definition; use the source, where it is shown, as far as
    the definition needs it. Faults and merits of other kinds do not count, however plain they are. Traces of
    processing, such as lower case, blanks around punctuation, a dateline or a missing last full stop, count for
    nothing. Name the places in the texts that raise or lower the score; for a clean text say that nothing was found.
    Use the whole scale: the best score is for a text in which you find nothing that the definition names, and trifles
    take nothing off."""

    # These instructions are the standard that all roles of the debate read (`programs.debate.prompts`), so they say
    # how to judge and do not address the Scorer.
    rationale: str = dspy.OutputField(desc="your reasons, step by step, with the places in the texts that they rest on")
    score: str = dspy.OutputField(desc="one number on the aspect's scale and nothing else")


class Criticism(JudgeSignature):
    """The persona stands here."""

    review: str = dspy.OutputField(desc="your own score with its reasons, then your check of the latest score")
    decision: str = dspy.OutputField(desc=f"{replies.NO_ISSUE} or ISSUE")
    # The other roles see only this field of the reply, so it has to contain the evidence.
    feedback: str = dspy.OutputField(desc="with ISSUE, the objection and its evidence; empty with NO ISSUE")


class BlindCriticism(Criticism):
    """The persona stands here."""

    review: str = dspy.OutputField(desc="where your own reading and the Scorer's part, and what the texts show there")


class TieBreaking(JudgeSignature):
    """The rounds of the debate are used up. Check each disputed point against the texts, settle it by the guide to
    the raters, or by the definition of the aspect where there is none, and give the final score."""

    reasoning: str = dspy.OutputField(desc="the disputed points and how the texts settle them")
    side: str = dspy.OutputField(desc="whose latest position is nearer to your score, Scorer or Critic")
    final_score: str = dspy.OutputField(desc="one number on the aspect's scale and nothing else")


class DebateRole(ABC):
    """One role's turn about some cells.

    Args:
        debates: Name of an aspect -> the debate with its roles. In a table of several aspects these differ at most in
            their guide to the raters and their rated examples.
    """

    name: ClassVar[str]
    """In transcripts and accounts."""
    predictor: ClassVar[str]
    samples = 0
    """Number of samples to average; 0 for a single reply at the LM's own temperature."""

    def __init__(self, debates: Mapping[str, Debate]) -> None:
        self._debates = debates
        self._first = next(iter(debates.values()))

    def predict(self, item: Item | None = None) -> dspy.Predict:
        """The predictor that speaks about an item, or about a table: that of its first aspect."""
        predict: dspy.Predict = getattr(self.of(item) if item else self._first, self.predictor)
        return predict

    def of(self, item: Item) -> Debate:
        return self._debates[item.aspect.name]

    def tag(self, transcripts: Sequence[Transcript]) -> CallTag:
        """The tag of a call about the cells with these transcripts."""
        return CallTag(self.name, max(map(self.round, transcripts)))

    def round(self, transcript: Transcript) -> int:
        """The round that the turn belongs to."""
        return transcript.rounds

    def visible(self, transcript: Transcript) -> Transcript:
        """What the role is shown of the debate."""
        return transcript.visible_to(self.name)

    async def ask_single(self, item: Item, transcript: Transcript, prompt_parts: PromptParts) -> Answer:
        """Speak about a candidate that is judged alone."""
        inputs, read, debate = (
            self.inputs(prompt_parts),
            partial(self.parse_single, item),
            str(self.visible(transcript)),
        )
        return await ask(self.predict(item), item, read, self.tag([transcript]), debate=debate, inputs=inputs)

    def parse_single(self, item: Item, fields: Fields) -> Any:
        """Parse the reply about one candidate."""
        raise NotImplementedError

    def inputs(self, prompt_parts: PromptParts, part: Part = ()) -> Mapping[str, str]:
        """Input fields of the prompt other than its texts, about one candidate or about the cells of `part`."""
        return prompt_parts.inputs(
            f"You are the {self.name.capitalize()}. {escape(self.predict().signature.instructions)}"
        )

    @abstractmethod
    def request(self, part: Part, concerned: Part, cells: Sequence[Cell]) -> str:
        """The form of the reply about a table that shows `part`, in a turn about the `concerned` cells, of which
        `cells` have no readable reply so far."""

    @abstractmethod
    def read(self, reply: str, cells: Sequence[Cell], items: Mapping[Cell, Item]) -> Readings[Any]:
        """Parse what a reply says about `cells`; `items` has all cells of the prompt."""

    def turn(self, transcript: Transcript, statement: ParsedScore | Objection, calls: float, item: Item) -> Turn:
        """What was said about a cell as a turn of its transcript."""
        number = self.round(transcript)
        if isinstance(statement, Objection):
            return Turn(self.name, number, statement.text, no_issue=statement.content, calls=calls)
        return Turn(self.name, number, statement.rationale, score=statement.score, calls=calls)


class _Scorer(DebateRole):
    name = predictor = "scorer"

    def __init__(self, debates: Mapping[str, Debate]) -> None:
        super().__init__(debates)
        self.samples = self._first.mode.samples if self._first.mode.name == "sampled" else 0

    async def ask_single(self, item: Item, transcript: Transcript, prompt_parts: PromptParts) -> Answer:
        prompt: dict[str, Any] = {"debate": str(self.visible(transcript)), "inputs": self.inputs(prompt_parts)}
        return await score(self.predict(item), self.of(item).mode, item, self.tag([transcript]), **prompt)

    def request(self, part: Part, concerned: Part, cells: Sequence[Cell]) -> str:
        return prompts.scoring_request(cells, cells)

    def read(self, reply: str, cells: Sequence[Cell], items: Mapping[Cell, Item]) -> Readings[ParsedScore]:
        return table_replies.read_scores(reply, prompts.SCORES, cells, items)


class Opening(_Scorer):
    """The Scorer's first turn, which is the single call."""

    def inputs(self, prompt_parts: PromptParts, part: Part = ()) -> Mapping[str, str]:
        return prompt_parts.inputs(prompts.opening_task(part), debating=False)


class BlindCritic(_Scorer):
    """The Critic's own score, by the prompt of a single call.

    Whether it is far enough from the Scorer's for a debate is computed here and not asked for: an LM that knows the
    other score ends up close to it.
    """

    name = BLIND_CRITIC

    def round(self, transcript: Transcript) -> int:
        return transcript.rounds + 1

    def inputs(self, prompt_parts: PromptParts, part: Part = ()) -> Mapping[str, str]:
        return prompt_parts.inputs(prompts.blind_task(part), debating=False)

    def visible(self, transcript: Transcript) -> Transcript:
        return EMPTY

    def turn(self, transcript: Transcript, statement: Any, calls: float, item: Item) -> Turn:
        given, gap = super().turn(transcript, statement, calls, item), self.of(item).persona.gap
        assert gap is not None
        distance = abs((given.score or 0.0) - (transcript.score or 0.0))
        return replace(given, no_issue=distance < gap * item.aspect.scale.step - _ROUNDING)


class Revision(_Scorer):
    """The Scorer's later turns. After a Critic that saw the scores, the LM gives all scores of a disputed aspect again,
    to keep them in proportion, but only the disputed ones are read."""

    def inputs(self, prompt_parts: PromptParts, part: Part = ()) -> Mapping[str, str]:
        return prompt_parts.inputs(prompts.revision_task(part))

    def request(self, part: Part, concerned: Part, cells: Sequence[Cell]) -> str:
        if self._first.persona.gap is not None or len(cells) < len(concerned):
            return super().request(part, concerned, cells)
        disputed = aspects_in(concerned)
        return prompts.scoring_request(cells, [cell for cell in part if cell.aspect in disputed])


class Critic(DebateRole):
    """Reviews the latest scores according to its persona, and decides whether an issue remains."""

    name = predictor = "critic"

    def round(self, transcript: Transcript) -> int:
        # The round of a blind score is that of the objection which follows from it.
        return transcript.rounds + (transcript.turns[-1].role != BLIND_CRITIC)

    def parse_single(self, item: Item, fields: Fields) -> Objection | Unreadable:
        # Only the decision field counts: the words NO ISSUE elsewhere, quoted from the candidate or an earlier turn,
        # change nothing.
        content = table_replies.no_issue(fields["decision"])
        if isinstance(content, Unreadable):
            return content
        feedback = fields["feedback"] or fields["review"]
        if not content and not feedback:
            return Unreadable("the decision was ISSUE but no feedback was given")
        return Objection(content, replies.NO_ISSUE if content else feedback)

    def request(self, part: Part, concerned: Part, cells: Sequence[Cell]) -> str:
        return prompts.reviewing_request(cells, blind=self._first.persona.gap is not None)

    def read(self, reply: str, cells: Sequence[Cell], items: Mapping[Cell, Item]) -> Readings[Objection]:
        return table_replies.read_decisions(reply, cells, items)


class TieBreaker(DebateRole):
    """Reads a debate that ended without agreement and gives the final score (DEBATE, appendix E.3)."""

    name, predictor = "tie-breaker", "tie_breaker"

    def parse_single(self, item: Item, fields: Fields) -> ParsedScore | Unreadable:
        value = replies.score(fields["final_score"], item.aspect.scale, item.aspect.name)
        if isinstance(value, Unreadable):
            return value
        side, reasoning = fields["side"].strip(), fields["reasoning"]
        return ParsedScore(value, f"({side}) {reasoning}" if side else reasoning)

    def request(self, part: Part, concerned: Part, cells: Sequence[Cell]) -> str:
        return prompts.settling_request(cells)

    def read(self, reply: str, cells: Sequence[Cell], items: Mapping[Cell, Item]) -> Readings[ParsedScore]:
        return table_replies.read_scores(reply, prompts.FINAL_SCORES, cells, items)


# --- the table ---


class ScoreTable:
    """The cells of a debate, with what was said about each.

    Args:
        debates: Name of an aspect -> the debate with its roles.
        parts_by_aspect: Name of an aspect -> what its prompts have in common; not needed for a single item.
        items: Candidate by candidate, in the order in which they are shown.
        transcripts: The debate so far, one for each item; by default it has not begun.
        whole: Whether a reply that stays unreadable is a failure, and not asked for again about fewer; for smoke tests.
    """

    def __init__(
        self,
        debates: Mapping[str, Debate],
        parts_by_aspect: Mapping[str, PromptParts],
        items: Sequence[Item],
        transcripts: Sequence[Transcript] | None = None,
        *,
        whole: bool = False,
    ) -> None:
        self._debates = debates
        self._parts_by_aspect = parts_by_aspect
        self._items = prompts.cells_of(items)
        self._transcripts = dict(zip(self._items, transcripts or [EMPTY] * len(items), strict=True))
        self.begun = transcripts is not None
        self._parts = list(prompts.parts_of(self._transcripts)) if self.begun else [tuple(self._items)]
        self._whole = whole
        self._alone: dict[Cell, PromptParts] = {}
        self._spent: dict[Cell, float] = dict.fromkeys(self._items, 0)
        """Shares of failed calls, which are added to the calls of the cell's next turn."""

    @property
    def transcripts(self) -> list[Transcript]:
        """One for each item, in the order of the items."""
        return list(self._transcripts.values())

    def open(self) -> list[Cell]:
        """The cells that are still debated."""
        return [cell for cell, t in self._transcripts.items() if t.failure is None and not t.settled]

    def disputed(self) -> list[Cell]:
        """The cells about which Critic and Scorer still disagree."""
        return [cell for cell in self.open() if self._transcripts[cell].rounds]

    def debated(self) -> list[Cell]:
        """The cells that a Tie-breaker could be asked about, settled ones included."""
        return [cell for cell, t in self._transcripts.items() if t.failure is None and t.rounds]

    def end_round(self, *, again: bool = False) -> None:
        """Record the sizes of the parts after a round, or `again` after the last one."""
        if len(self._items) == 1:
            return
        for part in self._parts:
            size = len(candidates_in(part)), len(aspects_in(part))
            for cell in part:
                before = self._transcripts[cell]
                sizes = before.sizes[:-1] if again else before.sizes
                self._transcripts[cell] = replace(before, sizes=(*sizes, size))

    async def turn(self, role: type[DebateRole], cells: Collection[Cell]) -> None:
        """Have a role speak about some cells, in one call for each part of the table that they are in."""
        if not cells:
            return
        speaker = role(self._debates)

        async def speak(part: Part, cells: Collection[Cell]) -> list[Part]:
            concerned = tuple(cell for cell in part if cell in cells)
            if not concerned:
                return [part]
            answers = await (self._ask(speaker, part, concerned) if len(part) > 1 else self._ask_alone(speaker, *part))
            again = [cell for cell, answer in answers.items() if not self._add(speaker, cell, answer, len(part) > 1)]
            return await each(prompts.halves(part), again) if again else [part]

        async def each(parts: Sequence[Part], cells: Collection[Cell]) -> list[Part]:
            if len(parts) == 1:
                return await speak(parts[0], cells)
            pieces = await gather(speak(part, cells) for part in parts)
            return [piece for some in pieces for piece in some]

        self._parts = await each(self._parts, cells)

    def _add(self, speaker: DebateRole, cell: Cell, answer: Answer, shared: bool) -> bool:
        """Add what was said about a cell to its transcript, unless it has to be asked about among fewer."""
        before, spent = self._transcripts[cell], self._spent[cell]
        if isinstance(answer, RoleReply):
            turn = speaker.turn(before, answer.value, answer.calls + spent, self._items[cell])
            self._transcripts[cell] = before.add(turn)
        elif shared and (answer.divisible or (answer.reason == "unreadable reply" and not self._whole)):
            self._spent[cell] += answer.calls
            return False
        else:
            failure = answer.at(speaker.name, speaker.round(before))
            self._transcripts[cell] = before.add(replace(failure, calls=failure.calls + spent))
        self._spent[cell] = 0
        return True

    async def _ask_alone(self, speaker: DebateRole, cell: Cell) -> dict[Cell, Answer]:
        item = self._items[cell]
        if cell not in self._alone:
            self._alone[cell] = await speaker.of(item).prompt_parts_in_thread(item)
        return {cell: await speaker.ask_single(item, self._transcripts[cell], self._alone[cell])}

    async def _ask(self, speaker: DebateRole, part: Part, concerned: Part) -> dict[Cell, Answer]:
        items = {cell: self._items[cell] for cell in part}
        parts = prompts.joint_prompt_parts(
            {cell.aspect: self._parts_by_aspect[item.aspect.name] for cell, item in items.items()}
        )
        inputs = {
            **prompts.table_material(items),
            "debate": prompts.debate_text({cell: speaker.visible(self._transcripts[cell]) for cell in part}),
            **speaker.inputs(parts, part),
        }
        tag = speaker.tag([self._transcripts[cell] for cell in concerned])
        if not speaker.samples:
            return await self._ask_once(speaker, part, concerned, inputs, tag)
        tags = (replace(tag, sample=number) for number in range(speaker.samples))
        runs = await gather(self._ask_once(speaker, part, concerned, inputs, each_tag) for each_tag in tags)
        return {cell: _mean([run[cell] for run in runs]) for cell in concerned}

    async def _ask_once(
        self, speaker: DebateRole, part: Part, concerned: Part, inputs: Mapping[str, str], tag: CallTag
    ) -> dict[Cell, Answer]:
        """Make one call about the concerned cells, and a second one about what cannot be read from the first reply."""
        items = {cell: self._items[cell] for cell in part}
        answers: dict[Cell, Answer] = {}
        calls = dict.fromkeys(concerned, 0.0)
        wrong: dict[Cell, str] = dict.fromkeys(concerned, "")
        correction = tail = ""
        settings = {**({} if tag.sample is None else SAMPLING), **_reply_limit(concerned)}
        for _ in range(2):
            missing, adapter = tuple(wrong), RoleLastAdapter()
            prompt = {**inputs, "request": speaker.request(part, concerned, missing), "correction": correction}
            reply = await call(
                speaker.predict(), prompt, tag, adapter, settings, signature=prompts.TablePrompt, demos=[]
            )
            for cell in missing:
                calls[cell] += 1 / len(missing)
            if isinstance(reply, ReplyFailure):
                return answers | {cell: replace(reply, calls=calls[cell]) for cell in missing}
            wrong = {}
            text = "" if isinstance(reply, Unreadable) else reply["reply"]
            for cell, reading in speaker.read(text, missing, items).items():
                if isinstance(reading, Unreadable):
                    wrong[cell] = reading.why
                else:
                    answers[cell] = RoleReply(reading, calls[cell])
            if not wrong:
                break
            correction, tail = _correction(wrong), adapter.kept()
        unread = {c: ReplyFailure("unreadable reply", f"{label(c)}: {why}{tail}", calls[c]) for c, why in wrong.items()}
        return answers | unread


def _mean(samples: Sequence[Answer]) -> Answer:
    """What the samples say about a cell, if none of them failed because of the texts."""
    failed = next((answer for answer in samples if isinstance(answer, ReplyFailure) and answer.divisible), None)
    return mean_of(samples) if failed is None else replace(failed, calls=sum(answer.calls for answer in samples))


def _correction(wrong: Mapping[Cell, str]) -> str:
    reasons: dict[str, list[Cell]] = {}
    for cell, why in wrong.items():
        reasons.setdefault(why, []).append(cell)
    problems = "; ".join(f"{listed(cells)}: {why}" for why, cells in reasons.items())
    return f"Of your last reply this could not be used: {problems}. Reply about {listed(wrong)} alone."


def _reply_limit(concerned: Sequence[Cell]) -> dict[str, int]:
    """The setting that gives a reply about these cells enough tokens, where the LM's own limit is lower."""
    lm = dspy.settings.lm
    limit = lm.kwargs.get("max_tokens") if isinstance(lm, JudgeLM) else None
    # A reply that is cut off at the limit would be paid for twice: it has to be asked for again with more tokens.
    needed = len(concerned) * (TOKENS_PER_SCORE_JOINT if concerned[0].aspect else TOKENS_PER_SCORE)
    return {"max_tokens": needed} if limit is not None and limit < needed else {}
