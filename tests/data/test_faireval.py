"""FairEval on made-up copies and, where it is present, on the real one."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from debate_judge import data
from debate_judge.data.files.records import Record
from debate_judge.data.schema import Candidate, RatedGroup
from debate_judge.data.sets import faireval, hub
from debate_judge.data.testing import check_corpus

QUESTIONS = [{"question_id": n, "text": f"Question {n}?", "category": "generic"} for n in (1, 3, 5)]


def answers(system: str, ids: tuple[int, ...] = (1, 3, 5)) -> list[dict[str, Any]]:
    return [{"question_id": n, "text": f"{system} {n}", "answer_id": "x"} for n in ids]


def folder(path: Path, *, nested: bool = False, labels: str = "CHATGPT\nTIE\nVICUNA13B\n", **files: Any) -> Path:
    rows = {
        "question.jsonl": files.get("questions", QUESTIONS),
        faireval.SYSTEMS["gpt35"]: files.get("gpt", answers("gpt")),
        faireval.SYSTEMS["vicuna-13b"]: files.get("vicuna", answers("vicuna")),
    }
    texts = {name: "\n".join(json.dumps(row) for row in found) for name, found in rows.items()}
    for name, text in {**texts, faireval.REVIEW: labels}.items():
        file = path / (name if nested else Path(name).name)
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return path


@pytest.mark.parametrize("nested", [False, True])
def test_a_question_is_a_group_of_two_with_a_winner_or_none(tmp_path: Path, nested: bool) -> None:
    # Answers are found by their question, not by their line.
    corpus = faireval.load(folder(tmp_path, nested=nested, vicuna=answers("vicuna", (5, 1, 3))))
    check_corpus(corpus)
    assert corpus.groups[0] == RatedGroup(
        "1",
        "Question 1?",
        (
            Candidate("gpt35", "gpt 1", {"preference": (1.0,)}),
            Candidate("vicuna-13b", "vicuna 1", {"preference": (0.0,)}),
        ),
    )
    assert [g.ratings("preference") for g in corpus.groups] == [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]


def test_the_files_are_fetched_from_their_home(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"question.jsonl": QUESTIONS, faireval.SYSTEMS["gpt35"]: answers("gpt")}
    rows[faireval.SYSTEMS["vicuna-13b"]] = answers("vicuna")

    def fetch(name: str, home: hub.RemoteSet) -> list[Record]:
        return [
            Record(row, home.address, n) for n, row in enumerate(rows[home.address.removeprefix(faireval.BASE_URL)], 1)
        ]

    def load_dataset(kind: str, *, data_files: str, split: str) -> dict[str, list[str]]:
        assert (kind, data_files, split) == ("text", faireval.BASE_URL + faireval.REVIEW, "train")
        return {"text": ["TIE", "TIE", "CHATGPT"]}

    monkeypatch.setattr(hub, "fetch", fetch)
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    corpus = data.load("faireval")
    assert [g.ratings("preference") for g in corpus.groups] == [[0.5, 0.5], [0.5, 0.5], [1.0, 0.0]]
    assert corpus.origin.revision == faireval.COMMIT


def test_the_real_set(shared_data: Path) -> None:
    corpus = data.load(f"faireval={shared_data / 'faireval'}")
    check_corpus(corpus)
    outcomes = Counter(g.candidates[0].rating("preference") for g in corpus.groups)
    # Counted in the file: 20 CHATGPT, 15 VICUNA13B, 5 TIE.
    assert outcomes == Counter({1.0: 20, 0.0: 15, 0.5: 5})
