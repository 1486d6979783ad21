"""Inspect: a judge as a scorer of a task. Needs the extra `inspect`."""

from __future__ import annotations

from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from debate_judge.data.errors import InputError
from debate_judge.runs.loaded import load_in_tool


@scorer(metrics={"*": [mean(), stderr()]})
def debate_scorer(export: str, source: str | None = None, aspects: list[str] | None = None) -> Scorer:
    """Score a sample's output; the value has an entry for each aspect, on the aspect's scale.

    A sample with an aspect that has no score is unscored as a whole and left out of the metrics.

    Args:
        export: An export as for `load`, with settings from the environment; its address only, because Inspect logs it.
        source: Key of the source in the sample's metadata; by default the sample's input is the source.
        aspects: Which aspects; all of the judge's by default.
    """
    judge = load_in_tool(export)

    async def score(state: TaskState, target: Target) -> Score:
        source_text = state.input_text if source is None else state.metadata.get(source)
        if not isinstance(source_text, str):
            raise InputError(
                "the sample has no source", field="source", expected="a text in its metadata", found=source_text
            )
        text = state.output.completion
        (scores,) = await judge.ascore_many([{"source": source_text, "text": text}], aspects=aspects)
        explanation = "\n\n".join(f"{name}: {scored.reason}" for name, scored in scores.items())
        metadata = {
            name: {"rounds": scored.rounds, "stop_reason": scored.stop_reason} for name, scored in scores.items()
        }
        values = {name: scored.score for name, scored in scores.items() if scored.score is not None}
        if len(values) < len(scores):
            return Score.unscored(reason="grader_failed", answer=text, explanation=explanation, metadata=metadata)
        return Score(value=values, answer=text, explanation=explanation, metadata=metadata)

    return score
