"""The guide tuner: writes down what is known of the raters, from their ratings, into the instructions.

A reflecting LM sees rated train sources beside the judge's own scores and reasons, and writes how these raters rate.
It writes several guides, each from other train sources; each is judged on the train sources that it has not seen, by
what it adds to the judge's agreement there. The best one is revised once on what it still gets wrong, and the revision
is kept if it does better on sources that neither of the two has seen. All calls go through the run's store and limits,
so that a stopped compile does not pay for them again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy
from dspy.teleprompt.teleprompt import Teleprompter
from dspy.utils.exceptions import AdapterParseError

from debate_judge.optimize.examples import group_metric
from debate_judge.optimize.tuners import Tuning
from debate_judge.optimize.tuners.rated_material import RatedCandidate, RatedSource, pack, quoted
from debate_judge.programs.judge import Item, Judge, Judgement, Verdict
from debate_judge.programs.roles.guide import guide_in, with_guide
from debate_judge.programs.roles.parsing import escape
from debate_judge.programs.transcript import Transcript

logger = logging.getLogger(__name__)

MOST_PACKS = 3
"""Drafts that are written for one guide where its sources exceed the limit in tokens."""

QUOTE = 7
"""Consecutive words in common with a shown text that count as a quotation."""


class WriteGuide(dspy.Signature):
    """Human raters have rated texts, and a judge has scored the same texts. Find out how these raters rate, so that a
    judge who follows your guide gives the ratings that they would give.

    Compare the candidates of one source with one another before you compare sources. Where raters and judge differ,
    ask what the raters saw, or let pass, that the judge did not. A habit shows in several sources; leave single cases
    aside. Then write the guide: how these raters use the scale, with an anchor for every whole point and with how often
    they give the ends of it; which kinds of defects cost how much; what they let pass; what they do not look at; and in
    which steps a score should be given (whole points, halves, or finer). Write what a careful reader would not expect
    from the name of the aspect. Describe kinds of defects in general words: the guide will be read beside other texts,
    so name and quote nothing from these. Where a former guide is given, the judge's scores were given under it: keep
    what the ratings bear out, and change what they contradict."""

    task: str = dspy.InputField(desc="what is rated")
    aspect: str = dspy.InputField(desc="the aspect with its scale and definition")
    rated: str = dspy.InputField(
        desc="one JSON object per source: its text, and its candidates with the mean of the raters, single ratings, "
        "and the score and reason of the judge"
    )
    former_guide: str = dspy.InputField(desc="the guide that the judge had, if any")
    limit: str = dspy.InputField(desc="how long the guide may be")
    correction: str = dspy.InputField(desc="what was wrong with your last guide, if anything")
    analysis: str = dspy.OutputField(desc="what the raters do, worked out step by step")
    guide: str = dspy.OutputField(desc="the guide itself, in plain sentences or short lines")


class MergeGuides(dspy.Signature):
    """Several guides describe how the same raters rate the same aspect, each written from other texts. Write one guide
    that keeps what they agree on, weighs what only one of them has by how plausible it is as a habit, and settles where
    they contradict each other."""

    task: str = dspy.InputField(desc="what is rated")
    aspect: str = dspy.InputField(desc="the aspect with its scale and definition")
    drafts: str = dspy.InputField(desc="the guides")
    limit: str = dspy.InputField(desc="how long the guide may be")
    correction: str = dspy.InputField(desc="what was wrong with your last guide, if anything")
    guide: str = dspy.OutputField(desc="the one guide")


@dataclass(frozen=True)
class GuideLimits:
    """How much is shown to the reflecting LM, and how much it may write."""

    words: int = 220
    """Of one guide."""
    tokens: int = 14_000
    """Of the rated texts in one prompt."""


@dataclass(frozen=True)
class _Rated:
    """A train example with what the judge said about it."""

    example: dspy.Example
    transcripts: list[Transcript]
    metric: float
    """Of the judge at the rounds that guides are judged at."""

    def source(self) -> RatedSource:
        """As it is shown to the reflecting LM: the judge's first score and its reason, without any debate."""
        example = self.example
        candidates = []
        for item, mean, ratings, transcript in zip(
            example.questions, example.ratings, example.raters, self.transcripts, strict=True
        ):
            if mean is not None:
                first = next((turn for turn in transcript.turns if turn.score is not None), None)
                score, reason = (first.score, first.text) if first else (None, "")
                candidates.append(RatedCandidate(escape(item.text), ratings, mean, score, escape(reason)))
        one = example.questions[0]
        return RatedSource(escape(one.source), escape(one.context), tuple(candidates))


@dataclass(frozen=True)
class _Proposal:
    guide: str
    shown: frozenset[int]
    """Places of the train examples that its author has seen."""
    gain: float
    """What it adds to the metric on examples that its author has not seen."""


class GuideOptimizer(Teleprompter):
    """A DSPy optimizer that writes a guide to the raters into a judge's instructions.

    Args:
        evaluate: Judge and items -> transcripts; the judge is asked with at most `rounds` rounds.
        reflect: The LM that writes guides.
        rounds: Rounds of debate at which guides are judged.
        statistic: The correlation within a group.
        proposals: Guides that are written, each from other sources.
        limits: Lengths.
        seed: Of the folds.
        label: Aspects, for the log.
    """

    def __init__(
        self,
        *,
        evaluate: Callable[[Judge, Sequence[Item]], list[Transcript]],
        reflect: dspy.BaseLM,
        rounds: int,
        statistic: Any,
        proposals: int,
        limits: GuideLimits,
        seed: int,
        label: str,
    ) -> None:
        super().__init__()
        self._evaluate = evaluate
        self._reflect = reflect
        self._rounds = rounds
        self._statistic = statistic
        self._proposals = proposals
        self._limits = limits
        self._seed = seed
        self._label = label

    def compile(
        self,
        student: Judge,
        *,
        trainset: list[dspy.Example],
        teacher: Any = None,
        valset: list[dspy.Example] | None = None,
        **kwargs: Any,
    ) -> Judge:
        """A copy of `student` whose instructions hold a guide to the raters of `trainset`.

        Args:
            student: The judge; it is not changed.
            trainset: Examples as `optimize.examples` makes them, of one or several aspects.
            teacher: Not used.
            valset: Not used: guides are judged on the part of `trainset` that their author has not seen.
            kwargs: Not used.

        Raises:
            dspy.LMError: An LM failed for good.
        """
        by_aspect: dict[str, list[dspy.Example]] = {}
        for example in trainset:
            by_aspect.setdefault(example.questions[0].aspect.name, []).append(example)
        guides = {name: self._guide(student, examples) for name, examples in by_aspect.items()}
        found = {name: guide for name, guide in guides.items() if guide}
        text = "\n".join(guide if len(by_aspect) == 1 else f"{name}:\n{guide}" for name, guide in found.items())
        return guided(student, text)

    def _guide(self, student: Judge, examples: list[dspy.Example]) -> str:
        """The best guide for one aspect, or an empty text if none could be written."""
        rated = self._judged(student, examples)
        folds = _folds(len(rated), self._proposals, self._seed)
        proposals = [p for fold in folds if (p := self._proposal(student, rated, fold)) is not None]
        if not proposals:
            logger.warning("%s: the reflecting LM wrote no usable guide", self._label)
            return ""
        best = max(proposals, key=lambda p: p.gain)
        logger.info(
            "%s: %d guides, gains on unseen train sources %s", self._label, len(proposals),
            ", ".join(f"{p.gain:+.3f}" for p in proposals),
        )  # fmt: skip
        return self._refined(student, rated, best)

    def _judged(self, judge: Judge, examples: list[dspy.Example]) -> list[_Rated]:
        items = [item for example in examples for item in example.questions]
        transcripts = iter(self._evaluate(judge, items))
        found = []
        for example in examples:
            own = [next(transcripts) for _ in example.questions]
            scores = [_score(judge.verdict(t, self._rounds)) for t in own]
            found.append(_Rated(example, own, group_metric(example.ratings, scores, self._statistic)))
        return found

    def _proposal(self, student: Judge, rated: Sequence[_Rated], unseen: Sequence[int]) -> _Proposal | None:
        """A guide written without the examples `unseen`, with what it adds there."""
        seen = [i for i in range(len(rated)) if i not in set(unseen)]
        sources = [rated[i].source() for i in seen]
        packs = pack(sources, self._limits.tokens)[:MOST_PACKS]
        drafts = [d for shown in packs if (d := self._write(rated, shown, "")) is not None]
        guide = drafts[0] if len(drafts) == 1 else self._merge(rated, drafts, sources) if drafts else None
        if guide is None:
            return None
        return _Proposal(guide, frozenset(seen), self._gain(student, rated, guide, unseen))

    def _gain(self, student: Judge, rated: Sequence[_Rated], guide: str, places: Sequence[int]) -> float:
        if not places:
            return 0.0
        after = self._judged(guided(student, guide), [rated[i].example for i in places])
        return sum(new.metric - rated[i].metric for new, i in zip(after, places, strict=True)) / len(places)

    def _refined(self, student: Judge, rated: Sequence[_Rated], best: _Proposal) -> str:
        """The best guide, revised on half of what it has not seen if the revision does better on the other half."""
        unseen = [i for i in range(len(rated)) if i not in best.shown]
        shown, left = unseen[: len(unseen) // 2], unseen[len(unseen) // 2 :]
        if not shown:
            return best.guide
        under_guide = self._judged(guided(student, best.guide), [rated[i].example for i in shown])
        packs = pack([one.source() for one in under_guide], self._limits.tokens)
        revised = self._write(rated, packs[0], best.guide)
        if revised is None:
            return best.guide
        before, after = (self._gain(student, rated, guide, left) for guide in (best.guide, revised))
        logger.info("%s: revised guide %+.3f, the one before %+.3f on the same sources", self._label, after, before)
        return revised if after > before else best.guide

    def _write(self, rated: Sequence[_Rated], shown: Sequence[RatedSource], former: str) -> str | None:
        lines = "\n".join(source.line() for source in shown)
        return self._ask(WriteGuide, rated, shown, {"rated": lines, "former_guide": former or "none"})

    def _merge(self, rated: Sequence[_Rated], drafts: Sequence[str], shown: Sequence[RatedSource]) -> str | None:
        text = "\n\n".join(f"Guide {number}:\n{draft}" for number, draft in enumerate(drafts, 1))
        return self._ask(MergeGuides, rated, shown, {"drafts": text}) or drafts[0]

    def _ask(
        self,
        signature: type[dspy.Signature],
        rated: Sequence[_Rated],
        shown: Sequence[RatedSource],
        inputs: Mapping[str, str],
    ) -> str | None:
        """A guide within the limits: asked for again once with what was wrong, then cut to what may stand."""
        item = rated[0].example.questions[0]
        task, aspect = item.task, item.aspect
        asked = {
            "task": f"Each {task.candidate_label} was made for a {task.source_label}.",
            "aspect": f"{aspect.name} ({aspect.scale}): {aspect.definition}",
            "limit": f"At most {self._limits.words} words.",
            **inputs,
        }
        problem, guide = "", ""
        for _ in range(2):
            try:
                with dspy.context(lm=self._reflect, adapter=dspy.ChatAdapter(), disable_history=True):
                    answer = dspy.Predict(signature)(**asked, correction=problem or "none")
            except AdapterParseError:
                problem = "The reply could not be read: it needs every field under its header."
                continue
            guide = escape(str(answer.guide or "").strip())
            problem = self._problem(guide, shown)
            if not problem:
                return guide
        return cut(guide, self._limits.words, shown) or None

    def _problem(self, guide: str, shown: Sequence[RatedSource]) -> str:
        if not guide:
            return "The guide was empty."
        words = len(guide.split())
        if words > self._limits.words:
            return f"The guide had {words} words; the limit is {self._limits.words}."
        quotation = quoted(guide, shown, QUOTE)
        return f"The guide quotes the texts ({quotation!r}); describe the kind of defect instead." if quotation else ""


def guided(judge: Judge, guide: str) -> Judge:
    """A copy of the judge with the guide in the instructions of the predictors that everything else follows from."""
    copy = judge.deepcopy()
    for name, predictor in copy.named_predictors():
        if name in informed(judge):
            instructions = with_guide(predictor.signature.instructions, guide)
            predictor.signature = predictor.signature.with_instructions(instructions)
    return copy


def informed(judge: Judge) -> tuple[str, ...]:
    """Names of the predictors that are given a guide: the Scorer's, whose task all roles of a debate read, else all."""
    names = judge.tunable()
    return ("scorer.predict",) if "scorer.predict" in names else names


def guide_of(judge: Judge) -> str:
    """The guide that a judge holds, or an empty text."""
    return next((found for text in judge.instructions().values() if (found := guide_in(text))), "")


def cut(guide: str, words: int, shown: Sequence[RatedSource]) -> str:
    """The guide without sentences that quote, and without those at its end that exceed the limit."""
    kept: list[str] = []
    for line in guide.splitlines():
        sentences = [s for s in line.replace(". ", ".\n").splitlines() if s.strip() and not quoted(s, shown, QUOTE)]
        for sentence in sentences:
            if len(" ".join([*kept, sentence]).split()) > words:
                return "\n".join(kept)
            kept.append(sentence)
    return "\n".join(kept)


def _folds(count: int, proposals: int, seed: int) -> list[list[int]]:
    """The examples that each proposal's author does not see: a partition, in one part less where there are too few."""
    places = list(range(count))
    random.Random(seed).shuffle(places)
    parts = max(1, min(proposals, count - 1))
    if parts == 1:
        # One guide from all but a third; with fewer than three sources nothing can be kept back.
        return [sorted(places[: count // 3])]
    return [sorted(places[i::parts]) for i in range(parts)]


def _score(judgement: Judgement) -> float | None:
    return judgement.score if isinstance(judgement, Verdict) else None


def tune(tuning: Tuning) -> Judge:
    """Return a copy of the judge with a guide to the raters of the train examples.

    Raises:
        dspy.LMError: An LM failed for good.
    """
    if not informed(tuning.judge) or not tuning.examples:
        return tuning.judge
    # One round tells most of what a debate makes of a guide, at a fraction of a whole debate's calls.
    rounds = min(1, tuning.rounds)
    optimizer = GuideOptimizer(
        evaluate=lambda judge, items: tuning.runner.converse(judge, items, rounds, f"{tuning.label}: guide"),
        reflect=tuning.runner.lm,
        rounds=rounds,
        statistic=tuning.statistic,
        proposals=max(1, tuning.proposals),
        limits=GuideLimits(),
        seed=tuning.seed,
        label=tuning.label,
    )
    return optimizer.compile(tuning.judge, trainset=tuning.examples)
