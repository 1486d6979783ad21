"""The contract of judges: what they are given, what they return, the methods that every judge has, checks of options.

    judge(source="The article ...", text="Its summary ...", aspect="coherence")      # score, reason, judgement
    judge(source="The article ...", texts=["...", "..."], aspect="coherence")        # scores, reasons, judgements

Judges and exports (`runs.loaded`) are called like this: keywords in, a `dspy.Prediction` out; arguments that
cannot be used are an `InputError`.
"""

from __future__ import annotations

import inspect
from abc import ABCMeta, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar, Literal, get_args

import dspy

from debate_judge.data.calibration import Calibration
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Granularity, Task
from debate_judge.programs.grouping import CallTexts, find_aspect, group_into_questions, judge_call, signed_as
from debate_judge.programs.grouping import Item as Item
from debate_judge.programs.grouping import corpus_items as corpus_items
from debate_judge.programs.grouping import items_of as items_of
from debate_judge.programs.lm.engine import gather, run
from debate_judge.programs.lm.settings import EXAMPLE_LM

# --- the transcript of a debate, which is what the paper's Commander keeps (DEBATE, section 2) ---

UnscoredReason = Literal[
    "unreadable reply", "refused", "truncated", "too long", "no log-probabilities", "lm error", "search error",
    "metric error", "no text",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Turn:
    """One parsed reply. Round 0 is the Scorer's first turn; round i is the Critic's i-th reply and the revision."""

    role: str
    """Scorer, critic or tie-breaker in a debate; other judges have their own."""
    round: int
    text: str
    score: float | None = None
    no_issue: bool = False
    calls: float = 1
    """LM calls that this turn took: 2 if the first reply was unreadable; of a call about several items, its share."""

    def __str__(self) -> str:
        """The turn as prompts show it, on one line, so that no text can pose as another speaker's turn."""
        score = "" if self.score is None else f", score {self.score:g}"
        return f"{self.role.capitalize()}, round {self.round}{score}: {' '.join(self.text.split())}"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a debate ended early, and where."""

    role: str
    round: int
    reason: UnscoredReason
    detail: str
    calls: float


@dataclass(frozen=True, slots=True)
class Transcript:
    """Turns in order. The transcript of n rounds begins with that of every smaller number of rounds."""

    turns: tuple[Turn, ...] = ()
    failure: Failure | None = None

    def add(self, addition: Turn | Failure) -> Transcript:
        """The transcript with one more turn, or with the failure that ended it."""
        if isinstance(addition, Failure):
            return Transcript(self.turns, addition)
        return Transcript((*self.turns, addition), self.failure)

    def until(self, rounds: int) -> Transcript:
        """The transcript as it was after `rounds` rounds."""
        last_round = max((entry.round for entry in (*self.turns, self.failure) if entry is not None), default=0)
        if last_round <= rounds:
            return self
        failure = self.failure if self.failure is not None and self.failure.round <= rounds else None
        return Transcript(tuple(turn for turn in self.turns if turn.round <= rounds), failure)

    @property
    def score(self) -> float | None:
        """The Scorer's latest score."""
        return next((t.score for t in reversed(self.turns) if t.role == "scorer"), None)

    @property
    def settled(self) -> bool:
        """Whether the Critic has found no issue."""
        return any(t.no_issue for t in self.turns)

    @property
    def rounds(self) -> int:
        """Rounds in which the Critic has replied."""
        return max((t.round for t in self.turns if t.role == "critic"), default=0)

    @property
    def calls(self) -> float:
        return sum(t.calls for t in self.turns) + (self.failure.calls if self.failure else 0)

    def __str__(self) -> str:
        """The debate as prompts show it: a paragraph for each turn, oldest first, so that the text only grows."""
        return "\n\n".join(map(str, self.turns))


EMPTY = Transcript()


# --- judgements ---

StopReason = Literal["single call", "no issue", "rounds over", "tie-breaker", "metric"]
"""Why no further call was made: there are no rounds, the Critic has no issue, n rounds are over, the Tie-breaker has
decided; a reference metric makes none."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A score on the aspect's scale, with how it came about."""

    score: float
    rounds: int
    """Replies of the Critic; at most n."""
    stop_reason: StopReason
    calls: float
    """LM calls that led to this verdict, cached or not; a call that several candidates share counts with its share."""
    transcript: Transcript = field(repr=False)

    @property
    def reason(self) -> str:
        """The rationale of the score: in a debate that of the Scorer's last turn, or the Tie-breaker's."""
        scored = [turn for turn in self.transcript.turns if turn.score is not None]
        with_this_score = [turn for turn in scored if turn.score == self.score] or scored
        return with_this_score[-1].text if with_this_score else ""


@dataclass(frozen=True, slots=True)
class Unscored:
    """No score, and why. A failed item is never reported as 0 or NaN."""

    reason: UnscoredReason
    detail: str
    calls: float
    transcript: Transcript = field(repr=False)


Judgement = Verdict | Unscored

MAX_ROUNDS = 100
"""Maximum number of rounds of a debate; published debates have three or fewer."""


@dataclass(frozen=True, slots=True)
class DebateConfig:
    """How long a judge debates, and whether a Tie-breaker decides debates that end without agreement."""

    rounds: int = 0
    """n, the maximum number of Critic replies; 0 is a single call."""
    tie_breaker: bool = False

    def __post_init__(self) -> None:
        # An export may come from anywhere, and each round is paid for.
        whole_number("rounds", self.rounds, maximum=MAX_ROUNDS)
        yes_or_no("tie_breaker", self.tie_breaker)


# --- the judge ---


class _JudgeMeta(type(dspy.Module), ABCMeta):  # type: ignore[misc]
    """DSPy's metaclass combined with ABCMeta, because DSPy's alone ignores `abstractmethod`."""


class _Signatures:
    """The signature of a judge's class is that of its constructor, and that of a judge is that of a call: DSPy's
    metaclass and `Module.__call__` take any arguments.
    """

    def __get__(self, judge: Judge | None, kind: type[Judge]) -> inspect.Signature:
        if judge is not None:
            return inspect.signature(judge_call)
        _, *parameters = inspect.signature(kind.__init__).parameters.values()
        return inspect.Signature(parameters)


class Judge(dspy.Module, metaclass=_JudgeMeta):
    """Base class of all judges. Scoring, tuning, search and export use only the attributes and methods defined here.

    A judge turns items into transcripts (`converse`), and a transcript into a judgement (`judgement`). These are two
    steps, so that one transcript gives the judgement after any smaller number of rounds without a further LM call.

    A subclass must define `converse` and `config`; `programs.testing.check_judge` tests the rest of the contract.
    """

    kind: ClassVar[str]
    """Name of the class in exports: its key in `programs.JUDGE_CLASSES`, or its `module:Class` if it has none."""
    settable: ClassVar[tuple[str, ...]] = ()
    """Names in `config` that a user may set as options."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Distributions that only this judge needs."""
    on_scale: ClassVar[bool] = True
    """Whether scores lie on the aspect's scale; if not, they are never rounded."""
    shows_examples: ClassVar[bool] = False
    """Whether its prompts can show rated examples (`programs.examples`)."""
    shows_precedents: ClassVar[bool] = False
    """Whether it has a Critic that can be shown rated texts (`programs.examples.with_precedents`)."""
    precedents: int = 0
    """Number of rated texts most like the candidate that its Critic is shown."""
    compares_pairs: bool = False
    """Whether the two candidates of a pair are compared in one `converse` and not scored one by one. The score of each
    is its outcome: the upper end of the aspect's scale for a win, the middle for a tie, the lower end for a loss."""
    together: int = 0
    """Maximum number of candidates of one source that are judged in one `converse`; 0 judges each alone."""

    __signature__ = _Signatures()

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        # Not inherited: an export of a subclass would be loaded as its parent.
        if "kind" not in cls.__dict__:
            cls.kind = f"{cls.__module__}:{cls.__qualname__}"

    def __init__(self, debate_config: DebateConfig | None = None) -> None:
        super().__init__()
        self.debate_config = debate_config or DebateConfig()

    @signed_as(judge_call)
    def __call__(self, *positional: object, **keywords: Any) -> dspy.Prediction:
        return super().__call__(*positional, **keywords)

    @signed_as(judge_call)
    def forward(self, *positional: object, **keywords: Any) -> dspy.Prediction:
        """Judge a text, or several of one source. Like any DSPy program, call the judge itself.

        It may be called in any thread, also while an event loop is running; `acall` is its asynchronous form.

        Args:
            positional: Refused: all arguments are keywords.
            keywords: `source` (empty where texts are judged by themselves), `text` or a list of `texts`, `aspect` (a
                name or an `Aspect`, see `programs.grouping.find_aspect`), and optionally `task`, `context` (a text that
                belongs to the source) and `references`.

        Returns:
            `score`, `reason` and `judgement`; for `texts` the lists `scores`, `reasons` and `judgements`. A yes/no
            aspect has `decision` (`decisions`) as well, and `cut`, the lowest score that is a yes. Where a text could
            not be scored, the score is None and the reason says why.

        Raises:
            InputError: An argument cannot be used, or no LM is configured.
            dspy.LMError: The LM cannot be used at all.
        """
        return run(self.aforward(*positional, **keywords))

    async def aforward(self, *positional: object, **keywords: Any) -> dspy.Prediction:
        texts = CallTexts.from_arguments(positional, keywords)
        task, aspect = find_aspect(keywords.get("aspect"), keywords.get("task"))
        require_lm(self.predictors())
        judgements = await self.judge_all(texts.items(task, [aspect]))
        scores = [judgement.score if isinstance(judgement, Verdict) else None for judgement in judgements]
        cut = cut_of(aspect) if self.on_scale else None
        return call_result(texts.as_lists, scores, [reason_of(judgement) for judgement in judgements], judgements, cut)

    @abstractmethod
    async def converse(self, items: Sequence[Item], rounds: int) -> list[Transcript]:
        """Ask the LM about one question's items: candidates of one source, in the order given.

        Args:
            items: Of one aspect.
            rounds: Maximum number of rounds of debate, where the judge has rounds.

        Returns:
            A transcript for each item. Each transcript counts an equal share of a call about several items; the failure
            of one item does not end the others.
        """

    async def break_ties(self, items: Sequence[Item], transcripts: Sequence[Transcript]) -> list[Transcript]:
        """Let a Tie-breaker decide the debates of `converse` that ended without agreement; by default there is none."""
        return list(transcripts)

    def judgement(self, transcript: Transcript, rounds: int) -> Judgement:
        """The judgement after the first `rounds` rounds of a transcript; unscored if one of them failed."""
        transcript = transcript.until(rounds)
        failure = transcript.failure
        if failure is not None:
            detail = f"{failure.role}, round {failure.round}: {failure.detail}"
            return Unscored(failure.reason, detail, transcript.calls, transcript)
        return self.verdict(transcript, rounds)

    def verdict(self, transcript: Transcript, rounds: int) -> Verdict:
        """The verdict on a transcript of at most `rounds` rounds without a failure: by default its last score."""
        scores = [turn.score for turn in transcript.turns if turn.score is not None]
        if not scores:
            raise ValueError(f"the judge {self.kind!r} recorded neither a score nor a failure")
        last_round = max(turn.round for turn in transcript.turns)
        return Verdict(
            scores[-1], last_round, "rounds over" if last_round else "single call", transcript.calls, transcript
        )

    def variants(self, personas: Mapping[str, str]) -> dict[str, Judge]:
        """Name -> judge: what a search may choose from; for a debate one judge for each persona."""
        return {"default": self}

    def with_debate(self, *, rounds: int | None = None, tie_breaker: bool | None = None) -> Judge:
        """A copy that debates for `rounds` rounds, with or without a Tie-breaker; None keeps this judge's value."""
        copy, config = self.deepcopy(), self.debate_config
        copy.debate_config = DebateConfig(
            config.rounds if rounds is None else rounds, config.tie_breaker if tie_breaker is None else tie_breaker
        )
        return copy

    def dry_run_copy(self) -> Judge:
        """A copy for dry runs, which replace the LM: the copy replaces all other paid services."""
        return self.deepcopy()

    def tunable(self) -> tuple[str, ...]:
        """Names of the predictors whose instructions a tuner may rewrite, for the present `debate_config`."""
        return tuple(name for name, _ in self.named_predictors())

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Constructor arguments as JSON values; they and the DSPy state rebuild the judge."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Judge:
        """Rebuild a judge from `config`; missing entries have the constructor's defaults."""
        return cls(**config)

    async def judge(self, items: Sequence[Item]) -> list[Judgement]:
        """Judge one question's items, with the rounds and the Tie-breaker of `debate_config`."""
        transcripts = await self.converse(items, self.debate_config.rounds)
        if self.debate_config.tie_breaker:
            transcripts = await self.break_ties(items, transcripts)
        return [self.judgement(transcript, self.debate_config.rounds) for transcript in transcripts]

    async def judge_all(self, items: Sequence[Item]) -> list[Judgement]:
        """Judge any items, in the same questions as a compile and a scoring run ask."""
        grouping = group_into_questions(self, items)
        return grouping.by_item(await gather(self.judge(question.items) for question in grouping.questions))

    async def smoke_test(self, items: Sequence[Item]) -> Transcript:
        """Ask every role about one question's items; the result is the first transcript without a failure, if any."""
        return first_success(await self.converse(items, min(self.debate_config.rounds, 1)))

    def instructions(self) -> dict[str, str]:
        """Predictor name -> its instructions."""
        return {name: predictor.signature.instructions for name, predictor in self.named_predictors()}


class ItemJudge(Judge):
    """A judge that asks about each item separately."""

    @abstractmethod
    async def converse_about(self, item: Item, rounds: int) -> Transcript:
        """Ask the LM about `item`, with at most `rounds` rounds of debate where the judge has rounds."""

    async def converse(self, items: Sequence[Item], rounds: int) -> list[Transcript]:
        return await gather(self.converse_about(item, rounds) for item in items)


def first_success(transcripts: Sequence[Transcript]) -> Transcript:
    """The first transcript without a failure; if all failed, the first one."""
    return min(transcripts, key=lambda transcript: transcript.failure is not None)


def reason_of(judgement: Judgement) -> str:
    """The rationale of a score, or why there is none."""
    return judgement.reason if isinstance(judgement, Verdict) else f"{judgement.reason}: {judgement.detail}"


def round_to_granularity(judgement: Judgement, aspect: Aspect, granularity: Granularity) -> float | None:
    """The score of a judgement, rounded; None if it has none."""
    return None if isinstance(judgement, Unscored) else aspect.scale.rounded(judgement.score, granularity)


# --- a call from Python ---


def require_lm(predictors: Iterable[Any]) -> None:
    """Refuse predictors without an LM when none is configured; judges without predictors need none."""
    if dspy.settings.lm is None and any(predictor.lm is None for predictor in predictors):
        raise InputError(
            "no LM is configured",
            field="lm",
            expected="a dspy.LM",
            found="none",
            remedy=f'dspy.configure(lm=dspy.LM("{EXAMPLE_LM}")), or lm=debate_judge.offline_lm() to try it out',
        )


def cut_of(aspect: Aspect) -> float | None:
    """The lowest score that is a yes: the middle of a scale of two values; None for other scales."""
    return (aspect.scale.low + aspect.scale.high) / 2 if aspect.scale.binary else None


def call_result(
    as_lists: bool,
    scores: Sequence[float | None],
    reasons: Sequence[str],
    judgements: Sequence[object],
    cut: float | None,
) -> dspy.Prediction:
    """The prediction that a call about one aspect returns, with decisions if there is a `cut`."""
    fields: dict[str, list[Any]] = {"score": [*scores], "reason": [*reasons], "judgement": [*judgements]}
    if cut is not None:
        fields["decision"] = [None if score is None else score >= cut for score in scores]
    named = ((f"{name}s", values) if as_lists else (name, values[0]) for name, values in fields.items())
    return dspy.Prediction(**dict(named), **({} if cut is None else {"cut": cut}))


# --- checks of options ---


def whole_number(name: str, value: object, minimum: int = 0, maximum: float = inf) -> int:
    """The value of the option `name`, which must be a whole number from `minimum` to `maximum`."""
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        expected = f"a whole number from {minimum} {'up' if maximum == inf else f'to {maximum}'}"
        raise InputError(f"not a usable value of {name}", field=name, expected=expected, found=repr(value)[:40])
    return value


def yes_or_no(name: str, value: object) -> bool:
    """The value of the option `name`, which must be true or false."""
    if not isinstance(value, bool):
        raise InputError(f"not a usable value of {name}", field=name, expected="true or false", found=repr(value)[:40])
    return value


def one_of(name: str, value: object, allowed: Collection[str]) -> None:
    """Refuse a value of the option `name` that is not allowed."""
    if value not in allowed:
        raise InputError(f"unknown {name}", field=name, expected="one of " + ", ".join(allowed), found=value)


# --- a compiled judge: for each aspect a judge, the granularity of its scores, and its calibration ---

ScoreScale = Literal["judge", "raters"]
"""Whether scores are the judge's own or are mapped to the raters' scale (`Calibration`)."""


@dataclass(frozen=True)
class AspectJudge:
    """The judge of one aspect, and how its scores are reported."""

    judge: Judge
    granularity: Granularity = "given"
    """The steps that its scores are rounded to; `given` leaves them as they are."""
    calibration: Calibration | None = None
    """Map from reported scores to the raters' scale; None if none was fitted."""

    def __post_init__(self) -> None:
        if not self.judge.on_scale and self.granularity != "given":
            raise InputError(
                f"a score of {self.judge.kind!r} is not on the aspect's scale and cannot be rounded to its steps",
                field="granularity",
                expected="given",
                found=self.granularity,
            )


def default_granularity(judge: Judge, aspect: Aspect) -> Granularity:
    """The granularity of scores if none is chosen: `whole` where they must be steps of the scale."""
    whole = aspect.scale.on_steps and judge.on_scale and not judge.compares_pairs
    return "whole" if whole else "given"


@dataclass(frozen=True)
class CompiledJudge:
    """The judges of a task's aspects, exported and used as one."""

    task: Task
    aspects: Mapping[str, AspectJudge]
    """Aspect name -> its judge, in the task's order."""

    def require_calibrated(self, aspects: Sequence[Aspect], scale: str) -> None:
        """Refuse an unknown `ScoreScale`, and the raters' scale for aspects without a calibration."""
        scales = get_args(ScoreScale)
        if scale not in scales:
            raise InputError("unknown scale of scores", field="scale", expected=" or ".join(scales), found=scale)
        uncalibrated = [aspect.name for aspect in aspects if self.aspects[aspect.name].calibration is None]
        if scale == "raters" and uncalibrated:
            raise InputError(
                f"the judge has no map to the raters' scale for {', '.join(uncalibrated)}",
                field="scale",
                expected="a calibrated judge: a compile calibrates all judges except those that compare pairs",
                remedy="leave the scale out for the judge's own scores, or compile the judge again",
            )
