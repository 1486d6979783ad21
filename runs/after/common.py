"""Shared code of `carry`, `recheck`, `measure` and `next`: settings, loading of exports and texts, scoring, output."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import require_writable, write_json
from debate_judge.data.schema import Aspect, Corpus
from debate_judge.programs.lm.reply import replies_folder
from debate_judge.runs.flags.common import (
    COLUMNS,
    CUSTOM_JUDGES,
    MAX_UNSCORED,
    REPLIES,
    SOURCES,
    STORE,
    SourcesText,
)
from debate_judge.runs.flags.declaration import flag_group, setting
from debate_judge.runs.flags.lm import BatchFlags, EstimateFlags, PreflightFlags, lm_options, require_server
from debate_judge.runs.flags.parser import RESUME_HINT, parse_settings, run_main
from debate_judge.runs.reports.terminal import OutputBlock, show

if TYPE_CHECKING:
    from debate_judge.data.agreement.correlations import Statistic
    from debate_judge.data.schema import Level
    from debate_judge.programs.judge import Judgement
    from debate_judge.runs.export.loaded import LoadedJudge
    from debate_judge.runs.export.manifest import Export
    from debate_judge.runs.export.recorded import RecordedScores

Scores = dict[str, list[GroupScores]]
"""Aspect -> scores and ratings by group."""

# --- settings ---


@flag_group("data")
class TextFlags:
    """How a file of texts is read."""

    columns: tuple[str, ...] = COLUMNS
    task: str | None = setting(None, "task or task file of the data", default_text="the judge's")
    sources: SourcesText | None = SOURCES
    aspects: tuple[str, ...] = setting(
        (), "aspects, comma-separated; by default all that are rated and that the judge scores"
    )


@flag_group("LM")
class ScoringLMFlags(PreflightFlags, BatchFlags, EstimateFlags):
    """The LM of the judge, its limits, and the store of its replies."""

    lm: str | None = setting(None, "PROVIDER/MODEL or offline", default_text="as compiled")
    store: str = STORE
    replies: str | None = REPLIES
    tracking_uri: str | None = setting(
        None,
        "MLflow store of models:/, of a run's id and of mlflow:EXPERIMENT",
        metavar="URI",
        default_text="MLFLOW_TRACKING_URI, else the embedded one; of experiments MLflow's own",
        affects_results=False,
    )
    max_unscored: float = MAX_UNSCORED
    judge: tuple[str, ...] = CUSTOM_JUDGES


@flag_group("options")
class AfterFlags(ScoringLMFlags, TextFlags):
    """Settings of every command in this folder."""

    json: str | None = setting(
        None,
        "print JSON instead of the tables, or write it to a file as well",
        metavar="OUT",
        const="-",
        affects_results=False,
    )


F = TypeVar("F", bound=AfterFlags)
R = TypeVar("R")


def settings_from(settings_class: Callable[..., F], settings: Mapping[str, Any], **named: Any) -> F:
    """A command's settings from keyword arguments, where lists and paths may stand for tuples and texts."""
    if "estimate" in settings:
        raise InputError("the command line alone prints estimates", field="estimate", remedy="leave it out here")
    return settings_class(
        **{
            name: tuple(value) if isinstance(value, list) else str(value) if isinstance(value, Path) else value
            for name, value in {**settings, **named}.items()
        }
    )


# --- the export and the texts ---


def find_export(flags: AfterFlags, address: str) -> Export:
    """The export at an address, see `runs.export.folder.open_export`."""
    from debate_judge.runs.export.folder import open_export
    from debate_judge.runs.export.from_mlflow import MLflowStore

    return open_export(address, flags.judge, MLflowStore(flags.tracking_uri, Path(flags.store)))


def corpus_for(export: Export, data: str, flags: AfterFlags) -> Corpus:
    """Load a rated corpus of the export's task.

    Raises:
        InputError: It cannot be read, or is of another task.
    """
    from debate_judge.data import LOADERS, load
    from debate_judge.runs.human_ratings import resolve_data

    task = export.judge.task
    builtin = data.partition("=")[0] in LOADERS
    task_or_file = flags.task or (task.name if data == "sample" else None if builtin else task)
    corpus = load(resolve_data(data, flags.tracking_uri), task_or_file, flags.columns, flags.sources)
    if corpus.task.name != task.name:
        raise InputError(
            "the texts are of another task than the judge's",
            file=corpus.origin.location,
            field="--task",
            expected=task.name,
            found=corpus.task.name,
        )
    return corpus


def shared_aspects(export: Export, corpus: Corpus, names: Sequence[str] = ()) -> tuple[Aspect, ...]:
    """The aspects that are rated in the corpus and scored by the judge.

    Raises:
        InputError: There is none, or one of `names` is not rated or not scored.
    """
    from debate_judge.runs.export.loaded import select_aspects

    judged = select_aspects(export.judge, names or None)
    rated = corpus.rated_aspects()
    missing = [aspect.name for aspect in judged if aspect.name not in rated]
    if missing and (names or len(missing) == len(judged)):
        raise InputError(
            f"the data have no ratings of {', '.join(missing)}",
            file=corpus.origin.location,
            field="--aspects",
            expected="ratings of what the judge scores: " + ", ".join(export.judge.aspects),
            found=", ".join(rated) or "none",
        )
    return tuple(aspect for aspect in judged if aspect.name in rated)


def export_objective(export: Export, corpus: Corpus) -> tuple[Statistic, Level]:
    """The correlation, and its level, that the export was selected by."""
    from debate_judge.runs.export.recorded import objective_in

    return objective_in(export.manifest, "summary" if corpus.grouped else "sample")


def random_sources(corpus: Corpus) -> tuple[Corpus, list[str]]:
    """The sources that were sampled at random, and a note about those that were selected for rating.

    Raises:
        InputError: All sources were selected.
    """
    sample = corpus.random_sample
    selected = len(corpus.groups) - len(sample.groups)
    if not sample.groups:
        raise InputError(
            "all sources were selected for rating, so agreement on them is no evidence about others",
            file=corpus.origin.location,
            field="drawn",
            expected="sources that were drawn at random, with nothing in this column",
            found=f"{selected} selected ones",
            remedy="rate sources that `debate next` draws at random, as it does without --draw chosen",
        )
    note = f"{selected} sources were selected for rating and are left out, because agreement on them is no evidence"
    return sample, [f"{note} about others"] * bool(selected)


def sources_to_measure(corpus: Corpus, recorded: RecordedScores | None) -> tuple[Corpus, bool, list[str]]:
    """The sources to measure an exported judge on again.

    Returns:
        The held-out sources of the compile that the data have; without any, the sources that are new to the judge, else
        all. Whether the judge was neither tuned nor selected on them. Notes about them.
    """
    corpus, notes = random_sources(corpus)
    if recorded is None:
        note = "the export does not say which sources it was measured on, so that all are used"
        return corpus, False, [*notes, note]
    source_ids = {group.id: group.source_id for group in corpus.groups}
    measured = [g for g in corpus.groups if source_ids[g.id] in recorded.sources]
    new = [g for g in corpus.groups if source_ids[g.id] not in recorded.compile_sources]
    if measured and recorded.scored_by == "export" and not recorded.sources & recorded.train_dev_sources:
        missing = len(recorded.sources) - len(measured)
        notes += [f"{missing} of {len(recorded.sources)} held-out sources are not in the data"] * bool(missing)
        return replace(corpus, groups=tuple(measured)), True, notes
    if new:
        return replace(corpus, groups=tuple(new)), True, notes
    note = "the judge was tuned and selected on these sources with the old LM, which favours the old LM"
    return corpus, False, [*notes, note]


def recorded_scores_for(export: Export, corpus: Corpus, aspects: Sequence[Aspect]) -> Scores:
    """The recorded scores of these texts, None for texts without one, with the ratings and ids of the corpus.

    Raises:
        InputError: The export has no score of these texts, or only scores by the judges of folds.
    """
    from debate_judge.runs.export.recorded import candidate_hashes, group_hash, recorded_scores_in

    recorded = recorded_scores_in(export.manifest)
    if recorded is None or recorded.scored_by == "folds":
        raise InputError(
            "the export has no scores of its judge",
            file=export.folder,
            field="evidence.recorded",
            expected="scores of held-out sources"
            if recorded is None
            else "scores by the exported judge; these are by the judges of folds",
            remedy="ask the old LM, or name the store with its replies by --store; else compile the judge again",
        )
    by_aspect: Scores = {}
    for aspect in aspects:
        scores_by_text = {
            (group.group, text): score
            for group in recorded.scores.get(aspect.name, ())
            for text, score in zip(group.candidates, group.scores, strict=True)
        }
        by_aspect[aspect.name] = [
            GroupScores(
                group.id,
                tuple(c.id for c in group.candidates),
                tuple(group.ratings(aspect.name)),
                tuple(
                    # Earlier exports identify pairs by their source, too.
                    scores_by_text.get(
                        (group_hash(group, corpus.task.aspects), text), scores_by_text.get((group.source_id, text))
                    )
                    for text in candidate_hashes(group)
                ),
                source=group.source_id,
            )
            for group in corpus.groups
        ]
    if not any(score is not None for groups in by_aspect.values() for group in groups for score in group.scores):
        raise InputError("the export has no score of these texts", file=corpus.origin.location, field="--data")
    return by_aspect


# --- scoring ---


@dataclass(frozen=True)
class PlannedScoring:
    """A corpus that the judge of an export will score."""

    title: str
    """For the progress bar and messages."""
    export: Export
    corpus: Corpus
    aspects: Sequence[Aspect]
    flags: AfterFlags
    lm: str | None
    """PROVIDER/MODEL; None for the export's own."""
    api_base: str | None
    preflight: bool
    use_store: bool = True
    """Whether replies are stored, and read from the store."""

    @classmethod
    def of(
        cls, title: str, export: Export, corpus: Corpus, aspects: Sequence[Aspect], flags: AfterFlags
    ) -> PlannedScoring:
        """Planned with the LM of the flags."""
        return cls(title, export, corpus, aspects, flags, flags.lm, flags.api_base, flags.preflight)

    @property
    def store(self) -> Path | None:
        return Path(self.flags.store) if self.use_store else None


@dataclass(frozen=True)
class ScoredCorpus:
    """The scores of a corpus and the LM behind them."""

    scores: Scores
    lm: Mapping[str, Any]
    """The LM as an export records it; "spec" is PROVIDER/MODEL."""
    calls_per_item: float


def score_corpus(planned: PlannedScoring) -> ScoredCorpus:
    """Score a corpus with an export.

    Raises:
        InputError: Only the export gives the LM's address, or too many items have no score.
        dspy.LMError: The LM cannot be used.
    """
    from debate_judge.runs.runner.runner import calls_per_item, group_scores, require_scored

    export, corpus, aspects = planned.export, planned.corpus, planned.aspects
    with _open(planned) as judge:
        judgements = _judge_corpus(judge, planned)
        sampling = {name: judge.lm.kwargs.get(name) for name in ("temperature", "max_tokens")}
        spec = planned.lm or str(export.manifest["lm"]["spec"])
        lm = {"spec": spec, "api_base": judge.lm.endpoint or None, **sampling}
    for aspect in aspects:
        title = f"items of {aspect.name} ({planned.title})"
        require_scored(judgements[aspect.name], planned.flags.max_unscored, title)
    judges = export.judge.aspects
    scores = {a.name: group_scores(corpus, a, judgements[a.name], judges[a.name].granularity) for a in aspects}
    return ScoredCorpus(scores, lm, calls_per_item(list(chain.from_iterable(judgements.values()))))


def _open(planned: PlannedScoring) -> LoadedJudge:
    from debate_judge.runs.export.lm_choice import resolve_lm
    from debate_judge.runs.export.loaded import open_judge

    flags, store = planned.flags, planned.store
    spec, api_base, _ = resolve_lm(planned.export, planned.lm, planned.api_base)
    if store is not None:
        require_server(spec, api_base, str(store))
    judge = open_judge(
        planned.export,
        lm=planned.lm,
        api_base=planned.api_base,
        concurrency=flags.concurrency,
        store=None if store is None else replies_folder(store, spec),
        replies=None if store is None else flags.replies,
        options=lm_options(flags),
    )
    if judge.lm.destination is not None:
        print(judge.lm.destination, file=sys.stderr)
    return judge


def _judge_corpus(judge: LoadedJudge, planned: PlannedScoring) -> dict[str, list[Judgement]]:
    from debate_judge.runs.runner.progress import RunProgress
    from debate_judge.runs.runner.streaming import items_of_group

    aspects = planned.aspects
    items = [item for group in planned.corpus.groups for item in items_of_group(judge.task, group, aspects)]
    if planned.preflight:
        judge.smoke_test(items[: 2 * len(aspects)])
    by_aspect: dict[str, list[Judgement]] = {aspect.name: [] for aspect in aspects}
    with RunProgress(judge.lm, visible=True) as progress, progress.track(planned.title, len(items)) as bar:
        for item, judgement in judge.stream(items):
            by_aspect[item.aspect.name].append(judgement)
            bar.advance()
    return by_aspect


def _estimate(planned: Sequence[PlannedScoring], lengths: str) -> int:
    """Print the estimate of each planned scoring.

    Raises:
        InputError: Nothing would be scored, or `lengths` (the value of --estimate) cannot be read.
    """
    from debate_judge.runs.estimates.dry_run import reply_tokens
    from debate_judge.runs.estimates.items import estimate_scoring, scoring_target
    from debate_judge.runs.estimates.table import estimate_blocks
    from debate_judge.runs.runner.streaming import items_of_group

    if not planned:
        raise InputError(
            "no LM is called, so there is nothing to estimate",
            field="--estimate",
            remedy="run the command without --estimate: it costs nothing",
        )
    for scoring in planned:
        judge, groups, tokens = scoring.export.judge, scoring.corpus.groups, reply_tokens(lengths)
        target = scoring_target(
            scoring.export, scoring.lm, scoring.api_base, scoring.store, lm_options(scoring.flags), reply_tokens=tokens
        )
        items = (item for group in groups for item in items_of_group(judge.task, group, scoring.aspects))
        estimate, count = estimate_scoring(target, judge, scoring.aspects, items)
        show(f"{scoring.title}: {count:,} items of {len(groups):,} sources")
        show(*estimate_blocks(estimate, "role", with_assumptions=scoring is planned[-1]))
    return 0


# --- the command ---


def run_command(
    name: str,
    description: str,
    settings_class: type[F],
    argv: Sequence[str] | None,
    *,
    plan: Callable[[F], Sequence[PlannedScoring]],
    execute: Callable[[F], R],
    render: Callable[[R, F], tuple[dict[str, Any], Sequence[OutputBlock], int]],
) -> int:
    """Run one of the commands of this folder; returns the exit code.

    Args:
        name: The command's name.
        description: For `--help`.
        settings_class: The class of its settings.
        argv: The command line; None for that of the process.
        plan: The scoring that the command would do, for the estimate.
        execute: Scores and computes the result.
        render: Result -> JSON values, tables, exit code.
    """

    def execute_command() -> int:
        flags = parse_settings(name, description, settings_class, argv)
        if flags.json != "-":
            require_writable(flags.json, "--json")
        if flags.estimate is not None:
            return _estimate(plan(flags), flags.estimate)
        record, tables, code = render(execute(flags), flags)
        if flags.json == "-":
            print(json.dumps(record, indent=2, allow_nan=False))
            return code
        show(*tables)
        if flags.json is not None:
            write_json(flags.json, record, "--json")
        return code

    return run_main(execute_command, RESUME_HINT)
