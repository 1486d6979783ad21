"""Messages name settings as the commands take them: no flag that is none, and no key of --config that is none."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from debate_judge.runs.flags.declaration import REMOVED_FLAGS, setting_fields
from debate_judge.runs.flags.invocation import COMMANDS
from tests.source_tree import parsers_of

ROOT = Path(__file__).parents[1]
ROOMS = {
    "optimize": ("compile", "score", "check", "report"),
    "runs/scoring": ("score",),
    "runs/distributed": ("score",),
}
"""Folder -> the commands whose flags its messages may name; elsewhere those of all."""
FILES = [file for room in ("data", "programs", "optimize", "runs") for file in sorted((ROOT / room).rglob("*.py"))]


@cache
def settings(command: str) -> list[type]:
    """The classes of a command's settings."""
    module = importlib.import_module(COMMANDS[command][0])
    return [one for one in vars(module).values() if isinstance(one, type) and "__pydantic_fields__" in vars(one)]


def names(*commands: str) -> set[str]:
    return {name.replace("_", "-") for command in commands for one in settings(command) for name in setting_fields(one)}


def flags(*commands: str) -> set[str]:
    known = [one for command in commands for cls in settings(command) for one in setting_fields(cls).values()]
    return {"--config"} | {one.cli_name for one in known if one.is_flag}


def texts(file: Path) -> list[str]:
    """All strings of a file but those that say what became of a flag."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AnnAssign)]
    skipped = {id(inner) for node in assigned if "REMOVED" in ast.unparse(node)[:20] for inner in ast.walk(node)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped
    ]


@pytest.mark.parametrize("room", [*ROOMS, ""])
def test_a_message_names_no_flag_that_is_none(room: str) -> None:
    allowed = flags(*ROOMS.get(room, COMMANDS))
    gone = {f"--{name}" for name in names(*COMMANDS)} | {"--program", "--no-preflight", "--level", *REMOVED_FLAGS}
    wrong = {}
    for file in FILES:
        place = file.relative_to(ROOT).as_posix()
        if place.startswith(f"{room}/" if room else ""):
            found = {flag for text in texts(file) for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text)}
            if bad := found & gone - allowed:
                wrong[place] = bad
    assert wrong == {}


def test_a_message_names_no_key_that_is_none() -> None:
    found = {
        (file.name, key)
        for file in FILES
        for text in texts(file)
        for key in re.findall(r"--config '?([a-z][a-z-]*)=", text)
    }
    assert found
    assert {(file, key) for file, key in found if key not in names(*COMMANDS)} == set()


def declarations(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[type, ...]]:
    """Command -> the classes that its help and its keys come from."""
    starts = [partial(importlib.import_module(module).main, []) for module, _ in COMMANDS.values()]
    found: list[Any] = parsers_of(starts, monkeypatch)
    return {name: parser.declarations for name, parser in zip(COMMANDS, found, strict=True)}


def test_the_page_of_settings_has_the_keys_of_all_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: dict[tuple[str, str, str], list[str]] = {}
    for command, classes in declarations(monkeypatch).items():
        for one in (one for cls in classes for one in setting_fields(cls).values() if not one.is_flag):
            value = one.option("default_text") or (None if one.field.default == () else one.field.default)
            default = str(value).lower() if isinstance(value, bool) else "–" if value is None else f"{value}"
            known = f" ({', '.join(one.choices)})" if one.choices else ""
            rows.setdefault((one.cli_name, default, f"{one.field.description}{known}"), []).append(command)
    assert {command for commands in rows.values() for command in commands} >= {"compile", "score", "serve", "compare"}
    table = ["| key | of | default | what it is |", "|---|---|---|---|"]
    table += [f"| `{key}` | {', '.join(of)} | {default} | {what} |" for (key, default, what), of in rows.items()]
    page = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    assert "\n".join(table) == page[page.index(table[0]) :].rstrip("\n")
