"""What the offline LM measures on a candidate that was made from a source, such as a summary."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from debate_judge.programs.offline.readings import text as tools
from debate_judge.programs.offline.readings.text import Text
from debate_judge.programs.offline.readings.words import STOP


class Measurement(NamedTuple):
    """One measurement: its value, and the place in the text that explains it (may be empty)."""

    value: float | None
    """None if there is nothing to measure, e.g. the use of a fact that was not given."""
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class _Source:
    """A source, prepared once for all its candidates."""

    text: Text
    windows: tuple[frozenset[str], ...]
    """Content of each pair of adjacent sentences."""
    places: dict[str, list[int]]
    """Word -> its positions."""
    pairs: frozenset[tuple[str, str]]
    ends: frozenset[tuple[str, ...]]
    """The last two words of each sentence."""
    weight: dict[str, float]
    """Content stem -> salience: its occurrences, each discounted by how late its sentence comes."""
    norm: float
    numbers: frozenset[str]


DECAY = 0.25
"""How much less a word counts with each sentence that comes before it."""


@lru_cache(maxsize=128)
def _prepare(source: str) -> _Source:
    text = tools.read(source)
    weight: dict[str, float] = {}
    for i, content in enumerate(text.content):
        for c in content:
            weight[c] = weight.get(c, 0.0) + 1 / (1 + DECAY * i)
    places: dict[str, list[int]] = {}
    for i, word in enumerate(text.all_words):
        places.setdefault(word, []).append(i)
    following = (*text.sets[1:], frozenset())
    return _Source(
        text,
        tuple(a | b for a, b in zip(text.sets, following, strict=bool(text.sets))),
        places,
        frozenset(p for ws in text.words for p in tools.pairs(ws)),
        frozenset(ws[-2:] for ws in text.words),
        weight,
        math.sqrt(math.fsum(v * v for v in weight.values())) or 1.0,
        tools.values(source),
    )


@lru_cache(maxsize=2048)
def readings(source: str, candidate: str) -> dict[str, Measurement]:
    """Measure a candidate against its source. The names are those of `offline_rubric.FEATURES`."""
    prepared, text = _prepare(source), tools.read(candidate)
    if not text.sentences:
        return dict(EMPTY)
    return {
        **_copying(prepared, text),
        **_order(prepared, text),
        **_repetition(text),
        **_salience(prepared, text),
        **_form(prepared, text),
    }


EMPTY = {
    "whole": Measurement(0.0), "joints": Measurement(1.0), "fragments": Measurement(99.0), "numbers": Measurement(0.0),
    "order": Measurement(0.0), "opening": Measurement(0.0), "repeats": Measurement(1.0), "overlap": Measurement(1.0),
    "echoes": Measurement(1.0), "topic": Measurement(0.0), "cuts": Measurement(9.0),
    "shortest": Measurement(0.0), "slips": Measurement(9.0), "unfinished": Measurement(1.0),
}  # fmt: skip
"""The readings of an empty candidate: the worst ones."""


def _copying(source: _Source, text: Text) -> dict[str, Measurement]:
    """How closely the words follow the source, as a measure of faithfulness."""
    unknown = [c for c in text.distinct if c not in source.text.vocabulary]
    passage = [_best_window(source, content) for content in text.content]
    kept, whole = _alignment(source, text)
    grams = [p for ws in text.words for p in tools.pairs(ws)]
    joints = [p for p in grams if p not in source.pairs and p[0] in source.places and p[1] in source.places]
    cut = [tools.pieces(ws, source.text.all_words, source.places) - 1 for ws in text.words]
    numbers = [n for n in tools.digits(text.raw) if n not in source.numbers]
    found = sum(c in source.text.vocabulary for c in text.all_content)
    return {
        "support": Measurement(_share(found, len(text.all_content), 1.0), ", ".join(unknown[:3])),
        "passage": Measurement(_mean(passage), _at_worst(text, passage)),
        "wording": Measurement(min(kept), _at_worst(text, kept)),
        "whole": Measurement(_mean(whole), _at_worst(text, whole)),
        "joints": Measurement(_share(len(joints), len(grams), 0.0), " ".join(joints[0]) if joints else ""),
        "fragments": Measurement(float(sum(cut)), _at_worst(text, [-c for c in cut])),
        "numbers": Measurement(float(len(numbers)), ", ".join(numbers[:3])),
    }


def _best_window(source: _Source, content: tuple[str, ...]) -> float:
    if not content:
        return 1.0
    return max((sum(c in window for c in content) for window in source.windows), default=0) / len(content)


def _alignment(source: _Source, text: Text) -> tuple[list[float], list[float]]:
    """Per sentence, over the source's sentences: most of its words, and of both sentences' words, kept in order."""
    kept, whole = [], []
    for ws in text.words:
        common = tools.common_subsequences(ws, source.text.words)
        kept.append(max(common, default=0) / len(ws))
        both = zip(common, source.text.words, strict=True)
        whole.append(max((2 * n / (len(ws) + len(other)) for n, other in both), default=0.0))
    return kept, whole


def _order(source: _Source, text: Text) -> dict[str, Measurement]:
    """Whether the sentences come in the order of the source: Kendall's tau of their places."""
    places = []
    for content in text.sets:
        shared = [len(content & other) for other in source.text.sets]
        places.append(shared.index(max(shared)) if shared else 0)
    steps = [(b > a) - (b < a) for i, a in enumerate(places) for b in places[i + 1 :]]
    back = next((i + 1 for i, (a, b) in enumerate(pairwise(places)) if b < a), 0)
    return {"order": Measurement(_share(sum(steps), len(steps), 1.0), _quote(text.sentences[back]) if back else "")}


def _repetition(text: Text) -> dict[str, Measurement]:
    grams = [p for ws in text.words for p in tools.pairs(ws) if not (p[0] in STOP and p[1] in STOP)]
    twice = next((p for p, n in Counter(grams).items() if n > 1), ())
    overlap, second = 0.0, ""
    for i, a in enumerate(text.sets):
        for j, b in enumerate(text.sets[i + 1 :], i + 1):
            share = _share(len(a & b), min(len(a), len(b)), 0.0)
            if share > overlap:
                overlap, second = share, _quote(text.sentences[j])
    echoes = [_share(len(c) - len(set(c)), len(c), 0.0) for c in text.content]
    return {
        "repeats": Measurement(tools.repeated_share(grams), " ".join(twice)),
        "overlap": Measurement(overlap, second),
        "echoes": Measurement(max(echoes), _at_worst(text, [-e for e in echoes])),
    }


def _salience(source: _Source, text: Text) -> dict[str, Measurement]:
    """Whether the words that matter most in the source are there: cosines with its salience."""
    counts = Counter(text.all_content)
    length = math.sqrt(sum(n * n for n in counts.values())) or 1.0
    topic = math.fsum(n * source.weight.get(c, 0.0) for c, n in counts.items()) / (length * source.norm)
    first = tuple(dict.fromkeys(text.content[0]))
    opening = math.fsum(source.weight.get(c, 0.0) for c in first) / (math.sqrt(len(first) or 1) * source.norm)
    heaviest = sorted(source.weight, key=lambda c: -source.weight[c])[:10]
    missing = ", ".join([c for c in heaviest if c not in counts][:3])
    return {
        "topic": Measurement(topic, f"without {missing}" if missing else ""),
        "opening": Measurement(opening, _quote(text.sentences[0])),
    }


def _form(source: _Source, text: Text) -> dict[str, Measurement]:
    """Sentences that are truncated, ungrammatical or fragments."""
    ends = [ws[-2:] for ws in text.words]
    cut = [i for i, end in enumerate(ends) if end in source.pairs and end not in source.ends]
    lengths = [len(ws) for ws in text.words]
    stumbles = [s for sentence in text.sentences for s in tools.slips(sentence)]
    closed = text.raw.rstrip()[-1:] in tuple(".?!)'\"`”’…")
    return {
        "cuts": Measurement(float(len(cut)), _quote(text.sentences[cut[0]], tail=True) if cut else ""),
        "shortest": Measurement(float(min(lengths)), _at_worst(text, lengths)),
        "slips": Measurement(float(len(stumbles)), ", ".join(stumbles[:3])),
        "unfinished": Measurement(float(not closed), "" if closed else _quote(text.sentences[-1], tail=True)),
    }


def _share(part: float, whole: float, empty: float) -> float:
    return part / whole if whole else empty


def _mean(numbers: list[float]) -> float:
    return math.fsum(numbers) / len(numbers)


def _at_worst(text: Text, merit: Sequence[float]) -> str:
    return _quote(text.sentences[merit.index(min(merit))])


def _quote(sentence: str, tail: bool = False, limit: int = 12) -> str:
    """The beginning or the end of a sentence."""
    tokens = sentence.split()
    if len(tokens) <= limit:
        return " ".join(tokens)
    return "… " + " ".join(tokens[-limit:]) if tail else " ".join(tokens[:limit]) + " …"
