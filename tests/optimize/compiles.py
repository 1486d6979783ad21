"""Compiles without a tracked run, on a runner of the test's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from debate_judge.optimize.compile import learn_and_measure
from debate_judge.optimize.plan import CompileRun, make_plan
from debate_judge.optimize.result import Result
from debate_judge.optimize.settings import Settings
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.runs.runner import JudgeRunner


def compiled(
    settings: Settings, personas: Mapping[str, str], runner: JudgeRunner, reflection: JudgeLM, **changes: Any
) -> Result:
    """Compile with `runner`; `changes` are further fields of its run."""

    return learn_and_measure(CompileRun(make_plan(settings, personas), runner, reflection, **changes))
