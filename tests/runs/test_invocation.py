"""Hints are worded as the process was started: as a file, as a module, or by the console script, also from a wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from debate_judge.data import errors
from debate_judge.runs.flags.invocation import COMMANDS, command, with_invoked_commands

ROOT = Path(__file__).parents[2]


def output(*arguments: str, folder: Path = ROOT, path: Path | None = None) -> str:
    environment = {**os.environ, "COLUMNS": "120", "PYTHONDONTWRITEBYTECODE": "1"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    called = [sys.executable, *arguments]
    done = subprocess.run(called, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.integration
def test_a_script_is_named_from_where_its_user_is_and_a_module_as_a_module(tmp_path: Path) -> None:
    inside = output("score.py", "--help", folder=ROOT / "runs")
    assert inside.startswith("usage: python score.py [-h]")
    assert "\n    python score.py runs/store" in inside
    text = output("-m", "debate_judge.runs.after.next", "--help", folder=tmp_path)
    assert text.startswith("usage: python -m debate_judge.runs.after.next [-h]")
    assert "\n    python -m debate_judge.runs.after.next EXPORT" in text


_WHERE = """
from debate_judge.data.errors import __file__, install_hint
from debate_judge.runs.flags.invocation import command
print(__file__, command("score"), install_hint("metrics"), sep="\\n")
"""


@pytest.mark.integration
def test_from_a_wheel_the_console_script_and_the_wheels_name_are_given(tmp_path: Path) -> None:
    """The package as a wheel lays it out: its folders, without the project's files beside them."""
    wheel, folder = tmp_path / "site-packages", tmp_path / "work"
    leave_out = shutil.ignore_patterns("store", "__pycache__", "build")
    for name in ("data", "programs", "runs", "optimize"):
        shutil.copytree(ROOT / name, wheel / "debate_judge" / name, ignore=leave_out)
    shutil.copy(ROOT / "__init__.py", wheel / "debate_judge")
    folder.mkdir()
    where, score, install = output("-c", _WHERE, folder=folder, path=wheel).splitlines()
    assert Path(where).is_relative_to(wheel)
    assert (score, install) == ("debate score", "pip install 'debate-judge[metrics]'")
    # As installers write it.
    (folder / "debate").write_text("import sys\nfrom debate_judge.optimize.cli import main\nsys.exit(main())\n")
    text = output(str(folder / "debate"), "compile", "--help", folder=folder, path=wheel)
    assert text.startswith("usage: debate compile [-h]")
    assert ".py" not in text


def test_a_checkout_is_installed_from_its_folder() -> None:
    assert errors.install_hint("metrics").startswith("pip install -e '.[metrics]'")


def test_a_process_of_another_program_is_told_of_the_console_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["notebook.py"])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert [command(name) for name in COMMANDS] == [f"debate {name}" for name in COMMANDS]
    assert with_invoked_commands("python runs/score.py --out x") == "debate score --out x"


def test_a_path_with_a_blank_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = tmp_path / "my project"
    monkeypatch.setattr("debate_judge.runs.flags.invocation._ROOT", root)
    monkeypatch.setattr(sys, "argv", [str(root / "optimize/compile.py")])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert command("score") == f"python '{root / 'runs/score.py'}'"
