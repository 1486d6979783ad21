"""Judges for generated text, compiled from debates of DSPy modules until they agree with human raters.

`load` opens an exported judge and scores texts with it; `compile` makes one from texts and ratings; `testing` holds the
contracts that judges, data sets and tuners of one's own must fulfil. Importing this package loads neither DSPy nor
MLflow: these names are resolved when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from debate_judge import testing as testing
    from debate_judge.optimize.job import compile_judge as compile
    from debate_judge.runs.export.folder import load

__all__ = ["compile", "load", "testing"]

_WHERE = {
    "compile": ("debate_judge.optimize.job", "compile_judge"),
    "load": ("debate_judge.runs.export.folder", "load"),
    "testing": ("debate_judge.testing", None),
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _WHERE[name]
    found = import_module(module)
    return found if attribute is None else getattr(found, attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
