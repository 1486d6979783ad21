"""Figures of the offline LM on the rated sources on which its features were chosen.

They show that nothing broke, not how well it does elsewhere.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau, pearsonr, spearmanr

from debate_judge.data.schema import Aspect, Corpus
from debate_judge.data.sets import summeval, topical_chat
from debate_judge.programs.debate.speakers import Scoring, TieBreaking
from debate_judge.programs.judge import items_of
from debate_judge.programs.offline.engine import OfflineEngine
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.role import material
from tests.programs.prompts import ADAPTER

SHARED = Path(os.environ.get("DEBATE_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))

ENGINE = OfflineEngine()

Scores = list[tuple[list[float], list[float | None]]]
"""Of each group in which the raters make a difference: the judge's scores and the mean ratings."""


def scores(corpus: Corpus, aspect: Aspect, signature: Any) -> Scores:
    """One reply an item: the Scorer's first look, or the Tie-breaker, who knows all evidence."""
    name = [*signature.output_fields][-1]

    def score(inputs: dict[str, str]) -> float:
        messages = ADAPTER.format(signature, [], inputs)
        found = replies.sections(ENGINE.answer(messages[0]["content"], messages[-1]["content"], {}).text, [name])
        assert not isinstance(found, replies.Unreadable)
        return float(found[name])

    return [
        ([score(material(item, "")) for item in items_of(corpus.task, group, aspect)], group.ratings(aspect.name))
        for group in corpus.groups
        if group.ranks_humans(aspect.name)
    ]


def mean_agreement(by_aspect: list[Scores], statistic: Any) -> float:
    """Summary-level correlation, averaged over the aspects; constant scores count as 0."""

    def correlation(judged: list[float], rated: list[float | None]) -> float:
        return float(statistic(judged, rated).statistic) if len(set(judged)) > 1 else 0.0

    return float(np.mean([np.mean([correlation(*group) for group in groups]) for groups in by_aspect]))


@pytest.mark.parametrize(
    ("file", "load", "statistics", "least", "single_at_most"),
    [
        ("summeval.jsonl", summeval.load, (spearmanr, kendalltau), (0.44, 0.36), (0.33, 0.29)),
        ("topical_chat.json", topical_chat.load, (pearsonr, spearmanr), (0.69, 0.65), (0.63, 0.60)),
    ],
)
def test_agreement_with_human_raters(file: str, load: Any, statistics: Any, least: Any, single_at_most: Any) -> None:
    if not (SHARED / file).exists():
        pytest.skip(f"{SHARED / file} is absent")
    corpus = load(SHARED / file)
    rated = corpus.task.aspects[:4]
    final, single = ([scores(corpus, aspect, s) for aspect in rated] for s in (TieBreaking, Scoring))
    for statistic, low, high in zip(statistics, least, single_at_most, strict=True):
        assert mean_agreement(final, statistic) > low
        assert mean_agreement(single, statistic) < high
