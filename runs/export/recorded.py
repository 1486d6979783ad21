"""What commands read of an export's evidence, above all the held-out scores of its judge beside the ratings.

The scores stand in the manifest under "evidence"/"recorded": hashes of sources and texts with numbers, no text and no
id of the data. With them `debate carry` and `debate recheck` know which sources the judge was measured on, and
`debate score` with `interval` how far its scores are from ratings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from debate_judge.data.agreement.classification import Measure
from debate_judge.data.agreement.correlations import Statistic
from debate_judge.data.agreement.raters import error_and_bias
from debate_judge.data.agreement.results import Agreement, GroupScores
from debate_judge.data.agreement.tables import agreement_table
from debate_judge.data.errors import InputError
from debate_judge.data.files.records import FileModel, Number, Record, Text, input_error
from debate_judge.data.inference.conformal import (
    AbstentionResult,
    ConformalIntervals,
    evaluate_abstention,
    fit_intervals,
)
from debate_judge.data.schema import Aspect, Corpus, Level, RatedGroup, fingerprint
from debate_judge.runs.export.manifest import MANIFEST, REMEDY

T = TypeVar("T")

RECORDED = "recorded"

Scores = Mapping[str, Sequence[GroupScores]]
"""Aspect -> groups."""


@dataclass(frozen=True)
class RecordedScores:
    """What an export holds."""

    by: Literal["export", "folds"]
    """Whether the scores are those of the exported judge, or of the judges of folds, each on sources new to it."""
    scores: Scores
    """The judge's own scores; groups and candidates are named by the hashes of their texts."""
    mapped: Scores
    """The same on the raters' scale, by maps that were fitted on other sources; without aspects that have no map."""
    seen: frozenset[str]
    """Hashes of the sources that the exported judge was tuned or chosen on."""

    @property
    def sources(self) -> frozenset[str]:
        return frozenset(group.cluster for groups in self.scores.values() for group in groups)

    @property
    def known(self) -> frozenset[str]:
        """Hashes of all sources that the compile had."""
        return self.sources | self.seen


def group_hash(group: RatedGroup, aspects: Sequence[Aspect]) -> str:
    """The source's, except for a pair: a source may have several."""
    return fingerprint(group.unique_key(aspects))


def candidate_hashes(group: RatedGroup) -> tuple[str, ...]:
    """One for each candidate; equal texts are told apart by their number."""
    hashes: list[str] = []
    for candidate in group.candidates:
        text = fingerprint(candidate.text)
        hashes.append(text if text not in hashes else f"{text}-{sum(known.startswith(text) for known in hashes)}")
    return tuple(hashes)


def hashed(corpus: Corpus, scores: Scores) -> dict[str, list[GroupScores]]:
    """The scores with hashes in place of ids; groups that the corpus does not have are left out."""
    known = {group.id: group for group in corpus.groups}
    return {
        aspect: [
            GroupScores(
                group_hash(known_group, corpus.task.aspects),
                candidate_hashes(known_group),
                group.ratings,
                group.scores,
                group.raters,
                known_group.source_id,
            )
            for group in groups
            if (known_group := known.get(group.group)) is not None
        ]
        for aspect, groups in scores.items()
    }


def record(
    corpus: Corpus,
    scores: Scores,
    mapped: Scores,
    *,
    by: Literal["export", "folds"],
    seen: Iterable[str],
) -> dict[str, Any]:
    """The scores as JSON values: the judge's own, and those on the raters' scale for aspects with a map; for `by` and
    `seen` see `RecordedScores`.
    """
    judge_scores, mapped_scores = hashed(corpus, scores), hashed(corpus, mapped)
    aspects: dict[str, list[dict[str, Any]]] = {}
    for aspect, groups in judge_scores.items():
        on_raters = {group.group: list(group.scores) for group in mapped_scores.get(aspect, ())}
        aspects[aspect] = [
            {
                "source": group.cluster,
                **({} if group.group == group.cluster else {"pair": group.group}),
                "texts": list(group.candidates),
                "ratings": list(group.ratings),
                "scores": list(group.scores),
                "on_raters_scale": on_raters.get(group.group),
            }
            for group in groups
        ]
    return {"by": by, "seen": sorted(seen), "aspects": aspects}


class _RecordedGroup(FileModel):
    source: Text
    pair: Text | None = None
    texts: list[str]
    ratings: list[Number | None]
    scores: list[Number | None]
    on_raters_scale: list[Number | None] | None

    def of(self, scores: Sequence[float | None]) -> GroupScores:
        if not len(self.texts) == len(self.ratings) == len(scores):
            raise InputError("not one rating and one score, or null, for each text", expected=f"{len(self.texts)} each")
        return GroupScores(
            self.pair or self.source, tuple(self.texts), tuple(self.ratings), tuple(scores), source=self.source
        )

    @model_validator(mode="after")
    def _has_scores(self) -> Self:
        self.of(self.scores)
        self.of(self.scores if self.on_raters_scale is None else self.on_raters_scale)
        return self


class _Recorded(FileModel):
    by: Literal["export", "folds"]
    seen: list[str]
    aspects: dict[str, list[_RecordedGroup]]


def recorded_in(manifest: Mapping[str, Any]) -> RecordedScores | None:
    """The scores in an export's manifest; None where it has none, as exports of earlier versions.

    Raises:
        InputError: They cannot be read.
    """
    entry = evidence_part(manifest, RECORDED, _Recorded)
    if entry is None:
        return None
    scores = {aspect: [g.of(g.scores) for g in groups] for aspect, groups in entry.aspects.items()}
    mapped = {
        aspect: [g.of(g.on_raters_scale) for g in groups if g.on_raters_scale is not None]
        for aspect, groups in entry.aspects.items()
    }
    kept = {aspect: groups for aspect, groups in mapped.items() if groups}
    return RecordedScores(entry.by, scores, kept, frozenset(entry.seen))


# --- other parts of the evidence ---


def evidence_part(manifest: Mapping[str, Any], name: str, kind: type[T]) -> T | None:
    """A part of an export's evidence; None where it has no such part, as exports of earlier versions.

    Raises:
        InputError: It is not of this kind.
    """
    value = manifest["evidence"].get(name)
    if value is None:
        return None
    try:
        return TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError as error:
        record = Record({}, MANIFEST, path=f"evidence.{name}", remedy=REMEDY)
        raise input_error(error, record) from None


def exported_name(manifest: Mapping[str, Any]) -> str:
    """What the evidence calls the exported judge; empty where it does not say."""
    return (evidence_part(manifest, "exported", dict[str, str]) or {}).get("judge", "")


class DecisionCut(FileModel):
    """The kind of decision that the ratings of an aspect are, and the least score of a yes."""

    kind: str = ""
    cut: Number | None = None


def cuts_in(manifest: Mapping[str, Any]) -> dict[str, DecisionCut]:
    """Aspect -> how the exported judge decides, where the ratings are decisions."""
    found = evidence_part(manifest, "decisions", dict[str, dict[str, DecisionCut]]) or {}
    return found.get(exported_name(manifest), {})


class _Objective(FileModel):
    statistic: Statistic = "spearman"
    level: Level | None = None


def objective_in(manifest: Mapping[str, Any], usual: Level) -> tuple[Statistic, Level]:
    """The correlation that the export was chosen by, and its level, or the usual one."""
    found = evidence_part(manifest, "objective", _Objective) or _Objective()
    return found.statistic, found.level or usual


class RecordedFigure(FileModel):
    """A figure with the ends of its interval."""

    value: Number | None
    low: Number | None
    high: Number | None
    groups: int = 0


class RecordedRaters(FileModel):
    """How many raters a text had, and how well they agreed."""

    raters: int
    alpha: Number | None


class _RecordedTable(FileModel):
    aspects: dict[str, dict[str, dict[str, RecordedFigure]]] = Field(default_factory=dict)
    average: dict[str, dict[str, RecordedFigure]] = Field(default_factory=dict)


def held_out_figure(
    manifest: Mapping[str, Any], aspects: Sequence[str], statistic: Statistic, level: Level
) -> RecordedFigure | None:
    """Held-out agreement of the exported judge in an aspect, or on average over these if they are all that it has."""
    tables = evidence_part(manifest, "held_out", dict[str, _RecordedTable]) or {}
    table = tables.get(exported_name(manifest), _RecordedTable())
    if len(aspects) == 1:
        found = table.aspects.get(aspects[0], {})
    else:
        found = table.average if set(table.aspects) == set(aspects) else {}
    return found.get(level, {}).get(statistic)


# --- conformal intervals from them ---


def fitted_intervals(
    manifest: Mapping[str, Any], aspects: Sequence[Aspect], level: float
) -> dict[str, ConformalIntervals]:
    """Aspect -> its intervals; refused where the export keeps no held-out scores of it on the raters' scale."""
    recorded = recorded_in(manifest)
    by_aspect: dict[str, ConformalIntervals] = {}
    for aspect in aspects:
        groups = () if recorded is None else recorded.mapped.get(aspect.name, ())
        intervals = fit_intervals(groups, aspect.scale, level)
        if intervals is None:
            raise InputError(
                f"the export keeps no held-out scores of {aspect.name} on the raters' scale",
                field="interval",
                expected="a judge that was compiled by this version and has a map to the raters' scale",
                remedy="compile the judge again, or leave the intervals out",
            )
        by_aspect[aspect.name] = intervals
    return by_aspect


@dataclass(frozen=True)
class HeldOutIntervals:
    """The intervals of one aspect on held-out texts, each by intervals that were fitted on the other sources."""

    measured: AbstentionResult
    everything: Agreement
    """Of all scores with the raters."""
    kept: Agreement
    """Of those that are not left to people."""
    error: Measure | None
    """Mean absolute difference of score and rating; None without a score."""
    error_kept: Measure | None


def held_out_intervals(
    manifest: Mapping[str, Any], aspects: Sequence[Aspect], level: float, widest: float | None = None
) -> dict[str, HeldOutIntervals]:
    """Aspect -> how intervals of this level do, and what leaving those wider than `widest` to people does."""
    recorded = recorded_in(manifest)
    statistic, at = objective_in(manifest, "summary")
    by_aspect: dict[str, HeldOutIntervals] = {}
    for aspect in aspects:
        groups = () if recorded is None else recorded.mapped.get(aspect.name, ())
        measured = evaluate_abstention(groups, aspect.scale, level, math.inf if widest is None else widest)
        if measured is None:
            continue
        every, kept = (
            agreement_table({"x": scores}, levels=(at,), resamples=200).aspects["x"][at][statistic]
            for scores in (groups, list(measured.scores.values()))
        )
        errors = (error_and_bias(scores)[0] for scores in (groups, list(measured.scores.values())))
        by_aspect[aspect.name] = HeldOutIntervals(measured, every, kept, *errors)
    return by_aspect
