"""DSPy's optimizers as tuners, over the public metric `debate_judge.group_agreement`.

`gepa` is `dspy.GEPA`, `mipro` is `dspy.MIPROv2`, and `module:Class` any other: `dspy:COPRO`, or a class of your own. A
class is created with those of these arguments that its constructor names: `metric` (the correlation within a source),
`failure_score` (the least value of it), `prompt_model` and `reflection_lm` (the LM of `--reflection-lm`), `task_model`
and `teacher_settings` (the judge's LM), `seed`, `num_threads`, `max_metric_calls`, `component_selector` (the roles that
may be rewritten, in turn), `track_stats` (off). `compile` gets the judge, `trainset` (one `dspy.Example` a source, as
`debate_judge.examples` makes them) and, if it names it, `eval_kwargs`. Where sources have one candidate each, it gets a
module whose `judge` is the judge, and examples with the `questions` of a batch.

Nothing is kept on disk but replies: an optimizer that was stopped does the same again, and finds them in the store.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import dspy
from dspy.teleprompt.teleprompt import Teleprompter
from dspy.utils.callback import BaseCallback

from debate_judge.data.errors import InputError
from debate_judge.optimize.tuners import Tuner, TunerContext, TuningResult, tuning_result, with_tuning_result
from debate_judge.optimize.tuners.guide import GuideOptimizer, without_quotations
from debate_judge.optimize.tuners.rated import (
    BYTES_PER_TOKEN,
    MAX_PROMPT_TOKENS,
    RATING_FIELDS,
    RatedCandidate,
    RatedSource,
)
from debate_judge.programs import import_object
from debate_judge.programs.devset import FAILURE_SCORE, group_agreement
from debate_judge.programs.judge import Item, Judge, Verdict
from debate_judge.programs.lm.engine import run
from debate_judge.programs.lm.limits import is_fatal
from debate_judge.runs.progress import STAGE, ItemPass

logger = logging.getLogger(__name__)

THREADS = 8
"""Examples that an optimizer evaluates at the same time; the candidates of each are scored concurrently anyway."""


class DSPyOptimizerTuner(Teleprompter):
    """A tuner that runs a DSPy optimizer, with the arguments that the module's docstring lists.

    Args:
        optimizer: The class of the optimizer.
        context: What it works with.
    """

    def __init__(self, optimizer: Any, context: TunerContext) -> None:
        super().__init__()
        self._optimizer = optimizer
        self._context = context

    def compile(self, student: Judge, *, trainset: list[dspy.Example], **kwargs: Any) -> Judge:
        """The optimized judge, with changes to tunable instructions only, and without quotations from train.

        Args:
            student: The judge; it is not changed.
            trainset: Examples as `rated.examples` makes them.
            kwargs: Not used.

        Raises:
            InputError: The optimizer refuses.
            dspy.LMError: An LM failed for good.
        """
        if not trainset or not student.tunable():
            return student
        context, train = self._context, list(map(_public_example, trainset))
        program: Any = _BatchJudge(student.deepcopy()) if "questions" in train[0] else student.deepcopy()
        logger.info("%s: %s tunes on %d examples", context.label, self._optimizer.__name__, len(train))
        with _monitored(context, len(train)), dspy.context(lm=context.runner.lm, adapter=None, disable_history=True):
            try:
                optimizer = self._optimizer(**self._constructor_arguments(program, student.tunable(), len(train)))
                compiled = optimizer.compile(program, trainset=train, **self._compile_arguments(optimizer, train))
            except InputError:
                # It comes from the LM or its store, not from the optimizer.
                raise
            except (TypeError, ValueError, AssertionError) as error:
                raise InputError(
                    f"it could not tune {context.label}: {error}",
                    field="--tuner",
                    expected="an optimizer that tunes on these sources",
                    found=f"{self._optimizer.__module__}:{self._optimizer.__name__}",
                    remedy="another tuner, or more rated sources",
                ) from error
        return _cleaned(compiled.judge if isinstance(compiled, _BatchJudge) else compiled, student, trainset)

    def _constructor_arguments(self, program: dspy.Module, tunable: Sequence[str], examples: int) -> dict[str, Any]:
        """Arguments of the constructor."""
        context = self._context
        roles = [name for name, _ in program.named_predictors() if name.removeprefix("judge.") in tunable]
        available = {
            "metric": _metric(context),
            "failure_score": FAILURE_SCORE,
            "prompt_model": context.reflection_lm,
            "reflection_lm": context.reflection_lm,
            "task_model": context.runner.lm,
            "teacher_settings": {"lm": context.runner.lm},
            "seed": context.seed,
            "num_threads": min(THREADS, examples),
            "max_metric_calls": context.trials * examples,
            "component_selector": lambda state, *_: [roles[state.i % len(roles)]],
            "track_stats": False,
        }
        return _accepted_arguments(self._optimizer.__init__, available)

    def _compile_arguments(self, optimizer: Any, train: list[dspy.Example]) -> dict[str, Any]:
        """Arguments of `compile`, besides judge and examples."""
        threads = min(THREADS, len(train))
        available = {"eval_kwargs": {"num_threads": threads, "display_progress": False, "display_table": False}}
        return _accepted_arguments(optimizer.compile, available)


class GuidedGEPA(DSPyOptimizerTuner):
    """`dspy.GEPA`, starting from a judge with a guide to the raters, which is a candidate, too."""

    def __init__(self, context: TunerContext) -> None:
        super().__init__(dspy.GEPA, context)

    def compile(self, student: Judge, *, trainset: list[dspy.Example], **kwargs: Any) -> Judge:
        """As any `DSPyOptimizerTuner`; the judge with the guide is the `start` of the `detailed_results`."""
        start = tuning_result(GuideOptimizer(self._context).compile(student, trainset=trainset))
        compiled = super().compile(start.judge, trainset=trainset)
        if compiled is student:
            return student
        return with_tuning_result(compiled, TuningResult(compiled, persona=start.persona, start=start))


class MIPRO(DSPyOptimizerTuner):
    """`dspy.MIPROv2`, for instructions alone: demonstrations would hold texts of the data."""

    def __init__(self, context: TunerContext) -> None:
        super().__init__(dspy.MIPROv2, context)

    def _constructor_arguments(self, program: dspy.Module, tunable: Sequence[str], examples: int) -> dict[str, Any]:
        return {
            **super()._constructor_arguments(program, tunable, examples),
            "auto": None,
            "num_candidates": self._context.proposals + 1,
            "max_bootstrapped_demos": 0,
            "max_labeled_demos": 0,
        }

    def _compile_arguments(self, optimizer: Any, train: list[dspy.Example]) -> dict[str, Any]:
        context = self._context
        # As many sources in a prompt as there is room for.
        longest = max(len(repr(example)) for example in train)
        batch = max(1, BYTES_PER_TOKEN * MAX_PROMPT_TOKENS // longest)
        return {
            **super()._compile_arguments(optimizer, train),
            "num_trials": context.trials,
            "minibatch": False,
            "view_data_batch_size": min(10, batch),
            # All sources are used to choose; a judge's code says nothing about raters; to MIPROv2 a seed of 0 is none.
            "valset": train,
            "program_aware_proposer": False,
            "seed": context.seed + 1,
        }


class Unchanged(Teleprompter):
    """Leaves the judge as it is."""

    def __init__(self, context: TunerContext) -> None:
        super().__init__()

    def compile(self, student: Judge, *, trainset: list[dspy.Example], **kwargs: Any) -> Judge:
        """The judge that it was given."""
        return student


def class_tuner(name: str) -> Tuner:
    """The tuner that runs an optimizer class, which is imported at once.

    Args:
        name: `module:Class`.

    Raises:
        InputError: It cannot be imported, or has no `compile`.
    """
    optimizer = import_object(name, "--tuner", "an optimizer", "dspy:COPRO or my_package.my_module:MyOptimizer")
    if not isinstance(optimizer, type) or not callable(getattr(optimizer, "compile", None)):
        raise InputError(
            f"{name!r} is not an optimizer",
            field="--tuner",
            expected="module:Class of an optimizer",
            found=name,
            remedy="name a class with a method compile(student, *, trainset)",
        )
    return partial(DSPyOptimizerTuner, optimizer)


def _accepted_arguments(function: Callable[..., Any], available: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arguments that the function has parameters for."""
    return {name: available[name] for name in inspect.signature(function).parameters if name in available}


def _cleaned(compiled: Judge, original: Judge, examples: Sequence[dspy.Example]) -> Judge:
    """The judge with rewritten instructions where they are tunable, without sentences that quote a text of train."""
    before, tunable, texts = original.instructions(), original.tunable(), _train_texts(examples)
    for name, predictor in compiled.named_predictors():
        text = without_quotations(predictor.signature.instructions, texts) if name in tunable else ""
        predictor.signature = predictor.signature.with_instructions(text or before[name])
    return compiled


# --- examples ---


def _public_example(example: dspy.Example) -> dspy.Example:
    """An example as DSPy's optimizers get it: without the fields that `debate_judge.examples` lacks, and without
    the source where the aspect is judged without it."""
    public = example.without(*(field for field in RATING_FIELDS if field not in example.inputs()))
    if all(item.aspect.source for item in example.questions):
        return public
    hidden: dict[str, Any] = {name: "" for name in ("source", "context") if name in public}
    if "questions" in public:
        hidden["questions"] = [replace(item, source="", context="") for item in example.questions]
    return public.copy(**hidden)


class _BatchJudge(dspy.Module):
    """Wraps a judge for examples with items of several sources."""

    def __init__(self, judge: Judge) -> None:
        super().__init__()
        self.judge = judge

    def forward(self, questions: Sequence[Item]) -> dspy.Prediction:
        judgements = run(self.judge.judge_all(questions))
        scores = [judgement.score if isinstance(judgement, Verdict) else None for judgement in judgements]
        return dspy.Prediction(scores=scores, judgements=judgements)


def _train_texts(examples: Sequence[dspy.Example]) -> list[RatedSource]:
    """All texts of the data that an optimizer's LM may have read."""
    return [
        RatedSource(item.source, item.context, (RatedCandidate(item.text, (), 0.0, None),))
        for example in examples
        for item in example.questions
    ]


# --- what DSPy does not do: end a run on a fatal error, count its calls, be silent ---


class Abort(BaseException):
    """Carries an error past DSPy's `except Exception`, which would count it as a score and continue."""


def _metric(context: TunerContext) -> Callable[..., Any]:
    def metric(gold: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> Any:
        try:
            return group_agreement(gold, pred, trace, pred_name, pred_trace, statistic=context.statistic)
        except Exception as error:
            raise Abort from error

    return metric


class _CallMonitor(BaseCallback):
    """Monitors an optimizer's calls, in all of its threads, and ends the run on a fatal error.

    Args:
        stage: The stage that calls are counted for; DSPy's threads do not inherit the context variable.
        progress: Advanced by every example.
    """

    def __init__(self, stage: str, progress: ItemPass) -> None:
        self.closed = False
        """Whether further calls are refused: an optimizer's threads may go on after its run has ended."""
        self._error: Exception | None = None
        """The error that the run has ended with."""
        self._stage, self._progress = stage, progress
        self._judged: set[str] = set()

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        if isinstance(instance, (Judge, _BatchJudge)):
            STAGE.set(self._stage)
            self._judged.add(call_id)

    def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        if call_id in self._judged:
            self._progress.advance()
            self._end_with(exception)

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        if self.closed:
            # This thread may be the first that DSPy reads an error from.
            raise Abort from self._error

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        if isinstance(exception, Exception) and is_fatal(exception):
            self._end_with(exception)

    def _end_with(self, error: BaseException | None) -> None:
        if isinstance(error, Exception):
            self._error = self._error or error
            self.closed = True
            raise Abort from error


@contextlib.contextmanager
def _monitored(context: TunerContext, examples: int) -> Iterator[None]:
    """Run an optimizer in the block, without its output; an `Abort` is raised as the error that it carries."""
    import optuna

    dspy_logger, verbosity = logging.getLogger("dspy"), optuna.logging.get_verbosity()
    level = dspy_logger.level
    dspy_logger.setLevel(logging.CRITICAL)
    progress, total = context.runner.progress, context.trials * examples
    with contextlib.ExitStack() as stack:
        devnull = stack.enter_context(open(os.devnull, "w"))
        stack.enter_context(contextlib.redirect_stdout(devnull))
        stack.enter_context(contextlib.redirect_stderr(devnull))
        monitor = _CallMonitor(STAGE.get(), stack.enter_context(progress.track(f"{context.label}: tuning", total)))
        stack.enter_context(dspy.context(callbacks=[*dspy.settings.callbacks, monitor]))
        try:
            yield
        except Abort as abort:
            raise abort.__cause__ or abort from None
        finally:
            monitor.closed = True
            dspy_logger.setLevel(level)
            optuna.logging.set_verbosity(verbosity)
