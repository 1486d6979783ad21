"""Whether a judge's measured agreement carries over to a new LM: a paired comparison on the same sources.

Non-inferiority: the 95 % interval of the new LM's agreement minus the old one's has its lower end above -margin, so
that an LM that is worse by the margin or more passes in at most 2.5 % of cases (Piaggio et al., Reporting of
noninferiority trials, JAMA 2012). A difference that is not significant would not show this: with few sources nothing is
significant. Correlations ignore the level of scores, so shift, spread and error are measured as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from debate_judge.data.agreement.correlations import Statistic
from debate_judge.data.agreement.intervals import Measure, groups_to_detect
from debate_judge.data.agreement.raters import differences_by_group, error_and_bias, mean_over_groups, ratio_of_spreads
from debate_judge.data.agreement.results import Agreement, Difference, GroupScores, ScoresByAspect
from debate_judge.data.agreement.tables import AgreementTable, agreement_table, compare, level_correlation
from debate_judge.data.calibration import Calibration, fit_calibration
from debate_judge.data.schema import ROUNDING_ERROR, Level, Scale

CarryVerdict = Literal["carry", "recalibrate", "recompile"]

_FOLDS = 5
"""Number of folds for the error of a refitted calibration."""


@dataclass(frozen=True, slots=True)
class ScoreMapping:
    """The scale of an aspect's ratings, and how scores are mapped to it."""

    scale: Scale
    """Of the ratings."""
    on_scale: bool
    """Whether the judge's own scores are on it."""
    calibration: Calibration | None
    """The export's map to the scale."""

    @property
    def comparable(self) -> bool:
        """Whether mapped scores are on the raters' scale."""
        return self.on_scale or self.calibration is not None

    def map_groups(self, groups: Sequence[GroupScores]) -> list[GroupScores]:
        return list(groups) if self.calibration is None else self.calibration.map_groups(groups)


@dataclass(frozen=True, slots=True)
class Margins:
    """The largest acceptable losses of the new LM."""

    agreement: float = 0.03
    """In correlation with the raters."""
    shift: float = 0.05
    """In mean score and mean error, as a share of the scale; a larger one requires a new calibration."""


@dataclass(frozen=True, slots=True)
class AspectComparison:
    """The comparison in one aspect; values in points of the raters' scale are None where scores are not on it."""

    old: Agreement
    new: Agreement
    difference: Difference
    """New minus old; the intervals of all aspects hold jointly in 95 % of cases (Bonferroni)."""
    lm_agreement: float | None
    """Correlation of new with old scores, in the same statistic and at the same level as with the raters."""
    refitted: Calibration | None
    """The new calibration, fitted on all sources."""
    error_refitted: Measure | None
    """Mean absolute difference of rating and new score by a new calibration, cross-fitted over sources."""
    shift: Measure | None = None
    """Mean of new minus old score, both by the old calibration."""
    spread: float | None = None
    """Standard deviation of new scores divided by that of old ones."""
    error: Measure | None = None
    """Mean absolute difference of old score and rating."""
    error_new: Measure | None = None
    """The same of the new score, by the old calibration."""
    error_change: Measure | None = None
    """`error_new` minus `error`."""

    def to_json(self) -> dict[str, object]:
        measures = ("shift", "error", "error_new", "error_change", "error_refitted")
        record: dict[str, object] = {"old": self.old.to_json(), "new": self.new.to_json()}
        record |= {"difference": asdict(self.difference), "spread": self.spread, "between": self.lm_agreement}
        return record | {n: None if (m := getattr(self, n)) is None else m.to_json() for n in measures}


@dataclass(frozen=True, slots=True)
class LMComparison:
    """The comparison of the old and the new LM over all aspects."""

    verdict: CarryVerdict
    reason: str
    difference: Difference
    """Agreement of the new minus that of the old LM, averaged over aspects."""
    aspects: Mapping[str, AspectComparison]
    old: AgreementTable
    new: AgreementTable
    margins: Margins
    sufficient_sources: int | None
    """Number of sources with which an equally good LM would pass in 80 % of cases; None if unknown."""

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "why": self.reason,
            "margins": asdict(self.margins),
            "difference": asdict(self.difference),
            "sources_needed": self.sufficient_sources,
            "aspects": {name: aspect.to_json() for name, aspect in self.aspects.items()},
        }


def compare_lms(
    old: ScoresByAspect,
    new: ScoresByAspect,
    mappings: Mapping[str, ScoreMapping],
    margins: Margins,
    *,
    statistic: Statistic = "spearman",
    level: Level = "summary",
    resamples: int = 10_000,
    seed: int = 0,
) -> LMComparison:
    """Compare two LMs behind one judge.

    Args:
        old, new: Each LM's scores of the same candidates, with the ratings.
        mappings: Aspect -> the scale of its ratings, and how scores are mapped to it.
        margins: The largest acceptable losses.
        statistic, level: The correlation with the raters, and where it is computed.
        resamples, seed: As for `compare`.
    """
    tables = [agreement_table(s, levels=(level,), resamples=resamples, seed=seed) for s in (old, new)]

    def difference(names: Sequence[str], family: int) -> Difference:
        chosen = [{name: scores[name] for name in names} for scores in (new, old)]
        return compare(*chosen, statistic=statistic, level=level, resamples=resamples, seed=seed, family_size=family)

    aspects = {
        name: _compare_aspect(
            old[name],
            new[name],
            mappings[name],
            (tables[0].aspects[name][level][statistic], tables[1].aspects[name][level][statistic]),
            difference([name], len(old)),
            statistic=statistic,
            level=level,
        )
        for name in old
    }
    overall = difference(list(old), 1)
    verdict, reason = _verdict(overall, aspects, mappings, margins)
    spread = overall.deviation
    sufficient = groups_to_detect(margins.agreement, spread) if spread is not None and spread > ROUNDING_ERROR else None
    return LMComparison(verdict, reason, overall, aspects, tables[0], tables[1], margins, sufficient)


def cross_fitted(groups: Sequence[GroupScores], mapping: ScoreMapping) -> list[GroupScores]:
    """The groups with scores on the raters' scale, each mapped by a calibration of the other folds."""
    sources = dict.fromkeys(group.source_id for group in groups)
    folds = min(_FOLDS, len(sources))
    fold_of = {source: i % folds for i, source in enumerate(sources)}
    maps = [
        fit_calibration([g for g in groups if fold_of[g.source_id] != fold], mapping.scale, on_scale=mapping.on_scale)
        for fold in range(folds)
    ]
    return [
        mapped
        for group in groups
        if (fitted := maps[fold_of[group.source_id]]) is not None
        for mapped in fitted.map_groups([group])
    ]


def _compare_aspect(
    old: Sequence[GroupScores],
    new: Sequence[GroupScores],
    mapping: ScoreMapping,
    agreement: tuple[Agreement, Agreement],
    difference: Difference,
    *,
    statistic: Statistic,
    level: Level,
) -> AspectComparison:
    lm_agreement = level_correlation(_as_ratings(old, new), statistic, level)
    refitted = fit_calibration(new, mapping.scale, on_scale=mapping.on_scale)
    comparison = AspectComparison(
        *agreement,
        difference,
        lm_agreement=lm_agreement,
        error_refitted=None if refitted is None else error_and_bias(cross_fitted(new, mapping))[0],
        refitted=refitted,
    )
    if not mapping.comparable:
        return comparison
    mapped_old, mapped_new = mapping.map_groups(old), mapping.map_groups(new)
    both = _as_ratings(mapped_old, mapped_new)
    changes = differences_by_group(both)
    error_changes = differences_by_group(_as_ratings(_absolute_errors(mapped_old), _absolute_errors(mapped_new)))
    return replace(
        comparison,
        shift=mean_over_groups(changes) if changes else None,
        spread=ratio_of_spreads(both),
        error=error_and_bias(mapped_old)[0],
        error_new=error_and_bias(mapped_new)[0],
        error_change=mean_over_groups(error_changes) if error_changes else None,
    )


def _as_ratings(old: Sequence[GroupScores], new: Sequence[GroupScores]) -> list[GroupScores]:
    """The new scores, with the old ones as ratings."""
    return [replace(n, ratings=o.scores, raters=()) for o, n in zip(old, new, strict=True)]


def _absolute_errors(groups: Sequence[GroupScores]) -> list[GroupScores]:
    """The groups with absolute differences of score and rating as scores."""
    return [
        replace(
            g,
            scores=tuple(
                None if r is None or s is None else abs(s - r) for r, s in zip(g.ratings, g.scores, strict=True)
            ),
        )
        for g in groups
    ]


def _verdict(
    overall: Difference, aspects: Mapping[str, AspectComparison], mappings: Mapping[str, ScoreMapping], margins: Margins
) -> tuple[CarryVerdict, str]:
    limit = -margins.agreement
    if overall.value is None or overall.low is None or overall.high is None:
        return "recompile", "the ratings of these sources leave the difference of the two LMs without an interval"
    figures = f"{overall.value:+.3f} [{overall.low:+.3f}, {overall.high:+.3f}]"
    if overall.high < limit:
        return "recompile", f"the new LM agrees less with the raters, by more than the margin: {figures}"
    if overall.low <= limit:
        return "recompile", f"it is not shown that the new LM loses less than {margins.agreement:g}: {figures}"
    worse = [n for n, a in aspects.items() if a.difference.high is not None and a.difference.high < limit]
    if worse:
        return "recompile", f"the new LM agrees less with the raters, by more than the margin, in {', '.join(worse)}"
    shifted = [name for name, aspect in aspects.items() if _has_shifted(aspect, mappings[name].scale, margins.shift)]
    if shifted:
        return "recalibrate", (
            f"the ranks hold ({figures}), but scores of {', '.join(shifted)} may have shifted by more than "
            f"{100 * margins.shift:g} % of the scale"
        )
    return "carry", f"the new LM loses less than {margins.agreement:g} ({figures}), and scores have not shifted"


def _has_shifted(aspect: AspectComparison, scale: Scale, max_share: float) -> bool:
    limit = max_share * (scale.high - scale.low)
    growth = None if aspect.error_change is None else aspect.error_change.high
    ends = [] if aspect.shift is None else [aspect.shift.low, aspect.shift.high]
    return any(end is None or abs(end) > limit for end in ends) or (growth is not None and growth > limit)
