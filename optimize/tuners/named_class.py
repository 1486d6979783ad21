"""Any DSPy optimizer as a tuner, by `module:Class`: `--tuner dspy:COPRO`, or a class of your own.

The class is made with those of these arguments that its constructor names: `metric` (the correlation within a source,
as in `debate_judge.group_agreement`), `prompt_model` and `reflection_lm` (the LM of `--reflection-lm`), `task_model`
and `teacher_settings` (the judge's LM), `seed`, `num_threads`, `max_metric_calls`, `track_stats` (off). `compile` gets
the judge, `trainset` (one `dspy.Example` a source, as `debate_judge.examples` makes them) and, if it names it,
`eval_kwargs`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import dspy

from debate_judge.data.errors import InputError
from debate_judge.optimize.tuners import Tuner, Tuning
from debate_judge.optimize.tuners.dspy_optimizers import narrated_nowhere
from debate_judge.programs import named_object
from debate_judge.programs.devset import call_example, group_agreement
from debate_judge.programs.judge import Judge

logger = logging.getLogger(__name__)

THREADS = 8
"""Examples that an optimizer evaluates at the same time; the candidates of each are asked about at once anyway."""


def class_tuner(name: str) -> Tuner:
    """The tuner that an optimizer class is, imported here and now.

    Args:
        name: `module:Class`.

    Raises:
        InputError: It cannot be imported, or has no `compile`.
    """

    def wrong(problem: str, remedy: str) -> InputError:
        return InputError(problem, field="--tuner", expected="module:Class of an optimizer", found=name, remedy=remedy)

    optimizer = named_object(name, "--tuner", "an optimizer", "dspy:COPRO or my_package.my_module:MyOptimizer")
    if not isinstance(optimizer, type) or not callable(getattr(optimizer, "compile", None)):
        raise wrong(f"{name!r} is not an optimizer", "name a class with a method compile(student, *, trainset)")

    def tune(tuning: Tuning) -> Judge:
        try:
            return _tuned(optimizer, tuning)
        except (TypeError, ValueError, AssertionError) as error:
            raise wrong(f"it could not tune {tuning.label}: {error}", "another tuner, or more rated sources") from error

    return tune


def _tuned(optimizer: Any, tuning: Tuning) -> Judge:
    train = [_example(one) for one in tuning.examples]
    threads = min(THREADS, max(1, len(train)))
    offered = {
        "metric": partial(group_agreement, statistic=tuning.statistic),
        "prompt_model": tuning.reflection,
        "reflection_lm": tuning.reflection,
        "task_model": tuning.runner.lm,
        "teacher_settings": {"lm": tuning.runner.lm},
        "seed": tuning.seed,
        "num_threads": threads,
        "max_metric_calls": tuning.effort.trials * len(train),
        "track_stats": False,
    }
    evaluating = {"num_threads": threads, "display_progress": False, "display_table": False}
    if not train or not tuning.judge.tunable():
        return tuning.judge
    logger.info("%s: %s tunes on %d sources", tuning.label, optimizer.__name__, len(train))
    with narrated_nowhere(tuning.runner.progress.shown), dspy.context(lm=tuning.runner.lm, adapter=None):
        made = optimizer(**_named(optimizer.__init__, offered))
        found: Judge = made.compile(
            tuning.judge.deepcopy(), trainset=train, **_named(made.compile, {"eval_kwargs": evaluating})
        )
    return found


def _named(function: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Of the arguments that are offered, those that a function names."""
    return {name: offered[name] for name in inspect.signature(function).parameters if name in offered}


def _example(rated: dspy.Example) -> dspy.Example:
    """An example of ours as the arguments of a judge's call, with the ratings.

    Raises:
        InputError: It is about several sources.
    """
    first = rated.questions[0]
    if len({item.group for item in rated.questions}) > 1:
        raise InputError(
            "an optimizer by module:Class needs several rated candidates of a source, for a correlation within it",
            field="--tuner",
            remedy="take --tuner guide, gepa or mipro, which tune on sources with one candidate each as well",
        )
    texts = [item.text for item in rated.questions]
    return call_example(first.task, first.aspect.name, first, texts, rated.ratings)
