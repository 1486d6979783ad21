"""What may be written after --data, and the contract that every loader meets."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from debate_judge import data
from debate_judge.data.schema import Scale
from debate_judge.data.tasks import SUMMARIZATION
from debate_judge.data.testing import check_corpus

ROOT = Path(__file__).parents[2]
COPIES = {
    "summeval": "summeval.jsonl",
    "topical_chat": "topical_chat.json",
    "qags": "qags_cnndm.json",
    "qags_xsum": "qags_xsum.json",
    "halueval": "halueval_qa.json",
    "factool": "factool_knowledge_qa.jsonl",
    "factool_claims": "factool_knowledge_qa.jsonl",
    "faireval": "faireval",
    "dialsummeval": "dialsummeval.jsonl",
}


@pytest.mark.parametrize("name", data.LOADERS)
def test_every_loader_meets_the_contract(name: str, request: pytest.FixtureRequest) -> None:
    if name == "sample":
        check_corpus(data.load("sample"), data.load("sample"))
    elif name not in COPIES:
        pytest.skip(f"there is no copy of {name}")
    else:
        spec = f"{name}={request.getfixturevalue('shared_data') / COPIES[name]}"
        check_corpus(data.load(spec), data.load(spec))


def test_the_sample_is_chosen_by_task_and_has_no_path_of_this_machine() -> None:
    for task, name in ((None, "summarization"), ("summarization", "summarization"), ("dialogue", "dialogue")):
        corpus = data.load("sample", task)
        check_corpus(corpus)
        assert corpus.task.name == name
        assert corpus.grouped
        assert corpus.origin.location == f"data/sample/{name}.jsonl"


def test_a_file_is_loaded_by_its_suffix(tmp_path: Path) -> None:
    path = tmp_path / "own.CSV"
    path.write_text("source,text,fluency\ns,x,4\n")
    assert data.load(str(path), "summarization").groups[0].candidates[0].ratings == {"fluency": (4.0,)}
    odd = tmp_path / "a=b.jsonl"
    odd.write_text('{"group": "g", "source": "s", "candidates": [{"id": "a", "text": "x"}]}')
    assert data.load(str(odd), "summarization").groups[0].id == "g"


def test_a_public_set_takes_another_wording_of_its_task_but_no_other_task(shared_data: Path) -> None:
    spec = f"summeval={shared_data / 'summeval.jsonl'}"
    worded = replace(
        SUMMARIZATION, aspects=tuple(replace(a, definition="In my own words.") for a in SUMMARIZATION.aspects)
    )
    assert data.load(spec, worded).task is worded
    stepped = replace(worded, aspects=tuple(replace(a, scale=Scale(1, 5, on_steps=True)) for a in worded.aspects))
    assert data.load(spec, stepped).task is stepped


@pytest.mark.integration
def test_loading_own_data_needs_no_heavy_library() -> None:
    code = (
        "import sys\n"
        "from debate_judge import data\n"
        "import debate_judge.data.splits\n"
        "data.load('sample')\n"
        "print([m for m in ('datasets', 'dspy', 'mlflow', 'pandas', 'scipy', 'numpy') if m in sys.modules])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == "[]"


def test_a_file_without_its_flag_is_answered_with_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    from debate_judge.runs.flags.declaration import command_settings, setting
    from debate_judge.runs.flags.parser import make_parser

    @command_settings
    class SomeFlags:
        data: str = setting("sample", "rated data")

    with pytest.raises(SystemExit):
        make_parser("compile", "Compile.", SomeFlags).parse_args(["ratings.csv"])
    assert "--data ratings.csv" in capsys.readouterr().err
