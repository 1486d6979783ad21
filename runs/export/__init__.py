"""Exported judges: saved as a folder of JSON files, read again, and connected to an LM to score texts.

Uses the runner, and MLflow only to fetch an export that is stored there.
"""

from debate_judge.runs.export.folder import Export, LoadedJudge, find, load, open_judge, read, save

__all__ = ["Export", "LoadedJudge", "find", "load", "open_judge", "read", "save"]
