"""One loaded judge per process, for engines such as Spark that load a model again for each task.

Loads of the same export with the same settings share a judge, and with it event loop, connections, rate limits and
replies; the judge stays until the process ends.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.http.address import base_variable, key_variable
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.reply import replies_folder
from debate_judge.runs.export.loaded import LoadedJudge, open_judge
from debate_judge.runs.export.manifest import read

SETTINGS: Mapping[str, Callable[[Any], Any]] = {
    "lm": str,
    "api_base": str,
    "concurrency": int,
    "rpm": float,
    "tpm": float,
    "budget": str,
    "store": Path,
}
"""Setting of a model -> conversion of its value. Limits are per process."""

_judges: dict[tuple[object, ...], LoadedJudge] = {}
_locks: dict[int, threading.Lock] = {}


def environment_variable(setting: str) -> str:
    """The environment variable of a setting."""
    return f"DEBATE_{setting.upper()}"


def cached_judge(folder: str | Path, config: Mapping[str, Any]) -> LoadedJudge:
    """The process's judge of an export, loaded on first use.

    Args:
        folder: The export.
        config: Values of some of `SETTINGS`. A missing one, or None, is taken from the environment, else from the
            export or the defaults of `runs.export.folder.load`.

    Raises:
        InputError: It is no usable export, a value cannot be read, or only the export gives the LM's address.
        dspy.LMError: The LM cannot be made, e.g. because its key is missing.
    """
    settings = {name: value for name in SETTINGS if (value := _value(name, config)) is not None}
    export = read(folder)
    spec = str(settings.get("lm") or export.manifest["lm"]["spec"])
    # If the key or the address has changed since, another judge is loaded.
    environment = tuple(os.environ.get(name) for name in (key_variable(spec), base_variable(spec), "DEBATE_REPLIES"))
    recorded = json.dumps(export.manifest["lm"], sort_keys=True)
    identity = (export.fingerprint, recorded, *sorted(settings.items()), environment)
    # One lock per process: a lock that was held during a fork would stay locked in the child.
    with _locks.setdefault(os.getpid(), threading.Lock()):
        judge = _judges.get(identity)
        if judge is None or judge.closed:
            limits = {name: settings.pop(name, None) for name in ("rpm", "tpm", "budget")}
            common = {"lm": None, "api_base": None, "concurrency": 16, "store": None}
            if "store" in settings:
                settings["store"] = replies_folder(settings["store"], spec)
            judge = open_judge(export, options=LMOptions.from_settings(**limits), **{**common, **settings})
            _judges[identity] = judge
        return judge


def _value(name: str, config: Mapping[str, Any]) -> Any:
    value, field = config.get(name), name
    if value is None:
        value, field = os.environ.get(environment_variable(name)) or None, environment_variable(name)
    try:
        return None if value is None else SETTINGS[name](value)
    except (TypeError, ValueError) as error:
        raise InputError("wrong type", field=field, expected="a number", found=value) from error
