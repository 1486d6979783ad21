"""How an export's judge is asked about a rated corpus by the commands of this room."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import require_file, write_json
from debate_judge.data.schema import Aspect, Corpus
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.reply import replies_folder
from debate_judge.runs.flags.common import (
    COLUMNS,
    EXPORT,
    MAX_UNSCORED,
    OWN_JUDGES,
    REPLIES,
    SOURCES,
    STORE,
    SourcesText,
)
from debate_judge.runs.flags.declared import flag_group, setting
from debate_judge.runs.flags.lm import EndpointFlags, EstimateFlags, LimitFlags, limits, require_server
from debate_judge.runs.flags.parser import RESUMES, exit_code
from debate_judge.runs.reports.terminal import Printed, show

if TYPE_CHECKING:
    from debate_judge.programs.judge import Judgement
    from debate_judge.runs.export.loaded import LoadedJudge
    from debate_judge.runs.export.manifest import Export

Scores = dict[str, list[GroupScores]]
"""Aspect -> the judge's scores beside the ratings, group by group."""

PROGRAM = EXPORT
JSON_OUT = setting(
    None,
    "print JSON in place of the tables, or write it to a file beside them",
    metavar="OUT",
    const="-",
    decides=False,
)
ASPECTS = setting((), "aspects, comma-separated; by default all that are rated and that the judge knows")


@flag_group("data")
class TextFlags:
    """How a file of texts is read."""

    columns: tuple[str, ...] = COLUMNS
    task: str | None = setting(None, "task or task file of the data", shown="the judge's")
    sources: SourcesText | None = SOURCES


@flag_group("LM")
class AskingFlags(EndpointFlags, LimitFlags, EstimateFlags):
    """The LM that an export is asked with, and where its replies are kept."""

    lm: str | None = setting(None, "PROVIDER/MODEL or offline", shown="as compiled")
    store: str = STORE
    replies: str | None = REPLIES
    max_unscored: float = MAX_UNSCORED
    judge: tuple[str, ...] = OWN_JUDGES


@dataclass(frozen=True)
class Asking:
    """With which LM, and within which limits, a judge is asked."""

    lm: str | None = None
    api_base: str | None = None
    concurrency: int = 16
    store: Path | None = Path("runs/store")
    """None keeps no reply and recalls none."""
    replies: str | None = None
    options: LMOptions | None = None
    max_unscored: float = 0.2
    preflight: bool = True
    progress: bool = True

    @classmethod
    def of(cls, flags: AskingFlags) -> Asking:
        return cls(
            flags.lm,
            flags.api_base,
            flags.concurrency,
            Path(flags.store),
            flags.replies,
            limits(flags),
            flags.max_unscored,
            flags.preflight,
        )


def find_export(address: str | Path, store: Path, judges: Collection[str]) -> Export:
    """The export at an address, see `runs.export.folder.find`."""
    from debate_judge.runs.export.folder import find
    from debate_judge.runs.export.from_mlflow import MLflowStore

    return find(address, judges, MLflowStore(folder=store))


def corpus_for(export: Export, data: str, flags: TextFlags) -> Corpus:
    """Load a rated corpus of the export's task.

    Raises:
        InputError: It cannot be read, or is rated for another task.
    """
    from debate_judge import data as rated_texts
    from debate_judge.runs.human_ratings import rated_file

    task = export.judge.task
    builtin = data.partition("=")[0] in rated_texts.LOADERS
    chosen = flags.task or (task.name if data == "sample" else None if builtin else task)
    corpus = rated_texts.load(rated_file(data), chosen, flags.columns, flags.sources)
    if corpus.task.name != task.name:
        raise InputError(
            "the texts are rated for another task than the judge's",
            file=corpus.origin.location,
            field="--task",
            expected=task.name,
            found=corpus.task.name,
        )
    return corpus


def shared_aspects(export: Export, corpus: Corpus, names: Sequence[str] = ()) -> tuple[Aspect, ...]:
    """The aspects that are rated and judged.

    Raises:
        InputError: There is none, or a named one is not rated or not judged.
    """
    from debate_judge.runs.export.loaded import chosen_aspects

    judged = chosen_aspects(export.judge, names or None)
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


@dataclass(frozen=True)
class ScoredCorpus:
    """What a judge gave a corpus."""

    scores: Scores
    spec: str
    """Of the LM."""
    lm: Mapping[str, object]
    """The LM as an export records it."""
    calls_per_item: float


@dataclass(frozen=True)
class PlannedScoring:
    """An export's judge that is to score a corpus."""

    what: str
    """The texts, in a word or two."""
    export: Export
    corpus: Corpus
    aspects: Sequence[Aspect]
    asking: Asking


def score_corpus(planned: PlannedScoring) -> ScoredCorpus:
    """Score a corpus with an export.

    Raises:
        InputError: The LM's address is only in the export, or too many items have no score.
        dspy.LMError: The LM cannot be used.
    """
    from debate_judge.runs.runner.runner import calls_per_item, group_scores, require_scored

    export, corpus, aspects, asking = planned.export, planned.corpus, planned.aspects, planned.asking
    with _opened(export, asking) as judge:
        judged = _judged(judge, planned)
        sampling = {name: judge.lm.kwargs.get(name) for name in ("temperature", "max_tokens")}
        spec = asking.lm or str(export.manifest["lm"]["spec"])
        lm = {"spec": spec, "api_base": judge.lm.endpoint or None, **sampling}
    for aspect in aspects:
        require_scored(judged[aspect.name], asking.max_unscored, f"items of {aspect.name} ({planned.what})")
    own = export.judge.aspects
    scores = {a.name: group_scores(corpus, a, judged[a.name], own[a.name].granularity) for a in aspects}
    calls = calls_per_item([one for judgements in judged.values() for one in judgements])
    return ScoredCorpus(scores, spec, lm, calls)


def show_estimate(planned: Sequence[PlannedScoring], lengths: str) -> int:
    """Print what the scoring would take, a table for each part of it; returns the exit code.

    Args:
        planned: In the order in which they would be asked.
        lengths: The value of `--estimate`.

    Raises:
        InputError: Nothing would be asked, or the lengths cannot be read.
    """
    if not planned:
        raise InputError(
            "no LM is asked, so that there is nothing to estimate",
            field="--estimate",
            remedy="run the command without it: that costs nothing",
        )
    for one in planned:
        show(*_estimated(one, lengths, assumed=one is planned[-1]))
    return 0


def _estimated(planned: PlannedScoring, lengths: str, *, assumed: bool) -> list[Printed]:
    from debate_judge.runs.estimates.dry_run import reply_tokens
    from debate_judge.runs.estimates.items import estimate_scoring, scoring_target
    from debate_judge.runs.estimates.table import render
    from debate_judge.runs.runner.streaming import group_items

    export, asking, groups = planned.export, planned.asking, planned.corpus.groups
    target = scoring_target(
        export, asking.lm, asking.api_base, asking.store, asking.options, reply_tokens=reply_tokens(lengths)
    )
    items = (item for group in groups for item in group_items(export.judge.task, group, planned.aspects))
    estimate, count = estimate_scoring(target, export.judge, planned.aspects, items)
    return [f"{planned.what}: {count:,} items of {len(groups):,} sources", *render(estimate, "role", assumed=assumed)]


def _opened(export: Export, asking: Asking) -> LoadedJudge:
    from debate_judge.runs.export.lm_choice import lm_of
    from debate_judge.runs.export.loaded import open_judge

    spec, api_base, _ = lm_of(export, asking.lm, asking.api_base)
    if asking.store is not None:
        require_server(spec, api_base, str(asking.store))
    judge = open_judge(
        export,
        lm=asking.lm,
        api_base=asking.api_base,
        concurrency=asking.concurrency,
        store=None if asking.store is None else replies_folder(asking.store, spec),
        replies=None if asking.store is None else asking.replies,
        options=asking.options,
    )
    if asking.progress and judge.lm.destination is not None:
        print(judge.lm.destination, file=sys.stderr)
    return judge


def _judged(judge: LoadedJudge, planned: PlannedScoring) -> dict[str, list[Judgement]]:
    from debate_judge.runs.runner.progress import RunProgress
    from debate_judge.runs.runner.streaming import group_items

    aspects, asking = planned.aspects, planned.asking
    items = [item for group in planned.corpus.groups for item in group_items(judge.task, group, aspects)]
    if asking.preflight:
        judge.smoke_test(items[: 2 * len(aspects)])
    found: dict[str, list[Judgement]] = {aspect.name: [] for aspect in aspects}
    shown = RunProgress(judge.lm, shown=asking.progress)
    shown.start()
    try:
        with shown.over(planned.what, len(items)) as done:
            for item, judgement in judge.stream(items):
                found[item.aspect.name].append(judgement)
                done.advance()
    finally:
        shown.stop()
    return found


def require_json(out: str | None) -> None:
    """Check before anything is asked that the file of `--json` can be written; raises as `require_file`."""
    if out != "-":
        require_file(out, "--json")


def print_result(out: str | None, record: Mapping[str, object], tables: Sequence[Printed]) -> None:
    """Print a result: its tables, beside the file of `--json` if there is one, or JSON alone."""
    if out == "-":
        print(json.dumps(record, indent=2, allow_nan=False))
        return
    show(*tables)
    if out is not None:
        write_json(out, record, "--json")


def command_code(work: Callable[[], int]) -> int:
    """Carry out a command that may ask an LM.

    Returns:
        What `work` returns, 3 where the LM failed, and else as `runs.flags.parser.exit_code`.
    """
    # DSPy and LiteLLM would fetch a price list on import; nothing here needs it.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

    def guarded() -> int:
        try:
            return work()
        except Exception as error:
            dspy = sys.modules.get("dspy")
            if dspy is None or not isinstance(error, dspy.LMError):
                raise
            from debate_judge.programs.lm.errors import describe

            print(describe(error, error.model or ""), file=sys.stderr)
            return 3

    return exit_code(guarded, RESUMES)
