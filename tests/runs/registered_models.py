"""Judges in MLflow's registry, and runs as other processes start them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.agreement.tables import compare
from debate_judge.runs.tracking.champion import Challenger
from debate_judge.runs.tracking.model import Registration
from debate_judge.runs.tracking.store import TrackingStore

HELD_OUT = {"clarity": [GroupScores(str(n), ("a", "b"), (1.0, 2.0), (1.0, 2.0)) for n in range(6)]}
paired_difference = partial(compare, statistic="spearman", level="summary", resamples=100, seed=0)


def registration(name: str, version: str = "", about: str = "") -> Registration:
    challenger = Challenger(HELD_OUT, paired_difference)
    return Registration(name=name, description=about, version_description=version, challenger=challenger)


def started(store: TrackingStore, name: str, tags: Mapping[str, str] | None = None) -> str:
    """Start a run that nothing in this process is writing to; returns its id."""
    run_id: str = store.client.create_run(store.experiment_id, run_name=name, tags=dict(tags or {})).info.run_id
    return run_id
