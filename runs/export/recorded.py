"""Reads the evidence of an export, above all the held-out scores of its judge with the ratings.

The scores are in the manifest under "evidence"/"recorded": hashes of sources and texts with numbers, no text and no id
of the data. `debate carry` and `debate recheck` take from them which sources the judge was measured on, and
`debate score` with `interval` how far its scores are from ratings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from debate_judge.data.agreement.correlations import Statistic
from debate_judge.data.agreement.intervals import Measure
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
"""Key of the scores in the evidence."""

Scores = Mapping[str, Sequence[GroupScores]]
"""Aspect -> scores and ratings by group."""


@dataclass(frozen=True)
class RecordedScores:
    """The held-out scores in an export."""

    scored_by: Literal["export", "folds"]
    """The exported judge, or the judges of folds, each on sources that it was not compiled on."""
    scores: Scores
    """The judge's own scores; hashes of their texts identify groups and candidates."""
    calibrated: Scores
    """The scores on the raters' scale, calibrated on other sources; without aspects that have no calibration."""
    train_dev_sources: frozenset[str]
    """Hashes of the sources that the exported judge was tuned or selected on."""

    @property
    def sources(self) -> frozenset[str]:
        return frozenset(group.source_id for groups in self.scores.values() for group in groups)

    @property
    def compile_sources(self) -> frozenset[str]:
        """Hashes of all sources of the compile."""
        return self.sources | self.train_dev_sources


def group_hash(group: RatedGroup, aspects: Sequence[Aspect]) -> str:
    """Hash of the source; of a pair also of its texts, because a source may have several pairs."""
    return fingerprint(group.unique_key(aspects))


def candidate_hashes(group: RatedGroup) -> tuple[str, ...]:
    """A hash of each text; those of equal texts are numbered."""
    hashes: list[str] = []
    for candidate in group.candidates:
        text = fingerprint(candidate.text)
        hashes.append(text if text not in hashes else f"{text}-{sum(other.startswith(text) for other in hashes)}")
    return tuple(hashes)


def hash_ids(corpus: Corpus, scores: Scores) -> dict[str, list[GroupScores]]:
    """The scores with hashes in place of ids; groups that the corpus does not have are left out."""
    by_id = {group.id: group for group in corpus.groups}
    return {
        aspect: [
            GroupScores(
                group_hash(rated, corpus.task.aspects),
                candidate_hashes(rated),
                group.ratings,
                group.scores,
                group.raters,
                rated.source_id,
            )
            for group in groups
            if (rated := by_id.get(group.group)) is not None
        ]
        for aspect, groups in scores.items()
    }


def recorded_scores_json(
    corpus: Corpus,
    scores: Scores,
    calibrated: Scores,
    *,
    scored_by: Literal["export", "folds"],
    train_dev_sources: Iterable[str],
) -> dict[str, Any]:
    """The JSON of a `RecordedScores`, with hashes in place of ids."""
    judge_scores, calibrated_scores = hash_ids(corpus, scores), hash_ids(corpus, calibrated)
    aspects: dict[str, list[dict[str, Any]]] = {}
    for aspect, groups in judge_scores.items():
        on_raters_scale = {group.group: list(group.scores) for group in calibrated_scores.get(aspect, ())}
        aspects[aspect] = [
            {
                "source": group.source_id,
                **({} if group.group == group.source_id else {"pair": group.group}),
                "texts": list(group.candidates),
                "ratings": list(group.ratings),
                "scores": list(group.scores),
                "on_raters_scale": on_raters_scale.get(group.group),
            }
            for group in groups
        ]
    return {"by": scored_by, "seen": sorted(train_dev_sources), "aspects": aspects}


class _RecordedGroup(FileModel):
    source: Text
    pair: Text | None = None
    texts: list[str]
    ratings: list[Number | None]
    scores: list[Number | None]
    on_raters_scale: list[Number | None] | None

    def with_scores(self, scores: Sequence[float | None]) -> GroupScores:
        if not len(self.texts) == len(self.ratings) == len(scores):
            raise InputError("not one rating and one score, or null, for each text", expected=f"{len(self.texts)} each")
        return GroupScores(
            self.pair or self.source, tuple(self.texts), tuple(self.ratings), tuple(scores), source=self.source
        )

    @model_validator(mode="after")
    def _has_scores(self) -> Self:
        self.with_scores(self.scores)
        self.with_scores(self.scores if self.on_raters_scale is None else self.on_raters_scale)
        return self


class _Recorded(FileModel):
    by: Literal["export", "folds"]
    seen: list[str]
    aspects: dict[str, list[_RecordedGroup]]


def recorded_scores_in(manifest: Mapping[str, Any]) -> RecordedScores | None:
    """The scores in an export's manifest; None in exports of earlier versions.

    Raises:
        InputError: They cannot be read.
    """
    entry = evidence_part(manifest, RECORDED, _Recorded)
    if entry is None:
        return None
    scores = {aspect: [g.with_scores(g.scores) for g in groups] for aspect, groups in entry.aspects.items()}
    calibrated = {
        aspect: [g.with_scores(g.on_raters_scale) for g in groups if g.on_raters_scale is not None]
        for aspect, groups in entry.aspects.items()
    }
    calibrated = {aspect: groups for aspect, groups in calibrated.items() if groups}
    return RecordedScores(entry.by, scores, calibrated, frozenset(entry.seen))


# --- other parts of the evidence ---


def evidence_part(manifest: Mapping[str, Any], name: str, expected: type[T]) -> T | None:
    """An entry of an export's evidence, validated as `expected`; None in exports of earlier versions without it.

    Raises:
        InputError: It is not of this type.
    """
    value = manifest["evidence"].get(name)
    if value is None:
        return None
    try:
        return TypeAdapter(expected).validate_python(value, strict=True)
    except ValidationError as error:
        record = Record({}, MANIFEST, path=f"evidence.{name}", remedy=REMEDY)
        raise input_error(error, record) from None


def exported_judge_name(manifest: Mapping[str, Any]) -> str:
    """Name of the exported judge in the evidence; empty where it has none."""
    return (evidence_part(manifest, "exported", dict[str, str]) or {}).get("judge", "")


class DecisionCut(FileModel):
    """The kind of decision of an aspect whose ratings are decisions, and the lowest score that counts as yes."""

    kind: str = ""
    cut: Number | None = None


def cuts_in(manifest: Mapping[str, Any]) -> dict[str, DecisionCut]:
    """Aspect -> the cut of the exported judge, for aspects whose ratings are decisions."""
    entry = evidence_part(manifest, "decisions", dict[str, dict[str, DecisionCut]]) or {}
    return entry.get(exported_judge_name(manifest), {})


class _Objective(FileModel):
    statistic: Statistic = "spearman"
    level: Level | None = None


def objective_in(manifest: Mapping[str, Any], default_level: Level) -> tuple[Statistic, Level]:
    """The correlation that the export was selected by, and its level, or the default one."""
    entry = evidence_part(manifest, "objective", _Objective) or _Objective()
    return entry.statistic, entry.level or default_level


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


def held_out_agreement(
    manifest: Mapping[str, Any], aspects: Sequence[str], statistic: Statistic, level: Level
) -> RecordedFigure | None:
    """Held-out agreement of the exported judge in an aspect, or on average over all its aspects; else None."""
    tables = evidence_part(manifest, "held_out", dict[str, _RecordedTable]) or {}
    table = tables.get(exported_judge_name(manifest), _RecordedTable())
    if len(aspects) == 1:
        entry = table.aspects.get(aspects[0], {})
    else:
        entry = table.average if set(table.aspects) == set(aspects) else {}
    return entry.get(level, {}).get(statistic)


# --- conformal intervals ---


def intervals_in(manifest: Mapping[str, Any], aspects: Sequence[Aspect], level: float) -> dict[str, ConformalIntervals]:
    """Aspect -> conformal intervals of this level, fitted to the recorded scores.

    Raises:
        InputError: The export has no held-out scores of an aspect on the raters' scale.
    """
    recorded = recorded_scores_in(manifest)
    by_aspect: dict[str, ConformalIntervals] = {}
    for aspect in aspects:
        groups = () if recorded is None else recorded.calibrated.get(aspect.name, ())
        intervals = fit_intervals(groups, aspect.scale, level)
        if intervals is None:
            raise InputError(
                f"the export has no held-out scores of {aspect.name} on the raters' scale",
                field="interval",
                expected="a calibrated judge that was compiled by this version",
                remedy="compile the judge again, or leave the intervals out",
            )
        by_aspect[aspect.name] = intervals
    return by_aspect


@dataclass(frozen=True)
class HeldOutIntervals:
    """Intervals of one aspect, evaluated on held-out texts; those of a text are fitted on the other sources."""

    abstention: AbstentionResult
    agreement: Agreement
    """Agreement of all scores."""
    agreement_kept: Agreement
    """Agreement of the scores whose texts are not left to people."""
    error: Measure | None
    """Mean absolute error of all scores; None without a score."""
    error_kept: Measure | None


def evaluate_intervals(
    manifest: Mapping[str, Any], aspects: Sequence[Aspect], level: float, max_width: float | None = None
) -> dict[str, HeldOutIntervals]:
    """Aspect -> coverage of intervals of this level, and agreement without texts whose interval exceeds `max_width`."""
    recorded = recorded_scores_in(manifest)
    statistic, correlation_level = objective_in(manifest, "summary")
    by_aspect: dict[str, HeldOutIntervals] = {}
    for aspect in aspects:
        groups = () if recorded is None else recorded.calibrated.get(aspect.name, ())
        abstention = evaluate_abstention(groups, aspect.scale, level, math.inf if max_width is None else max_width)
        if abstention is None:
            continue
        agreement, agreement_kept = (
            agreement_table({"x": scores}, levels=(correlation_level,), resamples=200).aspects["x"][correlation_level][
                statistic
            ]
            for scores in (groups, list(abstention.scores.values()))
        )
        errors = (error_and_bias(scores)[0] for scores in (groups, list(abstention.scores.values())))
        by_aspect[aspect.name] = HeldOutIntervals(abstention, agreement, agreement_kept, *errors)
    return by_aspect
