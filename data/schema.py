"""The data types that all other modules share: scale, aspect, task, candidate, group, corpus.

No file is read here and no LM is called. Invariants are checked on construction.
"""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from debate_judge.data.errors import InputError, did_you_mean

Granularity = Literal["given", "half", "whole"]
"""How a final score is rounded: not at all, to half steps, or to whole steps of the scale."""

GRANULARITIES: tuple[Granularity, ...] = ("given", "half", "whole")

ROUNDING_ERROR = 1e-9
"""Smaller differences of numbers around 1 are rounding errors, e.g. of 0.3 - 0.1 and 0.2."""

ALL = "all"
"""The value of `--aspects` that selects every rated aspect."""

Level = Literal["summary", "sample", "system"]
"""What a correlation is over: the candidates of each group, averaged over groups; all candidates; system means."""


_INVISIBLE = {*"\u034f\u115f\u1160\u2800\u3164\uffa0", *map(chr, range(0xFE00, 0xFE10))}
"""Fillers and selectors, which Unicode counts among letters, symbols and marks."""


def is_visible(text: str) -> bool:
    """Whether a text has a visible character: neither a space, nor a control character, nor one of no width."""
    if text[:1].isascii() and text[:1].isalnum():  # Nearly every text; it is asked of each cell of a table.
        return True
    return any(c not in _INVISIBLE and unicodedata.category(c) not in ("Zs", "Zl", "Zp", "Cc", "Cf") for c in text)


@dataclass(frozen=True, slots=True)
class Scale:
    """A range of values with a step. Values outside are errors and never clamped.

    The step is the unit of the granularities `half` and `whole`. With `on_steps`, which is set for task files that
    state a step, a judge's final scores are whole or half steps. Without it they may be any number on the scale, and a
    compile searches for the best granularity. Ratings may always lie between two steps, as means over raters do.
    """

    low: float
    high: float
    step: float = 1.0
    on_steps: bool = False
    """Whether final scores are rounded to whole steps, or to half steps where the granularity is `half`."""

    def __post_init__(self) -> None:
        if not all(math.isfinite(v) for v in (self.low, self.high, self.step)):
            raise InputError("a scale needs finite numbers", found=(self.low, self.high, self.step))
        if self.low >= self.high or not 0 < self.step <= (self.high - self.low) * (1 + ROUNDING_ERROR):
            raise InputError(
                "not a scale",
                expected="low < high and 0 < step <= high - low",
                found=f"low={self.low:.15g}, high={self.high:.15g}, step={self.step:.15g}",
            )

    def contains(self, value: float) -> bool:
        return math.isfinite(value) and self.low <= value <= self.high

    @property
    def binary(self) -> bool:
        """Whether the scale has two values only, so that yes and no are ratings on it."""
        return math.isclose(self.step, self.high - self.low, rel_tol=ROUNDING_ERROR)

    def rounded(self, value: float, granularity: Granularity) -> float:
        """`value` rounded to the granularity; halves are rounded up, but not beyond the scale."""
        if granularity == "given":
            return value
        unit = self.step / 2 if granularity == "half" else self.step
        snapped = self.low + unit * math.floor((value - self.low) / unit + 0.5)
        return min(snapped, self.high)

    def __str__(self) -> str:
        return f"{self.low:.15g} to {self.high:.15g}"


@dataclass(frozen=True, slots=True)
class Aspect:
    """A quality that is rated, e.g. coherence."""

    name: str
    definition: str
    scale: Scale
    source: bool = True
    """Whether prompts contain the source and its context; fluency, for example, can be judged without."""

    def __post_init__(self) -> None:
        if not self.name.strip() or not self.definition.strip():
            raise InputError("an aspect needs a name and a definition", found=self.name)


@dataclass(frozen=True, slots=True)
class Task:
    """What is judged: how prompts call the texts, and the aspects with their rubrics."""

    name: str
    source_label: str
    candidate_label: str
    aspects: tuple[Aspect, ...]
    context_label: str = "background"
    columns: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The mapping of columns, as `data.files.columns.ColumnNames` reads it, from a task file or the compile's data."""

    def __post_init__(self) -> None:
        names = [a.name for a in self.aspects]
        if not names or len(set(names)) != len(names):
            raise InputError(f"task {self.name!r} needs at least one aspect, each with its own name", found=names)

    def aspect(self, name: str) -> Aspect:
        """The aspect with this name.

        Raises:
            InputError: There is none.
        """
        by_name = {aspect.name: aspect for aspect in self.aspects}
        if name not in by_name:
            raise InputError(
                f"the task {self.name!r} has no aspect {name!r}",
                field="aspects",
                expected="one of " + ", ".join(by_name),
                found=name,
                remedy=did_you_mean(name, by_name) or "describe it in a task file (docs/your-data.md, 'Your own task')",
            )
        return by_name[name]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One output for a source, with the ratings of all raters; judges are compared with their mean."""

    id: str
    text: str
    ratings: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Aspect name -> one value per rater, in the file's order."""
    comments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Aspect name -> what raters wrote about their ratings; read by tuners, never by judges."""
    row: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    """All columns of the input in their order, if the reader keeps them (`keep_columns`)."""

    def rating(self, aspect: str) -> float | None:
        """The mean over raters, or None without a rating of this aspect."""
        values = self.ratings.get(aspect)
        return math.fsum(values) / len(values) if values else None


@dataclass(frozen=True, slots=True)
class RatedGroup:
    """A source with its candidates; candidates are ranked within their group."""

    id: str
    source: str
    """The input that the candidates were written for; empty where texts have none."""
    candidates: tuple[Candidate, ...]
    context: str = ""
    references: tuple[str, ...] = ()
    category: str = ""
    """The kind of source, where a public set has kinds."""

    def __post_init__(self) -> None:
        if not self.candidates:
            raise InputError(f"group {self.id!r} has no candidates")
        ids = [c.id for c in self.candidates]
        if len(set(ids)) != len(ids):
            twice = next(i for i in ids if ids.count(i) > 1)
            raise InputError(f"group {self.id!r} has two candidates with the id {twice!r}", field="candidates.id")

    @property
    def source_key(self) -> str:
        """The source text with single spaces: groups with equal keys have the same source.

        A group without a source has a unique key of its id and texts.
        """
        return " ".join(self.source.split()) or f"{self.id}\n{self.all_texts}"

    @property
    def source_id(self) -> str:
        """A hash of `source_key`."""
        return fingerprint(self.source_key)

    @property
    def all_texts(self) -> str:
        """All candidates' texts, joined by line breaks."""
        return "\n".join(candidate.text for candidate in self.candidates)

    def ratings(self, aspect: str) -> list[float | None]:
        """Mean human ratings in candidate order, shape (candidates,)."""
        return [c.rating(aspect) for c in self.candidates]

    def is_pair(self, aspect: Aspect) -> bool:
        """Whether the ratings are the outcome of a comparison of two candidates: loss 0, tie 0.5, win 1."""
        scale, rated = aspect.scale, [rating for rating in self.ratings(aspect.name) if rating is not None]
        outcomes = (scale.low, scale.high, scale.step) == (0, 1, 0.5)
        return outcomes and len(self.candidates) == len(rated) == 2 and math.isclose(sum(rated), 1)

    def has_distinct_ratings(self, aspect: str) -> bool:
        """Whether at least two candidates have different mean ratings, so that a correlation can exist."""
        return len({r for r in self.ratings(aspect) if r is not None}) > 1


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a corpus came from, precise enough to load it again."""

    name: str
    location: str
    revision: str = ""


@dataclass(frozen=True, slots=True)
class Corpus:
    """All groups of one task."""

    task: Task
    groups: tuple[RatedGroup, ...]
    origin: Origin
    reported_aspects: tuple[str, ...] = ()
    """The aspects that papers on a public set report; empty if they report all."""

    @property
    def grouped(self) -> bool:
        """Whether some group has several candidates; otherwise only sample-level agreement is defined."""
        return any(len(g.candidates) > 1 for g in self.groups)

    @property
    def sources(self) -> int:
        """Number of different sources; fewer than groups where a source has several pairs."""
        return len({group.source_key for group in self.groups})

    @property
    def digest(self) -> str:
        """Hash of all texts, ratings and comments; equal content gives equal digests in any process."""
        return fingerprint(group_to_json(g) for g in self.groups)

    def rated_aspects(self) -> tuple[str, ...]:
        """The aspects for which at least one candidate has a rating, in the task's order."""
        seen = {name for g in self.groups for c in g.candidates for name, values in c.ratings.items() if values}
        return tuple(a.name for a in self.task.aspects if a.name in seen)

    def select_aspects(self, names: Sequence[str] = ()) -> tuple[str, ...]:
        """The aspects to judge.

        Args:
            names: Aspects, or `ALL` alone for all rated ones. Empty: those that papers on a public set report, for
                other data all rated ones.
        """
        rated = self.rated_aspects()
        if tuple(names) == (ALL,) and ALL not in rated:
            return rated
        return tuple(dict.fromkeys(names)) or tuple(a for a in rated if a in self.reported_aspects) or rated


def group_to_json(group: RatedGroup) -> dict[str, object]:
    """The group as an object of the project's JSONL format."""
    return {
        "group": group.id,
        "source": group.source,
        "context": group.context,
        "references": list(group.references),
        **({"category": group.category} if group.category else {}),
        "candidates": [_candidate_to_json(c) for c in group.candidates],
    }


def _candidate_to_json(candidate: Candidate) -> dict[str, object]:
    record: dict[str, object] = {"id": candidate.id, "text": candidate.text}
    record["ratings"] = {aspect: list(values) for aspect, values in candidate.ratings.items()}
    if candidate.comments:
        record["comments"] = {aspect: list(texts) for aspect, texts in candidate.comments.items()}
    return record


def fingerprint(values: Iterator[object] | object) -> str:
    """A short hash of JSON values; independent of process, platform and hash seed."""
    if isinstance(values, Iterator):
        values = list(values)
    text = json.dumps(values, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
