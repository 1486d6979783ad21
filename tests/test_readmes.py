"""Every command of the READMEs works as it is written: on small data, with the offline stand-in for every LM."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path

import pytest

from debate_judge.optimize.cli import main

ROOT = Path(__file__).parents[1]
READMES = ("README.md", "data/README.md", "optimize/README.md", "programs/README.md", "runs/README.md")
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)

ELSEWHERE = (
    "export ",
    "python -m venv",
    "LITELLM_LOCAL_MODEL_COST_MAP=True MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false",
    "pip install",
    "cp ",
    "docker ",
    "curl ",
)
"""How lines begin that are tried by hand: the two commands of .ci/run, a variable, MLflow's own server, and a team's
services, whose file has tests of its own."""

QUICK = ("--effort", "light", "--trials", "2", "--resamples", "100", "--no-preflight")
FOUR = ("--folds", "4")
"""The fewest folds, where the command does not say how many."""


def commands(readme: str) -> list[list[str]]:
    """The arguments of `debate` of each command in the file's shell blocks."""
    found = []
    for block in BLOCK.findall((ROOT / readme).read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            if not line.strip() or line.startswith(ELSEWHERE):
                continue
            words = shlex.split(line, comments=True)
            if words[0] == "python":
                words = ["debate", Path(words[1]).stem, *words[2:]]
            assert words[0] == "debate", line
            found.append(words[1:])
    return found


def test_there_are_commands_to_try() -> None:
    assert {readme: bool(commands(readme)) for readme in READMES} == dict.fromkeys(READMES, True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the READMEs' commands name: data, texts to score, scores to compare, and an export."""
    path = tmp_path_factory.mktemp("readme")
    sample = [json.loads(line) for line in (ROOT / "data/sample/summarization.jsonl").read_text().splitlines()]
    for group in sample:
        group["candidates"] = group["candidates"][:4]
        for one in group["candidates"]:
            one["ratings"] = {aspect: one["ratings"][aspect] for aspect in ("coherence", "fluency")}
    texts = [{**g, "candidates": [{"id": c["id"], "text": c["text"]} for c in g["candidates"]]} for g in sample[:2]]
    for name in ("new.jsonl", "texts.jsonl"):
        (path / name).write_text("".join(json.dumps(group) + "\n" for group in texts))
    lone = [{**g, "candidates": g["candidates"][n % 4 : n % 4 + 1]} for n, g in enumerate(sample)]
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
    with (path / "new.csv").open("w", newline="") as out:
        csv.writer(out).writerows([["source", "text"], *([g["source"], c["text"]] for g, c in rows[:6])])
    return path


MADE_UP = {
    "openai/gpt-4o-mini": ("offline",),
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
    "50": ("12",),
    "51-100": ("9-12",),
    "single,EXPORT": ("single,runs/store/exports/my-judge",),
}
"""What stands in a command for something of the user's -> what is tried instead."""


def tried(arguments: list[str]) -> list[str]:
    """The arguments with what this test has in place of what a user has."""
    name, *rest = [new for word in arguments for new in MADE_UP.get(word, (word,))]
    if "--columns" in rest:
        rest[0] = "renamed.csv"
    table = any(word.endswith(".csv") for word in rest)
    if table and name in ("compile", "compare", "check") and not {"--task", "--write-task"} & set(rest):
        rest += ["--task", "summarization"]
    if name == "compile":
        # What repeats something is tried with the smallest thing to repeat.
        if not {"--folds", "--repeats"} & set(rest):
            rest += FOUR
        if "--name" not in rest:
            rest += ["--aspects", "coherence"]
        rest += [*QUICK, "--max-rounds", "0" if {"--repeats", "--learning-curve", "--sources"} & set(rest) else "1"]
        rest += ["--tuner", "none"] if "--sources" in rest else []
    if name in ("compile", "compare") and "--data" not in rest:
        rest += ["--data", "ratings.jsonl"]
    return [name, *rest]


@pytest.mark.parametrize("readme", READMES)
def test_the_commands_of_a_readme_work(
    readme: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    if not (folder / "runs/store/exports/my-judge").exists():
        made = ["compile", "--data", "ratings.csv", "--lm", "openai/gpt-4o-mini", "--name", "my-judge"]
        assert main(tried(made)) == 0
    for arguments in commands(readme):
        capsys.readouterr()
        Path("scores.jsonl").unlink(missing_ok=True)
        assert main(tried(arguments)) == 0, (arguments, capsys.readouterr().err)
