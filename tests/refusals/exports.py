"""Exports that are refused: broken, missing, of another format, changed, or asking for too much."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.runs.export import SCHEMA_VERSION, program_fingerprint, read, read_state
from debate_judge.runs.loaded import load
from tests.refusals.refusal import row

MANIFEST, STATE = "manifest.json", "state/1-tone.json"
DEEP = json.loads("[" * 700 + "]" * 700)
Change = Callable[[Path], object]


def edited(file: str, edit: Callable[[Any], object], signed: bool = True) -> Change:
    """Change the JSON of a file; the fingerprint then fits, so that what is behind it is reached."""

    def change(folder: Path) -> None:
        path = folder / "support" / file
        values = json.loads(path.read_text(encoding="utf-8"))
        edit(values)
        path.write_text(json.dumps(values), encoding="utf-8")
        if signed:
            sign(folder / "support")

    return change


def sign(export: Path) -> None:
    manifest = json.loads((export / MANIFEST).read_text(encoding="utf-8"))
    try:
        states = {a: read_state(export / e["state"]) for a, e in manifest["aspects"].items()}
        manifest["fingerprint"] = program_fingerprint(manifest["task"], manifest["aspects"], states)
    except (KeyError, InputError):
        return
    (export / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def put(*path: Any, to: object, file: str = MANIFEST, signed: bool = True) -> Change:
    def edit(values: Any) -> None:
        for key in path[:-1]:
            values = values[key]
        values[path[-1]] = to

    return edited(file, edit, signed)


def of_tone(entry: str, to: object, signed: bool = True) -> Change:
    return put("aspects", "tone", entry, to=to, signed=signed)


def critic(to: str) -> Change:
    return put("critic", "signature", "instructions", to=to, file=STATE, signed=False)


def state(edit: Callable[[Any], object]) -> Change:
    return edited(STATE, edit)


def in_folder(act: Callable[[Path], object]) -> Change:
    return lambda folder: act(folder / "support")


def configured(**config: object) -> Change:
    return edited(MANIFEST, lambda m: [entry["config"].update(config) for entry in m["aspects"].values()])


def knots(*raters: int) -> object:
    return {"knots": list(enumerate(raters)), "groups": 1, "candidates": 2}


IN_MANIFEST = (
    ("another program's JSON", edited(MANIFEST, lambda m: (m.clear(), m.update(name="x"))), None, "not the manifest"),
    ("another version", put("schema_version", to=SCHEMA_VERSION + 1), "schema_version", "another version"),
    ("no aspects", put("aspects", to={}), "aspects", "no aspect"),
    ("an unknown kind", of_tone("kind", "oracle"), "aspects.tone.kind", "oracle"),
    (
        "an aspect of no task",
        edited(MANIFEST, lambda m: m["aspects"].update(oracle=m["aspects"]["tone"])),
        "aspects.oracle",
        "task does not have",
    ),
    ("a state elsewhere", of_tone("state", "state/../../x.json"), "aspects.tone.state", "outside"),
    ("a state of the system", of_tone("state", "/etc/hosts"), "aspects.tone.state", "outside"),
    ("a zero byte", of_tone("state", "a\0b", signed=False), "aspects.tone.state", "outside"),
    ("samples without end", configured(score_mode=f"sampled:{'9' * 5000}"), None, "score mode"),
    ("rounds without end", configured(rounds=10**9), "aspects.tone.config.rounds", "0 to 100"),
    ("changed instructions", critic("x"), None, "changed after"),
    ("a changed map", of_tone("calibration", knots(1, 3), signed=False), None, "changed after"),
)
IN_STATE = (
    ("predictors of another judge", state(lambda s: s.update(oracle=s.pop("critic"))), "other names"),
    ("a deep demonstration", put("critic", "demos", to=[{"a": DEEP}], file=STATE), "other names"),
    ("no state", in_folder(lambda f: (f / STATE).unlink()), "no such file"),
    ("half a state", in_folder(lambda f: (f / STATE).write_text("{")), "not valid JSON"),
)
FOLDERS = (("no manifest", in_folder(lambda f: (f / MANIFEST).unlink()), "no manifest.json"),)
LMS = (
    (
        "a server that only the export names",
        {"spec": "openai/m", "api_base": "http://127.0.0.1:9/v1"},
        "api_base=ADDRESS",
    ),
)


def support() -> object:
    return read(Path("support"))


def score() -> object:
    with load("support") as judge:
        return judge.score(source="s", text="t")


TABLE = [
    *(row(name, support, field, keyword, MANIFEST, change=change) for name, change, field, keyword in IN_MANIFEST),
    *(row(name, support, None, keyword, "1-tone.json", change=change) for name, change, keyword in IN_STATE),
    *(row(name, support, None, keyword, "support", change=change) for name, change, keyword in FOLDERS),
    row("an unknown LM", score, "lm.spec", "lm=PROVIDER/MODEL", MANIFEST, change=put("lm", "spec", to="nobody/gpt")),
    *(row(name, score, None, keyword, change=put("lm", to=lm)) for name, lm, keyword in LMS),
]
