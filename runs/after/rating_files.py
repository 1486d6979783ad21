"""Files for people to rate texts in: a table, or tasks of Label Studio with the interface that asks for the ratings.

Filled in, both are read as any rated data are; `drawn` says with which probability a source was chosen to be rated.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import opening, require_file
from debate_judge.data.schema import RatedGroup, Task

_TEXTS = ("source", "context", "text")


def require_rating_file(out: str | None) -> None:
    """Check that a file of this name can be written, before anything is asked.

    Raises:
        InputError: It ends otherwise, or cannot be written.
    """
    if out is not None and Path(out).suffix.lower() not in (".csv", ".json"):
        raise InputError("not a file to rate in", field="--out", expected="a .csv table, or .json tasks", found=out)
    require_file(out, "--out")


def write_rating_file(out: str, task: Task, groups: Sequence[RatedGroup], raters: Mapping[str, int]) -> None:
    """Write texts to rate: a table, or where the name ends in .json tasks of Label Studio beside its interface (.xml).

    Args:
        out: The file.
        task: Its labels and rubrics are what raters see in Label Studio.
        groups: The sources, in this order.
        raters: Aspect -> how many people are to rate each text. In a table each has a column; in Label Studio each
            makes an annotation.
    """
    rows, path = list(_rows(groups)), Path(out)
    with opening(path, "--out"):
        if path.suffix.lower() == ".json":
            tasks = [{"data": row} for row in rows]
            path.write_text(json.dumps(tasks, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
            path.with_suffix(".xml").write_text(_interface(task, rows[0], list(raters)), encoding="utf-8")
            return
        own = [name for name in rows[0] if name != "drawn"]
        asked = [f"{a}_{i}" if n > 1 else a for a, n in raters.items() for i in range(1, n + 1)]
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, [*own, *asked, *(["drawn"] if "drawn" in rows[0] else [])], restval="")
            table.writeheader()
            table.writerows(rows)


def _rows(groups: Sequence[RatedGroup]) -> Iterator[dict[str, str | float]]:
    """A row for each text, all with the same columns."""
    shown = [name for name in ("source", "context") if any(getattr(group, name) for group in groups)]
    chosen = any(group.drawn is not None for group in groups)
    for group in groups:
        texts = {name: getattr(group, name) for name in shown}
        drawn = {"drawn": group.drawn or ""} if chosen else {}
        for one in group.candidates:
            yield {"group": group.id, **texts, "candidate": one.id, "text": one.text, **drawn}


def _interface(task: Task, columns: Mapping[str, object], aspects: Sequence[str]) -> str:
    """The labelling interface for a project of Label Studio."""
    labels = dict(zip(_TEXTS, (task.source_label, task.context_label, task.candidate_label), strict=True))
    lines = ["<View>"]
    for name in _TEXTS:
        if name in columns:
            lines.append(f"  <Header value={quoteattr(labels[name])}/>")
            lines.append(f'  <Text name="{name}" value="${name}"/>')
    for name in aspects:
        aspect = task.aspect(name)
        scale = aspect.scale
        lines.append(f"  <Header value={quoteattr(f'{name}: {aspect.definition}')}/>")
        bounds = f'min="{scale.low:g}" max="{scale.high:g}" step="{scale.step:g}"'
        lines.append(f'  <Number name={quoteattr(name)} toName="text" {bounds} required="true"/>')
    return "\n".join([*lines, "</View>", ""])
