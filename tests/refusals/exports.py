"""Exports that are refused: broken, missing, of another format, changed, or asking for too much."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from debate_judge.runs.export.folder import load, read
from debate_judge.runs.export.manifest import SCHEMA_VERSION, program_fingerprint
from tests.refusals.refusal import row

MANIFEST, STATE = "manifest.json", "state/1-tone.json"
Change = Callable[[Path], object]


def edited(file: str, edit: Callable[[Any], object], signed: bool = True) -> Change:
    """Change the JSON of a file; the fingerprint then fits, so that what is behind it is reached."""

    def change(folder: Path) -> None:
        path = folder / "support" / file
        values = json.loads(path.read_text(encoding="utf-8"))
        edit(values)
        path.write_text(json.dumps(values), encoding="utf-8")
        if signed:
            sign(path.parent if file == MANIFEST else path.parent.parent)

    return change


def sign(export: Path) -> None:
    manifest = json.loads((export / MANIFEST).read_text(encoding="utf-8"))
    try:
        states = {a: json.loads((export / e["state"]).read_text("utf-8")) for a, e in manifest["aspects"].items()}
        manifest["fingerprint"] = program_fingerprint(manifest["task"], manifest["aspects"], states)
    except (KeyError, OSError):
        return
    (export / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def put(*path: Any, to: object, file: str = MANIFEST, signed: bool = True) -> Change:
    def edit(values: Any) -> None:
        for key in path[:-1]:
            values = values[key]
        values[path[-1]] = to

    return edited(file, edit, signed)


def score(judge: Any) -> object:
    with judge:
        return judge.score(source="s", text="t")


def in_folder(act: Callable[[Path], object]) -> Change:
    return lambda folder: act(folder / "support")


def a_chart(values: dict[str, Any]) -> None:
    values.clear()
    values["name"] = "a chart"


def an_endless_judge(**config: object) -> Change:
    return edited(MANIFEST, lambda m: [entry["config"].update(config) for entry in m["aspects"].values()])


def the_first_format(folder: Path) -> None:
    """Kinds, configurations and predictors have been renamed since, so only the version is looked at."""
    values = {"format": "debate-judge export", "schema_version": 1, "aspects": {"tone": {"kind": "debate"}}}
    (folder / "support" / MANIFEST).write_text(json.dumps(values), encoding="utf-8")


CHANGED = "changed after"
RISING = {"knots": [{"score": 1, "raters": 1}, {"score": 2, "raters": 3}], "groups": 1, "candidates": 2}
FALLING = {"knots": [{"score": 1, "raters": 3}, {"score": 2, "raters": 1}], "groups": 1, "candidates": 2}
TABLE = [
    row(name, lambda: read(Path("support")), field, keyword, file, change=change)
    for name, change, file, field, keyword in (
        ("another program's JSON", edited(MANIFEST, a_chart), MANIFEST, None, "not the manifest"),
        ("a newer version", put("schema_version", to=SCHEMA_VERSION + 1), MANIFEST, "schema_version", "newer"),
        ("an earlier version", put("schema_version", to=SCHEMA_VERSION - 1), MANIFEST, "schema_version", "earlier"),
        ("the first version", the_first_format, MANIFEST, "schema_version", "compile the judge again"),
        ("a version in words", put("schema_version", to="one"), MANIFEST, "schema_version", "number"),
        ("no task", edited(MANIFEST, lambda m: m.pop("task")), MANIFEST, "task", "missing"),
        ("a scale of nothing", put("task", "aspects", 0, "low", to=9), MANIFEST, "task.aspects[0]", "scale"),
        ("no aspects", put("aspects", to={}), MANIFEST, "aspects", "no aspect"),
        ("an unknown kind", put("aspects", "tone", "kind", to="oracle"), MANIFEST, "aspects.tone.kind", "oracle"),
        ("a granularity", put("aspects", "tone", "granularity", to="x"), MANIFEST, "aspects.tone.granularity", "half"),
        ("a falling map", put("aspects", "tone", "calibration", to=FALLING), MANIFEST, None, "do not increase"),
        ("a score mode of 1", an_endless_judge(score_mode=1), MANIFEST, "aspects.tone.config", "configuration"),
        ("a list as LM", put("lm", "spec", to=["x"]), MANIFEST, "lm.spec", "a text in quotes"),
        ("another judge's settings", put("aspects", "tone", "config", to={}), MANIFEST, "aspects.tone.config", ""),
        (
            "an aspect that the task lacks",
            edited(MANIFEST, lambda m: m["aspects"].update(wit=m["aspects"].pop("tone"))),
            MANIFEST,
            "aspects.wit",
            "does not have",
        ),
        (
            "a state elsewhere",
            put("aspects", "tone", "state", to="../x.json"),
            MANIFEST,
            "aspects.tone.state",
            "outside",
        ),
        (
            "a zero byte",
            put("aspects", "tone", "state", to="a\0b", signed=False),
            MANIFEST,
            "aspects.tone.state",
            "outside",
        ),
        ("no LM", put("lm", to={}), MANIFEST, "lm.spec", "missing"),
        ("100 rounds", an_endless_judge(rounds=10**9), MANIFEST, "aspects.tone.config.rounds", "0 to 100"),
        ("rounds below nothing", an_endless_judge(rounds=-1), MANIFEST, "aspects.tone.config.rounds", "0 to 100"),
        ("rounds with a point", an_endless_judge(rounds=1e9), MANIFEST, "aspects.tone.config.rounds", "0 to 100"),
        ("samples without end", an_endless_judge(score_mode=f"sampled:{'9' * 5000}"), MANIFEST, None, "score mode"),
        (
            "changed instructions",
            put("critic", "signature", "instructions", to="x", file=STATE, signed=False),
            MANIFEST,
            None,
            CHANGED,
        ),
        ("a changed map", put("aspects", "tone", "calibration", to=RISING, signed=False), MANIFEST, None, CHANGED),
        (
            "half a character",
            put("critic", "signature", "instructions", to="\ud800", file=STATE, signed=False),
            MANIFEST,
            None,
            CHANGED,
        ),
        (
            "half a character in a name",
            put("aspects", "tone", "kind", to="\ud800", signed=False),
            MANIFEST,
            None,
            CHANGED,
        ),
        (
            "predictors of another judge",
            edited(STATE, lambda s: s.update(oracle=s.pop("critic"))),
            "1-tone.json",
            None,
            "other names",
        ),
        (
            "other fields",
            edited(STATE, lambda s: s["critic"]["signature"]["fields"].clear()),
            "1-tone.json",
            None,
            "fields",
        ),
        ("demos that are none", put("critic", "demos", to=["x"], file=STATE), "1-tone.json", None, "demos"),
        ("no signature", edited(STATE, lambda s: s["critic"].pop("signature")), "1-tone.json", None, "missing"),
        ("no folder", in_folder(shutil.rmtree), "support", None, "no such folder"),
        ("no manifest", in_folder(lambda f: (f / MANIFEST).unlink()), "support", None, "no manifest.json"),
        ("no state", in_folder(lambda f: (f / STATE).unlink()), "1-tone.json", None, "no such file"),
        ("a list of states", in_folder(lambda f: (f / STATE).write_text("[]")), "1-tone.json", None, "JSON object"),
        ("half a state", in_folder(lambda f: (f / STATE).write_text("{")), "1-tone.json", None, "not valid JSON"),
        ("no characters", in_folder(lambda f: (f / MANIFEST).write_bytes(b"\x80")), MANIFEST, None, "UTF-8"),
    )
] + [
    *(
        row(
            f"an unknown LM {spec}",
            lambda: score(load("support")),
            "lm.spec",
            "--lm PROVIDER/MODEL",
            MANIFEST,
            change=put("lm", "spec", to=spec, signed=False),
        )
        for spec in ("gpt", "nobody/gpt")
    ),
    row(
        "an LM that is an address",
        lambda: load("support"),
        None,
        "address",
        change=put("lm", "spec", to="huggingface/http://127.0.0.1:9/v1", signed=False),
    ),
    row(
        "a server that only the export names",
        lambda: load("support"),
        None,
        "--api-base",
        change=put("lm", to={"spec": "openai/m", "api_base": "http://127.0.0.1:9/v1"}, signed=False),
    ),
]
