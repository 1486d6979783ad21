"""Judges in MLflow's registry."""

from __future__ import annotations

from debate_judge.runs.tracking.model import Registration


def registration(name: str, version: str = "", about: str = "") -> Registration:
    return Registration(name=name, description=about, version_description=version)
