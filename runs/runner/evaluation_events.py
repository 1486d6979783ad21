"""OpenTelemetry: an event `gen_ai.evaluation.result` for every score, where a provider of logs is configured.

Nothing is imported: without OpenTelemetry in the process there is no provider.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from debate_judge.programs.grouping import Item

if TYPE_CHECKING:
    from debate_judge.runs.runner.streaming import Score

EVENT = "gen_ai.evaluation.result"


def emit_event(item: Item, score: Score) -> None:
    """Emit the event of a score, in the span of the caller; without a score, with the kind of failure as its label.

    The attributes are those of OpenTelemetry's conventions for generative AI. `gen_ai.evaluation.explanation` is the
    judge's reason, which may quote the text.
    """
    logs = sys.modules.get("opentelemetry._logs")
    if logs is None:
        return
    logger = logs.get_logger("debate_judge")
    if not logger.enabled(event_name=EVENT):
        return
    attributes: dict[str, str | float] = {
        "gen_ai.evaluation.name": item.aspect.name,
        "gen_ai.evaluation.explanation": score.reason,
    }
    if score.score is None:
        attributes["gen_ai.evaluation.score.label"] = "unscored"
        attributes["error.type"] = score.unscored or "unscored"
    else:
        attributes["gen_ai.evaluation.score.value"] = score.score
    logger.emit(event_name=EVENT, attributes=attributes)
