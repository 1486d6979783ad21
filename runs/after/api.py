"""`debate_judge.measure`, `carry`, `recheck` and `next`: the commands from Python, with their settings as keywords."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from debate_judge.data.errors import InputError

if TYPE_CHECKING:
    from debate_judge.data.inference.powered import SystemsTable
    from debate_judge.runs.after.carry import Carried
    from debate_judge.runs.after.next import NextSources
    from debate_judge.runs.after.recheck import Rechecked

T = TypeVar("T")


def measure(file: str | Path, **settings: Any) -> dict[str, SystemsTable]:
    """Estimate how good systems are, from few ratings and a judge's scores of everything.

    Args:
        file: Rows of scores and ratings; with `scores` or `program`, texts of which some are rated.
        settings: Settings of `debate measure` by their names, e.g. `scores="scores.jsonl"`, `aspects=["coherence"]`.

    Returns:
        Aspect -> the table of systems.

    Raises:
        InputError: Settings or files cannot be used, or no system has enough ratings.
        dspy.LMError: The LM cannot be used.
    """
    from debate_judge.runs.after.measure import MeasureFlags, measured

    return measured(_flags(MeasureFlags, settings, file=file))


def carry(export: str | Path, lm: str, **settings: Any) -> Carried:
    """Carry an exported judge to a new LM.

    Args:
        export: Its folder, or its address in MLflow.
        lm: PROVIDER/MODEL, or offline.
        settings: Settings of `debate carry` by their names, e.g. `data="ratings.csv"`, `margin=0.05`.

    Returns:
        The verdict with its figures, and the folder of the new export where there is one.

    Raises:
        InputError: Settings or data cannot be used.
        dspy.LMError: The new LM cannot be used.
    """
    from debate_judge.runs.after.carry import CarryFlags, carried

    return carried(_flags(CarryFlags, settings, export=export, lm=lm))


def recheck(export: str | Path, data: str | Path, **settings: Any) -> Rechecked:
    """See whether a judge's proof holds on ratings made since.

    Args:
        export: Its folder, or its address in MLflow.
        data: Texts with the new ratings.
        settings: Settings of `debate recheck` by their names, e.g. `margin=0.05`.

    Raises:
        InputError: Settings or data cannot be used, or no source is new.
        dspy.LMError: The LM cannot be used.
    """
    from debate_judge.runs.after.recheck import RecheckFlags, rechecked

    return rechecked(_flags(RecheckFlags, settings, export=export, data=data))


def next(export: str | Path, pool: str | Path, budget: int, **settings: Any) -> NextSources:
    """Choose the sources that people should rate next.

    Args:
        export: The judge's folder, or its address in MLflow.
        pool: Texts to choose from.
        budget: Ratings that people can give: texts x aspects x raters.
        settings: Settings of `debate next` by their names, e.g. `out="to-rate.csv"`, `draw="chosen"`.

    Raises:
        InputError: Settings or texts cannot be used, or the budget is too small for a source.
        dspy.LMError: The LM cannot be used.
    """
    from debate_judge.runs.after.next import NextFlags, next_sources

    return next_sources(_flags(NextFlags, settings, export=export, pool=pool, budget=str(budget)))


def _flags(make: Callable[..., T], settings: dict[str, Any], **named: Any) -> T:
    """The command's settings; what may be a list or a path in Python is what the parser makes of it."""
    if "estimate" in settings:
        raise InputError("an estimate is printed by the command alone", field="estimate", remedy="leave it out here")
    values = {**settings, **named}
    return make(
        **{
            name: tuple(value) if isinstance(value, list) else str(value) if isinstance(value, Path) else value
            for name, value in values.items()
        }
    )
