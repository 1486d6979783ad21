"""What is installed: one import name, from a wheel or a checkout, beside whatever a user's own modules are called."""

from __future__ import annotations

import compileall
import configparser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from debate_judge.data.tasks import TASKS
from debate_judge.programs import build_preset
from tests.runs.score_command import export_of
from tests.source_tree import LAYERS, ROOT, SOURCES, name_of

pytestmark = pytest.mark.integration

_BUILD = """
import sys
from setuptools import build_meta
print(getattr(build_meta, "build_" + sys.argv[1])(sys.argv[2]))
"""

_OWN = ("data", "programs", "runs", "optimize", "judge", "score", "compare")
"""What a user's modules may be called."""


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the package in it, and where the package's files are."""

    folder: Path
    package: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout, in a folder that is no module's name, with what runs and builds leave in it."""
    root = tmp_path_factory.mktemp("sources") / "my checkout-2"
    for layer in LAYERS:
        shutil.copytree(ROOT / layer, root / layer, ignore=shutil.ignore_patterns("__pycache__", "store"))
    for name in ("__init__.py", "testing.py", "py.typed", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, root / name)
    shutil.copytree(ROOT / ".src", root / ".src", symlinks=True, ignore=shutil.ignore_patterns("*.egg-info"))
    for name in ("runs/store/artifacts/code/debate_judge/data/schema.py", "runs/store/mine.py", "tests/test_it.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    return root


def _built(kind: str, checkout: Path, folder: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, kind, str(folder)], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built("wheel", checkout, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def editable(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel by which pip installs a checkout that stays where it is."""
    return _built("editable", checkout, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module", params=("editable", "wheel"))
def installed(request: pytest.FixtureRequest, checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The package in an environment that borrows everything else from the one that the tests run in."""
    folder = tmp_path_factory.mktemp(request.param)
    file = request.getfixturevalue(request.param)
    environment = _environment(folder / "venv", file)
    # A path in a .pth file is searched, but the .pth files there, such as that of another checkout, are not read.
    (_site(environment) / "borrowed.pth").write_text(
        f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n"
    )
    package = checkout if request.param == "editable" else _site(environment) / "debate_judge"
    # As pip does; without it each of the many processes would compile the package for itself.
    assert compileall.compile_dir(package, quiet=1)
    return Installed(environment, package)


def _environment(folder: Path, file: Path) -> Path:
    """A virtual environment with nothing but the content of a wheel, and its console scripts."""
    venv.EnvBuilder(symlinks=True).create(folder)
    site = _site(folder)
    with zipfile.ZipFile(file) as archive:
        archive.extractall(site)
    scripts = configparser.ConfigParser()
    scripts.read(next(site.glob("*.dist-info")) / "entry_points.txt")
    for name, target in scripts["console_scripts"].items():
        module, function = target.split(":")
        script = folder / "bin" / name
        script.write_text(
            f"#!{folder}/bin/python\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
        script.chmod(0o755)
    return folder


def _site(folder: Path) -> Path:
    site = next(folder.glob("lib/python*/site-packages"))
    assert site.is_dir()
    return site


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """Runs a command where each name in `_OWN` is a module and a package of the user's; returns what it prints."""
    for name in _OWN:
        (tmp_path / name).mkdir()
        for file in (f"{name}.py", f"{name}/__init__.py"):
            (tmp_path / file).write_text("raise RuntimeError('a module of the user was imported')\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}

    def command(*words: object) -> str:
        done = subprocess.run(
            [str(word) for word in words],
            cwd=tmp_path,
            env={**env, "LITELLM_LOCAL_MODEL_COST_MAP": "true", "COLUMNS": "100"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return command


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports") / "toy"
    return export_of(folder, TASKS["summarization"], build_preset("debate", {}), lm="offline")


# --- the wheel ---


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {Path(name) for name in archive.namelist() if not name.endswith("/")}
    assert {name.parts[0] for name in names} == {"debate_judge", "debate_judge-0.1.0.dist-info"}
    files = {name.relative_to("debate_judge").as_posix() for name in names if name.parts[0] == "debate_judge"}
    sample = {"README.md", "summarization.jsonl", "dialogue.jsonl"}
    page = {"report.css", "report.html.j2", "report.js"}
    others = {*(f"data/sample/{name}" for name in sample), *(f"runs/reports/{name}" for name in page)}
    assert files == {*map(name_of, SOURCES), "py.typed", *others}


def test_the_sdist_holds_the_files_of_the_wheel_and_no_links(checkout: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(_built("sdist", checkout, tmp_path)) as archive:
        members = {member.name.partition("/.src/")[2]: member for member in archive.getmembers()}
    with zipfile.ZipFile(wheel) as packed:
        files = {name for name in packed.namelist() if name.startswith("debate_judge/")}
    assert files <= members.keys()
    assert not any(member.issym() or member.islnk() for member in members.values())


# --- in an environment ---


def test_a_command_runs_beside_a_users_own_modules(installed: Installed, run: Callable[..., str]) -> None:
    console_script, file = installed.folder / "bin" / "debate", installed.package / "runs" / "score.py"
    module = ("-m", "debate_judge.runs.score")
    for start in ((console_script, "score"), (installed.python, *module), (installed.python, file)):
        assert run(*start, "--help").startswith("usage: ")


_WORK = """
import multiprocessing, sys
import debate_judge
assert not {"dspy", "mlflow"} & set(sys.modules), "importing the package loads libraries"
from debate_judge import load

def score(text):
    with load(sys.argv[1]) as judge:
        return judge.score(text=text, source="A crossing takes 22 minutes.")["fluency"]

if __name__ == "__main__":
    text = "The ferry takes 22 minutes."
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert 1 <= pool.apply(score, [text]).score == score(text).score <= 5
    print(debate_judge.__file__)
"""


def test_processes_share_a_judge_by_its_export(
    installed: Installed, run: Callable[..., str], exported: Path, tmp_path: Path
) -> None:
    """A score goes through pickle; each process loads the judge for itself."""
    (tmp_path / "work.py").write_text(_WORK)
    module_file = Path(run(installed.python, "work.py", exported).strip())
    assert module_file.resolve() == installed.package / "__init__.py"


_TYPED = """
from debate_judge import load

reveal_type(load("x").score(text="a", source="b"))
load(1)
"""


@pytest.mark.parametrize(
    ("checker", "kind", "options"),
    [
        ("pyright", "editable", ("--pythonpath",)),
        ("mypy", "wheel", ("--strict", "--no-incremental", "--config-file=", "--python-executable")),
    ],
)
def test_a_type_checker_finds_what_is_installed(
    checker: str, kind: str, options: tuple[str, ...], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """In an environment with the package alone, for speed: types of other libraries are not looked at."""
    pytest.importorskip(checker)
    (tmp_path / "use.py").write_text(_TYPED)
    python = _environment(tmp_path / "venv", request.getfixturevalue(kind)) / "bin" / "python"
    command = (sys.executable, "-m", checker, *options, str(python), "use.py")
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    revealed, refused = re.findall(r"use\.py:(?:4|5)\b.*", output)
    assert "Score" in revealed
    assert "error" in refused
