"""A judge in the tools that people already use: one file per tool, imported when one of its names is first used.

Uses exports and the package's public `load`; docs/integrations.md shows each tool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from debate_judge.runs.integrations.dspy_metric import ProgramMetric as ProgramMetric
    from debate_judge.runs.integrations.inspect_scorer import debate_scorer as debate_scorer
    from debate_judge.runs.integrations.mlflow_scorer import DebateScorer as DebateScorer
    from debate_judge.runs.loaded import score_frame as score_frame

_MODULES = {
    "DebateScorer": "integrations.mlflow_scorer",
    "ProgramMetric": "integrations.dspy_metric",
    "debate_scorer": "integrations.inspect_scorer",
    "score_frame": "loaded",
}

_EXTRAS = {"inspect_ai": "inspect"}
"""Library of a tool -> the extra that installs it."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"debate_judge.runs.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is None:
            raise
        from debate_judge.data.errors import install_hint

        raise ImportError(f"{name} needs {error.name}, which is not installed: {install_hint(extra)}") from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
