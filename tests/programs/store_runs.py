"""Debates in batch jobs, also in a second process."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from debate_judge.programs.judge import Item, Judgement, Verdict
from debate_judge.programs.lm.batch.engine import recorded_jobs
from debate_judge.programs.lm.batch.service import BatchJob
from debate_judge.programs.lm.client import JudgeLM, LMOptions, ReplyStore
from debate_judge.programs.lm.options import BatchTiming
from debate_judge.programs.lm.store import SqlStore
from debate_judge.programs.make_lm import make_lm
from tests.batch_server import BatchServer
from tests.programs.faults import judge

SHORT_WAITS = LMOptions(
    batch="openai",
    batch_timing=BatchTiming(quiet_period=0.05, first_poll=0.001, max_poll=0.004, max_outage=20.0),
    first_wait=0.005,
    max_wait=0.02,
)
"""Waits short enough for a test."""
SHORT_OUTAGE = replace(SHORT_WAITS, batch_timing=replace(SHORT_WAITS.batch_timing, max_outage=0.2))
"""For services that stay down."""


def lm_at(server: BatchServer, *, store: ReplyStore | None = None, options: LMOptions = SHORT_WAITS) -> JudgeLM:
    # So low that a limit on the concurrency of batch calls would be noticed.
    return make_lm("openai/mock", api_base=server.url, store=store, options=options, concurrency=2)


def resumed(folder: Path, server: BatchServer, items: list[Item], options: LMOptions = SHORT_WAITS) -> list[Judgement]:
    """Judge as a second process: with the same folder and nothing else."""
    with closing(SqlStore(folder)) as store:
        return judge(lm_at(server, store=store, options=options), items)


def recorded(folder: Path) -> list[BatchJob]:
    with closing(SqlStore(folder)) as store:
        return store.run_sync(recorded_jobs)


def scores(judgements: list[Judgement]) -> list[float | None]:
    return [j.score if isinstance(j, Verdict) else None for j in judgements]
