"""What is refused as an export: broken, missing, of another format, or asking for too much."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.errors import InputError
from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs.export.folder import load, read, save
from debate_judge.runs.export.manifest import SCHEMA_VERSION, program_fingerprint
from tests.runs.exports import TASK, write

Change = Callable[[dict[str, Any]], object]
STATE = "state/1-tone.json"


def setting(*path: Any, to: object) -> Change:
    def change(values: dict[str, Any]) -> None:
        place: Any = values
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return change


def another_manifest(values: dict[str, Any]) -> None:
    values.clear()
    values["name"] = "a chart"


FALLING = {"knots": [{"score": 1, "raters": 3}, {"score": 2, "raters": 1}], "groups": 1, "candidates": 2}

BROKEN: list[tuple[str, str, Change, str]] = [
    ("another program's JSON", "manifest.json", another_manifest, "not the manifest"),
    ("a newer version", "manifest.json", setting("schema_version", to=SCHEMA_VERSION + 1), "newer version"),
    ("an earlier version", "manifest.json", setting("schema_version", to=SCHEMA_VERSION - 1), "earlier version"),
    ("a version in words", "manifest.json", setting("schema_version", to="one"), "schema_version"),
    ("no task", "manifest.json", lambda m: m.pop("task"), "'task' is missing"),
    ("a scale of nothing", "manifest.json", setting("task", "aspects", 0, "low", to=9), "not a scale"),
    ("no aspects", "manifest.json", setting("aspects", to={}), "judges no aspect"),
    ("an unknown kind", "manifest.json", setting("aspects", "tone", "kind", to="oracle"), "unknown kind"),
    ("an unknown granularity", "manifest.json", setting("aspects", "tone", "granularity", to="x"), "granularity"),
    ("a configuration of another judge", "manifest.json", setting("aspects", "tone", "config", to={}), "configuration"),
    (
        "a score mode that is no text",
        "manifest.json",
        setting("aspects", "tone", "config", "score_mode", to=1),
        "config",
    ),
    ("a map that falls", "manifest.json", setting("aspects", "tone", "calibration", to=FALLING), "do not increase"),
    ("an LM that is a list", "manifest.json", setting("lm", "spec", to=["x"]), "a text in quotes"),
    ("an aspect that the task lacks", "manifest.json", lambda m: rename(m), "does not have this aspect"),
    ("a state elsewhere", "manifest.json", setting("aspects", "tone", "state", to="../secret.json"), "outside"),
    ("no LM", "manifest.json", setting("lm", to={}), "'spec' is missing"),
    ("changed instructions", STATE, setting("critic", "signature", "instructions", to="x"), "changed after"),
    ("half a character", STATE, setting("critic", "signature", "instructions", to="\ud800"), "changed after"),
    ("half a character in a name", "manifest.json", setting("aspects", "tone", "kind", to="\ud800"), "changed after"),
    ("predictors of another judge", STATE, lambda s: s.update(oracle=s.pop("critic")), "other names"),
    ("other fields", STATE, lambda s: s["critic"]["signature"]["fields"].pop(), "other fields"),
    ("demos that are none", STATE, setting("critic", "demos", to=["x"]), "demos"),
    ("no signature", STATE, lambda s: s["critic"].pop("signature"), "'signature' is missing"),
]


def rename(manifest: dict[str, Any]) -> None:
    manifest["aspects"]["wit"] = manifest["aspects"].pop("tone")


@pytest.mark.parametrize(("file", "change", "says"), [c[1:] for c in BROKEN], ids=[c[0] for c in BROKEN])
def test_a_broken_export_is_refused_by_name(tmp_path: Path, file: str, change: Change, says: str) -> None:
    folder = write(tmp_path / "x")
    values = json.loads((folder / file).read_text(encoding="utf-8"))
    change(values)
    (folder / file).write_text(json.dumps(values), encoding="utf-8")
    if says not in ("changed after", "newer version"):
        sign(folder)
    with pytest.raises(InputError, match=says) as caught:
        read(folder)
    assert Path(str(caught.value.file)).name in ("manifest.json", "1-tone.json")
    assert caught.value.remedy


def test_an_export_of_the_first_format_has_to_be_compiled_again(tmp_path: Path) -> None:
    """Kinds, configurations and predictors have been renamed since, so only the version is looked at."""
    config = {"persona": "devils-advocate", "rounds": 3, "tie_breaker": False}
    aspects = {"tone": {"kind": "debate", "config": config, "granularity": "given", "state": STATE}}
    manifest = {"format": "debate-judge export", "schema_version": 1, "aspects": aspects, "lm": {"spec": "offline"}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(InputError, match="made by an earlier version of this project") as caught:
        load(tmp_path)
    error = caught.value
    assert (error.field, error.found, error.remedy) == ("schema_version", "1", "compile the judge again")


def sign(folder: Path) -> None:
    """Make the fingerprint fit, so that what is behind it is reached."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    try:
        states = {a: json.loads((folder / e["state"]).read_text("utf-8")) for a, e in manifest["aspects"].items()}
        manifest["fingerprint"] = program_fingerprint(manifest["task"], manifest["aspects"], states)
    except (KeyError, OSError):
        return
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda f: shutil.rmtree(f), "no such folder"),
        (lambda f: (f / "manifest.json").unlink(), "no manifest.json"),
        (lambda f: (f / STATE).unlink(), "no such file"),
        (lambda f: (f / STATE).write_text("[]"), "not a JSON object"),
        (lambda f: (f / STATE).write_text("{"), "line 1: not valid JSON"),
        (lambda f: (f / "manifest.json").write_bytes(b"\x80"), "not UTF-8"),
    ],
)
def test_missing_and_unreadable_files(tmp_path: Path, break_it: Callable[[Path], object], says: str) -> None:
    folder = write(tmp_path / "export-of-mine")
    break_it(folder)
    with pytest.raises(InputError, match=says):
        read(folder)


OWN = """
from debate_judge.programs.debate.judge import Debate

class Small(Debate):
    pass
"""


def test_an_export_of_a_judge_of_ones_own_is_loaded_only_where_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = "own_judge_of_an_export", "own_judge_of_an_export:Small"
    (tmp_path / f"{module}.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    judge = CompiledJudge(TASK, {"tone": AspectJudge(build(name, JUDGES["single"].config))})
    folder = save(tmp_path / "mine", judge, lm={"spec": "offline"}, evidence={}, name="mine")
    assert json.loads((folder / "manifest.json").read_text())["aspects"]["tone"]["kind"] == name
    # The same again replaces it, for its writer has the class.
    assert save(folder, judge, lm={"spec": "offline"}, evidence={}, name="mine") == folder
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("mine")] == ["mine"]
    monkeypatch.delitem(sys.modules, module)
    with pytest.raises(InputError) as refused:
        load(folder)
    assert f"--config judge={name} " in str(refused.value)
    assert module not in sys.modules, "nothing is imported that was not named"
    with load(folder, judges=[name]) as loaded:
        assert loaded.score(text="It rained.", source="Rain fell.", aspects="tone")["tone"].score is not None
    monkeypatch.delitem(sys.modules, module)
    (tmp_path / f"{module}.py").unlink()
    with pytest.raises(InputError, match="cannot be imported"):
        load(folder, judges=[name])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("rounds", 1_000_000_000, "a whole number from 0 to 100"),
        ("rounds", -1, "a whole number from 0 to 100"),
        ("rounds", 1e9, "a whole number from 0 to 100"),
        ("score_mode", "sampled:1000000000", "not a score mode"),
        ("score_mode", "sampled:" + "9" * 5000, "not a score mode"),
    ],
)
def test_an_export_cannot_ask_for_calls_without_end(name: str, value: object, words: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "x")
    manifest = json.loads((folder / "manifest.json").read_text())
    for entry in manifest["aspects"].values():
        entry["config"][name] = value
    states = {a: json.loads((folder / entry["state"]).read_text()) for a, entry in manifest["aspects"].items()}
    manifest["fingerprint"] = program_fingerprint(manifest["task"], manifest["aspects"], states)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=words):
        read(folder)
