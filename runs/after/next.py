"""Which sources should people rate next? A sample of a pool, ready for the rating tool.

    python runs/after/next.py runs/store/exports/NAME --pool new.csv --budget 400 --out to-rate.csv
    python runs/after/next.py EXPORT --pool new.jsonl --budget 400 --out tasks.json
    python runs/after/next.py EXPORT --pool new.jsonl --budget 400 --out to-rate.csv --draw chosen

The sources are sampled at random, stratified by clusters of their words. People are asked to rate the
aspects in which the compile could not tell its judge from a single call, by as many raters as at the compile if these
disagreed. The budget is in ratings: texts x aspects x raters; sources are rated whole. The file has a row per text with
an empty column per aspect (.csv), or is for Label Studio (.json, and its interface .xml). With --draw chosen the
exported judge and a single call of its LM score the pool, and the further their rankings of a source's texts are apart,
the likelier it is drawn. A column drawn then holds the probability of each source: such sources can be learnt from, but
no command takes them as evidence.
"""

from __future__ import annotations

import csv
import json
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from xml.sax.saxutils import quoteattr

from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import opening, require_file
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
from debate_judge.runs.reports.terminal import Printed
from debate_judge.runs.reports.text import interval

if TYPE_CHECKING:
    from debate_judge.data.agreement.correlations import Floats
    from debate_judge.data.schema import Aspect, Corpus
    from debate_judge.runs.export.manifest import Export

RELIABLE = 0.8
"""Krippendorff's alpha from which on raters are customarily taken to agree (Krippendorff 2019, chapter 12)."""

_SHOWN = 20
"""Sources that the table has."""


@command_settings
class NextFlags(AfterFlags):
    """Settings of one choice of sources."""

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
    """The drawn sources, in random order, without ratings; `sampling_probability` is empty where they were drawn at
    random."""
    distances: tuple[float, ...]
    """Of each, how far apart the two judges' rankings are, from 0 to 1; empty where no judge was asked."""
    raters: Mapping[str, int]
    """Aspect to rate -> raters of each text."""
    settled: Mapping[str, str]
    """Aspect that is left out -> what the compile showed."""
    pool: int
    """Sources to choose from."""
    known: int
    """Sources of the pool that the compile knew, and which are left out."""

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
        about = {"ratings": self.ratings, "texts": self.texts, "raters": dict(self.raters)}
        return {**about, "settled": dict(self.settled), "pool": self.pool, "known": self.known, "sources": sources}


@dataclass(frozen=True)
class _Choice:
    """What is to be chosen from, and for which aspects."""

    export: Export
    pool: Corpus
    aspects: tuple[Aspect, ...]
    settled: Mapping[str, str]
    known: int


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
    return _drawn(settings_from(NextFlags, settings, export=export, pool=pool, budget=str(budget)))


def main(argv: Sequence[str] | None = None) -> int:
    """Print what was chosen; returns the exit code (0 done, 2 bad input, 3 the LM failed)."""
    return run_command("next", __doc__, NextFlags, argv, planned=_asked, execute=_drawn, render=_shown)


def _asked(flags: NextFlags) -> list[PlannedScoring]:
    caps = _budget(flags)[1]
    return _planned(_read(flags), caps) if flags.draw == "chosen" else []


def _drawn(flags: NextFlags) -> NextSources:
    """Choose the sources, and write the file to rate in."""
    import numpy as np

    from debate_judge.data.inference.source_sampling import cluster_texts, inclusion_probabilities, systematic_sample

    _require_rating_file(flags.out)
    ratings, capped = _budget(flags)
    choice = _read(flags)
    names = [aspect.name for aspect in choice.aspects]
    raters = dict.fromkeys(names, flags.raters) if flags.raters else _raters_needed(choice.export, names)
    groups, chosen = choice.pool.groups, flags.draw == "chosen"
    distances = _distances(choice, capped) if chosen else np.zeros(len(groups))
    cost = np.array([len(group.candidates) for group in groups]) * sum(raters.values())
    count = _affordable(distances, cost, ratings)
    probabilities = inclusion_probabilities(distances, count)
    kinds = cluster_texts([group.source or group.judged for group in groups], count, flags.seed)
    places = systematic_sample(probabilities, kinds, np.random.default_rng(flags.seed))
    # All sources are no choice.
    by_distance = chosen and count < len(groups)
    sources = NextSources(
        tuple(
            replace(groups[i], sampling_probability=round(float(probabilities[i]), 6) if by_distance else None)
            for i in places
        ),
        tuple(round(float(distances[i]), 3) for i in places) if chosen else (),
        raters,
        choice.settled,
        len(groups),
        choice.known,
    )
    if flags.out is not None:
        _write_rating_file(flags.out, choice.export.judge.task, sources.groups, raters)
    return sources


def _budget(flags: NextFlags) -> tuple[int, NextFlags]:
    """The ratings, and the settings with the caps on the LM that follow them as its budget."""
    number, _, caps = (flags.budget or "").partition(",")
    if not number.strip().isdecimal():
        expected = "a number of ratings, and after it caps on the LM if you like: 400 or 400,usd=5"
        raise InputError("not a number of ratings", field="--budget", expected=expected, found=flags.budget)
    capped = replace(flags, budget=caps or None)
    lm_options(capped)
    return int(number), capped


def _read(flags: NextFlags) -> _Choice:
    from debate_judge.data.schema import Corpus, Origin
    from debate_judge.runs.export.loaded import chosen_aspects
    from debate_judge.runs.export.recorded import recorded_in
    from debate_judge.runs.scoring.scorer import new_groups

    export = find_export(flags, flags.export)
    judged = tuple(chosen_aspects(export.judge, flags.aspects or None))
    settled = {} if flags.aspects else _settled_aspects(export)
    task, recorded = export.judge.task, recorded_in(export.manifest)
    read_groups = new_groups(flags.pool, task, flags.task, flags.columns, flags.sources)
    everything = [replace(group.unrated, sampling_probability=None) for group in read_groups]
    known = frozenset() if recorded is None else recorded.known
    groups = tuple(group for group in everything if group.source_id not in known)
    if not groups:
        raise InputError(
            "there is no new source to select: the compile used all of them",
            file=flags.pool,
            field="--pool",
            expected="texts of sources that it did not use",
            found=f"{len(everything)} sources",
        )
    rest = tuple(aspect for aspect in judged if aspect.name not in settled)
    pool = Corpus(task, groups, Origin(Path(flags.pool).name, flags.pool))
    # Where everything is settled, there is nothing to leave out.
    return _Choice(export, pool, rest or judged, settled if rest else {}, len(everything) - len(groups))


def _settled_aspects(export: Export) -> dict[str, str]:
    """Aspect -> what the compile showed of its judge and a single call, where it could tell them apart."""
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
    known = next(iter(by_judge.values()), {})
    disagreed = {name: one.raters for name, one in known.items() if one.alpha is not None and one.alpha < RELIABLE}
    return {name: disagreed.get(name, 1) for name in aspects}


def _planned(choice: _Choice, flags: NextFlags) -> list[PlannedScoring]:
    """The exported judge and the single call, from which it was not shown to differ in all aspects."""
    from debate_judge.programs import build_preset
    from debate_judge.programs.compiled import AspectJudge, CompiledJudge

    exported = choice.export.judge
    single, debate = AspectJudge(build_preset("single", {})), AspectJudge(build_preset("debate", {}))

    def plain(name: str) -> bool:
        judge = exported.aspects[name].judge
        same = judge.kind == single.judge.kind and judge.config() == single.judge.config()
        return same and judge.instructions() == single.judge.instructions()

    others = {aspect.name: debate if plain(aspect.name) else single for aspect in choice.aspects}
    rival = replace(choice.export, judge=CompiledJudge(exported.task, others))
    return [
        PlannedScoring.of("the exported judge", choice.export, choice.pool, choice.aspects, flags),
        PlannedScoring.of("a single call, for comparison", rival, choice.pool, choice.aspects, flags),
    ]


def _distances(choice: _Choice, flags: NextFlags) -> Floats:
    """How far apart the two judges' rankings of each source are: root mean square over aspects."""
    import numpy as np

    from debate_judge.data.inference.source_sampling import rank_distance

    first, second = (score_corpus(planned).scores for planned in _planned(choice, flags))
    return np.asarray(np.sqrt(np.mean([rank_distance(first[a], second[a]) ** 2 for a in first], axis=0)))


def _affordable(priority: Floats, cost: Floats, budget: int) -> int:
    """The largest number of sources whose expected cost is within the budget.

    Raises:
        InputError: It is none.
    """
    from debate_judge.data.inference.source_sampling import inclusion_probabilities

    def expected(count: int) -> int:
        # Rounded first, because probabilities add up to a hair more or less.
        return math.ceil(round(float(inclusion_probabilities(priority, count) @ cost), 6))

    affordable = bisect_right(range(1, len(cost) + 1), budget, key=expected)
    if not affordable:
        raise InputError(
            "too few ratings for a single source",
            field="--budget",
            expected=f"at least {round(float(cost.mean())):,}: texts of a source x aspects x raters",
            found=budget,
            remedy="choose fewer aspects with --aspects, or fewer raters with --raters",
        )
    return affordable


def _shown(plan: NextSources, flags: NextFlags) -> tuple[dict[str, Any], list[Printed], int]:
    wanted = ", ".join(name if n == 1 else f"{name} by {n} raters" for name, n in plan.raters.items())
    lines: list[Printed] = [
        f"{len(plan.groups)} of {plan.pool:,} sources to rate: {plan.texts:,} texts, {plan.ratings:,} ratings of "
        + wanted
    ]
    if plan.known:
        lines.append(f"{plan.known} others were used by the compile and are left out")
    lines += [f"{name} is left out: {why}; --aspects asks for it" for name, why in plan.settled.items()]
    header, shown = ["source", "texts"], plan.groups[:_SHOWN]
    rows = [[group.id, str(len(group.candidates))] for group in shown]
    if plan.distances:
        header += ["drawn", "rankings apart"]
        for row, group, distance in zip(rows, shown, plan.distances, strict=False):
            row += [f"{group.sampling_probability or 1:.3f}", f"{distance:.2f}"]
    more = len(plan.groups) - len(shown)
    lines += ["", DataTable(header, rows), *([f"and {more} more"] if more else []), ""]
    if plan.distances:
        lines.append(
            "drawn: the probability of the source; rankings apart: distance of the judge's ranking to that of the "
            "single call, from 0 to 1. Selected sources can be learnt from, but are never held out and are no evidence"
        )
    if flags.out is not None:
        lines.append(f"written to {flags.out}; once filled in, it is rated data like any other")
    return plan.to_json(), lines, 0


# --- the file to rate in ---


def _require_rating_file(out: str | None) -> None:
    """Check that a file of this name can be written, before anything is asked.

    Raises:
        InputError: It ends otherwise, or cannot be written.
    """
    if out is not None and Path(out).suffix.lower() not in (".csv", ".json"):
        raise InputError(
            "not a file format for ratings", field="--out", expected="a .csv table, or .json tasks", found=out
        )
    require_file(out, "--out")


def _write_rating_file(out: str, task: Task, groups: Sequence[RatedGroup], raters: Mapping[str, int]) -> None:
    """Write texts to rate: a table, or where the name ends in .json tasks of Label Studio beside its interface (.xml).

    `raters` says how many people are to rate each text in an aspect. In a table each has a column; in Label Studio each
    makes an annotation, and sees the task's labels and rubrics.
    """
    rows, path = list(_rows(groups)), Path(out)
    with opening(path, "--out"):
        if path.suffix.lower() == ".json":
            tasks = [{"data": row} for row in rows]
            path.write_text(json.dumps(tasks, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
            path.with_suffix(".xml").write_text(_interface(task, rows[0], list(raters)), encoding="utf-8")
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
    shown = [name for name in ("source", "context") if any(getattr(group, name) for group in groups)]
    chosen = any(group.sampling_probability is not None for group in groups)
    for group in groups:
        texts = {name: getattr(group, name) for name in shown}
        probability_column = {"drawn": group.sampling_probability or ""} if chosen else {}
        for candidate in group.candidates:
            yield {"group": group.id, **texts, "candidate": candidate.id, "text": candidate.text, **probability_column}


def _interface(task: Task, columns: Mapping[str, object], aspects: Sequence[str]) -> str:
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
