"""What functions have in common that people call from Python: names of arguments, LM objects, a true signature."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, get_type_hints

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.http.address import key_variable

if TYPE_CHECKING:
    import dspy

P = ParamSpec("P")
R = TypeVar("R")


def python_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """The errors of `function` name Python arguments (`max_rounds`) in place of flags (`--max-rounds`)."""

    @functools.wraps(function)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except InputError as error:
            raise error.in_python() from error

    return named


def with_settings(settings: type, left_out: Collection[str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The signature of a function shows the fields of `settings`, with their defaults, in place of its `**settings`."""

    def signed(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        names = {*left_out, *(parameter.name for parameter in own)}
        types = get_type_hints(settings)
        taken = [
            parameter.replace(
                kind=parameter.KEYWORD_ONLY,
                # pydantic's own description of a field holds the default.
                default=getattr(parameter.default, "default", parameter.default),
                annotation=types.get(name, parameter.annotation),
            )
            for name, parameter in inspect.signature(settings).parameters.items()
            if name not in names
        ]
        function.__signature__ = signature.replace(parameters=[*own, *taken])  # type: ignore[attr-defined]
        return function

    return signed


def settings_of_lm(lm: dspy.LM) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings that a `dspy.LM` stands for, and the environment variable with its key, if it has one.

    Raises:
        InputError: It has settings that are not taken, or an engine of its own.
    """
    from debate_judge.programs.make_lm import OFFLINE
    from debate_judge.programs.offline.engine import MODEL

    if lm.model == MODEL:
        return {"lm": OFFLINE}, {}
    given = {name: value for name, value in lm.kwargs.items() if value is not None}
    key, base_url = given.pop("api_key", None), given.pop("base_url", None)
    taken = {name: given.pop(name) for name in ("api_base", "temperature", "max_tokens") if name in given}
    own_engine = not isinstance(getattr(lm, "_engine_spec", "auto"), str)
    if given or own_engine:
        raise InputError(
            "an LM with an engine of its own" if own_engine else "settings of the LM that are not taken",
            field="lm",
            expected="a dspy.LM with a model, api_base, api_key, temperature and max_tokens",
            found=f"{lm.model}: {', '.join(given) or 'engine'}",
            remedy="give the LM as PROVIDER/MODEL, and an address of yours as api_base",
        )
    settings = {"lm": lm.model, **({"api_base": base_url} if base_url else {}), **taken}
    return settings, {key_variable(lm.model): str(key)} if key else {}


@contextmanager
def environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Environment variables for the length of a block; None for one that is not set."""
    before = {name: os.environ.get(name) for name in values}
    _set_variables(values)
    try:
        yield
    finally:
        _set_variables(before)


def _set_variables(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        os.environ.pop(name, None)
        os.environ.update({} if value is None else {name: value})
