"""The result of a compile, which is shown by terminal, report, MLflow run, JSON and manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from html import escape
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from debate_judge.data.agreement.figures import Agreement, statistical_power
from debate_judge.data.calibration import CalibrationEffect
from debate_judge.optimize.held_out import (
    COMPARED,
    HeldOutComparison,
    above_zero,
    calibration_effects,
    folds_json,
)
from debate_judge.optimize.plan import CompilePlan
from debate_judge.optimize.search.study import SearchResult
from debate_judge.optimize.verdict import agreement_table, exported_calls, guides, verdict
from debate_judge.programs.judge import AspectJudge, CompiledJudge
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.runs.export.folder import load
from debate_judge.runs.export.loaded import LoadedJudge
from debate_judge.runs.reports.evidence import to_json
from debate_judge.runs.reports.tables import show

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """The run in MLflow."""

    run_id: str
    ui_command: str | None
    """The command that starts MLflow's UI on the store; None if a server is used."""
    link: str
    """The run's page."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """A finished compile. Shown, it is the table by aspect, the verdict, and where the judge is."""

    plan: CompilePlan
    lm: JudgeLM
    """The judge's LM; its meter has counted the calls of the compile."""
    compiled: CompiledJudge
    """The compiled judge, whether or not it is exported; with folds the one compiled from all sources."""
    all_searches: Sequence[Mapping[str, SearchResult]]
    """`searches`, and with folds those that chose the judge of each fold."""
    held_out: HeldOutComparison
    exports: Literal["compiled", "single"]
    """Which judge is exported, of `COMPARED`."""
    why: str
    """Why that one."""
    report: Path | None = None
    """The HTML page; None if the settings want none or it could not be written."""
    tracked: TrackedRun | None = None
    """None for a dry run."""

    @property
    def searches(self) -> Mapping[str, SearchResult]:
        """Aspect -> the search that chose its judge."""
        return self.all_searches[0]

    @cached_property
    def exported(self) -> CompiledJudge:
        """The judge that is exported."""
        if self.exports == "compiled":
            return self.compiled
        single = AspectJudge(self.plan.single.deepcopy())
        return CompiledJudge(self.compiled.task, dict.fromkeys(self.compiled.aspects, single))

    @property
    def export(self) -> Path:
        """The folder of the exported judge, for `load` and `debate score`."""
        return self.plan.export

    @cached_property
    def judge(self) -> LoadedJudge:
        """The exported judge, a DSPy program with the LM that it was compiled with, at the same address."""
        return load(self.export, api_base=self.plan.settings.api_base)

    def __repr__(self) -> str:
        text = StringIO()
        show(agreement_table(self, brief=True), "", *verdict(self), "", *self._places, file=text)
        return text.getvalue().rstrip()

    def _repr_html_(self) -> str:
        import pandas as pd

        table = agreement_table(self, brief=True)
        frame = pd.DataFrame(list(table.rows), columns=list(table.header))
        return "\n".join(
            [
                frame.to_html(index=False, border=0),
                *(f"<p>{escape(line)}</p>" for line in (*verdict(self), *self._places)),
            ]
        )

    @property
    def _places(self) -> list[str]:
        places = {"Export": self.export, "Report": self.report, "MLflow": self.tracked and self.tracked.link}
        return [f"{name}: {place}" for name, place in places.items() if place]

    @property
    def verdict(self) -> str:
        """Agreement, gain over a single call and its parts, what is exported, how it was measured: a line each."""
        return "\n".join(verdict(self))

    def agreement(self, judge: str, aspect: str | None = None) -> Agreement:
        """Held-out agreement of a judge of `COMPARED` in one aspect, or averaged, in the correlation and at the level
        that are reported."""
        table = self.held_out.tables[judge]
        by_level = table.average if aspect is None else table.aspects[aspect]
        return by_level[self.plan.data.level][self.plan.statistic]

    @property
    def beats_chance(self) -> bool:
        """Whether held-out shows that the exported judge agrees with the raters more than chance would."""
        return above_zero(self.agreement(self.exports))

    @property
    def judge_kind(self) -> str:
        """The kind of the compiled judge."""
        return next(iter(self.compiled.aspects.values())).judge.kind

    @property
    def table(self) -> pd.DataFrame:
        """Held-out agreement in the correlation and at the level that was chosen by.

        One row for each aspect and the average; for each compared judge (`single`, `informed_single`, `compiled`) the
        columns (judge, `value`), (judge, `low`) and (judge, `high`), the ends of the 95 % interval.
        """
        import pandas as pd

        figures = ("value", "low", "high")
        rows: dict[str, list[float | None]] = {}
        for judge in COMPARED:
            by_aspect = {aspect: self.agreement(judge, aspect) for aspect in self.searches}
            by_aspect["average"] = self.agreement(judge)
            for row, agreement in by_aspect.items():
                rows.setdefault(row, []).extend(getattr(agreement, figure) for figure in figures)
        columns = pd.MultiIndex.from_product([COMPARED, figures], names=["judge", "figure"])
        return pd.DataFrame(list(rows.values()), index=list(rows), columns=columns, dtype=float)

    @cached_property
    def calibration(self) -> Mapping[str, CalibrationEffect]:
        """Aspect -> the effect on held-out of mapping scores to the raters' scale."""
        return calibration_effects(self.plan, self.compiled, self.held_out)

    def evidence(self) -> dict[str, Any]:
        """The results and how they were measured, as JSON values: for the export's manifest, and most of `to_json`."""
        held_out, gain, plan = self.held_out, self.held_out.gain, self.plan
        splits, origin = plan.data.splits, plan.data.corpus.origin
        return {
            "chosen": {a: asdict(s.chosen.point) for a, s in self.searches.items()},
            "exported": {"judge": self.exports, "why": self.why},
            "exported_lm_calls_per_item": exported_calls(self),
            "held_out": {name: held_out.tables[name].to_json() for name in COMPARED},
            "decisions": to_json(held_out.decisions),
            "absolute_agreement": to_json(held_out.absolute_agreement),
            "calibration": {aspect: effect.to_json() for aspect, effect in self.calibration.items()},
            "raters": to_json(held_out.rater_agreement),
            "gain": {**asdict(gain), "power": None if (power := statistical_power(gain)) is None else asdict(power)},
            "gains": {aspect: asdict(aspect_gain) for aspect, aspect_gain in held_out.gains.items()},
            "gain_of_knowledge": asdict(held_out.gain_of_knowledge),
            "gain_over_informed_single": asdict(held_out.gain_over_informed),
            "near_duplicates": [list(ids) for ids in plan.data.splits.joined],
            **({"folds": folds_json(plan, held_out)} if held_out.fold_agreement else {}),
            "guides": guides(self.compiled),
            "lm_calls_per_item": {name: held_out.calls_per_item(name) for name in COMPARED},
            "objective": {"statistic": plan.statistic, "level": plan.data.level, "maximized": plan.objective},
            "data": asdict(replace(origin, location=Path(origin.location).name)),
            # With folds there is no held-out part: the exported judge uses all sources.
            "splits": {part: digest for part, digest in splits.fingerprints.items() if getattr(splits, part).groups},
            "seed": plan.settings.seed,
            **({"note": plan.note} if plan.note else {}),
        }

    def to_json(self) -> dict[str, Any]:
        """The result as JSON; every number finite or null."""
        return {
            **self.evidence(),
            "lm_calls": {**self.lm.meter.counts(), "per_item": self.held_out.calls_per_item("compiled")},
            "export": str(self.export),
            **({"run_id": self.tracked.run_id} if self.tracked else {}),
        }
