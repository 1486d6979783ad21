"""promptfoo: a Python assertion, in a file of one line that promptfoo is pointed at (`file://judge.py`).

    from debate_judge.runs.integrations.promptfoo_assert import get_assert

The assertion's `config` has `export` and optionally `source` (the variable that holds the source), `aspects` and
`threshold` (the lowest score from 0 to 1 of each aspect that passes, .5 by default).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from statistics import fmean
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.runs.integrations.batching import SourceBatcher
from debate_judge.runs.integrations.common import text_in, to_unit

_CONFIG_KEYS = ("export", "source", "aspects", "threshold")


def get_assert(output: str, context: Mapping[str, Any]) -> dict[str, Any]:
    """Judge an output of promptfoo.

    Args:
        output: The text.
        context: With the test's `vars`, of which one is the source, and the assertion's `config`.

    Returns:
        promptfoo's grading result: `pass`, `score` (0 to 1, the mean over aspects), `reason`, `namedScores` and, for
        each aspect, a result in `componentResults`. A text without a score does not pass, and the reason says why.

    Raises:
        InputError: The configuration or the variables cannot be used.
    """
    config = context.get("config") or {}
    export = config.get("export")
    if not export or not set(config) <= {*_CONFIG_KEYS}:
        raise InputError(
            "the assertion's config names no export" if not export else "unknown entry in the assertion's config",
            field="config",
            expected=", ".join(_CONFIG_KEYS),
            found=", ".join(config) or "nothing",
        )
    batcher = _batcher(str(export))
    source = text_in(context.get("vars") or {}, "source", config.get("source"))
    scores = batcher.score(source=source, text=output, aspects=config.get("aspects"))
    threshold, task = float(config.get("threshold", 0.5)), batcher.judge.task
    unit_scores = {name: to_unit(score.score, task.aspect(name)) for name, score in scores.items()}
    valid = {name: unit for name, unit in unit_scores.items() if unit is not None}
    components = [
        {"pass": name in valid and valid[name] >= threshold, "score": valid.get(name, 0.0), "reason": score.reason}
        for name, score in scores.items()
    ]
    return {
        "pass": all(component["pass"] for component in components),
        # promptfoo needs a number. A text with a missing score fails, instead of a mean over 0 for that aspect.
        "score": fmean(valid.values()) if len(valid) == len(unit_scores) else 0.0,
        "reason": "\n".join(f"{name}: {score.reason}" for name, score in scores.items()),
        "namedScores": valid,
        "componentResults": components,
    }


@lru_cache(maxsize=8)
def _batcher(export: str) -> SourceBatcher:
    return SourceBatcher(export)
