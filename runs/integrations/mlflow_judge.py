"""MLflow: a judge as a scorer of `mlflow.genai.evaluate`, and an alignment that compiles a debate and measures it on
held-out sources.

With `judge.align(traces, optimizer=DebateAligner())` the human feedback on the traces is taken as ratings, of all
raters; `compiled` of the aligned judge has its agreement with them on held-out sources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from mlflow.entities import AssessmentError, AssessmentSource, AssessmentSourceType, Feedback, Trace
from mlflow.genai.judges import AlignmentOptimizer, Judge
from mlflow.genai.judges.base import JudgeField
from mlflow.genai.scorers import Scorer
from pydantic import PrivateAttr

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task, fingerprint
from debate_judge.runs.export.loaded import LoadedJudge
from debate_judge.runs.integrations.batching import SourceBatcher
from debate_judge.runs.integrations.common import text_in
from debate_judge.runs.runner.streaming import Score

_YES_NO = {"yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}


class DebateScorer(Scorer):
    """A feedback for each aspect, named like it, with the score on the aspect's scale and the judge's reason.

    A text without a score has an error in place of a value, which MLflow leaves out of means.

    Args:
        judge: As for `SourceBatcher`.
        source_key: Key of the source in `inputs`; needed where they hold several texts and none is called `source`.
        text_key: The same for `outputs` that are a mapping, and `text`.
        aspects: Which aspects; all of the judge's by default.
        name: Of the scorer; feedback is named by the aspects.
    """

    name: str = "debate_judge"
    judge: Any
    source_key: str | None = None
    text_key: str | None = None
    aspects: list[str] | None = None
    _batcher: SourceBatcher = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._batcher = SourceBatcher(self.judge, self.aspects)

    # MLflow passes the arguments that the signature names, and refuses an async method.
    def __call__(self, *, inputs: Any = None, outputs: Any = None) -> list[Feedback]:
        """Score one row, e.g. `inputs={"source": "..."}` and `outputs="..."`.

        Raises:
            InputError: There is no text, or several and none is named.
        """
        source, text = text_in(inputs, "source", self.source_key), text_in(outputs, "text", self.text_key)
        scores = self._batcher.score(source=source, text=text)
        return [to_feedback(self._batcher.judge, name, score) for name, score in scores.items()]


def to_feedback(judge: LoadedJudge, aspect: str, score: Score, value: Any = None) -> Feedback:
    """A judge's score of an aspect as feedback of MLflow; `value` replaces the score, e.g. by True."""
    error = None
    if score.score is None:
        error = AssessmentError(error_code="UNSCORED", error_message=score.reason)
    return Feedback(
        name=aspect,
        value=score.score if value is None else value,
        error=error,
        rationale=None if error else score.reason,
        source=AssessmentSource(AssessmentSourceType.LLM_JUDGE, f"debate-judge/{judge.fingerprint}"),
        metadata={
            "aspect": aspect,
            "rounds": str(score.rounds or 0),
            "stop_reason": score.stop_reason or "",
            "calls": f"{score.calls:g}",
        },
    )


# --- alignment ---


class DebateAligner(AlignmentOptimizer):
    """Compiles a judge from the human feedback on traces.

    The feedback has the judge's name, values that are numbers, yes/no or true/false, and a rater each (`source_id`);
    of one rater's values for a trace the newest counts. Rationales are comments, which the compile learns from.

    Args:
        scale: Lowest and highest rating, for a judge of numbers; read off `feedback_value_type` if that is a
            `Literal` of numbers.
        source_key: Key of the source in the root span's inputs, if they hold several texts and none is called `source`.
        text_key: The same for outputs that are a mapping, and `text`.
        settings: Of the compile, as for `debate_judge.compile`: `lm` (by default the judge's model), `store`, `budget`,
            `effort` ...
    """

    def __init__(
        self,
        *,
        scale: tuple[float, float] | None = None,
        source_key: str | None = None,
        text_key: str | None = None,
        **settings: Any,
    ) -> None:
        self._scale = scale
        self._keys = source_key, text_key
        self._settings = settings

    def align(self, judge: Judge, traces: list[Trace]) -> AlignedJudge:
        """Compile a judge of the same name and type of value, with the result of the compile in `compiled`.

        Raises:
            InputError: A value is not on the scale, or there is too little feedback to learn from and to measure on.
            dspy.LMError: The LM failed for good.
        """
        from debate_judge import compile as compile_judge

        aspect = Aspect(judge.name, _definition(judge.instructions), self._scale_of(judge.feedback_value_type))
        task = Task(f"mlflow-{judge.name}", "input", "output", (aspect,))
        corpus = self._corpus(task, traces)
        settings = {"lm": _lm_of(judge), **self._settings}
        return AlignedJudge.of(judge, compile_judge(corpus, task=task, **settings), *self._keys)

    def _scale_of(self, value_type: Any) -> Scale:
        choices = get_args(value_type) if get_origin(value_type) is Literal else ()
        if value_type is bool or {str(choice).lower() for choice in choices} in ({"yes", "no"}, {"true", "false"}):
            return Scale(0, 1)
        if self._scale is None and choices and all(isinstance(choice, (int, float)) for choice in choices):
            return Scale(min(choices), max(choices))
        if self._scale is None:
            raise InputError(
                "the scale of the ratings is unknown",
                field="scale",
                expected="the lowest and the highest rating",
                found=f"feedback_value_type {value_type}",
                remedy="DebateAligner(scale=(1, 5)), or a judge of yes and no",
            )
        return Scale(*self._scale)

    def _corpus(self, task: Task, traces: Sequence[Trace]) -> Corpus:
        """The rated outputs by source, in an order that does not depend on that of the traces."""
        aspect = task.aspects[0]
        outputs: dict[str, dict[str, list[Feedback]]] = {}
        for trace in traces:
            if feedback := _human_feedback(trace, aspect.name):
                source, text = _texts(trace, *self._keys)
                outputs.setdefault(source, {}).setdefault(text, []).extend(feedback)
        if not outputs:
            raise InputError(
                "no trace has human feedback of the judge's name",
                field="traces",
                expected=f"feedback {aspect.name!r} with the source type HUMAN",
                found=f"{len(traces)} traces",
            )
        groups = [
            RatedGroup(fingerprint(source), source, tuple(_candidate(t, texts[t], aspect) for t in sorted(texts)))
            for source, texts in sorted(outputs.items())
        ]
        return Corpus(task, tuple(groups), Origin("mlflow-traces", "traces handed to align"))


class AlignedJudge(Judge):
    """What `DebateAligner` returns: a judge of MLflow that calls a compiled one."""

    _instructions: str = PrivateAttr()
    _value_type: Any = PrivateAttr()
    _fields: list[JudgeField] = PrivateAttr()
    _keys: tuple[str | None, str | None] = PrivateAttr()
    _compiled: Any = PrivateAttr()
    _batcher: SourceBatcher = PrivateAttr()

    @classmethod
    def of(cls, judge: Judge, compiled: Any, source_key: str | None, text_key: str | None) -> AlignedJudge:
        """An aligned judge with the name and the types of `judge`."""
        aligned = cls(name=judge.name, description=judge.description)
        aligned._instructions, aligned._value_type = judge.instructions, judge.feedback_value_type
        aligned._fields, aligned._keys = judge.get_input_fields(), (source_key, text_key)
        aligned._compiled, aligned._batcher = compiled, SourceBatcher(compiled.judge)
        return aligned

    @property
    def compiled(self) -> Any:
        """What `debate_judge.compile` returned: `verdict`, `table` of held-out agreement, `export`, its folder."""
        return self._compiled

    @property
    def instructions(self) -> str:
        return self._instructions

    @property
    def feedback_value_type(self) -> Any:
        return self._value_type

    def get_input_fields(self) -> list[JudgeField]:
        return self._fields

    def __call__(self, *, inputs: Any = None, outputs: Any = None, trace: Trace | None = None) -> Feedback:
        """Judge one output; without `inputs` and `outputs` those of the trace's root span."""
        if trace is not None and inputs is None and outputs is None:
            source, text = _texts(trace, *self._keys)
        else:
            source, text = text_in(inputs, "source", self._keys[0]), text_in(outputs, "text", self._keys[1])
        score = self._batcher.score(source=source, text=text)[self.name]
        value = None if score.score is None else _as_type(score.score, self._value_type)
        return to_feedback(self._batcher.judge, self.name, score, value)


def _definition(instructions: str) -> str:
    """The instructions with MLflow's placeholders replaced by words; the prompt has their texts elsewhere."""
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", r"the \1", instructions).strip()


def _lm_of(judge: Judge) -> str:
    """The judge's model, PROVIDER:/MODEL, as DSPy names it."""
    model = str(getattr(judge, "model", ""))
    if ":/" not in model:
        raise InputError("the judge names no LM", field="lm", remedy='DebateAligner(lm="PROVIDER/MODEL")')
    return model.replace(":/", "/", 1)


def _human_feedback(trace: Trace, name: str) -> list[Feedback]:
    """Each rater's newest feedback of this name, sorted by rater; MLflow leaves replaced feedback out (`valid`)."""
    newest: dict[str, Feedback] = {}
    for feedback in trace.search_assessments(name, type="feedback"):
        if feedback.source.source_type == AssessmentSourceType.HUMAN and feedback.feedback.error is None:
            rater = feedback.source.source_id or ""
            if rater not in newest or (feedback.create_time_ms or 0) >= (newest[rater].create_time_ms or 0):
                newest[rater] = feedback
    return [newest[rater] for rater in sorted(newest)]


def _texts(trace: Trace, source_key: str | None, text_key: str | None) -> tuple[str, str]:
    root = next(span for span in trace.data.spans if span.parent_id is None)
    return text_in(root.inputs, "source", source_key), text_in(root.outputs, "text", text_key)


def _candidate(text: str, feedback: Sequence[Feedback], aspect: Aspect) -> Candidate:
    ratings = tuple(_rating(entry.value, aspect) for entry in feedback)
    comments = tuple(entry.rationale for entry in feedback if entry.rationale)
    return Candidate(fingerprint(text), text, {aspect.name: ratings}, {aspect.name: comments} if comments else {})


def _rating(value: object, aspect: Aspect) -> float:
    yes_no = _YES_NO.get(str(value).strip().lower())
    try:
        number = yes_no if yes_no is not None and aspect.scale.binary else float(str(value))
    except ValueError:
        number = float("nan")
    if not aspect.scale.contains(number):
        raise InputError(
            "a rater's value is not on the scale", field=aspect.name, expected=f"{aspect.scale}", found=value
        )
    return number


def _as_type(score: float, value_type: Any) -> Any:
    """A score as a value of the judge's type: the nearest of its choices, or a number."""
    choices: Mapping[float, Any]
    if value_type is bool:
        choices = {1.0: True, 0.0: False}
    elif get_origin(value_type) is Literal:
        choices = {_YES_NO.get(str(choice).lower(), choice): choice for choice in get_args(value_type)}
    elif value_type is int:
        return round(score)
    else:
        return f"{score:g}" if value_type is str else score
    # Ties go to the higher choice: a score midway between no and yes is a yes.
    return choices[min(sorted(choices, reverse=True), key=lambda choice: abs(choice - score))]
