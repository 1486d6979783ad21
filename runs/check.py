"""Show how rated data are read and what a compile could show with them; no LM is called.

    python runs/check.py ratings.xlsx
    python runs/check.py ratings.csv --columns source=question,text=answer --task support.toml
    python runs/check.py ratings.csv --write-task support.toml      # save the draft

Unless the data or --task names a task, check drafts one from the names and contents of the columns: texts, aspects with
their scales, raters. What it cannot decide it asks, and shows the line to add. To use the draft, save it with
--write-task, edit it, and pass it as --task.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from debate_judge.data.errors import InputError, write_errors
from debate_judge.runs.command_line import command
from debate_judge.runs.flags import command_settings, run_command, setting
from debate_judge.runs.reports.tables import DataTable, OutputBlock, Verbatim, show
from debate_judge.runs.shared_flags import COLUMNS, SEED, SOURCES, together_question

if TYPE_CHECKING:
    from debate_judge.data.corpus_statistics import AspectStatistics, CorpusStatistics
    from debate_judge.data.files.formats import RecordFile
    from debate_judge.data.schema import Corpus, Level
    from debate_judge.data.splits import Sets, Splits
    from debate_judge.runs.draft import Draft

_STANDARD_DEVIATIONS = (
    (0.14, "on average over four aspects"),
    (0.26, "in one aspect"),
)
"""Standard deviations over sources of the difference in Spearman's correlation between a debate and a single call, as
measured with a strong LM on SummEval (16 candidates per source). A compile prints those of its own data."""

_MAX_GROUPS = 1_000
"""Groups from which the agreement of raters is computed; it takes seconds for a thousand."""

_MAX_DISTINCT = 11
"""With more distinct ratings than this, their quartiles are printed instead of the share of each."""


@command_settings
class CheckFlags:
    """Settings of one check."""

    file: str = setting(..., "rated data, in any format that compile takes", flag="FILE", metavar="FILE")
    columns: tuple[str, ...] = COLUMNS
    task: str | None = setting(None, "summarization, dialogue, pairs, or your own task file (.toml)")
    sources: int | None = SOURCES
    write_task: str | None = setting(None, "save the drafted task to this file, for you to edit", metavar="FILE")
    seed: int = SEED


def main(argv: Sequence[str] | None = None) -> int:
    """Print how the data are read; returns the exit code (0 done, 2 data that cannot be used)."""
    return run_command("check", __doc__, CheckFlags, _run, argv)


def _run(flags: CheckFlags) -> int:
    from debate_judge import data
    from debate_judge.data.corpus_statistics import corpus_statistics
    from debate_judge.data.splits import ordered_sets

    file = _recognized_file(flags)
    draft = _draft(flags, file)
    _save_task(flags.write_task, draft)
    lines: list[OutputBlock] = [flags.file if isinstance(file, str) else f"{flags.file}: {file.format}"]
    if draft:
        lines += _drafted(draft, flags)
    if draft and draft.is_open:
        show(*lines, "", "Answer the open questions first; then the file can be read.", *_how_to_answer(flags))
        return 2
    task, columns = flags.task, flags.columns
    if draft:
        # A task file has the names of the columns.
        task = draft.built_in or flags.write_task or "FILE.toml"
        columns = tuple(f"{role}={c}" for role, c in draft.roles.items() if role != c) if draft.built_in else ()
    corpus = data.load(file, draft.task() if draft and not draft.built_in else task, columns, flags.sources)
    statistics, sets = corpus_statistics(corpus), ordered_sets(corpus, flags.seed)
    feasibility, compilable = _feasibility(corpus, flags.seed, sets)
    lines += [] if draft else [f"task: {corpus.task.name}"]
    lines += ["", *_first_texts(corpus), *_counts(statistics, sets), "", *_aspects(corpus, statistics)]
    lines += [*_outcomes(corpus), *feasibility, ""]
    if not corpus.rated_aspects():
        lines.append(f"Say which columns hold ratings, e.g. --columns {corpus.task.aspects[0].name}=COLUMN")
    elif not compilable:
        lines.append("These data are not enough for a compile yet; see above for what is missing.")
    else:
        unsaved = draft and not draft.built_in and not flags.write_task
        step = "Save the task (--write-task), edit it, then estimate" if unsaved else "To estimate"
        lines += together_question(len(group.candidates) for group in corpus.groups)
        lines += [f"{step} what a compile would cost:", _compile_command(corpus, flags, task, columns, compilable)]
    show(*lines)
    return 0


def _recognized_file(flags: CheckFlags) -> RecordFile | str:
    """The file with its format, marked so that reading does not log it; a public data set stays a name."""
    from debate_judge.data import LOADERS
    from debate_judge.data.files.formats import detect_format, is_supported
    from debate_judge.runs.human_ratings import resolve_data

    file = resolve_data(flags.file, "FILE")
    if not isinstance(file, str) or file.partition("=")[0] in LOADERS or not is_supported(file):
        return file
    return replace(detect_format(file), is_default=True)


def _draft(flags: CheckFlags, file: RecordFile | str) -> Draft | None:
    """The draft of a mapping; None if a task is named."""
    from debate_judge.data.files.columns import ColumnNames
    from debate_judge.data.files.formats import RecordFile, short_name
    from debate_judge.data.tasks import TASKS
    from debate_judge.runs.draft import draft_mapping

    names = ColumnNames.parse(flags.columns)
    if flags.task is not None or not isinstance(file, RecordFile):
        return None
    first = next(file.records(None), None)
    column = names.roles.get("task", "task")
    tasks = [str(value) for key, value in first.values.items() if str(key).lower() == column] if first else []
    if first is None or any(name in TASKS or name.endswith(".toml") for name in tasks):
        return None
    return draft_mapping(file, names, short_name(flags.file))


def _save_task(path: str | None, draft: Draft | None) -> None:
    if path is None:
        return
    if draft is None:
        remedy = "leave it out, or give data without a task of its own"
        raise InputError("the task is named, so none is drafted", field="--write-task", found=path, remedy=remedy)
    if Path(path).suffix != ".toml" or Path(path).exists():
        problem = "the file already exists" if Path(path).exists() else "not the name of a task file"
        raise InputError(problem, field="--write-task", expected="a new file ending in .toml", found=path)
    with write_errors(Path(path), "--write-task"):
        Path(path).write_text(draft.toml(), encoding="utf-8")


# --- what is printed ---


def _drafted(draft: Draft, flags: CheckFlags) -> list[OutputBlock]:
    """How each column was understood, and the questions."""
    lines: list[OutputBlock] = [DataTable(["column", "how it is understood"], [*map(list, draft.understood.items())])]
    for number, question in enumerate(draft.questions, start=1):
        place = "[columns]" if question.place == "columns" else f"[aspects.{question.place}]"
        lines += ["", f"Question {number}{' (open)' if question.open else ''}: {question.text}, in {place}:"]
        lines += [Verbatim(f"  {line}") for line in question.lines]
    task = "drafted, because none was given; --write-task FILE.toml saves it for you to edit"
    if draft.built_in:
        task = f"{draft.built_in}, which all ratings fit; pass --task {draft.built_in}, or your own task file"
    elif flags.write_task:
        task = f"drafted and saved in {flags.write_task}; edit it before you use it"
    return [*lines, "", f"task: {task}"]


def _how_to_answer(flags: CheckFlags) -> list[OutputBlock]:
    check, task = f"  {command('check')} {shlex.quote(flags.file)}", flags.write_task or "task.toml"
    steps = [] if flags.write_task else [Verbatim(f"{check} --write-task {task}")]
    return [*steps, Verbatim(f"{check} --task {task}    # once you have added the line")]


def _first_texts(corpus: Corpus) -> list[OutputBlock]:
    """The first two texts as they are judged."""

    def shortened(text: str, limit: int = 30) -> str:
        text = " ".join(text.split())
        return text if len(text) <= limit else text[: limit - 1] + "…"

    rows = []
    for group, candidate in [(g, c) for g in corpus.groups[:2] for c in g.candidates][:2]:
        ratings = (f"{name} {', '.join(f'{v:g}' for v in values)}" for name, values in candidate.ratings.items())
        rows.append([shortened(group.source) or "–", shortened(candidate.text), "; ".join(ratings) or "–"])
    return [DataTable(["source", "text", "ratings"], rows, "The first two texts as they would be judged"), ""]


def _counts(statistics: CorpusStatistics, sets: Sets) -> list[OutputBlock]:
    fewest, middle, most = statistics.group_sizes
    size = f"{most}" if fewest == most else f"{fewest} to {most}, median {middle:g}"
    unit = "sources" if statistics.sources else "texts without a source"
    if 0 < statistics.sources < statistics.groups:
        unit = f"groups of {statistics.sources:,} sources"
    rows = [["groups", f"{statistics.groups:,} {unit}, {statistics.candidates:,} candidates ({size} per group)"]]
    optional_fields = {"a context": statistics.contexts, "references": statistics.references}
    rows += [[name, f"{count:,} of {statistics.groups:,} groups"] for name, count in optional_fields.items() if count]
    if statistics.comments:
        rows.append(["comments", f"{statistics.comments:,} of raters"])
    rows.append(["repeated in a group" if statistics.sources else "repeated texts", f"{statistics.repeated_texts:,}"])
    # Several pairs of one source are no near-duplicates.
    near = sum(len(members) for members in sets if len({group.source_key for group in members}) > 1)
    rows.append(["near-duplicates", f"{near:,} groups, never separated by a split" if near else "0"])
    return [DataTable(["data", "found"], rows)]


def _aspects(corpus: Corpus, statistics: CorpusStatistics) -> list[OutputBlock]:
    """The ratings of each aspect, as the raters gave them; those of which less is better are judged upside down."""
    if not statistics.aspects:
        return ["No candidate has a rating: the texts can be scored, but nothing can be compiled from them."]
    of_raters = _agreement_of_raters(corpus)
    mapped = corpus.task.columns.get("aspects", {})
    rows, lines = [], []
    for figures in statistics.aspects:
        name, scale, (fewest, most) = figures.aspect.name, figures.aspect.scale, figures.raters
        less = bool(mapped.get(name, {}).get("lower_is_better"))
        if less:
            values = {scale.low + scale.high - value: number for value, number in figures.values.items()}
            figures = replace(figures, values=Counter(values))
        cells = [f"{scale}{', less is better' * less}", f"{figures.rated:,}", f"{figures.missing:,}"]
        cells += [f"{most}" if fewest == most else f"{fewest} to {most}", f"{figures.mean:.2f}"]
        cells.append(f"{100 * figures.tied / figures.pairs:.0f} %" if figures.pairs else "–")
        rows.append([name, *cells, *(of_raters.get(name, ("–", "–")) if of_raters else ())])
        lines.append(_distribution(figures))
    within = "of one group" if statistics.group_sizes[2] > 1 else "of the whole file"
    note = f"(tied pairs: two candidates {within} with equal mean ratings, which no judge can rank"
    if of_raters:
        note += "; alpha: Krippendorff's; one rater: Spearman correlation of one rater with the others, "
        note += "the human ceiling"
    header = ["aspect", "scale", "rated", "missing", "raters", "mean", "tied pairs"]
    return [DataTable(header + (["alpha", "one rater"] if of_raters else []), rows), f"{note})", "", *lines]


def _distribution(figures: AspectStatistics) -> str:
    name, total = figures.aspect.name, figures.values.total()
    values = sorted(figures.values)
    if len(values) > _MAX_DISTINCT:
        ratings = sorted(figures.values.elements())
        quartiles = " / ".join(f"{ratings[round(share * (total - 1))]:g}" for share in (0, 0.25, 0.5, 0.75, 1))
        return f"{name}: {len(values)} different ratings, minimum / quartiles / maximum {quartiles}"
    return f"{name}: " + ", ".join(f"{value:g}: {100 * figures.values[value] / total:.0f} %" for value in values)


def _agreement_of_raters(corpus: Corpus) -> dict[str, tuple[str, ...]]:
    """Aspect -> alpha, and the agreement of one rater with the others, an upper bound for any judge, of the first
    `_MAX_GROUPS` groups."""
    from debate_judge.data.agreement.correlations import agreement, krippendorff_alpha, raters_as_judges
    from debate_judge.data.agreement.figures import GroupScores

    found = {}
    level: Level = "summary" if corpus.grouped else "sample"
    for name in corpus.rated_aspects():
        groups = []
        for group in corpus.groups[:_MAX_GROUPS]:
            by_rater = tuple(tuple(c.ratings.get(name, ())) for c in group.candidates)
            # Agreement among raters does not depend on scores; the mean ratings are passed as scores.
            ids, means = tuple(c.id for c in group.candidates), tuple(group.ratings(name))
            groups.append(GroupScores(group.id, ids, means, means, by_rater, group.source_id))
        if any(len(values) > 1 for group in groups for values in group.raters):
            alpha = krippendorff_alpha([values for group in groups for values in group.raters])
            figures = (alpha, agreement(raters_as_judges(groups), "spearman", level).value)
            found[name] = tuple("–" if value is None else f"{value:.2f}" for value in figures)
    return found


def _outcomes(corpus: Corpus) -> list[OutputBlock]:
    """How often each text of pairs won, by the names of the texts."""
    lines: list[OutputBlock] = []
    for aspect in corpus.task.aspects:
        pairs = [group for group in corpus.groups if group.is_pair(aspect)]
        wins = Counter(c.id for group in pairs for c in group.candidates for v in c.ratings[aspect.name] if v > 0.5)
        ties = sum(v == 0.5 for group in pairs for v in group.candidates[0].ratings[aspect.name])
        if pairs and len(wins) <= 2:
            counts = ", ".join(f"{name} wins {number:,}" for name, number in sorted(wins.items()))
            lines.append(f"{aspect.name}: {counts}, ties {ties:,}")
    return lines


def _feasibility(corpus: Corpus, seed: int, sets: Sets) -> tuple[list[str], list[str]]:
    """Whether a compile could split the data, and what differences its held-out sources could detect.

    Returns:
        Lines to print, and the aspects that can be compiled.
    """
    from debate_judge.data.splits import MIN_RATED, default_folds, make_folds, require_ratings, split

    folds = default_folds(corpus)

    def splits_of(aspects: Sequence[str]) -> Splits:
        """The default split of a compile; with folds, its held-out part is empty."""
        require_ratings(corpus, aspects, MIN_RATED)
        if folds == 1:
            return split(corpus, aspects=aspects, seed=seed, sets=sets)
        return make_folds(corpus, aspects=aspects, seed=seed, count=folds, sets=sets).final

    refused: dict[str, list[str]] = {}
    compilable = list(corpus.select_aspects())
    for name in corpus.select_aspects():
        try:
            splits_of([name])
        except InputError as error:
            compilable.remove(name)
            # A problem that several aspects share is printed once.
            problem = f"{error.problem.replace(name, 'it')}; found: {error.found}; remedy: {error.remedy}"
            refused.setdefault(problem, []).append(name)
    lines = ["", "What a compile could show"] if compilable or refused else []
    lines += [f"  {', '.join(names)}: cannot be compiled: {problem}" for problem, names in refused.items()]
    if not compilable:
        return lines, []
    splits, unit = splits_of(compilable), "sources" if corpus.grouped else "candidates"
    train, dev, held_out = (part.sources for part in (splits.train, splits.dev, splits.held_out))
    if held_out:
        lines.append(f"  {train} {unit} to tune on, {dev} to choose on, {held_out} held out for measuring")
    else:
        held_out = corpus.sources
        lines.append(
            f"  each of the {held_out} {unit} is held out once ({folds}-fold cross-validation; --folds 1: one split)"
        )
    return [*lines, *_power(corpus, held_out, len(compilable))], compilable


def _power(corpus: Corpus, held_out: int, aspects: int) -> list[str]:
    """What so many held-out sources can show: a difference in correlation, or, pooled, the correlation itself."""
    from debate_judge.data.agreement.figures import POWER, detectable_difference

    if not corpus.grouped:
        # Fisher's transformation: the error of a pooled correlation depends on the number of pairs alone.
        error = 1.96 / math.sqrt(max(1, held_out - 3))
        low, high = (math.tanh(math.atanh(0.6) + side * error) for side in (-1, 1))
        interval = f"a 95 % interval of [{low:.2f}, {high:.2f}]"
        return [f"  a correlation of 0.60 over {held_out} held-out candidates has {interval}"]
    deviations = _STANDARD_DEVIATIONS if aspects > 1 else _STANDARD_DEVIATIONS[1:]
    return [
        f"  with {held_out} held-out sources, a difference in correlation between a debate and a single call",
        f"  is detected with {100 * POWER:.0f} % power if it is at least",
        *(f"    {detectable_difference(d, held_out):.2f} {what}" for d, what in deviations),
        "  (given the variance measured on SummEval, 16 candidates per source; a compile uses that of your data)",
    ]


def _compile_command(
    corpus: Corpus, flags: CheckFlags, task: str | None, columns: Sequence[str], compilable: Sequence[str]
) -> Verbatim:
    """The command to run next, for the aspects that can be compiled."""
    some = compilable if len(compilable) < len(corpus.select_aspects()) else ()
    given = {"data": flags.file, "task": task, "columns": ",".join(columns), "sources": flags.sources}
    given["aspects"] = ",".join(some)
    words = [f"--{name} {shlex.quote(str(value))}" for name, value in given.items() if value]
    return Verbatim(f"  {command('compile')} {' '.join(words)} --lm PROVIDER/MODEL --estimate")


if __name__ == "__main__":
    raise SystemExit(main())
