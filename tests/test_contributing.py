"""CONTRIBUTING's judge, data set and tuner, written down as it shows them and put to work."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from debate_judge.optimize.cli import main
from tests.config_keys import keys

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python (\S+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)

SMALL = (
    *("--effort", "light", "--max-rounds", "1", "--folds", "1"),
    *keys(trials=2, preflight=False, report="none"),
)
LONGEST = "debate_judge.optimize.tuners.longest:Longest"


def blocks() -> dict[tuple[str, str], str]:
    """(file, table in it or nothing) -> code."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return {(file, table): code for file, table, code in BLOCK.findall(text)}


def test_a_judge_is_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = blocks()
    for name in ("worst_flaw.py", "test_worst_flaw.py"):
        (tmp_path / name).write_text(code[name, ""], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    tests = importlib.import_module("test_worst_flaw")
    for test in (value for name, value in vars(tests).items() if name.startswith("test_")):
        test()
    judge = "worst_flaw:WorstFlaw"
    options = ("--aspects", "coherence", "--store", "store", "--name", "mine", "--verbose", *SMALL)
    more = keys(json="result.json", sources="12")
    assert main(["compile", "--data", "sample", "--judge", judge, *options, *more]) == 0
    output = capsys.readouterr()
    assert "no MLflow model" in output.out + output.err
    assert "flaw-finder" in output.out, "the table of costs calls the role what its author calls it"
    result = json.loads(Path("result.json").read_text())
    assert result["chosen"]["coherence"]["rounds"] == 0
    texts = {"group": "1", "source": "Rain fell.", "candidates": [{"id": "a", "text": "It rained."}]}
    Path("texts.jsonl").write_text(json.dumps({**texts, "task": "summarization"}))
    files = ("--in", "texts.jsonl", "--out", "scores.jsonl", "--store", "store")
    assert main(["score", result["export"], *keys(trust=judge), *files]) == 0
    assert json.loads(Path("scores.jsonl").read_text())["score"] is not None


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with a copy of the package in which the blocks have their places."""
    package = tmp_path / "debate_judge"
    package.mkdir()
    for module in ("__init__.py", "testing.py"):
        shutil.copy(ROOT / module, package)
    for folder in ("data", "programs", "runs", "optimize"):
        shutil.copytree(ROOT / folder, package / folder, ignore=shutil.ignore_patterns("store", "__pycache__"))
    for (file, table), code in blocks().items():
        if table:
            path, text = package / file, (package / file).read_text(encoding="utf-8")
            start = re.search(rf"^{table}\b.*?\{{\n", text, re.MULTILINE | re.DOTALL)
            path.write_text(text[: start.end()] + code + text[start.end() :], encoding="utf-8")
        elif "/" in file:
            (package / file).write_text(code, encoding="utf-8")
    return tmp_path


RUN = """
import sys
from debate_judge import data
from debate_judge.optimize.cli import main
from debate_judge.testing import check_corpus
check_corpus(data.load("fruit=fruit.jsonl"), raters=2)
sys.exit(main(["compile", "--data", "fruit=fruit.jsonl", *sys.argv[1:]]))
"""


def test_a_data_set_is_a_file_and_a_line_and_a_tuner_a_class(copy: Path, new_tables: Callable[[Path], None]) -> None:
    new_tables(copy / "store" / "mlflow.db")
    answers = [("It is red.", [1, 2]), ("It is a sweet fruit that grows on trees.", [4, 5]), ("Eat it ripe.", [3, 3])]
    rows = [
        {
            "question": f"What is fruit number {n} like?",
            "answers": [{"text": f"Fruit {n}. {text}", "helpful": values} for text, values in answers],
        }
        for n in range(12)
    ]
    (copy / "fruit.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    options = ("--tuner", LONGEST, "--store", "store", "--name", "fruit", *keys(json="result.json"), *SMALL)
    command = [sys.executable, "-c", RUN, *options]
    env = {**os.environ, "PYTHONPATH": str(copy), "LITELLM_LOCAL_MODEL_COST_MAP": "true"}
    done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    export = Path(json.loads((copy / "result.json").read_text())["export"])
    assert json.loads((copy / export / "manifest.json").read_text())["evidence"]["data"]["name"] == "fruit"
