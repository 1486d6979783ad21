"""Every command of the READMEs works as it is written: on small data, with the offline stand-in for every LM."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import mlflow
import pytest

from debate_judge.optimize.cli import main
from debate_judge.programs.lm.prices import EXAMPLE_LM, price_of
from debate_judge.programs.make_lm import is_reasoning_model
from debate_judge.runs.flags.invocation import COMMANDS, script
from debate_judge.runs.mlflow_setup import use_tracking_uri
from tests.config_keys import keys
from tests.source_tree import parsers_of

ROOT = Path(__file__).parents[1]
READMES = ("README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))))
OF_TOOLS = "docs/integrations.md"
"""Its examples are tried by test_docs.py, each with its tool."""
OF_TUTORIAL = "docs/tutorial.md"
"""Its commands are run in their order by test_tutorial.py."""
OF_PAPERS = "docs/papers.md"
"""Its commands are tried by test_papers.py, on copies of their sets."""
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOML = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")

ELSEWHERE = (
    "export ",
    "python -m venv",
    "mlflow ui",
    "pip install",
    "cp ",
    "docker ",
    "curl ",
)
"""How lines begin that are tried by hand: the two commands of .ci/run, a variable, and servers."""

QUICK = ("--effort", "light", *keys(trials=2, preflight=False))
ONCE = ("--folds", "1")
"""Instead of six folds, where the command does not say how many."""


def commands(readme: str) -> list[list[str]]:
    """The arguments of `debate` of each command in the file's shell blocks."""
    command_lines = []
    for block in BLOCK.findall((ROOT / readme).read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            if not line.strip() or line.startswith(ELSEWHERE):
                continue
            words = shlex.split(line, comments=True)
            if words[0] == "python":
                words = ["debate", Path(words[1]).stem, *words[2:]]
            assert words[0] == "debate", line
            command_lines.append(words[1:])
    return command_lines


def test_there_are_commands_to_try() -> None:
    # What explains needs none; what shows how to do something does.
    without = {readme for readme in READMES if readme != OF_TOOLS and not commands(readme)}
    assert without <= {"docs/design.md", "docs/lms-and-costs.md", "docs/other-tools.md"}


def test_the_lm_of_the_examples_is_one_that_stays_and_has_a_price() -> None:
    named = {
        name for page in READMES for name in re.findall(r"openai:?/[a-z][\w.-]*", (ROOT / page).read_text("utf-8"))
    }
    assert {name.replace(":", "") for name in named} == {EXAMPLE_LM}
    assert price_of(EXAMPLE_LM) is not None
    assert is_reasoning_model(EXAMPLE_LM)
    (table,) = [Path(p) for p in importlib.util.find_spec("litellm").submodule_search_locations]  # type: ignore[union-attr]
    prices = json.loads((table / "model_prices_and_context_window_backup.json").read_text("utf-8"))
    assert "deprecation_date" not in prices[EXAMPLE_LM.partition("/")[2]], "it has been announced to be retired"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the READMEs' commands name: data, texts to score, scores to compare, and an export."""
    path = tmp_path_factory.mktemp("readme")
    sample = [json.loads(line) for line in (ROOT / "data/sample/summarization.jsonl").read_text().splitlines()]
    for group in sample:
        group["candidates"] = group["candidates"][:4]
        for candidate in group["candidates"]:
            candidate["ratings"] = {aspect: candidate["ratings"][aspect] for aspect in ("coherence", "fluency")}
    texts = [{**g, "candidates": [{"id": c["id"], "text": c["text"]} for c in g["candidates"]]} for g in sample[:2]]
    for name in ("new.jsonl", "texts.jsonl"):
        (path / name).write_text("".join(json.dumps(group) + "\n" for group in texts))
    lone = [{**g, "candidates": g["candidates"][n % 4 : n % 4 + 1]} for n, g in enumerate(sample)]
    (path / "new-ratings.jsonl").write_text("".join(json.dumps(group) + "\n" for group in sample[12:]))
    _write_systems(path, sample)
    sample = sample[:12]
    (path / "ratings.jsonl").write_text("".join(json.dumps(group) + "\n" for group in sample))
    (path / "rated.jsonl").write_text("".join(json.dumps(group) + "\n" for group in lone))
    rows = [(g, c) for g in sample for c in g["candidates"]]
    external = [
        {"group": g["group"], "candidate": c["id"], "aspect": aspect, "score": rating}
        for g, c in rows
        for aspect, rating in c["ratings"].items()
    ]
    (path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in external))
    with (path / "ratings.csv").open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow(["source", "text", "coherence", "fluency"])
        table.writerows([g["source"], c["text"], c["ratings"]["coherence"], c["ratings"]["fluency"]] for g, c in rows)
    with (path / "renamed.csv").open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow(["question", "answer", "score_help"])
        table.writerows([g["source"], c["text"], c["ratings"]["coherence"]] for g, c in rows)
    (page,) = TOML.findall((ROOT / "docs/settings.md").read_text(encoding="utf-8"))
    (path / "settings.toml").write_text(page.replace(EXAMPLE_LM, "offline").replace("sources = 50", "sources = 12"))
    with (path / "new.csv").open("w", newline="") as out:
        csv.writer(out).writerows([["source", "text"], *([g["source"], c["text"]] for g, c in rows[:6])])
    return path


def _write_systems(path: Path, sample: list[dict[str, Any]]) -> None:
    """A judge's scores of the texts of four systems, and ratings of those of nine sources."""
    systems = [{**g, "candidates": [{**c, "id": f"s{n}"} for n, c in enumerate(g["candidates"])]} for g in sample]
    scores = [
        {"group": g["group"], "candidate": c["id"], "aspect": aspect, "score": (rating + number) / 2}
        for g in systems
        for number, c in enumerate(g["candidates"])
        for aspect, rating in c["ratings"].items()
    ]
    (path / "judged.jsonl").write_text("".join(json.dumps(row) + "\n" for row in scores))
    rated = [(g["group"], c["id"], *of) for g in systems[:9] for c in g["candidates"] for of in c["ratings"].items()]
    with (path / "human.csv").open("w", newline="") as out:
        csv.writer(out).writerows([["group", "candidate", "aspect", "rating"], *rated])


MADE_UP = {
    EXAMPLE_LM: ("offline",),
    "openai/NEW": ("offline",),
    "EXPORT": ("runs/store/exports/my-judge",),
    "summeval": ("ratings.jsonl",),
    "single,geval,debate+tiebreak,chateval,MY-EXPORT": ("single,geval,debate,runs/store/exports/my-judge",),
    "single,geval,multiagent,debate,debate+tiebreak,chateval,rouge-l,bleu,runs/store/exports/half": (
        "single,bleu,runs/store/exports/half",
    ),
    "source=question,text=answer,helpfulness=score_help": ("source=question,text=answer,coherence=score_help",),
    "mine=scores.jsonl": ("mine=mine.jsonl",),
    # Ray itself is started by tests/runs/test_ray.py.
    "ray": ("local",),
    "texts/*.jsonl": ("texts.jsonl",),
    "scores.parquet": ("ray.jsonl",),
    # Too few for parts.
    "rated.jsonl": ("rated.jsonl", "--part", "all"),
    "rest.jsonl": ("rated.jsonl",),
    "50": ("12",),
    "single,EXPORT": ("single,runs/store/exports/my-judge",),
    "EXPORT,EXPORT[lm=openai/NEW]": ("runs/store/exports/my-judge,runs/store/exports/my-judge[lm=offline]",),
}
"""What stands in a command for something of the user's -> what is tried instead."""


def tried(arguments: list[str]) -> list[str]:
    """The arguments with what this test has in place of what a user has."""
    name, *options = [new for word in arguments for new in MADE_UP.get(word, (word,))]
    if "--columns" in options:
        options[0] = "renamed.csv"
    table = any(word.endswith(".csv") for word in options)
    if table and name in ("compile", "compare", "check") and not {"--task", "--write-task"} & set(options):
        options += ["--task", "summarization"]
    if name == "compile":
        if "--folds" not in options:
            options += ONCE
        if "--name" not in options:
            options += ["--aspects", "coherence"]
        partial = any(word == "--sources" for word in options)
        options += [*QUICK, "--max-rounds", "0" if partial else "1"]
        options += ["--tuner", "none"] if partial else []
        # A single call would have no map to the raters' scale.
        options += keys() if "--name" in options else []
    if name in ("compile", "compare") and "--data" not in options:
        options += ["--data", "ratings.jsonl"]
    return [name, *options]


def register(name: str) -> None:
    """Register the judge of the last compile: so few sources show no agreement, without which none is registered."""
    # By an absolute address: MLflow keeps what it has opened by the words of the address, whatever the folder is now.
    with use_tracking_uri(f"sqlite:///{Path.cwd()}/runs/store/mlflow.db"):
        ids = [experiment.experiment_id for experiment in mlflow.search_experiments()]
        newest, *_ = mlflow.search_logged_models(ids, output_format="list")
        mlflow.register_model(newest.model_uri, name)


@pytest.mark.integration
@pytest.mark.parametrize("readme", [page for page in READMES if page not in (OF_TOOLS, OF_TUTORIAL, OF_PAPERS)])
def test_the_commands_of_a_readme_work(
    readme: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    if not (folder / "runs/store/exports/my-judge").exists():
        arguments_of_compile = ["compile", "--data", "ratings.csv", "--lm", EXAMPLE_LM, "--name", "my-judge"]
        assert main(tried(arguments_of_compile)) == 0
        register("my-judge")
    for arguments in commands(readme):
        capsys.readouterr()
        Path("scores.jsonl").unlink(missing_ok=True)
        assert main(tried(arguments)) == 0, (arguments, capsys.readouterr().err)
    for code in PYTHON.findall((ROOT / readme).read_text(encoding="utf-8")):
        if "ppi_py" in code and importlib.util.find_spec("ppi_py") is None:
            continue
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, bool(done.stdout.strip())) == (0, True), (code, done.stderr)


# --- commands and flags within sentences and tables ---


def inline(readme: str) -> list[str]:
    """What stands between single backticks, in one line each."""
    text = FENCED.sub("", (ROOT / readme).read_text(encoding="utf-8"))
    return [" ".join(code.split()) for code in INLINE.findall(text)]


def parsers(monkeypatch: pytest.MonkeyPatch) -> dict[str, ArgumentParser]:
    """Name of a command, or module of a benchmark -> its own parser."""
    benches = [path for path in (ROOT / "tests/bench").glob("*.py") if "def main(" in path.read_text()]
    starts = {name: importlib.import_module(COMMANDS[name][0]).main for name in COMMANDS}
    starts |= {f"tests.bench.{path.stem}": importlib.import_module(f"tests.bench.{path.stem}").main for path in benches}
    return dict(zip(starts, parsers_of(starts.values(), monkeypatch), strict=True))


STANDS_FOR = {"N": "1"}


def test_inline_commands_and_flags_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are parsed by their own parsers; what only names a flag, names one that exists."""
    parser_of = parsers(monkeypatch)
    names = {script(name): name for name in COMMANDS}
    parsed, unknown = [], []
    for readme in READMES:
        for code in inline(readme):
            module = re.sub(r"^python -m (?=tests\.bench\.)", "python ", code)
            words = shlex.split(re.sub(r"^([A-Z_]+=\S+ )+", "", module))
            name = {"debate": words[1:2], "python": [names.get(word, word) for word in words[1:2]]}.get(words[0], [])
            if words[1:2] in (["help"], ["COMMAND"]) or (not name and words[0][0] != "-"):
                continue
            candidates = [parser_of[name[0]]] if name else list(parser_of.values())
            flags = {flag: action for parser in candidates for flag, action in parser._option_string_actions.items()}
            last = flags.get(words[-1])
            unknown += [(readme, code) for word in words if re.match("--[a-z]", word) and word not in flags]
            if name and len(words) > 2 and (last is None or last.nargs == 0):
                parser_of[name[0]].parse_args([STANDS_FOR.get(word, word) for word in words[2:]])
                parsed.append(code)
    assert unknown == []
    assert len(parsed) > 12, parsed
