"""An exported judge, and rated texts of which it was compiled on some."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from debate_judge.data.calibration import Calibration
from debate_judge.data.schema import RatedGroup, group_to_json
from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs.export.folder import save
from tests.runs.rated_corpora import COHERENCE, TASK, corpus

SEEN = 4
"""Sources of `RATED` that the judge was tuned on."""

RATED = corpus(*([1 + (g + i * (1 + g % 2)) % 5 for i in range(5)] for g in range(16)))
"""Every candidate's text begins with its rating."""


def export(folder: Path, *, spec: str = "offline") -> Path:
    """The judge, compiled on the first `SEEN` sources."""
    judge = AspectJudge(build("debate", JUDGES["single"].config), calibration=Calibration(((1, 1), (5, 5)), 4, 20))
    seen = sorted(group.source_id for group in RATED.groups[:SEEN])
    compiled = CompiledJudge(TASK, {COHERENCE.name: judge})
    return save(folder, compiled, lm={"spec": spec}, evidence={"compiled_on": seen}, name="mine")


def file_of(path: Path, groups: Iterable[RatedGroup]) -> str:
    path.write_text("".join(json.dumps({**group_to_json(g), "task": TASK.name}) + "\n" for g in groups))
    return str(path)
