"""DSPy: a judge as the metric of another program, for `dspy.Evaluate`, GEPA, MIPROv2 and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import dspy

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect
from debate_judge.runs.loaded import LoadedJudge, load_in_tool


class ProgramMetric:
    """`metric(gold, pred, trace, pred_name, pred_trace)` -> `dspy.Prediction(score, feedback)`.

    The score is from 0 to 1: the mean over aspects, each mapped linearly from its scale. A text without a score gets
    `failure_score` and is listed in `unscored`, so that no optimizer gains by outputs that cannot be judged. The judge
    uses its own LM, not the program's.

    Args:
        judge: A loaded judge, or an export as for `load`, with settings from the environment.
        source: Field of the example that holds the source.
        text: Field of the prediction that holds the text.
        aspects: Which aspects; all of the judge's by default.
        failure_score: Score of a text that the judge leaves without one.
    """

    def __init__(
        self,
        judge: LoadedJudge | str | Path,
        *,
        source: str = "source",
        text: str = "text",
        aspects: Sequence[str] | str | None = None,
        failure_score: float = 0.0,
    ) -> None:
        self._judge, self._aspects = load_in_tool(judge), aspects
        self._source, self._text = source, text
        self._failure_score = failure_score
        self.unscored: dict[str, str] = {}
        """Text without a score in one of the aspects -> reason."""
        # DSPy's loggers name a metric by this.
        self.__name__ = "debate_judge"

    def __call__(
        self,
        gold: dspy.Example,
        pred: dspy.Prediction,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> dspy.Prediction:
        source, text = _field(gold, self._source, "source"), _field(pred, self._text, "text")
        scores, task = self._judge.score(source=source, text=text, aspects=self._aspects), self._judge.task
        unit_scores = [to_unit(score.score, task.aspect(name)) for name, score in scores.items()]
        missing = [f"{name}: {score.reason}" for name, score in scores.items() if score.score is None]
        if missing:
            self.unscored[text] = "; ".join(missing)
        feedback = [f"{n} {_score_text(s.score, task.aspect(n).scale)}: {s.reason}" for n, s in scores.items()]
        value = self._failure_score if missing else fmean(score for score in unit_scores if score is not None)
        return dspy.Prediction(score=value, feedback="\n".join(feedback))


def to_unit(score: float | None, aspect: Aspect) -> float | None:
    """A score from 0 (the lower end of the aspect's scale) to 1 (the upper end); None stays None.

    Raises:
        InputError: The score is not on the scale, as that of a metric may be.
    """
    if score is None:
        return None
    if not aspect.scale.contains(score):
        raise InputError(
            "the score is not on the aspect's scale, so it has no place between 0 and 1",
            field=aspect.name,
            expected=f"a score from {aspect.scale}",
            found=score,
        )
    return (score - aspect.scale.low) / (aspect.scale.high - aspect.scale.low)


def _score_text(score: float | None, scale: object) -> str:
    return "has no score" if score is None else f"is {score:g} on a scale from {scale}"


def _field(record: Any, name: str, argument: str) -> str:
    value = record.get(name) if hasattr(record, "get") else None
    if isinstance(value, str):
        return value
    raise InputError(
        f"no text in the field {name!r}",
        field=argument,
        expected=f"the name of a field that holds the {argument}",
        found=", ".join(map(str, record.keys())) if hasattr(record, "keys") else type(record).__name__,
        remedy=f'ProgramMetric(judge, {argument}="...")',
    )
