"""Which sources should people rate next? A sample of a pool, ready for the rating tool.

    python runs/after/next.py runs/store/exports/NAME --pool new.csv --budget 400 --out to-rate.csv
    python runs/after/next.py EXPORT --pool new.jsonl --budget 400 --out tasks.json
    python runs/after/next.py EXPORT --pool new.jsonl --budget 400 --out to-rate.csv --draw chosen

The sources are sampled at random, stratified by clusters of their words. People are asked to rate the aspects in which
the compile could not tell its judge from a single call, by as many raters as at the compile if these disagreed. The
budget is in ratings: texts x aspects x raters; all texts of a source are rated. The file has a row per text with an
empty column per aspect (.csv), or is for Label Studio (.json, and its interface .xml). With --draw chosen the exported
judge and a single call of its LM score the pool, and the further their rankings of a source's texts are apart, the
likelier it is drawn. The column `drawn` then has the probability of each source: a judge can be trained on such
sources, but no command measures agreement on them.
"""

from __future__ import annotations

import csv
import json
import math
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from xml.sax.saxutils import quoteattr

from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import require_writable, write_errors
from debate_judge.data.schema import RatedGroup, Task
from debate_judge.runs.after.common import (
    AfterFlags,
    PlannedScoring,
    find_export,
    run_command,
    score_corpus,
    settings_from,
)
from debate_judge.runs.flags.common import EXPORT, SEED
from debate_judge.runs.flags.declaration import command_settings, setting
from debate_judge.runs.flags.lm import lm_options
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.terminal import OutputBlock
from debate_judge.runs.reports.text import interval

if TYPE_CHECKING:
    from debate_judge.data.agreement.correlations import Floats
    from debate_judge.data.schema import Aspect, Corpus
    from debate_judge.runs.export.manifest import Export

RELIABLE_ALPHA = 0.8
"""Krippendorff's alpha from which on ratings are customarily called reliable (Krippendorff 2019, chapter 12)."""

_MAX_ROWS = 20
"""Sources in the table."""


@command_settings
class NextFlags(AfterFlags):
    """Settings of `next`."""

    export: str = setting(..., EXPORT, name="EXPORT", metavar="EXPORT")
    pool: str = setting(
        ...,
        "texts to choose from, in any format that can be scored; ratings in them do not count",
        metavar="FILE",
    )
    budget: str | None = setting(
        ...,
        "ratings that people can give, texts x aspects x raters; caps on the LM may follow, as in 400,usd=5",
        metavar="N",
    )
    out: str | None = setting(
        None, "file to rate in: a table (.csv) or tasks of Label Studio (.json)", metavar="FILE", affects_results=False
    )
    draw: Literal["chosen", "random"] = setting(
        "random", "at random, stratified by clusters of words; or chosen by how far two judges' rankings are apart"
    )
    raters: int | None = setting(
        None, "raters of each text", default_text="those of the compile where they disagreed, else 1", ge=1
    )
    aspects: tuple[str, ...] = setting(
        (), "aspects to rate, comma-separated", default_text="those in which the compile could not tell"
    )
    seed: int = SEED


@dataclass(frozen=True)
class NextSources:
    """What people should rate next."""

    groups: tuple[RatedGroup, ...]
    """The sources in random order, without ratings; `sampling_probability` is None if they were drawn at random."""
    distances: tuple[float, ...]
    """For each source, how far apart the two judges' rankings are, from 0 to 1; empty with `draw="random"`."""
    raters: Mapping[str, int]
    """Aspect to rate -> raters of each text."""
    aspects_left_out: Mapping[str, str]
    """Aspect that need not be rated -> what the compile showed."""
    pool: int
    """Number of sources to choose from."""
    known_sources: int
    """Number of sources that were left out, because the compile had them."""

    @property
    def texts(self) -> int:
        return sum(len(group.candidates) for group in self.groups)

    @property
    def ratings(self) -> int:
        return self.texts * sum(self.raters.values())

    def to_json(self) -> dict[str, Any]:
        distances: Sequence[float | None] = self.distances or [None] * len(self.groups)
        sources = [
            {"group": g.id, "texts": len(g.candidates), "drawn": g.sampling_probability, "rankings_apart": distance}
            for g, distance in zip(self.groups, distances, strict=True)
        ]
        return {
            "ratings": self.ratings,
            "texts": self.texts,
            "raters": dict(self.raters),
            "aspects_left_out": dict(self.aspects_left_out),
            "pool": self.pool,
            "known_sources": self.known_sources,
            "sources": sources,
        }


@dataclass(frozen=True)
class _SelectionPlan:
    """The pool to choose from, and the aspects to rate."""

    export: Export
    pool: Corpus
    aspects: tuple[Aspect, ...]
    aspects_left_out: Mapping[str, str]
    known_sources: int


def next_sources(export: str | Path, pool: str | Path, budget: int, **settings: Any) -> NextSources:
    """Choose the sources that people should rate next.

    Args:
        export: The judge's folder, or its address in MLflow.
        pool: Texts to choose from.
        budget: Ratings that people can give: texts x aspects x raters.
        settings: Settings of `debate next` by their names, e.g. `out="to-rate.csv"`, `draw="chosen"`.

    Raises:
        InputError: Settings or texts cannot be used, or the budget is too small for a source.
        dspy.LMError: The LM cannot be used.
    """
    return _select_sources(settings_from(NextFlags, settings, export=export, pool=pool, budget=str(budget)))


def main(argv: Sequence[str] | None = None) -> int:
    """Print what was chosen; returns the exit code (0 done, 2 bad input, 3 the LM failed)."""
    return run_command("next", __doc__, NextFlags, argv, plan=_scorings, execute=_select_sources, render=_render)


def _scorings(flags: NextFlags) -> list[PlannedScoring]:
    lm_flags = _split_budget(flags)[1]
    return _pool_scorings(_plan(flags), lm_flags) if flags.draw == "chosen" else []


def _select_sources(flags: NextFlags) -> NextSources:
    """Choose the sources, and write the file to rate in."""
    import numpy as np

    from debate_judge.data.inference.source_sampling import cluster_texts, inclusion_probabilities, systematic_sample

    _require_rating_file(flags.out)
    ratings, lm_flags = _split_budget(flags)
    plan = _plan(flags)
    names = [aspect.name for aspect in plan.aspects]
    raters = dict.fromkeys(names, flags.raters) if flags.raters else _raters_needed(plan.export, names)
    groups, chosen = plan.pool.groups, flags.draw == "chosen"
    distances = _distances(plan, lm_flags) if chosen else np.zeros(len(groups))
    cost = np.array([len(group.candidates) for group in groups]) * sum(raters.values())
    count = _affordable(distances, cost, ratings)
    probabilities = inclusion_probabilities(distances, count)
    clusters = cluster_texts([group.source or group.all_texts for group in groups], count, flags.seed)
    indices = systematic_sample(probabilities, clusters, np.random.default_rng(flags.seed))
    # If all sources are drawn, none was selected.
    by_distance = chosen and count < len(groups)
    sources = NextSources(
        tuple(
            replace(groups[i], sampling_probability=round(float(probabilities[i]), 6) if by_distance else None)
            for i in indices
        ),
        tuple(round(float(distances[i]), 3) for i in indices) if chosen else (),
        raters,
        plan.aspects_left_out,
        len(groups),
        plan.known_sources,
    )
    if flags.out is not None:
        _write_rating_file(flags.out, plan.export.judge.task, sources.groups, raters)
    return sources


def _split_budget(flags: NextFlags) -> tuple[int, NextFlags]:
    """The number of ratings, and the settings with the caps on the LM that follow it in `--budget`."""
    number, _, caps = (flags.budget or "").partition(",")
    if not number.strip().isdecimal():
        expected = "a number of ratings, and after it caps on the LM if you like: 400 or 400,usd=5"
        raise InputError("not a number of ratings", field="--budget", expected=expected, found=flags.budget)
    lm_flags = replace(flags, budget=caps or None)
    # Refuses caps that cannot be read.
    lm_options(lm_flags)
    return int(number), lm_flags


def _plan(flags: NextFlags) -> _SelectionPlan:
    from debate_judge.data.schema import Corpus, Origin
    from debate_judge.runs.export.loaded import select_aspects
    from debate_judge.runs.export.recorded import recorded_scores_in
    from debate_judge.runs.scoring.scorer import new_groups

    export = find_export(flags, flags.export)
    judged = tuple(select_aspects(export.judge, flags.aspects or None))
    aspects_left_out = {} if flags.aspects else _conclusive_aspects(export)
    task, recorded = export.judge.task, recorded_scores_in(export.manifest)
    read_groups = new_groups(flags.pool, task, flags.task, flags.columns, flags.sources)
    unrated = [replace(group.without_ratings, sampling_probability=None) for group in read_groups]
    known = frozenset() if recorded is None else recorded.compile_sources
    groups = tuple(group for group in unrated if group.source_id not in known)
    if not groups:
        raise InputError(
            "there is no new source to select: the compile used all of them",
            file=flags.pool,
            field="--pool",
            expected="texts of sources that it did not use",
            found=f"{len(unrated)} sources",
        )
    informative = tuple(aspect for aspect in judged if aspect.name not in aspects_left_out)
    pool = Corpus(task, groups, Origin(Path(flags.pool).name, flags.pool))
    # If the compile could tell in all aspects whether its judge is better, all are rated.
    return _SelectionPlan(
        export, pool, informative or judged, aspects_left_out if informative else {}, len(unrated) - len(groups)
    )


def _conclusive_aspects(export: Export) -> dict[str, str]:
    """Aspect in which the compile showed a difference between its judge and a single call -> the difference."""
    from debate_judge.runs.export.recorded import RecordedFigure, evidence_part

    return {
        name: f"compiled judge minus single call {interval(gain, '+')}"
        for name, gain in (evidence_part(export.manifest, "gains", dict[str, RecordedFigure]) or {}).items()
        if gain.low is not None and gain.high is not None and not gain.low <= 0 <= gain.high
    }


def _raters_needed(export: Export, aspects: Sequence[str]) -> dict[str, int]:
    """Aspect -> how many people should rate a text: as many as at the compile where these disagreed, else one."""
    from debate_judge.runs.export.recorded import RecordedRaters, evidence_part

    by_judge = evidence_part(export.manifest, "raters", dict[str, dict[str, RecordedRaters]]) or {}
    recorded = next(iter(by_judge.values()), {})
    disagreed = {
        name: aspect.raters
        for name, aspect in recorded.items()
        if aspect.alpha is not None and aspect.alpha < RELIABLE_ALPHA
    }
    return {name: disagreed.get(name, 1) for name in aspects}


def _pool_scorings(plan: _SelectionPlan, flags: NextFlags) -> list[PlannedScoring]:
    """The exported judge and a single call on the pool; in aspects where the export is a single call, a debate."""
    from debate_judge.programs import build_preset
    from debate_judge.programs.compiled import AspectJudge, CompiledJudge

    exported = plan.export.judge
    single, debate = AspectJudge(build_preset("single", {})), AspectJudge(build_preset("debate", {}))

    def is_single_call(name: str) -> bool:
        judge = exported.aspects[name].judge
        same_config = judge.kind == single.judge.kind and judge.config() == single.judge.config()
        return same_config and judge.instructions() == single.judge.instructions()

    comparison_judges = {aspect.name: debate if is_single_call(aspect.name) else single for aspect in plan.aspects}
    comparison = replace(plan.export, judge=CompiledJudge(exported.task, comparison_judges))
    return [
        PlannedScoring.of("the exported judge", plan.export, plan.pool, plan.aspects, flags),
        PlannedScoring.of("the judge for comparison", comparison, plan.pool, plan.aspects, flags),
    ]


def _distances(plan: _SelectionPlan, flags: NextFlags) -> Floats:
    """How far apart the two judges' rankings of each source are: root mean square over aspects."""
    import numpy as np

    from debate_judge.data.inference.source_sampling import rank_distance

    first, second = (score_corpus(planned).scores for planned in _pool_scorings(plan, flags))
    return np.asarray(np.sqrt(np.mean([rank_distance(first[a], second[a]) ** 2 for a in first], axis=0)))


def _affordable(distances: Floats, cost: Floats, budget: int) -> int:
    """The largest number of sources whose expected cost is within the budget.

    Raises:
        InputError: The budget is too small for one source.
    """
    from debate_judge.data.inference.source_sampling import inclusion_probabilities

    def expected_cost(count: int) -> int:
        # Rounded first, because the sum of probabilities has rounding errors.
        return math.ceil(round(float(inclusion_probabilities(distances, count) @ cost), 6))

    affordable = bisect_right(range(1, len(cost) + 1), budget, key=expected_cost)
    if not affordable:
        raise InputError(
            "too few ratings for a single source",
            field="--budget",
            expected=f"at least {round(float(cost.mean())):,}: texts of a source x aspects x raters",
            found=budget,
            remedy="choose fewer aspects with --aspects, or fewer raters with --raters",
        )
    return affordable


def _render(result: NextSources, flags: NextFlags) -> tuple[dict[str, Any], list[OutputBlock], int]:
    aspects_to_rate = ", ".join(name if n == 1 else f"{name} by {n} raters" for name, n in result.raters.items())
    lines: list[OutputBlock] = [
        f"{len(result.groups)} of {result.pool:,} sources to rate: {result.texts:,} texts, "
        f"{result.ratings:,} ratings of {aspects_to_rate}"
    ]
    if result.known_sources:
        lines.append(f"{result.known_sources} others were used by the compile and are left out")
    lines += [f"{name} is left out: {why}; --aspects asks for it" for name, why in result.aspects_left_out.items()]
    header, table_groups = ["source", "texts"], result.groups[:_MAX_ROWS]
    rows = [[group.id, str(len(group.candidates))] for group in table_groups]
    if result.distances:
        header += ["drawn", "rankings apart"]
        for row, group, distance in zip(rows, table_groups, result.distances, strict=False):
            row += [f"{group.sampling_probability or 1:.3f}", f"{distance:.2f}"]
    hidden = len(result.groups) - len(table_groups)
    lines += ["", DataTable(header, rows), *([f"and {hidden} more"] if hidden else []), ""]
    if result.distances:
        lines.append(
            "drawn: the probability of the source; rankings apart: distance of the judge's ranking to that of a "
            "single call (of a debate, where the judge is one), from 0 to 1. Selected sources can be learnt from, but "
            "are never held out and are no evidence"
        )
    if flags.out is not None:
        lines.append(f"written to {flags.out}; once filled in, it is rated data like any other")
    return result.to_json(), lines, 0


# --- the file to rate in ---


def _require_rating_file(out: str | None) -> None:
    """Check that a file of this name can be written, before any LM is called.

    Raises:
        InputError: It is neither .csv nor .json, or cannot be written.
    """
    if out is not None and Path(out).suffix.lower() not in (".csv", ".json"):
        raise InputError(
            "not a file format for ratings", field="--out", expected="a .csv table, or .json tasks", found=out
        )
    require_writable(out, "--out")


def _write_rating_file(out: str, task: Task, groups: Sequence[RatedGroup], raters: Mapping[str, int]) -> None:
    """Write texts to rate: a table, or for a .json file tasks of Label Studio and its interface (.xml).

    `raters` is the number of raters of each text by aspect. In a table each rater has a column; in Label Studio each
    makes an annotation, and sees the task's labels and rubrics.
    """
    rows, path = list(_rows(groups)), Path(out)
    with write_errors(path, "--out"):
        if path.suffix.lower() == ".json":
            tasks = [{"data": row} for row in rows]
            path.write_text(json.dumps(tasks, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
            path.with_suffix(".xml").write_text(_labelling_interface(task, rows[0], list(raters)), encoding="utf-8")
            return
        text_columns = [name for name in rows[0] if name != "drawn"]
        rating_columns = [f"{a}_{i}" if n > 1 else a for a, n in raters.items() for i in range(1, n + 1)]
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(
                file, [*text_columns, *rating_columns, *(["drawn"] if "drawn" in rows[0] else [])], restval=""
            )
            table.writeheader()
            table.writerows(rows)


def _rows(groups: Sequence[RatedGroup]) -> Iterator[dict[str, str | float]]:
    """A row for each text, all with the same columns."""
    text_fields = [name for name in ("source", "context") if any(getattr(group, name) for group in groups)]
    chosen = any(group.sampling_probability is not None for group in groups)
    for group in groups:
        texts = {name: getattr(group, name) for name in text_fields}
        probability_column = {"drawn": group.sampling_probability or ""} if chosen else {}
        for candidate in group.candidates:
            yield {"group": group.id, **texts, "candidate": candidate.id, "text": candidate.text, **probability_column}


def _labelling_interface(task: Task, columns: Collection[str], aspects: Sequence[str]) -> str:
    """The labelling interface for a project of Label Studio."""
    labels = dict(
        zip(("source", "context", "text"), (task.source_label, task.context_label, task.candidate_label), strict=True)
    )
    lines = ["<View>"]
    for name, label in labels.items():
        if name in columns:
            lines.append(f"  <Header value={quoteattr(label)}/>")
            lines.append(f'  <Text name="{name}" value="${name}"/>')
    for name in aspects:
        aspect = task.aspect(name)
        scale = aspect.scale
        lines.append(f"  <Header value={quoteattr(f'{name}: {aspect.definition}')}/>")
        bounds = f'min="{scale.low:g}" max="{scale.high:g}" step="{scale.step:g}"'
        lines.append(f'  <Number name={quoteattr(name)} toName="text" {bounds} required="true"/>')
    return "\n".join([*lines, "</View>", ""])


if __name__ == "__main__":
    raise SystemExit(main())
