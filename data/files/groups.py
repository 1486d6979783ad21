"""The project's own formats: JSON lines (one group a line) and CSV (one candidate a row).

A line of JSON, broken up here for reading:

    {"group": "a1", "task": "summarization", "source": "The council voted …", "references": ["…"],
     "candidates": [{"id": "lead-3", "text": "The council …", "ratings": {"coherence": [4, 5, 4], "fluency": 5}}]}

`task` is a built-in task or the path of a task file relative to the data; it may be missing where the caller
gives one. `context`, `references` and `ratings` are optional. A CSV has the columns source and text, optionally
group, candidate, context, reference and task, and otherwise one column per rated aspect (`4`, `4;5;4` for
several raters, blank for unrated). Without the column group every row is a group of its own, named by its number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.data.files.group_records import GroupRecord, Tasks, csv_groups, jsonl_groups
from debate_judge.data.files.records import did_you_mean
from debate_judge.data.files.task_file import find_task
from debate_judge.data.schema import Corpus, Level, Origin, Task

__all__ = ["SUFFIXES", "GroupRecord", "iter_groups", "load", "require_level", "require_ratings"]

SUFFIXES = (".jsonl", ".csv")


def iter_groups(path: str | Path, task: Task | str | None = None) -> Iterator[GroupRecord]:
    """Stream the groups of a .jsonl or .csv file; ratings are optional.

    One group is held at a time, so nothing is checked across groups: that is what `load` is for. In a CSV the
    rows of a group have to stand together.

    Args:
        path: the file.
        task: a task, the name of a built-in one or the path of a task file. Groups that name another task are
            left out, groups that name none are taken to be of this one.

    Raises:
        InputError: naming file, line and field.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            "a file of groups must end in " + " or ".join(SUFFIXES), file=path, found=path.suffix or "no suffix"
        )
    tasks = Tasks(path, find_task(task) if isinstance(task, str) else task)
    return csv_groups(path, tasks) if path.suffix.lower() == ".csv" else jsonl_groups(path, tasks)


def load(path: str | Path, task: Task | str | None = None) -> Corpus:
    """Read all groups of one task from a .jsonl or .csv file.

    Raises:
        InputError: as `iter_groups`, and for several tasks in the file with none chosen, a group id that occurs
            twice, or a source text in two groups (it could then be trained on and tested on).
    """
    path = Path(path)
    first: GroupRecord | None = None
    ids: dict[str, int] = {}
    sources: dict[str, GroupRecord] = {}
    for entry in iter_groups(path, task):
        first = first or entry
        if entry.task.name != first.task.name:
            raise InputError(
                "the file has groups of several tasks",
                file=path,
                line=entry.line,
                field="task",
                expected=f"{first.task.name}, as in line {first.line}",
                found=entry.task.name,
                remedy=f"choose one with --task, e.g. --task {entry.task.name}",
            )
        _refuse_twice(path, entry, ids, sources)
    if first is None:
        raise _nothing_found(path, task)
    groups = tuple(entry.group for entry in sources.values())
    return Corpus(first.task, groups, Origin(path.stem, str(path)))


def require_ratings(corpus: Corpus, aspects: Sequence[str]) -> None:
    """Refuse a corpus that nothing can be compared with.

    Raises:
        InputError: an aspect is unknown to the task, nobody rated it, or all its ratings are equal.
    """
    known = [a.name for a in corpus.task.aspects]
    for name in aspects:
        if name not in known:
            raise InputError(
                f"the task {corpus.task.name!r} has no aspect {name!r}",
                field="aspects",
                expected="some of " + ", ".join(known),
                found=name,
                remedy=did_you_mean(name, known),
            )
        values = {r for g in corpus.groups for r in g.ratings(name) if r is not None}
        if not values:
            rated = corpus.rated_aspects()
            raise InputError(
                f"no candidate has a rating of {name}",
                file=corpus.origin.location,
                field=name,
                found="ratings of " + ", ".join(rated) if rated else "no ratings at all",
                remedy=f'add "ratings": {{"{name}": …}} to candidates (CSV: a column {name}), or choose other aspects',
            )
        if len(values) == 1:
            raise InputError(
                f"all ratings of {name} are equal, so no judge can agree with them more than another",
                file=corpus.origin.location,
                field=name,
                expected="at least two different ratings",
                found=f"only {min(values):g}",
                remedy="add ratings that differ, or leave this aspect out",
            )


def require_level(corpus: Corpus, level: Level) -> None:
    """Refuse a level of agreement that the corpus cannot have.

    Raises:
        InputError: summary level without a group of several candidates, or system level where no two candidate
            ids occur in several groups.
    """
    if level == "summary" and not corpus.grouped:
        raise InputError(
            "summary-level agreement compares the candidates of one source, and every source here has only one",
            file=corpus.origin.location,
            remedy="choose the level sample, or give sources with several candidates",
        )
    if level == "system":
        seen = Counter(c.id for g in corpus.groups for c in g.candidates)
        if sum(count > 1 for count in seen.values()) < 2:
            raise InputError(
                "system-level agreement needs at least two candidate ids that occur in several groups",
                file=corpus.origin.location,
                field="candidates.id",
                found=f"{len(seen)} ids on {seen.total()} candidates",
                remedy="use the name of the system that wrote a candidate as its id, or choose the level sample",
            )


def _refuse_twice(path: Path, entry: GroupRecord, ids: dict[str, int], sources: dict[str, GroupRecord]) -> None:
    group, text = entry.group, " ".join(entry.group.source.split())
    if group.id in ids:
        raise InputError(
            f"a second group with the id {group.id!r}",
            file=path,
            line=entry.line,
            field="group",
            expected="an id of its own for every group",
            found=f"the id of line {ids[group.id]}",
            remedy="put the rows of a group next to each other"
            if path.suffix.lower() == ".csv"
            else "put all candidates of a source on one line, or rename one of the groups",
        )
    if text in sources:
        other = sources[text]
        raise InputError(
            f"groups {other.group.id!r} and {group.id!r} have the same source text",
            file=path,
            line=entry.line,
            field="source",
            expected="every source in one group only, so that none is both trained on and tested on",
            found=f"the source of line {other.line}: {group.source!r}",
            remedy="put all candidates of this source into one group",
        )
    ids[group.id], sources[text] = entry.line, entry


def _nothing_found(path: Path, task: Task | str | None) -> InputError:
    names = sorted({entry.task.name for entry in iter_groups(path)}) if task is not None else []
    if not names:
        return InputError("no groups in the file", file=path, expected="at least one group with its candidates")
    wanted = task.name if isinstance(task, Task) else task
    return InputError(
        f"no group of task {wanted!r} in the file",
        file=path,
        field="task",
        found="groups of " + ", ".join(names),
        remedy=f"choose one of them with --task, e.g. --task {names[0]}",
    )
