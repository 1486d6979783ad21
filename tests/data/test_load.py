"""What may be written after --data, and the contract that every loader meets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from debate_judge import data
from debate_judge.data.testing import check_corpus

ROOT = Path(__file__).parents[2]


def test_the_sample_is_chosen_by_task_and_has_no_path_of_this_machine() -> None:
    for task, name in ((None, "summarization"), ("summarization", "summarization"), ("dialogue", "dialogue")):
        corpus = data.load("sample", task)
        check_corpus(corpus, data.load("sample", task))
        assert (corpus.task.name, corpus.grouped) == (name, True)
        assert corpus.origin.location == f"data/sample/{name}.jsonl"


def test_a_file_is_loaded_by_its_suffix(tmp_path: Path) -> None:
    path = tmp_path / "own.CSV"
    path.write_text("source,text,fluency\ns,x,4\n")
    assert data.load(str(path), "summarization").groups[0].candidates[0].ratings == {"fluency": (4.0,)}
    odd = tmp_path / "a=b.jsonl"
    odd.write_text('{"group": "g", "source": "s", "candidates": [{"id": "a", "text": "x"}]}')
    assert data.load(str(odd), "summarization").groups[0].id == "g"


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
