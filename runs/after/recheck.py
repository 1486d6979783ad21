"""Does the measured agreement of an exported judge still hold on ratings made since?

    python runs/after/recheck.py runs/store/exports/NAME --data new.csv
    python runs/after/recheck.py EXPORT --data new.csv --margin 0.05 --json
    python runs/after/recheck.py EXPORT --data new.csv --again old.csv

The judge scores the new texts, and its agreement with their raters stands beside that of the compile; sources that the
compile knew are left out. Drift is told apart: the texts changed where the judge's scores moved, the raters where
ratings moved relative to scores. With --again the judge scores the compile's held-out texts once more, without
the stored replies: if it gives other scores, the LM behind the name changed. The exit code is 1 where the judge is
shown to be worse by more than the margin.
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
    find_export,
    objective,
    random_sources,
    recorded_scores,
    run_command,
    score_corpus,
    settings_from,
    shared_aspects,
    unseen_part,
)
from debate_judge.runs.flags.common import EXPORT, SEED
from debate_judge.runs.flags.declaration import command_settings, setting
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.terminal import Printed
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
    """Settings of one look at new ratings."""

    export: str = setting(..., EXPORT, name="EXPORT", metavar="EXPORT")
    data: str = setting(..., "texts with ratings made since, in any format that a compile takes", metavar="FILE")
    again: str | None = setting(
        None, "rated data of the compile: score its held-out texts again, to see whether the judge has changed"
    )
    margin: float = setting(0.05, "largest loss of agreement (correlation) that is accepted", gt=0, le=2)
    seed: int = SEED


@dataclass(frozen=True)
class Rechecked:
    """The agreement on new ratings, compared with that of the compile."""

    verdict: MarginVerdict
    """`holds`: the loss is shown to be smaller than the margin; `worse`: shown to be larger; else `unclear`."""
    margin: float
    sources: int
    """New sources that were measured on."""
    known: int
    """Sources of the data that were left out, because the compile knew them."""
    new: Mapping[str, Agreement]
    """Aspect, or `AVERAGE` -> agreement."""
    old: Mapping[str, Agreement]
    """Likewise; empty where the export keeps no scores."""
    difference: Mapping[str, TwoSampleDifference | None]
    """Aspect, or `AVERAGE` -> new minus old."""
    drift: Mapping[str, Drift]
    changed: Mapping[str, ScoreChange]
    """Aspect -> how the judge scores old texts now; empty where it was not asked again."""
    causes: tuple[str, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        about = {"verdict": self.verdict, "margin": self.margin, "sources": self.sources, "known_sources": self.known}
        figures = {
            "new": {name: figure.to_json() for name, figure in self.new.items()},
            "old": {name: figure.to_json() for name, figure in self.old.items()},
            "difference": {
                name: None if figure is None else asdict(figure) for name, figure in self.difference.items()
            },
            "drift": {name: figure.to_json() for name, figure in self.drift.items()},
            "judge_on_old_texts": {name: asdict(figure) for name, figure in self.changed.items()},
        }
        return {**about, **figures, "causes": list(self.causes), "notes": list(self.notes)}


def recheck(export: str | Path, data: str | Path, **settings: Any) -> Rechecked:
    """Check whether a judge's measured agreement holds on ratings made since the compile.

    Args:
        export: Its folder, or its address in MLflow.
        data: Texts with the new ratings.
        settings: Settings of `debate recheck` by their names, e.g. `margin=0.05`.

    Raises:
        InputError: Settings or data cannot be used, no source is new, or there is nothing to compare with.
        dspy.LMError: The LM cannot be used.
    """
    return _rechecked(settings_from(RecheckFlags, settings, export=export, data=data))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the result; returns the exit code (0 not shown to be worse, 1 worse, 2 bad input, 3 the LM failed)."""
    return run_command("recheck", __doc__, RecheckFlags, argv, planned=_asked, execute=_rechecked, render=_shown)


@dataclass(frozen=True)
class _RecheckPlan:
    new: PlannedScoring
    known: int
    notes: list[str]
    again: PlannedScoring | None
    recorded: RecordedScores | None


def _plan(flags: RecheckFlags) -> _RecheckPlan:
    from debate_judge.runs.export.recorded import recorded_in

    export = find_export(flags, flags.export)
    corpus, recorded = corpus_for(export, flags.data, flags), recorded_in(export.manifest)
    aspects = shared_aspects(export, corpus, flags.aspects)
    part, known, notes = _new_part(corpus, recorded)
    new, again = PlannedScoring.of("new texts", export, part, aspects, flags), None
    if flags.again is not None:
        old, _, _ = unseen_part(corpus_for(export, flags.again, flags), recorded)
        # Replies in the store would be those of before.
        again = replace(new, what="old texts, anew", corpus=old, stored=False, preflight=False)
    return _RecheckPlan(new, known, notes, again, recorded)


def _asked(flags: RecheckFlags) -> list[PlannedScoring]:
    plan = _plan(flags)
    return [plan.new] if plan.again is None else [plan.new, plan.again]


def _rechecked(flags: RecheckFlags) -> Rechecked:
    from debate_judge.data.inference.drift import margin_verdict, measure_drift, shown_causes

    plan = _plan(flags)
    export, part, recorded = plan.new.export, plan.new.corpus, plan.recorded
    scores = score_corpus(plan.new).scores
    old = {} if recorded is None else {name: recorded.scores[name] for name in scores if name in recorded.scores}
    difference = _differences(export, part, scores, old, flags.seed)
    drift = {
        a.name: measure_drift(*_on_raters_scale(export, a, recorded, scores[a.name]))
        for a in plan.new.aspects
        if recorded is not None and a.name in old
    }
    changed = {} if plan.again is None else _asked_again(plan.again)
    return Rechecked(
        margin_verdict(difference[AVERAGE], flags.margin),
        flags.margin,
        len(part.groups),
        plan.known,
        _agreement(export, part, scores, flags.seed),
        _agreement(export, part, old if len(old) == len(scores) else {}, flags.seed),
        difference,
        drift,
        changed,
        tuple(shown_causes(drift, changed)),
        tuple(plan.notes),
    )


def _new_part(corpus: Corpus, recorded: RecordedScores | None) -> tuple[Corpus, int, list[str]]:
    """The sources that the compile did not know, how many it knew, and what to say about them."""
    corpus, notes = random_sources(corpus)
    if recorded is None:
        note = "the export does not say which sources its compile knew; only others are evidence"
        return corpus, 0, [*notes, note]
    known = recorded.known
    new = tuple(group for group in corpus.groups if group.source_id not in known)
    if not new:
        raise InputError(
            "no source is new: the compile used all of them",
            file=corpus.origin.location,
            field="--data",
            expected="texts of sources that were rated since",
            found=f"{len(corpus.groups)} known sources",
        )
    if recorded.by == "folds":
        notes.append("the old figures are those of folds: each source by a judge that was compiled without it")
    return replace(corpus, groups=new), len(corpus.groups) - len(new), notes


def _agreement(export: Export, part: Corpus, scores: Scores | Mapping[str, Any], seed: int) -> dict[str, Agreement]:
    """Aspect, or `AVERAGE` -> agreement; the average only of all the aspects that are rechecked."""
    from debate_judge.data.agreement.tables import agreement_table

    if not scores:
        return {}
    statistic, level = objective(export, part)
    table = agreement_table(scores, levels=(level,), seed=seed)
    by_aspect = {name: aspect_table[level][statistic] for name, aspect_table in table.aspects.items()}
    return {**by_aspect, AVERAGE: table.average[level][statistic]}


def _differences(
    export: Export, part: Corpus, new: Scores, old: Mapping[str, Any], seed: int
) -> dict[str, TwoSampleDifference | None]:
    """Aspect, or `AVERAGE` -> agreement now minus then.

    Raises:
        InputError: There is nothing to compare with.
    """
    from debate_judge.data.inference.drift import agreement_estimate, compare_samples, estimate_from_interval
    from debate_judge.runs.export.recorded import held_out_figure

    statistic, level = objective(export, part)

    def figure(scores: Mapping[str, Any], names: Sequence[str]) -> SampleEstimate | None:
        if any(name not in scores for name in names):
            return None
        return agreement_estimate({name: scores[name] for name in names}, statistic, level, seed=seed)

    differences = {}
    for name, names in [*((name, [name]) for name in new), (AVERAGE, list(new))]:
        then = figure(old, names)
        # Of an export that keeps no scores: the standard error is what its interval tells.
        if then is None and (told := held_out_figure(export.manifest, names, statistic, level)) is not None:
            then = estimate_from_interval(told.value, told.low, told.high, told.groups)
        differences[name] = compare_samples(figure(new, names), then)
    if differences[AVERAGE] is None:
        raise InputError(
            "there is no measurement of the judge to compare with, or too little here to measure",
            file=export.folder,
            field="evidence.held_out",
            expected=f"agreement in {', '.join(new)} with an interval, then and now",
            remedy="rate more sources, or choose aspects that the export was measured in with --aspects",
        )
    return differences


def _on_raters_scale(
    export: Export, aspect: Aspect, recorded: RecordedScores, new: Sequence[GroupScores]
) -> tuple[Sequence[GroupScores], Sequence[GroupScores], bool]:
    """Old and new scores of an aspect on one scale, and whether that is the raters'."""
    aspect_judge = export.judge.aspects[aspect.name]
    if aspect_judge.calibration is not None and aspect.name in recorded.mapped:
        return recorded.mapped[aspect.name], aspect_judge.calibration.map_groups(new), True
    return recorded.scores[aspect.name], new, aspect_judge.judge.on_scale


def _asked_again(planned: PlannedScoring) -> dict[str, ScoreChange]:
    """Aspect -> how the judge scores the compile's held-out texts now, without stored replies.

    Raises:
        InputError: The export does not keep their scores, or the data do not have them.
    """
    from debate_judge.data.agreement.raters import differences_by_group
    from debate_judge.data.inference.drift import score_change

    before = recorded_scores(planned.export, planned.corpus, planned.aspects)
    now = score_corpus(planned).scores
    both = {
        name: [replace(n, ratings=o.scores, raters=()) for o, n in zip(before[name], groups, strict=True)]
        for name, groups in now.items()
    }
    return {name: score_change(differences_by_group(groups)) for name, groups in both.items()}


def _shown(result: Rechecked, flags: RecheckFlags) -> tuple[dict[str, Any], list[Printed], int]:
    """What holds, and the table of agreement and drift."""
    whole = result.difference[AVERAGE]
    shown = (
        "" if whole is None else f": {whole.value:+.3f} [{whole.low:+.3f}, {whole.high:+.3f}], p = {whole.p_value:.3f}"
    )
    text = {
        "holds": f"the evidence holds: agreement fell by less than {result.margin:g}",
        "worse": f"the judge is worse: agreement fell by more than {result.margin:g}",
        "unclear": f"these ratings cannot tell whether agreement fell by {result.margin:g}",
    }[result.verdict]
    known = f"; {result.known} others were used by the compile and are left out" if result.known else ""
    lines: list[Printed] = [text + shown, f"{result.sources} new sources{known}"]
    lines += [f"note: {note}" for note in result.notes]
    lines += list(result.causes) or ["no change of the texts, the raters or the judge is shown"]
    header = ["aspect", "then", "now", "difference", "p", "scores", "ratings", "rating - score"]
    rows = []
    for name, now in result.new.items():
        then, difference, drift = result.old.get(name), result.difference[name], result.drift.get(name)
        rows.append(
            [
                name,
                interval(then),
                interval(now),
                interval(difference, "+"),
                "–" if difference is None else f"{difference.p_value:.3f}",
                *(interval(cell, "+") for cell in _of(drift)),
            ]
        )
    meaning = (
        "then, now: agreement with the raters; difference: of two independent samples of sources (Welch); scores, "
        "ratings, rating - score: change of their means, now minus then"
    )
    tables = [*lines, "", DataTable(header, rows, total=True), "", meaning]
    return result.to_json(), tables, int(result.verdict == "worse")


def _of(drift: Drift | None) -> tuple[TwoSampleDifference | None, ...]:
    return (None, None, None) if drift is None else (drift.scores, drift.ratings, drift.apart)


if __name__ == "__main__":
    raise SystemExit(main())
