"""Carry an exported judge to a new LM: both score the same held-out sources, and the verdict says what to do.

    python runs/after/carry.py runs/store/exports/NAME --lm openai/NEW --data ratings.csv
    python runs/after/carry.py EXPORT --lm openai/NEW --data ratings.csv --margin 0.05 --json

carry: the new LM is shown to lose less agreement with the raters than the margin, and its scores have not shifted.
recalibrate: likewise, but its scores have shifted; the calibration to the raters' scale is refitted. In both cases a
new export is written, with the evidence of the new LM. recompile: it loses more, or this is not shown; nothing is
written, and the exit code is 1. Where the old LM can no longer be called, its stored replies are used, else the scores
in the export.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from debate_judge.data.errors import InputError
from debate_judge.runs.after.common import (
    AfterFlags,
    PlannedScoring,
    ScoredCorpus,
    Scores,
    corpus_for,
    export_objective,
    find_export,
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
    from debate_judge.data.inference.non_inferiority import LMComparison
    from debate_judge.runs.export.manifest import Export


@command_settings
class CarryFlags(AfterFlags):
    """Settings of `carry`."""

    export: str = setting(..., EXPORT, name="EXPORT", metavar="EXPORT")
    lm: str = setting(..., "the new one: PROVIDER/MODEL, or offline", metavar="LM")
    data: str | None = setting(
        None, "the rated data that it was compiled on, or others", default_text="the export's, where these are built in"
    )
    margin: float = setting(0.03, "largest loss of agreement (correlation) that is accepted", gt=0, le=2)
    shift: float = setting(
        0.05, "mean shift of scores, as a share of the scale, above which the calibration is refitted", gt=0, le=1
    )
    old: Literal["ask", "recorded"] = setting(
        "ask", "the old LM: ask it (stored replies are used again), or take the scores in the export"
    )
    old_api_base: str | None = setting(None, "address of the old LM, if it has another one", metavar="URL")
    name: str | None = setting(
        None, "name of the new export", default_text="the old one's with that of the LM", affects_results=False
    )
    seed: int = SEED


@dataclass(frozen=True)
class CarryResult:
    """The comparison of two LMs, and the export with the new one."""

    comparison: LMComparison
    export: Path | None
    """The new export; None where the verdict is to recompile."""
    old_scores: Literal["asked", "recorded"]
    """Where the old LM's scores come from."""
    sources: int
    held_out: bool
    """Whether the judge was neither tuned nor selected on any of these sources."""
    notes: tuple[str, ...]
    lms: tuple[str, str]
    """PROVIDER/MODEL of the old and the new LM."""

    @property
    def verdict(self) -> str:
        return self.comparison.verdict

    def to_json(self) -> dict[str, Any]:
        return {
            **self.comparison.to_json(),
            "old_lm": self.lms[0],
            "new_lm": self.lms[1],
            "old_scores": self.old_scores,
            "sources": self.sources,
            "held_out": self.held_out,
            "notes": list(self.notes),
            "export": None if self.export is None else str(self.export),
        }


def carry(export: str | Path, lm: str, **settings: Any) -> CarryResult:
    """Compare an export's LM with a new one, and write a new export where the judge can be carried.

    Args:
        export: Its folder, or its address in MLflow.
        lm: The new LM: PROVIDER/MODEL, or offline.
        settings: Settings of `debate carry` by their names, e.g. `data="ratings.csv"`, `margin=0.05`.

    Raises:
        InputError: Settings or data cannot be used, there is nothing to compare on, or there are neither
            replies nor scores of the old LM.
        dspy.LMError: The new LM cannot be used.
    """
    return _carry(settings_from(CarryFlags, settings, export=export, lm=lm))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the verdict; returns the exit code (0 carry or recalibrate, 1 recompile, 2 bad input, 3 the LM failed)."""
    return run_command("carry", __doc__, CarryFlags, argv, plan=_scorings, execute=_carry, render=_render)


@dataclass(frozen=True)
class _CarryPlan:
    new: PlannedScoring
    old: PlannedScoring
    held_out: bool
    notes: list[str]


def _plan(flags: CarryFlags) -> _CarryPlan:
    from debate_judge.runs.export.recorded import recorded_scores_in

    export = find_export(flags, flags.export)
    corpus = corpus_for(export, flags.data or _builtin_data(export), flags)
    measured, held_out, notes = sources_to_measure(corpus, recorded_scores_in(export.manifest))
    new = PlannedScoring.of(
        f"new LM, {flags.lm}", export, measured, shared_aspects(export, corpus, flags.aspects), flags
    )
    # No preflight for the old LM: its calls would not be in the store.
    old = replace(new, title="old LM, as compiled", lm=None, api_base=flags.old_api_base, preflight=False)
    return _CarryPlan(new, old, held_out, notes)


def _scorings(flags: CarryFlags) -> list[PlannedScoring]:
    plan = _plan(flags)
    return [plan.new, plan.old] if flags.old == "ask" else [plan.new]


def _carry(flags: CarryFlags) -> CarryResult:
    from debate_judge.data.inference.non_inferiority import Margins, ScoreMapping, compare_lms

    plan = _plan(flags)
    new, corpus = plan.new, plan.new.corpus
    scored = score_corpus(new)
    old_scores, old_scores_from, old_notes = _old_scores(plan.old, flags.old)
    judges = new.export.judge.aspects
    mappings = {
        a.name: ScoreMapping(a.scale, judges[a.name].judge.on_scale, judges[a.name].calibration) for a in new.aspects
    }
    margins, (statistic, level) = Margins(flags.margin, flags.shift), export_objective(new.export, corpus)
    comparison = compare_lms(
        old_scores, scored.scores, mappings, margins, statistic=statistic, level=level, seed=flags.seed
    )
    lms = str(new.export.manifest["lm"]["spec"]), flags.lm
    result = CarryResult(
        comparison, None, old_scores_from, len(corpus.groups), plan.held_out, (*plan.notes, *old_notes), lms
    )
    return (
        result
        if comparison.verdict == "recompile"
        else replace(result, export=_write_export(new, scored, result, flags.name))
    )


def _builtin_data(export: Export) -> str:
    """The name of the built-in data that an export was compiled on.

    Raises:
        InputError: It was a file of the user's.
    """
    from debate_judge.data import LOADERS
    from debate_judge.runs.export.recorded import evidence_part

    name = str((evidence_part(export.manifest, "data", dict[str, Any]) or {}).get("name", ""))
    if name not in LOADERS:
        raise InputError(
            "the export was compiled on a file, whose path it does not record",
            field="--data",
            expected="a file with rated texts" + (f", such as {name}" if name else ""),
        )
    return name


def _old_scores(planned: PlannedScoring, old: str) -> tuple[Scores, Literal["asked", "recorded"], list[str]]:
    """The old LM's scores: from the LM, whose stored replies are used again, else those recorded in the export."""
    import dspy

    notes: list[str] = []
    if old == "ask":
        try:
            return score_corpus(planned).scores, "asked", notes
        except (dspy.LMError, InputError) as error:
            text = error.problem if isinstance(error, InputError) else str(error)
            notes.append(
                f"the old LM cannot be called ({text.splitlines()[0][:200]}); its recorded scores are used instead"
            )
    return recorded_scores_for(planned.export, planned.corpus, planned.aspects), "recorded", notes


def _write_export(planned: PlannedScoring, scored: ScoredCorpus, result: CarryResult, name: str | None) -> Path:
    """Write a new export of the judge with the new LM."""
    from debate_judge.data.inference.non_inferiority import ScoreMapping, cross_fitted
    from debate_judge.programs.compiled import CompiledJudge
    from debate_judge.runs.export.folder import save
    from debate_judge.runs.export.recorded import RECORDED, recorded_scores_in, recorded_scores_json

    export, corpus = planned.export, planned.corpus
    comparison, manifest = result.comparison, export.manifest
    recalibrated = comparison.verdict == "recalibrate"
    aspects = {
        aspect: replace(aspect_judge, calibration=comparison.aspects[aspect].refitted)
        if recalibrated and aspect in comparison.aspects
        else aspect_judge
        for aspect, aspect_judge in export.judge.aspects.items()
    }
    recorded = recorded_scores_in(manifest)
    # A calibration that was fitted on these sources would fit their ratings better than those of new sources.
    cross_fit = recalibrated or not result.held_out
    calibrated = {}
    for aspect, groups in scored.scores.items():
        calibration = aspects[aspect].calibration
        if calibration is not None:
            scale = export.judge.task.aspect(aspect).scale
            mapping = ScoreMapping(scale, aspects[aspect].judge.on_scale, calibration)
            calibrated[aspect] = cross_fitted(groups, mapping) if cross_fit else calibration.map_groups(groups)
    evidence: dict[str, Any] = {
        "exported": {"judge": "carried", "why": f"{comparison.verdict}: {comparison.reason}"},
        "held_out" if result.held_out else "compared": {
            "carried": comparison.new.to_json(),
            "old_lm": comparison.old.to_json(),
        },
        "objective": manifest["evidence"].get("objective"),
        "data": asdict(replace(corpus.origin, location=Path(corpus.origin.location).name)),
        "lm_calls_per_item": {"carried": scored.calls_per_item},
        "carried": {**result.to_json(), "from": export.fingerprint, "export": None},
        "decisions": {"carried": _decisions(export, scored.scores)},
        RECORDED: recorded_scores_json(
            corpus,
            scored.scores,
            calibrated,
            scored_by="export",
            train_dev_sources=() if recorded is None else recorded.train_dev_sources,
        ),
    }
    slug = re.sub(r"[^\w.-]+", "-", scored.lm["spec"])
    folder = Path(planned.flags.store) / "exports" / (name or f"{manifest.get('name', 'judge')}-on-{slug}")
    demos = any(entry.get("holds_texts") for entry in manifest["aspects"].values())
    judge = CompiledJudge(export.judge.task, aspects)
    return save(folder, judge, lm=scored.lm, evidence=evidence, name=folder.name, demos=demos)


def _decisions(export: Export, scores: Scores) -> dict[str, Any]:
    """Agreement of the new scores' decisions at the cuts of the compile."""
    from debate_judge.data.agreement.decisions import decision_rules_from_scores, evaluate_decisions
    from debate_judge.runs.export.recorded import cuts_in
    from debate_judge.runs.reports.decisions import to_json

    cuts = cuts_in(export.manifest)
    decision_rules = {
        name: replace(rule, cut=cuts[name].cut)
        for name, rule in decision_rules_from_scores(scores, None).items()
        if name in cuts and cuts[name].cut is not None
    }
    return to_json({"carried": evaluate_decisions(scores, decision_rules)})["carried"] if decision_rules else {}


def _render(result: CarryResult, flags: CarryFlags) -> tuple[dict[str, Any], list[OutputBlock], int]:
    comparison = result.comparison
    sources = f"{result.sources} {'held-out ' if result.held_out else ''}sources"
    lines: list[OutputBlock] = [
        f"{comparison.verdict}: {comparison.reason}",
        f"{result.lms[0]} (old, {result.old_scores}) and {result.lms[1]} (new) on {sources}",
    ]
    lines += [f"note: {note}" for note in result.notes]
    if comparison.verdict == "recompile" and comparison.sufficient_sources is not None:
        lines.append(
            f"with {comparison.sufficient_sources} sources an LM that is as good as the old one is shown to be so in "
            "80 % of cases"
        )
    header = ["aspect", "old", "new", "difference", "shift", "spread", "old-new", "old error", "new error", "refitted"]
    rows = [
        [
            name,
            interval(aspect.old),
            interval(aspect.new),
            interval(aspect.difference),
            interval(aspect.shift, "+"),
            _decimals(aspect.spread),
            _decimals(aspect.lm_agreement),
            *(
                _decimals(None if error is None else error.value)
                for error in (aspect.error, aspect.error_new, aspect.error_refitted)
            ),
        ]
        for name, aspect in comparison.aspects.items()
    ]
    legend = (
        "old, new, difference: agreement with the raters; old-new: of the two LMs' scores with each other; shift, "
        "spread and mean absolute error of the scores are on the raters' scale, by the old calibration and, refitted, "
        "by a new one"
    )
    if result.export is not None:
        print(f"Export      {result.export}", file=sys.stderr)
    return result.to_json(), [*lines, "", DataTable(header, rows), "", legend], int(comparison.verdict == "recompile")


def _decimals(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    raise SystemExit(main())
