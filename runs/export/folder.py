"""Saves a judge as a folder of JSON, and loads it again to score texts from Python.

    from debate_judge import load

    judge = load("runs/store/exports/NAME")
    judge(source="The article ...", text="Its summary ...", aspect="coherence").score

`runs.export.manifest` describes the files.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Task
from debate_judge.programs.judge import CompiledJudge
from debate_judge.programs.lm.settings import LMOptions, redact, without_credentials
from debate_judge.runs.export.from_mlflow import DEFAULT_STORE, MLflowStore, fetch, in_mlflow
from debate_judge.runs.export.loaded import LoadedJudge, open_judge
from debate_judge.runs.export.manifest import (
    MANIFEST,
    AspectEntry,
    Export,
    LMEntry,
    Manifest,
    State,
    demo_counts,
    program_fingerprint,
    read,
    save_state,
)
from debate_judge.runs.flags import python_arguments

__all__ = ["Export", "LoadedJudge", "load", "load_in_tool", "open_export", "open_judge", "read", "save"]

log = logging.getLogger(__name__)

_LM_SETTINGS = ("spec", "temperature", "max_tokens")
_README = """\
# {name}

A judge for the task {task!r}: {aspects}. {lm}manifest.json has, under "evidence", the name of the data that it was \
compiled on and its agreement with the raters on held-out sources.{texts}

Score a file: `debate score THIS_FOLDER --in texts.jsonl --out scores.jsonl`
From Python: `from debate_judge import load`, then `load("THIS_FOLDER")(source="...", text="...").scores`
{scale}From MLflow's registry: the same two ways with `models:/NAME/VERSION` in place of THIS_FOLDER
"""

_ON_RATERS_SCALE = """\
On the raters' scale: `--scale raters`, or `score(..., scale="raters")`; the order of scores is the same
"""


def save(
    folder: str | Path,
    judge: CompiledJudge,
    *,
    lm: Mapping[str, Any],
    evidence: Mapping[str, Any],
    name: str,
) -> Path:
    """Write a judge so that it can be used without the data that it was compiled on.

    The folder is written completely or not at all. An existing export of the same program is replaced; one of another
    program is kept under another name. Keys, passwords and absolute paths are left out. Rated examples and other
    demonstrations in the judge's prompts are texts of the data; the manifest and the README count them.

    Args:
        folder: Folder to write; parent folders are created.
        judge: The judge.
        lm: Its LM: `spec`, and optionally `api_base`, `temperature`, `max_tokens`. Other entries are dropped.
        evidence: JSON values about its agreement with the raters.
        name: Its name, for people.

    Returns:
        The folder.

    Raises:
        InputError: The folder contains something that is not an export, or the judge's class cannot be imported by its
            name.
    """
    folder = Path(folder)
    kinds = {aspect_judge.judge.kind for aspect_judge in judge.aspects.values()}
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.parent / f".{folder.name}.{uuid.uuid4().hex[:8]}"
    try:
        _write(temporary, _manifest(judge, _write_states(judge, temporary), lm, evidence, name))
        # An export that cannot be read back must not replace one that can.
        written = read(temporary, kinds)
        for aspect, aspect_judge in judge.aspects.items():
            if written.judge.aspects[aspect].judge.instructions() != aspect_judge.judge.instructions():
                raise ValueError(f"the judge of {aspect!r} has other instructions after loading than it was saved with")
        _move_into_place(temporary, folder, written.fingerprint, kinds)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


@python_arguments
def load(
    path: str | Path,
    *,
    lm: str | None = None,
    api_base: str | None = None,
    concurrency: int = 16,
    rpm: float | None = None,
    tpm: float | None = None,
    budget: str | None = None,
    store: str | Path | None = None,
    judges: Collection[str] = (),
) -> LoadedJudge:
    """Load an export, ready to score.

    Loading imports the modules that `judges` names and the export needs, and no other code.

    Args:
        path: Its folder, or for one in MLflow `models:/NAME/VERSION`, `models:/NAME@ALIAS` or the id of its run.
        lm: Another LM than the compile's; the evidence in the export does not hold for it.
        api_base: Address of an OpenAI-compatible server. An address in the export is used only if it is given here as
            well, because texts and key are sent there.
        concurrency: Maximum number of LM calls in flight.
        rpm: Maximum requests per minute.
        tpm: Maximum tokens per minute.
        budget: Hard cap on spending, such as `usd=5` or `calls=1000`.
        store: Folder to cache the LM's replies in, as `--store`; by default the most recent ones are kept in memory.
        judges: `module:Class` of each judge outside this project that the export may use.

    Raises:
        InputError: It cannot be found or is not a usable export, `lm` is not an LM, or only the export gives the
            address of the LM.
        dspy.LMError: The LM cannot be made, e.g. because its key is missing.
    """
    options = LMOptions.from_settings(rpm=rpm, tpm=tpm, budget=budget)
    return open_judge(
        open_export(path, judges),
        lm=lm,
        api_base=api_base,
        concurrency=concurrency,
        store=None if store is None else Path(store),
        options=options,
    )


SETTINGS: Mapping[str, Callable[[Any], Any]] = {
    "lm": str,
    "api_base": str,
    "concurrency": int,
    "rpm": float,
    "tpm": float,
    "budget": str,
    "store": Path,
}
"""Argument of `load` that a tool's process takes from the environment -> conversion of its value."""


def load_in_tool(path: LoadedJudge | str | Path, config: Mapping[str, Any] | None = None) -> LoadedJudge:
    """A loaded judge, or one loaded for a tool, whose process others may start, such as a server of MLflow: what
    `config` does not say is taken from the environment (`DEBATE_LM`, `DEBATE_API_BASE`, `DEBATE_RPM`, ...).

    Raises:
        InputError: As for `load`, or a value cannot be read.
        dspy.LMError: As for `load`.
    """
    if isinstance(path, LoadedJudge):
        return path
    settings: dict[str, Any] = {}
    for name, convert in SETTINGS.items():
        variable = f"DEBATE_{name.upper()}"
        value, field = (config or {}).get(name), name
        if value is None:
            value, field = os.environ.get(variable) or None, variable
        try:
            settings |= {} if value is None else {name: convert(value)}
        except (TypeError, ValueError) as error:
            raise InputError("wrong type", field=field, expected="a number", found=value) from error
    return load(path, **settings)


def open_export(path: str | Path, judges: Collection[str] = (), store: MLflowStore = DEFAULT_STORE) -> Export:
    """Read an export by folder or MLflow address, without an LM.

    Args:
        path: As in `load`.
        judges: As in `load`.
        store: Where MLflow addresses are looked up.

    Raises:
        InputError: It cannot be found or is not a usable export.
    """
    return fetch(str(path), judges, store) if in_mlflow(str(path)) else read(path, judges)


def _text_columns(task: Task) -> dict[str, str]:
    """The part of a task's mapping that new texts are read by: their ratings, if they have any, are not."""
    return {name: column for name, column in task.columns.items() if isinstance(column, str)}


def _write_states(judge: CompiledJudge, folder: Path) -> dict[str, tuple[str, State]]:
    """Aspect -> the file of its judge's state, and the state."""
    (folder / "state").mkdir(parents=True)
    states = {}
    for number, (name, aspect_judge) in enumerate(judge.aspects.items(), 1):
        # The number keeps names different that would be the same on a file system.
        file_name = re.sub(r"[^\w.-]", "_", name)
        file = f"state/{number}-{file_name}.json"
        states[name] = file, save_state(aspect_judge.judge, folder / file)
    return states


def _manifest(
    judge: CompiledJudge,
    saved: Mapping[str, tuple[str, State]],
    lm: Mapping[str, Any],
    evidence: Mapping[str, Any],
    name: str,
) -> Manifest:
    aspects = {
        aspect: AspectEntry(
            kind=chosen.judge.kind,
            config=chosen.judge.config(),
            granularity=chosen.granularity,
            state=saved[aspect][0],
            calibration=chosen.calibration,
            holds_texts=demo_counts(saved[aspect][1]) or None,
        )
        for aspect, chosen in judge.aspects.items()
    }
    manifest = Manifest(
        fingerprint="unsigned",
        name=name,
        task=replace(judge.task, columns={}),
        columns=_text_columns(judge.task),
        aspects=aspects,
        lm=_lm_entry(lm),
        versions=_versions(),
        evidence=_portable(redact(evidence)),
    )
    written = manifest.values()
    states = {aspect: state for aspect, (_, state) in saved.items()}
    return manifest.model_copy(update={"fingerprint": program_fingerprint(written["task"], written["aspects"], states)})


def _lm_entry(lm: Mapping[str, Any]) -> LMEntry:
    address = without_credentials(str(lm["api_base"])) if lm.get("api_base") else None
    return LMEntry(**{k: lm[k] for k in _LM_SETTINGS if k in lm}, api_base=address)


def _versions() -> dict[str, str]:
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in ("dspy", "debate-judge"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed as a package"
    return versions


def _portable(value: Any) -> Any:
    """`value` with absolute paths cut to their last component: they mean nothing on another machine."""
    if isinstance(value, Mapping):
        return {str(k): _portable(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_portable(v) for v in value]
    if isinstance(value, str) and "\n" not in value:
        for flavour in (PurePosixPath, PureWindowsPath):
            path = flavour(value)
            if path.is_absolute() and path.name:
                return path.name
    return value


def _write(folder: Path, manifest: Manifest) -> None:
    spec, note, entries = manifest.lm.spec, manifest.evidence.get("note"), manifest.aspects.values()
    note = f" {note}" if note else ""
    texts = sum(sum((entry.holds_texts or {}).values()) for entry in entries)
    readme = _README.format(
        name=manifest.name,
        task=manifest.task.name,
        aspects=", ".join(manifest.aspects),
        lm=f"It was compiled with the LM {spec}.{note} ",
        scale=_ON_RATERS_SCALE if any(entry.calibration for entry in entries) else "",
        texts=f" Its prompts have {texts} rated texts of that data, which are in the folder `state`." if texts else "",
    )
    (folder / "README.md").write_text(readme, encoding="utf-8")
    text = json.dumps(manifest.values(), ensure_ascii=False, indent=2, allow_nan=False)
    (folder / MANIFEST).write_text(f"{text}\n", encoding="utf-8")


def _move_into_place(temporary: Path, folder: Path, fingerprint: str, kinds: Collection[str]) -> None:
    """Rename the new export to its folder; an existing export of another judge is kept under another name."""
    old: Path | None = None
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        try:
            old_fingerprint = read(folder, kinds).fingerprint
        except InputError as error:
            if not (folder / MANIFEST).is_file():
                raise InputError(
                    "the folder is not empty and is no export",
                    file=folder,
                    expected="an export, or no such folder",
                    remedy="choose another name, or move the files that are there",
                ) from error
            old_fingerprint = "broken"
        same = old_fingerprint == fingerprint
        old = folder.with_name(f".{temporary.name[1:]}.old" if same else f"{folder.name}.{old_fingerprint[:8]}")
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
        if not same:
            log.warning("%s: the folder held another judge, which is kept as %s", folder, old.name)
            old = None
    temporary.replace(folder)
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)
