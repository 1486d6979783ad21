"""Compiles without a tracked run, on a runner of the test's own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from debate_judge.data.schema import Corpus
from debate_judge.optimize.job import compile_judge, make_plan
from debate_judge.optimize.plan import CompilePlan, CompileRun
from debate_judge.optimize.rated_data import load
from debate_judge.optimize.result import Result
from debate_judge.optimize.settings import Settings
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.runs.runner.runner import JudgeRunner


def plan_of(settings: Settings, personas: Mapping[str, str], corpus: Corpus | None = None) -> CompilePlan:
    return make_plan(load(settings, corpus), settings, personas)


def compiled(
    settings: Settings, personas: Mapping[str, str], runner: JudgeRunner, reflection: JudgeLM, **changes: Any
) -> Result:
    """Compile with `runner`; `changes` are those of its `Run`."""

    def run_factory(plan: CompilePlan) -> nullcontext[CompileRun]:
        return nullcontext(replace(CompileRun.of(plan, runner, None, reflection), **changes))

    return compile_judge(settings, personas, run_factory=run_factory)
