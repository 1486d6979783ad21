"""From the command line of a comparison to what is compared; everything is checked before a call is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debate_judge import data
from debate_judge.data.agreement.decisions import DecisionRule, find_decision_rules
from debate_judge.data.agreement.tables import Level, Statistic
from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import require_file
from debate_judge.data.inference.absolute_agreement import decision_cuts
from debate_judge.data.requirements import aspects_to_judge, require_level
from debate_judge.data.schema import Corpus
from debate_judge.data.splits import split
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.comparison.flags import CompareFlags, metric_of
from debate_judge.runs.comparison.results import EvalSetup
from debate_judge.runs.evaluation.entrants import Entrant, NamedJudge, entrants, expected, named_judges
from debate_judge.runs.evaluation.perturbations import PROBES, Perturbation
from debate_judge.runs.evaluation.rows import EvaluatedJudge
from debate_judge.runs.evaluation.score_files import read_external
from debate_judge.runs.export.from_mlflow import MLflowStore
from debate_judge.runs.export.lm_choice import lm_of
from debate_judge.runs.flags.metric import AUTO
from debate_judge.runs.human_ratings import rated_file


@dataclass(frozen=True)
class ComparisonContext:
    """Part of the data, split and LM of a comparison."""

    part: str
    """all or held-out."""
    groups_in_file: int
    seed: int
    """Of the split."""
    held_out: str
    """Fingerprint of the held-out part, or empty for all groups."""
    lm: str
    """Its spec."""

    @property
    def where(self) -> str:
        """The part, worded for titles."""
        return "held-out" if self.part == "held-out" else "all groups"

    @property
    def note(self) -> str:
        """The line under a figure."""
        if self.lm == OFFLINE:
            return "offline LM: transparent text statistics, a stand-in, not a language model"
        return f"LM: {self.lm}"

    def about(self, setup: EvalSetup) -> dict[str, Any]:
        """Data, part and LM as plain values."""
        corpus = setup.corpus
        return {
            "data": {
                "name": corpus.origin.name,
                # Only the last part of the path: a published file should not reveal where a user keeps data.
                "location": Path(corpus.origin.location).name,
                "task": corpus.task.name,
                "aspects": [a.name for a in setup.aspects],
                "part": self.part,
                "groups": len(corpus.groups),
                "split_seed": self.seed,
                "digest": corpus.digest,
            },
            "lm": {"spec": self.lm, "stand_in": self.lm == OFFLINE},
            "resamples": setup.resamples,
        }


def part_of(corpus: Corpus, aspects: Sequence[str], part: str, seed: int) -> tuple[Corpus, str]:
    """The groups that are compared on, and the fingerprint of the held-out part if it is these."""
    if part == "all":
        return corpus, ""
    try:
        parts = split(corpus, aspects=aspects, seed=seed)
    except InputError as error:
        remedy = "--part all compares on all groups, which is no evidence for a judge that was tuned on some of them"
        raise error.changed(remedy=f"{error.remedy}; {remedy}" if error.remedy else remedy) from None
    return parts.held_out, parts.fingerprints["held_out"]


def split_warning(held_out: str | None, setting: ComparisonContext) -> str | None:
    """A warning about an export whose held-out groups were not those of this table; None for other judges."""
    if held_out is None or held_out == setting.held_out:
        return None
    if setting.part == "all":
        return "tuned or selected on some of these groups, if it was compiled on these data"
    return (
        "compiled on another split or other data: some of these groups may be among those that it was tuned or "
        "selected on (its own --data, --task and --seed give its held-out groups; compiled by folds, it has used all)"
    )


@dataclass(frozen=True)
class ComparisonPlan:
    """What a command line asks for, checked before a call is made."""

    setup: EvalSetup
    entrants: tuple[Entrant, ...]
    external: Mapping[str, EvaluatedJudge]
    """Judge -> its scores from a file."""
    baseline: str
    decision_rules: Mapping[str, DecisionRule]
    """Aspect -> the decision that the data call for, for aspects whose ratings are categories."""
    setting: ComparisonContext
    probes: tuple[Perturbation, ...]
    api_base: str | None
    sampling: Mapping[str, Any]
    """Temperature and longest reply."""


def prepare(arguments: CompareFlags) -> ComparisonPlan:
    """Load and check everything."""
    named = named_judges(arguments.judges, MLflowStore(arguments.tracking_uri, Path(arguments.store)))
    lm, api_base, sampling = _lm(arguments, named)
    file = rated_file(arguments.data, arguments.tracking_uri)
    corpus = data.load(file, arguments.task, arguments.columns, arguments.sources)
    names = aspects_to_judge(corpus, arguments.aspects or _judged_by_all(corpus, named))
    level, statistics = _metric(arguments, corpus)
    aspects = tuple(corpus.task.aspect(name) for name in names)
    named_entrants = entrants(named, aspects, Path(arguments.personas) if arguments.personas else None)
    part, held_out = part_of(corpus, names, arguments.part, arguments.seed)
    decision_rules = find_decision_rules(corpus.groups, aspects)
    cuts = decision_cuts(aspects, decision_rules, arguments.cut)
    setup = EvalSetup(part, aspects, level, statistics, arguments.resamples, arguments.seed, cuts)
    external = _external(arguments.external, setup, corpus, {c.name for c in named_entrants})
    work = ComparisonPlan(
        setup,
        tuple(named_entrants),
        external,
        _baseline(arguments.baseline, [*(c.name for c in named_entrants), *external]),
        decision_rules,
        ComparisonContext(arguments.part, len(corpus.groups), arguments.seed, held_out, lm),
        tuple(PROBES[name] for name in arguments.probes),
        api_base,
        sampling,
    )
    require_file(arguments.json, "--json")
    return work


def _lm(arguments: CompareFlags, named: Sequence[NamedJudge]) -> tuple[str, str | None, dict[str, Any]]:
    """Spec, address and sampling: those of the first export, unless others are given."""
    spec, api_base, sampling = arguments.lm or OFFLINE, arguments.api_base, {"temperature": 0.0, "max_tokens": 2000}
    export = next((judge.export for judge in named if judge.export is not None), None)
    if export is not None and arguments.lm is None:
        spec, api_base, compiled_sampling = lm_of(export, None, api_base)
        sampling |= compiled_sampling
    given = {"temperature": arguments.temperature, "max_tokens": arguments.max_tokens}
    return spec, api_base, sampling | {name: value for name, value in given.items() if value is not None}


def _judged_by_all(corpus: Corpus, named: Sequence[NamedJudge]) -> list[str]:
    """The rated aspects that every export judges; none, for the usual ones, where there is no export."""
    exports = [judge.export for judge in named if judge.export is not None]
    rated = corpus.chosen_aspects() if exports else ()
    judged = [name for name in rated if all(name in export.judge.aspects for export in exports)]
    if not judged and exports:
        raise InputError(
            "no aspect is both rated in the data and judged by every export",
            field="--data",
            expected=", ".join(exports[0].judge.aspects),
            found=", ".join(rated) or "none",
        )
    return judged


def _external(given: Sequence[str], setup: EvalSetup, whole: Corpus, taken: Set[str]) -> dict[str, EvaluatedJudge]:
    """Judge -> scores from its file."""
    by_name: dict[str, EvaluatedJudge] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not (equals and name.strip() and path):
            raise InputError("not an external judge", field="--external", expected="NAME=FILE", found=text)
        name = name.strip()
        if name in taken or name in by_name:
            raise InputError("two judges of one name", field="--external", expected="another name", found=name)
        by_name[name] = read_external(Path(path), name, setup.corpus, setup.aspects, known=whole)
    return by_name


def _baseline(wanted: str | None, names: Sequence[str]) -> str:
    if not names:
        raise InputError("no judge is named", field="--judges", expected=expected())
    if wanted is not None and wanted not in names:
        raise InputError(
            "the baseline is not among the judges", field="baseline", expected=", ".join(names), found=wanted
        )
    return wanted or names[0]


def _metric(arguments: CompareFlags, corpus: Corpus) -> tuple[Level, tuple[Statistic, ...]]:
    """Level and statistics; by default the two statistics of the task's published tables."""
    metric = metric_of(arguments.metric)
    level: Level = ("summary" if corpus.grouped else "sample") if metric.level == AUTO else metric.level
    if level != "system":
        require_level(corpus, level)
    usual: tuple[Statistic, ...] = (
        ("pearson", "spearman") if corpus.task.name == "dialogue" else ("spearman", "kendall")
    )
    return level, metric.correlations or usual
