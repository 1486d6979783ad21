"""What a corpus holds, counted: groups, candidates, ratings by value, ties, raters, duplicates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from debate_judge.data.near_duplicates import near_duplicates
from debate_judge.data.schema import Aspect, Corpus


@dataclass(frozen=True, slots=True)
class AspectInventory:
    """The ratings of one aspect."""

    aspect: Aspect
    rated: int
    """Candidates with at least one rating."""
    missing: int
    """Candidates without any."""
    raters: tuple[int, int]
    """Fewest and most ratings of a rated candidate."""
    values: Counter[float]
    """Rating of one rater -> how often it was given."""
    pairs: int
    """Pairs of rated candidates of one group, or, without groups of several candidates, of the whole corpus."""
    tied: int
    """Of these, pairs with equal mean ratings: no judge can rank them rightly or wrongly."""
    ranked_groups: int
    """Groups with candidates of different mean ratings, which agreement within groups rests on."""

    @property
    def mean(self) -> float:
        return sum(value * count for value, count in self.values.items()) / max(1, self.values.total())


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a corpus holds."""

    groups: int
    candidates: int
    per_group: tuple[int, float, int]
    """Fewest, median and most candidates of a group."""
    sources: int
    """Groups with a source."""
    contexts: int
    references: int
    """Groups with them."""
    comments: int
    """Texts that raters wrote."""
    repeated: int
    """Candidates whose text another candidate of their group, or where texts stand alone any other, has before them."""
    near_duplicates: tuple[int, int]
    """Groups whose sources are nearly those of others, and the sets that they make."""
    aspects: tuple[AspectInventory, ...]


def inventory(corpus: Corpus) -> Inventory:
    """Count what a corpus holds."""
    sizes = [len(group.candidates) for group in corpus.groups]
    joined = near_duplicates(corpus.groups)
    return Inventory(
        groups=len(corpus.groups),
        candidates=sum(sizes),
        per_group=(min(sizes), median(sizes), max(sizes)),
        sources=sum(bool(group.source) for group in corpus.groups),
        contexts=sum(bool(group.context) for group in corpus.groups),
        references=sum(bool(group.references) for group in corpus.groups),
        comments=sum(len(texts) for g in corpus.groups for c in g.candidates for texts in c.comments.values()),
        repeated=_repeated(corpus),
        near_duplicates=(sum(map(len, joined)), len(joined)),
        aspects=tuple(_of_aspect(corpus, corpus.task.aspect(name)) for name in corpus.rated_aspects()),
    )


def _of_aspect(corpus: Corpus, aspect: Aspect) -> AspectInventory:
    raters = [c.ratings.get(aspect.name, ()) for g in corpus.groups for c in g.candidates]
    rated = [values for values in raters if values]
    means = [[r for r in group.ratings(aspect.name) if r is not None] for group in corpus.groups]
    if not corpus.grouped:
        means = [[mean for of_group in means for mean in of_group]]
    return AspectInventory(
        aspect,
        rated=len(rated),
        missing=len(raters) - len(rated),
        raters=(min(map(len, rated)), max(map(len, rated))),
        values=Counter(value for values in rated for value in values),
        pairs=sum(_pairs(len(of_group)) for of_group in means),
        tied=sum(_pairs(count) for of_group in means for count in Counter(of_group).values()),
        ranked_groups=sum(group.ranks_humans(aspect.name) for group in corpus.groups),
    )


def _pairs(count: int) -> int:
    return count * (count - 1) // 2


def _repeated(corpus: Corpus) -> int:
    alone = all(not group.source for group in corpus.groups)
    texts: Iterable[list[str]] = ([c.text for c in group.candidates] for group in corpus.groups)
    if alone:
        texts = [[text for of_group in texts for text in of_group]]
    return sum(len(of_group) - len(set(of_group)) for of_group in texts)
