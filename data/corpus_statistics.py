"""Summary statistics of a corpus: groups, candidates, ratings by value, ties, raters, duplicates."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import comb
from statistics import median

from debate_judge.data.schema import Aspect, Corpus


@dataclass(frozen=True, slots=True)
class AspectStatistics:
    """The ratings of one aspect."""

    aspect: Aspect
    rated: int
    """Number of candidates with a rating."""
    missing: int
    """Number of candidates without one."""
    raters: tuple[int, int]
    """Fewest and most ratings of a rated candidate."""
    values: Counter[float]
    """Rating of a single rater -> its frequency."""
    pairs: int
    """Pairs of rated candidates within groups; pairs of any two where each group has one candidate."""
    tied: int
    """Pairs among these with equal mean ratings, which have no correct order."""

    @property
    def mean(self) -> float:
        return sum(value * count for value, count in self.values.items()) / max(1, self.values.total())


@dataclass(frozen=True, slots=True)
class CorpusStatistics:
    """Counts of a corpus."""

    groups: int
    candidates: int
    group_sizes: tuple[int, float, int]
    """Fewest, median and most candidates of a group."""
    sources: int
    """Number of different sources; groups without a source do not count."""
    contexts: int
    """Groups with a context."""
    references: int
    """Groups with a reference."""
    comments: int
    """Comments of raters."""
    repeated_texts: int
    """Candidates with the text of an earlier one in their group; in any group where there are no sources."""
    aspects: tuple[AspectStatistics, ...]


def corpus_statistics(corpus: Corpus) -> CorpusStatistics:
    """Count the contents of a corpus."""
    groups = corpus.groups
    sizes = [len(group.candidates) for group in groups]
    texts = [[candidate.text for candidate in group.candidates] for group in groups]
    if not any(group.source for group in groups):
        texts = [[text for of_group in texts for text in of_group]]
    return CorpusStatistics(
        groups=len(groups),
        candidates=sum(sizes),
        group_sizes=(min(sizes), median(sizes), max(sizes)),
        sources=len({group.source_key for group in groups if group.source}),
        contexts=sum(bool(group.context) for group in groups),
        references=sum(bool(group.references) for group in groups),
        comments=sum(len(written) for g in groups for c in g.candidates for written in c.comments.values()),
        repeated_texts=sum(len(of_group) - len(set(of_group)) for of_group in texts),
        aspects=tuple(_aspect_statistics(corpus, corpus.task.aspect(name)) for name in corpus.rated_aspects()),
    )


def _aspect_statistics(corpus: Corpus, aspect: Aspect) -> AspectStatistics:
    ratings = [c.ratings.get(aspect.name, ()) for g in corpus.groups for c in g.candidates]
    rated = [values for values in ratings if values]
    means = [[r for r in group.ratings(aspect.name) if r is not None] for group in corpus.groups]
    if not corpus.grouped:
        means = [[mean for of_group in means for mean in of_group]]
    return AspectStatistics(
        aspect,
        rated=len(rated),
        missing=len(ratings) - len(rated),
        raters=(min(map(len, rated)), max(map(len, rated))),
        values=Counter(value for values in rated for value in values),
        pairs=sum(comb(len(of_group), 2) for of_group in means),
        tied=sum(comb(count, 2) for of_group in means for count in Counter(of_group).values()),
    )
