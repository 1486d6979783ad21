"""What the pages say: examples work as written, limits are those of the code, settings are named as commands do."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from debate_judge.data.tasks import TASKS
from debate_judge.programs import build_preset
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs.export.folder import save
from debate_judge.runs.flags.declaration import setting_fields
from debate_judge.runs.flags.invocation import COMMANDS
from debate_judge.runs.flags.parser import make_parser
from debate_judge.runs.scoring.settings import ServeFlags
from tests.source_tree import ROOT, SOURCES, tree

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
    return tmp_path


def imported(code: str) -> set[str]:
    """The libraries that an example imports."""
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    named = [node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name for node in nodes]
    return {name.partition(".")[0] for name in named}


def test_there_are_examples_of_all_tools() -> None:
    libraries = {library for code in PYTHON for library in imported(code)}
    assert {"mlflow", "dspy", "pandas", "deepeval", "inspect_ai", "debate_judge"} <= libraries


RECIPES = {"debate", "DebateMetric", "get_assert"}
"""What a user hands to LangSmith, DeepEval and promptfoo."""


def check_recipe(name: str, recipe: Any) -> None:
    """Use a recipe as its tool does: LangSmith's own wrapper where it is installed, else a call with its arguments."""
    question, answer = "The council voted on Monday.", "The council voted."
    if name == "debate":
        langsmith = pytest.importorskip("langsmith.evaluation.evaluator", reason="langsmith is not installed")
        assert isinstance(langsmith.run_evaluator(recipe), langsmith.RunEvaluator)
        results = recipe(inputs={"question": question}, outputs={"answer": answer})
        assert [langsmith.EvaluationResult(**result).key for result in results] == ["coherence", "fluency"]
        assert all(1 <= result["score"] <= 5 and result["comment"] for result in results)
    elif name == "get_assert":
        result = recipe(answer, {"vars": {"article": question}})
        assert 0 <= result["score"] <= 1
        assert result["pass"] == (result["score"] >= 0.5)
    else:
        metric = recipe("coherence")
        assert 1 <= metric.measure(SimpleNamespace(input=question, actual_output=answer)) <= 5
        assert metric.is_successful() == (metric.score >= 4)


@pytest.mark.integration
@pytest.mark.usefixtures("fluent_store")
@pytest.mark.parametrize("code", PYTHON, ids=lambda code: " ".join(sorted(imported(code))))
def test_python(code: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for library in sorted(imported(code)):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed: the extra of its name installs it")
    monkeypatch.setenv("DEEPEVAL_TELEMETRY_OPT_OUT", "YES")
    names: dict[str, Any] = {}
    exec(compile(code, "docs/integrations.md", "exec"), names)
    assert bool(capsys.readouterr().out) == ("\nprint(" in code or "    print(dspy" in code)
    for recipe in RECIPES & set(names):
        check_recipe(recipe, names[recipe])


@pytest.mark.integration
def test_pytest(folder: Path) -> None:
    (code,) = [code for language, code in BLOCKS if language == "python" and "def test_" in code]
    (command,) = [code for language, code in BLOCKS if language == "sh" and code.startswith("pytest")]
    (folder / "test_summaries.py").write_text(code)
    words = command.partition("#")[0].replace("../project/exports/my-judge", EXPORT).split()
    done = subprocess.run(
        [sys.executable, "-m", *words, "-p", "debate-judge", "-p", "no:cacheprovider"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_serve() -> None:
    (command,) = [
        line for language, code in BLOCKS if language == "sh" for line in code.splitlines() if "serve " in line
    ]
    assert vars(make_parser("serve", "", ServeFlags).parse_args(command.split()[2:]))["program"] == EXPORT
    options = {flag for action in make_parser("serve", "", ServeFlags)._actions for flag in action.option_strings}
    section = PAGE[PAGE.index("## HTTP") : PAGE.index("## Recipes")]
    assert {flag.rstrip("`") for flag in re.findall(r"`(--[a-z-]+)", section)} <= options


# --- SECURITY.md ---


SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (.+?) \| ([\d,]+)( [A-Za-z]+)? \| `([\w.]+)` \|$", SECURITY, re.MULTILINE)
UNITS = {"": 1, " s": 1, " KiB": 1024, " MiB": 1024**2}


def value(name: str) -> object:
    """What a dotted name stands for, in this project or in Python."""
    root = "" if name.startswith("sys.") else "debate_judge."
    module, _, attribute_name = (root + name).rpartition(".")
    names = [attribute_name]
    while True:
        try:
            target: object = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, attribute_name = module.rpartition(".")
            names.insert(0, attribute_name)
            continue
        break
    for attribute in names:
        fields = getattr(target, "__dataclass_fields__", {})
        target = fields[attribute].default if attribute in fields else getattr(target, attribute)
    return target


def test_every_number_in_the_table_has_its_constant() -> None:
    table = SECURITY.partition("## Limits")[2].partition("\n\nThe same")[0]
    with_number = [line for line in table.splitlines() if re.search(r"\| [\d,]+", line)]
    assert len(ROWS) == len(with_number) >= 9


@pytest.mark.integration
@pytest.mark.parametrize(("what", "number", "unit", "name"), ROWS, ids=[row[3] for row in ROWS])
def test_a_limit_is_what_the_table_says(what: str, number: str, unit: str, name: str) -> None:
    assert value(name) == int(number.replace(",", "")) * UNITS[unit], what


# --- settings in messages ---


ROOMS = {
    "optimize": ("compile", "score", "check", "report"),
    "runs/scoring": ("score",),
}
"""Folder -> the commands whose flags its messages may name; elsewhere those of all."""


@cache
def flags(command: str) -> frozenset[str]:
    module = importlib.import_module(COMMANDS[command][0])
    classes = [cls for cls in vars(module).values() if isinstance(cls, type) and "__pydantic_fields__" in vars(cls)]
    return frozenset(field.flag for cls in classes for field in setting_fields(cls).values())


def texts(file: Path) -> list[str]:
    """All strings of a file."""
    return [
        node.value for node in ast.walk(tree(file)) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


@pytest.mark.parametrize("room", [*ROOMS, ""])
def test_a_message_names_no_flag_that_is_none(room: str) -> None:
    allowed = {flag for command in ROOMS.get(room, COMMANDS) for flag in flags(command)}
    other = {flag for command in COMMANDS for flag in flags(command)} - allowed
    wrong = {}
    for file in SOURCES:
        path = file.relative_to(ROOT).as_posix()
        if path.startswith(f"{room}/" if room else ""):
            named = {flag for text in texts(file) for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text)}
            if bad := named & other:
                wrong[path] = bad
    assert wrong == {}
