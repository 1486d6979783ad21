"""An exported judge: a folder with `manifest.json` and one DSPy state per aspect, all of it JSON.

An export may come from anywhere. Reading one runs no code from it and opens no file outside it; a user's own judge is
recorded as `module:Class` and imported only if the caller has named it. `runs.loaded` connects an export to an LM.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Literal

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

log = logging.getLogger(__name__)

FORMAT = "debate-judge export"
SCHEMA_VERSION = 4
"""Increased when kinds, configurations or predictors of judges are renamed; earlier exports are then refused."""

MANIFEST = "manifest.json"

_PLACES = (MANIFEST, f"artifacts/{MANIFEST}", f"artifacts/*/{MANIFEST}", f"*/{MANIFEST}")
"""Paths of the manifest below a folder: directly in it, or in an MLflow model."""

_PACKAGES = ("dspy", "mlflow", "optuna", "numpy", "debate-judge")
"""The libraries that results depend on."""

_REMEDY = "compile the judge again, or restore the folder from a copy"

_README = """\
# {name}

A judge for the task {task!r}: {aspects}. It was compiled with the LM {lm}.{note} manifest.json has, under "evidence", \
the name of the data that it was compiled on and its agreement with the raters on held-out sources.{texts}

Score a file: `debate score THIS_FOLDER --in texts.jsonl --out scores.jsonl`
From Python: `from debate_judge import load`, then `load("THIS_FOLDER")(source="...", text="...").scores`
{scale}From MLflow's registry: the same two ways with `models:/NAME/VERSION` in place of THIS_FOLDER
"""

_ON_RATERS_SCALE = 'On the raters\' scale: `--scale raters`, or `score(..., scale="raters")`\n'


# --- the fields of the files ---


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


def _require_aspects(aspects: dict[str, AspectEntry]) -> dict[str, AspectEntry]:
    if not aspects:
        raise InputError("the export judges no aspect", expected="at least one aspect")
    return aspects


class Manifest(FileModel):
    """`manifest.json`."""

    format: Text = FORMAT
    schema_version: int = SCHEMA_VERSION
    fingerprint: Text
    name: Text = ""
    task: Task
    """Without columns, which do not determine prompts."""
    columns: dict[str, Text] = Field(default_factory=dict)
    aspects: Annotated[dict[str, AspectEntry], AfterValidator(_require_aspects)]
    lm: LMEntry
    versions: dict[str, Any] = Field(default_factory=dict)
    evidence: dict[str, Any]

    def values(self) -> dict[str, Any]:
        """As JSON values; `ValueError` if something is none."""
        values: dict[str, Any] = json.loads(json.dumps(self.model_dump(exclude_none=True), allow_nan=False))
        return values


class DecisionCut(FileModel):
    """The kind of decision of an aspect whose ratings are decisions, and the lowest score that counts as yes."""

    kind: str = ""
    cut: Number | None = None


class Evidence(FileModel):
    """What is read again of the evidence."""

    exported: dict[str, str] = Field(default_factory=dict)
    """Which judge was exported, and why."""
    decisions: dict[str, dict[str, DecisionCut]] = Field(default_factory=dict)
    """Judge -> aspect -> decision."""
    compiled_on: list[str] = Field(default_factory=list)
    """Hashes of the sources that the judge was tuned or chosen on."""


class _Signature(FileModel):
    instructions: AnyText
    fields: list[dict[str, AnyText]]


class _Predictor(FileModel):
    signature: _Signature
    demos: list[dict[str, Any]]
    fields: dict[str, Any] = Field(default_factory=dict)


_PREDICTORS = TypeAdapter(dict[str, _Predictor])

State = dict[str, dict[str, Any]]
"""Predictor -> what its DSPy state says of the program: DSPy's own versions, LMs and traces are left out."""


@dataclass(frozen=True)
class Export:
    """An exported judge, without an LM."""

    judge: CompiledJudge
    manifest: Manifest
    evidence: Evidence
    folder: Path

    @property
    def fingerprint(self) -> str:
        """Hash of the program: task, aspects, configurations and instructions, but not the LM."""
        return self.manifest.fingerprint


def program_fingerprint(task: object, aspects: object, states: Mapping[str, object]) -> str:
    """Hash of everything that determines the judge's prompts and how replies are parsed; arguments are JSON values."""
    return fingerprint({"task": task, "aspects": aspects, "states": states})


# --- writing ---


def save(
    folder: str | Path, judge: CompiledJudge, *, lm: Mapping[str, Any], evidence: Mapping[str, Any], name: str
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
    kinds = {chosen.judge.kind for chosen in judge.aspects.values()}
    temporary = folder.parent / f".{folder.name}.{uuid.uuid4().hex[:8]}"
    try:
        _write(temporary, judge, lm, evidence, name)
        # An export that cannot be read back must not replace one that can.
        written = read(temporary, kinds)
        for aspect, chosen in judge.aspects.items():
            if written.judge.aspects[aspect].judge.instructions() != chosen.judge.instructions():
                raise ValueError(f"the judge of {aspect!r} has other instructions after loading than it was saved with")
        _move_into_place(temporary, folder, written.fingerprint, kinds)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _write(folder: Path, judge: CompiledJudge, lm: Mapping[str, Any], evidence: Mapping[str, Any], name: str) -> None:
    (folder / "state").mkdir(parents=True)
    states: dict[str, State] = {}
    aspects: dict[str, AspectEntry] = {}
    for number, (aspect, chosen) in enumerate(judge.aspects.items(), 1):
        # The number keeps names different that would be the same on a file system.
        file_name = re.sub(r"[^\w.-]", "_", aspect)
        file = f"state/{number}-{file_name}.json"
        bare = chosen.judge.deepcopy()
        for _, predictor in bare.named_predictors():
            # Traces of the tuning quote texts.
            predictor.lm, predictor.traces, predictor.train = None, [], []
        bare.save(folder / file)
        states[aspect] = read_state(folder / file)
        demos = [demo for predictor in states[aspect].values() for demo in predictor["demos"]]
        rated = sum(map(is_rated_example, demos))
        counts = {"rated_examples": rated, "demonstrations": len(demos) - rated}
        aspects[aspect] = AspectEntry(
            kind=chosen.judge.kind,
            config=chosen.judge.config(),
            granularity=chosen.granularity,
            state=file,
            calibration=chosen.calibration,
            holds_texts={kind: count for kind, count in counts.items() if count} or None,
        )
    address = without_credentials(str(lm["api_base"])) if lm.get("api_base") else None
    manifest = Manifest(
        fingerprint="unsigned",
        name=name,
        task=replace(judge.task, columns={}),
        # New texts are read by these; their ratings, if they have any, are not.
        columns={name: column for name, column in judge.task.columns.items() if isinstance(column, str)},
        aspects=aspects,
        lm=LMEntry(**{k: lm[k] for k in ("spec", "temperature", "max_tokens") if k in lm}, api_base=address),
        versions=versions(),
        evidence=_portable(redact(evidence)),
    )
    values = manifest.values()
    values["fingerprint"] = program_fingerprint(values["task"], values["aspects"], states)
    (folder / MANIFEST).write_text(f"{json.dumps(values, ensure_ascii=False, indent=2)}\n", encoding="utf-8")
    texts = sum(sum((entry.holds_texts or {}).values()) for entry in aspects.values())
    readme = _README.format(
        name=name,
        task=judge.task.name,
        aspects=", ".join(aspects),
        lm=manifest.lm.spec,
        note=f" {manifest.evidence['note']}" if manifest.evidence.get("note") else "",
        scale=_ON_RATERS_SCALE if any(entry.calibration for entry in aspects.values()) else "",
        texts=f" Its prompts have {texts} rated texts of that data, which are in the folder `state`." if texts else "",
    )
    (folder / "README.md").write_text(readme, encoding="utf-8")


def versions() -> dict[str, str]:
    """Python, this project and the libraries that results depend on -> installed version."""
    installed = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return installed


def _portable(value: Any) -> Any:
    """`value` with absolute paths cut to their last component: they mean nothing on another machine."""
    if isinstance(value, Mapping):
        return {str(k): _portable(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_portable(v) for v in value]
    if isinstance(value, str) and "\n" not in value:
        for path in (PurePosixPath(value), PureWindowsPath(value)):
            if path.is_absolute() and path.name:
                return path.name
    return value


def _move_into_place(temporary: Path, folder: Path, fingerprint: str, kinds: Collection[str]) -> None:
    """Rename the new export to its folder; an existing export of another judge is kept under another name."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        temporary.replace(folder)
        return
    if not (folder / MANIFEST).is_file():
        raise InputError(
            "the folder is not empty and is no export",
            file=folder,
            expected="an export, or no such folder",
            remedy="choose another name, or move the files that are there",
        )
    try:
        old_fingerprint = read(folder, kinds).fingerprint
    except InputError:
        old_fingerprint = "broken"
    if old_fingerprint == fingerprint:
        old = folder.with_name(f"{temporary.name}.old")
    else:
        old = folder.with_name(f"{folder.name}.{old_fingerprint[:8]}")
        log.warning("%s: the folder held another judge, which is kept as %s", folder, old.name)
    shutil.rmtree(old, ignore_errors=True)
    folder.rename(old)
    temporary.replace(folder)
    if old_fingerprint == fingerprint:
        shutil.rmtree(old, ignore_errors=True)


# --- reading ---


def in_mlflow(address: str) -> bool:
    """Whether this is an address of an export in MLflow: `models:/…`, `runs:/…`, or the id of a run."""
    return bool(re.fullmatch(r"models:/.+|(runs:/)?[0-9a-f]{32}(/.+)?", address)) and not Path(address).exists()


def open_export(path: str | Path, judges: Collection[str] = (), store: Path | None = None) -> Export:
    """Read an export by folder or MLflow address, without an LM.

    Args:
        path: As in `runs.loaded.load`.
        judges: As in `runs.loaded.load`.
        store: Folder of the embedded store, in which MLflow's addresses are looked up if no tracking URI is set; None
            for that of the default `--store`.

    Raises:
        InputError: It cannot be found or is not a usable export.
    """
    if not in_mlflow(str(path)):
        return read(path, judges)
    from debate_judge.runs.mlflow_store import DEFAULT_FOLDER, download

    # An export is read into memory, so that the copy can be deleted.
    with download(str(path), folder=store or DEFAULT_FOLDER) as copy:
        return read(copy, judges)


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
    root = json_object(folder / MANIFEST, remedy=_REMEDY)
    version = root.values.get("format"), root.values.get("schema_version")
    if version != (FORMAT, SCHEMA_VERSION):
        raise root.error(
            "not the manifest of an export, or of one by another version of this project",
            "schema_version",
            expected=f"{FORMAT}, version {SCHEMA_VERSION}",
            found=", version ".join(map(str, version)),
            remedy="give the folder that the compile wrote; an export of another version: compile the judge again",
        )
    try:
        # As JSON, whose lists are tuples where a field is one.
        manifest = Manifest.model_validate_json(json.dumps(root.values))
    except ValidationError as error:
        raise input_error(error, root) from None
    entries = root.child("aspects")
    records = {name: entries.child(name) for name in manifest.aspects}
    states: dict[str, State] = {}
    for name, entry in manifest.aspects.items():
        # A manifest from elsewhere must not point to files outside its folder; no path can hold a zero byte.
        if "\0" in entry.state or not (folder / entry.state).resolve().is_relative_to(folder.resolve()):
            raise records[name].error("the state lies outside the export", "state", found=entry.state)
        states[name] = read_state(folder / entry.state)
    actual = program_fingerprint(root.values["task"], root.values["aspects"], states)
    if actual != manifest.fingerprint:
        raise root.error(
            "the export was changed after it was written, so its evidence is about another judge",
            "fingerprint",
            expected=manifest.fingerprint,
            found=actual,
            remedy="restore the folder, or change the judge in Python and save it with `runs.export.save`",
        )
    task = replace(manifest.task, columns=manifest.columns)
    for name, entry in manifest.aspects.items():
        _require_trusted(records[name], entry.kind, judges)
    chosen = {
        name: _aspect_judge(name, records[name], entry, states[name], folder, task)
        for name, entry in manifest.aspects.items()
    }
    in_order = {aspect.name: chosen[aspect.name] for aspect in task.aspects if aspect.name in chosen}
    return Export(CompiledJudge(task, in_order), manifest, validated(Evidence, root.child("evidence")), folder)


def _locate(path: Path) -> Path:
    """The folder of the manifest."""
    if not path.is_dir():
        problem = "an export is a folder, and this is a file" if path.exists() else "no such folder"
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        remedy = "give the folder that holds manifest.json" if path.exists() else did_you_mean(path.name, siblings)
        raise InputError(problem, file=path, expected="the folder of an export", remedy=remedy)
    manifests = next((sorted(path.glob(place)) for place in _PLACES if any(path.glob(place))), [])
    if len(manifests) != 1:
        raise InputError(
            f"several folders with a {MANIFEST}" if manifests else f"no {MANIFEST} in the folder",
            file=path,
            expected="the folder of an export, as a compile writes it",
            found=", ".join(p.parent.name for p in manifests) or ", ".join(sorted(p.name for p in path.iterdir())[:8]),
            remedy="name one of them" if manifests else "give the path that the compile printed after 'Export'",
        )
    return manifests[0].parent


def read_state(file: Path) -> State:
    """The program in a file that DSPy's own `save` has written."""
    record = json_object(file, remedy=_REMEDY)
    predictors = {name: values for name, values in record.values.items() if name != "metadata"}
    try:
        return _program(predictors)
    except ValidationError as error:
        raise input_error(error, record) from None


def _program(predictors: object) -> State:
    state: State = _PREDICTORS.dump_python(_PREDICTORS.validate_python(predictors, strict=True), exclude_unset=True)
    return state


def _require_trusted(record: Record, kind: str, judges: Collection[str]) -> None:
    """Refuse a judge that is neither of this project nor named by the caller."""
    if ":" not in kind:
        record.choice("kind", JUDGE_CLASSES, "update this project if a newer version has it")
    elif kind not in judges:
        raise record.error(
            f"the export needs the judge {kind!r}, whose module is imported only if you name it",
            "kind",
            expected="a judge of this project, or one that you have named",
            found=kind,
            remedy=f"if you trust that module: --trust {kind} (for a comparison: --judges EXPORT,{kind}), "
            f"or load(..., judges=[{kind!r}])",
        )


def _aspect_judge(name: str, record: Record, entry: AspectEntry, state: State, folder: Path, task: Task) -> AspectJudge:
    if name not in {aspect.name for aspect in task.aspects}:
        raise record.error("the task does not have this aspect", found=name)
    config = record.child("config")
    try:
        with config.located():
            judge: Judge = build(entry.kind, entry.config)
    except InputError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise config.error(f"not a configuration of the judge {entry.kind!r}: {error!r}", found=entry.config) from None
    try:
        judge.load_state({name: {**values, "traces": [], "train": [], "lm": None} for name, values in state.items()})
        loaded = _program(judge.dump_state())
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        loaded = {}
    if loaded != state:
        raise InputError(
            "the state belongs to another judge: its predictors have other names or fields",
            file=folder / entry.state,
            expected=", ".join(name for name, _ in judge.named_predictors()) or "none",
            found=", ".join(state) or "none",
            remedy="use the version of this project that made the export, or compile the judge again",
        )
    with record.located("granularity"):
        return AspectJudge(judge, entry.granularity, entry.calibration)


# --- the LM of an export's judge, and its address ---


def resolve_lm(
    export: Export, lm: str | None, api_base: str | None, max_tokens: MaxTokens | None = None
) -> tuple[str, str | None, dict[str, Any]]:
    """Spec, address and further arguments of `make_lm`: those of the compile, unless others are given here.

    Calls carry the texts and the user's key, so they go only to the provider in the spec (PROVIDER/MODEL) or to an
    address that the user has given, by `--api-base` or by the provider's environment variable.

    Raises:
        InputError: Only the export gives the address.
    """
    recorded = export.manifest.lm
    # For some of LiteLLM's providers the model's name is an address.
    named = recorded.spec if lm is None and "://" in recorded.spec else unconfirmed_address(export, lm, api_base)
    if named is not None:
        raise InputError(
            "the export names the server that texts and key would go to, and you have not confirmed it",
            file=export.folder / MANIFEST,
            field="lm.spec" if named == recorded.spec else "lm.api_base",
            expected="an address that you give yourself",
            found=repr(named),
            remedy="if you trust it, give it yourself: --api-base ADDRESS, or --lm with the whole name; to use another "
            "LM: --lm",
        )
    settings = recorded.model_dump(include={"temperature", "max_tokens"}, exclude_none=True)
    return lm or recorded.spec, api_base, settings if max_tokens is None else {**settings, "max_tokens": max_tokens}


def unconfirmed_address(export: Export, lm: str | None, api_base: str | None) -> str | None:
    """The export's address, if calls would go there and the user has not given it as well; else None."""
    recorded = export.manifest.lm
    if not recorded.api_base or api_base or (lm is not None and lm != recorded.spec):
        return None
    own = without_credentials(os.environ.get(base_variable(recorded.spec)) or "")
    return None if own.rstrip("/") == recorded.api_base.rstrip("/") else recorded.api_base
