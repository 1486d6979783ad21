"""The held-out scores that an export keeps of its judge, beside the ratings: what later measurements are compared with.

They stand in the manifest under "evidence"/"recorded": hashes of sources and texts with numbers, no text and no id of
the data. With them `debate carry` and `debate recheck` know which sources the judge was measured on, and
`debate score` with `interval` how far its scores are from ratings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from debate_judge.data.agreement.classification import Measure
from debate_judge.data.agreement.raters import error_and_bias
from debate_judge.data.agreement.results import Agreement, GroupScores
from debate_judge.data.agreement.tables import agreement_table
from debate_judge.data.errors import InputError
from debate_judge.data.inference.conformal import Abstained, ConformalIntervals, fit_intervals, left_to_people
from debate_judge.data.schema import Aspect, Corpus, RatedGroup, fingerprint

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


def source_hash(group: RatedGroup) -> str:
    return fingerprint(group.source_key)


def group_hash(group: RatedGroup, aspects: Sequence[Aspect]) -> str:
    """The source's, except for a pair: a source may have several."""
    return fingerprint(group.key_among(aspects))


def candidate_hashes(group: RatedGroup) -> tuple[str, ...]:
    """One for each candidate; equal texts are told apart by their number."""
    found: list[str] = []
    for candidate in group.candidates:
        text = fingerprint(candidate.text)
        found.append(text if text not in found else f"{text}-{sum(one.startswith(text) for one in found)}")
    return tuple(found)


def hashed(corpus: Corpus, scores: Scores) -> dict[str, list[GroupScores]]:
    """The scores with hashes in place of ids; groups that the corpus does not have are left out."""
    known = {group.id: group for group in corpus.groups}
    return {
        aspect: [
            GroupScores(
                group_hash(own, corpus.task.aspects),
                candidate_hashes(own),
                group.ratings,
                group.scores,
                group.raters,
                source_hash(own),
            )
            for group in groups
            if (own := known.get(group.group)) is not None
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
    own, raters = hashed(corpus, scores), hashed(corpus, mapped)
    aspects: dict[str, list[dict[str, Any]]] = {}
    for aspect, groups in own.items():
        on_raters = {group.group: list(group.scores) for group in raters.get(aspect, ())}
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


def recorded_in(manifest: Mapping[str, Any]) -> RecordedScores | None:
    """The scores in an export's manifest; None where it has none, as exports of earlier versions."""
    found = manifest["evidence"].get(RECORDED)
    if found is None:
        return None
    try:
        scores, mapped = (
            {
                aspect: [
                    GroupScores(
                        g.get("pair", g["source"]),
                        tuple(g["texts"]),
                        tuple(g["ratings"]),
                        tuple(g[name]),
                        source=g["source"],
                    )
                    for g in groups
                    if g[name] is not None
                ]
                for aspect, groups in found["aspects"].items()
            }
            for name in ("scores", "on_raters_scale")
        )
        by: Literal["export", "folds"] = "folds" if found["by"] == "folds" else "export"
        return RecordedScores(by, scores, {a: g for a, g in mapped.items() if g}, frozenset(found["seen"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            "the scores that the export keeps cannot be read",
            field=f"evidence.{RECORDED}",
            found=repr(error),
            remedy="restore the export from a copy, or compile the judge again",
        ) from None


# --- conformal intervals from them ---


def fitted_intervals(
    manifest: Mapping[str, Any], aspects: Sequence[Aspect], level: float
) -> dict[str, ConformalIntervals]:
    """Aspect -> its intervals; refused where the export keeps no held-out scores of it on the raters' scale."""
    recorded = recorded_in(manifest)
    found: dict[str, ConformalIntervals] = {}
    for aspect in aspects:
        groups = () if recorded is None else recorded.mapped.get(aspect.name, ())
        one = fit_intervals(groups, aspect.scale, level)
        if one is None:
            raise InputError(
                f"the export keeps no held-out scores of {aspect.name} on the raters' scale",
                field="interval",
                expected="a judge that was compiled by this version and has a map to the raters' scale",
                remedy="compile the judge again, or leave the intervals out",
            )
        found[aspect.name] = one
    return found


@dataclass(frozen=True)
class HeldOutIntervals:
    """The intervals of one aspect on held-out texts, each by intervals that were fitted on the other sources."""

    measured: Abstained
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
    objective: Mapping[str, Any] = manifest["evidence"].get("objective") or {}
    statistic, at = objective.get("statistic", "spearman"), objective.get("level", "summary")
    found: dict[str, HeldOutIntervals] = {}
    for aspect in aspects:
        groups = () if recorded is None else recorded.mapped.get(aspect.name, ())
        measured = left_to_people(groups, aspect.scale, level, math.inf if widest is None else widest)
        if measured is None:
            continue
        every, kept = (
            agreement_table({"x": one}, levels=(at,), resamples=200).aspects["x"][at][statistic]
            for one in (groups, list(measured.kept.values()))
        )
        errors = (error_and_bias(one)[0] for one in (groups, list(measured.kept.values())))
        found[aspect.name] = HeldOutIntervals(measured, every, kept, *errors)
    return found
