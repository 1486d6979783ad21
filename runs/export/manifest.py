"""The files of an exported judge: conversion to JSON, and reading with validation of every field.

An export is a folder with `manifest.json` and one DSPy state per aspect, all of it JSON: reading one runs no code from
it. A user's own judge is recorded as `module:Class` and imported only if the caller has named it. `runs.export.folder`
connects an export to an LM.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
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
from debate_judge.programs.lm.settings import MaxTokens, base_variable, without_credentials

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
            remedy="restore the folder, or change the judge in Python and save it with `runs.export.folder.save`",
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
