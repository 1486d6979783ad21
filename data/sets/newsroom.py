"""Newsroom (Grusky et al. 2018): 60 news articles with 7 summaries each, rated by three people from 1 to 5.

Location: data/newsroom/newsroom.json in the GitHub repository dmg-illc/JUDGE-BENCH, a list `instances` in an object. It
has no licence, so it must not be redistributed. A record looks like this (made up):

    {"id": 1, "instance": "### Generated Summary\\n\\nelm has a plough .\\n\\n### Source Article\\n\\nThe town of …",
     "annotations": {"Informativeness": {"individual_human_scores": [4, 3, 5]}, "Relevance": …, "Fluency": …,
                     "Coherence": …}}

A group is an article, its candidates numbered in the order of the file. The raters were asked whether a summary has the
key points of the article (informativeness) and whether its details agree with it (relevance), which are our relevance
and consistency.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from debate_judge.data.files.ratings import ratings_in
from debate_judge.data.files.records import Record
from debate_judge.data.schema import Candidate, Corpus, RatedGroup, Task
from debate_judge.data.sets import hub
from debate_judge.data.tasks import SUMMARIZATION

REMOTE = hub.github(
    "dmg-illc/JUDGE-BENCH",
    "5a0bf500325029efb5dc8adff2c1e991996f0e78",
    "data/newsroom/newsroom.json",
    *("instance", "annotations"),
    field="instances",
)
ASPECTS = {"coherence": "coherence", "fluency": "fluency", "informativeness": "relevance", "relevance": "consistency"}
"""The raters' aspect -> ours."""
TASK = Task(
    name="newsroom",
    source_label=SUMMARIZATION.source_label,
    candidate_label=SUMMARIZATION.candidate_label,
    aspects=tuple(replace(SUMMARIZATION.aspect(ours), name=theirs) for theirs, ours in ASPECTS.items()),
)
_SUMMARY, _ARTICLE = "### Generated Summary", "### Source Article"


def load(path: str | Path | None = None) -> Corpus:
    """Load the set from a local copy, or download it."""
    records, origin = hub.read("newsroom", path, REMOTE)
    by_article: dict[str, list[Candidate]] = {}
    for record in records:
        article, summary, ratings = _parse(record)
        summaries = by_article.setdefault(article, [])
        summaries.append(Candidate(str(len(summaries) + 1), summary, ratings))
    groups = (
        RatedGroup(str(n), text, tuple(candidates)) for n, (text, candidates) in enumerate(by_article.items(), start=1)
    )
    return Corpus(TASK, tuple(groups), origin)


def _parse(record: Record) -> tuple[str, str, dict[str, tuple[float, ...]]]:
    instance = record.text("instance")
    before, separator, article = instance.partition(_ARTICLE)
    if not separator or _SUMMARY not in before:
        raise record.error("no summary with its article", "instance", expected=f"{_SUMMARY} and {_ARTICLE}")
    annotations = record.child("annotations")
    raters = {name: annotations.child(name.capitalize()) for name in ASPECTS}
    scores = {name: by_rater.value("individual_human_scores") for name, by_rater in raters.items()}
    ratings = ratings_in(replace(annotations, values=scores), TASK, ASPECTS)
    return article.strip(), before.partition(_SUMMARY)[2].strip(), ratings
