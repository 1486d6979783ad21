"""The ablations of one command, in the order that makes the fewest passes, and what they found as text and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.programs.debate.personas import PLAIN, STRICT
from debate_judge.programs.judge import Judge
from debate_judge.runs.comparison.ablations.distribution import (
    Distribution,
    Spread,
    Steadiness,
    distributions,
    steadiness,
)
from debate_judge.runs.comparison.ablations.studies import (
    ABLATIONS,
    USUAL,
    RecordedDebates,
    Study,
    by_persona,
    by_rounds,
    by_style,
    in_orders,
    record_debates,
    repeats,
)
from debate_judge.runs.comparison.results import AVERAGE, EvalSetup
from debate_judge.runs.comparison.table import SYMBOLS, number, plain_table, prose
from debate_judge.runs.reports.terminal import Printed
from debate_judge.runs.reports.text import interval, p_cell
from debate_judge.runs.runner.runner import JudgeRunner


@dataclass(frozen=True)
class AblationPlan:
    """What is to be varied."""

    judge: Judge
    """The debate that is varied; its configuration says at which n everything but the rounds is compared."""
    personas: Mapping[str, str]
    """Name -> text, the built-in ones among them."""
    which: tuple[str, ...] = USUAL
    max_rounds: int = 5
    runs: int = 5
    """Repeated runs for the stability."""
    temperature: float = 1.0
    """Of the repeated runs."""

    def __post_init__(self) -> None:
        for name in self.which:
            if name not in ABLATIONS:
                raise InputError(
                    f"unknown ablation {name!r}", field="--ablate", expected=", ".join(ABLATIONS), found=name
                )
        if "order" in self.which and self.judge.together < 2:
            raise InputError(
                "candidates that are judged alone have no order", field="--ablate", expected="--together K as well",
                found="order",
            )  # fmt: skip
        for flag, value, low in (("--max-rounds", self.max_rounds, 1), ("--repeats", self.runs, 2)):
            if value < low:
                raise InputError("number too small", field=flag, expected=f"{low} or more", found=value)
        if not 0 <= self.temperature <= 2:
            raise InputError(
                "not a temperature", field="--repeat-temperature", expected="0 to 2", found=self.temperature
            )


@dataclass(frozen=True)
class Findings:
    """What the ablations found; what was not asked for is empty."""

    studies: tuple[Study, ...] = ()
    distributions: Mapping[str, Distribution] = field(default_factory=dict)
    """Aspect -> distribution of ratings and scores."""
    stability: Mapping[str, Steadiness] = field(default_factory=dict)
    """Judge -> what its repeated runs did."""
    order: Mapping[str, Steadiness] = field(default_factory=dict)
    """Judge -> what it did in several orders of the candidates."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, every number finite or null."""
        return {
            **{study.name: _study_json(study) for study in self.studies},
            **({"distribution": {a: asdict(d) for a, d in self.distributions.items()}} if self.distributions else {}),
            **({"stability": {j: _steadiness_json(s) for j, s in self.stability.items()}} if self.stability else {}),
            **({"order": {j: _steadiness_json(s) for j, s in self.order.items()}} if self.order else {}),
        }


def ablate(runner: JudgeRunner, setup: EvalSetup, plan: AblationPlan) -> Findings:
    """Do the ablations that the plan names.

    Raises:
        dspy.LMError: The LM failed for good; what was answered is in its store.
        InputError: The judge cannot be had with this LM or on these scales.
    """
    n, which = plan.judge.debate_config.rounds, plan.which
    judges = plan.judge.variants(plan.personas)
    wanted = set(judges) if "personas" in which else {PLAIN.name} if "styles" in which else set()
    rounds = {name: n for name in judges if name in wanted}
    if set(which) & {"rounds", "personas", "styles", "distribution"}:
        rounds[STRICT.name] = max(n, plan.max_rounds) if "rounds" in which else n
    held = record_debates(runner, setup, {name: (judges[name], r) for name, r in rounds.items()})
    studies: list[Study] = []
    if "rounds" in which:
        studies.append(by_rounds(setup, held[STRICT.name], plan.max_rounds))
    if "personas" in which:
        studies.append(by_persona(setup, {name: held[name] for name in judges}, n))
    if "styles" in which:
        studies.append(by_style(runner, setup, held, n))
    spread: dict[str, Distribution] = {}
    if "distribution" in which:
        strict = held[STRICT.name]
        spread = distributions(setup, {"single": strict.at(setup, 0).scores, "debate": strict.at(setup, n).scores})
    steady: dict[str, Steadiness] = {}
    if "stability" in which:
        again = repeats(runner, setup, judges[STRICT.name], n, plan.runs, plan.temperature)
        steady = _steady(setup, again, n)
    ordered: dict[str, Steadiness] = {}
    if "order" in which:
        ordered = _steady(setup, in_orders(runner, setup, judges[STRICT.name], n), n)
    return Findings(tuple(studies), spread, steady, ordered)


def _steady(setup: EvalSetup, runs: Sequence[RecordedDebates], rounds: int) -> dict[str, Steadiness]:
    """How the single call and the debate differ from run to run."""
    ends = {"single": 0, "debate": rounds}
    return {name: steadiness(setup, [one.at(setup, at).scores for one in runs]) for name, at in ends.items()}


def render(findings: Findings, setup: EvalSetup, style: str) -> list[Printed]:
    """A short table for each ablation, each below an empty line and one that says what it is."""
    blocks: list[Printed] = []
    for study in findings.studies:
        blocks += ["", prose(study.title, style), "", _study_table(study, setup, style)]
    if findings.distributions:
        blocks += _distribution_tables(findings.distributions, style)
    if findings.stability:
        blocks += _stability_table("Stability", "runs", findings.stability, setup, style)
    if findings.order:
        what = "Order of the candidates that are judged together"
        blocks += _stability_table(what, "seeded orders", findings.order, setup, style)
    return blocks


def _study_table(study: Study, setup: EvalSetup, style: str) -> Printed:
    first, level = setup.statistics[0], setup.level
    mark = SYMBOLS[first]
    several = len(setup.aspects) > 1
    header = [
        study.name, *(f"{a.name} {mark}" for a in setup.aspects if several), f"{setup.columns[-1]} {mark}",
        "LM calls per item", f"Δ to {study.baseline if study.name != 'rounds' else 'n = ' + study.baseline}",
        "p (Holm)", "unscored",
    ]  # fmt: skip
    rows = [
        [
            name if study.name != "rounds" else f"n = {name}",
            *(number(variant.table.aspects[a.name][level][first].value) for a in setup.aspects if several),
            interval(variant.table.average[level][first]),
            f"{variant.calls:.2f}",
            "–" if variant.difference is None else interval(variant.difference),
            p_cell(variant.corrected),
            str(variant.unscored),
        ]
        for name, variant in study.variants.items()
    ]
    return plain_table(header, rows, style)


def _distribution_tables(found: Mapping[str, Distribution], style: str) -> list[Printed]:
    title = (
        "Distribution of scores beside the mean human ratings, % (mean ratings between two points go to the nearer); "
        "W: first Wasserstein distance to the ratings in points of the scale, TV: total variation of the shares"
    )
    blocks: list[Printed] = ["", prose(title, style)]
    # Aspects of one scale share a table.
    scales = dict.fromkeys(d.points for d in found.values())
    for points in scales:
        rows = [
            [
                aspect,
                name,
                *(f"{100 * share:.1f}" for share in spread.shares),
                f"{spread.mean:.2f}",
                *_distances(spread),
            ]
            for aspect, one in found.items()
            if one.points == points
            for name, spread in [("ratings", one.ratings), *one.judges.items()]
        ]
        blocks += ["", plain_table(["aspect", "", *points, "mean", "W", "TV"], rows, style)]
    return blocks


def _distances(spread: Spread) -> list[str]:
    return ["–" if v is None else f"{v:.2f}" for v in (spread.wasserstein, spread.total_variation)]


def _stability_table(
    what: str, over: str, found: Mapping[str, Steadiness], setup: EvalSetup, style: str
) -> list[Printed]:
    runs = len(next(iter(found.values())).agreement[AVERAGE])
    columns = setup.columns
    header = [
        "judge", *(f"{c} {SYMBOLS[setup.statistics[0]]}" for c in columns), "SD of an item's score", "items changed",
        "unscored",
    ]  # fmt: skip
    rows = [
        [
            name,
            *(f"{number(one.mean(c))} ± {number(one.deviation(c))}" for c in columns),
            number(one.score_deviation),
            "–" if one.changed is None else f"{100 * one.changed:.1f} %",
            str(one.unscored),
        ]
        for name, one in found.items()
    ]
    title = f"{what}: mean ± standard deviation of agreement over {runs} {over}, n - 1"
    return ["", prose(title, style), "", plain_table(header, rows, style)]


def _study_json(study: Study) -> dict[str, Any]:
    def row(name: str) -> dict[str, Any]:
        variant = study.variants[name]
        difference = None if variant.difference is None else asdict(variant.difference)
        return {
            "agreement": variant.table.to_json(),
            "lm_calls_per_item": variant.calls,
            "unscored": variant.unscored,
            "difference": None if difference is None else {**difference, "p_corrected": variant.corrected},
        }

    return {"title": study.title, "baseline": study.baseline, "variants": {name: row(name) for name in study.variants}}


def _steadiness_json(found: Steadiness) -> dict[str, Any]:
    columns: Sequence[str] = tuple(found.agreement)
    return {
        "agreement": {
            c: {"runs": list(found.agreement[c]), "mean": found.mean(c), "sd": found.deviation(c)} for c in columns
        },
        "items": found.items,
        "mean_sd_of_an_items_score": found.score_deviation,
        "share_of_items_changed": found.changed,
        "unscored": found.unscored,
    }
