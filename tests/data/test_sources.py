"""Which sources and which aspects of a corpus are used."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from debate_judge import data
from debate_judge.data.requirements import aspects_to_judge
from debate_judge.data.schema import Corpus
from debate_judge.data.sets import topical_chat
from debate_judge.data.sources import SourceSelection, select_sources


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return data.load("sample")


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [("1", 0, 1), ("24", 0, 24), ("0.5", 0, 12), (".1", 0, 2), ("1.0", 0, 24), ("0.001", 0, 1), ("13-24", 12, 24)],
)
def test_sources_are_counted_in_the_order_of_the_data(corpus: Corpus, text: str, first: int, last: int) -> None:
    assert select_sources(corpus, text).groups == corpus.groups[first:last]
    streamed = SourceSelection.parse(text).select(iter(corpus.groups), lambda: 24)
    assert tuple(streamed) == corpus.groups[first:last]


def test_what_lies_behind_the_last_source_of_a_stream_is_not_read() -> None:
    read = []

    def groups() -> object:
        for number in range(10):
            read.append(number)
            yield number

    assert list(SourceSelection.parse("2-3").select(groups(), lambda: 0)) == [1, 2]  # type: ignore[arg-type]
    assert read == [0, 1, 2]


def test_a_public_set_is_judged_in_the_aspects_that_papers_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rated = {"understandability": 1, "naturalness": 2, "coherence": 3, "engagingness": 2, "groundedness": 0}
    records = [
        {
            "source": f"hi {n}",
            "system_id": "a",
            "system_output": "yes",
            "context": "",
            "scores": {**rated, "overall": n},
        }
        for n in (1, 2)
    ]
    for name, value in (("naturalness", 1), ("coherence", 1), ("engagingness", 1), ("groundedness", 1)):
        records[1]["scores"] = {**records[1]["scores"], name: value}  # type: ignore[dict-item]
    file = tmp_path / "topical_chat.json"
    file.write_text(json.dumps(records))
    corpus = data.load(f"topical_chat={file}")
    with caplog.at_level(logging.WARNING):
        assert aspects_to_judge(corpus) == topical_chat.REPORTED
    assert "understandability, overall" in caplog.text
    caplog.clear()
    assert corpus.select_aspects(("all",)) == corpus.rated_aspects()
    assert len(corpus.rated_aspects()) == 6
    assert aspects_to_judge(corpus, ("overall", "overall")) == ("overall",)
    assert not caplog.text, "what a user names needs no remark"
    only_overall = replace(corpus, reported_aspects=("fluency",))
    assert only_overall.select_aspects() == corpus.rated_aspects()


def test_other_data_are_judged_in_all_aspects_that_are_rated(corpus: Corpus, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert aspects_to_judge(corpus) == corpus.rated_aspects() == corpus.select_aspects(("all",))
    assert not caplog.text
