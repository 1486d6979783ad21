"""QAGS on made-up copies and, where it is present, on the real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from debate_judge import data
from debate_judge.data.errors import InputError
from debate_judge.data.files.records import Record
from debate_judge.data.schema import Candidate, RatedGroup
from debate_judge.data.sets import hub, qags
from debate_judge.data.testing import check_corpus

ROW: dict[str, Any] = {
    "doc_id": 7,
    "system_id": 0,
    "source": "Elm has bought a plough .",
    "reference": "Elm has bought a plough .",
    "system_output": "Elm has sold a plough .",
    "scores": {"consistency": 0.3333},
}


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps(rows, indent=1))
    return path


def test_a_record_becomes_a_group_without_reference(tmp_path: Path) -> None:
    corpus = qags.load(written(tmp_path / "q.json", [ROW]))
    check_corpus(corpus)
    candidate = Candidate("0", "Elm has sold a plough .", {"consistency": (0.3333,)})
    assert corpus.groups == (RatedGroup("7", "Elm has bought a plough .", (candidate,)),)
    assert not corpus.grouped


def test_two_summaries_of_an_article_are_one_group(tmp_path: Path) -> None:
    other = {**ROW, "doc_id": 8, "source": "Elm  has bought a plough .", "system_output": "Other ."}
    (group,) = qags.load(written(tmp_path / "q.json", [ROW, other, ROW])).groups
    assert [(c.id, c.text) for c in group.candidates] == [("0", "Elm has sold a plough ."), ("0-2", "Other .")]


BAD: list[tuple[str, list[dict[str, Any]], str]] = [
    ("empty", [], "no records"),
    ("no scores", [{k: v for k, v in ROW.items() if k != "scores"}], "'scores' is missing"),
    ("another aspect", [{**ROW, "scores": {"fluency": 1}}], "no aspect 'fluency'"),
    ("outside the scale", [{**ROW, "scores": {"consistency": 2}}], "from 0 to 1"),
    ("one id for two articles", [ROW, {**ROW, "source": "Other ."}], "a second source for the group '7'"),
]


@pytest.mark.parametrize(("name", "rows", "words"), BAD, ids=[row[0] for row in BAD])
def test_bad_copies_are_refused(tmp_path: Path, name: str, rows: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        qags.load(written(tmp_path / "q.json", rows))


@pytest.mark.parametrize(("spec", "file"), [("qags", "qags_cnndm.json"), ("qags_xsum", "qags_xsum.json")])
def test_each_part_is_fetched_from_its_home(monkeypatch: pytest.MonkeyPatch, spec: str, file: str) -> None:
    asked = []

    def fetch(name: str, home: hub.Home) -> list[Record]:
        asked.append((name, home))
        return [Record(ROW, home.address, 1)]

    monkeypatch.setattr(hub, "fetch", fetch)
    corpus = data.load(spec)
    ((name, home),) = asked
    assert (name, home.split, home.columns) == (spec, "train", qags.COLUMNS)
    assert home.address.endswith(f"{home.revision}/reproduce/data/fact/{file}")
    assert (corpus.origin.name, corpus.origin.location, corpus.origin.revision) == (spec, home.address, home.revision)


@pytest.mark.parametrize(("file", "groups"), [("qags_cnndm.json", 118), ("qags_xsum.json", 120)])
def test_the_real_set(shared_data: Path, file: str, groups: int) -> None:
    corpus = data.load(f"qags={shared_data / file}")
    check_corpus(corpus)
    assert len(corpus.groups) == groups
    assert corpus.rated_aspects() == ("consistency",)
