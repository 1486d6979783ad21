"""What an import does, and what the help of a command loads."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

from debate_judge.runs.command_line import COMMANDS
from tests.source_tree import PACKAGE, ROOT, SOURCES, module_of, modules_in, tree

HEAVY = ("dspy", "litellm", "mlflow", "optuna", "datasets", "scipy", "pandas", "matplotlib", "aiohttp", "ray")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


OPTIONAL = ("fastapi", "inspect_ai", "prometheus_client")
"""Libraries of extras that an integration imports as a whole: its own file is imported only when it is used."""


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


_HELP = """
import json, sys
from debate_judge.optimize.cli import main
for name in json.loads(sys.argv[1]):
    try:
        main([name, "--help"])
    except SystemExit as end:
        assert end.code in (0, None), end.code
print("LOADED", *sorted(set(json.loads(sys.argv[2])) & set(sys.modules)))
"""

_CHECK = """
import sys
from debate_judge.runs import check
assert check.main([sys.argv[1]]) == 0
print("LOADED", *sorted({"litellm", "mlflow", "optuna", "pandas", "aiohttp"} & set(sys.modules)))
"""


@pytest.mark.integration
@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (_HELP, (json.dumps([*COMMANDS]), json.dumps(HEAVY))),
        (_CHECK, (str(ROOT / "data/sample/summarization.jsonl"),)),
    ],
    ids=["help", "check"],
)
def test_help_loads_nothing_heavy_and_a_check_no_tracking_and_no_client(code: str, arguments: tuple[str, ...]) -> None:
    done = run("-c", code, *arguments)
    assert done.stdout.splitlines()[-1] == "LOADED"
    assert done.stderr == ""
