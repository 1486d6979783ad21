"""The files of an exported judge: conversion to JSON, and reading with validation of every field.

An export is a folder with `manifest.json` and one DSPy state per aspect, all of it JSON: reading one runs no code from
it. A user's own judge is recorded as `module:Class` and imported only if the caller has named it. `runs.export`
connects an export to an LM.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from debate_judge.data.calibration import Calibration
from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.formats import json_object
from debate_judge.data.files.records import AnyText, FileModel, Number, Record, Text, input_error, validated
from debate_judge.data.schema import Granularity, Task, fingerprint
from debate_judge.programs import JUDGE_CLASSES, build
from debate_judge.programs.examples import is_rated_example
from debate_judge.programs.judge import AspectJudge, CompiledJudge, Judge
from debate_judge.programs.lm.settings import MaxTokens, base_variable, redact, without_credentials
from debate_judge.runs.mlflow_store import DEFAULT_STORE, MLflowStore, download, in_mlflow

T = TypeVar("T")

FORMAT = "debate-judge export"
SCHEMA_VERSION = 4
"""Increased when kinds, configurations or predictors of judges are renamed; earlier exports are then refused."""

MANIFEST = "manifest.json"

_MANIFEST_PATTERNS = (MANIFEST, f"artifacts/{MANIFEST}", f"artifacts/*/{MANIFEST}", f"*/{MANIFEST}")
"""Paths of the manifest below a folder: directly in it, or in an MLflow model."""

_STATE_KEYS = ("signature", "demos", "fields")
"""The keys of a predictor's DSPy state that are exported; the others are an LM and traces of the tuning."""

REMEDY = "compile the judge again, or restore the folder from a copy"

State = dict[str, dict[str, Any]]
"""Predictor name -> its state."""


def _refuse_empty(aspects: dict[str, AspectEntry]) -> dict[str, AspectEntry]:
    if not aspects:
        raise InputError("the export judges no aspect", expected="at least one aspect")
    return aspects


# --- the fields of the files, read and written ---


class LMEntry(FileModel):
    """The LM of the compile."""

    spec: Text
    temperature: Number | Literal["none"] | None = None
    """`none` if it was left to the provider by a setting; None if the model refuses it."""
    max_tokens: Number | Literal["none"] | None = None
    api_base: Text | None = None


class AspectEntry(FileModel):
    """The judge of an aspect."""

    kind: Text
    config: dict[str, Any]
    granularity: Granularity
    state: Text
    """The file of its predictors, below the export's folder."""
    calibration: Calibration | None = None
    holds_texts: dict[str, int] | None = None
    """How many rated examples and other demonstrations its prompts have."""


class Manifest(FileModel):
    """`manifest.json`."""

    format: Text = FORMAT
    schema_version: int = SCHEMA_VERSION
    fingerprint: Text
    name: Text = ""
    task: Task
    """Without columns, which do not determine prompts."""
    columns: dict[str, Text] = Field(default_factory=dict)
    aspects: Annotated[dict[str, AspectEntry], AfterValidator(_refuse_empty)]
    lm: LMEntry
    versions: dict[str, Any] = Field(default_factory=dict)
    evidence: dict[str, Any]

    def values(self) -> dict[str, Any]:
        """As JSON values; `ValueError` if something is none."""
        values: dict[str, Any] = json.loads(json.dumps(self.model_dump(exclude_none=True), allow_nan=False))
        return values


class _Field(FileModel):
    prefix: AnyText
    description: AnyText


class _Signature(FileModel):
    instructions: AnyText
    fields: list[_Field]


class _PredictorState(FileModel):
    signature: _Signature
    demos: list[dict[str, Any]] = Field(default_factory=list)


# --- reading and writing ---


@dataclass(frozen=True)
class Export:
    """An exported judge, without an LM."""

    judge: CompiledJudge
    manifest: Manifest
    folder: Path

    @property
    def fingerprint(self) -> str:
        """Hash of the program: task, aspects, configurations and instructions, but not the LM."""
        return self.manifest.fingerprint


def program_fingerprint(task: object, aspects: object, states: Mapping[str, object]) -> str:
    """Hash of everything that determines the judge's prompts and how replies are parsed; arguments are JSON values."""
    return fingerprint({"task": task, "aspects": aspects, "states": states})


def save_state(judge: Judge, file: Path) -> State:
    """Write the judge's state by DSPy's own `save`, which DSPy's `load` reads; returns what it says of the program.

    LMs are left out, and so are traces of the tuning, which quote texts.
    """
    bare = judge.deepcopy()
    for _, predictor in bare.named_predictors():
        predictor.lm, predictor.traces, predictor.train = None, [], []
    bare.save(file)
    return program_state(json_object(file))


def program_state(state: Record) -> State:
    """What a state says of the program: DSPy's own versions, LMs and traces left out."""
    return {
        name: {key: value for key, value in values.items() if key in _STATE_KEYS}
        for name, values in state.values.items()
        if name != "metadata" and isinstance(values, dict)
    }


def demo_counts(state: State) -> dict[str, int]:
    """The numbers of rated examples and of other demonstrations in a judge's state; empty if there are none."""
    demos = [demo for predictor_state in state.values() for demo in predictor_state.get("demos", ())]
    rated = sum(map(is_rated_example, demos))
    counts = {"rated_examples": rated, "demonstrations": len(demos) - rated}
    return {kind: count for kind, count in counts.items() if count}


def read(path: str | Path, judges: Collection[str] = ()) -> Export:
    """Read an export from its folder, or from the folder of an MLflow model that holds it.

    Args:
        path: The folder.
        judges: `module:Class` of the judges outside this project that the caller trusts. Only modules named here are
            imported.

    Raises:
        InputError: It is not an export, was made by another version of the format, is incomplete or was changed.
    """
    folder = _locate(Path(path))
    root = json_object(folder / MANIFEST, remedy=REMEDY)
    _check_format(root)
    manifest, entries = _manifest(root), root.child("aspects")
    task = replace(manifest.task, columns=manifest.columns)
    records = {name: entries.child(name) for name in manifest.aspects}
    states = {name: _read_state(folder, records[name], entry.state) for name, entry in manifest.aspects.items()}
    actual = program_fingerprint(
        root.values["task"], root.values["aspects"], {name: program_state(state) for name, state in states.items()}
    )
    if actual != manifest.fingerprint:
        raise root.error(
            "the export was changed after it was written, so its evidence is about another judge",
            "fingerprint",
            expected=manifest.fingerprint,
            found=actual,
            remedy="restore the folder, or change the judge in Python and save it with `runs.export.save`",
        )
    for name, entry in manifest.aspects.items():
        _require_trusted_judge(records[name], entry.kind, judges)
    judges_by_aspect = {
        name: _aspect_judge(records[name], entry, states[name], task, name) for name, entry in manifest.aspects.items()
    }
    ordered = {a.name: judges_by_aspect[a.name] for a in task.aspects if a.name in judges_by_aspect}
    return Export(CompiledJudge(task, ordered), manifest, folder)


def _manifest(root: Record) -> Manifest:
    try:
        # As JSON, whose lists are tuples where a field is one.
        return Manifest.model_validate_json(json.dumps(root.values))
    except ValidationError as error:
        raise input_error(error, root) from None


def _locate(path: Path) -> Path:
    if not path.is_dir():
        problem = "an export is a folder, and this is a file" if path.exists() else "no such folder"
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        remedy = "give the folder that holds manifest.json" if path.exists() else did_you_mean(path.name, siblings)
        raise InputError(problem, file=path, expected="the folder of an export", remedy=remedy)
    manifests = next((sorted(path.glob(p)) for p in _MANIFEST_PATTERNS if any(path.glob(p))), [])
    if len(manifests) != 1:
        raise InputError(
            f"no {MANIFEST} in the folder" if not manifests else f"several folders with a {MANIFEST}",
            file=path,
            expected="the folder of an export, as a compile writes it",
            found=", ".join(p.parent.name for p in manifests) or ", ".join(sorted(p.name for p in path.iterdir())[:8]),
            remedy="name one of them" if manifests else "give the path that the compile printed after 'Export'",
        )
    return manifests[0].parent


def _check_format(root: Record) -> None:
    if root.values.get("format") != FORMAT:
        raise root.error(
            "this JSON file is not the manifest of an export",
            "format",
            expected=repr(FORMAT),
            found=root.values.get("format", "fields " + ", ".join(map(str, list(root.values)[:8]))),
            remedy="give the folder that the compile wrote",
        )
    version = root.number("schema_version")
    if version != SCHEMA_VERSION:
        newer = version > SCHEMA_VERSION
        raise root.error(
            f"the export was made by {'a newer' if newer else 'an earlier'} version of this project",
            "schema_version",
            expected=f"{SCHEMA_VERSION}",
            found=f"{version:g}",
            remedy="update this project" if newer else "compile the judge again",
        )


def _read_state(folder: Path, entry: Record, name: str) -> Record:
    file = folder / name
    # A manifest from elsewhere must not point to files outside its folder; no path can hold a zero byte.
    if "\0" in name or not file.resolve().is_relative_to(folder.resolve()):
        raise entry.error("the state lies outside the export", "state", found=name)
    return json_object(file, remedy=REMEDY)


def _require_trusted_judge(entry: Record, name: str, judges: Collection[str]) -> None:
    """Refuse a judge that is neither of this project nor named by the caller."""
    if ":" not in name:
        entry.choice("kind", JUDGE_CLASSES, "update this project if a newer version has it")
    elif name not in judges:
        raise entry.error(
            f"the export needs the judge {name!r}, whose module is imported only if you name it",
            "kind",
            expected="a judge of this project, or one that you have named",
            found=name,
            remedy=f"if you trust that module: --trust {name} (for a comparison: --judges EXPORT,{name}), "
            f"or load(..., judges=[{name!r}])",
        )


def _aspect_judge(record: Record, entry: AspectEntry, state: Record, task: Task, aspect: str) -> AspectJudge:
    if aspect not in {a.name for a in task.aspects}:
        raise record.error("the task does not have this aspect", found=aspect)
    config = record.child("config")
    try:
        with config.located():
            judge = build(entry.kind, entry.config)
    except InputError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise config.error(f"not a configuration of the judge {entry.kind!r}: {error!r}", found=entry.config) from None
    _load_states(judge, state)
    with record.located("granularity"):
        return AspectJudge(judge, entry.granularity, entry.calibration)


def _load_states(judge: Judge, state: Record) -> None:
    """Load the predictors' states, with the tuned instructions, into the judge."""
    predictors = dict(judge.named_predictors())
    if set(predictors) != set(state.values) - {"metadata"}:
        raise state.error(
            "the state belongs to another judge: its predictors have other names",
            expected=", ".join(predictors) or "none",
            found=", ".join(state.values) or "none",
            remedy="use the version of this project that made the export, or compile the judge again",
        )
    complete: State = {}
    for name, predictor in predictors.items():
        record = state.child(name)
        entry = validated(_PredictorState, record)
        fields = entry.signature.fields
        if len(fields) != len(predictor.signature.fields):
            raise record.error(
                "the predictor had other fields",
                "signature.fields",
                expected=f"{len(predictor.signature.fields)} fields",
                found=f"{len(fields)} fields",
                remedy="use the version of this project that made the export, or compile the judge again",
            )
        exported = {k: record.values[k] for k in _STATE_KEYS if k in record.values}
        complete[name] = {**exported, "demos": entry.demos, "traces": [], "train": [], "lm": None}
    judge.load_state(complete)


# --- the evidence ---


class DecisionCut(FileModel):
    """The kind of decision of an aspect whose ratings are decisions, and the lowest score that counts as yes."""

    kind: str = ""
    cut: Number | None = None


def evidence_part(manifest: Manifest, name: str, expected: type[T]) -> T | None:
    """An entry of an export's evidence, validated as `expected`; None without it.

    Raises:
        InputError: It is not of this type.
    """
    value = manifest.evidence.get(name)
    if value is None:
        return None
    try:
        return TypeAdapter(expected).validate_python(value, strict=True)
    except ValidationError as error:
        record = Record({}, MANIFEST, path=f"evidence.{name}", remedy=REMEDY)
        raise input_error(error, record) from None


def cuts_in(manifest: Manifest) -> dict[str, DecisionCut]:
    """Aspect -> the cut of the exported judge, for aspects whose ratings are decisions."""
    exported = (evidence_part(manifest, "exported", dict[str, str]) or {}).get("judge", "")
    return (evidence_part(manifest, "decisions", dict[str, dict[str, DecisionCut]]) or {}).get(exported, {})


# --- the LM of an export's judge, and its address ---

# An export may come from anywhere. Calls carry the texts and the user's key, so they go only to the provider in the
# spec (PROVIDER/MODEL) or to an address that the user has given, by `--api-base` or by the provider's environment
# variable.


def resolve_lm(
    export: Export, lm: str | None, api_base: str | None, max_tokens: MaxTokens | None = None
) -> tuple[str, str | None, dict[str, Any]]:
    """Spec, address and further arguments of `make_lm`: those of the compile, unless others are given here.

    Raises:
        InputError: Only the export gives the address.
    """
    recorded = export.manifest.lm
    spec = lm or recorded.spec
    address = unconfirmed_address(export, lm, api_base)
    if address is not None:
        raise InputError(
            "the export names the server that texts and key would go to, and you have not confirmed it",
            file=export.folder,
            field="lm.api_base",
            expected="an address that you give yourself",
            found=repr(address),
            remedy="if you trust it, give it yourself: --api-base ADDRESS, or load(..., api_base=ADDRESS); to use "
            "another LM: --lm",
        )
    if lm is None and "://" in spec:
        # For some of LiteLLM's providers the model's name is an address.
        raise InputError(
            "the export's LM is an address, to which texts and key would go",
            file=export.folder,
            field="lm.spec",
            expected="PROVIDER/MODEL",
            found=repr(spec),
            remedy="if you trust it, name it yourself with --lm",
        )
    settings = recorded.model_dump(include={"temperature", "max_tokens"}, exclude_none=True)
    return spec, api_base, settings if max_tokens is None else {**settings, "max_tokens": max_tokens}


@contextmanager
def attribute_spec_errors(export: Export, lm: str | None) -> Iterator[None]:
    """Attribute errors about the LM's name to the export, unless the user has given another LM."""
    try:
        yield
    except InputError as error:
        if lm is not None or error.field != "--lm":
            raise
        remedy = "name the LM that you want to use with --lm PROVIDER/MODEL"
        raise error.replaced(file=export.folder / MANIFEST, field="lm.spec", remedy=remedy) from None


def unconfirmed_address(export: Export, lm: str | None, api_base: str | None) -> str | None:
    """The export's address, if calls would go there and the user has not given it as well; else None."""
    recorded = export.manifest.lm
    address = recorded.api_base
    if not address or api_base or (lm is not None and lm != recorded.spec):
        return None
    environment_address = os.environ.get(base_variable(recorded.spec))
    return (
        None
        if environment_address and without_credentials(environment_address).rstrip("/") == address.rstrip("/")
        else address
    )


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
        _write(temporary, _manifest_of(judge, _write_states(judge, temporary), lm, evidence, name))
        # An export that cannot be read back must not replace one that can.
        written = read(temporary, kinds)
        for aspect, aspect_judge in judge.aspects.items():
            if written.judge.aspects[aspect].judge.instructions() != aspect_judge.judge.instructions():
                raise ValueError(f"the judge of {aspect!r} has other instructions after loading than it was saved with")
        _move_into_place(temporary, folder, written.fingerprint, kinds)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def open_export(path: str | Path, judges: Collection[str] = (), store: MLflowStore = DEFAULT_STORE) -> Export:
    """Read an export by folder or MLflow address, without an LM.

    Args:
        path: As in `load`.
        judges: As in `load`.
        store: Where MLflow addresses are looked up.

    Raises:
        InputError: It cannot be found or is not a usable export.
    """
    if not in_mlflow(str(path)):
        return read(path, judges)
    # An export is read into memory, so that the copy can be deleted.
    with download(str(path), store) as copy:
        return read(copy, judges)


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


def _manifest_of(
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
