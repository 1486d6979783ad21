"""Every command of the READMEs works as it is written: on small data, with the offline stand-in for every LM."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dspy
import mlflow
import pytest

from debate_judge.optimize.cli import main
from debate_judge.programs.lm.settings import EXAMPLE_LM, price_of
from debate_judge.programs.make_lm import is_reasoning_model
from debate_judge.runs.command_line import COMMANDS, script
from debate_judge.runs.mlflow_store import use_tracking_uri
from tests.source_tree import ROOT, parsers_of

PAGES = {
    page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8")
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
OTHERS = ("docs/integrations.md", "docs/tutorial.md", "docs/papers.md")
"""Tried by test_docs.py, test_tutorial.py and test_papers.py."""
ELSEWHERE = ("export ", "python -m venv", "mlflow ui", "pip install", "cp ", "docker ", "curl ")
"""How lines begin that are tried by hand: the two commands of .ci/run, a variable, and servers."""
QUICK = ("--effort", "light", "--trials", "2", "--no-preflight")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGES[page], re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[list[str]]:
    """The arguments of `debate` of each command in the page's shell blocks."""
    lines = [line for block in blocks(page, "sh") for line in block.replace("\\\n", " ").splitlines()]
    words = [shlex.split(line, comments=True) for line in lines if not line.startswith(ELSEWHERE)]
    found = [["debate", Path(line[1]).stem, *line[2:]] if line[0] == "python" else line for line in words if line]
    assert {line[0] for line in found} <= {"debate"}
    return [line[1:] for line in found]


def test_the_lm_of_the_examples_is_one_that_stays_and_has_a_price() -> None:
    named = {name for text in PAGES.values() for name in re.findall(r"openai:?/[a-z][\w.-]*", text)}
    assert {name.replace(":", "") for name in named} == {EXAMPLE_LM}
    assert price_of(EXAMPLE_LM) is not None
    assert is_reasoning_model(EXAMPLE_LM)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the READMEs' commands name: data, texts to score, scores to compare, and settings."""
    path = tmp_path_factory.mktemp("readme")
    sample = [json.loads(line) for line in (ROOT / "data/sample/summarization.jsonl").read_text().splitlines()]
    for group in sample:
        group["candidates"] = group["candidates"][:4]
        for candidate in group["candidates"]:
            candidate["ratings"] = {aspect: candidate["ratings"][aspect] for aspect in ("coherence", "fluency")}
    rated = [(group, candidate) for group in sample[:12] for candidate in group["candidates"]]
    texts = [{**g, "candidates": [{"id": c["id"], "text": c["text"]} for c in g["candidates"]]} for g in sample[:2]]
    scores = [
        {"group": g["group"], "candidate": c["id"], "aspect": aspect, "score": rating}
        for g, c in rated
        for aspect, rating in c["ratings"].items()
    ]
    for name, rows in {
        **dict.fromkeys(("new", "texts"), texts), "new-ratings": sample[12:], "ratings": sample[:12], "mine": scores,
    }.items():  # fmt: skip
        (path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, header in {
        "ratings": ("source", "text", "coherence", "fluency"), "new": ("source", "text"),
        "renamed": ("question", "answer", "score_help"),
    }.items():  # fmt: skip
        values = [(g["source"], c["text"], c["ratings"]["coherence"], c["ratings"]["fluency"]) for g, c in rated]
        with (path / f"{name}.csv").open("w", newline="") as out:
            csv.writer(out).writerows([header, *(row[: len(header)] for row in values)])
    (settings,) = blocks("docs/settings.md", "toml")
    (path / "settings.toml").write_text(settings.replace(EXAMPLE_LM, "offline").replace("sources = 50", "sources = 12"))
    return path


MADE_UP = {
    EXAMPLE_LM: "offline",
    "openai/NEW": "offline",
    "EXPORT": "runs/store/exports/my-judge",
    "summeval": "ratings.jsonl",
    "single,geval,debate+tiebreak,chateval,MY-EXPORT": "single,geval,debate,runs/store/exports/my-judge",
    "source=question,text=answer,helpfulness=score_help": "source=question,text=answer,coherence=score_help",
    "mine=scores.jsonl": "mine=mine.jsonl",
    # Ray itself is started by tests/runs/test_ray.py.
    "ray": "local",
    "texts/*.jsonl": "texts.jsonl",
    "scores.parquet": "ray.jsonl",
    "50": "12",
    "single,EXPORT": "single,runs/store/exports/my-judge",
    "EXPORT,EXPORT[lm=openai/NEW]": "runs/store/exports/my-judge,runs/store/exports/my-judge[lm=offline]",
}
"""What stands in a command for something of the user's -> what is tried instead."""


def tried(arguments: list[str]) -> list[str]:
    """The arguments with what this test has in place of what a user has."""
    name, *options = [MADE_UP.get(word, word) for word in arguments]
    if "--columns" in options:
        options[0] = "renamed.csv"
    table = any(word.endswith(".csv") for word in options)
    if table and name in ("compile", "compare", "check") and not {"--task", "--write-task"} & set(options):
        options += ["--task", "summarization"]
    if name == "compile":
        options += [] if "--folds" in options else ["--folds", "1"]
        options += [] if "--name" in options else ["--aspects", "coherence"]
        options += [*QUICK, "--max-rounds", "1"]
    if name in ("compile", "compare") and "--data" not in options:
        options += ["--data", "ratings.jsonl"]
    return [name, *options]


@pytest.fixture
def in_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With the export that the pages name, and its model: so few sources show no agreement, so none is registered."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    if not Path("runs/store/exports/my-judge").exists():
        assert main(tried(["compile", "--data", "ratings.csv", "--lm", EXAMPLE_LM, "--name", "my-judge"])) == 0
        # MLflow keeps what it has opened by the words of the address, whatever the folder is now.
        with use_tracking_uri(f"sqlite:///{folder}/runs/store/mlflow.db"):
            ids = [experiment.experiment_id for experiment in mlflow.search_experiments()]
            newest, *_ = mlflow.search_logged_models(ids, output_format="list")
            mlflow.register_model(newest.model_uri, "my-judge")
    yield
    # What an example configures for its process.
    dspy.configure(lm=None)
    mlflow.set_tracking_uri(None)


@pytest.mark.integration
@pytest.mark.usefixtures("in_the_folder")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in OTHERS and (commands(page) or "```py" in PAGES[page])]
)
def test_the_commands_and_examples_of_a_page_work(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in commands(page):
        capsys.readouterr()
        Path("scores.jsonl").unlink(missing_ok=True)
        assert main(tried(arguments)) == 0, (arguments, capsys.readouterr().err)
    for code in blocks(page, "python"):
        if "ppi_py" not in code:
            exec(compile(code, page, "exec"), {})
            assert capsys.readouterr().out, code


# --- commands and flags within sentences and tables ---


def inline(page: str) -> list[str]:
    """What stands between single backticks, in one line each."""
    text = re.sub(r"^```.*?^```$", "", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)]


def test_inline_commands_and_flags_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are parsed by their own parsers; what only names a flag, names one that exists."""
    benches = [path for path in (ROOT / "tests/bench").glob("*.py") if "def main(" in path.read_text()]
    starts: dict[str, Any] = {name: importlib.import_module(COMMANDS[name][0]).main for name in COMMANDS}
    starts |= {f"tests.bench.{path.stem}": importlib.import_module(f"tests.bench.{path.stem}").main for path in benches}
    parser_of = dict(zip(starts, parsers_of(starts.values(), monkeypatch), strict=True))
    names = {script(name): name for name in COMMANDS}
    parsed, unknown = 0, []
    for page in PAGES:
        for code in inline(page):
            module = re.sub(r"^python -m (?=tests\.bench\.)", "python ", code)
            words = shlex.split(re.sub(r"^([A-Z_]+=\S+ )+", "", module))
            name = {"debate": words[1:2], "python": [names.get(word, word) for word in words[1:2]]}.get(words[0], [])
            if words[1:2] in (["help"], ["COMMAND"]) or (not name and words[0][0] != "-"):
                continue
            candidates = [parser_of[name[0]]] if name else list(parser_of.values())
            flags = {flag: action for parser in candidates for flag, action in parser._option_string_actions.items()}
            last = flags.get(words[-1])
            unknown += [(page, code) for word in words if re.match("--[a-z]", word) and word not in flags]
            if name and len(words) > 2 and (last is None or last.nargs == 0):
                parser_of[name[0]].parse_args(["1" if word == "N" else word for word in words[2:]])
                parsed += 1
    assert unknown == []
    assert parsed > 8
