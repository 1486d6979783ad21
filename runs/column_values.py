"""What a column of a file probably is, by its name and its values: text, numbers, yes and no, or words of a scale."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from debate_judge.data.files.columns import (
    COMMENT_WORDS,
    CONTEXT_WORDS,
    REFERENCE_WORDS,
    SOURCE_WORDS,
    TEXT_WORDS,
    code_of,
    normalized_name,
    role_of_name,
    tokens,
    word_list,
)
from debate_judge.data.files.records import (
    YES_NO_WORDS,
    allows_decimal_comma,
    is_missing,
    listed_texts,
    looks_like_a_number,
    messages_in,
    number_remedy,
)
from debate_judge.data.schema import Scale

_GOOD = "approved|accepted|accept|submitted|valid"
WORDS = {
    kind: word_list(words)
    for kind, words in {
        # In the names of columns.
        "system": "system|model|architecture|method|generator|sys",
        "aspect": "aspect|criterion|criteria|dimension|metric|quality|attribute|category",
        "rating": "rating|score|value|grade|label|points|mark|stars|judgement|judgment|severity",
        "verdict": "winner|preference|preferred|better|verdict|choice|chosen|selected|vote|votes|label|labels|best",
        "no verdict": "strength|confidence|date|id",
        # In cells.
        "tie": "tie|similar|equal|equally|same|both|neither|neutral|draw",
        "slight": "slightly|somewhat|marginally|little|bit",
        "unsure": "can't tell|cannot tell|don't know|dont know|maybe|n/a|not sure|skip|unclear|unsure",
        "ticked": "1|true|yes|x|✓|on",
        "unticked": "0|false|no|",
        "passed": "1|true|yes|pass|passed|correct",
        "good status": _GOOD,
        "status": f"{_GOOD}|canceled|cancelled|discarded|draft|ignore|ignored|invalid|reject|rejected|skipped",
    }.items()
} | {
    "comment": COMMENT_WORDS,
    "texts": (*SOURCE_WORDS, *REFERENCE_WORDS, *TEXT_WORDS, *CONTEXT_WORDS),
    "ours": ("candidate", "group", "rater", "aspect", "winner"),
}
"""The recognised words, apart from those of scales."""

SEVERITIES = dict.fromkeys(("no-error", "no error", "none", "neutral"), 0) | dict(
    minor=1, moderate=3, major=5, critical=10
)
_SCALES = (
    "strongly disagree|disagree,somewhat disagree|neutral,neither,neither agree nor disagree"
    "|agree,somewhat agree|strongly agree",
    "strongly disagree|disagree|somewhat disagree,slightly disagree|neutral,neither,neither agree nor disagree"
    "|somewhat agree,slightly agree|agree|strongly agree",
    "very poor,terrible,awful,very bad|poor,bad|fair,ok,okay,average,acceptable,neutral|good|very good"
    "|excellent,great,perfect",
    "never|rarely|sometimes|often|always",
    "very low|low|medium,moderate|high|very high",
    "not at all|slightly,a little|moderately,somewhat|very|extremely",
    "very dissatisfied|dissatisfied|neutral|satisfied|very satisfied",
    "no|partially,partly,somewhat|yes",
    "incorrect,wrong|partially correct,partly correct|correct",
    "negative,neg,n|neutral|positive,pos,p",
    "worse|same|better",
    "none|mild,slight,weak|moderate|strong,severe",
    "✗,✘,❌|✓,✔,✅",
    "down,thumbs down,thumbsdown,dislike,👎|up,thumbs up,thumbsup,like,👍",
)
"""Scales of words, lowest first; commas divide alternatives."""
_COMMON_ENDS = (
    *((0, 1), (1, 3), (0, 2), (0, 3), (1, 4), (0, 4), (1, 5), (0, 5)),
    *((1, 7), (1, 10), (0, 10), (1, 100), (0, 100)),
)
_LEADING = re.compile(
    r"\(?(-?\d+(?:\.\d+)?)\)?\s*(?:[-–—:.)=/]\s*)?(?=[^\d\s.,]).*|.*[^\d\s].*\((-?\d+)\)|(\d+) stars?"
)
_NAME_WITH_SCALE = re.compile(r"(.*\S)\s*[(\[]\s*(-?\d{1,3})\s*(?:-|–|\.\.|to)\s*(\d{1,3})\s*[)\]]\s*")
"""Name of a column that ends in its scale, as surveys write it: `Coherence (1-5)`."""
_MAX_VALUES, _MAX_LABELS, _MAX_LABEL = 101, 11, 40
_MIN_SHARE = 0.8
"""Least share of a column's values that have to be ratings; loading then reports the first value that is not one."""


class Column:
    """A column: its name, its values, and what both say of it; each is found once, when it is asked for."""

    def __init__(self, name: str, cells: list[object], is_table: bool, *, decimal_commas: bool = False) -> None:
        self.name, self.cells, self.is_table, self.decimal_commas = name, cells, is_table, decimal_commas
        self.normalized, self.tokens, self.role = normalized_name(name), tokens(name), role_of_name(name)

    @cached_property
    def last(self) -> str:
        """The last word of its name."""
        return self.tokens[-1] if self.tokens else ""

    @cached_property
    def present(self) -> list[object]:
        """The values that are not missing; those of several raters in a cell are several."""
        values: list[object] = []
        for cell in self.cells:
            parts: list[Any] = [cell]
            if isinstance(cell, list) and not self.is_messages:
                parts = cell
            elif self.is_table and isinstance(cell, str) and ";" in cell and len(cell) < _MAX_LABEL:
                parts = cell.split(";")
            elif self.is_table and isinstance(cell, str) and re.fullmatch(r"\s*\[[-\d., ]*\]\s*", cell):
                parts = cell.strip(" []").split(",")
            values += [self._converted(part) for part in parts if not is_missing(part)]
        return values

    def _converted(self, value: object) -> object:
        if not isinstance(value, str):
            return value
        text = value.strip()
        if self.decimal_commas and "," in text and allows_decimal_comma(text):
            text = text.replace(",", ".")
        return float(text) if looks_like_a_number(text) and (self.is_table or len(text) < 5) else text

    @cached_property
    def numbers(self) -> list[float]:
        found = (v for v in self.present if isinstance(v, int | float) and not isinstance(v, bool))
        return [float(v) for v in found if abs(v) <= sys.float_info.max]

    @cached_property
    def choices(self) -> list[bool]:
        """The values that are yes or no."""
        known = (v if isinstance(v, bool) else YES_NO_WORDS.get(str(v).lower()) for v in self.present)
        return [choice for choice in known if choice is not None]

    @cached_property
    def words(self) -> list[str]:
        """The different texts, if they are short and few."""
        texts = [" ".join(v.split()) for v in self.present if isinstance(v, str)]
        distinct = list(dict.fromkeys(texts))
        few = 1 < len(distinct) <= _MAX_LABELS and 2 * len(distinct) <= len(texts)
        return distinct if few and max(map(len, distinct)) <= _MAX_LABEL else []

    @cached_property
    def codes(self) -> list[str]:
        """The different values of its cells, at most 21."""
        found: dict[str, None] = {}
        for cell in self.cells:
            if not is_missing(cell):
                found[code_of(cell)] = None
                if len(found) > 20:
                    break
        return list(found)

    @cached_property
    def labels(self) -> dict[str, float]:
        """Label -> rating, if the values are known words for ratings; empty for others."""
        numbers = [_leading_number(word) for word in self.words]
        known = [word for word in self.words if word.casefold() not in WORDS["unsure"]]
        found: dict[str, float] = {}
        if self.words and None not in numbers and len({*numbers}) == len(numbers):
            found = dict(zip(self.words, numbers, strict=True))  # type: ignore[arg-type]
        elif len(self.words) > 1 and self.is_severity:
            found = {word: float(SEVERITIES[word.casefold()]) for word in self.words}
        elif len(known) > 1 and all(word.lower() in YES_NO_WORDS for word in known):
            # Yes and no need no labels, unless there is a third word beside them.
            found = {w: float(YES_NO_WORDS[w.lower()]) for w in known} if len(known) == 2 < len(self.words) else {}
        elif len(known) > 1:
            for scale in _SCALES:
                at = {w: n for w in known for n, step in enumerate(scale.split("|")) if w.casefold() in step.split(",")}
                if len(at) == len(known) == len({*at.values()}):
                    found = {w: float(r) for r, w in enumerate(sorted(known, key=at.__getitem__), len(known) > 2)}
                    break
        return dict(sorted(found.items(), key=lambda item: item[1]))

    @property
    def unsure(self) -> list[str]:
        return [word for word in self.words if word.casefold() in WORDS["unsure"] and word not in self.labels]

    @cached_property
    def is_messages(self) -> bool:
        return any(map(messages_in, self.cells[:200]))

    @cached_property
    def is_list(self) -> bool:
        """Whether every cell is a list of texts, as JSON."""
        texts = [listed_texts(cell) for cell in self.cells if not is_missing(cell)]
        words = sum(len(text.split()) for of_cell in texts for text in of_cell or ())
        return bool(texts) and all(texts) and words >= 2 * sum(map(len, filter(None, texts)))

    @cached_property
    def average_length(self) -> float:
        return sum(len(str(v)) for v in self.cells if v is not None) / max(1, len(self.cells))

    @cached_property
    def is_text(self) -> bool:
        """Whether it holds free text."""
        if self.is_messages or self.is_list:
            return True
        texts = [v for v in self.present if isinstance(v, str)]
        if 2 * len(texts) < len(self.present) or not any(any(map(str.isalpha, text)) for text in texts):
            return False
        words = sum(len(text.split()) for text in texts) / len(texts)
        foreign = sum(not text.isascii() and len(text) > 7 for text in texts) > len(texts) / 2
        long = self.average_length
        return (words >= 3 or foreign or long > 200) and not self.labels and (not self.words or long > _MAX_LABEL)

    @cached_property
    def may_be_text(self) -> bool:
        """Whether it may hold texts to be judged: free text, or what its name says, unless it holds numbers, yes and
        no, or a few words."""
        if self.normalized in WORDS["ours"] or self.is_text:
            return self.is_text and self.normalized not in WORDS["ours"]
        if self.role not in ("text", "source") or not self.present or self.numbers:
            return False
        if self.normalized in (*SOURCE_WORDS, *TEXT_WORDS) and not self.choices:
            return True
        many = len(self.codes) > 20 or len(self.codes) > len(self.cells) / 4
        return not self.labels and len(self.choices) < len(self.present) and many

    @property
    def is_rated(self) -> bool:
        """Whether the values may be ratings."""
        return bool(self.numbers or self.choices or self.labels)

    @property
    def is_severity(self) -> bool:
        """Whether the values are severities of errors, as of MQM."""
        return bool(self.words) and {word.casefold() for word in self.words} <= SEVERITIES.keys()

    @property
    def is_ticks(self) -> bool:
        return {*self.codes} <= {*WORDS["ticked"], *WORDS["unticked"]}

    @property
    def has_decimal_commas(self) -> bool:
        """Whether the values are numbers of which some have a decimal comma, and not all can be two ratings."""
        texts = [part.strip() for cell in self.cells for part in str(cell).split(";") if not is_missing(part)]
        if not any("," in text for text in texts) or not all(map(allows_decimal_comma, texts)):
            return False
        return not all(re.fullmatch(r"\d,\d", text) for text in texts) or any(text.endswith(",0") for text in texts)

    @property
    def is_standardized(self) -> bool:
        """Whether the values are fractions on both sides of 0."""
        fractions = sum(not number.is_integer() for number in self.numbers)
        return bool(self.numbers) and min(self.numbers) < 0 < max(self.numbers) and 2 * fractions > len(self.numbers)

    def scale(self, name: str) -> tuple[Scale | None, list[Any]]:
        """The scale of the values, None if they do not look like ratings; and codes for missing ones.

        Args:
            name: Name of the column, which may say the scale.
        """
        present, numbers, choices = self.present, self.numbers, self.choices
        if choices and set(numbers) <= {0, 1}:
            enough = len(numbers) + len(choices) >= _MIN_SHARE * len(present)
            return (Scale(0, 1) if enough and len({*numbers, *map(float, choices)}) > 1 else None), []
        if not present or len(numbers) < _MIN_SHARE * len(present):
            return None, []
        missing = _missing_codes(numbers)
        distinct = {*numbers} - {*missing}
        integers = all(number.is_integer() for number in distinct)
        # Whole numbers without a gap count the rows if each is there once, and texts if they are large.
        no_gap = integers and max(distinct) - min(distinct) < len(distinct)
        many = len(distinct) > _MAX_VALUES or (no_gap and len(distinct) == len(numbers))
        if len(distinct) < 2 or (integers and len(distinct) > 11 and many) or (no_gap and min(distinct) >= 100):
            return None, []
        low, high = ends(min(distinct), max(distinct), integers)
        named = _NAME_WITH_SCALE.fullmatch(name)
        if named and float(named[2]) <= min(distinct) and max(distinct) <= float(named[3]):
            low, high = float(named[2]), float(named[3])
        # Fractions may be means of whole points over raters, so only scales of width 1 get finer steps.
        return Scale(low, high, 1.0 if integers or high - low > 1 else 0.01), missing

    def why_no_rating(self) -> str:
        """Why the values are not read as ratings, with what to do if they are some."""
        others = [v for v in self.present if not isinstance(v, int | float)]
        advice = [number_remedy(value) for value in others]
        numeric = len(self.numbers) + sum(remedy is not None for remedy in advice)
        if others and numeric >= len(self.present) / 2:
            return f"{others[0]!r} is no rating; {advice[0] or 'correct it or leave it out'}"
        if others and all(re.fullmatch(r"\d{4}-\d\d-\d\d.*", str(v)) for v in others):
            return "spreadsheets make dates of ratings such as 4/5: enter them again, as numbers"
        if others and all(re.fullmatch(r"\d+(?:[,/] ?\d+){2,}", str(v)) for v in others):
            return "write the ratings of several raters as 4;5"
        if self.words:
            words = ", ".join(f"{toml_key(word)} = {n}" for n, word in enumerate(self.words, start=1))
            return f"not read; if its words are ratings, declare an aspect with this column and labels = {{{words}}}"
        return "not read"


def name_without_scale(name: str) -> str:
    """The name of a column without the scale that surveys write behind it."""
    match = _NAME_WITH_SCALE.fullmatch(name)
    return match[1] if match else name


def is_ticked(cell: object) -> bool:
    return cell is not None and code_of(cell) in WORDS["ticked"]


def ends(lowest: float, highest: float, integers: bool) -> tuple[float, float]:
    """The ends of the usual scale that holds the values."""
    if not integers and highest > 10 and lowest >= 0 and highest <= 100:
        return 0, 100
    for low, high in _COMMON_ENDS:
        if low <= lowest and highest <= high and (low == 0) == (lowest < 1):
            return low, high
    for end in (1, 2, 3, 5, 10, 100):
        if -end <= lowest and highest <= end:
            return -end, end
    return lowest // 1, -(-highest // 1)


def _leading_number(label: str) -> float | None:
    if stars := re.fullmatch(r"([★⭐*]+)[☆\s]*", label):
        return float(len(stars[1]))
    match = _LEADING.fullmatch(label)
    return float(next(filter(None, match.groups()))) if match and any(match.groups()) else None


def _missing_codes(numbers: Sequence[float]) -> list[Any]:
    """Values far off the rest that surveys write for a missing answer: -1, 9, 99, -99."""
    distinct = sorted({*numbers})
    found: list[Any] = []
    for code in (distinct[0], distinct[-1]) if len(distinct) > 2 else ():
        low, high = (distinct[1], distinct[-1]) if code == distinct[0] else (distinct[0], distinct[-2])
        far = max(low - code, code - high) > 2 * (high - low)
        negative = code < 0 <= low and low >= 1
        if numbers.count(code) > 1 and ((far and re.fullmatch(r"-?([7-9])\1*", f"{code:g}")) or negative):
            found.append(int(code) if code.is_integer() else code)
    return found


def toml_key(name: str) -> str:
    """A name as a key of TOML."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else as_toml(name)


def as_toml(value: object) -> str:
    """A value as TOML, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_key(str(key))} = {as_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, float):
        return f"{value:.15g}"
    return json.dumps(value, ensure_ascii=False)
