"""HaluEval on made-up copies and, where it is present, on the real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from debate_judge import data
from debate_judge.data.errors import InputError
from debate_judge.data.files.records import Record
from debate_judge.data.schema import Candidate, RatedGroup
from debate_judge.data.sets import halueval, hub
from debate_judge.data.testing import check_corpus

QA = {
    "knowledge": "Elm lies on the Ash.",
    "question": "Which river?",
    "right_answer": "Ash",
    "hallucinated_answer": "Oak",
}
CHAT = {
    "knowledge": "Elm lies on the Ash.",
    "dialogue_history": "[Human]: Elm?",
    "right_response": "On the Ash.",
    "hallucinated_response": "On the Oak.",
}
NEWS = {"document": "Elm buys a plough.", "right_summary": "Elm buys.", "hallucinated_summary": "Elm sells."}


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def both(right: str, wrong: str) -> tuple[Candidate, Candidate]:
    return (
        Candidate("right", right, {"factuality": (1.0,)}),
        Candidate("hallucinated", wrong, {"factuality": (0.0,)}),
    )


@pytest.mark.parametrize(
    ("row", "task", "group"),
    [
        (QA, "question-answering", RatedGroup("1", "Which river?", both("Ash", "Oak"), "Elm lies on the Ash.")),
        (
            CHAT,
            "dialogue-factuality",
            RatedGroup("1", "[Human]: Elm?", both("On the Ash.", "On the Oak."), "Elm lies on the Ash."),
        ),
        (NEWS, "summary-factuality", RatedGroup("1", "Elm buys a plough.", both("Elm buys.", "Elm sells."))),
    ],
    ids=["qa", "dialogue", "summarization"],
)
def test_each_part_is_known_by_its_fields(tmp_path: Path, row: dict[str, Any], task: str, group: RatedGroup) -> None:
    corpus = halueval.load(written(tmp_path / "h.json", [row]))
    check_corpus(corpus)
    assert (corpus.task.name, corpus.groups) == (task, (group,))
    assert corpus.task.aspect("factuality").scale.binary


def test_sampled_copies_have_one_candidate_a_record(tmp_path: Path) -> None:
    rows = [
        {"knowledge": "k", "question": "Which river?", "answer": "Oak", "hallucination": "yes"},
        {"knowledge": "k", "question": "Which town?", "answer": "Elm", "hallucination": "no"},
    ]
    corpus = halueval.load(written(tmp_path / "h.json", rows))
    assert [(c.id, c.text, c.rating("factuality")) for g in corpus.groups for c in g.candidates] == [
        ("hallucinated", "Oak", 0.0),
        ("right", "Elm", 1.0),
    ]


def test_records_of_one_history_are_one_group_with_all_their_knowledge(tmp_path: Path) -> None:
    other = {**CHAT, "knowledge": "The Ash is long.", "right_response": "It is long."}
    corpus = halueval.load(written(tmp_path / "h.json", [CHAT, other]))
    check_corpus(corpus)
    (group,) = corpus.groups
    assert group.context == "Elm lies on the Ash.\nThe Ash is long."
    # The hallucinated reply is the same in both records and stands once.
    assert [(c.id, c.text) for c in group.candidates] == [
        ("right", "On the Ash."),
        ("hallucinated", "On the Oak."),
        ("right-2", "It is long."),
    ]


BAD: list[tuple[str, list[dict[str, Any]], str | None, str]] = [
    ("empty", [], None, "no records"),
    ("no part", [{"text": "x"}], None, "not a record of HaluEval"),
    ("half a record", [{"question": "x", "right_answer": "y"}], None, "'hallucinated_answer' is missing"),
    ("mixed parts", [QA, NEWS], None, "is missing"),
    ("another part", [QA], "dialogue", "is missing"),
    ("odd label", [{"question": "x", "answer": "y", "hallucination": "maybe"}], None, "expected: yes or no"),
]


@pytest.mark.parametrize(("name", "rows", "part", "words"), BAD, ids=[row[0] for row in BAD])
def test_bad_copies_are_refused(
    tmp_path: Path, name: str, rows: list[dict[str, Any]], part: str | None, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        halueval.load(written(tmp_path / "h.json", rows), part)


@pytest.mark.parametrize(
    ("spec", "row", "file"),
    [
        ("halueval", QA, "qa_data.json"),
        ("halueval_dialogue", CHAT, "dialogue_data.json"),
        ("halueval_summarization", NEWS, "summarization_data.json"),
    ],
)
def test_each_part_is_fetched_from_its_home(
    monkeypatch: pytest.MonkeyPatch, spec: str, row: dict[str, Any], file: str
) -> None:
    asked = []

    def fetch(name: str, home: hub.Home) -> list[Record]:
        asked.append((name, home.address, set(home.columns)))
        return [Record(row, home.address, 1)]

    monkeypatch.setattr(hub, "fetch", fetch)
    assert len(data.load(spec).groups[0].candidates) == 2
    assert asked == [(spec, halueval.HOME + file, set(row))]


def test_the_real_set(shared_data: Path) -> None:
    corpus = data.load(f"halueval={shared_data / 'halueval_qa.json'}")
    check_corpus(corpus)
    assert [len(g.candidates) for g in corpus.groups] == [2] * 200
    assert all(g.context and g.ranks_humans("factuality") for g in corpus.groups)
