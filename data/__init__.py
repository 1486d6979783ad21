"""Rated texts: what they are (schema), where they come from (loaders), how they are split and compared.

Uses neither DSPy nor MLflow. A new public set is one file in `sets` with a function `load` and one line in `LOADERS`;
its test calls `data.testing.check_corpus` on a few records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.schema import Corpus, Origin, Task

if TYPE_CHECKING:
    from debate_judge.data.files.formats import RecordFile

__all__ = ["LOADERS", "load", "public_set"]

Loader = Callable[[Path | None, Task | None], Corpus]
"""(path of a local copy or None to download the set, task or None for the set's own) -> corpus."""


def load(
    spec: str | RecordFile, task: Task | str | None = None, columns: Iterable[str] = (), sources: int | None = None
) -> Corpus:
    """Load a corpus by the value of --data.

    Args:
        spec: The name of a set in `LOADERS`, NAME=PATH for a local copy of it, a file in one of the formats of
            `data.files.formats`, or hf:NAME@SPLIT; or a file whose format was detected.
        task: A task, the name of a built-in one or the path of a task file. Of a file, only groups of this task are
            read; for a public set it replaces the wording of its task, and must have the same name and aspects.
        columns: `NAME=COLUMN` for each column that the file names differently.
        sources: How many sources, the first ones of the data; None for all.

    Raises:
        InputError: The name is unknown, the data cannot be used, or there are fewer sources.
    """
    corpus = _loaded(spec, task, columns)
    if sources is not None and sources > len(corpus.groups):
        raise InputError(
            "there are fewer sources than that",
            file=corpus.origin.location,
            field="sources",
            expected=f"at most {len(corpus.groups)}; leave it out to use all of them",
            found=sources,
        )
    return replace(corpus, groups=corpus.groups[:sources])


def _loaded(spec: str | RecordFile, task: Task | str | None, columns: Iterable[str]) -> Corpus:
    from debate_judge.data.files import formats, groups
    from debate_judge.data.files.columns import ColumnNames
    from debate_judge.data.tasks import find_task

    chosen_task, column_names = find_task(task) if isinstance(task, str) else task, ColumnNames.parse(columns)
    if not isinstance(spec, str):
        return groups.load(spec, chosen_task, column_names)
    name, equals, path = spec.partition("=")
    if name in LOADERS:
        if column_names.named:
            raise InputError(f"{name} has fixed columns", field="--columns", expected="a file of your own as --data")
        if equals and not path:
            raise InputError(f"no path after {spec!r}", field="--data", expected=f"{name}=PATH, or {name} alone")
        return LOADERS[name](Path(path) if equals else None, chosen_task)
    misspelled = equals and not Path(spec).exists() and did_you_mean(name, LOADERS)
    if formats.is_supported(spec) and not misspelled:
        return groups.load(spec, chosen_task, column_names)
    expected = f"{', '.join(LOADERS)}, one of them with =PATH, a file ending in {', '.join(formats.SUFFIXES)}, or "
    raise InputError(
        f"unknown data {spec!r}",
        field="--data",
        expected=f"{expected}{formats.HUB}NAME@SPLIT",
        remedy=did_you_mean(name, LOADERS),
    )


def public_set(module: str, *name: str) -> Loader:
    """The loader in a module of `data/sets`, which gets the set's name where the module has several."""

    # Imported only when loaded, because --help needs the names alone.
    def load_set(path: Path | None, task: Task | None) -> Corpus:
        corpus: Corpus = import_module(f"debate_judge.data.sets.{module}").load(path, *name)
        return corpus if task is None else _with_task(corpus, task)

    return load_set


def _sample(path: Path | None, task: Task | None) -> Corpus:
    from importlib import resources

    from debate_judge.data.files import groups
    from debate_judge.data.tasks import SUMMARIZATION

    if path is not None:
        raise InputError("the sample is part of the package", field="--data", expected="sample", found=f"sample={path}")
    task = task or SUMMARIZATION
    with resources.as_file(resources.files("debate_judge.data") / "sample" / f"{task.name}.jsonl") as file:
        if not file.exists():
            problem = f"there is no sample for the task {task.name!r}"
            raise InputError(problem, field="--task", expected="summarization or dialogue")
        corpus = groups.load(file, task)
    return replace(corpus, origin=Origin("sample", f"data/sample/{task.name}.jsonl"))


def _with_task(corpus: Corpus, task: Task) -> Corpus:
    theirs, ours = ({a.name: replace(a.scale, on_steps=False) for a in each.aspects} for each in (corpus.task, task))
    if task.name != corpus.task.name or theirs != ours:
        raise InputError(
            f"{corpus.origin.name} is rated for another task",
            field="--task",
            expected=f"{corpus.task.name}, or a task file with this name and the aspects "
            + ", ".join(f"{name} ({scale})" for name, scale in theirs.items()),
            found=f"{task.name}: " + ", ".join(f"{name} ({scale})" for name, scale in ours.items()),
        )
    return replace(corpus, task=task)


LOADERS: dict[str, Loader] = {
    **{
        name: public_set("published", name)
        for name in (
            *("summeval", "topical_chat", "qags", "qags_xsum"),
            *("halueval", "halueval_dialogue", "halueval_summarization"),
            *("halueval_drawn", "halueval_dialogue_drawn", "halueval_summarization_drawn"),
            *("factool", "factool_claims", "faireval"),
        )
    },
    "judgebench": public_set("judgebench"),
    "sample": _sample,
}
"""Name after --data -> loader."""
