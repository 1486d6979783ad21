"""The loaders of public sets, on made-up copies and, where they are present, on the real ones."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from debate_judge import data
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Candidate, Corpus, RatedGroup, Scale
from debate_judge.data.sets import dialsummeval, newsroom, summeval, topical_chat
from debate_judge.data.tasks import DIALOGUE, SUMMARIZATION
from debate_judge.data.testing import check_corpus

ARTICLE: dict[str, Any] = {
    "id": "dm-1",
    "text": "The town of Elm has bought a plough .",
    "machine_summaries": ["Elm buys a plough .\n", "A plough ."],
    "human_summaries": ["Elm has a plough .", "Snow beware ."],
    "coherence": [4.666666666666667, 1],
    "consistency": [5.0, 5.0],
    "fluency": [5.0, 2.0],
    "relevance": [4.0, 2.0],
}

REPLY: dict[str, Any] = {
    "source": "do you like chess ? \n i do . \n\n",
    "system_id": "A",
    "system_output": "wow . \n",
    "context": "the longest game took 269 moves .\n",
    "scores": {"naturalness": 2.6666666667, "groundedness": 0.3333333333, "overall": 3},
}


def written(path: Path, records: list[dict[str, Any]], *, array: bool = False) -> Path:
    path.write_text(json.dumps(records, indent=1) if array else "\n".join(json.dumps(r) for r in records))
    return path


def test_a_summeval_record_becomes_a_group(tmp_path: Path) -> None:
    corpus = summeval.load(written(tmp_path / "s.jsonl", [{**ARTICLE, "model_ids": ["M0", "M1"]}]))
    check_corpus(corpus)
    rest = {"consistency": (5.0,)}
    assert corpus.groups == (
        RatedGroup(
            "dm-1",
            "The town of Elm has bought a plough .",
            (
                Candidate(
                    "M0",
                    "Elm buys a plough .",
                    {"coherence": (4.666666666666667,), **rest, "fluency": (5.0,), "relevance": (4.0,)},
                ),
                Candidate("M1", "A plough .", {"coherence": (1.0,), **rest, "fluency": (2.0,), "relevance": (2.0,)}),
            ),
            references=("Elm has a plough .", "Snow beware ."),
        ),
    )


def test_summaries_without_model_names_are_numbered(tmp_path: Path) -> None:
    (group,) = summeval.load(written(tmp_path / "s.jsonl", [ARTICLE])).groups
    assert [c.id for c in group.candidates] == ["1", "2"]


def test_summeval_is_read_in_unievals_packing_too(tmp_path: Path) -> None:
    scores = {"coherence": 2.0, "consistency": 5.0, "fluency": 5.0, "relevance": 3.0}
    rows = [
        {"doc_id": doc, "system_id": system, "source": f"{doc} rained .", "reference": "Rain .", "scores": scores}
        | {"system_output": f"{system} says rain ."}
        for system in ("M8", "M9")
        for doc in ("d1", "d2")
    ]
    corpus = summeval.load(written(tmp_path / "s.json", rows, array=True))
    check_corpus(corpus)
    assert [(g.id, [c.id for c in g.candidates], g.references) for g in corpus.groups] == [
        ("d1", ["M8", "M9"], ("Rain .",)),
        ("d2", ["M8", "M9"], ("Rain .",)),
    ]


def test_replies_to_one_history_become_a_group(tmp_path: Path) -> None:
    other = {**REPLY, "source": "hi \n", "context": "_nofact\n"}
    corpus = topical_chat.load(written(tmp_path / "t.json", [REPLY, other, {**REPLY, "system_id": "B"}], array=True))
    check_corpus(corpus)
    first, second = corpus.groups
    rated = {"naturalness": (2.6666666667,), "groundedness": (0.3333333333,), "overall": (3.0,)}
    assert first == RatedGroup(
        "1",
        "do you like chess ? \n i do . ",
        (Candidate("A", "wow . ", rated), Candidate("B", "wow . ", rated)),
        "the longest game took 269 moves .",
    )
    assert (second.id, second.source, second.context, second.references) == ("2", "hi ", "", ())


SAID: dict[str, Any] = {
    "id": "13",
    "dialogue": "| Ann: Is it raining? | Ben: It is. ",
    "summary": "It rains.",
    "model_id": "A",
    "annotations": [
        {"coherence": 5, "consistency": 4, "fluency": 5, "relevance": 3},
        {"coherence": 4, "consistency": 4, "fluency": 5, "relevance": 2},
    ],
}


def test_summaries_of_a_dialogue_become_a_group_with_the_raters_in_order(tmp_path: Path) -> None:
    rows = [SAID, {**SAID, "model_id": "B"}, {**SAID, "id": "14", "dialogue": "| Ann: Hi!"}]
    path = written(tmp_path / "d.jsonl", rows)
    corpus = dialsummeval.load(path)
    check_corpus(corpus, dialsummeval.load(path), raters=2)
    assert [(g.source, [c.id for c in g.candidates]) for g in corpus.groups] == [
        ("Ann: Is it raining?\nBen: It is.", ["A", "B"]),
        ("Ann: Hi!", ["A"]),
    ]
    assert corpus.groups[0].candidates[0].ratings["relevance"] == (3.0, 2.0)
    assert corpus.task.source_label == "dialogue"


def test_newsroom_is_a_list_inside_of_an_object(tmp_path: Path) -> None:
    asked = ("Informativeness", "Relevance", "Fluency", "Coherence")
    given = {name: {"mean_human": 4.0, "individual_human_scores": [4, n, 5]} for n, name in enumerate(asked, 1)}
    text = "### Generated Summary\n\nelm has a plough .\n\n### Source Article\n\nThe town of Elm."
    rows = [
        {"id": i, "instance": text.replace("plough", w), "annotations": given} for i, w in enumerate(("bus", "inn"))
    ]
    path = tmp_path / "newsroom.json"
    path.write_text(json.dumps({"dataset": "newsroom", "annotations": [{"metric": "x"}], "instances": rows}))
    corpus = newsroom.load(path)
    check_corpus(corpus, newsroom.load(path), raters=3)
    (group,) = corpus.groups
    assert (group.source, [c.text for c in group.candidates]) == (
        "The town of Elm.",
        ["elm has a bus .", "elm has a inn ."],
    )
    assert group.candidates[0].ratings["relevance"] == (4.0, 2.0, 5.0)


class Rows(list[dict[str, Any]]):
    """What `datasets` gives back, as far as it is used."""

    @property
    def column_names(self) -> list[str]:
        return list(self[0])


def home(monkeypatch: pytest.MonkeyPatch, answer: Any) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    asked: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def load_dataset(*args: Any, **kwargs: Any) -> Any:
        asked.append((args, kwargs))
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return asked


def test_summeval_comes_from_its_pinned_home(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = home(monkeypatch, Rows([ARTICLE]))
    corpus = data.load("summeval")
    revision = "bfc121155064afa2d81b5505682ffc0d96f4334c"
    assert asked == [(("mteb/summeval",), {"split": "test", "revision": revision})]
    assert (corpus.origin.location, corpus.origin.revision) == ("mteb/summeval", revision)


def test_topical_chat_comes_from_its_pinned_home(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = home(monkeypatch, Rows([REPLY]))
    corpus = data.load("topical_chat")
    assert asked == [(("json",), {"data_files": topical_chat.REMOTE.address, "split": "train"})]
    assert corpus.origin.revision in corpus.origin.location


def test_the_real_library_reads_the_file_and_fails_as_expected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    # The copy on disk is read by the builder that reads the URL; only the transport differs.
    local = replace(topical_chat.REMOTE, address=str(written(tmp_path / "t.json", [REPLY], array=True)))
    monkeypatch.setattr(topical_chat, "REMOTE", local)
    real = datasets.load_dataset
    monkeypatch.setattr(
        datasets, "load_dataset", lambda path, **kw: real("json", data_files=path, split="train", cache_dir=tmp_path)
    )
    assert topical_chat.load().groups[0].candidates[0].ratings["overall"] == (3.0,)
    monkeypatch.setattr(topical_chat, "REMOTE", replace(local, address=str(tmp_path / "gone.json")))
    with pytest.raises(InputError, match="--data topical_chat=PATH"):
        topical_chat.load()


def scores(corpus: Corpus, aspect: str) -> list[float]:
    return [c.ratings[aspect][0] for g in corpus.groups for c in g.candidates]


def test_the_real_summeval(shared_data: Path) -> None:
    corpus = data.load(f"summeval={shared_data / 'summeval.jsonl'}")
    check_corpus(corpus)
    assert corpus.task is SUMMARIZATION
    assert {len(g.candidates) for g in corpus.groups} == {16}
    assert {len(g.references) for g in corpus.groups} == {11}
    assert len(corpus.groups) == 50
    assert corpus.rated_aspects() == ("coherence", "consistency", "fluency", "relevance")
    # Means of three whole ratings: thirds.
    assert all(abs(3 * s - round(3 * s)) < 1e-6 for a in corpus.rated_aspects() for s in scores(corpus, a))
    raw = [json.loads(line) for line in (shared_data / "summeval.jsonl").read_text().splitlines()]
    assert [r["fluency"] for r in raw] == [g.ratings("fluency") for g in corpus.groups]
    assert [r["machine_summaries"] for r in raw] == [[c.text for c in g.candidates] for g in corpus.groups]


def test_the_real_topical_chat(shared_data: Path) -> None:
    corpus = data.load(f"topical_chat={shared_data / 'topical_chat.json'}")
    check_corpus(corpus)
    assert corpus.task is DIALOGUE
    assert len(corpus.groups) == 30
    assert {len(g.candidates) for g in corpus.groups} == {6}
    assert corpus.rated_aspects() == tuple(a.name for a in DIALOGUE.aspects)
    assert sum(not g.context for g in corpus.groups) == 4
    assert corpus.task.aspect("groundedness").scale == Scale(0, 1)
    raw = json.loads((shared_data / "topical_chat.json").read_text())
    assert sorted(r["scores"]["overall"] for r in raw) == sorted(scores(corpus, "overall"))
