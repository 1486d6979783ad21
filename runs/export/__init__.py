"""Exported judges: written to a folder of JSON files, read back, and given an LM to score with.

Uses the runner; asks MLflow for nothing but an export that is kept there.
"""

from debate_judge.runs.export.folder import Export, LoadedJudge, find, load, open_judge, read, save

__all__ = ["Export", "LoadedJudge", "find", "load", "open_judge", "read", "save"]
