"""What the project's own JSON lines and CSV mean."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from debate_judge import data
from debate_judge.data.errors import InputError
from debate_judge.data.files.groups import iter_groups, load
from debate_judge.data.requirements import require_level
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task, group_to_json
from debate_judge.data.tasks import DIALOGUE, SUMMARIZATION
from debate_judge.data.testing import check_corpus
from tests.refusals.files import FIRST

TASK = Task(
    "support",
    "customer message",
    "reply",
    (Aspect("tone", "How it treats the customer.", Scale(1, 5)), Aspect("solved", "Is it solved?", Scale(0, 1))),
)


def jsonl(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("\n".join(json.dumps(r) for r in records), encoding="utf-8")
    return path


def record(name: str = "g", **changes: Any) -> dict[str, Any]:
    return {"group": name, "source": f"About {name}.", "candidates": [{"id": "a", "text": "x"}], **changes}


def test_all_fields_of_a_line(tmp_path: Path) -> None:
    path = jsonl(
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


def test_comments_are_one_text_or_several_per_aspect(tmp_path: Path) -> None:
    told = {"tone": "curt", "solved": ["partly", "", " "]}
    silent = {"tone": None, "solved": []}
    lines = [
        record(name, candidates=[{"id": "a", "text": "x", "comments": comments}])
        for name, comments in (("g", told), ("h", silent), ("i", None))
    ]
    corpus = load(jsonl(tmp_path / "f.jsonl", *lines), TASK)
    assert [group.candidates[0].comments for group in corpus.groups] == [
        {"tone": ("curt",), "solved": ("partly",)},
        {},
        {},
    ]
    again = load(jsonl(tmp_path / "again.jsonl", *(group_to_json(g) for g in corpus.groups)), TASK)
    assert again.groups == corpus.groups
    assert again.digest == corpus.digest


def test_comments_decide_the_digest_and_files_without_any_keep_theirs(tmp_path: Path) -> None:
    plain, told = (
        load(jsonl(tmp_path / f"{i}.jsonl", record(candidates=[{"id": "a", "text": "x", **extra}])), TASK)
        for i, extra in enumerate(({}, {"comments": {"tone": "curt"}}))
    )
    assert plain.digest != told.digest
    assert "comments" not in str(group_to_json(plain.groups[0]))


def test_a_column_of_comments_holds_one_text_a_row(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text('source,text,tone,comments.tone\ns,x,4,"curt; but 5 at the end"\nt,y,5,\n')
    one, other = (group.candidates[0] for group in load(path, TASK).groups)
    assert (one.ratings, one.comments) == ({"tone": (4.0,)}, {"tone": ("curt; but 5 at the end",)})
    assert (other.ratings, other.comments) == ({"tone": (5.0,)}, {})


def test_blank_lines_a_byte_order_mark_and_other_scripts_are_read(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(b"\xef\xbb\xbf\n" + json.dumps(record(source="Дождь 雨"), ensure_ascii=False).encode() + b"\r\n\n")
    (entry,) = iter_groups(path, SUMMARIZATION)
    assert (entry.group.source, entry.record.line) == ("Дождь 雨", 2)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, 1.0), (False, 0.0), ("Yes", 1.0), ("no", 0.0), ("TRUE", 1.0), ("False", 0.0), (0.67, 0.67), (1, 1.0)],
)
def test_words_are_ratings_on_a_scale_of_two_values(tmp_path: Path, value: object, expected: float) -> None:
    candidate = {"id": "a", "text": "x", "ratings": {"solved": [value]}}
    (group,) = load(jsonl(tmp_path / "f.jsonl", record(candidates=[candidate])), TASK).groups
    assert group.candidates[0].ratings == {"solved": (expected,)}


def test_words_mean_the_ends_of_the_scale_whatever_they_are(tmp_path: Path) -> None:
    task = replace(TASK, aspects=(Aspect("solved", "Is it solved?", Scale(-1, 1, 2)),))
    path = tmp_path / "f.csv"
    path.write_text("source,text,solved\ns,x,yes;No;-1\n")
    assert load(path, task).groups[0].candidates[0].ratings == {"solved": (1.0, -1.0, -1.0)}


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


def test_a_table_without_groups_has_one_candidate_per_source(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("source,text,tone\ns,x,1\nt,y,2\n")
    corpus = load(path, TASK)
    assert [(g.id, [c.id for c in g.candidates]) for g in corpus.groups] == [("1", ["1"]), ("2", ["2"])]
    assert not corpus.grouped


def test_rows_may_name_their_task_and_leave_the_other_tasks_columns_blank(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("task,source,text,relevance,overall\nsummarization,s,x,3,\ndialogue,t,y,,4\nsummarization,u,z,2,\n")
    assert [e.task.name for e in iter_groups(path)] == ["summarization", "dialogue", "summarization"]
    assert [g.id for g in load(path, "summarization").groups] == ["1", "3"]
    assert load(path, "dialogue").groups[0].candidates[0].ratings == {"overall": (4.0,)}


def test_a_chosen_task_keeps_its_lines_and_those_without_a_task(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "f.jsonl", record("a", task="dialogue"), record("b", task="summarization"), record("c"))
    assert [g.id for g in load(path, "dialogue").groups] == ["a", "c"]
    assert [g.id for g in load(path, SUMMARIZATION).groups] == ["b", "c"]


def test_the_callers_wording_of_a_task_stands_above_the_files(tmp_path: Path) -> None:
    worded = replace(DIALOGUE, source_label="chat")
    (entry,) = iter_groups(jsonl(tmp_path / "f.jsonl", record(task="dialogue")), worded)
    assert entry.task is worded


def test_a_task_file_is_found_beside_the_data(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "tone.toml").write_text(
        'name = "tone"\nsource_label = "message"\ncandidate_label = "reply"\n'
        '[aspects.tone]\ndefinition = "Is it kind?"\nlow = 0\nhigh = 10\n'
    )
    candidate = {"id": "a", "text": "x", "ratings": {"tone": 9}}
    path = jsonl(tmp_path / "f.jsonl", record(task="tasks/tone.toml", candidates=[candidate]))
    corpus = load(path)
    assert corpus.task.aspect("tone").scale == Scale(0, 10)
    worded = replace(corpus.task, source_label="chat")
    assert load(path, worded).task is worded


def test_what_is_written_as_group_records_is_read_back_equal(tmp_path: Path) -> None:
    corpus = data.load("sample", "dialogue")
    again = load(jsonl(tmp_path / "f.jsonl", *(group_to_json(g) for g in corpus.groups)), DIALOGUE)
    assert again.groups == corpus.groups
    assert again.digest == corpus.digest
    check_corpus(again)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_reading_takes_the_memory_of_one_group(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"f{suffix}"
    text = "word " * 2000
    if suffix == ".jsonl":
        jsonl(path, *(record(str(i), source=f"{i} {text}") for i in range(400)))
    else:
        path.write_text("source,text\n" + "".join(f"{i} {text},x\n" for i in range(400)))
    tracemalloc.start()
    count = sum(1 for _ in iter_groups(path, SUMMARIZATION))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 400
    assert path.stat().st_size > 4_000_000
    assert peak < 1_000_000


def corpus_of(*groups: list[float | None]) -> Corpus:
    made = tuple(
        RatedGroup(
            f"g{i}",
            f"source {i}",
            tuple(Candidate(str(j), "x", {} if r is None else {"tone": (r,)}) for j, r in enumerate(ratings)),
        )
        for i, ratings in enumerate(groups)
    )
    return Corpus(TASK, made, Origin("made", "made.jsonl"))


def test_rows_of_two_tasks_with_one_source_are_two_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "task,source,text,coherence,naturalness\n"
        "dialogue,s,x,,2\nsummarization,s,y,4,\nsummarization,s,z,2,\ndialogue,s,w,,3\n"
    )
    for task, texts in (("summarization", ["y", "z"]), ("dialogue", ["x", "w"])):
        (group,) = load(path, task).groups
        assert [c.text for c in group.candidates] == texts
        assert len(load(path, task).rated_aspects()) == 1


def test_a_level_needs_what_it_compares() -> None:
    grouped, single = corpus_of([1, 2], [3, 4]), corpus_of([1], [2])
    for level in ("summary", "sample", "system"):
        require_level(grouped, level)
    require_level(single, "sample")


def test_groups_before_a_bad_line_are_handed_out(tmp_path: Path) -> None:
    (tmp_path / "rated.jsonl").write_text(FIRST)
    assert load(tmp_path / "rated.jsonl").groups[0].candidates[0].ratings == {"coherence": (4, 5), "fluency": (5,)}
    (tmp_path / "rated.jsonl").write_text(FIRST + "\nnot json\n")
    groups = iter_groups(tmp_path / "rated.jsonl")
    assert next(groups).group.id == "g1"
    with pytest.raises(InputError, match="line 2"):
        next(groups)
