"""The entrants of a comparison: presets by name, and exports by folder."""

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
    names: Sequence[str], aspects: Sequence[Aspect], options: Mapping[str, Any] | None = None
) -> list[Entrant]:
    """The judges that a user named, in that order.

    Args:
        names: Presets, judges as `module:Class`, or folders of exports.
        aspects: What they are to judge.
        options: What the user set about judges; each preset takes those that it has, exports stay as they are.

    Raises:
        InputError: A name twice, an unknown one, or an export that does not judge one of the aspects.
    """
    chosen = options_for(names, options or {})
    found = [_entrant(name, aspects, chosen.get(name, {}), names) for name in names]
    twice = {c.name for c in found if sum(c.name == other.name for other in found) > 1}
    # Two exports whose folders have the same name go by their paths.
    found = [
        Entrant(name, c.aspects, c.held_out) if c.name in twice and c.held_out is not None else c
        for name, c in zip(names, found, strict=True)
    ]
    for i, c in enumerate(found):
        if c.name in {other.name for other in found[:i]}:
            raise InputError("a judge is named twice", field="--judges", expected="each judge once", found=c.name)
    return found


def _entrant(name: str, aspects: Sequence[Aspect], options: Mapping[str, Any], names: Sequence[str]) -> Entrant:
    if name not in JUDGES and Path(name).is_dir():
        return _export(name, aspects, names)
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


def _export(folder: str, aspects: Sequence[Aspect], names: Sequence[str]) -> Entrant:
    from debate_judge.runs.export.manifest import read

    # A judge of the user's own that takes part itself may be imported for an export of it, too.
    export = read(Path(folder), judges=names)
    missing = [a.name for a in aspects if a.name not in export.judge.aspects]
    if missing:
        raise InputError(
            "the export does not judge these aspects",
            file=folder,
            expected=", ".join(a.name for a in aspects),
            found="only " + ", ".join(export.judge.aspects),
            remedy="name the aspects that it judges with --aspects",
        )
    splits = export.manifest["evidence"].get("splits")
    held_out = splits.get("held_out") if isinstance(splits, Mapping) else None
    return Entrant(Path(folder).name, export.judge.aspects, str(held_out or ""))


def expected() -> str:
    """What may be named, in words."""
    return f"one of {', '.join(JUDGES)}, module:Class, or the folder of an export"
