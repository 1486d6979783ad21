"""Factool on made-up copies and, where it is present, on the real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from debate_judge import data
from debate_judge.data.errors import InputError
from debate_judge.data.files.records import Record
from debate_judge.data.schema import Candidate, RatedGroup
from debate_judge.data.sets import factool, hub
from debate_judge.data.testing import check_corpus

ROW: dict[str, Any] = {
    "prompt": "Which river?",
    "response": "Elm is a town on the Oak.",
    "claims": [{"claim": "Elm is a town", "label": True}, {"claim": "Elm is on the Oak", "label": False}],
    "label": False,
    "entry_point": None,
}


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def test_responses_are_candidates_at_response_level(tmp_path: Path) -> None:
    corpus = factool.load(written(tmp_path / "f.jsonl", [ROW]))
    check_corpus(corpus)
    response = Candidate("response", "Elm is a town on the Oak.", {"factuality": (0.0,)})
    assert corpus.groups == (RatedGroup("1", "Which river?", (response,)),)


def test_claims_are_candidates_at_claim_level(tmp_path: Path) -> None:
    corpus = factool.load(written(tmp_path / "f.jsonl", [ROW]), "claim")
    check_corpus(corpus)
    claims = (
        Candidate("1", "Elm is a town", {"factuality": (1.0,)}),
        Candidate("2", "Elm is on the Oak", {"factuality": (0.0,)}),
    )
    assert corpus.groups == (RatedGroup("1", "Which river?", claims),)
    assert corpus.task.candidate_label == "claim"


BAD: list[tuple[str, list[dict[str, Any]], str]] = [
    ("empty", [], "no records"),
    ("no claims", [{**ROW, "claims": []}], "claims is empty"),
    ("a word for a label", [{**ROW, "claims": [{"claim": "x", "label": "yes"}]}], "claims.0..label"),
    ("no label", [{**ROW, "claims": [{"claim": "x"}]}], "'label' is missing"),
]


@pytest.mark.parametrize(("name", "rows", "words"), BAD, ids=[row[0] for row in BAD])
def test_bad_copies_are_refused(tmp_path: Path, name: str, rows: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        factool.load(written(tmp_path / "f.jsonl", rows), "claim")


@pytest.mark.parametrize(("spec", "candidates"), [("factool", 1), ("factool_claims", 2)])
def test_both_levels_are_fetched_from_one_home(monkeypatch: pytest.MonkeyPatch, spec: str, candidates: int) -> None:
    asked = []

    def fetch(name: str, home: hub.Home) -> list[Record]:
        asked.append((name, home))
        return [Record(ROW, home.address, 1)]

    monkeypatch.setattr(hub, "fetch", fetch)
    assert len(data.load(spec).groups[0].candidates) == candidates
    assert asked == [(spec, factool.HOME)]


def test_the_real_set(shared_data: Path) -> None:
    path = shared_data / "factool_knowledge_qa.jsonl"
    responses, claims = data.load(f"factool={path}"), data.load(f"factool_claims={path}")
    for corpus in (responses, claims):
        check_corpus(corpus)
        assert len(corpus.groups) == 25
    # A response is labelled factual where all its claims are, as the paper's rule has it.
    for response, group in zip(responses.groups, claims.groups, strict=True):
        assert response.candidates[0].rating("factuality") == min(
            c.rating("factuality") or 0.0 for c in group.candidates
        )
