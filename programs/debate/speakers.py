"""The roles of a debate: what each is asked, how its reply is read, and what becomes of it in a transcript.

A role is a `dspy.Predict` of the debate, and its instructions are all that an optimizer may rewrite: the Scorer's are
the standard of all roles, the Critic's its persona.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import dspy

from debate_judge.programs.debate import prompts
from debate_judge.programs.debate import replies as table_replies
from debate_judge.programs.debate.prompts import Briefing, Cell, Part, aspects_in
from debate_judge.programs.debate.replies import Objection
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.usage import CallTag
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.parsing import Unreadable, escape
from debate_judge.programs.roles.role import Fields, JudgeSignature, NoAnswer, RoleReply, ask
from debate_judge.programs.roles.score_modes import ParsedScore, score
from debate_judge.programs.transcript import BLIND_CRITIC, EMPTY, Transcript, Turn

if TYPE_CHECKING:
    from debate_judge.programs.debate.judge import Debate

T = TypeVar("T")

_ROUNDING = 1e-9
"""By which the distance of two scores may seem smaller than it is."""

Readings = dict[Cell, T | Unreadable]
"""Cell -> what a reply says about it, or why that cannot be read."""

Answer = RoleReply[Any] | NoAnswer
"""What was said about a cell: a `ParsedScore` or an `Objection`."""


class Scoring(JudgeSignature):
    """Judge the candidate in the given aspect alone, by its definition; use the source as far as the definition needs
    it. Faults and merits of other kinds do not count, however plain they are. Traces of processing, such as lower case,
    blanks around punctuation, a dateline or a missing last full stop, count for nothing. Name the places in the texts
    that raise or lower the score; for a clean text say that nothing was found. Use the whole scale: the best score is
    for a text in which you find nothing that the definition names, and trifles take nothing off."""

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

    def said(self, transcript: Transcript) -> Transcript:
        """What the role is shown of the debate."""
        return transcript.heard_by(self.name)

    async def alone(self, item: Item, transcript: Transcript, briefing: Briefing) -> Answer:
        """Speak about a candidate that is judged alone."""
        inputs, read, debate = self.inputs(briefing), partial(self.read_alone, item), str(self.said(transcript))
        return await ask(self.predict(item), item, read, self.tag([transcript]), debate=debate, inputs=inputs)

    def read_alone(self, item: Item, fields: Fields) -> Any:
        """Parse the reply about one candidate."""
        raise NotImplementedError

    def inputs(self, briefing: Briefing, part: Part = ()) -> Mapping[str, str]:
        """Input fields of the prompt other than its texts, about one candidate or about the cells of `part`."""
        return briefing.inputs(f"You are the {self.name.capitalize()}. {escape(self.predict().signature.instructions)}")

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

    async def alone(self, item: Item, transcript: Transcript, briefing: Briefing) -> Answer:
        prompt: dict[str, Any] = {"debate": str(self.said(transcript)), "inputs": self.inputs(briefing)}
        return await score(self.predict(item), self.of(item).mode, item, self.tag([transcript]), **prompt)

    def request(self, part: Part, concerned: Part, cells: Sequence[Cell]) -> str:
        return prompts.scoring_request(cells, cells)

    def read(self, reply: str, cells: Sequence[Cell], items: Mapping[Cell, Item]) -> Readings[ParsedScore]:
        return table_replies.read_scores(reply, prompts.SCORES, cells, items)


class Opening(_Scorer):
    """The Scorer's first turn, which is the single call."""

    def inputs(self, briefing: Briefing, part: Part = ()) -> Mapping[str, str]:
        return briefing.inputs(prompts.opening_task(part), debating=False)


class BlindCritic(_Scorer):
    """The Critic's own score, by the prompt of a single call.

    Whether it is far enough from the Scorer's for a debate is computed here and not asked for: an LM that knows the
    other score ends up close to it.
    """

    name = BLIND_CRITIC

    def round(self, transcript: Transcript) -> int:
        return transcript.rounds + 1

    def inputs(self, briefing: Briefing, part: Part = ()) -> Mapping[str, str]:
        return briefing.inputs(prompts.blind_task(part), debating=False)

    def said(self, transcript: Transcript) -> Transcript:
        return EMPTY

    def turn(self, transcript: Transcript, statement: Any, calls: float, item: Item) -> Turn:
        given, gap = super().turn(transcript, statement, calls, item), self.of(item).persona.gap
        assert gap is not None
        distance = abs((given.score or 0.0) - (transcript.score or 0.0))
        return replace(given, no_issue=distance < gap * item.aspect.scale.step - _ROUNDING)


class Revision(_Scorer):
    """The Scorer's later turns. After a Critic that saw the scores, the LM gives all scores of a disputed aspect again,
    to keep them in proportion, but only the disputed ones are read."""

    def inputs(self, briefing: Briefing, part: Part = ()) -> Mapping[str, str]:
        return briefing.inputs(prompts.revision_task(part))

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

    def read_alone(self, item: Item, fields: Fields) -> Objection | Unreadable:
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

    def read_alone(self, item: Item, fields: Fields) -> ParsedScore | Unreadable:
        value = replies.score(fields["final_score"], item.aspect.scale, item.aspect.name)
        if isinstance(value, Unreadable):
            return value
        side, reasoning = fields["side"].strip(), fields["reasoning"]
        return ParsedScore(value, f"({side}) {reasoning}" if side else reasoning)

    def request(self, part: Part, concerned: Part, cells: Sequence[Cell]) -> str:
        return prompts.settling_request(cells)

    def read(self, reply: str, cells: Sequence[Cell], items: Mapping[Cell, Item]) -> Readings[ParsedScore]:
        return table_replies.read_scores(reply, prompts.FINAL_SCORES, cells, items)
