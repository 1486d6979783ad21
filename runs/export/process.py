"""One loaded judge for all of a process, for engines that load a model again for each task, as Spark does.

Loads of the same export with the same settings share a judge, and so its event loop, connections, rate limits and
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
"""What can be given to a model -> how its value is read. Limits are those of one process."""

_judges: dict[tuple[object, ...], LoadedJudge] = {}
_locks: dict[int, threading.Lock] = {}


def variable(setting: str) -> str:
    """The environment variable of a setting."""
    return f"DEBATE_{setting.upper()}"


def judge_of_process(folder: str | Path, config: Mapping[str, Any]) -> LoadedJudge:
    """The judge that this process has of an export, loaded if it is the first to be asked for.

    Args:
        folder: The export.
        config: Values of some of `SETTINGS`. One that is absent or None is taken from the environment, else what the
            export or `runs.export.folder.load` says.

    Raises:
        InputError: It is no usable export, a value cannot be read, or only the export says where the calls would go.
        dspy.LMError: The LM cannot be made, e.g. because its key is missing.
    """
    given = {name: value for name in SETTINGS if (value := _value(name, config)) is not None}
    export = read(folder)
    spec = str(given.get("lm") or export.manifest["lm"]["spec"])
    # A key or an address that was corrected since makes another judge.
    account = tuple(os.environ.get(name) for name in (key_variable(spec), base_variable(spec), "DEBATE_REPLIES"))
    recorded = json.dumps(export.manifest["lm"], sort_keys=True)
    identity = (export.fingerprint, recorded, *sorted(given.items()), account)
    # By process: a lock that was held during the fork stays locked forever.
    with _locks.setdefault(os.getpid(), threading.Lock()):
        judge = _judges.get(identity)
        if judge is None or judge.closed:
            limits = {name: given.pop(name, None) for name in ("rpm", "tpm", "budget")}
            common = {"lm": None, "api_base": None, "concurrency": 16, "store": None}
            if "store" in given:
                given["store"] = replies_folder(given["store"], spec)
            judge = open_judge(export, options=LMOptions.from_settings(**limits), **{**common, **given})
            _judges[identity] = judge
        return judge


def _value(name: str, config: Mapping[str, Any]) -> Any:
    value, field = config.get(name), name
    if value is None:
        value, field = os.environ.get(variable(name)) or None, variable(name)
    try:
        return None if value is None else SETTINGS[name](value)
    except (TypeError, ValueError) as error:
        raise InputError("wrong type", field=field, expected="a number", found=value) from error
