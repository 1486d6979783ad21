"""The entrants of a comparison: presets by name, and exports by folder or by their place in MLflow."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect
from debate_judge.programs import JUDGES, preset
from debate_judge.programs.compiled import AspectJudge, usual_granularity
from debate_judge.runs.export.folder import find
from debate_judge.runs.export.from_mlflow import USUAL_STORE, MLflowStore, in_mlflow
from debate_judge.runs.export.manifest import Export
from debate_judge.runs.flags.judge import options_for


@dataclass(frozen=True)
class Entrant:
    """One judge of the table."""

    name: str
    aspects: Mapping[str, AspectJudge]
    """Aspect -> the judge that scores it."""
    held_out: str | None = None
    """Of an export: the fingerprint of its held-out groups, which it was neither tuned nor selected on."""


def entrants(
    names: Sequence[str],
    aspects: Sequence[Aspect],
    options: Mapping[str, Any] | None = None,
    store: MLflowStore = USUAL_STORE,
) -> list[Entrant]:
    """The judges that a user named, in that order.

    Args:
        names: Presets, judges as `module:Class`, or exports as `runs.export.load` takes them.
        aspects: What they are to judge.
        options: What the user set about judges; each preset takes those that it has, exports stay as they are.
        store: Where exports in MLflow are looked up.

    Raises:
        InputError: A name twice, an unknown one, or an export that does not judge one of the aspects.
    """
    chosen = options_for([name for name in names if not in_mlflow(name)], options or {})
    # A judge of the user's own that takes part itself may be imported for an export of it, too.
    found = [
        _export(name, aspects, find(name, names, store))
        if _names_export(name)
        else _judge(name, aspects, chosen.get(name, {}))
        for name in names
    ]
    twice = {c.name for c in found if sum(c.name == other.name for other in found) > 1}
    # Two exports of the same name go by what the user wrote.
    found = [
        Entrant(name, c.aspects, c.held_out) if c.name in twice and c.held_out is not None else c
        for name, c in zip(names, found, strict=True)
    ]
    for i, c in enumerate(found):
        if c.name in {other.name for other in found[:i]}:
            raise InputError("a judge is named twice", field="--judges", expected="each judge once", found=c.name)
    return found


def _names_export(name: str) -> bool:
    return name not in JUDGES and (in_mlflow(name) or Path(name).is_dir())


def _judge(name: str, aspects: Sequence[Aspect], options: Mapping[str, Any]) -> Entrant:
    if name not in JUDGES and ":" not in name:
        near = difflib.get_close_matches(name, JUDGES, n=1)
        raise InputError(
            f"unknown judge {name!r}",
            field="--judges",
            expected=expected(),
            remedy=f"did you mean {near[0]!r}?" if near else None,
        )
    judge = preset(name, options)
    return Entrant(name, {a.name: AspectJudge(judge, usual_granularity(judge, a)) for a in aspects})


def _export(address: str, aspects: Sequence[Aspect], export: Export) -> Entrant:
    missing = [a.name for a in aspects if a.name not in export.judge.aspects]
    if missing:
        raise InputError(
            "the export does not judge these aspects",
            file=address,
            expected=", ".join(a.name for a in aspects),
            found="only " + ", ".join(export.judge.aspects),
            remedy="name the aspects that it judges with --aspects",
        )
    splits = export.manifest["evidence"].get("splits")
    held_out = splits.get("held_out") if isinstance(splits, Mapping) else None
    return Entrant(_short(address, export), export.judge.aspects, str(held_out or ""))


def _short(address: str, export: Export) -> str:
    """Its folder's name, its name in the registry, or the name of its run."""
    if not in_mlflow(address):
        return Path(address).name
    return address.partition(":/")[2] if address.startswith("models:/") else str(export.manifest["name"])


def expected() -> str:
    """What may be named, in words."""
    return f"one of {', '.join(JUDGES)}, module:Class, or an export: folder, models:/NAME@champion, or id of its run"
