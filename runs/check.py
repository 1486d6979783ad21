"""Show how rated data are read and what a compile could show with them; no LM is called.

    python runs/check.py ratings.xlsx
    python runs/check.py ratings.csv --columns source=question,text=answer --task support.toml
    python runs/check.py ratings.csv --write-task support.toml      # save the draft

Unless the data or --task names a task, check drafts one from the names and contents of the columns: texts, aspects with
their scales, raters. What it cannot decide it asks, and shows the line to add. To use the draft, save it with
--write-task, edit it, and pass it as --task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from debate_judge.data.errors import InputError
from debate_judge.runs.command_line import command
from debate_judge.runs.flags import command_settings, run_command, setting
from debate_judge.runs.reports.tables import DataTable, OutputBlock, Verbatim, show
from debate_judge.runs.shared_flags import COLUMNS, SEED, SOURCES

if TYPE_CHECKING:
    from debate_judge.data.corpus_statistics import AspectStatistics, CorpusStatistics
    from debate_judge.data.files.formats import RecordFile
    from debate_judge.data.schema import Corpus, Level
    from debate_judge.data.splits import Splits
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

    file = _recognized_file(flags)
    draft = _draft(flags, file)
    if draft is None and flags.write_task:
        raise InputError(
            "the task is named, so none is drafted",
            field="--write-task",
            found=flags.write_task,
            remedy="leave it out, or give data without a task of its own",
        )
    saved = _save_task(flags.write_task, draft)
    head = flags.file if isinstance(file, str) else f"{flags.file}: {file.format}"
    lines: list[OutputBlock] = [head, *(_drafted(draft, saved, flags) if draft else [])]
    if draft is not None and draft.is_open:
        show(*lines, "", "Answer the open questions first; then the file can be read.", *_how_to_answer(flags, saved))
        return 2
    task = flags.task if draft is None else draft.built_in or draft.task()
    columns = () if draft is not None and not draft.built_in else _columns(flags, draft)
    corpus = data.load(file, task, columns, flags.sources)
    statistics = corpus_statistics(corpus)
    feasibility, compilable = _feasibility(corpus, flags.seed)
    show(
        *lines,
        *([] if draft else [f"task: {corpus.task.name}"]),
        "",
        *_first_texts(corpus),
        *_counts(statistics),
        "",
        *_aspects(statistics, _reversed(corpus), _agreement_of_raters(corpus)),
        *_outcomes(corpus),
        *feasibility,
        "",
        *_next_command(corpus, flags, draft, saved, compilable),
    )
    return 0


def _draft(flags: CheckFlags, file: RecordFile | str) -> Draft | None:
    """The draft of a mapping; None if a task is named."""
    from debate_judge.data.files.columns import ColumnNames
    from debate_judge.data.files.formats import RecordFile, short_name
    from debate_judge.data.tasks import TASKS
    from debate_judge.runs.draft import draft_mapping

    names = ColumnNames.parse(flags.columns)
    if flags.task is not None or not isinstance(file, RecordFile):
        return None
    first = next(file.records(), None)
    column = names.roles.get("task", "task")
    tasks = [str(value) for key, value in first.values.items() if str(key).lower() == column] if first else []
    if first is None or any(name in TASKS or name.endswith(".toml") for name in tasks):
        return None
    return draft_mapping(file, names, short_name(flags.file))


def _recognized_file(flags: CheckFlags) -> RecordFile | str:
    """The file with its format, marked so that reading does not log it; a public data set stays a name."""
    from debate_judge.data import LOADERS
    from debate_judge.data.files.formats import detect_format, is_supported
    from debate_judge.runs.human_ratings import resolve_data

    file = resolve_data(flags.file, "FILE")
    if not isinstance(file, str):
        return file
    is_user_file = file.partition("=")[0] not in LOADERS and is_supported(file)
    return replace(detect_format(file), is_default=True) if is_user_file else file


def _save_task(path: str | None, draft: Draft | None) -> bool:
    from debate_judge.data.errors import write_errors

    if path is None or draft is None:
        return False
    if Path(path).suffix != ".toml" or Path(path).exists():
        problem = "the file already exists" if Path(path).exists() else "not the name of a task file"
        raise InputError(problem, field="--write-task", expected="a new file ending in .toml", found=path)
    with write_errors(Path(path), "--write-task"):
        Path(path).write_text(draft.toml(), encoding="utf-8")
    return True


def _columns(flags: CheckFlags, draft: Draft | None) -> tuple[str, ...]:
    """The entries of --columns that read the file by a built-in task."""
    if draft is None:
        return flags.columns
    return tuple(f"{role}={column}" for role, column in draft.roles.items() if role != column)


def _drafted(draft: Draft, saved: bool, flags: CheckFlags) -> list[OutputBlock]:
    """How each column was understood, and the questions."""
    lines: list[OutputBlock] = [
        DataTable(["column", "how it is understood"], [[c, how] for c, how in draft.understood])
    ]
    for number, question in enumerate(draft.questions, start=1):
        place = "[columns]" if question.place == "columns" else f"[aspects.{question.place}]"
        lines += ["", f"Question {number}{' (open)' if question.open else ''}: {question.text}, in {place}:"]
        lines += [Verbatim(f"  {line}") for line in question.lines]
    if draft.built_in:
        return [
            *lines,
            "",
            f"task: {draft.built_in}, which all ratings fit; pass --task {draft.built_in}, or your own task file",
        ]
    if saved:
        return [*lines, "", f"task: drafted and saved in {flags.write_task}; edit it before you use it"]
    return [*lines, "", "task: drafted, because none was given; --write-task FILE.toml saves it for you to edit"]


def _how_to_answer(flags: CheckFlags, saved: bool) -> list[OutputBlock]:
    import shlex

    file, task = shlex.quote(flags.file), flags.write_task if saved else "task.toml"
    steps = [] if saved else [Verbatim(f"  {command('check')} {file} --write-task {task}")]
    return [*steps, Verbatim(f"  {command('check')} {file} --task {task}    # once you have added the line")]


def _first_texts(corpus: Corpus) -> list[OutputBlock]:
    """The first two texts as they are judged."""
    texts = [(group, candidate) for group in corpus.groups[:2] for candidate in group.candidates][:2]
    rows = []
    for group, candidate in texts:
        ratings = "; ".join(
            f"{name} {', '.join(f'{value:g}' for value in values)}" for name, values in candidate.ratings.items()
        )
        rows.append([_shortened(group.source) or "–", _shortened(candidate.text), ratings or "–"])
    return [DataTable(["source", "text", "ratings"], rows, "The first two texts as they would be judged"), ""]


def _shortened(text: str, limit: int = 30) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _counts(statistics: CorpusStatistics) -> list[OutputBlock]:
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
    groups, _ = statistics.near_duplicates
    rows.append(["repeated in a group" if statistics.sources else "repeated texts", f"{statistics.repeated_texts:,}"])
    rows.append(["near-duplicates", f"{groups:,} groups, never separated by a split" if groups else "0"])
    return [DataTable(["data", "found"], rows)]


def _reversed(corpus: Corpus) -> set[str]:
    """The aspects of which less is better; they are judged upside down, and shown as the raters gave them."""
    return {name for name, mapped in corpus.task.columns.get("aspects", {}).items() if mapped.get("lower_is_better")}


def _aspects(
    statistics: CorpusStatistics, upside_down: set[str], of_raters: Mapping[str, tuple[str, str]]
) -> list[OutputBlock]:
    if not statistics.aspects:
        return ["No candidate has a rating: the texts can be scored, but nothing can be compiled from them."]
    header = ["aspect", "scale", "rated", "missing", "raters", "mean", "tied pairs"]
    header += ["alpha", "one rater"] if of_raters else []
    rows = []
    for figures in (_as_given(each, upside_down) for each in statistics.aspects):
        fewest, most = figures.raters
        raters = f"{most}" if fewest == most else f"{fewest} to {most}"
        tied = f"{100 * figures.tied / figures.pairs:.0f} %" if figures.pairs else "–"
        cells = [
            f"{figures.aspect.scale}{', less is better' * (figures.aspect.name in upside_down)}",
            f"{figures.rated:,}",
            f"{figures.missing:,}",
            raters,
            f"{figures.mean:.2f}",
            tied,
            *(of_raters.get(figures.aspect.name, ("–", "–")) if of_raters else ()),
        ]
        rows.append([figures.aspect.name, *cells])
    lines = [line for each in statistics.aspects for line in _distribution(_as_given(each, upside_down))]
    within = "of one group" if statistics.group_sizes[2] > 1 else "of the whole file"
    note = f"(tied pairs: two candidates {within} with equal mean ratings, which no judge can rank"
    if of_raters:
        note += (
            "; alpha: Krippendorff's; one rater: Spearman correlation of one rater with the others, the human ceiling"
        )
    return [DataTable(header, rows), f"{note})", "", *lines]


def _outcomes(corpus: Corpus) -> list[OutputBlock]:
    """How often each text of pairs won, by the names of the texts."""
    lines: list[OutputBlock] = []
    for aspect in corpus.task.aspects:
        pairs = [group for group in corpus.groups if group.is_pair(aspect)]
        wins = Counter(c.id for group in pairs for c in group.candidates for v in c.ratings[aspect.name] if v > 0.5)
        ties = sum(v == 0.5 for group in pairs for v in group.candidates[0].ratings[aspect.name])
        if pairs and len(wins) <= 2:
            counts = ", ".join(f"{name} wins {count:,}" for name, count in sorted(wins.items()))
            lines.append(f"{aspect.name}: {counts}, ties {ties:,}")
    return lines


def _as_given(figures: AspectStatistics, upside_down: set[str]) -> AspectStatistics:
    if figures.aspect.name not in upside_down:
        return figures
    ends = figures.aspect.scale.low + figures.aspect.scale.high
    return replace(figures, values=Counter({ends - value: count for value, count in figures.values.items()}))


def _distribution(figures: AspectStatistics) -> list[str]:
    name, total = figures.aspect.name, figures.values.total()
    values = sorted(figures.values)
    if len(values) > _MAX_DISTINCT:
        ratings = sorted(figures.values.elements())
        quartiles = " / ".join(f"{ratings[round(share * (total - 1))]:g}" for share in (0, 0.25, 0.5, 0.75, 1))
        return [f"{name}: {len(values)} different ratings, minimum / quartiles / maximum {quartiles}"]
    shares = ", ".join(f"{value:g}: {100 * figures.values[value] / total:.0f} %" for value in values)
    return [f"{name}: {shares}"]


def _agreement_of_raters(corpus: Corpus) -> dict[str, tuple[str, str]]:
    """Aspect -> alpha, and the agreement of one rater with the others, an upper bound for any judge, of the first
    `_MAX_GROUPS` groups."""
    corpus = replace(corpus, groups=corpus.groups[:_MAX_GROUPS])
    from debate_judge.data.agreement.correlations import agreement, krippendorff_alpha, raters_as_judges
    from debate_judge.data.agreement.figures import GroupScores

    found = {}
    for name in corpus.rated_aspects():
        groups = []
        for group in corpus.groups:
            by_rater = tuple(tuple(c.ratings.get(name, ())) for c in group.candidates)
            # Agreement among raters does not depend on scores; the mean ratings are passed as scores.
            ids, means = tuple(c.id for c in group.candidates), tuple(group.ratings(name))
            groups.append(GroupScores(group.id, ids, means, means, by_rater, group.source_id))
        level: Level = "summary" if corpus.grouped else "sample"
        if any(len(values) > 1 for group in groups for values in group.raters):
            of_one = agreement(raters_as_judges(groups), "spearman", level)
            alpha = krippendorff_alpha([values for group in groups for values in group.raters])
            figures = (alpha, of_one.value)
            found[name] = tuple("–" if value is None else f"{value:.2f}" for value in figures)
    return found  # type: ignore[return-value]


def _feasibility(corpus: Corpus, seed: int) -> tuple[list[str], list[str]]:
    """Whether a compile could split the data, and what differences its held-out sources could detect.

    Returns:
        Lines to print, and the aspects that can be compiled.
    """
    from debate_judge.data.splits import default_folds, require_enough_rated, require_ratings

    names = corpus.select_aspects()
    if not names:
        return [], []

    def splits_of(*aspects: str) -> Splits:
        require_ratings(corpus, aspects)
        require_enough_rated(corpus, aspects)
        return _splits(corpus, aspects, seed)

    lines = ["", "What a compile could show"]
    refused: dict[str, list[str]] = {}
    compilable = list(names)
    splits: Splits | None
    try:
        splits = splits_of(*names)
    except InputError:
        for name in names:
            try:
                splits_of(name)
            except InputError as error:
                compilable.remove(name)
                # A problem that several aspects share is printed once.
                problem = f"{error.problem.replace(name, 'it')}; found: {error.found}; remedy: {error.remedy}"
                refused.setdefault(problem, []).append(name)
        splits = splits_of(*compilable) if compilable else None
    for problem, refused_aspects in refused.items():
        lines.append(f"  {', '.join(refused_aspects)}: cannot be compiled: {problem}")
    if splits is None:
        return lines, []
    unit = "sources" if corpus.grouped else "candidates"
    train, dev, held_out = (part.sources for part in (splits.train, splits.dev, splits.held_out))
    if held_out:
        lines.append(f"  {train} {unit} to tune on, {dev} to choose on, {held_out} held out for measuring")
    else:
        held_out = corpus.sources
        lines.append(
            f"  each of the {held_out} {unit} is held out once ({default_folds(corpus)}-fold cross-validation; "
            "--folds 1: one split)"
        )
    power = _detectable_differences(held_out, len(compilable)) if corpus.grouped else _pooled_interval(held_out)
    return [*lines, *power], compilable


def _splits(corpus: Corpus, aspects: Sequence[str], seed: int) -> Splits:
    """The default split of a compile; with folds, its held-out part is empty."""
    from debate_judge.data.splits import default_folds, make_folds, split

    count = default_folds(corpus)
    if count == 1:
        return split(corpus, aspects=aspects, seed=seed)
    return make_folds(corpus, aspects=aspects, seed=seed, count=count).final


def _detectable_differences(held_out: int, aspects: int) -> list[str]:
    from debate_judge.data.agreement.figures import POWER, detectable_difference

    share = f"{100 * POWER:.0f} %"
    lines = [
        f"  with {held_out} held-out sources, a difference in correlation between a debate and a single call",
        f"  is detected with {share} power if it is at least",
    ]
    deviations = _STANDARD_DEVIATIONS if aspects > 1 else _STANDARD_DEVIATIONS[1:]
    lines += [f"    {detectable_difference(d, held_out):.2f} {what}" for d, what in deviations]
    return [
        *lines,
        "  (given the variance measured on SummEval, 16 candidates per source; a compile uses that of your data)",
    ]


def _pooled_interval(held_out: int) -> list[str]:
    import math

    # Fisher's transformation: the error of a pooled correlation depends on the number of pairs alone.
    error = 1.96 / math.sqrt(max(1, held_out - 3))
    low, high = (math.tanh(math.atanh(0.6) + side * error) for side in (-1, 1))
    return [
        f"  a correlation of 0.60 over {held_out} held-out candidates has a 95 % interval of [{low:.2f}, {high:.2f}]"
    ]


def _next_command(
    corpus: Corpus, flags: CheckFlags, draft: Draft | None, saved: bool, compilable: Sequence[str]
) -> list[OutputBlock]:
    """The command to run next, for the aspects that can be compiled."""
    import shlex

    from debate_judge.runs.shared_flags import together_question

    if not corpus.rated_aspects():
        return ["Say which columns hold ratings, e.g. --columns " + f"{corpus.task.aspects[0].name}=COLUMN"]
    if not compilable:
        return ["These data are not enough for a compile yet; see above for what is missing."]
    task, columns = flags.task, _columns(flags, draft)
    if draft is not None:
        task = draft.built_in or (flags.write_task if saved else "FILE.toml")
        # A task file has the names of the columns.
        columns = columns if draft.built_in else ()
    words = [command("compile"), "--data", shlex.quote(flags.file), *(["--task", shlex.quote(task)] if task else [])]
    words += ["--columns", shlex.quote(",".join(columns))] if columns else []
    words += ["--sources", str(flags.sources)] if flags.sources else []
    words += ["--aspects", shlex.quote(",".join(compilable))] if len(compilable) < len(corpus.select_aspects()) else []
    drafted = draft is not None and not draft.built_in
    step = "Save the task (--write-task), edit it, then estimate" if drafted and not saved else "To estimate"
    return [
        *together_question(len(group.candidates) for group in corpus.groups),
        f"{step} what a compile would cost:",
        Verbatim(f"  {' '.join(words)} --lm PROVIDER/MODEL --estimate"),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
