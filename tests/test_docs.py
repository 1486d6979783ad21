"""The examples of docs/integrations.md work as they are written."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from debate_judge.data.tasks import TASKS
from debate_judge.programs import build_preset
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs.export import process
from debate_judge.runs.export.folder import save
from debate_judge.runs.flags.parser import make_parser
from debate_judge.runs.scoring.settings import ServeFlags

PAGE = (Path(__file__).parents[1] / "docs/integrations.md").read_text(encoding="utf-8")
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
    monkeypatch.setattr(process, "_judges", {})
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
