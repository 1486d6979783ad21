"""Debates in batch jobs, stopped and taken up again."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, Item, Judgement, Verdict
from debate_judge.programs.lm.batch.engine import recorded_jobs
from debate_judge.programs.lm.batch.service import BatchJob
from debate_judge.programs.lm.client import JudgeLM, LMOptions, ReplyStore
from debate_judge.programs.lm.options import BatchTiming
from debate_judge.programs.lm.store import SqlStore
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner.runner import JudgeRunner
from tests.batch_server import BatchServer

HURRY = LMOptions(
    batch="openai",
    batch_timing=BatchTiming(quiet_period=0.05, first_poll=0.001, max_poll=0.004, max_outage=20.0),
    first_wait=0.005,
    max_wait=0.02,
)
"""Waits short enough for a test."""

IMPATIENT = replace(HURRY, batch_timing=replace(HURRY.batch_timing, max_outage=0.2))
"""For services that stay down."""

ONE_ROUND = {("scorer", "0"): 20, ("critic", "1"): 20, ("scorer", "1"): 10}
"""Calls in the jobs of 20 items: the Critic objects to every second one."""


def lm_at(server: BatchServer, *, store: ReplyStore | None = None, options: LMOptions = HURRY) -> JudgeLM:
    # A concurrency that would show if it held calls back.
    return make_lm("openai/mock", api_base=server.url, store=store, options=options, concurrency=2)


def judge(lm: JudgeLM, what: list[Item], rounds: int = 1) -> list[Judgement]:
    with JudgeRunner(lm, progress=False) as runner:
        return runner.judge(Debate(debate_config=DebateConfig(rounds)), what)


def resumed(folder: Path, server: BatchServer, what: list[Item], options: LMOptions = HURRY) -> list[Judgement]:
    """As another process would: the same folder, nothing else."""
    with closing(SqlStore(folder)) as store:
        return judge(lm_at(server, store=store, options=options), what)


def recorded(folder: Path) -> list[BatchJob]:
    """The jobs that the store in a folder knows."""
    with closing(SqlStore(folder)) as store:
        return store.run_sync(recorded_jobs)


def scores(judgements: list[Judgement]) -> list[float | None]:
    return [j.score if isinstance(j, Verdict) else None for j in judgements]
