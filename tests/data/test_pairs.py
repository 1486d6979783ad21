"""Preferences between two texts: read as pairs, split by source, decided as win, tie or loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from debate_judge import data
from debate_judge.data.agreement.correlations import agreement_table, compare
from debate_judge.data.agreement.decisions import DecisionRule, evaluate_decisions, find_decision_rules
from debate_judge.data.agreement.figures import GroupScores
from debate_judge.data.corpus_statistics import corpus_statistics
from debate_judge.data.schema import Aspect, Corpus, Scale, Task
from debate_judge.data.splits import default_folds, split
from debate_judge.data.tasks import PAIRS
from debate_judge.data.testing import check_corpus
from tests.data.files_of_rows import separated, written

ROW = {"question": "Which river?", "response_a": "The Ash.", "response_b": "Water."}


def loaded(
    path: Path, *rows: dict[str, Any], task: Task = PAIRS, columns: tuple[str, ...] = ("source=question",)
) -> Corpus:
    return data.load(str(written(path / "pairs.jsonl", *rows)), task, columns)


@pytest.mark.parametrize(
    ("verdict", "first"),
    [
        *(("A", 1), ("b", 0), ("response_a", 1), ("model_b", 0), ("Tie (both bad)", 0.5)),
        *(("equal", 0.5), ("Response B is better", 0), ("GPT", 1)),
    ],
)
def test_the_better_text_has_1_and_in_a_tie_both_have_a_half(tmp_path: Path, verdict: object, first: float) -> None:
    row = ROW | {"model_a": "gpt", "model_b": "claude", "winner": verdict}
    corpus = loaded(tmp_path, row)
    check_corpus(corpus, loaded(tmp_path, row))
    (group,) = corpus.groups
    assert (group.source, [c.text for c in group.candidates]) == ("Which river?", ["The Ash.", "Water."])
    assert [c.id for c in group.candidates] == ["response_a", "response_b"]
    assert group.ratings("preference") == [first, 1 - first]


def test_a_model_may_be_called_by_a_number(tmp_path: Path) -> None:
    rows = (["question", *("response_a", "response_b", "model_a", "model_b", "winner")], ["Which?", *"XY", 7, 12, 12])
    table = data.load(str(separated(tmp_path / "a.csv", rows, ",")), PAIRS, ("source=question",))
    nested = loaded(tmp_path, ROW | {"model_a": "7", "model_b": 12, "winner": 12})
    assert [corpus.groups[0].ratings("preference") for corpus in (table, nested)] == [[0, 1], [0, 1]]


def test_several_raters_have_a_column_a_list_or_a_row_each(tmp_path: Path) -> None:
    columns = loaded(tmp_path, ROW | {"winner_anna": "A", "winner_ben": "tie", "winner_cleo": None})
    listed = loaded(tmp_path, ROW | {"winner": ["A", "tie"]})
    rows = [ROW | {"winner": verdict, "rater": who} for verdict, who in (("A", "anna"), ("tie", "ben"))]
    for corpus in (columns, listed, loaded(tmp_path, *rows)):
        (group,) = corpus.groups
        assert [c.ratings["preference"] for c in group.candidates] == [(1.0, 0.5), (0.0, 0.5)]


@pytest.mark.parametrize(("codes", "first"), [("0:tie+1:a+2:b", [0.5, 1, 0]), ("0:a+1:b+2:tie", [1, 0, 0.5])])
def test_codes_are_said(tmp_path: Path, codes: str, first: list[float]) -> None:
    rows = [ROW | {"question": f"Which {mark}?", "winner": mark} for mark in (0, 1, 2)]
    corpus = loaded(tmp_path, *rows, columns=("source=question", f"codes={codes}"))
    assert [g.ratings("preference")[0] for g in corpus.groups] == first


@pytest.mark.parametrize(
    ("name", "value", "first"), [("strength", 0.5, 0.75), ("annotation_date", "2026-01-02", 1.0), ("votes_a", 1, 1.0)]
)
def test_strength_moves_the_two_apart_and_a_column_with_other_values_is_no_verdict(
    tmp_path: Path, name: str, value: object, first: float
) -> None:
    corpus = loaded(tmp_path, ROW | {"winner": "A", name: value})
    assert corpus.groups[0].candidates[0].ratings["preference"] == (first,)


def test_a_pair_in_the_other_order_is_the_same_pair(tmp_path: Path) -> None:
    swapped = ROW | {"response_a": ROW["response_b"], "response_b": ROW["response_a"]}
    rows = [ROW | {"winner": "A", "annotator": "anna"}, swapped | {"winner": "B", "annotator": "ben"}]
    (group,) = loaded(tmp_path, *rows).groups
    assert [(c.text, c.ratings["preference"]) for c in group.candidates] == [
        ("The Ash.", (1.0, 1.0)),
        ("Water.", (0.0, 0.0)),
    ]


def test_aspects_have_verdicts_of_their_own(tmp_path: Path) -> None:
    task = Task("replies", "question", "reply", tuple(Aspect(n, "?", Scale(0, 1, 0.5)) for n in ("tone", "help")))
    rows = [ROW | {"aspect": "tone", "winner": "A"}, ROW | {"aspect": "help", "winner": "B"}]
    renamed = [{("criterion" if k == "aspect" else k): v for k, v in row.items()} for row in rows]
    for corpus in (
        loaded(tmp_path, *rows, task=task),
        loaded(tmp_path, *renamed, task=task, columns=("source=question", "aspect=criterion")),
        loaded(tmp_path, ROW | {"tone_winner": "A", "help_winner": "B"}, task=task),
    ):
        assert [corpus.groups[0].ratings(name) for name in ("tone", "help")] == [[1, 0], [0, 1]]


def test_of_a_conversation_the_last_message_is_the_text(tmp_path: Path) -> None:
    def turns(text: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": "Which?"}, {"role": "assistant", "content": text}]

    pair = {"chosen": turns("Good."), "rejected": turns("Bad.")}
    for question in ({"question": "Which?"}, {"question": [{"role": "user", "content": "Which?"}]}, {}):
        columns = ("source=question",) if question else ()
        (group,) = loaded(tmp_path, {**question, **pair}, columns=columns).groups
        assert group.source == "Which?"
        assert {(c.text, c.rating("preference")) for c in group.candidates} == {("Good.", 1), ("Bad.", 0)}
    pair["rejected"].insert(0, {"role": "system", "content": "Be brief."})
    (group,) = loaded(tmp_path, pair, columns=()).groups
    texts = {"user: Which?\nassistant: Good.", "system: Be brief.\nuser: Which?\nassistant: Bad."}
    assert (group.source, {c.text for c in group.candidates}) == ("", texts)


def test_what_was_chosen_needs_no_verdict_and_does_not_always_come_first(tmp_path: Path) -> None:
    rows = [{"question": f"Which {n}?", "chosen": f"Good {n}.", "rejected": f"Bad {n}."} for n in range(20)]
    groups = loaded(tmp_path, *rows).groups
    assert {tuple(group.ratings("preference")) for group in groups} == {(1, 0), (0, 1)}
    assert all(c.text.startswith("Good") == (c.rating("preference") == 1) for g in groups for c in g.candidates)


def test_several_pairs_of_a_source_stay_on_one_side_of_a_split(tmp_path: Path) -> None:
    rows = [
        {
            "question": f"Which {q}?",
            "response_a": f"Good {q} {n}.",
            "response_b": f"Bad {q} {n}.",
            "winner": "AB"[n % 2],
        }
        for q in ("river", "hill", "wood", "lake", "town", "road")
        for n in range(6)
    ]
    corpus = loaded(tmp_path, *rows)
    check_corpus(corpus)
    assert len(corpus.groups) == 36
    parts = split(corpus, aspects=["preference"], seed=0)
    sources = [{group.source for group in part.groups} for part in (parts.train, parts.dev, parts.held_out)]
    assert sum(map(len, sources)) == 6
    # What is said of sources counts sources, and pairs of one are not near-duplicates.
    assert (corpus.sources, corpus_statistics(corpus).sources, parts.held_out.sources) == (6, 6, len(sources[2]))
    assert parts.joined
    assert not parts.near_duplicates_note()
    assert default_folds(corpus) == 6
    # Without a tie the ratings are 0 and 1, and still no yes and no.
    assert find_decision_rules(corpus.groups, PAIRS.aspects)["preference"].kind == "pairs"
    # The same pair again is another rating of it.
    again = loaded(tmp_path, *rows, rows[0]).groups[0].candidates
    assert [c.ratings["preference"] for c in again] == [(1.0, 1.0), (0.0, 0.0)]


def test_intervals_of_pairs_are_those_of_their_sources() -> None:
    """Ten sources with eight pairs each, of which a judge gets all right or all wrong."""

    def scores(right: str, source: str) -> list[GroupScores]:
        return [
            GroupScores(
                f"{q}-{n}", ("1", "2"), (1.0, 0.0), (5.0, 1.0) if w == "1" else (1.0, 5.0), (), source.format(q)
            )
            for q, w in enumerate(right)
            for n in range(8)
        ]

    judge, other = "1111111011", "0110111010"
    apart, together = ({"preference": scores(judge, source)} for source in ("", "source {}"))
    decision_rules = {"preference": DecisionRule("pairs")}
    widths = []
    for groups, by in ((apart, ""), (together, "source {}")):
        decided = evaluate_decisions(groups, decision_rules)["preference"]
        accuracy, table = decided.measures["accuracy"], agreement_table(groups).average
        difference = compare(groups, {"preference": scores(other, by)})
        assert decided.sources == difference.groups == (10 if by else 80)
        spans = [accuracy, *(table[level]["pearson"] for level in ("summary", "sample")), difference]
        widths.append([(estimate.high or 0) - (estimate.low or 0) for estimate in spans])
        assert accuracy.value == 0.9
    # Equal pairs of a source say no more than one of them; the root of 8 is 2.8.
    assert (np.array(widths[1]) / widths[0] > 2.5).all()
