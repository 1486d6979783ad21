"""Values that can be logged: names that MLflow allows, texts without secrets, finite numbers."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from debate_judge.programs.lm.settings import redact, redact_text

CHOICE_METRIC = "choice_agreement"
"""Metric of trials and compiles: agreement on the sources by which the judge is chosen; biased upwards for the best.
One name for all, so that the UI sorts them together."""

_PACKAGES = ("dspy", "mlflow", "optuna", "numpy", "debate-judge")


def name_segment(text: str) -> str:
    """`text` as one segment of a name: characters that MLflow does not allow become underscores."""
    return "".join(c if c.isalnum() or c in "_-. " else "_" for c in text).strip(". ") or "_"


def mlflow_name(text: str) -> str:
    """`text` as a name whose segments are separated by slashes."""
    return "/".join(map(name_segment, text.split("/")))


def text_values(values: Mapping[str, object]) -> dict[str, str]:
    """Settings as texts: secrets are removed, None is left out, lists and dicts become JSON."""
    redacted = {mlflow_name(name): redact(value, name) for name, value in values.items() if value is not None}
    return {name: value if isinstance(value, str) else _compact(value) for name, value in redacted.items()}


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)


def finite_values(values: Mapping[str, float | None]) -> dict[str, float]:
    """Metrics without None and values that are not finite."""
    return {mlflow_name(name): float(v) for name, v in values.items() if v is not None and math.isfinite(v)}


def parent_run_tags() -> dict[str, str]:
    """Tags of every parent run: the command that started it and the versions of Python and packages."""
    return {**source_tags(), "versions": ", ".join(map(" ".join, versions().items()))}


def versions() -> dict[str, str]:
    """Python, this project and the libraries that results depend on -> installed version."""
    installed = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed


def source_tags() -> dict[str, str]:
    """Tags of every run, parent or child."""
    # MLflow would log the address of the checkout's remote, which may hold a token.
    tags = {"mlflow.source.name": Path(sys.argv[0]).name, "mlflow.source.type": "LOCAL"}
    return {**tags, "mlflow.source.git.repoURL": ""}


def first_line(error: BaseException | None) -> str:
    """An error in one line, without secrets."""
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return redact_text(text)[:500]
