"""Sources that were selected for rating are recognized by their column, and never held out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from debate_judge import data
from debate_judge.data.folds import make_folds
from debate_judge.data.schema import Corpus, RatedGroup, group_to_json
from debate_judge.data.splits import split

SAMPLE = data.load("sample")
ASPECTS = ["coherence", "fluency"]


def chosen(groups: int) -> Corpus:
    """The sample with so many of its 24 sources chosen."""
    own = [replace(g, sampling_probability=0.25) if i < groups else g for i, g in enumerate(SAMPLE.groups)]
    return replace(SAMPLE, groups=tuple(own))


def table(path: Path, drawn: str) -> str:
    rows = [f"s{i},text {i},{1 + i % 5},{drawn if i < 2 else ''}" for i in range(4)]
    path.write_text("\n".join(["source,text,coherence,drawn", *rows]) + "\n")
    return str(path)


def test_the_column_is_read_and_is_no_rating(tmp_path: Path) -> None:
    corpus = data.load(table(tmp_path / "t.csv", "0.25"), "summarization")
    assert [group.sampling_probability for group in corpus.groups] == [0.25, 0.25, None, None]
    assert [group.id for group in corpus.random_sample.groups] == [group.id for group in corpus.groups[2:]]
    assert corpus.rated_aspects() == ("coherence",)


def test_it_stays_in_our_own_format(tmp_path: Path) -> None:
    path = tmp_path / "g.jsonl"
    path.write_text("".join(json.dumps(group_to_json(g)) + "\n" for g in chosen(2).groups))
    assert [g.sampling_probability for g in data.load(str(path), "summarization").groups[:3]] == [0.25, 0.25, None]
    assert "drawn" not in group_to_json(SAMPLE.groups[0])
    assert chosen(1).digest != SAMPLE.digest


def ids(groups: tuple[RatedGroup, ...]) -> set[str]:
    return {group.id for group in groups}


def test_a_split_holds_out_none_of_them() -> None:
    corpus = chosen(10)
    parts = split(corpus, aspects=ASPECTS, seed=0)
    assert parts.held_out.groups == parts.held_out.random_sample.groups
    assert len(parts.held_out.groups) == 10
    assert ids(parts.train.groups) | ids(parts.dev.groups) >= {g.id for g in corpus.groups[:10]}


def test_folds_tune_on_them_and_hold_out_the_others() -> None:
    corpus = chosen(8)
    folds = make_folds(corpus, aspects=ASPECTS, seed=0, count=4)
    held_out = [ids(part.held_out.groups) for part in folds.folds]
    assert set.union(*held_out) == ids(corpus.random_sample.groups)
    assert ids(folds.final.train.groups) | ids(folds.final.dev.groups) == ids(corpus.groups)
