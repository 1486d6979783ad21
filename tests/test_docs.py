"""What the pages say: the examples of docs/integrations.md work as written, and messages name flags that exist."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.tasks import TASKS
from debate_judge.programs import build_preset
from debate_judge.runs.command_line import COMMANDS
from tests.runs.score_command import export_of
from tests.source_tree import ROOT, SOURCES, name_of, parsers_of, tree

PAGE = (ROOT / "docs/integrations.md").read_text(encoding="utf-8")
# The example of a user's own test is what tests/runs/test_pytest_plugin.py does.
EXAMPLES = [
    code for code in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) if "def test_" not in code
]


def imported(code: str) -> list[str]:
    """The libraries that an example imports."""
    return sorted(set(re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE)))


@pytest.mark.integration
@pytest.mark.usefixtures("fluent_store")
@pytest.mark.parametrize("code", EXAMPLES, ids=lambda code: " ".join(imported(code)))
def test_an_example_works(code: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in imported(code):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed: the extra of its name installs it")
    task = TASKS["summarization"]
    export_of(tmp_path / "runs/store/exports/my-judge", task, build_preset("single", {}), lm="offline")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/integrations.md", "exec"), names)
    assert bool(capsys.readouterr().out) == (re.search(r"^ *print\(", code, re.MULTILINE) is not None)
    # What a user hands to LangSmith and promptfoo.
    question, answer = "The council voted on Monday.", "The council voted."
    if "debate" in names:
        langsmith = pytest.importorskip("langsmith.evaluation.evaluator", reason="langsmith is not installed")
        assert isinstance(langsmith.run_evaluator(names["debate"]), langsmith.RunEvaluator)
        results = names["debate"](inputs={"question": question}, outputs={"answer": answer})
        assert {langsmith.EvaluationResult(**r).key for r in results} == {aspect.name for aspect in task.aspects}
    if "get_assert" in names:
        result = names["get_assert"](answer, {"vars": {"article": question}})
        assert result["pass"] == (result["score"] >= 0.5)


OTHERS = {
    "--version",
    "--no",
    "--debate-judge",
    "--backend-store-uri",
    "--experiment-id",
    "--series",
    "--rule",
    "--muted",
}
"""Of `debate` itself, of pytest and MLflow, and variables of CSS."""


def test_a_message_names_no_flag_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = [importlib.import_module(module).main for module, _ in COMMANDS.values()]
    flags = {flag for parser in parsers_of(starts, monkeypatch) for flag in parser._option_string_actions} | OTHERS
    wrong = []
    for file in SOURCES:
        texts = [str(node.value) for node in ast.walk(tree(file)) if isinstance(node, ast.Constant)]
        named = {flag for text in texts for flag in re.findall(r"(?<![\w(-])--[a-z][a-z-]*[a-z]", text)}
        wrong += [(name_of(file), flag) for flag in sorted(named - flags)]
    assert wrong == []
