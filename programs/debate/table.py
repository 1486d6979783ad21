"""The roles of a debate, and the table of scores that it is about.

A role is a `dspy.Predict` of the debate, and its instructions are all that an optimizer may rewrite: the Scorer's are
the standard of all roles, the Critic's its persona.

A table has candidates of one source, in one or several aspects. Each score is a cell with a transcript of its own; a
single candidate in one aspect is a table of one cell. Every role sees the whole table. The Critic is asked about the
cells that are still open, the Scorer revises those that the Critic disputes, and the Tie-breaker decides those that
stay open; all others are settled and keep their scores. A call counts in the transcripts of the cells that it asked
about, in equal shares.

If a reply leaves out a cell or contradicts itself about one, the LM is asked once more about these cells only. If they
stay unreadable, or a call fails because of its texts (the context is too small, the reply too long, one text is
refused), the chunk is split: the LM is asked about each half of its candidates, for a single candidate about each half
of its aspects, and so on; cells that were already read are kept. From then on a chunk of one cell is judged with the
prompts of a debate about one candidate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import dspy

from debate_judge.programs.debate import prompts, table_replies
from debate_judge.programs.debate.prompts import (
    Cell,
    Chunk,
    PromptParts,
    aspects_in,
    candidates_in,
    cell_label,
    cell_labels,
)
from debate_judge.programs.debate.table_replies import CriticDecision
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.loop import gather
from debate_judge.programs.lm.usage import CallTag
from debate_judge.programs.roles import parsing
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
from debate_judge.programs.roles.score_modes import ParsedScore, ask_score, mean_of
from debate_judge.programs.transcript import BLIND_CRITIC, EMPTY, Transcript, Turn

if TYPE_CHECKING:
    from debate_judge.programs.debate.judge import Debate

T = TypeVar("T")

TOKENS_PER_SCORE, TOKENS_PER_SCORE_JOINT = 250, 150
"""Tokens that a reply may take for each score, in calls about one aspect and about several. A lower `max_tokens` is
raised to the sum; for 16 candidates in five aspects LMs still allow replies of that length."""

_EPSILON = 1e-9
"""Rounding error of the distance of two scores."""

ParsedCells = dict[Cell, T | Unreadable]
"""Cell -> its score or decision in a reply, or why that cannot be read."""

CellReply = RoleReply[Any] | ReplyFailure
"""The reply about a cell: a `ParsedScore` or a `CriticDecision`, or why there is none."""


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
    decision: str = dspy.OutputField(desc=f"{parsing.NO_ISSUE} or ISSUE")
    # The only field that the other roles see, so it has to contain the evidence.
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
    """A role: the prompts and replies of its turns.

    Args:
        debates: Name of an aspect -> the debate with its roles. In a table of several aspects the debates differ at
            most in their guide to the raters and their rated examples.
    """

    name: ClassVar[str]
    """The role's name in transcripts and in the table of costs."""
    predictor_name: ClassVar[str]
    samples = 0
    """Number of samples to average; 0 for a single reply at the LM's own temperature."""

    def __init__(self, debates: Mapping[str, Debate]) -> None:
        self._debates = debates
        self._first_debate = next(iter(debates.values()))

    def predictor_for(self, item: Item | None = None) -> dspy.Predict:
        """The role's predictor in the item's aspect; for calls about a table that of the first aspect."""
        predictor: dspy.Predict = getattr(self.debate_of(item) if item else self._first_debate, self.predictor_name)
        return predictor

    def debate_of(self, item: Item) -> Debate:
        return self._debates[item.aspect.name]

    def tag(self, transcripts: Sequence[Transcript]) -> CallTag:
        """The tag of a call about the cells with these transcripts."""
        return CallTag(self.name, max(map(self.round, transcripts)))

    def round(self, transcript: Transcript) -> int:
        """The round that the turn belongs to."""
        return transcript.rounds

    def visible(self, transcript: Transcript) -> Transcript:
        """The part of the debate that the role sees."""
        return transcript.visible_to(self.name)

    async def ask_single(self, item: Item, transcript: Transcript, prompt_parts: PromptParts) -> CellReply:
        """Ask about a table of one cell."""
        inputs, debate = self.inputs(prompt_parts), str(self.visible(transcript))
        parse, tag = partial(self.parse_single, item), self.tag([transcript])
        return await ask(self.predictor_for(item), item, parse, tag, debate=debate, inputs=inputs)

    def parse_single(self, item: Item, fields: Fields) -> Any:
        """Parse the reply about a table of one cell."""
        raise NotImplementedError

    def inputs(self, prompt_parts: PromptParts, chunk: Chunk = ()) -> Mapping[str, str]:
        """Input fields of the prompt other than its texts, about `chunk` or, without one, about one candidate."""
        return prompt_parts.inputs(
            f"You are the {self.name.capitalize()}. {escape(self.predictor_for().signature.instructions)}"
        )

    @abstractmethod
    def request(self, chunk: Chunk, targets: Chunk, missing: Sequence[Cell]) -> str:
        """The request at the end of a prompt with the cells of `chunk`. The turn is about the cells in `targets`, of
        which `missing` have no readable reply so far."""

    @abstractmethod
    def parse_table(self, reply: str, cells: Sequence[Cell], items: Mapping[Cell, Item]) -> ParsedCells[Any]:
        """Parse a reply about `cells`; `items` has all cells of the prompt."""

    def turn(self, transcript: Transcript, parsed: ParsedScore | CriticDecision, calls: float, item: Item) -> Turn:
        """A parsed reply as a turn of the cell's transcript."""
        number = self.round(transcript)
        if isinstance(parsed, CriticDecision):
            return Turn(self.name, number, parsed.text, no_issue=parsed.no_issue, calls=calls)
        return Turn(self.name, number, parsed.rationale, score=parsed.score, calls=calls)


class _Scorer(DebateRole):
    name = predictor_name = "scorer"

    def __init__(self, debates: Mapping[str, Debate]) -> None:
        super().__init__(debates)
        self.samples = self._first_debate.mode.samples if self._first_debate.mode.name == "sampled" else 0

    async def ask_single(self, item: Item, transcript: Transcript, prompt_parts: PromptParts) -> CellReply:
        prompt: dict[str, Any] = {"debate": str(self.visible(transcript)), "inputs": self.inputs(prompt_parts)}
        return await ask_score(
            self.predictor_for(item), self.debate_of(item).mode, item, self.tag([transcript]), **prompt
        )

    def request(self, chunk: Chunk, targets: Chunk, missing: Sequence[Cell]) -> str:
        return prompts.scoring_request(missing, missing)

    def parse_table(self, reply: str, cells: Sequence[Cell], items: Mapping[Cell, Item]) -> ParsedCells[ParsedScore]:
        return table_replies.parse_scores(reply, prompts.SCORES, cells, items)


class Opening(_Scorer):
    """The Scorer's first turn, which is the single call."""

    def inputs(self, prompt_parts: PromptParts, chunk: Chunk = ()) -> Mapping[str, str]:
        return prompt_parts.inputs(prompts.opening_task(chunk), debating=False)


class BlindCritic(_Scorer):
    """The Critic's blind score, by the prompt of a single call.

    Whether it is far enough from the Scorer's for a debate is computed here and not asked for, because an LM that knows
    the other score ends up close to it.
    """

    name = BLIND_CRITIC

    def round(self, transcript: Transcript) -> int:
        return transcript.rounds + 1

    def inputs(self, prompt_parts: PromptParts, chunk: Chunk = ()) -> Mapping[str, str]:
        return prompt_parts.inputs(prompts.blind_task(chunk), debating=False)

    def visible(self, transcript: Transcript) -> Transcript:
        return EMPTY

    def turn(self, transcript: Transcript, parsed: Any, calls: float, item: Item) -> Turn:
        score_turn, gap = super().turn(transcript, parsed, calls, item), self.debate_of(item).persona.gap
        assert gap is not None
        distance = abs((score_turn.score or 0.0) - (transcript.score or 0.0))
        return replace(score_turn, no_issue=distance < gap * item.aspect.scale.step - _EPSILON)


class Revision(_Scorer):
    """The Scorer's later turns. After a Critic that saw the scores, the LM is asked for all scores of a disputed
    aspect, to keep them in proportion, but only the disputed ones are used."""

    def inputs(self, prompt_parts: PromptParts, chunk: Chunk = ()) -> Mapping[str, str]:
        return prompt_parts.inputs(prompts.revision_task(chunk))

    def request(self, chunk: Chunk, targets: Chunk, missing: Sequence[Cell]) -> str:
        if self._first_debate.persona.gap is not None or len(missing) < len(targets):
            return super().request(chunk, targets, missing)
        disputed = aspects_in(targets)
        return prompts.scoring_request(missing, [cell for cell in chunk if cell.aspect in disputed])


class Critic(DebateRole):
    """Reviews the latest scores as its persona says, and decides about each whether there is an issue."""

    name = predictor_name = "critic"

    def round(self, transcript: Transcript) -> int:
        # The review that follows a blind score belongs to the same round.
        return transcript.rounds + (transcript.turns[-1].role != BLIND_CRITIC)

    def parse_single(self, item: Item, fields: Fields) -> CriticDecision | Unreadable:
        # Only the decision field counts: elsewhere the words NO ISSUE may be quoted from the candidate or a turn.
        no_issue = table_replies.parse_decision(fields["decision"])
        if isinstance(no_issue, Unreadable):
            return no_issue
        feedback = fields["feedback"] or fields["review"]
        if not no_issue and not feedback:
            return Unreadable("the decision was ISSUE but no feedback was given")
        return CriticDecision(no_issue, parsing.NO_ISSUE if no_issue else feedback)

    def request(self, chunk: Chunk, targets: Chunk, missing: Sequence[Cell]) -> str:
        return prompts.review_request(missing, blind=self._first_debate.persona.gap is not None)

    def parse_table(self, reply: str, cells: Sequence[Cell], items: Mapping[Cell, Item]) -> ParsedCells[CriticDecision]:
        return table_replies.parse_decisions(reply, cells, items)


class TieBreaker(DebateRole):
    """Gives the final score of a debate that ended without agreement (DEBATE, appendix E.3)."""

    name, predictor_name = "tie-breaker", "tie_breaker"

    def parse_single(self, item: Item, fields: Fields) -> ParsedScore | Unreadable:
        value = parsing.parse_score(fields["final_score"], item.aspect.scale, item.aspect.name)
        if isinstance(value, Unreadable):
            return value
        side, reasoning = fields["side"].strip(), fields["reasoning"]
        return ParsedScore(value, f"({side}) {reasoning}" if side else reasoning)

    def request(self, chunk: Chunk, targets: Chunk, missing: Sequence[Cell]) -> str:
        return prompts.tie_breaking_request(missing)

    def parse_table(self, reply: str, cells: Sequence[Cell], items: Mapping[Cell, Item]) -> ParsedCells[ParsedScore]:
        return table_replies.parse_scores(reply, prompts.FINAL_SCORES, cells, items)


# --- the table ---


class ScoreTable:
    """The cells of a debate, with the transcript of each.

    Args:
        debates: Name of an aspect -> the debate with its roles.
        parts_by_aspect: Name of an aspect -> the common parts of its prompts; not needed for a single item.
        items: Candidate by candidate, in the order of the prompt.
        transcripts: The debate so far, one for each item; by default it has not begun.
        no_split: Whether a reply that stays unreadable is a failure instead of a reason to split; for smoke tests.
    """

    def __init__(
        self,
        debates: Mapping[str, Debate],
        parts_by_aspect: Mapping[str, PromptParts],
        items: Sequence[Item],
        transcripts: Sequence[Transcript] | None = None,
        *,
        no_split: bool = False,
    ) -> None:
        self._debates = debates
        self._parts_by_aspect = parts_by_aspect
        self._items = prompts.cells_of(items)
        self._transcripts = dict(zip(self._items, transcripts or [EMPTY] * len(items), strict=True))
        self.resumed = transcripts is not None
        self._chunks = list(prompts.chunks_of(self._transcripts)) if self.resumed else [tuple(self._items)]
        self._no_split = no_split
        self._single_parts: dict[Cell, PromptParts] = {}
        self._failed_calls: dict[Cell, float] = dict.fromkeys(self._items, 0)
        """Shares of failed calls, which are added to the calls of the cell's next turn."""

    @property
    def transcripts(self) -> list[Transcript]:
        """One for each item, in the order of the items."""
        return list(self._transcripts.values())

    def open_cells(self) -> list[Cell]:
        """The cells that are still debated."""
        return [cell for cell, t in self._transcripts.items() if t.failure is None and not t.settled]

    def disputed_cells(self) -> list[Cell]:
        """The cells about which Critic and Scorer still disagree."""
        return [cell for cell in self.open_cells() if self._transcripts[cell].rounds]

    def debated_cells(self) -> list[Cell]:
        """The cells that the Critic has reviewed or scored blind, also the settled ones."""
        return [cell for cell, t in self._transcripts.items() if t.failure is None and t.rounds]

    def record_sizes(self, *, overwrite: bool = False) -> None:
        """Add the size of its chunk to each transcript after a round, or `overwrite` the last one."""
        if len(self._items) == 1:
            return
        for chunk in self._chunks:
            size = len(candidates_in(chunk)), len(aspects_in(chunk))
            for cell in chunk:
                transcript = self._transcripts[cell]
                sizes = transcript.sizes[:-1] if overwrite else transcript.sizes
                self._transcripts[cell] = replace(transcript, sizes=(*sizes, size))

    async def turn(self, role_class: type[DebateRole], cells: Collection[Cell]) -> None:
        """Let a role speak about some cells, in one call for each chunk that has any of them."""
        if not cells:
            return
        role = role_class(self._debates)

        async def ask_chunk(chunk: Chunk, cells: Collection[Cell]) -> list[Chunk]:
            """The chunks that it was split into, or the chunk itself."""
            targets, is_table = tuple(cell for cell in chunk if cell in cells), len(chunk) > 1
            if not targets:
                return [chunk]
            replies = await (self._ask_chunk(role, chunk, targets) if is_table else self._ask_single(role, *chunk))
            unanswered = [cell for cell, reply in replies.items() if not self._record(role, cell, reply, is_table)]
            return await ask_chunks(prompts.halves(chunk), unanswered) if unanswered else [chunk]

        async def ask_chunks(chunks: Sequence[Chunk], cells: Collection[Cell]) -> list[Chunk]:
            if len(chunks) == 1:
                return await ask_chunk(chunks[0], cells)
            split = await gather(ask_chunk(chunk, cells) for chunk in chunks)
            return [chunk for chunks in split for chunk in chunks]

        self._chunks = await ask_chunks(self._chunks, cells)

    def _record(self, role: DebateRole, cell: Cell, reply: CellReply, is_table: bool) -> bool:
        """Add the reply to the cell's transcript; False if the chunk has to be split instead."""
        transcript, failed_calls = self._transcripts[cell], self._failed_calls[cell]
        if isinstance(reply, RoleReply):
            turn = role.turn(transcript, reply.value, reply.calls + failed_calls, self._items[cell])
            self._transcripts[cell] = transcript.add(turn)
        elif is_table and (reply.splittable or (reply.reason == "unreadable reply" and not self._no_split)):
            self._failed_calls[cell] += reply.calls
            return False
        else:
            failure = reply.as_failure(role.name, role.round(transcript))
            self._transcripts[cell] = transcript.add(replace(failure, calls=failure.calls + failed_calls))
        self._failed_calls[cell] = 0
        return True

    async def _ask_single(self, role: DebateRole, cell: Cell) -> dict[Cell, CellReply]:
        item = self._items[cell]
        if cell not in self._single_parts:
            self._single_parts[cell] = await role.debate_of(item).aprompt_parts(item)
        return {cell: await role.ask_single(item, self._transcripts[cell], self._single_parts[cell])}

    async def _ask_chunk(self, role: DebateRole, chunk: Chunk, targets: Chunk) -> dict[Cell, CellReply]:
        items = {cell: self._items[cell] for cell in chunk}
        parts = prompts.joint_prompt_parts(
            {cell.aspect: self._parts_by_aspect[item.aspect.name] for cell, item in items.items()}
        )
        inputs = {
            **prompts.table_inputs(items),
            "debate": prompts.debate_text({cell: role.visible(self._transcripts[cell]) for cell in chunk}),
            **role.inputs(parts, chunk),
        }
        tag = role.tag([self._transcripts[cell] for cell in targets])
        if not role.samples:
            return await self._ask_cells(role, chunk, targets, inputs, tag)
        tags = (replace(tag, sample=number) for number in range(role.samples))
        samples = await gather(self._ask_cells(role, chunk, targets, inputs, sample_tag) for sample_tag in tags)
        return {cell: _mean_reply([sample[cell] for sample in samples]) for cell in targets}

    async def _ask_cells(
        self, role: DebateRole, chunk: Chunk, targets: Chunk, inputs: Mapping[str, str], tag: CallTag
    ) -> dict[Cell, CellReply]:
        """Ask about the `targets`, and once more about cells that the first reply leaves unreadable."""
        items = {cell: self._items[cell] for cell in chunk}
        cell_replies: dict[Cell, CellReply] = {}
        calls = dict.fromkeys(targets, 0.0)
        unreadable: dict[Cell, str] = dict.fromkeys(targets, "")
        correction = excerpt = ""
        settings = {**({} if tag.sample is None else SAMPLING), **_reply_limit(targets)}
        for _ in range(2):
            missing, adapter = tuple(unreadable), RoleLastAdapter()
            prompt = {**inputs, "request": role.request(chunk, targets, missing), "correction": correction}
            reply = await call(
                role.predictor_for(), prompt, tag, adapter, settings, signature=prompts.TableSignature, demos=[]
            )
            for cell in missing:
                calls[cell] += 1 / len(missing)
            if isinstance(reply, ReplyFailure):
                return cell_replies | {cell: replace(reply, calls=calls[cell]) for cell in missing}
            unreadable = {}
            text = "" if isinstance(reply, Unreadable) else reply["reply"]
            for cell, parsed in role.parse_table(text, missing, items).items():
                if isinstance(parsed, Unreadable):
                    unreadable[cell] = parsed.problem
                else:
                    cell_replies[cell] = RoleReply(parsed, calls[cell])
            if not unreadable:
                break
            correction, excerpt = _correction(unreadable), adapter.reply_excerpt()
        for cell, problem in unreadable.items():
            detail = f"{cell_label(cell)}: {problem}{excerpt}"
            cell_replies[cell] = ReplyFailure("unreadable reply", detail, calls[cell])
        return cell_replies


def _mean_reply(samples: Sequence[CellReply]) -> CellReply:
    """The mean of the samples of a cell, unless one of them failed because of the texts."""
    failed = next((sample for sample in samples if isinstance(sample, ReplyFailure) and sample.splittable), None)
    return mean_of(samples) if failed is None else replace(failed, calls=sum(sample.calls for sample in samples))


def _correction(unreadable: Mapping[Cell, str]) -> str:
    by_problem: dict[str, list[Cell]] = {}
    for cell, problem in unreadable.items():
        by_problem.setdefault(problem, []).append(cell)
    problems = "; ".join(f"{cell_labels(cells)}: {problem}" for problem, cells in by_problem.items())
    return f"Of your last reply this could not be used: {problems}. Reply about {cell_labels(unreadable)} alone."


def _reply_limit(targets: Sequence[Cell]) -> dict[str, int]:
    """`max_tokens` for a reply about these cells, if the LM's own limit is lower than it needs."""
    lm = dspy.settings.lm
    limit = lm.kwargs.get("max_tokens") if isinstance(lm, JudgeLM) else None
    # A reply that is cut off would be paid for twice, because it has to be asked for again with a higher limit.
    needed = len(targets) * (TOKENS_PER_SCORE_JOINT if targets[0].aspect else TOKENS_PER_SCORE)
    return {"max_tokens": needed} if limit is not None and limit < needed else {}
