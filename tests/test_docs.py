"""What the pages say: examples work as written, limits are those of the code, settings are named as commands do."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from debate_judge.data.tasks import TASKS
from debate_judge.programs import build_preset
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs.export import judge_cache
from debate_judge.runs.export.folder import save
from debate_judge.runs.flags.declaration import REMOVED_FLAGS, setting_fields
from debate_judge.runs.flags.invocation import COMMANDS
from debate_judge.runs.flags.parser import make_parser
from debate_judge.runs.scoring.settings import ServeFlags
from tests.source_tree import ROOT, SOURCES, parsers_of, tree

# --- docs/integrations.md ---


PAGE = (ROOT / "docs/integrations.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(language, code) for language, code in BLOCK.findall(PAGE)]
PYTHON = [code for language, code in BLOCKS if language == "python" and "def test_" not in code]
EXPORT = "runs/store/exports/my-judge"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the export that the page names."""
    task = TASKS["summarization"]
    judges = {name: AspectJudge(build_preset("single", {})) for name in ("coherence", "fluency")}
    save(tmp_path / EXPORT, CompiledJudge(task, judges), lm={"spec": "offline"}, evidence={}, name="my-judge")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(judge_cache, "_judges", {})
    return tmp_path


def imported(code: str) -> set[str]:
    """The libraries that an example imports."""
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    named = [node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name for node in nodes]
    return {name.partition(".")[0] for name in named}


def test_there_are_examples_of_all_tools() -> None:
    found = {library for code in PYTHON for library in imported(code)}
    assert {"mlflow", "dspy", "pandas", "deepeval", "inspect_ai", "opentelemetry", "debate_judge"} <= found


@pytest.mark.integration
@pytest.mark.usefixtures("fluent_store")
@pytest.mark.parametrize("code", PYTHON, ids=lambda code: " ".join(sorted(imported(code))))
def test_python(code: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for library in sorted(imported(code)):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed: the extra of its name installs it")
    monkeypatch.setenv("DEEPEVAL_TELEMETRY_OPT_OUT", "YES")
    if "opentelemetry" in code:
        # The provider of a process is set once: not of this one.
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.count('"gen_ai.evaluation.result"') == 2
        return
    exec(compile(code, "docs/integrations.md", "exec"), {})
    assert bool(capsys.readouterr().out) == ("\nprint(" in code or "    print(dspy" in code)


@pytest.mark.integration
def test_pytest(folder: Path) -> None:
    (code,) = [code for language, code in BLOCKS if language == "python" and "def test_" in code]
    (command,) = [code for language, code in BLOCKS if language == "sh" and code.startswith("pytest")]
    (folder / "test_summaries.py").write_text(code)
    words = command.partition("#")[0].split()
    done = subprocess.run(
        [sys.executable, "-m", *words, "-p", "debate-judge", "-p", "no:cacheprovider"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_promptfoo(folder: Path) -> None:
    from debate_judge.runs.integrations import promptfoo_assert

    promptfoo_assert._batcher.cache_clear()
    (text,) = [code for language, code in BLOCKS if language == "yaml"]
    (test,) = yaml.safe_load(text)["tests"]
    (asserted,) = test["assert"]
    found = promptfoo_assert.get_assert("The council voted.", {"vars": test["vars"], "config": asserted["config"]})
    assert list(found["namedScores"]) == ["coherence"]
    assert asserted["value"] == "file://judge.py"


def test_serve() -> None:
    (command,) = [
        line for language, code in BLOCKS if language == "sh" for line in code.splitlines() if "serve " in line
    ]
    given = make_parser("serve", "", ServeFlags).parse_args(command.split()[2:])
    assert given.program == EXPORT
    known = {flag for action in make_parser("serve", "", ServeFlags)._actions for flag in action.option_strings}
    section = PAGE[PAGE.index("## HTTP") : PAGE.index("## OpenTelemetry")]
    assert {flag.rstrip("`") for flag in re.findall(r"`(--[a-z-]+)", section)} <= known


# --- SECURITY.md ---


SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (.+?) \| ([\d,]+)( [A-Za-z]+)? \| `([\w.]+)` \|$", SECURITY, re.MULTILINE)
UNITS = {"": 1, " s": 1, " KiB": 1024, " MiB": 1024**2}


def value(name: str) -> object:
    """What a dotted name stands for, in this project or in Python."""
    root = "" if name.startswith("sys.") else "debate_judge."
    module, _, rest = (root + name).rpartition(".")
    names = [rest]
    while True:
        try:
            found: object = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, rest = module.rpartition(".")
            names.insert(0, rest)
            continue
        break
    for attribute in names:
        fields = getattr(found, "__dataclass_fields__", {})
        found = fields[attribute].default if attribute in fields else getattr(found, attribute)
    return found


def test_every_number_in_the_table_has_its_constant() -> None:
    table = SECURITY.partition("## Limits")[2].partition("\n\nThe same")[0]
    with_number = [line for line in table.splitlines() if re.search(r"\| [\d,]+", line)]
    assert len(ROWS) == len(with_number) >= 9


@pytest.mark.integration
@pytest.mark.parametrize(("what", "number", "unit", "name"), ROWS, ids=[row[3] for row in ROWS])
def test_a_limit_is_what_the_table_says(what: str, number: str, unit: str, name: str) -> None:
    assert value(name) == int(number.replace(",", "")) * UNITS[unit], what


# --- settings in messages and in docs/settings.md ---


ROOMS = {
    "optimize": ("compile", "score", "check", "report"),
    "runs/scoring": ("score",),
    "runs/distributed": ("score",),
}
"""Folder -> the commands whose flags its messages may name; elsewhere those of all."""


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
    assigned = [node for node in ast.walk(tree(file)) if isinstance(node, ast.Assign | ast.AnnAssign)]
    skipped = {id(inner) for node in assigned if "REMOVED" in ast.unparse(node)[:20] for inner in ast.walk(node)}
    return [
        node.value
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped
    ]


@pytest.mark.parametrize("room", [*ROOMS, ""])
def test_a_message_names_no_flag_that_is_none(room: str) -> None:
    allowed = flags(*ROOMS.get(room, COMMANDS))
    gone = {f"--{name}" for name in names(*COMMANDS)} | {"--program", "--no-preflight", "--level", *REMOVED_FLAGS}
    wrong = {}
    for file in SOURCES:
        place = file.relative_to(ROOT).as_posix()
        if place.startswith(f"{room}/" if room else ""):
            found = {flag for text in texts(file) for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text)}
            if bad := found & gone - allowed:
                wrong[place] = bad
    assert wrong == {}


def test_a_message_names_no_key_that_is_none() -> None:
    found = {
        (file.name, key)
        for file in SOURCES
        for text in texts(file)
        for key in re.findall(r"--config '?([a-z][a-z-]*)=", text)
    }
    assert found
    assert {(file, key) for file, key in found if key not in names(*COMMANDS)} == set()


def declarations(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[type, ...]]:
    """Command -> the classes that its help and its keys come from."""
    starts = [partial(importlib.import_module(module).main, []) for module, _ in COMMANDS.values()]
    found: list[Any] = parsers_of(starts, monkeypatch)
    return {name: parser.settings_classes for name, parser in zip(COMMANDS, found, strict=True)}


def test_the_page_of_settings_has_the_keys_of_all_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: dict[tuple[str, str, str], list[str]] = {}
    for command, classes in declarations(monkeypatch).items():
        for one in (one for cls in classes for one in setting_fields(cls).values() if not one.is_flag):
            value = one.option("default_text") or (None if one.field.default == () else one.field.default)
            default = str(value).lower() if isinstance(value, bool) else "–" if value is None else f"{value}"
            known = f" ({', '.join(one.choices)})" if one.choices else ""
            rows.setdefault((one.cli_name, default, f"{one.field.description}{known}"), []).append(command)
    assert {command for commands in rows.values() for command in commands} >= {"compile", "score", "serve", "compare"}
    table = ["| key | commands | default | meaning |", "|---|---|---|---|"]
    table += [f"| `{key}` | {', '.join(of)} | {default} | {meaning} |" for (key, default, meaning), of in rows.items()]
    page = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    assert "\n".join(table) == page[page.index(table[0]) :].rstrip("\n")
