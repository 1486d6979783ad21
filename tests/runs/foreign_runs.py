"""Runs as other processes have started them."""

from __future__ import annotations

from collections.abc import Mapping

from debate_judge.runs.tracking.store import TrackingStore


def started(place: TrackingStore, name: str, tags: Mapping[str, str] | None = None) -> str:
    """Start a run that nothing in this process is writing to; returns its id."""
    run_id: str = place.client.create_run(place.experiment_id, run_name=name, tags=dict(tags or {})).info.run_id
    return run_id
