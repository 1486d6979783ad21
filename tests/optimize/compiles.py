"""Compiles without a tracked run, on a runner of the test's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from debate_judge.data.schema import Corpus
from debate_judge.optimize.compile import learn_and_measure
from debate_judge.optimize.plan import CompilePlan, CompileRun, load, make_plan
from debate_judge.optimize.result import Result
from debate_judge.optimize.settings import Settings
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.runs.runner import JudgeRunner


def plan_of(settings: Settings, personas: Mapping[str, str], corpus: Corpus | None = None) -> CompilePlan:
    return make_plan(load(settings, corpus), settings, personas)


def compiled(
    settings: Settings, personas: Mapping[str, str], runner: JudgeRunner, reflection: JudgeLM, **changes: Any
) -> Result:
    """Compile with `runner`; `changes` are further fields of its run."""

    return learn_and_measure(CompileRun(plan_of(settings, personas), runner, reflection, **changes))
