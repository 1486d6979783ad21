"""What the project's own JSON lines and CSV mean."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.files.groups import iter_groups, load
from debate_judge.data.schema import Candidate, Origin, RatedGroup, Scale, group_to_json
from debate_judge.data.tasks import DIALOGUE, SUMMARIZATION
from tests.data.files_of_rows import TASK, written


def record(name: str = "g", **changes: Any) -> dict[str, Any]:
    return {"group": name, "source": f"About {name}.", "candidates": [{"id": "a", "text": "x"}], **changes}


def test_all_fields_of_a_line(tmp_path: Path) -> None:
    path = written(
        tmp_path / "f.jsonl",
        {
            "group": 7,
            "task": "dialogue",
            "source": "hi\n",
            "context": "a fact",
            "references": ["hello", "hey"],
            "split": "ignored",
            "candidates": [{"id": 1, "text": " yo ", "ratings": {"overall": [1, 2.5], "coherence": None}, "note": 0}],
        },
    )
    corpus = load(path)
    (group,) = corpus.groups
    assert (group.id, group.source, group.context, group.references) == ("7", "hi\n", "a fact", ("hello", "hey"))
    assert group.candidates == (Candidate("1", " yo ", {"overall": (1.0, 2.5)}),)
    assert group.candidates[0].rating("overall") == 1.75
    assert corpus.task is DIALOGUE
    assert corpus.origin == Origin("f", str(path))


def test_comments_are_one_text_or_several_per_aspect_and_are_written_and_digested(tmp_path: Path) -> None:
    inputs = ({"tone": "curt", "solved": ["partly", "", " "]}, {"tone": None, "solved": []}, None)
    lines = [
        record(name, candidates=[{"id": "a", "text": "x", "comments": comments}])
        for name, comments in zip("ghi", inputs, strict=True)
    ]
    corpus = load(written(tmp_path / "f.jsonl", *lines), TASK)
    comments = [group.candidates[0].comments for group in corpus.groups]
    assert comments == [{"tone": ("curt",), "solved": ("partly",)}, {}, {}]
    reloaded = load(written(tmp_path / "again.jsonl", *(group_to_json(g) for g in corpus.groups)), TASK)
    assert (reloaded.groups, reloaded.digest) == (corpus.groups, corpus.digest)
    plain, commented = (load(written(tmp_path / "one.jsonl", line), TASK) for line in (record("g"), lines[0]))
    assert plain.digest != commented.digest
    assert "comments" not in str(group_to_json(plain.groups[0]))


def test_a_table_has_one_row_per_candidate(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text(
        "group,source,context,candidate,text,reference,tone,solved\r\n"
        'g1,"Where, please,\nis it?",policy,a,"Over ""there"".",Here.,4;5;4,yes\r\n'
        'g1,"Where, please,\nis it?",policy,b,No idea.,There.,2.5,\r\n'
        "\r\n"
        "g2,When?,,a,Soon.,,,0\r\n",
        newline="",
    )
    first, second = iter_groups(path, TASK)
    assert first.group == RatedGroup(
        "g1",
        "Where, please,\nis it?",
        (
            Candidate("a", 'Over "there".', {"tone": (4.0, 5.0, 4.0), "solved": (1.0,)}),
            Candidate("b", "No idea.", {"tone": (2.5,)}),
        ),
        "policy",
        ("Here.", "There."),
    )
    assert second.group == RatedGroup("g2", "When?", (Candidate("a", "Soon.", {"solved": (0.0,)}),))
    assert (first.record.line, second.record.line) == (2, 7)


def test_a_chosen_task_keeps_its_lines_and_those_without_a_task_in_the_callers_wording(tmp_path: Path) -> None:
    path = written(tmp_path / "f.jsonl", record("a", task="dialogue"), record("b", task="summarization"), record("c"))
    worded = replace(DIALOGUE, source_label="chat")
    for task, ids, used in (("dialogue", "ac", DIALOGUE), (SUMMARIZATION, "bc", SUMMARIZATION), (worded, "ac", worded)):
        corpus = load(path, task)
        assert ("".join(g.id for g in corpus.groups), corpus.task) == (ids, used)


def test_a_task_file_is_found_beside_the_data(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "tone.toml").write_text(
        'name = "tone"\nsource_label = "message"\ncandidate_label = "reply"\n'
        '[aspects.tone]\ndefinition = "Is it kind?"\nlow = 0\nhigh = 10\n'
    )
    candidate = {"id": "a", "text": "x", "ratings": {"tone": 9}}
    path = written(tmp_path / "f.jsonl", record(task="tasks/tone.toml", candidates=[candidate]))
    corpus = load(path)
    assert corpus.task.aspect("tone").scale == Scale(0, 10)
    worded = replace(corpus.task, source_label="chat")
    assert load(path, worded).task is worded


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_reading_takes_the_memory_of_one_group(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"f{suffix}"
    text = "word " * 2000
    if suffix == ".jsonl":
        written(path, *(record(str(i), source=f"{i} {text}") for i in range(200)))
    else:
        path.write_text("source,text\n" + "".join(f"{i} {text},x\n" for i in range(200)))
    tracemalloc.start()
    count = sum(1 for _ in iter_groups(path, SUMMARIZATION))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 200
    assert path.stat().st_size > 2_000_000
    assert peak < 1_000_000
