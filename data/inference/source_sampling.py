"""Sampling of sources for rating: with known inclusion probabilities, stratified by clusters of sources.

Where two judges rank the texts of a source alike, its ratings cannot tell them apart; where they do not, they can. So a
source is drawn with a probability that grows with the distance of the two rankings (sampling with probability
proportional to size; for models that learn: Zrnic and Candes, Active statistical inference, 2024), over a floor that
leaves every source a chance. The sampling is systematic, with the sources ordered by cluster (Madow 1949), so
that each cluster gets its share, to within about one source. Clusters are k-means of the sources' words.

Such a sample says something about all sources only if each counts 1 / probability. `tests/bench/next_sources.py`
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
"""From so many sources on, clusters are found from batches of them."""


def rank_distance(first: Sequence[GroupScores], second: Sequence[GroupScores]) -> Floats:
    """How differently two judges rank the texts of each source: root mean square difference of ranks, from 0 to 1.

    Where each source has one text, ranks are those among all texts.

    Args:
        first: A judge's scores of one aspect.
        second: Another one's of the same texts.

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
    scored = (~np.isnan(rows[0])).sum(axis=1, keepdims=True)
    ranks = [mid_ranks(table) / np.maximum(scored - 1, 1) for table in rows]
    squares = np.nan_to_num((ranks[0] - ranks[1]) ** 2)
    squares = squares.T if width == 1 else squares
    return np.asarray(np.sqrt(squares.sum(axis=1) / np.maximum((~missing).sum(axis=1), 1)))


def cluster_texts(texts: Sequence[str], count: int, seed: int = 0) -> NDArray[np.intp]:
    """The cluster of each text, a number below `count`: k-means of their words, weighted by TF-IDF."""
    from sklearn.cluster import KMeans, MiniBatchKMeans  # type: ignore[import-untyped]
    from sklearn.feature_extraction.text import TfidfVectorizer  # type: ignore[import-untyped]

    count = min(count, len(set(texts)))
    if count < 2:
        return np.zeros(len(texts), dtype=np.intp)
    # Signs alone are words, too, so that no text is without any.
    words = TfidfVectorizer(sublinear_tf=True, max_features=_MAX_WORDS, token_pattern=r"\w+|\S").fit_transform(texts)
    algorithm = MiniBatchKMeans if len(texts) > _MIN_BATCHED_TEXTS else KMeans
    return np.asarray(algorithm(n_clusters=count, n_init=1, random_state=seed).fit_predict(words), dtype=np.intp)


def inclusion_probabilities(priority: Floats, count: int, floor: float = FLOOR) -> Floats:
    """The probability of each source to be among `count`, proportional to its priority over a floor; at most 1.

    Args:
        priority: At least 0, shape (sources,).
        count: Sources to draw, at most as many as there are.
        floor: Share of the probability that is the same for all.
    """
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
    """The places of a systematic sample, in random order: as many sources as the probabilities add up to.

    Args:
        probabilities: Shape (sources,), adding up to a whole number.
        kinds: Number of each source's kind; kinds and the sources of each are put in random order.
        rng: Of the draw.
    """
    shuffled = rng.permutation(len(clusters))
    order = shuffled[np.argsort(rng.permutation(clusters.max() + 1)[clusters[shuffled]], kind="stable")]
    ends = np.cumsum(probabilities[order])
    count = round(float(ends[-1]))
    indices = np.searchsorted(ends, np.arange(count) + rng.random(), side="right")
    return [int(i) for i in rng.permutation(order[np.minimum(indices, len(order) - 1)])]
