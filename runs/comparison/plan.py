"""The plan of a comparison, made from its settings; everything is checked before a call is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from debate_judge import data
from debate_judge.data.agreement.absolute_agreement import decision_cuts
from debate_judge.data.agreement.decisions import find_decision_rules
from debate_judge.data.agreement.tables import Level, Statistic
from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import require_writable
from debate_judge.data.requirements import aspects_to_judge, require_level
from debate_judge.data.schema import Corpus, Task, fingerprint
from debate_judge.data.splits import split
from debate_judge.programs.make_lm import OFFLINE, OFFLINE_NOTE
from debate_judge.runs.comparison.entrants import (
    Entrant,
    JudgeSpec,
    LMChoice,
    build_entrants,
    choose_lms,
    expected_judges,
    parse_judges,
)
from debate_judge.runs.comparison.flags import CompareFlags, parse_metric
from debate_judge.runs.comparison.results import EvalSetup, EvaluatedJudge
from debate_judge.runs.comparison.score_files import read_external
from debate_judge.runs.export.from_mlflow import MLflowStore
from debate_judge.runs.flags import result_settings
from debate_judge.runs.human_ratings import resolve_data
from debate_judge.runs.shared_flags import AUTO


@dataclass(frozen=True)
class ComparisonPlan:
    """A checked comparison: the judges, each with its LM, and the groups."""

    flags: CompareFlags
    setup: EvalSetup
    entrants: tuple[Entrant, ...]
    baseline: str
    """The first judge, which the others are compared with."""
    groups: str
    """What the groups are, in words."""
    external: Mapping[str, EvaluatedJudge] = field(default_factory=dict)
    """Name -> scores from a file."""

    @property
    def lms(self) -> tuple[LMChoice, ...]:
        """The LMs of the judges."""
        return tuple(dict.fromkeys(entrant.lm for entrant in self.entrants))

    @property
    def lm(self) -> str:
        """The LMs in one line."""
        return ", ".join(dict.fromkeys(lm.spec for lm in self.lms))

    @property
    def stand_in(self) -> str:
        """A notice where a judge has the offline stand-in for an LM, else empty."""
        return OFFLINE_NOTE if any(lm.spec == OFFLINE for lm in self.lms) else ""

    @property
    def identity(self) -> str:
        """Equal for comparisons of equal settings on equal data, which are the same run."""
        settings = {name: str(value) for name, value in result_settings(self.flags).items()}
        return fingerprint(["comparison", self.setup.corpus.digest, settings])

    @property
    def name(self) -> str:
        """The name of the run and of its report."""
        return self.flags.name or f"compare-{self.setup.corpus.origin.name}-{self.identity[:8]}"

    def entrants_of(self, lm: LMChoice) -> list[Entrant]:
        """The judges that have this LM."""
        return [entrant for entrant in self.entrants if entrant.lm == lm]

    def to_json(self) -> dict[str, Any]:
        """Data, part and LM as JSON values."""
        corpus = self.setup.corpus
        return {
            "data": {
                "name": corpus.origin.name,
                # Only the file's name: a published result should not reveal where a user keeps data.
                "location": Path(corpus.origin.location).name,
                "task": corpus.task.name,
                "aspects": [a.name for a in self.setup.aspects],
                "part": self.flags.part,
                "groups": len(corpus.groups),
                "split_seed": self.flags.seed,
                "digest": corpus.digest,
            },
            "lm": {"spec": self.lm, "stand_in": bool(self.stand_in)},
        }


def prepare(flags: CompareFlags) -> ComparisonPlan:
    """Load the data and the judges, and check all settings.

    Raises:
        InputError: A setting, the data or a judge cannot be used.
    """
    specs = parse_judges(flags.judges, MLflowStore(folder=Path(flags.store)))
    lms = choose_lms(specs, flags.lm, flags.api_base, flags.temperature, flags.max_tokens)
    file = resolve_data(flags.data)
    corpus = data.load(file, flags.task or _task_of_export(flags.data, specs), flags.columns, flags.sources)
    aspect_names = aspects_to_judge(corpus, flags.aspects or _judged_by_all(corpus, specs))
    level, statistics = _metric(flags, corpus)
    aspects = tuple(corpus.task.aspect(name) for name in aspect_names)
    built = build_entrants(specs, aspects, lms, Path(flags.personas) if flags.personas else None)
    compiled_on = frozenset[str]().union(*(entrant.compiled_on for entrant in built))
    part, groups = _select_part(corpus, aspect_names, flags.part, flags.seed, compiled_on)
    decision_rules = find_decision_rules(corpus.groups, aspects)
    cuts = decision_cuts(aspects, decision_rules, flags.cut)
    setup = EvalSetup(part, aspects, level, statistics, flags.seed, cuts, decision_rules)
    external = _external_judges(flags.external, setup, corpus, {entrant.name for entrant in built})
    # Compared with a judge on the sources that it was compiled on, no other would say anything.
    names = [*(e.name for e in built if not e.overlap(part)), *external, *(e.name for e in built)]
    if not names:
        raise InputError("no judge is named", field="--judges", expected=expected_judges())
    require_writable(flags.json, "--json")
    return ComparisonPlan(flags, setup, tuple(built), names[0], groups, external)


def _select_part(
    corpus: Corpus, aspects: Sequence[str], part: str, seed: int, compiled_on: Set[str]
) -> tuple[Corpus, str]:
    """The groups to compare on, and what they are.

    `held-out` are the groups that no export was compiled on; without an export, and where exports were compiled on all
    groups, the held-out part of a compile's split.
    """
    count = len(corpus.groups)
    if part == "all":
        return corpus, f"all {count} groups of the data"
    unseen = tuple(group for group in corpus.groups if group.source_id not in compiled_on)
    if unseen and compiled_on:
        return replace(corpus, groups=unseen), f"the {len(unseen)} of {count} groups that no export was compiled on"
    try:
        held_out = split(corpus, aspects=aspects, seed=seed).held_out
    except InputError as error:
        remedy = "--part all compares on all groups"
        raise error.replaced(remedy=f"{error.remedy}; {remedy}" if error.remedy else remedy) from None
    return held_out, f"{len(held_out.groups)} held-out groups of {count} (the split of a compile with seed {seed})"


def _task_of_export(spec: str, judges: Sequence[JudgeSpec]) -> Task | str | None:
    """The task of the first export; None without one, and for public sets, which have a task of their own."""
    task = next((judge.export.judge.task for judge in judges if judge.export is not None), None)
    if spec == "sample":
        return task and task.name
    return None if spec.partition("=")[0] in data.LOADERS else task


def _judged_by_all(corpus: Corpus, specs: Sequence[JudgeSpec]) -> list[str]:
    """The rated aspects that every export judges; empty without exports, which means the default aspects."""
    exports = [judge.export for judge in specs if judge.export is not None]
    rated = corpus.select_aspects() if exports else ()
    judged = [name for name in rated if all(name in export.judge.aspects for export in exports)]
    if not judged and exports:
        raise InputError(
            "no aspect is both rated in the data and judged by every export",
            field="--data",
            expected=", ".join(exports[0].judge.aspects),
            found=", ".join(rated) or "none",
        )
    return judged


def _external_judges(
    named_files: Sequence[str], setup: EvalSetup, full_corpus: Corpus, names_taken: Set[str]
) -> dict[str, EvaluatedJudge]:
    """Name -> scores from the file."""
    by_name: dict[str, EvaluatedJudge] = {}
    for text in named_files:
        name, equals, path = text.partition("=")
        if not (equals and name.strip() and path):
            raise InputError("not an external judge", field="--external", expected="NAME=FILE", found=text)
        name = name.strip()
        if name in names_taken or name in by_name:
            raise InputError("two judges have the same name", field="--external", expected="another name", found=name)
        by_name[name] = read_external(Path(path), setup.corpus, setup.aspects, full_corpus)
    return by_name


def _metric(flags: CompareFlags, corpus: Corpus) -> tuple[Level, tuple[Statistic, ...]]:
    """Level and statistics; by default those of the published tables of the task."""
    metric = parse_metric(flags.metric)
    level: Level = ("summary" if corpus.grouped else "sample") if metric.level == AUTO else metric.level
    if level != "system":
        require_level(corpus, level)
    default: tuple[Statistic, ...] = (
        ("pearson", "spearman") if corpus.task.name == "dialogue" else ("spearman", "kendall")
    )
    return level, metric.correlations or default
