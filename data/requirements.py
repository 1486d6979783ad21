"""Checks that a corpus has enough ratings to compile a judge on, or to compare scores with."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from debate_judge.data.errors import InputError
from debate_judge.data.schema import ALL, Corpus, Level

logger = logging.getLogger(__name__)

MIN_RATED = 20
"""Least number of rated candidates of an aspect to compile a judge for it. With 20, a correlation of .5 has the 95 %
interval .07 to .77 (Fisher's z); with 15 the interval contains 0, so that not even the sign would be known."""


def require_enough_rated(corpus: Corpus, aspects: Sequence[str]) -> None:
    """Raise `InputError` if an aspect has fewer than `MIN_RATED` rated candidates to compile a judge on."""
    for name in aspects:
        rated = sum(c.rating(name) is not None for group in corpus.groups for c in group.candidates)
        if rated < MIN_RATED:
            raise InputError(
                f"too few ratings of {name} to start: they are divided for tuning, choosing and measuring, and with "
                f"fewer than {MIN_RATED} not even the sign of a correlation of .5 is certain",
                file=corpus.origin.location,
                field=name,
                found=f"{rated} rated candidates in {len(corpus.groups)} sources",
                remedy=f"rate {MIN_RATED - rated} more candidates, preferably of new sources, or leave this aspect out "
                "with --aspects; a judge that was not compiled needs no ratings",
            )


def aspects_to_judge(corpus: Corpus, names: Sequence[str] = ()) -> tuple[str, ...]:
    """The aspects to judge, see `Corpus.select_aspects`; a warning names rated ones that the default leaves out.

    Raises:
        InputError: As `require_ratings`.
    """
    chosen = corpus.select_aspects(names)
    require_ratings(corpus, chosen)
    left_out = [name for name in corpus.rated_aspects() if name not in chosen]
    if left_out and not names:
        message = "%s: judging %s, as papers on this set do; --aspects %s adds %s"
        logger.warning(message, corpus.origin.name, ", ".join(chosen), ALL, ", ".join(left_out))
    return chosen


def require_ratings(corpus: Corpus, aspects: Sequence[str]) -> None:
    """Refuse a corpus whose ratings scores cannot be compared with.

    Raises:
        InputError: There is no aspect, or one is unknown to the task, has no rating, or has only equal ones.
    """
    if not aspects:
        raise InputError(
            "no candidate has a rating",
            file=corpus.origin.location,
            expected="ratings of " + ", ".join(aspect.name for aspect in corpus.task.aspects),
            remedy="see which columns are read with `debate check`, and name them with --columns ASPECT=COLUMN",
        )
    for name in aspects:
        corpus.task.aspect(name)
        values = {r for g in corpus.groups for r in g.ratings(name) if r is not None}
        if not values:
            rated = corpus.rated_aspects()
            raise InputError(
                f"no candidate has a rating of {name}",
                file=corpus.origin.location,
                field=name,
                found="ratings of " + ", ".join(rated) if rated else "no ratings at all",
                remedy=f'add "ratings": {{"{name}": …}} to candidates (CSV: a column {name}), or choose other aspects',
            )
        if len(values) == 1:
            raise InputError(
                f"all ratings of {name} are equal, so all judges agree with them to the same degree",
                file=corpus.origin.location,
                field=name,
                found=f"only {min(values):g}",
                remedy="add ratings that differ, or leave this aspect out",
            )


def require_level(corpus: Corpus, level: Level) -> None:
    """Refuse a level of agreement that is undefined for the corpus.

    Raises:
        InputError: Summary level without a group of several candidates, or system level where no two candidate
            ids occur in several groups.
    """
    if level == "summary" and not corpus.grouped:
        raise InputError(
            "summary-level agreement compares the candidates of one source, and every source here has only one",
            file=corpus.origin.location,
            remedy="choose the level sample, or give sources with several candidates",
        )
    if level == "system":
        id_counts = Counter(c.id for g in corpus.groups for c in g.candidates)
        if sum(count > 1 for count in id_counts.values()) < 2:
            raise InputError(
                "system-level agreement needs at least two candidate ids that occur in several groups",
                file=corpus.origin.location,
                field="candidates.id",
                found=f"{len(id_counts)} ids on {id_counts.total()} candidates",
                remedy="use the name of the system that wrote a candidate as its id, or choose the level sample",
            )
