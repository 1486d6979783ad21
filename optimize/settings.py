"""Everything that a compile depends on, as one frozen value; read from flags and from a TOML file."""

from __future__ import annotations

import argparse
import difflib
import re
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.data.schema import fingerprint
from debate_judge.runs.flags.judge import JudgeFlags, judge_options
from debate_judge.runs.flags.lm import listed

EFFORTS: dict[str, tuple[int, int]] = {"light": (2, 8), "medium": (6, 20), "heavy": (12, 50)}
"""Effort -> (instructions that the LM proposes per role, candidate programs that the tuner evaluates)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one compile."""

    data: str = "sample"
    task: str | None = None
    aspects: tuple[str, ...] = ()
    judge: str = "debate"
    score_mode: str | None = None
    roles: str | None = None
    same_role: str | None = None
    judge_option: tuple[str, ...] = ()
    personas: str | None = None
    lm: str = "offline"
    api_base: str | None = None
    temperature: float = 0.0
    max_tokens: int = 2000
    no_preflight: bool = False
    max_unscored: float = 0.2
    concurrency: int = 16
    rpm: float | None = None
    tpm: float | None = None
    budget: str | None = None
    deadline: float | None = None
    prices: str | None = None
    batch: str | None = None
    tuner: str = "mipro"
    effort: str = "light"
    trials: int = 40
    max_rounds: int = 3
    objective: str = "spearman"
    level: str = "auto"
    tolerance: float = 0.02
    shared: bool = False
    seed: int = 0
    resamples: int = 10_000
    name: str | None = None
    tracking_uri: str | None = None
    store: str = "runs/store"
    json: str | None = None

    def __post_init__(self) -> None:
        for field, low in (
            ("trials", 1),
            ("max_rounds", 0),
            ("concurrency", 1),
            ("resamples", 100),
            ("seed", 0),
            ("tolerance", 0),
            ("temperature", 0),
            ("max_unscored", 0),
            ("max_tokens", 1),
        ):
            if getattr(self, field) < low:
                raise InputError(
                    "number too small", field=flag(field), expected=f"at least {low}", found=getattr(self, field)
                )
        if self.max_unscored > 1:
            raise InputError("not a share", field="--max-unscored", expected="0 to 1", found=self.max_unscored)
        if self.name is not None and not re.fullmatch(r"[\w.+-]+", self.name):
            raise InputError(
                "not a name for a run and its folder",
                field="--name",
                expected="letters, digits, . _ + -",
                found=self.name,
            )
        one_of("objective", self.objective, ("spearman", "pearson", "kendall"))
        one_of("level", self.level, ("auto", "summary", "sample"))
        one_of("effort", self.effort, tuple(EFFORTS))

    def options(self) -> dict[str, Any]:
        """What the user set about the judge, by option.

        Raises:
            InputError: An option cannot be read.
        """
        return judge_options(JudgeFlags(self.score_mode, self.roles, self.same_role, self.judge_option))

    def identity(self) -> str:
        """Fingerprint of what decides the result; where things are stored and shown does not."""
        aside = {"name", "tracking_uri", "store", "json", "concurrency", "no_preflight", "max_unscored"}
        aside |= {"rpm", "tpm", "budget", "deadline", "prices", "batch"}
        return fingerprint({k: v for k, v in asdict(self).items() if k not in aside})


def flag(field: str) -> str:
    return "--" + field.replace("_", "-")


def one_of(field: str, value: str, known: Sequence[str]) -> None:
    """Refuse a name that is not known, and name the nearest one.

    Raises:
        InputError: `value` is not in `known`.
    """
    if value not in known:
        near = difflib.get_close_matches(value, known, n=1, cutoff=0.4)
        raise InputError(
            f"unknown {field.replace('_', ' ')} {value!r}",
            field=flag(field),
            expected="one of " + ", ".join(known),
            remedy=f"did you mean {near[0]!r}?" if near else None,
        )


def from_arguments(arguments: argparse.Namespace) -> Settings:
    """Merge defaults, the `--config` file and the flags that were given; flags win."""
    given = {k: v for k, v in vars(arguments).items() if v is not None and k not in ("config", "estimate")}
    values = {**(read_config(Path(arguments.config)) if arguments.config else {}), **given}
    if isinstance(values.get("aspects"), str):
        values["aspects"] = tuple(listed(values["aspects"]))
    if "judge_option" in values:
        values["judge_option"] = tuple(values["judge_option"])
    return Settings(**values)


def read_config(path: Path) -> dict[str, Any]:
    """Read settings from TOML; the keys are the names of the flags, with - or _.

    Raises:
        InputError: The file cannot be read, a key is unknown, or a value has the wrong type.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError("settings could not be read", file=path, expected="a TOML file", found=str(error)) from error
    defaults = {f.name: f for f in fields(Settings)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in defaults:
            near = difflib.get_close_matches(name, defaults, n=1)
            raise InputError(
                "unknown setting", file=path, field=key, remedy=f"did you mean {near[0]!r}?" if near else None
            )
        values[name] = _typed(path, key, value, str(defaults[name].type))
    return values


def _typed(path: Path, key: str, value: object, annotation: str) -> object:
    kinds: dict[str, type] = {"int": int, "bool": bool, "tuple[str, ...]": list, "float | None": float, "float": float}
    wanted = kinds.get(annotation, str)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    fits = isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))
    if wanted is list and isinstance(value, list):
        fits = all(isinstance(v, str) for v in value)
    if not fits:
        raise InputError("wrong type", file=path, field=key, expected=f"a {annotation}", found=value)
    return tuple(value) if isinstance(value, list) else value
