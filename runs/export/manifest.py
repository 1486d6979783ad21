"""The files of an exported judge: conversion to JSON, and reading with every field checked.

An export is a folder with `manifest.json` and one DSPy state per aspect, all of it JSON: reading one runs no code from
it. A user's own judge is recorded as `module:Class` and imported only if the caller has named it. No LM is made here;
for a judge that scores, see `runs.export.folder`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from debate_judge.data.calibration import Calibration
from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.reading import json_object
from debate_judge.data.files.records import Record
from debate_judge.data.schema import GRANULARITIES, Aspect, Scale, Task, fingerprint
from debate_judge.programs import KINDS, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.judge import Judge
from debate_judge.programs.roles.examples import is_rated

FORMAT = "debate-judge export"
SCHEMA_VERSION = 2
"""Increased when kinds, configurations or predictors of judges are renamed; earlier exports are then refused."""

MANIFEST = "manifest.json"

_PLACES = (MANIFEST, f"artifacts/{MANIFEST}", f"artifacts/*/{MANIFEST}", f"*/{MANIFEST}")
"""Where the manifest may be below a folder: directly in it, or inside an MLflow model."""

_STATE_KEYS = ("signature", "demos", "fields")
"""The parts of a predictor's DSPy state that belong to the program; the rest is an LM and traces of the tuning."""

_REMEDY = "compile the judge again, or restore the folder from a copy"

State = dict[str, dict[str, Any]]
"""Predictor name -> its state."""


@dataclass(frozen=True)
class Export:
    """A judge as it was read from its folder."""

    judge: CompiledJudge
    manifest: Mapping[str, Any]
    folder: Path

    @property
    def fingerprint(self) -> str:
        """Hash of the program: task, aspects, configurations, instructions; without the LM."""
        return str(self.manifest["fingerprint"])


def task_record(task: Task) -> dict[str, Any]:
    """The task as JSON values."""
    return {
        "name": task.name,
        "source_label": task.source_label,
        "candidate_label": task.candidate_label,
        "context_label": task.context_label,
        "aspects": [
            {
                "name": a.name,
                "definition": a.definition,
                "low": float(a.scale.low),
                "high": float(a.scale.high),
                "step": float(a.scale.step),
                # Only where it is not so: an older export has no such field.
                **({} if a.source else {"source": False}),
            }
            for a in task.aspects
        ],
    }


def program_fingerprint(task: object, aspects: object, states: Mapping[str, object]) -> str:
    """Hash of all that determines the judge's prompts and how it reads replies; the arguments are JSON values."""
    return fingerprint({"task": task, "aspects": aspects, "states": states})


def program_state(judge: Judge, demos: bool) -> State:
    """The judge's DSPy state without LMs and traces, and without demonstrations unless `demos`."""
    return {
        name: {k: v for k, v in state.items() if k in _STATE_KEYS and (demos or k != "demos")}
        for name, state in judge.dump_state().items()
    }


def held_texts(state: State) -> dict[str, int]:
    """The number of texts of the data in a judge's state, by their kind; empty if there are none."""
    demos = [demo for own in state.values() for demo in own.get("demos", ())]
    rated = sum(map(is_rated, demos))
    found = {"rated_examples": rated, "demonstrations": len(demos) - rated}
    return {kind: count for kind, count in found.items() if count}


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
    _check_format(root)
    task = replace(_task(root.child("task")), columns=_columns(root))
    entries = root.child("aspects")
    if not entries.values:
        raise root.error("the export judges no aspect", "aspects", expected="at least one aspect")
    files = {name: _state_file(folder, entries.child(name)) for name in entries.values}
    content = program_fingerprint(
        root.values["task"], root.values["aspects"], {name: file.values for name, file in files.items()}
    )
    if content != root.text("fingerprint"):
        raise root.error(
            "the export was changed after it was written, so the evidence in it belongs to another judge",
            "fingerprint",
            expected=root.text("fingerprint"),
            found=content,
            remedy="restore the folder, or change the judge in Python and save it anew with `runs.export.save`",
        )
    for name in entries.values:
        _check_kind(entries.child(name), judges)
    found = {name: _aspect_judge(entries.child(name), files[name], task, name) for name in entries.values}
    _check_lm(root)
    root.child("evidence")
    in_task_order = {a.name: found[a.name] for a in task.aspects if a.name in found}
    return Export(CompiledJudge(task, in_task_order), root.values, folder)


def _locate(path: Path) -> Path:
    if not path.is_dir():
        problem = "an export is a folder, and this is a file" if path.exists() else "no such folder"
        near = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        remedy = "give the folder that holds manifest.json" if path.exists() else did_you_mean(path.name, near)
        raise InputError(problem, file=path, expected="the folder of an export", remedy=remedy)
    found = next((sorted(path.glob(place)) for place in _PLACES if any(path.glob(place))), [])
    if len(found) != 1:
        raise InputError(
            f"no {MANIFEST} in the folder" if not found else f"several folders with a {MANIFEST}",
            file=path,
            expected="the folder of an export, as a compile writes it",
            found=", ".join(p.parent.name for p in found) or ", ".join(sorted(p.name for p in path.iterdir())[:8]),
            remedy="name one of them" if found else "give the path that the compile printed after 'Export'",
        )
    return found[0].parent


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


def _task(record: Record) -> Task:
    with record.located():
        return Task(
            record.text("name"),
            record.text("source_label"),
            record.text("candidate_label"),
            tuple(map(_aspect, record.children("aspects", empty=True))),
            record.text("context_label"),
        )


def _aspect(record: Record) -> Aspect:
    scale = Scale(record.number("low"), record.number("high"), record.number("step"))
    shown = "source" not in record.values or record.boolean("source")
    return Aspect(record.text("name"), record.text("definition"), scale, shown)


def _columns(root: Record) -> dict[str, str]:
    """What the compiled data called our columns, so that new texts under the same names need no mapping."""
    if "columns" not in root.values:
        return {}
    columns = root.child("columns")
    return {ours: columns.text(ours) for ours in columns.values}


def _check_lm(root: Record) -> None:
    record = root.child("lm")
    record.text("spec")
    for name in ("temperature", "max_tokens"):
        if record.values.get(name) is not None:
            record.number(name)
    if record.values.get("api_base") is not None:
        record.text("api_base")


def _state_file(folder: Path, entry: Record) -> Record:
    name = entry.text("state")
    file = folder / name
    # A manifest from elsewhere must not point to files outside its folder.
    if not file.resolve().is_relative_to(folder.resolve()):
        raise entry.error("the state lies outside the export", "state", found=name)
    return json_object(file, remedy=_REMEDY)


def _check_kind(entry: Record, judges: Collection[str]) -> None:
    """Refuse a judge that is neither part of this project nor named by the caller."""
    name = entry.text("kind")
    if ":" not in name:
        entry.choice("kind", KINDS, "update this project if a newer version has it")
    elif name not in judges:
        raise entry.error(
            f"the export needs the judge {name!r}, whose module is imported only if you name it",
            "kind",
            expected="a judge of this project, or one that you have named",
            found=name,
            remedy=f"if you trust that module: --config judge={name} (of a comparison: in --judges beside the export), "
            f"or load(..., judges=[{name!r}])",
        )


def _aspect_judge(entry: Record, state: Record, task: Task, aspect: str) -> AspectJudge:
    if aspect not in {a.name for a in task.aspects}:
        raise entry.error("the task does not have this aspect", found=aspect)
    granularity = entry.choice("granularity", GRANULARITIES)
    name, config = entry.text("kind"), entry.child("config")
    try:
        with config.located():
            judge = build(name, config.values)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise config.error(f"not a configuration of the judge {name!r}: {error!r}", found=config.values) from None
    _apply(judge, state)
    calibration = _calibration(entry.child("calibration")) if "calibration" in entry.values else None
    with entry.located("granularity"):
        return AspectJudge(judge, granularity, calibration)


def calibration_record(calibration: Calibration) -> dict[str, Any]:
    """The map to the raters' scale as JSON values."""
    knots = [{"score": score, "raters": rating} for score, rating in calibration.knots]
    return {"knots": knots, "groups": calibration.groups, "candidates": calibration.candidates}


def _calibration(record: Record) -> Calibration:
    with record.located():
        return Calibration(
            tuple((knot.number("score"), knot.number("raters")) for knot in record.children("knots", empty=True)),
            int(record.number("groups")),
            int(record.number("candidates")),
        )


def _apply(judge: Judge, state: Record) -> None:
    """Load the tuned instructions into the judge; they replace those of its configuration."""
    predictors = dict(judge.named_predictors())
    names = judge.names_in(state.values)
    if set(predictors) != set(names):
        raise state.error(
            "the state belongs to another judge: its predictors have other names",
            expected=", ".join(predictors) or "none",
            found=", ".join(state.values) or "none",
            remedy="use the version of this project that made the export, or compile the judge again",
        )
    complete: State = {}
    for name, predictor in predictors.items():
        record = state.child(names[name])
        signature = record.child("signature")
        signature.text("instructions", blank=True)
        fields = signature.children("fields", empty=True)
        for field in fields:
            field.text("prefix", blank=True)
            field.text("description", blank=True)
        if len(fields) != len(predictor.signature.fields):
            raise signature.error(
                "the predictor had other fields",
                "fields",
                expected=f"{len(predictor.signature.fields)} fields",
                found=f"{len(fields)} fields",
                remedy="use the version of this project that made the export, or compile the judge again",
            )
        demos = [demo.values for demo in record.children("demos", empty=True)] if "demos" in record.values else []
        known = {k: record.values[k] for k in _STATE_KEYS if k in record.values}
        complete[name] = {**known, "demos": demos, "traces": [], "train": [], "lm": None}
    judge.load_state(complete)
