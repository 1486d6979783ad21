"""The rules of the house: which way imports point, and what no file may hold."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source_tree import LAYERS, ROOT, SOURCES, TESTS, imports, name_of, tree

FOREIGN = {"data": {"dspy", "mlflow", "optuna", "litellm"}, "programs": {"mlflow", "optuna"}, "runs": {"optuna"}}
"""Libraries that a folder knows nothing about."""


def test_imports_point_left_only() -> None:
    """Nor to the tests, nor to a folder by its own name: `import programs` would make a second copy of every class."""
    wrong = []
    for path in (*SOURCES, *TESTS):
        parts = path.relative_to(ROOT).parts
        forbidden = set(LAYERS) | FOREIGN.get(parts[0], set())
        if parts[0] in LAYERS:
            right = LAYERS[LAYERS.index(parts[0]) + 1 :]
            forbidden |= {"tests", "debate_judge.testing", *(f"debate_judge.{layer}" for layer in right)}
        names = {
            name for module in imports(path) for name in (module.partition(".")[0], ".".join(module.split(".")[:2]))
        }
        wrong += [f"{name_of(path)} imports {name}" for name in sorted(names & forbidden)]
    assert wrong == []


@pytest.mark.parametrize("layer", LAYERS)
def test_the_table_of_a_folder_names_what_is_in_it(layer: str) -> None:
    rows = re.findall(r"^\| (.+?) \|", (ROOT / layer / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = {name.strip("/") for row in rows for name in re.findall(r"`(.+?)`", row)}
    files = {path.relative_to(ROOT / layer).parts[0] for path in SOURCES if path.is_relative_to(ROOT / layer)}
    assert named == files - {"__init__.py"}


def foreign_names(path: Path) -> Iterator[str]:
    """What a file uses of DSPy and LiteLLM: the names that it imports, and the attributes of their modules."""
    modules = {"dspy", "litellm", "lm15"}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield f"{node.value.id}.{node.attr}"


def test_no_private_name_of_dspy_or_litellm_is_used() -> None:
    """A name with a leading underscore, or anything in a module with one, may be gone in the next version.

    DSPy's HTTP transport has no other name; one file uses it.
    """
    private = re.compile(r"(dspy|litellm|lm15)(\.\w+)*\._(?!_)")
    assert private.match("litellm._logging.verbose_logger")
    assert not private.match("dspy.__version__")
    used = [(name_of(path), name) for path in SOURCES for name in foreign_names(path) if private.match(name)]
    assert used == [("programs/lm/transport.py", "dspy._vendor.lm15.transports")]


@pytest.mark.parametrize("folder", ["optimize", "runs"])
def test_no_file_of_a_folder_with_scripts_hides_a_module(folder: str) -> None:
    """`python optimize/compile.py` puts optimize/ first on the path: a random.py there would be everybody's random."""
    stems = {path.stem for path in (ROOT / folder).iterdir() if path.suffix in (".py", "") and path.stem[0] not in "._"}
    assert stems
    assert not stems & set(sys.stdlib_module_names)
    specs = {stem: spec for stem in stems if (spec := importlib.util.find_spec(stem)) is not None}
    # pytest knows the checkout as a package of its folder's name, which may be any.
    assert {stem for stem, spec in specs.items() if spec.origin != str(ROOT / "__init__.py")} == set()


def test_the_package_is_made_of_links_to_the_checkout() -> None:
    """As copies, what is at the top would no longer be what is imported."""
    entries = list((ROOT / ".src" / "debate_judge").iterdir())
    assert {entry.name for entry in entries} >= {"__init__.py", "testing.py", "data", "programs", "runs", "optimize"}
    assert [entry.name for entry in entries if not entry.is_symlink() and entry.name != "__pycache__"] == []


def test_no_file_knows_the_machine_it_was_written_on_or_a_package_host() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    places = "|".join(("home", "Users", "root", "work", "mnt", "opt", "tmp"))
    machine = re.compile(rf"(?<![\w.])(?:/(?:{places})/|[A-Z]:\\)\w")
    hosts = re.compile(r"pypi\.org|pythonhosted\.org|index-url|conda\.anaconda|npmjs|artifactory", re.IGNORECASE)
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.is_file() and path != Path(__file__) and path.suffix != ".png":
            text = path.read_text(encoding="utf-8")
            assert not hosts.search(text), name
            # Tests make folders up.
            assert name.startswith("tests/") or not machine.search(text), (name, machine.findall(text))
            assert str(ROOT) not in text, name
