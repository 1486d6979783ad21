"""The fixture `judge` in a user's own tests, in a pytest of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from debate_judge import Debate
from tests.runs.integration_exports import TASK
from tests.runs.score_command import export_of

pytestmark = pytest.mark.integration

TESTS = """
import math

def test_passes(judge):
    judged = judge("Sorry for the delay; it ships today.", source="Where is my order?", aspect="tone")
    assert judged >= 1
    assert 1 <= float(judged) <= 5

def test_every_aspect_counts(judge):
    assert judge("No.", source="Where is my order?") > 5

def test_nothing_passes_without_a_score(judge):
    judged = judge("", source="Where is my order?")
    assert not judged >= 1 and not judged <= 5
    assert judged <= 5
"""


def own_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder with no plugin but that of the entry point."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "debate-judge", "-p", "no:cacheprovider", *options]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)


def test_a_failure_shows_the_debate_and_junit_has_the_scores_of_all_tests(tmp_path: Path) -> None:
    export_of(tmp_path / "judge", TASK, Debate(rounds=1), lm="offline")
    (tmp_path / "test_replies.py").write_text(TESTS)
    printed = own_pytest(tmp_path, "--debate-judge", "judge", "--junitxml", "report.xml").stdout
    assert "2 failed, 1 passed" in printed
    assert "tone: no score" in printed
    for aspect in ("tone", "help"):
        # In the assertion's explanation, and in a section with the debate.
        assert re.search(rf"^E +{aspect}: [1-5](\.\d+)?: \w+", printed, re.MULTILINE)
        debate = rf"^{aspect}: [1-5](\.\d+)?\nScorer, round 0, score .+\n\nCritic, round 1"
        assert re.search(debate, printed, re.MULTILINE)
    cases = {case.get("name"): case for case in ElementTree.parse(tmp_path / "report.xml").iter("testcase")}
    found = {name: {p.get("name"): p.get("value") for p in case.iter("property")} for name, case in cases.items()}
    assert 1 <= float(found["test_passes"]["debate_judge.tone"] or 0) <= 5
    assert set(found["test_every_aspect_counts"]) == {"debate_judge.tone", "debate_judge.help"}
    assert set(found["test_nothing_passes_without_a_score"].values()) == {"no score"}


def test_a_judge_of_another_project_brings_no_settings_of_its_project(tmp_path: Path) -> None:
    project, own = tmp_path / "project", tmp_path / "own"
    for folder in (project, own):
        folder.mkdir()
    export_of(project / "exports" / "judge", TASK, Debate(rounds=1), lm="offline")
    (project / "pyproject.toml").write_text('[tool.pytest.ini_options]\npython_functions = ["never"]\n')
    (own / "test_replies.py").write_text(TESTS)
    assert "2 failed, 1 passed" in own_pytest(own, "--debate-judge=../project/exports/judge").stdout


_LOADED = """
import sys
import debate_judge.runs.integrations.pytest_plugin
print(sorted({"dspy", "mlflow", "pandas", "numpy", "aiohttp", "sqlalchemy", "debate_judge.data"} & set(sys.modules)))
"""


def test_a_start_of_pytest_loads_nothing_of_the_judge_and_says_what_to_give(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    (tmp_path / "test_one.py").write_text("def test_one(judge): pass\n")
    assert "--debate-judge=EXPORT" in own_pytest(tmp_path).stdout
