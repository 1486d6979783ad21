"""What may be written after --data and --task, which sources and aspects are used, and places that are written to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from debate_judge import data
from debate_judge.data.errors import InputError, require_writable, write_json
from debate_judge.data.schema import Scale
from debate_judge.data.tasks import read_task
from debate_judge.data.testing import check_corpus

ROOT = Path(__file__).parents[2]

# --- data ---


def test_the_sample_is_chosen_by_task_and_has_no_path_of_this_machine() -> None:
    for task, name in ((None, "summarization"), ("summarization", "summarization"), ("dialogue", "dialogue")):
        corpus = data.load("sample", task)
        check_corpus(corpus, data.load("sample", task))
        assert (corpus.task.name, corpus.grouped) == (name, True)
        assert corpus.origin.location == f"data/sample/{name}.jsonl"
        aspects = [aspect.name for aspect in corpus.task.aspects]
        assert all(group.has_distinct_ratings(aspect) for group in corpus.groups for aspect in aspects)


def test_a_file_is_loaded_by_its_suffix(tmp_path: Path) -> None:
    (tmp_path / "own.CSV").write_text("source,text,fluency\ns,x,4\n")
    (group,) = data.load(str(tmp_path / "own.CSV"), "summarization").groups
    assert group.candidates[0].ratings == {"fluency": (4.0,)}
    odd = tmp_path / "a=b.jsonl"
    odd.write_text('{"group": "g", "source": "s", "candidates": [{"id": "a", "text": "x"}]}')
    assert data.load(str(odd), "summarization").groups[0].id == "g"


@pytest.mark.integration
def test_loading_own_data_needs_no_heavy_library() -> None:
    heavy = ("datasets", "dspy", "mlflow", "pandas", "scipy", "numpy")
    code = "import sys; from debate_judge import data; import debate_judge.data.splits; data.load('sample')\n"
    code += f"print([m for m in {heavy} if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


# --- sources and aspects ---


def test_sources_are_the_first_ones_of_the_data() -> None:
    assert data.load("sample", sources=2).groups == data.load("sample").groups[:2]


# --- tasks ---

HEAD = 'name = "support"\nsource_label = "customer message"\ncandidate_label = "reply"\n'
TONE = '[aspects.tone]\ndefinition = """\nHow it treats the customer.\n"""\nlow = 1\nhigh = 5\n'
GOOD = HEAD + TONE


def test_a_task_file_becomes_a_task(tmp_path: Path) -> None:
    path = tmp_path / "support.toml"
    solved = '[aspects."well solved"]\ndefinition = "Solved?"\nlow = -1\nhigh = 1.5\nstep = 0.5\nsource = true\n'
    path.write_text(GOOD + "source = false\n" + solved)
    task = read_task(path)
    assert (task.name, task.source_label, task.candidate_label) == ("support", "customer message", "reply")
    assert task.context_label == "background"
    # Scores keep to a step that is stated; an aspect may be judged without the source.
    assert [(a.name, a.scale, a.source) for a in task.aspects] == [
        ("tone", Scale(1, 5, 1), False),
        ("well solved", Scale(-1, 1.5, 0.5, on_steps=True), True),
    ]
    assert task.aspect("tone").definition == "How it treats the customer."
    path.write_text('context_label = "policy"\n' + GOOD)
    assert read_task(path).context_label == "policy"


# --- places that are written to ---


def test_what_is_there_stays_as_it_is_and_what_is_not_stays_away(tmp_path: Path) -> None:
    existing, new, pipe = tmp_path / "a.json", tmp_path / "b" / "c" / "d.json", tmp_path / "pipe"
    existing.write_text("old")
    # A pipe that nobody reads is not waited for.
    os.mkfifo(pipe)
    for path in (existing, new, None, "/dev/null", pipe):
        require_writable(path, "--json")
    with pytest.raises(InputError, match="--json"):
        require_writable(tmp_path / ("long" * 100), "--json")
    assert existing.read_text() == "old"
    assert [*new.parent.iterdir()] == []
    write_json(new, {"a": 1}, "--json")
    assert new.read_text() == '{\n  "a": 1\n}\n'
