"""The search: one Optuna study over knowledge about the raters, persona, n and Tie-breaker, for all aspects.

A trial evaluates its point on every aspect, so that the choice for one can borrow strength from the others (`pooling`).
Its value is the agreement, the mean over aspects, less `CALL_PENALTY` for each LM call per item. The starting points
are enqueued; the sampler (TPE) suggests at least a third of the trials. A debate reports its gain over the best single
call twice before it is held on all sources: on two fifths of train, where it is pruned unless it gains as much as the
best third of the starting points, and on train, where it is pruned if it loses by more than `_MAX_LOSS`. Folds with the
same train part thus prune alike, and ask about the same. A debate of n rounds contains every shorter one, and every
granularity is a rounding of finished scores: these are read off without an LM call, and may be chosen, too.

A search that was stopped is repeated from the stored replies, at no cost, and its study is written anew; it is there
for `optuna-dashboard`.

A judge must not be evaluated on train sources whose ratings it has learnt from. There a variant is represented by
judges that learnt in the same way from other train sources (cross-fitting); where there is none, train is not used.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice, product
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from debate_judge.data.agreement.correlations import agreement
from debate_judge.data.agreement.decisions import AbsoluteScale, Objective
from debate_judge.data.agreement.figures import Figure, Floats, GroupScores, Statistic
from debate_judge.data.errors import InputError, make_folder
from debate_judge.data.schema import GRANULARITIES, Aspect, Corpus, Granularity, Level
from debate_judge.optimize.pooling import choose_points, group_values
from debate_judge.optimize.tuners import GroupKey
from debate_judge.programs.debate.prompts import TWO_BRIEFS
from debate_judge.programs.judge import Judge, Judgement, Transcript, corpus_items, round_to_granularity
from debate_judge.programs.lm.limits import TooManyUnscoredError
from debate_judge.runs.progress import stage
from debate_judge.runs.runner import JudgeRunner, calls_per_item, group_ratings, require_scored

if TYPE_CHECKING:
    import optuna

NO_KNOWLEDGE = "none"
"""The value of `knowledge` where nothing was learnt about the raters."""

LEARNT = "learnt"
"""Name of the persona that was written for the raters, one for each aspect, besides those that all aspects have."""

TUNED = "tuned"
"""Name of the knowledge and the persona of a judge whose instructions were all rewritten."""


class JudgeVariant(NamedTuple):
    """One judge among those that a search chooses from: its knowledge about the raters, and its Critic's persona."""

    knowledge: str
    persona: str


@dataclass(frozen=True, order=True)
class Point:
    """A configuration of the judge. In a single call (no rounds) persona and Tie-breaker have no effect."""

    knowledge: str
    """Name of what was learnt about the raters (`tuning.Knowledge`), or `NO_KNOWLEDGE`."""
    persona: str
    rounds: int
    tie_breaker: bool
    granularity: Granularity
    """What the scores are rounded to."""

    @property
    def variant(self) -> JudgeVariant:
        return JudgeVariant(self.knowledge, self.persona)

    @property
    def params(self) -> dict[str, Any]:
        """As the parameters of a run; a single call has no persona."""
        values = asdict(self) | {"persona": self.persona if self.rounds else "none"}
        return {"n": values.pop("rounds"), **values}


def describe_point(point: Point, calls: float) -> str:
    """A configuration in words, e.g. `guide, n = 2, devils-advocate, tie-breaker, half points`; `calls` is its number
    of LM calls per item."""
    # Without rounds, some judges make several calls per item, and metrics none.
    single = "single call" if round(calls) == 1 else "n = 0"
    # A persona that was rewritten with all other instructions has the name of the knowledge.
    knowledge = [] if point.knowledge in (NO_KNOWLEDGE, point.rounds and point.persona) else [point.knowledge]
    debate = [f"n = {point.rounds}", point.persona, *(["tie-breaker"] if point.tie_breaker else [])]
    rounding = [] if point.granularity == "given" else [f"{point.granularity} points"]
    return ", ".join([*knowledge, *(debate if point.rounds else [single]), *rounding])


@dataclass(frozen=True)
class SearchSpace:
    """The values of each parameter."""

    knowledge: tuple[str, ...]
    """Kinds of knowledge, none first: the untuned judge is always a choice. `TUNED` takes no other persona."""
    personas: tuple[str, ...]
    """The judge's default persona first."""
    rounds: tuple[int, ...]
    tie_breakers: tuple[bool, ...]
    granularities: tuple[Granularity, ...] = GRANULARITIES
    untuned_variants: bool = True
    """Whether other personas than the default one and a Tie-breaker are tried without knowledge, too, where there is
    any."""

    @property
    def parameters(self) -> dict[str, tuple[Any, ...]]:
        """Name -> values of the parameters that a trial suggests besides n; roundings follow from its scores."""
        return {"knowledge": self.knowledge, "persona": self.personas, "tie_breaker": self.tie_breakers}

    def point(self, knowledge: str, persona: str, rounds: int, tie_breaker: bool) -> Point:
        """The point of these parameters, with unrounded scores. Those without effect have one value: persona and
        Tie-breaker of a single call, and the persona of a judge whose roles were all rewritten."""
        if not (rounds and (self.untuned_variants or knowledge != NO_KNOWLEDGE or len(self.knowledge) == 1)):
            persona, tie_breaker = self.personas[0], bool(rounds) and self.tie_breakers[0]
        return Point(knowledge, TUNED if knowledge == TUNED else persona, rounds, tie_breaker, self.granularities[0])

    def starting_points(self) -> list[Point]:
        """What is tried before the sampler suggests anything: single calls; one round with each kind of knowledge, and
        by each other persona."""
        learnt = self.knowledge[1:]
        best = learnt[0] if learnt else NO_KNOWLEDGE
        default, tie = self.personas[0], self.tie_breakers[0]
        shortest = min((n for n in self.rounds if n), default=0)
        params = [
            *((knowledge, default, 0, tie) for knowledge in self.knowledge),
            *((knowledge, default, shortest, tie) for knowledge in learnt or self.knowledge),
            *((best, persona, shortest, tie) for persona in self.personas[1:]),
        ]
        return list(dict.fromkeys(self.point(*values) for values in params))

    def derived_points(self, point: Point) -> list[Point]:
        """The points whose scores follow from this point's debates without an LM call: it and every smaller n, each in
        every granularity; the point itself comes first."""
        shorter = [n for n in sorted(self.rounds, reverse=True) if 0 < n <= point.rounds and False in self.tie_breakers]
        unrounded = [point, *(replace(point, rounds=n, tie_breaker=False) for n in shorter)]
        return list(
            dict.fromkeys(replace(p, granularity=granularity) for p in unrounded for granularity in self.granularities)
        )

    def points(self) -> list[Point]:
        """Every distinct point."""
        longest_first = sorted(self.rounds, reverse=True)
        unrounded = (
            self.point(knowledge, persona, rounds, tie_breaker)
            for rounds, knowledge, persona, tie_breaker in product(
                longest_first, self.knowledge, self.personas, self.tie_breakers
            )
        )
        return list(dict.fromkeys(derived for point in unrounded for derived in self.derived_points(point)))

    def complexity(self, point: Point) -> tuple[int | bool, ...]:
        """Sort key: of two points with equal agreement and calls, the simpler comes first."""
        personas = (*self.personas, TUNED)
        return (
            point.tie_breaker,
            self.knowledge.index(point.knowledge),
            point.persona != personas[0],
            point.rounds,
            GRANULARITIES.index(point.granularity),
            personas.index(point.persona),
        )


ChoicePart = Literal["dev", "train"]

PARTS: tuple[ChoicePart, ...] = ("dev", "train")


@dataclass(frozen=True)
class CrossFittedJudge:
    """A judge, and the out-of-fold judges that represent it on train."""

    judge: Judge
    out_of_fold: Mapping[GroupKey, Judge] | None = None
    """For each train group the judge that learnt without it; None if the judge has learnt nothing from train."""
    seen: frozenset[GroupKey] = frozenset()
    """Train groups that all of these judges have learnt from."""

    def judge_for(self, part: ChoicePart, key: GroupKey) -> Judge | None:
        """The judge for a group; None if every judge has seen its ratings."""
        if part == "train" and key in self.seen:
            return None
        return self.judge if part == "dev" or self.out_of_fold is None else self.out_of_fold.get(key)


class ChoiceScores:
    """Judgements and scores of one aspect at any point, with each debate held once.

    No prompt depends on the number of rounds. So of each variant the longest debate is held only; the scores for every
    smaller n and every granularity are derived from it without an LM call. Only a Tie-breaker after n rounds makes
    further calls, about the items that are still in dispute then.

    Args:
        variants: The judges to choose from.
        parts: The corpora to choose by, train and dev.
        aspect: The aspect.
        runner: Makes the LM calls.
        label: Its name in progress and estimates.
        fixed_granularity: Its granularity, if it does not take that of the point.
    """

    def __init__(
        self,
        variants: Mapping[JudgeVariant, CrossFittedJudge],
        parts: Mapping[ChoicePart, Corpus],
        aspect: Aspect,
        runner: JudgeRunner,
        *,
        label: str,
        fixed_granularity: Granularity | None = None,
    ) -> None:
        self.variants = variants
        self.aspect = aspect
        self.runner = runner
        self._label = label
        self._fixed_granularity = fixed_granularity
        corpora = [(part, parts[part]) for part in PARTS if part in parts]
        self._groups: dict[str, ChoicePart] = {group.id: part for part, corpus in corpora for group in corpus.groups}
        self._items = [(part, item) for part, corpus in corpora for item in corpus_items(corpus, aspect)]
        self._ratings = [group for _, corpus in corpora for group in group_ratings(corpus, aspect)]
        self._scores: dict[tuple[Point, frozenset[str] | None], tuple[list[GroupScores], float]] = {}
        # With n for a Tie-breaker, which reads the transcript up to n, and None for debates. For each item the
        # transcript, and the number of rounds to which it was held; (None, infinity) if no judge may be asked.
        self._held: dict[tuple[JudgeVariant, int | None], list[tuple[Transcript | None, float]]] = {}

    def granularity(self, point: Point) -> Granularity:
        """The granularity of the aspect's scores at a point."""
        return self._fixed_granularity or point.granularity

    def parts_of(self, variant: JudgeVariant) -> dict[str, ChoicePart]:
        """Id -> part of the groups to choose by whose ratings not every judge of the variant has seen."""
        judges = self.variants[variant]
        return {g: part for g, part in self._groups.items() if judges.judge_for(part, (self.aspect.name, g))}

    def judgements(self, point: Point, group_ids: Collection[str] | None = None) -> list[Judgement | None]:
        """A judgement of each item, in corpus order; None where every judge has seen the rating.

        Args:
            point: The configuration of the judge.
            group_ids: Ids of the groups that are judged; by default all.
        """
        held = self._hold(point.variant, point.rounds, group_ids)
        if point.tie_breaker and point.rounds:
            held = self._hold(point.variant, point.rounds, group_ids, ties=True)
        judge = self.variants[point.variant].judge
        return [
            None if transcript is None else judge.judgement(transcript, point.rounds)
            for (transcript, _), (_, item) in zip(held, self._items, strict=True)
            if group_ids is None or item.group in group_ids
        ]

    def scores(self, point: Point, group_ids: Collection[str] | None = None) -> tuple[list[GroupScores], float]:
        """Scores by group, without the groups whose ratings every judge has seen; and LM calls per item.

        The arguments are those of `judgements`.
        """
        key = point, None if group_ids is None else frozenset(group_ids)
        if key in self._scores:
            return self._scores[key]
        scored: list[GroupScores] = []
        used: list[Judgement] = []
        judgements, granularity = iter(self.judgements(point, group_ids)), self.granularity(point)
        for group in self._ratings:
            if group_ids is not None and group.group not in group_ids:
                continue
            of_group = list(islice(judgements, len(group.candidates)))
            judged = [judgement for judgement in of_group if judgement is not None]
            if len(judged) == len(of_group):
                # Finished judgements are rounded: a granularity needs no debate of its own.
                scores = tuple(round_to_granularity(judgement, self.aspect, granularity) for judgement in judged)
                scored.append(replace(group, scores=scores))
                used += judged
        self._scores[key] = scored, calls_per_item(used) if used else 0.0
        return self._scores[key]

    def agreement_by_rounds(self, statistic: Statistic, level: Level, seed: int) -> dict[JudgeVariant, list[Figure]]:
        """Agreement after each number of rounds, without Tie-breaker and unrounded, of each variant that debated every
        item, up to the rounds of all debates: what needs no LM call."""
        by_rounds: dict[JudgeVariant, list[Figure]] = {}
        for variant in [variant for variant, n in self._held if n is None]:
            rounds = min((held for _, held in self._held[variant, None]), default=-1.0)
            if not 0 <= rounds < math.inf:
                continue
            for n in range(int(rounds) + 1):
                scores, _ = self.scores(Point(variant.knowledge, variant.persona, n, False, "given"))
                figure = agreement({self.aspect.name: scores}, statistic, level, seed=seed)
                by_rounds.setdefault(variant, []).append(figure)
        return by_rounds

    def _hold(
        self, variant: JudgeVariant, rounds: int, group_ids: Collection[str] | None, *, ties: bool = False
    ) -> list[tuple[Transcript | None, float]]:
        """The debates of the items of these groups, held to at least `rounds` rounds; or for `ties`, after so many
        rounds, with the Tie-breaker's decision. Only what was not asked before is asked."""
        held = self._held.setdefault((variant, rounds if ties else None), [(None, -1.0)] * len(self._items))
        by_judge: dict[tuple[ChoicePart, int], tuple[Judge, list[int]]] = {}
        for index, (part, item) in enumerate(self._items):
            if held[index][1] >= rounds or (group_ids is not None and item.group not in group_ids):
                continue
            judge = self.variants[variant].judge_for(part, (item.aspect.name, item.group))
            if judge is None:
                held[index] = None, math.inf
            else:
                by_judge.setdefault((part, id(judge)), (judge, []))[1].append(index)
        of_variant = f"{variant.persona}, knowledge: {variant.knowledge}"

        def hold(part: ChoicePart, judge: Judge, indices: Sequence[int]) -> None:
            items = [self._items[index][1] for index in indices]
            with stage(search_stage(self._label, "tie-breaks" if ties else "debates", part)):
                if ties:
                    debates = [self._held[variant, None][index][0] for index in indices]
                    cut_at_n = [debate.until(rounds) for debate in debates if debate is not None]
                    label = f"{self._label}: ties, {of_variant}, n = {rounds}"
                    transcripts = self.runner.break_tie(judge, items, cut_at_n, label)
                else:
                    transcripts = self.runner.converse(judge, items, rounds, f"{self._label}: debates, {of_variant}")
            for index, transcript in zip(indices, transcripts, strict=True):
                held[index] = transcript, rounds

        self.runner.run_concurrently(
            [partial(hold, part, judge, indices) for (part, _), (judge, indices) in by_judge.items()]
        )
        return held


def search_stage(label: str, call_kind: str, part: ChoicePart) -> str:
    """Name of the stage in which a search judges the items of a part."""
    return f"{label}: search, {call_kind} on {part}"


CALL_PENALTY = 0.001
"""What a trial's value loses for each LM call per item, so that of equal scores those that take fewer calls win."""

_MIN_SCREEN: Mapping[Level, int] = MappingProxyType({"summary": 3, "sample": 30, "system": 3})
"""Fewest sources that a trial is pruned by. At sample level a correlation needs many."""

_PRUNED_SHARE = 2 / 3
"""Share of the starting debates that are pruned on the first screen; what is suggested must beat these, too."""

_STARTUP_TRIALS = 10
"""Suggestions that spread over the space before TPE learns from what was tried."""

_MAX_LOSS = 0.02
"""What a debate may lose against the best single call on train, and still be held on all sources."""


@dataclass(frozen=True)
class SearchLimits:
    """How much of a search space is tried."""

    candidates: int
    """Most rated candidates of each aspect that the choice is made by."""
    suggestions: int = 0
    """Trials that the sampler suggests; at least half as many as there are starting points."""
    all_personas: bool = True
    """Whether every persona is tried; else the default one and, with what was learnt, the one that argues both sides
    and the learnt one, and a Tie-breaker."""
    trials: int | None = None
    """Most trials altogether."""

    def searched(self, space: SearchSpace) -> SearchSpace:
        """The part of a space that is searched."""
        default, *others = space.personas
        kept = [persona for persona in others if self.all_personas or persona in (TWO_BRIEFS.name, LEARNT)]
        return replace(space, personas=(default, *kept), untuned_variants=self.all_personas)

    def starting_points(self, space: SearchSpace) -> list[Point]:
        """The starting points that are tried."""
        points = self.searched(space).starting_points()
        return points if self.trials is None else points[: self.trials - self.trials // 3]

    def trials_after(self, starting_points: int) -> int:
        """How many trials the sampler suggests after so many starting points."""
        if self.trials is not None:
            return self.trials - starting_points
        return max(self.suggestions, -(-starting_points // 2))


SEARCH_LIMITS: Mapping[str, SearchLimits] = MappingProxyType(
    {
        "light": SearchLimits(512, 3, all_personas=False),
        "medium": SearchLimits(2048, 20),
        "heavy": SearchLimits(1_000_000, 80),
    }
)
"""Effort -> how much is tried."""


@dataclass(frozen=True)
class Outcome:
    """Agreement and calls of a point on train and dev, in one aspect."""

    point: Point
    agreement: float
    """Biased upwards for the chosen point, which is the best of many."""
    calls: float
    """LM calls per item, whether or not they had to be made."""
    scores: Sequence[GroupScores]
    values: Floats
    """Agreement in each group (`pooling.group_values`)."""


def _worth(outcomes: Mapping[str, Outcome]) -> float:
    """What a trial maximizes."""
    return fmean(outcome.agreement - CALL_PENALTY * outcome.calls for outcome in outcomes.values())


@dataclass(kw_only=True)
class Search:
    """A search: an Optuna study, the outcomes of the points that were evaluated, and the choice."""

    aspects: Mapping[str, ChoiceScores]
    """Name -> the scores of each point in this aspect."""
    space: SearchSpace
    """What may be tried; after construction what `limits` leave of it."""
    limits: SearchLimits
    objective: Objective
    level: Level
    """Of the agreement that is maximized."""
    absolute_scales: Mapping[str, AbsoluteScale] = field(default_factory=dict)
    """Aspect -> what absolute agreement is measured against; empty where the objective is a correlation."""
    max_unscored: float = 1.0
    """Share of the texts that a judge may leave without a score; trials that leave more have failed."""
    seed: int = 0
    study_name: str = "search"
    storage: Path | None = None
    """The file of the study; None to keep it in memory."""
    pruner: optuna.pruners.BasePruner | None = None
    """In place of the threshold."""
    at_most: bool = False
    """For an estimate: nothing is pruned, the longest debates are suggested, and the most expensive is chosen."""
    on_trial: Callable[[Point, Mapping[str, Outcome]], None] = lambda point, outcomes: None
    """Called for every point that was evaluated, with its outcome in each aspect."""

    outcomes: dict[Point, dict[str, Outcome]] = field(default_factory=dict, init=False)
    """Outcome by aspect of the points that were evaluated on all groups."""
    states: dict[str, int] = field(default_factory=dict, init=False)
    """State of a trial -> number of trials: COMPLETE, PRUNED, FAIL."""
    chosen: dict[str, Outcome] = field(default_factory=dict, init=False)
    """Aspect -> the choice by partial pooling."""

    def __post_init__(self) -> None:
        self.space = self.limits.searched(self.space)
        self._singles = [point for point in self.space.starting_points() if not point.rounds]
        self._failure: TooManyUnscoredError | None = None

    def optimize(self) -> Search:
        """Try the starting points, then what the sampler suggests, and choose.

        Raises:
            InputError: The study cannot be stored.
            TooManyUnscoredError: Every judge leaves too many texts without a score.
            dspy.LMError: The LM failed for good.
        """
        import optuna

        # A failed trial is told below; Optuna would print the traceback of each.
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        starts = self.limits.starting_points(self.space)
        suggestions = self.limits.trials_after(len(starts))
        if self.at_most:
            costliest = sorted(self.space.points(), key=lambda point: (-point.rounds, not point.tie_breaker))
            starts += [point for point in costliest if point.granularity == starts[0].granularity][: 2 * suggestions]
            suggestions = 0
            self._ask(starts)
        else:
            self._ask(self._singles)
            self._ask(starts, lambda point: next(iter(self._screens(point)), None))
        startup = min(_STARTUP_TRIALS, suggestions)
        least_gains = (self._least_gain(starts), -_MAX_LOSS)
        try:
            study = optuna.create_study(
                study_name=self.study_name,
                storage=None if self.storage is None else _new_storage(self.storage),
                direction="maximize",
                sampler=_startup_sampler(self.seed),
                pruner=self.pruner or optuna.pruners.ThresholdPruner(lower=0.0),
            )
            for point in starts:
                # A parameter without effect at this point may have a value that no trial suggests.
                given = ((name, getattr(point, name), values) for name, values in self.space.parameters.items())
                others = {name: value if value in values else values[0] for name, value, values in given}
                study.enqueue_trial({"rounds": point.rounds, **others})
            objective = partial(self._objective, least_gains=least_gains)
            study.optimize(objective, len(starts) + startup, catch=TooManyUnscoredError)
            study.sampler = optuna.samplers.TPESampler(seed=self.seed, n_startup_trials=0)
            study.optimize(objective, suggestions - startup, catch=TooManyUnscoredError)
        except OSError as error:
            raise InputError(
                "the study's file cannot be used",
                file=self.storage,
                field="--store",
                found=error.strerror or str(error),
                remedy="make room, or fix the problem, and run the command again",
            ) from error
        self.states |= Counter(trial.state.name for trial in study.get_trials(deepcopy=False))
        if not self.outcomes and self._failure is not None:
            raise self._failure
        self.chosen |= self._choice(sorted(self.outcomes, key=self.space.complexity))
        return self

    def _choice(self, points: Sequence[Point]) -> dict[str, Outcome]:
        """For each aspect the choice among evaluated points, the simplest first, by partial pooling."""
        rows = {aspect: [self.outcomes[point][aspect] for point in points] for aspect in self.aspects}
        if self.at_most:
            return {aspect: max(row, key=lambda outcome: outcome.calls) for aspect, row in rows.items()}
        values = [np.array([outcome.values for outcome in row]) for row in rows.values()]
        calls = np.array([[outcome.calls for outcome in row] for row in rows.values()])
        chosen = {}
        for (aspect, row), index in zip(rows.items(), choose_points(values, calls), strict=True):
            point, scores = points[index], self.aspects[aspect]
            # If rounding changes nothing in this aspect, the pooled choice between both rests on the other aspects.
            given = replace(point, granularity="given")
            same = given in self.outcomes and scores.granularity(given) == scores.granularity(point)
            chosen[aspect] = self.outcomes[given][aspect] if same else row[index]
        return chosen

    def _objective(self, trial: optuna.Trial, least_gains: Sequence[float]) -> float:
        from optuna import TrialPruned

        suggested = {name: trial.suggest_categorical(name, values) for name, values in self.space.parameters.items()}
        # Either all numbers up to the most, or none and one.
        step = max(1, self.space.rounds[-1] // max(1, len(self.space.rounds) - 1))
        point = self.space.point(rounds=trial.suggest_int("rounds", 0, self.space.rounds[-1], step=step), **suggested)
        if point.rounds and point not in self.outcomes:
            for step, (screen, least_gain) in enumerate(zip(self._screens(point), least_gains, strict=False)):
                trial.report(self._gain(point, screen) - least_gain, step)
                if trial.should_prune():
                    raise TrialPruned
        self._ask([point])
        for derived in self.space.derived_points(point):
            if derived not in self.outcomes:
                self.outcomes[derived] = self._evaluate(derived)
                self.on_trial(derived, self.outcomes[derived])
        outcomes = self.outcomes[point]
        trial.set_user_attr("agreement", fmean(o.agreement for o in outcomes.values()))
        trial.set_user_attr("lm_calls_per_item", fmean(o.calls for o in outcomes.values()))
        trial.set_user_attr("agreement_by_aspect", {aspect: o.agreement for aspect, o in outcomes.items()})
        return _worth(outcomes)

    def _screens(self, point: Point) -> list[frozenset[str]]:
        """The groups that a trial is pruned by, one step after the other: of train as far as its judges may be measured
        there, else of all. Fewer steps if there are few groups."""
        if self.at_most:
            return []
        parts = [scores.parts_of(point.variant) for scores in self.aspects.values()]
        groups = shuffled((group for part in parts for group in part), self.seed)
        in_train = {group for part in parts for group, name in part.items() if name == "train"}
        groups.sort(key=lambda group: group not in in_train)
        least, most = _MIN_SCREEN[self.level], len(in_train) or len(groups)
        sizes = dict.fromkeys((max(least, 2 * most // 5), max(least, most)))
        return [frozenset(groups[:size]) for size in sizes if size < len(groups)]

    def _gain(self, point: Point, screen: Collection[str]) -> float:
        """How much more a point is worth on a screen than the best single call that scores enough."""
        worth, singles = _worth(self._evaluate(point, screen)), [-math.inf]
        for single in self._singles:
            with suppress(TooManyUnscoredError):
                singles.append(_worth(self._evaluate(single, screen)))
        return worth - max(singles)

    def _least_gain(self, starts: Sequence[Point]) -> float:
        """The gain below which debates are pruned on the first screen."""
        gains = []
        for point in starts:
            # What leaves too much unscored is told by its trial.
            with suppress(TooManyUnscoredError):
                gains += [self._gain(point, screen) for screen in self._screens(point)[:1] if point.rounds]
        return float(np.quantile(gains, _PRUNED_SHARE)) if gains else 0.0

    def _ask(self, points: Iterable[Point], groups: Callable[[Point], Collection[str] | None] | None = None) -> None:
        """Make concurrently the LM calls that these points still need, for all aspects, on all or these groups."""
        by_variant: dict[JudgeVariant, list[Point]] = {}
        # The longest debate of a variant comes first: it contains the others.
        for point in sorted(points, key=lambda point: -point.rounds):
            by_variant.setdefault(point.variant, []).append(point)

        def ask(scores: ChoiceScores, points: Sequence[Point]) -> None:
            for point in points:
                scores.scores(point, groups and groups(point))

        jobs = [partial(ask, scores, points) for points in by_variant.values() for scores in self.aspects.values()]
        next(iter(self.aspects.values())).runner.run_concurrently(jobs)

    def _evaluate(self, point: Point, groups: Collection[str] | None = None) -> dict[str, Outcome]:
        """The outcome of a point in each aspect, on these groups, by default on all.

        Raises:
            TooManyUnscoredError: The judge leaves too many texts without a score.
        """
        outcomes = {}
        for aspect, scores in self.aspects.items():
            scored, calls = scores.scores(point, groups)
            try:
                if any(score is None for group in scored for score in group.scores):
                    judgements = [j for j in scores.judgements(point, groups) if j is not None]
                    require_scored(judgements, self.max_unscored, f"train and dev items ({aspect})")
            except TooManyUnscoredError as error:
                self._failure = self._failure or error
                raise
            values = self._values(aspect, scored, groups)
            outcomes[aspect] = Outcome(point, float(values.mean()), calls, scored, values)
        return outcomes

    def _values(self, aspect: str, scored: Sequence[GroupScores], groups: Collection[str] | None) -> Floats:
        """Agreement by group. For groups that the judge was tuned on it is imputed: the untuned single call's agreement
        there plus the mean difference from it on the other groups."""
        measured = self.group_values(aspect, scored)
        all_groups, _ = self.aspects[aspect].scores(self._singles[0], groups)
        if len(scored) == len(all_groups):
            return np.array(list(measured.values()) or [0.0])
        ids = {group.group for group in scored}
        base = self.group_values(aspect, [group for group in all_groups if group.group in ids])
        gain = fmean(measured.values()) - fmean(base.values()) if measured and base else 0.0
        everywhere = self.group_values(aspect, all_groups)
        # At sample level values are those of blocks, and not of single groups.
        known = {} if self.level == "sample" else measured
        return np.array([known.get(name, value + gain) for name, value in everywhere.items()])

    def group_values(self, aspect: str, groups: Sequence[GroupScores]) -> dict[str, float]:
        """What each group contributes to the agreement (`pooling.group_values`)."""
        return group_values(groups, self.objective, self.level, self.absolute_scales.get(aspect))


def shuffled(names: Iterable[str], seed: int) -> list[str]:
    """The names without repetition, in a random order that depends on names and seed alone."""
    return sorted(
        set(names), key=lambda name: hashlib.blake2b(f"{seed}\0{name}".encode("utf-8", "surrogatepass")).digest()
    )


def _startup_sampler(seed: int) -> optuna.samplers.BaseSampler:
    """Suggests n by a Sobol sequence, so that it varies even in a few trials, and the other parameters at random."""
    from optuna.exceptions import ExperimentalWarning
    from optuna.samplers import QMCSampler, RandomSampler

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return QMCSampler(
            seed=seed, scramble=True, independent_sampler=RandomSampler(seed), warn_independent_sampling=False
        )


def _new_storage(file: Path) -> optuna.storages.BaseStorage:
    """Optuna's journal in a new file. One process at a time has the same compile, so that an old one is in no use."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    make_folder(file.parent, "--store")
    for path in (file, Path(f"{file}.lock")):
        path.unlink(missing_ok=True)
    return JournalStorage(JournalFileBackend(str(file)))
