"""Judges for generated text: debates of DSPy modules, compiled to agree with human raters.

`Debate` is a judge, a DSPy program; `examples` and `group_agreement` are what `dspy.Evaluate` and DSPy's optimizers
need to measure and tune it on a `corpus` of rated texts. `compile` makes a judge from texts and ratings and measures it
on held-out sources; `load` opens an exported judge. `testing` checks the contracts of judges, data sets and tuners of
your own. Importing this package loads neither DSPy nor MLflow: these names are resolved when they are first used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

# An editable install finds this file through a link (`.src`); its modules are loaded from the checkout itself.
__path__ = [str(Path(__file__).resolve().parent)]

if TYPE_CHECKING:
    from debate_judge import testing as testing
    from debate_judge.data.schema import Aspect, Scale, Task
    from debate_judge.optimize.python_api import compile
    from debate_judge.programs.debate.judge import Debate
    from debate_judge.programs.devset import corpus, examples, group_agreement
    from debate_judge.programs.make_lm import offline_lm
    from debate_judge.runs.loaded import load

__all__ = [
    "Aspect",
    "Debate",
    "Scale",
    "Task",
    "compile",
    "corpus",
    "examples",
    "group_agreement",
    "load",
    "offline_lm",
    "testing",
]

_EXPORTS = {
    "Aspect": ("debate_judge.data.schema", "Aspect"),
    "Debate": ("debate_judge.programs.debate.judge", "Debate"),
    "Scale": ("debate_judge.data.schema", "Scale"),
    "Task": ("debate_judge.data.schema", "Task"),
    "compile": ("debate_judge.optimize.python_api", "compile"),
    "corpus": ("debate_judge.programs.devset", "corpus"),
    "examples": ("debate_judge.programs.devset", "examples"),
    "group_agreement": ("debate_judge.programs.devset", "group_agreement"),
    "load": ("debate_judge.runs.loaded", "load"),
    "offline_lm": ("debate_judge.programs.make_lm", "offline_lm"),
    "testing": ("debate_judge.testing", None),
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _EXPORTS[name]
    resolved = import_module(module)
    return resolved if attribute is None else getattr(resolved, attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
