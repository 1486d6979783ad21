"""Sampling of sources for rating: with known inclusion probabilities, stratified by clusters of sources.

Ratings of a source can tell two judges apart only if the judges rank its texts differently. So a source is sampled with
a probability that grows with the distance of the two rankings (sampling with probability proportional to size; as
active learning: Zrnic and Candes, Active statistical inference, 2024), plus a floor that leaves every source a chance.
The sampling is systematic, with the sources ordered by cluster (Madow 1949), so that each cluster gets its share, to
within about one source. Clusters are k-means of the sources' words.

An estimate for all sources has to weight each sampled source by 1 / probability. `tests/bench/next_sources.py`
measures what it saves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from debate_judge.data.agreement.correlations import Floats, mid_ranks
from debate_judge.data.agreement.results import GroupScores

FLOOR = 0.25
"""Share of the probability that is the same for all sources."""

_MAX_WORDS = 20_000
_MIN_BATCHED_TEXTS = 5_000
"""More texts than this are clustered by mini-batch k-means."""


def rank_distance(first: Sequence[GroupScores], second: Sequence[GroupScores]) -> Floats:
    """Root mean square difference of two judges' ranks of the texts of each source, from 0 to 1.

    Where each source has one text, ranks are those among all texts.

    Returns:
        Shape (sources,); 0 where fewer than two texts can be ranked.
    """
    width = max(len(group.scores) for group in first)
    tables = [
        np.array([[*g.scores, *[None] * (width - len(g.scores))] for g in groups], dtype=float)
        for groups in (first, second)
    ]
    missing = np.isnan(tables[0]) | np.isnan(tables[1])
    rows = [np.where(missing, np.nan, table) for table in tables]
    if width == 1:
        rows = [table.T for table in rows]
    last_rank = np.maximum((~np.isnan(rows[0])).sum(axis=1, keepdims=True) - 1, 1)
    squares = np.nan_to_num(((mid_ranks(rows[0]) - mid_ranks(rows[1])) / last_rank) ** 2)
    squares = squares.T if width == 1 else squares
    return np.asarray(np.sqrt(squares.sum(axis=1) / np.maximum((~missing).sum(axis=1), 1)))


def cluster_texts(texts: Sequence[str], count: int, seed: int = 0) -> NDArray[np.intp]:
    """The cluster of each text, a number below `count`: k-means of their words, weighted by TF-IDF."""
    from sklearn.cluster import KMeans, MiniBatchKMeans  # type: ignore[import-untyped]
    from sklearn.feature_extraction.text import TfidfVectorizer  # type: ignore[import-untyped]

    count = min(count, len(set(texts)))
    if count < 2:
        return np.zeros(len(texts), dtype=np.intp)
    # Single signs count as words, so that no text is without words.
    words = TfidfVectorizer(sublinear_tf=True, max_features=_MAX_WORDS, token_pattern=r"\w+|\S").fit_transform(texts)
    algorithm = MiniBatchKMeans if len(texts) > _MIN_BATCHED_TEXTS else KMeans
    return np.asarray(algorithm(n_clusters=count, n_init=1, random_state=seed).fit_predict(words), dtype=np.intp)


def inclusion_probabilities(priority: Floats, count: int, floor: float = FLOOR) -> Floats:
    """Inclusion probabilities of a sample of `count` sources: a floor, which is the same for all, plus a share
    proportional to priority, which is at least 0; at most 1."""
    mean = float(priority.mean())
    size = floor + (1 - floor) * priority / mean if mean > 0 else np.ones(len(priority))
    certain = np.zeros(len(priority), dtype=bool)
    while True:
        rest = size[~certain].sum()
        probabilities = np.where(certain, 1.0, size * (count - certain.sum()) / rest if rest > 0 else 0.0)
        exceeding = probabilities > 1
        if not exceeding.any():
            return np.asarray(probabilities)
        certain |= exceeding


def systematic_sample(probabilities: Floats, clusters: NDArray[np.intp], rng: np.random.Generator) -> list[int]:
    """Indices of a systematic sample in random order; its size is the sum of the probabilities.

    Args:
        probabilities: Shape (sources,), adding up to a whole number.
        clusters: Number of each source's cluster; clusters, and the sources in each, are put in random order.
        rng: Random generator.
    """
    shuffled = rng.permutation(len(clusters))
    order = shuffled[np.argsort(rng.permutation(clusters.max() + 1)[clusters[shuffled]], kind="stable")]
    ends = np.cumsum(probabilities[order])
    count = round(float(ends[-1]))
    indices = np.searchsorted(ends, np.arange(count) + rng.random(), side="right")
    return [int(i) for i in rng.permutation(order[np.minimum(indices, len(order) - 1)])]
