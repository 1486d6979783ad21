"""From the command line of a comparison to what is compared; everything is checked before a call is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debate_judge import data
from debate_judge.data.agreement.decisions import Question, find_questions
from debate_judge.data.agreement.tables import Level, Statistic
from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import make_folder, require_file
from debate_judge.data.requirements import aspects_to_judge, require_level
from debate_judge.data.schema import Corpus
from debate_judge.programs import options_of, preset
from debate_judge.runs.comparison.ablations.plan import AblationPlan
from debate_judge.runs.comparison.ablations.studies import ABLATIONS, USUAL
from debate_judge.runs.comparison.entrants import Entrant, entrants, expected
from debate_judge.runs.comparison.external_scores import read_external
from debate_judge.runs.comparison.flags import CompareFlags
from debate_judge.runs.comparison.legend import Setting, figure_file, part_of
from debate_judge.runs.comparison.results import EntrantScores, EvalSetup
from debate_judge.runs.export.from_mlflow import MLflowStore
from debate_judge.runs.flags.named_texts import personas
from debate_judge.runs.flags.parser import listed
from debate_judge.runs.tracking.human_ratings import rated_file


@dataclass(frozen=True)
class Work:
    """What a command line asks for, checked before a call is made."""

    setup: EvalSetup
    entrants: tuple[Entrant, ...]
    external: Mapping[str, EntrantScores]
    """Judge -> its scores from a file."""
    baseline: str
    questions: Mapping[str, Question]
    """Aspect -> the decision that the data call for, for aspects whose ratings are categories."""
    setting: Setting
    figure: Path | None
    plan: AblationPlan | None
    """Of the ablations."""


def prepare(arguments: CompareFlags) -> Work:
    """Load and check everything.

    Raises:
        InputError: Something cannot be used.
    """
    figure, options = figure_file(arguments.figure), arguments.options()
    file = rated_file(arguments.data, arguments.tracking_uri)
    corpus = data.load(file, arguments.task, arguments.columns, arguments.sources)
    names = aspects_to_judge(corpus, arguments.aspects)
    level = _level(arguments, corpus)
    aspects = tuple(corpus.task.aspect(name) for name in names)
    found = entrants(arguments.judges, aspects, options, MLflowStore(arguments.tracking_uri, Path(arguments.store)))
    part, held_out = part_of(corpus, names, arguments.part, arguments.seed)
    setup = EvalSetup(
        part,
        aspects,
        level,
        _statistics(arguments, corpus),
        arguments.resamples,
        arguments.seed,
        arguments.draw_systems,
    )
    external = _external(arguments.external, setup, corpus, {c.name for c in found})
    work = Work(
        setup,
        tuple(found),
        external,
        _baseline(arguments.baseline, [*(c.name for c in found), *external]),
        find_questions(corpus.groups, aspects),
        Setting(arguments.part, len(corpus.groups), arguments.seed, held_out, arguments.lm),
        figure,
        _plan(arguments, options),
    )
    require_file(arguments.json, "--json")
    require_file(arguments.figure, "--figure")
    if arguments.ablations is not None:
        make_folder(Path(arguments.ablations), "--ablations")
    return work


def _external(given: Sequence[str], setup: EvalSetup, whole: Corpus, taken: Set[str]) -> dict[str, EntrantScores]:
    """Judge -> scores from its file."""
    found: dict[str, EntrantScores] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not (equals and name.strip() and path):
            raise InputError("not an external judge", field="--external", expected="NAME=FILE", found=text)
        name = name.strip()
        if name in taken or name in found:
            raise InputError("two judges of one name", field="--external", expected="another name", found=name)
        one = read_external(Path(path), setup.corpus, setup.aspects, known=whole)
        unscored = {"not in the file": one.missing} if one.missing else {}
        found[name] = EntrantScores(one.scores, unscored=unscored, note=f"scores from a file, {one.coverage()}")
    return found


def _baseline(wanted: str | None, names: Sequence[str]) -> str:
    if not names:
        raise InputError("no judge is named", field="--judges", expected=expected())
    if wanted is not None and wanted not in names:
        raise InputError(
            "the baseline is not among the judges", field="--baseline", expected=", ".join(names), found=wanted
        )
    return wanted or names[0]


def _plan(arguments: CompareFlags, options: Mapping[str, Any]) -> AblationPlan | None:
    if not arguments.ablations:
        if arguments.ablate:
            raise InputError(
                "ablations need a folder for their figures", field="--ablate", expected="--ablations DIR as well"
            )
        return None
    if set(listed(arguments.ablations)) <= {*ABLATIONS, "all"}:
        raise InputError(
            "this names ablations, not the folder for their figures",
            field="--ablations",
            found=arguments.ablations,
            remedy=f"--ablations DIR --ablate {arguments.ablations}",
        )
    judge = preset("debate", {name: value for name, value in options.items() if name in options_of("debate")})
    return AblationPlan(
        judge,
        personas(Path(arguments.personas) if arguments.personas else None),
        arguments.ablate or (ABLATIONS if judge.together > 1 else USUAL),
        arguments.max_rounds,
        arguments.repeats,
        arguments.repeat_temperature,
    )


def _level(arguments: CompareFlags, corpus: Corpus) -> Level:
    level: Level = arguments.level if arguments.level != "auto" else "summary" if corpus.grouped else "sample"
    if level != "system":
        require_level(corpus, level)
    return level


def _statistics(arguments: CompareFlags, corpus: Corpus) -> tuple[Statistic, ...]:
    """The two statistics of the task's published tables, unless the user names others."""
    usual: tuple[Statistic, ...] = (
        ("pearson", "spearman") if corpus.task.name == "dialogue" else ("spearman", "kendall")
    )
    return tuple(dict.fromkeys(arguments.statistics or usual))
