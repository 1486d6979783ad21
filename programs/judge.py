"""What a judge is asked, what it answers, and what every judge must be able to do."""

from __future__ import annotations

import asyncio
from abc import ABCMeta, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import dspy

from debate_judge.data.schema import Aspect, Corpus, Granularity, RatedGroup, Task, fingerprint
from debate_judge.programs.option_values import whole_number, yes_or_no
from debate_judge.programs.transcript import Failure, Transcript, UnscoredReason

StopReason = Literal["single call", "no issue", "rounds over", "tie-breaker", "metric"]
"""Why a debate ended: it has no Critic, the Critic found no issue, n rounds were over, the Tie-breaker decided."""


@dataclass(frozen=True, slots=True)
class Item:
    """One question to a judge: how good is this candidate in this aspect?"""

    group: str
    candidate: str
    task: Task
    aspect: Aspect
    source: str
    text: str
    context: str = ""
    references: tuple[str, ...] = ()
    """Human-written candidates, for reference-based metrics only; no debate reads them."""
    _key: str = field(default="", init=False, repr=False, compare=False)

    @property
    def key(self) -> str:
        """Hash of the question: equal for items with the same texts and aspect, whatever their group and candidate."""
        if not self._key:
            # A search asks for it thousands of times, and hashing a long source takes as long as reading a reply.
            texts = [self.task.name, self.aspect.name, self.aspect.definition, self.source, self.context, self.text]
            object.__setattr__(self, "_key", fingerprint([*texts, *self.references]))
        return self._key


@dataclass(frozen=True, slots=True)
class Verdict:
    """A score on the aspect's scale, with how it came about."""

    score: float
    rounds: int
    """Completed rounds, that is Critic replies; at most n."""
    stop_reason: StopReason
    calls: float
    """LM calls that led to this verdict, cached or not; a call that several candidates share counts with its share."""
    transcript: Transcript = field(repr=False)


@dataclass(frozen=True, slots=True)
class Unscored:
    """No score, and why. A failed item is never reported as 0 or NaN."""

    reason: UnscoredReason
    detail: str
    calls: float
    transcript: Transcript = field(repr=False)


Judgement = Verdict | Unscored

MOST_ROUNDS = 100
"""Most rounds of a debate; published debates have three or fewer."""


@dataclass(frozen=True, slots=True)
class DebateConfig:
    """How long a judge debates, and whether a Tie-breaker decides debates that end without agreement."""

    rounds: int = 0
    """n, the maximum number of Critic replies; 0 is a single call."""
    tie_breaker: bool = False

    def __post_init__(self) -> None:
        # An export may come from anywhere, and each round is paid for.
        whole_number("rounds", self.rounds, most=MOST_ROUNDS)
        yes_or_no("tie_breaker", self.tie_breaker)


class _JudgeMeta(type(dspy.Module), ABCMeta):  # type: ignore[misc]
    """DSPy's metaclass combined with ABCMeta, because DSPy's alone ignores `abstractmethod`."""


class Judge(dspy.Module, metaclass=_JudgeMeta):
    """Base class of all judges. Scoring, tuning, search and export use only the attributes and methods defined here.

    A judge turns an item into a transcript (`converse`), and a transcript into a judgement (`verdict`). The two steps
    are separate so that one transcript can be read at several numbers of rounds without a further LM call.

    A subclass must have `converse` and `config`; `programs.testing.check_judge` tests the rest of the contract.

    Raises:
        TypeError: On construction, where a method that every judge needs is missing; it names class and method.
    """

    kind: ClassVar[str]
    """Name of the class in exports: its key in `programs.KINDS`, or its `module:Class` if it has none."""

    settable: ClassVar[tuple[str, ...]] = ()
    """Entries of its configuration that a user may set as options."""

    packages: ClassVar[tuple[str, ...]] = ()
    """Distributions that only this judge needs."""

    on_scale: ClassVar[bool] = True
    """Whether scores lie on the aspect's scale; if not, they are reported as given."""

    shows_examples: ClassVar[bool] = False
    """Whether its prompts can show rated examples (`programs.roles.examples`)."""

    nearest_examples: int = 0
    """Number of rated examples in a prompt, those most similar to the item; 0 shows all examples for every item."""

    compares: bool = False
    """Whether candidates in pairs are compared (`converse_table`) and not scored one by one. The score of each is then
    its outcome: the upper end of the aspect's scale for a win, the middle for a tie, the lower end for a loss."""

    together: int = 0
    """Most candidates of one source that are judged in one conversation (`converse_table`); 0 judges each alone."""

    joint: bool = False
    """Whether one conversation covers all aspects that the candidates are judged in."""

    batch_rounds: int = 0
    """How often an item is scored among up to `together` items of other sources; 0: calls are about one source."""
    order: int = 0
    """Seed of the order in which candidates are shown together."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        # Not inherited: an export of a subclass would be loaded as its parent.
        if "kind" not in cls.__dict__:
            cls.kind = f"{cls.__module__}:{cls.__qualname__}"

    def __init__(self, debate_config: DebateConfig | None = None) -> None:
        super().__init__()
        self.debate_config = debate_config or DebateConfig()

    @abstractmethod
    async def converse(self, item: Item, rounds: int) -> Transcript:
        """Ask the LM about `item`, with at most `rounds` rounds of debate where the judge has rounds."""

    async def converse_table(self, items: Sequence[Item], rounds: int) -> list[Transcript]:
        """Ask the LM about candidates of one source, in the order given.

        Judges that compare or judge `together` show the LM all of them in one prompt; others ask about each by itself.

        Args:
            items: Of one aspect; for `joint` judges of several aspects, candidate by candidate.
            rounds: Most rounds of debate.

        Returns:
            A transcript for each item. A call about several items counts in each with an equal share; a failure of one
            item does not end the others.
        """
        return list(await asyncio.gather(*(self.converse(item, rounds) for item in items)))

    async def break_tie(self, item: Item, transcript: Transcript) -> Transcript:
        """Let a Tie-breaker decide a debate without agreement; judges without one return the transcript unchanged."""
        return transcript

    async def break_ties(self, items: Sequence[Item], transcripts: Sequence[Transcript]) -> list[Transcript]:
        """`break_tie` for candidates that were judged by `converse_table`."""
        pairs = zip(items, transcripts, strict=True)
        return list(await asyncio.gather(*(self.break_tie(item, transcript) for item, transcript in pairs)))

    def verdict(self, transcript: Transcript, rounds: int) -> Judgement:
        """The judgement that follows from a transcript's first `rounds` rounds; unscored if it failed in these."""
        transcript = transcript.until(rounds)
        if transcript.failure is not None:
            return unscored(transcript, transcript.failure)
        return self.read_verdict(transcript, rounds)

    def read_verdict(self, transcript: Transcript, rounds: int) -> Verdict:
        """The verdict that follows from a transcript without a failure: by default its latest score.

        Raises:
            ValueError: No turn has a score: `converse` recorded neither a score nor a failure.
        """
        scores = [turn.score for turn in transcript.turns if turn.score is not None]
        if not scores:
            raise ValueError(f"the judge {self.kind!r} recorded neither a score nor a failure")
        held = max(turn.round for turn in transcript.turns)
        return Verdict(scores[-1], held, "rounds over" if held else "single call", transcript.calls, transcript)

    def variants(self, personas: Mapping[str, str]) -> dict[str, Judge]:
        """The judges that a search may choose from, by name; for a debate one for each persona."""
        return {"default": self}

    def seeds(self, personas: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Predictor name -> instructions that a tuner should try in addition to its own proposals."""
        return {}

    def with_debate(self, *, rounds: int | None = None, tie_breaker: bool | None = None) -> Judge:
        """A copy that debates for `rounds` rounds, with or without a Tie-breaker; None keeps this judge's value."""
        one = self.deepcopy()
        if rounds is not None:
            one.debate_config = replace(one.debate_config, rounds=rounds)
        if tie_breaker is not None:
            one.debate_config = replace(one.debate_config, tie_breaker=tie_breaker)
        return one

    def reading_like(self, other: Judge) -> Judge:
        """A copy that asks about as many candidates and aspects in one conversation as `other` does."""
        one = self.deepcopy()
        one.together, one.joint, one.batch_rounds = other.together, other.joint, other.batch_rounds
        return one

    def joint_key(self) -> str | None:
        """A key that is equal for judges of different aspects whose calls can be shared; None if none can."""
        return None

    def jointly(self, judges: Mapping[str, Judge]) -> Judge:
        """The judge to ask about several aspects at once; `judges` by aspect, all with this one's `joint_key`."""
        return self

    def members(self) -> Mapping[str, Judge]:
        """What `jointly` was given; empty where this judge speaks for all aspects."""
        return {}

    def dry_run_copy(self) -> Judge:
        """A copy for dry runs, which uses no paid service except the LM."""
        return self.deepcopy()

    def tunable(self) -> tuple[str, ...]:
        """Names of the predictors whose instructions a tuner may rewrite, with the judge's present `debate_config`."""
        return tuple(name for name, _ in self.named_predictors())

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Constructor arguments as JSON values; with the DSPy state they rebuild the judge."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Judge:
        """Rebuild a judge from `config`; entries that are missing have the constructor's defaults."""
        return cls(**config)

    async def judge(self, item: Item) -> Judgement:
        """Judge one item according to `debate_config`."""
        transcript = await self.converse(item, self.debate_config.rounds)
        if self.debate_config.tie_breaker:
            transcript = await self.break_tie(item, transcript)
        return self.verdict(transcript, self.debate_config.rounds)

    async def judge_table(self, items: Sequence[Item]) -> list[Judgement]:
        """Judge items that `converse_table` may take at once."""
        if len(items) == 1:
            return [await self.judge(items[0])]
        transcripts = await self.converse_table(items, self.debate_config.rounds)
        if self.debate_config.tie_breaker:
            transcripts = await self.break_ties(items, transcripts)
        return [self.verdict(transcript, self.debate_config.rounds) for transcript in transcripts]

    async def smoke_test(self, item: Item) -> Transcript:
        """Ask every role about `item` once, to check that the LM can play it; a failure is in the transcript."""
        return await self.converse(item, min(self.debate_config.rounds, 1))

    async def smoke_test_table(self, items: Sequence[Item]) -> Transcript:
        """`smoke_test` with items that `converse_table` may take at once; the transcript fails if all of them do."""
        return await self.smoke_test(items[0])

    async def aforward(self, item: Item) -> dspy.Prediction:
        return dspy.Prediction(judgement=await self.judge(item))

    def instructions(self) -> dict[str, str]:
        """Predictor name -> its present instructions."""
        return {name: predictor.signature.instructions for name, predictor in self.named_predictors()}


def unscored(transcript: Transcript, failure: Failure) -> Unscored:
    """The judgement of an item whose transcript ended with a failure."""
    detail = f"{failure.role}, round {failure.round}: {failure.detail}"
    return Unscored(failure.reason, detail, transcript.calls, transcript)


def in_granularity(judgement: Judgement, item_scale: Aspect, granularity: Granularity) -> float | None:
    """The score of a finished judgement in the given granularity, or None if it has no score. Needs no LM call."""
    return None if isinstance(judgement, Unscored) else item_scale.scale.at(judgement.score, granularity)


def items_of(corpus_task: Task, group: RatedGroup, aspect: Aspect) -> list[Item]:
    """One item per candidate of the group, in candidate order."""
    return [
        Item(group.id, c.id, corpus_task, aspect, group.source, c.text, group.context, group.references)
        for c in group.candidates
    ]


def corpus_items(corpus: Corpus, aspect: Aspect) -> list[Item]:
    """All items of one aspect, in corpus order."""
    return [item for group in corpus.groups for item in items_of(corpus.task, group, aspect)]
