"""Which columns and fields of people's data are read under which name, and that the rest is told."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from debate_judge import data
from debate_judge.data.files.columns import ColumnNames
from debate_judge.data.files.groups import iter_groups, load
from debate_judge.data.schema import Candidate
from debate_judge.data.splits import split
from tests.data.files_of_rows import TASK, separated


def test_names_of_people_are_given_ours(tmp_path: Path) -> None:
    path = separated(
        tmp_path / "a.csv",
        [("question", "answer", "score_tone", "why"), ("s", "x", 4, "kind"), ("t", "y", 2, "curt")],
        ",",
    )
    named = ColumnNames.parse(["source=question", "text=answer", "tone=score_tone", "comments.tone=why"])
    one, other = (group.candidates[0] for group in load(path, TASK, named).groups)
    assert (one.text, one.ratings, one.comments) == ("x", {"tone": (4.0,)}, {"tone": ("kind",)})
    assert other.ratings == {"tone": (2.0,)}
    assert data.load(str(path), TASK, ["source=question", "text=answer", "tone=score_tone"]).digest != ""


def test_names_are_given_ours_at_every_level_of_a_group(tmp_path: Path) -> None:
    answer = {"id": 1, "answer": "x", "ratings": {"score_tone": [4, 5]}}
    (tmp_path / "a.jsonl").write_text(json.dumps({"group": "g", "question": "s", "candidates": [answer]}))
    named = ColumnNames.parse(["source=question", "text=answer", "tone=score_tone"])
    (group,) = load(tmp_path / "a.jsonl", TASK, named).groups
    assert (group.source, group.candidates) == ("s", (Candidate("1", "x", {"tone": (4.0, 5.0)}),))


def test_case_and_blanks_in_names_do_not_count(tmp_path: Path) -> None:
    path = separated(tmp_path / "a.csv", [("Source ", "TEXT", "Tone", "Comments.Tone"), ("s", "x", 4, "kind")], ",")
    (group,) = load(path, TASK).groups
    assert group.candidates[0].ratings == {"tone": (4.0,)}
    assert group.candidates[0].comments == {"tone": ("kind",)}


def test_one_column_for_each_rater(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    header = ("source", "text", "tone", "tone_1", "tone_2", "tone rater 3", "solved_A", "solved_B", "comments.tone_2")
    path = separated(tmp_path / "a.csv", [header, ("s", "x", 3.5, 4, 3, "", "pass", "Fail", "curt")], ",")
    candidate = load(path, TASK).groups[0].candidates[0]
    assert candidate.ratings == {"tone": (4.0, 3.0), "solved": (1.0, 0.0)}
    assert candidate.comments == {"tone": ("curt",)}
    assert caplog.text.count("\n") == 1
    assert "not read: 'tone' (" in caplog.text


def test_one_row_for_each_rating(tmp_path: Path) -> None:
    header = ("question", "reply", "aspect", "rating", "rater", "comment")
    table = [
        header,
        ("s", "x", "tone", 4, "ann", "kind"),
        ("t", "z", "tone", 1, "bob", ""),
        ("s", "y", "Tone", 2, "bob", ""),
        ("s", "x", "solved", "no", "ann", ""),
        ("s", "x", "tone", 3, "bob", ""),
        ("s", "y", "tone", 5, "ann", "warm"),
    ]
    path = separated(tmp_path / "a.csv", table, ",")
    corpus = load(path, TASK, ColumnNames.parse(["source=question", "text=reply"]))
    assert [(g.source, [c.text for c in g.candidates]) for g in corpus.groups] == [("s", ["x", "y"]), ("t", ["z"])]
    x, y = corpus.groups[0].candidates
    # In the order in which the raters are met in the file, whatever the order of the rows.
    assert x.ratings == {"tone": (4.0, 3.0), "solved": (0.0,)}
    assert y.ratings == {"tone": (5.0, 2.0)}
    assert (x.comments, y.comments) == ({"tone": ("kind",)}, {"tone": ("warm",)})


def test_one_row_for_each_candidate_and_rater(tmp_path: Path) -> None:
    header = ("group", "source", "candidate", "text", "rater", "tone", "solved")
    table = [
        header,
        ("g", "s", "a", "x", 1, 4, "yes"),
        ("g", "s", "b", "y", 1, 2, ""),
        ("g", "s", "a", "x", 2, 5, "no"),
    ]
    (group,) = load(separated(tmp_path / "a.tsv", table, "\t"), TASK).groups
    assert [c.ratings for c in group.candidates] == [{"tone": (4.0, 5.0), "solved": (1.0, 0.0)}, {"tone": (2.0,)}]


def test_what_is_not_read_is_told_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = separated(tmp_path / "a.csv", [("source", "text", "tonne", "split"), ("s", "x", 4, "dev")], ";")
    with caplog.at_level(logging.WARNING):
        load(path, TASK)
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith(str(path))
    assert "semicolons" in line
    assert re.findall(r"'(\w+)'", line) == ["tonne", "tone", "split"]


def test_fields_that_are_not_read_are_told_at_every_level(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = [
        {"group": f"g{i}", "source": f"s{i}", "lang": "en", "candidates": [candidate]}
        for i, candidate in enumerate(
            [
                {"id": "a", "text": "x", "ratings": {"tonne": 4}},
                {"id": "a", "text": "y", "ratings": {"wit": 2}, "ms": 3},
            ]
        )
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert load(tmp_path / "a.jsonl", TASK).rated_aspects() == ()
    (line,) = (record.getMessage() for record in caplog.records)
    assert re.findall(r"'(\w+)'", line) == ["lang", "tonne", "tone", "ms", "wit"]


def test_what_is_streamed_is_told_after_the_first_group(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = separated(tmp_path / "a.csv", [("source", "text", "contxt"), ("s", "x", "c"), ("t", "y", "c")], ",")
    stream = iter_groups(path, TASK)
    next(stream)
    next(stream)
    assert "'contxt'" in caplog.text
    assert len(list(stream)) == 0
    assert len(caplog.records) == 1


def test_texts_without_a_source_are_groups_of_their_own(tmp_path: Path) -> None:
    table = [("text", "tone"), *[(f"Reply number {i}.", 1 + i % 5) for i in range(60)], ("Reply number 0.", 2)]
    corpus = load(separated(tmp_path / "a.csv", table, ","), TASK)
    assert len(corpus.groups) == 61
    assert {group.source for group in corpus.groups} == {""}
    assert not corpus.grouped
    parts = split(corpus, aspects=["tone"], seed=0)
    assert parts.joined == (("1", "61"),), "equal texts stay in one part"


def test_rows_with_one_source_are_one_group_wherever_they_are(tmp_path: Path) -> None:
    table = [("source", "text", "tone"), ("s", "x", 4), ("t", "z", 1), ("s ", "y", 2)]
    corpus = load(separated(tmp_path / "a.csv", table, ","), TASK)
    assert [(g.id, [c.text for c in g.candidates]) for g in corpus.groups] == [("1", ["x", "y"]), ("2", ["z"])]
