"""Does the measured agreement of an exported judge still hold on ratings made since?

    python runs/after/recheck.py runs/store/exports/NAME --data new.csv
    python runs/after/recheck.py EXPORT --data new.csv --margin 0.05 --json
    python runs/after/recheck.py EXPORT --data new.csv --again old.csv

The judge scores the new texts, and its agreement with their raters is compared with that of the compile; sources of the
compile are left out. Causes of drift are told apart: the texts changed if the judge's scores moved, the raters if
ratings moved relative to scores. With --again the judge scores the compile's held-out texts once more, without the
stored replies: if it gives other scores, the LM behind the name changed. The exit code is 1 if the judge is shown to be
worse by more than the margin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from debate_judge.data.errors import InputError
from debate_judge.runs.after.common import (
    AfterFlags,
    PlannedScoring,
    Scores,
    corpus_for,
    export_objective,
    find_export,
    random_sources,
    recorded_scores_for,
    run_command,
    score_corpus,
    settings_from,
    shared_aspects,
    sources_to_measure,
)
from debate_judge.runs.flags.common import EXPORT, SEED
from debate_judge.runs.flags.declaration import command_settings, setting
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.terminal import OutputBlock
from debate_judge.runs.reports.text import interval

if TYPE_CHECKING:
    from debate_judge.data.agreement.results import Agreement, GroupScores
    from debate_judge.data.inference.drift import Drift, MarginVerdict, SampleEstimate, ScoreChange, TwoSampleDifference
    from debate_judge.data.schema import Aspect, Corpus
    from debate_judge.runs.export.manifest import Export
    from debate_judge.runs.export.recorded import RecordedScores

AVERAGE = "average"


@command_settings
class RecheckFlags(AfterFlags):
    """Settings of `recheck`."""

    export: str = setting(..., EXPORT, name="EXPORT", metavar="EXPORT")
    data: str = setting(..., "texts with ratings made since, in any format that a compile takes", metavar="FILE")
    again: str | None = setting(
        None, "rated data of the compile: score its held-out texts again, to see whether the judge has changed"
    )
    margin: float = setting(0.05, "largest loss of agreement (correlation) that is accepted", gt=0, le=2)
    seed: int = SEED


@dataclass(frozen=True)
class RecheckResult:
    """The agreement on new ratings, compared with that of the compile."""

    verdict: MarginVerdict
    """`holds`: the loss is shown to be smaller than the margin; `worse`: shown to be larger; else `unclear`."""
    margin: float
    sources: int
    """Number of new sources."""
    known_sources: int
    """Number of sources that were left out, because the compile had them."""
    new: Mapping[str, Agreement]
    """Aspect, or `AVERAGE` -> agreement."""
    old: Mapping[str, Agreement]
    """Likewise at the compile; empty where the export has no scores."""
    difference: Mapping[str, TwoSampleDifference | None]
    """Aspect, or `AVERAGE` -> new minus old."""
    drift: Mapping[str, Drift]
    score_changes: Mapping[str, ScoreChange]
    """Aspect -> change of the judge's scores of old texts; empty without `--again`."""
    causes: tuple[str, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "margin": self.margin,
            "sources": self.sources,
            "known_sources": self.known_sources,
            "new": {name: figure.to_json() for name, figure in self.new.items()},
            "old": {name: figure.to_json() for name, figure in self.old.items()},
            "difference": {
                name: None if figure is None else asdict(figure) for name, figure in self.difference.items()
            },
            "drift": {name: figure.to_json() for name, figure in self.drift.items()},
            "judge_on_old_texts": {name: asdict(figure) for name, figure in self.score_changes.items()},
            "causes": list(self.causes),
            "notes": list(self.notes),
        }


def recheck(export: str | Path, data: str | Path, **settings: Any) -> RecheckResult:
    """Check whether a judge's measured agreement holds on ratings made since the compile.

    Args:
        export: Its folder, or its address in MLflow.
        data: Texts with the new ratings.
        settings: Settings of `debate recheck` by their names, e.g. `margin=0.05`.

    Raises:
        InputError: Settings or data cannot be used, no source is new, or the export has no measured agreement.
        dspy.LMError: The LM cannot be used.
    """
    return _recheck(settings_from(RecheckFlags, settings, export=export, data=data))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the result; returns the exit code (0 not shown to be worse, 1 worse, 2 bad input, 3 the LM failed)."""
    return run_command("recheck", __doc__, RecheckFlags, argv, plan=_scorings, execute=_recheck, render=_render)


@dataclass(frozen=True)
class _RecheckPlan:
    new: PlannedScoring
    known_sources: int
    notes: list[str]
    again: PlannedScoring | None
    recorded: RecordedScores | None


def _plan(flags: RecheckFlags) -> _RecheckPlan:
    from debate_judge.runs.export.recorded import recorded_scores_in

    export = find_export(flags, flags.export)
    corpus, recorded = corpus_for(export, flags.data, flags), recorded_scores_in(export.manifest)
    aspects = shared_aspects(export, corpus, flags.aspects)
    new_corpus, known_sources, notes = _new_sources(corpus, recorded)
    new, again = PlannedScoring.of("new texts", export, new_corpus, aspects, flags), None
    if flags.again is not None:
        old, _, _ = sources_to_measure(corpus_for(export, flags.again, flags), recorded)
        # Replies in the store are those of the compile.
        again = replace(new, title="old texts again", corpus=old, use_store=False, preflight=False)
    return _RecheckPlan(new, known_sources, notes, again, recorded)


def _scorings(flags: RecheckFlags) -> list[PlannedScoring]:
    plan = _plan(flags)
    return [plan.new] if plan.again is None else [plan.new, plan.again]


def _recheck(flags: RecheckFlags) -> RecheckResult:
    from debate_judge.data.inference.drift import describe_changes, margin_verdict, measure_drift

    plan = _plan(flags)
    export, corpus, recorded = plan.new.export, plan.new.corpus, plan.recorded
    scores = score_corpus(plan.new).scores
    old = {} if recorded is None else {name: recorded.scores[name] for name in scores if name in recorded.scores}
    difference = _differences(export, corpus, scores, old, flags.seed)
    drift = {
        a.name: measure_drift(*_on_raters_scale(export, a, recorded, scores[a.name]))
        for a in plan.new.aspects
        if recorded is not None and a.name in old
    }
    score_changes = {} if plan.again is None else _score_changes(plan.again)
    return RecheckResult(
        margin_verdict(difference[AVERAGE], flags.margin),
        flags.margin,
        len(corpus.groups),
        plan.known_sources,
        _agreement(export, corpus, scores, flags.seed),
        _agreement(export, corpus, old if len(old) == len(scores) else {}, flags.seed),
        difference,
        drift,
        score_changes,
        tuple(describe_changes(drift, score_changes)),
        tuple(plan.notes),
    )


def _new_sources(corpus: Corpus, recorded: RecordedScores | None) -> tuple[Corpus, int, list[str]]:
    """The sources that the compile did not have, the number of those that it had, and notes."""
    corpus, notes = random_sources(corpus)
    if recorded is None:
        note = "the export does not say which sources its compile used; only new ones are evidence"
        return corpus, 0, [*notes, note]
    compile_sources = recorded.compile_sources
    new = tuple(group for group in corpus.groups if group.source_id not in compile_sources)
    if not new:
        raise InputError(
            "no source is new: the compile used all sources",
            file=corpus.origin.location,
            field="--data",
            expected="texts of sources that were rated since",
            found=f"{len(corpus.groups)} known sources",
        )
    if recorded.scored_by == "folds":
        notes.append("the old figures are from folds: each source was scored by a judge that was compiled without it")
    return replace(corpus, groups=new), len(corpus.groups) - len(new), notes


def _agreement(export: Export, corpus: Corpus, scores: Scores | Mapping[str, Any], seed: int) -> dict[str, Agreement]:
    """Aspect, or `AVERAGE` over these aspects -> agreement."""
    from debate_judge.data.agreement.tables import agreement_table

    if not scores:
        return {}
    statistic, level = export_objective(export, corpus)
    table = agreement_table(scores, levels=(level,), seed=seed)
    by_aspect = {name: aspect_table[level][statistic] for name, aspect_table in table.aspects.items()}
    return {**by_aspect, AVERAGE: table.average[level][statistic]}


def _differences(
    export: Export, corpus: Corpus, new: Scores, old: Mapping[str, Any], seed: int
) -> dict[str, TwoSampleDifference | None]:
    """Aspect, or `AVERAGE` -> agreement on the new sources minus that of the compile.

    Raises:
        InputError: The average cannot be compared.
    """
    from debate_judge.data.inference.drift import agreement_estimate, compare_samples, estimate_from_interval
    from debate_judge.runs.export.recorded import held_out_agreement

    statistic, level = export_objective(export, corpus)

    def estimate(scores: Mapping[str, Any], names: Sequence[str]) -> SampleEstimate | None:
        if any(name not in scores for name in names):
            return None
        return agreement_estimate({name: scores[name] for name in names}, statistic, level, seed=seed)

    differences = {}
    for name, names in [*((name, [name]) for name in new), (AVERAGE, list(new))]:
        old_estimate = estimate(old, names)
        # An export without scores has at least the interval, from which the standard error is computed.
        if (
            old_estimate is None
            and (recorded := held_out_agreement(export.manifest, names, statistic, level)) is not None
        ):
            old_estimate = estimate_from_interval(recorded.value, recorded.low, recorded.high, recorded.groups)
        differences[name] = compare_samples(estimate(new, names), old_estimate)
    if differences[AVERAGE] is None:
        raise InputError(
            "the export has no measured agreement to compare with, or the new ratings are too few to measure it",
            file=export.folder,
            field="evidence.held_out",
            expected=f"agreement in {', '.join(new)} with an interval, then and now",
            remedy="rate more sources, or name the aspects that the export was measured in with --aspects",
        )
    return differences


def _on_raters_scale(
    export: Export, aspect: Aspect, recorded: RecordedScores, new: Sequence[GroupScores]
) -> tuple[Sequence[GroupScores], Sequence[GroupScores], bool]:
    """Old and new scores of an aspect, calibrated where possible, and whether they are on the raters' scale."""
    aspect_judge = export.judge.aspects[aspect.name]
    if aspect_judge.calibration is not None and aspect.name in recorded.calibrated:
        return recorded.calibrated[aspect.name], aspect_judge.calibration.map_groups(new), True
    return recorded.scores[aspect.name], new, aspect_judge.judge.on_scale


def _score_changes(planned: PlannedScoring) -> dict[str, ScoreChange]:
    """Aspect -> change of the judge's scores of the compile's held-out texts, scored without stored replies.

    Raises:
        InputError: The export has no scores of these texts.
    """
    from debate_judge.data.agreement.raters import differences_by_group
    from debate_judge.data.inference.drift import score_change

    old_scores = recorded_scores_for(planned.export, planned.corpus, planned.aspects)
    new_scores = score_corpus(planned).scores
    # With the old scores in place of ratings, differences are new minus old.
    paired = {
        name: [replace(new, ratings=old.scores, raters=()) for old, new in zip(old_scores[name], groups, strict=True)]
        for name, groups in new_scores.items()
    }
    return {name: score_change(differences_by_group(groups)) for name, groups in paired.items()}


def _render(result: RecheckResult, flags: RecheckFlags) -> tuple[dict[str, Any], list[OutputBlock], int]:
    change = result.difference[AVERAGE]
    figures = (
        ""
        if change is None
        else f": {change.value:+.3f} [{change.low:+.3f}, {change.high:+.3f}], p = {change.p_value:.3f}"
    )
    verdict = {
        "holds": f"the measured agreement holds: it fell by less than {result.margin:g}",
        "worse": f"the judge is worse: agreement fell by more than {result.margin:g}",
        "unclear": f"these ratings cannot tell whether agreement fell by {result.margin:g}",
    }[result.verdict]
    known = result.known_sources
    left_out = f"; {known} others were used by the compile and are left out" if known else ""
    lines: list[OutputBlock] = [verdict + figures, f"{result.sources} new sources{left_out}"]
    lines += [f"note: {note}" for note in result.notes]
    lines += list(result.causes) or ["no change of the texts, the raters or the judge is shown"]
    header = ["aspect", "then", "now", "difference", "p", "scores", "ratings", "rating - score"]
    rows = []
    for name, agreement in result.new.items():
        old_agreement, difference, drift = result.old.get(name), result.difference[name], result.drift.get(name)
        rows.append(
            [
                name,
                interval(old_agreement),
                interval(agreement),
                interval(difference, "+"),
                "–" if difference is None else f"{difference.p_value:.3f}",
                *(interval(cell, "+") for cell in _drift_cells(drift)),
            ]
        )
    legend = (
        "then, now: agreement with the raters; difference: of two independent samples of sources (Welch); scores, "
        "ratings, rating - score: change of their means, now minus then"
    )
    tables = [*lines, "", DataTable(header, rows, total=True), "", legend]
    return result.to_json(), tables, int(result.verdict == "worse")


def _drift_cells(drift: Drift | None) -> tuple[TwoSampleDifference | None, ...]:
    return (None, None, None) if drift is None else (drift.scores, drift.ratings, drift.apart)


if __name__ == "__main__":
    raise SystemExit(main())
