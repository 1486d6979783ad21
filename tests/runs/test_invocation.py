"""Hints are worded as the process was started: as a file, as a module, or by the console script, also from a wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from debate_judge.data import errors
from debate_judge.runs.flags.invocation import COMMANDS, as_started, command, script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a wheel lays it out: its folders, without the project's files beside them."""
    site = tmp_path_factory.mktemp("site-packages")
    leave_out = shutil.ignore_patterns("store", "__pycache__", "build")
    for folder in ("data", "programs", "runs", "optimize"):
        shutil.copytree(ROOT / folder, site / "debate_judge" / folder, ignore=leave_out)
    shutil.copy(ROOT / "__init__.py", site / "debate_judge")
    return site


def output(*arguments: str, folder: Path = ROOT, path: Path | None = None) -> str:
    environment = {**os.environ, "COLUMNS": "120", "PYTHONDONTWRITEBYTECODE": "1"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def console_script(folder: Path) -> str:
    """A script as installers write it for `debate`."""
    path = folder / "debate"
    path.write_text("import sys\nfrom debate_judge.optimize.cli import main\nsys.exit(main())\n")
    return str(path)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_script_names_scripts(name: str) -> None:
    assert output(script(name), "--help").startswith(f"usage: python {script(name)} [-h]")


def test_a_script_is_named_from_where_its_user_is(tmp_path: Path) -> None:
    inside = output("score.py", "--help", folder=ROOT / "runs")
    assert inside.startswith("usage: python score.py [-h]")
    assert "\n    python score.py runs/store" in inside
    elsewhere = output(str(ROOT / "runs/score.py"), "--help", folder=tmp_path)
    assert elsewhere.startswith(f"usage: python {ROOT / 'runs/score.py'} [-h]")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_console_script_names_itself(name: str, tmp_path: Path) -> None:
    text = output(console_script(tmp_path), name, "--help", folder=tmp_path)
    assert text.startswith(f"usage: debate {name} [-h]")
    assert ".py" not in text.replace("settings.py", "")
    assert f"\n    debate {name} " in text or f"\n    debate {name}\n" in text


def test_a_module_names_modules(tmp_path: Path) -> None:
    text = output("-m", "debate_judge.runs.score", "--help", folder=tmp_path)
    assert text.startswith("usage: python -m debate_judge.runs.score [-h]")
    assert "\n    python -m debate_judge.runs.score models:" in text


_WHERE = """
from debate_judge.data.errors import __file__, install_hint
from debate_judge.runs.flags.invocation import command
print(__file__, command("score"), install_hint("metrics"), sep="\\n")
"""


def test_from_a_wheel_the_console_script_and_the_wheels_name_are_given(wheel: Path, tmp_path: Path) -> None:
    where, score, install = output("-c", _WHERE, folder=tmp_path, path=wheel).splitlines()
    assert Path(where).is_relative_to(wheel)
    assert score == "debate score"
    assert install == "pip install 'debate-judge[metrics]'"
    text = output(console_script(tmp_path), "compile", "--help", folder=tmp_path, path=wheel)
    assert text.startswith("usage: debate compile [-h]")
    module = output("-m", "debate_judge.runs.compare", "--help", folder=tmp_path, path=wheel)
    assert module.startswith("usage: python -m debate_judge.runs.compare [-h]")


def test_a_checkout_is_installed_from_its_folder() -> None:
    assert errors.install_hint("metrics").startswith("pip install -e '.[metrics]'")


def test_a_process_of_another_program_is_told_of_the_console_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["notebook.py"])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert [command(name) for name in COMMANDS] == [f"debate {name}" for name in COMMANDS]
    assert as_started("python runs/score.py --out x") == "debate score --out x"


def test_a_path_with_a_blank_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = tmp_path / "my project"
    monkeypatch.setattr("debate_judge.runs.flags.invocation._ROOT", root)
    monkeypatch.setattr(sys, "argv", [str(root / "optimize/compile.py")])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert command("score") == f"python '{root / 'runs/score.py'}'"
