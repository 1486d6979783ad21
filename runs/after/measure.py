"""How good are my systems? Means on the raters' scale, from few ratings and a judge's scores of all texts.

    python runs/after/measure.py rows.jsonl
    python runs/after/measure.py texts.csv --scores scores.jsonl
    python runs/after/measure.py texts.csv --program runs/store/exports/NAME --json

FILE has rows of {group, candidate, aspect, rating, score} as for `debate agreement`, most without a rating; or, with
--scores or --program, texts of which some are rated, in any format that a compile takes. The candidate's id names the
system. The rated sources must have been drawn at random. Each mean is that of the ratings, corrected by the scores of
the sources without ratings (PPI++), with a 95 % interval over sources that is never wider than that of the ratings
alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from debate_judge.data.errors import InputError
from debate_judge.runs.after.common import (
    AfterFlags,
    PlannedScoring,
    Scores,
    corpus_for,
    find_export,
    run_command,
    score_corpus,
    settings_from,
    shared_aspects,
)
from debate_judge.runs.flags.common import EXPORT
from debate_judge.runs.flags.declaration import command_settings, setting
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.terminal import OutputBlock
from debate_judge.runs.reports.text import interval

if TYPE_CHECKING:
    from debate_judge.data.inference.prediction_powered import SystemsTable
    from debate_judge.data.schema import Corpus, Scale

SAMPLING_CHECK_P = 0.01
"""p-value below which a warning says that rated sources have other scores than the rest."""


@command_settings
class MeasureFlags(AfterFlags):
    """Settings of `measure`."""

    file: str = setting(..., "rows of scores and ratings, or texts", name="FILE", metavar="FILE")
    scores: str | None = setting(None, "scores of the texts, as `debate score` writes them", metavar="SCORES")
    program: str | None = setting(None, f"score the texts with {EXPORT}", metavar="EXPORT")


def measure(file: str | Path, **settings: Any) -> dict[str, SystemsTable]:
    """Estimate how good systems are, from few ratings and a judge's scores of all texts.

    Args:
        file: Rows of scores and ratings; with `scores` or `program`, texts of which some are rated.
        settings: Settings of `debate measure` by their names, e.g. `scores="scores.jsonl"`, `aspects=["coherence"]`.

    Returns:
        Aspect -> the mean rating of every system, their differences, and the ranks that the differences support.

    Raises:
        InputError: Settings or files cannot be used, or no system of an aspect has enough rated sources.
        dspy.LMError: The LM cannot be used.
    """
    return _measure(settings_from(MeasureFlags, settings, file=file))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit code (0 done, 2 bad input, 3 the LM failed)."""
    return run_command("measure", __doc__, MeasureFlags, argv, plan=_scorings, execute=_measure, render=_render)


def _measure(flags: MeasureFlags) -> dict[str, SystemsTable]:
    from debate_judge.data.inference.prediction_powered import MIN_RATED_SOURCES, measure_systems

    scores, scales = _read_scores(flags)
    ends = {aspect: (scale.low, scale.high) for aspect, scale in scales.items()}
    tables = {aspect: measure_systems(groups, ends.get(aspect)) for aspect, groups in scores.items()}
    for aspect, table in tables.items():
        if not table.systems:
            raise InputError(
                f"no system has enough ratings of {aspect}",
                field="candidate",
                expected=f"ids that name systems, and a system with ratings in {MIN_RATED_SOURCES} sources or more",
                found=f"{len(table.left_out)} ids, e.g. {', '.join(table.left_out[:3])}",
                remedy="give the texts of a system the same candidate id in every source, and rate more sources",
            )
    return tables


def _read_scores(flags: MeasureFlags) -> tuple[Scores, dict[str, Scale]]:
    """Scores and ratings from the named files, and the aspects' scales where the files have them."""
    from debate_judge.runs.evaluation.rows import scores_of

    if flags.scores and flags.program:
        raise InputError("scores come from two sources", field="--scores", expected="--scores or --program, not both")
    if flags.program:
        (planned,) = _scorings(flags)
        return score_corpus(planned).scores, {aspect.name: aspect.scale for aspect in planned.aspects}
    if flags.scores:
        from debate_judge.data import load
        from debate_judge.data.requirements import require_ratings
        from debate_judge.runs.evaluation.score_files import read_external
        from debate_judge.runs.human_ratings import resolve_data

        corpus = _without_selected_ratings(
            load(resolve_data(flags.file, flags.tracking_uri), flags.task, flags.columns, flags.sources)
        )
        names = corpus.select_aspects(flags.aspects)
        require_ratings(corpus, names)
        aspects = tuple(corpus.task.aspect(name) for name in names)
        external = read_external(Path(flags.scores), "scores", corpus, aspects)
        return scores_of(external.rows), {aspect.name: aspect.scale for aspect in aspects}
    from debate_judge.runs.evaluation.score_files import read_rated_scores

    return scores_of(read_rated_scores(Path(flags.file), aspects=flags.aspects, sources=flags.sources).rows), {}


def _without_selected_ratings(corpus: Corpus) -> Corpus:
    """The corpus without the ratings of selected sources: means of ratings need sources that were drawn at random."""
    return replace(
        corpus, groups=tuple(g if g.sampling_probability is None else g.without_ratings for g in corpus.groups)
    )


def _scorings(flags: MeasureFlags) -> list[PlannedScoring]:
    if flags.program is None:
        return []
    export = find_export(flags, flags.program)
    corpus = _without_selected_ratings(corpus_for(export, flags.file, flags))
    return [PlannedScoring.of("texts", export, corpus, shared_aspects(export, corpus, flags.aspects), flags)]


def _render(tables: Mapping[str, SystemsTable], flags: MeasureFlags) -> tuple[dict[str, Any], list[OutputBlock], int]:
    blocks: list[OutputBlock] = []
    for aspect, table in tables.items():
        rated = f"{table.rated} rated sources and {table.others} with scores only"
        title = f"{aspect}: mean rating of each system, by {rated}"
        header = ["system", "mean", "ratings alone", "weight", "ratings", "saved", "rank"]
        rows = [
            [
                system_mean.system,
                interval(system_mean.mean),
                f"{system_mean.mean.alone:.2f} [{system_mean.mean.alone_low:.2f}, {system_mean.mean.alone_high:.2f}]",
                f"{system_mean.mean.weight:.2f}",
                f"{system_mean.ratings}",
                f"{system_mean.saved_ratings:.0f}",
                f"{system_mean.best_rank}"
                if system_mean.best_rank == system_mean.worst_rank
                else f"{system_mean.best_rank}-{system_mean.worst_rank}",
            ]
            for system_mean in table.systems
        ]
        blocks += ["", title, "", DataTable(header, rows), *_notes(table)]
    legend = (
        "mean: 95 % intervals over sources (t); weight: of the judge's scores, 0 where only ratings count; saved: how "
        "many more ratings would give this interval without the judge; rank: what paired differences support (p < .05, "
        "Holm over all pairs)"
    )
    return {aspect: table.to_json() for aspect, table in tables.items()}, [*blocks, "", legend], 0


def _notes(table: SystemsTable) -> list[OutputBlock]:
    notes: list[OutputBlock] = []
    if table.left_out:
        notes.append(f"left out for lack of ratings: {', '.join(table.left_out)}")
    if table.rated_minus_others is not None and table.rated_minus_others.p_value < SAMPLING_CHECK_P:
        notes.append(
            f"the judge scores rated sources {table.rated_minus_others.value:+.2f} away from the others (p = "
            f"{table.rated_minus_others.p_value:.3f}): if they were not drawn at random, neither kind of mean holds "
            "for all sources"
        )
    return notes


if __name__ == "__main__":
    raise SystemExit(main())
