"""HaluEval, Factool and QAGS on made-up copies and, where they are present, on the real ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from debate_judge import data
from debate_judge.data.files.records import Record
from debate_judge.data.schema import Candidate, Corpus, RatedGroup
from debate_judge.data.sets import hub
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
CLAIMS: dict[str, Any] = {
    "prompt": "Which river?",
    "response": "Elm is a town on the Oak.",
    "claims": [{"claim": "Elm is a town", "label": True}, {"claim": "Elm is on the Oak", "label": False}],
    "label": False,
    "entry_point": None,
}
QAGS: dict[str, Any] = {
    "doc_id": 7,
    "system_id": 0,
    "source": "Elm has bought a plough .",
    "reference": "Elm has bought a plough .",
    "system_output": "Elm has sold a plough .",
    "scores": {"consistency": 0.3333},
}


def loaded(folder: Path, name: str, *rows: dict[str, Any]) -> Corpus:
    path = folder / "set.json"
    path.write_text("\n".join(map(json.dumps, rows)))
    return data.load(f"{name}={path}")


def rated(aspect: str = "factuality", **texts: tuple[str, float]) -> tuple[Candidate, ...]:
    return tuple(Candidate(name.strip("_"), text, {aspect: (value,)}) for name, (text, value) in texts.items())


@pytest.mark.parametrize(
    ("name", "row", "task", "group"),
    [
        (
            "halueval",
            QA,
            "question-answering",
            RatedGroup("1", "Which river?", rated(right=("Ash", 1), hallucinated=("Oak", 0)), "Elm lies on the Ash."),
        ),
        (
            "halueval",
            CHAT,
            "dialogue-factuality",
            RatedGroup(
                "1",
                "[Human]: Elm?",
                rated(right=("On the Ash.", 1), hallucinated=("On the Oak.", 0)),
                "Elm lies on the Ash.",
            ),
        ),
        (
            "halueval",
            NEWS,
            "summary-factuality",
            RatedGroup("1", "Elm buys a plough.", rated(right=("Elm buys.", 1), hallucinated=("Elm sells.", 0))),
        ),
        (
            "factool",
            CLAIMS,
            "question-answering",
            RatedGroup("1", "Which river?", rated(response=("Elm is a town on the Oak.", 0))),
        ),
        (
            "factool_claims",
            CLAIMS,
            "claim-factuality",
            RatedGroup("1", "Which river?", rated(_1=("Elm is a town", 1), _2=("Elm is on the Oak", 0))),
        ),
        # The article under `reference` is no reference.
        (
            "qags",
            QAGS,
            "summary-consistency",
            RatedGroup("7", "Elm has bought a plough .", rated("consistency", _0=("Elm has sold a plough .", 0.3333))),
        ),
    ],
)
def test_a_record_becomes_a_group(tmp_path: Path, name: str, row: dict[str, Any], task: str, group: RatedGroup) -> None:
    corpus = loaded(tmp_path, name, row)
    check_corpus(corpus)
    assert (corpus.task.name, corpus.groups) == (task, (group,))


@pytest.mark.parametrize(
    ("name", "rows", "context", "candidates"),
    [
        # The hallucinated reply is the same in both records and is there once.
        (
            "halueval",
            [CHAT, {**CHAT, "knowledge": "The Ash is long.", "right_response": "It is long."}],
            "Elm lies on the Ash.\nThe Ash is long.",
            [("right", "On the Ash."), ("hallucinated", "On the Oak."), ("right-2", "It is long.")],
        ),
        (
            "qags",
            [QAGS, {**QAGS, "doc_id": 8, "source": "Elm  has bought a plough .", "system_output": "Other ."}, QAGS],
            "",
            [("0", "Elm has sold a plough ."), ("0-2", "Other .")],
        ),
    ],
)
def test_records_of_one_source_are_one_group(
    tmp_path: Path, name: str, rows: list[dict[str, Any]], context: str, candidates: list[tuple[str, str]]
) -> None:
    (group,) = loaded(tmp_path, name, *rows).groups
    assert (group.context, [(c.id, c.text) for c in group.candidates]) == (context, candidates)


def test_sampled_copies_of_halueval_have_one_candidate_a_record(tmp_path: Path) -> None:
    rows = [
        {"knowledge": "k", "question": "Which river?", "answer": "Oak", "hallucination": "yes"},
        {"knowledge": "k", "question": "Which town?", "answer": "Elm", "hallucination": "no"},
    ]
    corpus = loaded(tmp_path, "halueval", *rows)
    assert [group.candidates for group in corpus.groups] == [rated(hallucinated=("Oak", 0)), rated(right=("Elm", 1))]


@pytest.mark.parametrize(
    ("name", "row", "file"),
    [
        ("halueval", QA, "RUCAIBox/HaluEval/{}/data/qa_data.json"),
        ("halueval_dialogue", CHAT, "RUCAIBox/HaluEval/{}/data/dialogue_data.json"),
        ("halueval_summarization", NEWS, "RUCAIBox/HaluEval/{}/data/summarization_data.json"),
        ("factool", CLAIMS, "GAIR-NLP/factool/{}/datasets/knowledge_qa/knowledge_qa.jsonl"),
        ("factool_claims", CLAIMS, "GAIR-NLP/factool/{}/datasets/knowledge_qa/knowledge_qa.jsonl"),
        ("qags", QAGS, "maszhongming/UniEval/{}/reproduce/data/fact/qags_cnndm.json"),
        ("qags_xsum", QAGS, "maszhongming/UniEval/{}/reproduce/data/fact/qags_xsum.json"),
    ],
)
def test_each_part_is_fetched_from_its_home(
    monkeypatch: pytest.MonkeyPatch, name: str, row: dict[str, Any], file: str
) -> None:
    asked: list[tuple[str, hub.RemoteSet]] = []

    def fetch(name: str, home: hub.RemoteSet) -> list[Record]:
        asked.append((name, home))
        return [Record(row, home.address, 1)]

    monkeypatch.setattr(hub, "fetch", fetch)
    origin = data.load(name).origin
    ((of, home),) = asked
    assert (of, home.address) == (name, "https://raw.githubusercontent.com/" + file.format(home.revision))
    assert set(home.columns) <= set(row)
    assert (origin.name, origin.location, origin.revision) == (name, home.address, home.revision)


@pytest.mark.parametrize(
    ("name", "file", "groups", "candidates"),
    [
        ("halueval", "halueval_qa.json", 200, 400),
        ("factool", "factool_knowledge_qa.jsonl", 25, 25),
        ("factool_claims", "factool_knowledge_qa.jsonl", 25, None),
        ("qags", "qags_cnndm.json", 118, None),
        ("qags", "qags_xsum.json", 120, None),
    ],
)
def test_the_real_sets(shared_data: Path, name: str, file: str, groups: int, candidates: int | None) -> None:
    corpus = data.load(f"{name}={shared_data / file}")
    check_corpus(corpus)
    assert len(corpus.groups) == groups
    assert candidates in (None, sum(len(group.candidates) for group in corpus.groups))


def test_a_response_is_factual_where_all_its_claims_are(shared_data: Path) -> None:
    path = shared_data / "factool_knowledge_qa.jsonl"
    responses, claims = (data.load(f"{name}={path}").groups for name in ("factool", "factool_claims"))
    for response, group in zip(responses, claims, strict=True):
        assert response.candidates[0].rating("factuality") == min(
            c.rating("factuality") or 0.0 for c in group.candidates
        )
