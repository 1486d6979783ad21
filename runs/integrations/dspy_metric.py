"""DSPy: a judge as the metric of another program, for `dspy.Evaluate`, GEPA, MIPROv2 and the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import dspy

from debate_judge.data.errors import InputError
from debate_judge.runs.loaded import LoadedJudge, load_in_tool


class ProgramMetric:
    """`metric(gold, pred, trace, pred_name, pred_trace)` -> `dspy.Prediction(score, feedback)`.

    The score is from 0 to 1: the mean over aspects, each mapped linearly from its scale. A text without a score, or
    with one that is not on the scale, gets `failure_score` and is listed in `unscored`, so that no optimizer gains by
    outputs that cannot be judged. The judge uses its own LM, not the program's.

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
        # Examples and predictions of DSPy are no mappings.
        records = (dict(record) if hasattr(record, "keys") else record for record in (gold, pred))
        source, text = map(text_in, records, ("source", "text"), (self._source, self._text))
        units, missing, feedback = [], [], []
        for name, score in self._judge.score(source=source, text=text, aspects=self._aspects).items():
            scale = self._judge.task.aspect(name).scale
            if score.score is None:
                feedback.append(f"{name} has no score: {score.reason}")
            else:
                feedback.append(f"{name} is {score.score:g} on a scale from {scale}: {score.reason}")
            # The score of a metric may be off the scale.
            if score.score is not None and scale.contains(score.score):
                units.append((score.score - scale.low) / (scale.high - scale.low))
            else:
                missing.append(feedback[-1])
        if missing:
            self.unscored[text] = "; ".join(missing)
        return dspy.Prediction(score=self._failure_score if missing else fmean(units), feedback="\n".join(feedback))


def text_in(value: object, field: str, key: str | None = None) -> str:
    """The text in what a tool hands over.

    Args:
        value: A text, or a mapping that holds it.
        field: `source` or `text`: the default key, and the name in messages.
        key: Key of the text in a mapping; by default `field`, or the only text in the mapping.

    Raises:
        InputError: There is no text, or several and none is named.
    """
    if isinstance(value, str):
        return value
    texts = {str(name): t for name, t in value.items() if isinstance(t, str)} if isinstance(value, Mapping) else {}
    text_key = key or (field if field in texts or len(texts) != 1 else next(iter(texts)))
    if text_key not in texts:
        raise InputError(
            f"no text under {text_key!r}",
            field=field,
            expected=f"a text that is the {field}, or the key of one",
            found=", ".join(texts) or repr(value),
            remedy=f'name it: {field}="...", or {field}_key="..." for MLflow',
        )
    return texts[text_key]
