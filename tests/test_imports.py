"""What an import does, and what the help of a command loads."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from debate_judge.runs.flags.invocation import COMMANDS
from tests.source_tree import PACKAGE, ROOT, SOURCES, imports, module_of, modules_in, name_of, tree

HEAVY = ("dspy", "litellm", "mlflow", "optuna", "datasets", "scipy", "pandas", "matplotlib", "aiohttp", "ray")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


OPTIONAL = ("fastapi", "inspect_ai", "prometheus_client")
"""Libraries of extras that an integration imports as a whole: its own file is imported only when it is used."""


# --- what happens on import ---

_EFFECTS = """
import importlib, json, logging, os, random, sys, threading
foreign, own = json.loads(sys.argv[1])
for name in foreign:
    importlib.import_module(name)
import dspy, numpy

def state():
    named = logging.root.manager.loggerDict.values()
    loggers = [logging.getLogger(), *(l for l in named if isinstance(l, logging.Logger))]
    return {
        "threads": sorted(t.name for t in threading.enumerate()),
        "loggers": sorted((l.name, l.level, len(l.handlers)) for l in loggers if l.level or l.handlers),
        "random": repr(random.getstate()),
        "numpy": repr(numpy.random.get_state()),
        "dspy": repr(sorted((k, repr(v)) for k, v in dspy.settings.copy().items())),
        "environment": dict(os.environ),
        "path": list(sys.path),
        "folder": os.getcwd(),
    }

events = []
def hook(event, arguments):
    writes = event == "open" and any(c in str(arguments[1] or "") for c in "wax+")
    if writes or event in ("os.mkdir", "os.remove", "os.rename", "socket.connect", "subprocess.Popen"):
        events.append(f"{event} {arguments[:2]}")

before = state()
sys.addaudithook(hook)
for name in own:
    importlib.import_module(name)
found, after = list(events), state()
print(json.dumps({"events": found, "changed": [k for k in before if before[k] != after[k]]}))
"""


@pytest.mark.integration
def test_an_import_does_nothing_but_define() -> None:
    """No thread, no file written, no logger, random state, DSPy setting or environment variable changed.

    Libraries are imported beforehand: what they do is theirs.
    """
    absent = {library for library in OPTIONAL if find_spec(library) is None}
    tried = [path for path in SOURCES if not absent & {m.partition(".")[0] for m in modules_in(tree(path).body)}]
    modules = [module_of(path) for path in tried]
    needed = {module for path in tried for module in modules_in(tree(path).body)}
    foreign = sorted(module for module in needed if module.partition(".")[0] not in (PACKAGE, "__future__"))
    done = run("-B", "-c", _EFFECTS, json.dumps([foreign, modules]))
    assert json.loads(done.stdout.splitlines()[-1]) == {"events": [], "changed": []}
    assert done.stdout.count("\n") == 1, "an import printed something"


def commands() -> list[Path]:
    """The scripts with flags of their own; `debate`, which starts them, has none."""
    reading = {"debate_judge.runs.flags.parser", "debate_judge.optimize.command"}
    scripts = [path for path in SOURCES if '__name__ == "__main__"' in path.read_text(encoding="utf-8")]
    return [path for path in scripts if reading & set(imports(path)) and name_of(path) != "optimize/cli.py"]


_HELP = """
import runpy, sys
path, heavy = sys.argv[1], sys.argv[2].split(",")
sys.argv = [path, "--help"]
try:
    runpy.run_path(path, run_name="__main__")
except SystemExit as end:
    assert end.code in (0, None), end.code
print("LOADED", *sorted(set(heavy) & set(sys.modules)))
"""


KNOWN = (
    "optimize/compile.py",
    *(f"runs/{name}.py" for name in ("agreement", "check", "compare", "report", "score", "serve")),
)


def test_there_are_commands_and_the_console_script_knows_no_other() -> None:
    assert set(KNOWN) == {name_of(path) for path in commands()}
    modules = (module.removeprefix("debate_judge.") for module, _ in COMMANDS.values())
    # The page of a compile imports what it uses, so that its flags are read elsewhere.
    assert {f"{module.replace('.', '/')}.py" for module in modules} <= {*KNOWN, "optimize/command.py"}


_CHECK = """
import sys
from debate_judge.runs import check
assert check.main([sys.argv[1]]) == 0
print("LOADED", *sorted({"litellm", "mlflow", "optuna", "pandas", "aiohttp"} & set(sys.modules)))
"""


@pytest.mark.integration
def test_a_check_loads_no_tracking_and_no_client() -> None:
    assert run("-c", _CHECK, str(ROOT / "data/sample/summarization.jsonl")).stdout.splitlines()[-1] == "LOADED"


@pytest.mark.integration
@pytest.mark.parametrize("name", KNOWN[1:])
def test_help_loads_nothing_heavy(name: str) -> None:
    done = run("-c", _HELP, str(ROOT / name), ",".join(HEAVY))
    # As a file that is named from elsewhere.
    assert done.stdout.startswith(f"usage: python {ROOT / name} [-h]")
    assert done.stdout.splitlines()[-1].split() == ["LOADED"]
    assert done.stderr == ""


@pytest.mark.integration
def test_help_of_debate_compile_loads_nothing_heavy() -> None:
    start = _HELP.replace('runpy.run_path(path, run_name="__main__")', "cli.main(['compile', '--help'])")
    done = run("-c", f"from debate_judge.optimize import cli\n{start}", "debate", ",".join(HEAVY))
    assert done.stdout.startswith("usage: debate compile [-h]")
    assert done.stdout.splitlines()[-1].split() == ["LOADED"]
