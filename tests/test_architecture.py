"""The rules of the house: which way imports point, and what no file may hold."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from debate_judge import data
from debate_judge.optimize.tuners import TUNERS
from debate_judge.programs import JUDGES
from tests.source_tree import LAYERS, PACKAGE, ROOT, SOURCES, TESTS, imports, module_of, modules_in, name_of, tree

FOREIGN = {
    "data": ("dspy", "mlflow", "optuna", "litellm"),
    "programs": ("mlflow", "optuna"),
    "runs": ("optuna",),
    "optimize": (),
}
"""Libraries that a folder knows nothing about."""

ROOMS = {
    "data": (
        ("errors",),
        ("schema",),
        ("tasks", "near_duplicates", "requirements", "agreement", "testing"),
        ("splits", "calibration", "corpus_statistics"),
        ("folds",),
        ("files",),
        ("sets", "sample"),
    ),
    "programs": (
        ("transcript", "lm", "option_values", "grouping"),
        ("judge",),
        ("roles",),
        ("debate", "geval", "chateval", "hallucination", "metrics"),
        ("compiled", "offline"),
        ("make_lm", "dry_run", "devset"),
        ("testing",),
    ),
    "runs": (
        ("column_values", "python_arguments"),
        ("flags", "runner", "mlflow_setup", "draft"),
        ("export",),
        ("scoring",),
        ("tracking", "integrations"),
        ("human_ratings", "reports"),
        ("estimates", "ray_engine"),
        ("comparison",),
        ("agreement", "check", "compare", "report", "score"),
        ("serve",),
    ),
}
"""The rooms of a folder (sub-packages, or files at its top) from left to right.

A room imports from itself and from those of the steps to its left; rooms of one step do not know each other.
"""


def layer_of(path: Path) -> str:
    """The folder at the top that a file is in; for the package's own modules the last, which may import all."""
    return path.relative_to(ROOT).parts[0] if path.parent != ROOT else LAYERS[-1]


def own_imports(path: Path) -> set[tuple[str, ...]]:
    """What a file imports of this package, each as its path inside it: `("programs", "lm", "client", "JudgeLM")`."""
    imported = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == PACKAGE:
            imported |= {(*str(node.module).split(".")[1:], alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            parts = [tuple(alias.name.split(".")) for alias in node.names]
            imported |= {part[1:] for part in parts if part[0] == PACKAGE}
    return imported


# --- imports ---


@pytest.mark.integration
def test_nothing_is_imported_by_the_name_of_its_folder() -> None:
    """At the root of a checkout `import programs` works, and makes a second copy of every class."""
    none_wrong({name_of(p): {m for m in imports(p) if m.partition(".")[0] in LAYERS} for p in (*SOURCES, *TESTS)})


def none_wrong(wrong: Mapping[str, object]) -> None:
    """Fail with the files where something is wrong."""
    assert {name: what for name, what in wrong.items() if what} == {}


def test_imports_point_left_only() -> None:
    wrong = {}
    for path in SOURCES:
        right = LAYERS[LAYERS.index(layer_of(path)) + 1 :]
        wrong[name_of(path)] = {".".join(names) for names in own_imports(path) if names and names[0] in right}
        wrong[name_of(path)] |= {module for module in imports(path) if module.partition(".")[0] == "tests"}
    none_wrong(wrong)


def room_of(path: Path) -> str:
    """The room of a file: the folder below the layer, or the file's own name where it stands at the layer's top."""
    parts = path.relative_to(ROOT).parts[1:]
    return parts[0].removesuffix(".py")


@pytest.mark.parametrize("layer", ROOMS)
def test_rooms_know_only_those_to_their_left(layer: str) -> None:
    step = {room: number for number, rooms in enumerate(ROOMS[layer]) for room in rooms}
    inside = [path for path in SOURCES if name_of(path).startswith(f"{layer}/") and room_of(path) != "__init__"]
    assert {room_of(path) for path in inside} == set(step), "each room has its place in ROOMS"
    wrong = []
    for path in inside:
        room = room_of(path)
        inner = {names[1] for names in own_imports(path) if names[:1] == (layer,) and len(names) > 1}
        others = (inner & set(step)) - {room}
        wrong += [f"{name_of(path)} imports {other}" for other in sorted(others) if step[other] >= step[room]]
    assert wrong == []


def test_a_folder_keeps_to_its_libraries_and_programs_to_what_dspy_itself_names() -> None:
    """`programs` imports from `dspy` and `dspy.lm15`, and from none of the modules inside."""
    for path in SOURCES:
        libraries = {module.partition(".")[0] for module in imports(path)}
        none_wrong({name_of(path): libraries & set(FOREIGN[layer_of(path)])})
        if layer_of(path) == "programs":
            inside = {module for module in imports(path) if module.startswith("dspy.")}
            none_wrong({name_of(path): inside - {"dspy.lm15"}})


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
    """A name with a leading underscore, or anything in a module with one, may be gone in the next version."""

    def private(name: str) -> bool:
        library, *inner = name.split(".")
        return library in ("dspy", "litellm", "lm15") and any(re.match("_(?!_)", part) for part in inner)

    assert private("litellm._logging.verbose_logger")
    assert private("dspy.utils._x")
    assert not private("dspy.__version__")
    none_wrong({name_of(path): set(filter(private, foreign_names(path))) for path in SOURCES})


def test_no_class_has_the_name_of_another() -> None:
    where: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(name_of(path))
    none_wrong({name: files[1:] for name, files in where.items()})


def test_there_are_no_cycles_among_modules() -> None:
    """Counting the imports at the top of files; one inside a function may close a circle without harm."""
    sources = {module_of(path): path for path in SOURCES}

    def needed(module: str) -> set[str]:
        body = tree(sources[module]).body
        imported = set(modules_in(body))
        imported |= {f"{n.module}.{alias.name}" for n in body if isinstance(n, ast.ImportFrom) for alias in n.names}
        # Importing a module imports the packages that it is in; what these need is seen from their own names.
        return {name for name in imported & set(sources) if not module.startswith(name + ".")}

    done: set[str] = set()

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, " -> ".join([*above, module])
        if module not in done:
            for other in sorted(needed(module)):
                visit(other, (*above, module))
            done.add(module)

    for module in sources:
        visit(module, ())


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


def test_files_say_what_they_are() -> None:
    assert [name_of(path) for path in SOURCES if tree(path).body and not ast.get_docstring(tree(path))] == []


# --- what files hold ---


def tracked() -> list[Path]:
    """The files under version control, or, in a copy without it, those that would be."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    return [*SOURCES, *(ROOT / "tests").rglob("*.py"), *ROOT.glob("*.md"), ROOT / "pyproject.toml"]


def texts() -> Iterator[tuple[str, str]]:
    for path in tracked():
        if path != Path(__file__) and path.suffix != ".png":
            yield name_of(path), path.read_text(encoding="utf-8")


MACHINE = re.compile(
    rf"(?<![\w.])(?:/(?:{'|'.join(('home', 'Users', 'root', 'work', 'mnt', 'opt', 'tmp'))})/|[A-Z]:\\)\w"
)
HOSTS = re.compile(
    r"pypi\.org|pythonhosted\.org|extra-index-url|index-url|conda\.anaconda|npmjs|artifactory", re.IGNORECASE
)


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    machine_paths = re.compile("|".join(re.escape(str(folder)) + r"\b" for folder in {ROOT, Path(sys.prefix)}))
    for name, text in texts():
        assert not machine_paths.search(text), name
        # Tests make addresses and folders up.
        if not name.startswith("tests/"):
            assert not MACHINE.search(text), (name, MACHINE.findall(text))


def test_no_file_names_a_package_host() -> None:
    for name, text in texts():
        assert not HOSTS.search(text), (name, HOSTS.findall(text))


def test_the_pages_name_everything_that_can_be_chosen() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    texts = [page.read_text(encoding="utf-8") for page in pages]
    names = [*JUDGES, *data.LOADERS, *TUNERS]
    documentation = "\n".join(texts)
    assert [n for n in names if not re.search(rf"(?<![\w+-]){re.escape(n)}(?![\w+-])", documentation)] == []
    assert len(texts[0].splitlines()) <= 200
