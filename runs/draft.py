"""Drafts the mapping and the task of a file from the names and contents of its columns, for `debate check`.

A draft is a proposal: it says how each column was understood, and asks what names and contents cannot settle, each
question with the line to write. Nothing else reads a file by what is guessed here.
"""

from __future__ import annotations

import json
import math
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from operator import itemgetter
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import (
    PREFERENCE,
    ROLES,
    SOURCE_WORDS,
    TEXT_WORDS,
    ColumnNames,
    Keys,
    ReadingNotes,
    code_of,
    name_without_rater,
    normalized_name,
    word_list,
)
from debate_judge.data.files.formats import RecordFile, joined_files
from debate_judge.data.files.names import (
    COMMENT_WORDS,
    CONTEXT_WORDS,
    RATER_NAME,
    REFERENCE_WORDS,
    Family,
    families,
    is_rater_name,
    missing_columns_error,
    role_of_name,
    tokens,
)
from debate_judge.data.files.ratings import YES_NO_WORDS, number_remedy
from debate_judge.data.files.records import Record, allows_decimal_comma, is_missing, looks_like_a_number
from debate_judge.data.files.rows import (
    MARKS,
    clear_verdict,
    flat,
    inner_records,
    listed_texts,
    messages_in,
)
from debate_judge.data.files.task_file import usable_name
from debate_judge.data.schema import Scale, Task
from debate_judge.data.tasks import PAIRS, TASKS

CANDIDATE_WORDS = word_list("system|model|architecture|method|generator|sys")
ASPECT_WORDS = word_list("aspect|criterion|criteria|dimension|metric|quality|attribute|category")
RATING_WORDS = word_list("rating|score|value|grade|label|points|mark|stars|judgement|judgment|severity")
VERDICT_WORDS = word_list("winner|preference|preferred|better|verdict|choice|vote|label|best")
STATUS = word_list(
    "accept|accepted|approved|canceled|cancelled|discarded|draft|ignore|ignored|invalid|reject|rejected|"
    "skipped|submitted|valid"
)
_GOOD_STATUS = word_list("approved|accepted|accept|submitted|valid")
_NUMBERED_RATER = re.compile(rf"(?:{RATER_NAME.pattern}|[arp])_?\d+")
_NOT_A_RATING = re.compile(
    r"(?:.*[_.])?(?:id|idx|index|nr|no|number|row|seed|year|date|time|timestamp|length|words|tokens|turn|rank_id|seg"
    r"|seconds|duration|latency|cost|age|key)|time_(?:taken|spent)|.*work_?time.*"
    r"|(?!judge$|expert$)(?:" + RATER_NAME.pattern + r")|unnamed:.*|column_\d+_\(no_name\)|sheet"
)
"""Names of columns with ids, dates, durations, lengths or raters, and of those without a name."""
_BEFORE_NUMBER = re.compile(rf"(?:^|[^A-Za-z])(?:{RATER_NAME.pattern}|[arp])[_ .-]?\{{x\}}", re.I)
"""The end of the name of a rater in a pattern, before its number."""
_STATISTIC = re.compile(
    r"(?:mean|avg|average|median|std|sd|z|zscore|z_score|norm(?:ali[sz]ed)?|raw_mean)_(?P<after>.+)"
    r"|(?P<before>.+)_(?:mean|avg|average|median|std|sd|sum|total|z|zscore|z_score|z_scores|norm(?:ali[sz]ed)?|rank)"
)
_METRIC = re.compile(
    r".*(?:rouge|bleu|meteor|bert_?score|chrf|comet|perplexity|ppl|similarity|bart_?score|moverscore).*"
)
_LOWER = re.compile(r"(?:.*_)?(?:rank|ranking|errors?|mistakes?|penalty|penalties|severity|hallucinations?)(?:_count)?")
"""Names of columns in which less is usually better."""
_NAME_WITH_SCALE = re.compile(r"(.*\S)\s*[(\[]\s*(-?\d{1,3})\s*(?:-|–|\.\.|to)\s*(\d{1,3})\s*[)\]]\s*")
"""Name of a column that ends in its scale, as surveys write it: `Coherence (1-5)`."""
_ITEM_NAME = re.compile(r"(?:.*\.)?(?:q|question|item|statement|criterion|aspect|dimension)")
"""Names whose numbers count what was rated, and not raters: `Question 1`, `Question 2`."""
_LEADING = re.compile(
    r"\(?(-?\d+(?:\.\d+)?)\)?\s*(?:[-–—:.)=/]\s*)?(?=[^\d\s.,]).*|.*[^\d\s].*\((-?\d+)\)|(\d+) stars?"
)
_SEVERITIES = dict.fromkeys(("no-error", "no error", "none", "neutral"), 0) | dict(
    minor=1, moderate=3, major=5, critical=10
)
_UNSURE = word_list("can't tell|cannot tell|don't know|dont know|maybe|n/a|not sure|skip|unclear|unsure")
_SCALES = (
    "strongly disagree|disagree,somewhat disagree|neutral,neither,neither agree nor disagree"
    "|agree,somewhat agree|strongly agree",
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
)
"""Scales of words, lowest first; commas divide alternatives."""
_COMMON_ENDS = (
    *((0, 1), (1, 3), (0, 2), (0, 3), (1, 4), (0, 4), (1, 5), (0, 5)),
    *((1, 7), (1, 10), (0, 10), (1, 100), (0, 100)),
)
_SYMMETRIC_ENDS = (1, 2, 3, 5, 10, 100)
_TICKS = {"0", "1", "true", "false", "yes", "no", "x", "✓", "on", ""}
_MAX_VALUES, _MAX_LABELS, _MAX_LABEL = 101, 11, 40
_MAX_ASPECTS, _MAX_COLUMNS = 100, 5_000
_MIN_SHARE = 0.8
"""Least share of a column's values that have to be ratings; loading then reports the first value that is not one."""


@dataclass
class DraftQuestion:
    """What names and contents do not settle."""

    text: str
    lines: list[str]
    """Lines of the task file that answer it, one of which is to be written."""
    place: str = "columns"
    """`columns`, or the aspect in whose table the line belongs."""
    open: bool = False
    """Whether the draft has no answer, so that nothing can be read until one is written."""


@dataclass
class AspectDraft:
    """An aspect and where its ratings are."""

    name: str
    columns: list[str]
    scale: Scale
    labels: dict[str, float] = field(default_factory=dict)
    missing: list[Any] = field(default_factory=list)
    lower_is_better: bool = False
    halves: bool = False
    definition: str = ""
    comment: Any = ""

    def lines(self) -> list[str]:
        """The lines of its table in the task file."""
        lines = [f"[aspects.{_key(self.name)}]", f"definition = {_quoted(self.definition or self._default())}"]
        lines += [f"low = {self.scale.low:.15g}", f"high = {self.scale.high:.15g}"]
        if self.scale.step != 1:
            lines.append(f"step = {self.scale.step:.15g}")
        elif not self.scale.binary:
            step, points = ("0.5", "whole or half points") if self.halves else ("1", "whole points")
            lines.append(f"# step = {step}    # with it all scores are {points}; without it they tie less")
        if self.columns and self.columns != [self.name]:
            columns = self.columns[0] if len(self.columns) == 1 else self.columns
            lines.append(f"column = {json.dumps(columns, ensure_ascii=False)}")
        if self.labels:
            lines.append("labels = " + _table(self.labels))
        if self.missing:
            lines.append(f"missing = {json.dumps(self.missing, ensure_ascii=False)}")
        if self.comment:
            lines.append(f"comment = {json.dumps(self.comment, ensure_ascii=False)}")
        return [*lines, "lower_is_better = true"] if self.lower_is_better else lines

    def _default(self) -> str:
        low, high, name = f"{self.scale.low:.15g}", f"{self.scale.high:.15g}", re.sub(r"[_\s]+", " ", self.name).strip()
        if self.scale.binary:
            return f"Whether {name} holds: {low} no, {high} yes."
        return f"How good the text is in {name}. {low} is the worst, {high} the best."


@dataclass
class Draft:
    """A mapping with its task, and what is to be asked about it."""

    name: str
    roles: dict[str, str]
    settings: dict[str, Any]
    aspects: list[AspectDraft]
    understood: list[tuple[str, str]]
    """Column, and how it was understood."""
    questions: list[DraftQuestion]
    built_in: str = ""
    """A built-in task whose aspects and scales are those of the file."""

    @property
    def is_open(self) -> bool:
        return any(question.open for question in self.questions)

    def task(self) -> Task:
        """The task that the file of the draft describes.

        Raises:
            InputError: The draft cannot be used.
        """
        from debate_judge.data.files.task_file import task_of

        return task_of(Record(tomllib.loads(self.toml()), "the draft", format="toml"))

    def toml(self) -> str:
        """The text of the task file; lines that answer open questions are comments."""
        source, text = self.roles.get("source", "source"), self.roles.get("text", self.roles.get("response_a", "text"))
        name = re.sub(r"[^\w-]+", "-", self.name).strip("-")
        lines = [
            "# Drafted from the names and contents of the columns. Correct what is wrong, and say in each",
            "# definition what to look at and what the ends of the scale mean: it is the judge's rubric.",
            f"name = {_quoted(name or 'task')}",
            f"source_label = {_quoted(_label(source))}",
            f"candidate_label = {_quoted(_label(text))}",
        ]
        for aspect in self.aspects:
            lines += ["", *aspect.lines(), *self._asked(aspect.name)]
        table = [f"{_key(role)} = {_quoted(column)}" for role, column in self.roles.items() if role != column]
        table += [f"{name} = {_toml(value)}" for name, value in self.settings.items()]
        asked = self._asked("columns")
        return "\n".join([*lines, *(["", "[columns]", *table, *asked] if table or asked else [])]) + "\n"

    def _asked(self, place: str) -> list[str]:
        drafted = [line for aspect in self.aspects if aspect.name == place for line in aspect.lines()]
        lines: list[str] = []
        for question in self.questions:
            if question.place == place:
                lines += [f"# {question.text}", *(f"# {line}" for line in question.lines if line not in drafted)]
        return lines


class Column:
    """The values of a column."""

    def __init__(self, name: str, cells: list[object], is_table: bool) -> None:
        self.name, self.cells, self.is_table = name, cells, is_table

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
            values += [_converted(part, self.is_table) for part in parts if not is_missing(part)]
        return values

    @cached_property
    def numbers(self) -> list[float]:
        found = (v for v in self.present if isinstance(v, int | float) and not isinstance(v, bool))
        return [float(v) for v in found if abs(v) <= sys.float_info.max]

    @cached_property
    def choices(self) -> list[bool]:
        texts = (v.lower() if isinstance(v, str) else v for v in self.present)
        return [
            v if isinstance(v, bool) else YES_NO_WORDS[v] for v in texts if isinstance(v, bool) or v in YES_NO_WORDS
        ]

    @cached_property
    def words(self) -> list[str]:
        """The different texts, if they are short and few."""
        texts = [" ".join(v.split()) for v in self.present if isinstance(v, str)]
        distinct = list(dict.fromkeys(texts))
        few = 1 < len(distinct) <= _MAX_LABELS and 2 * len(distinct) <= len(texts)
        return distinct if few and max(map(len, distinct)) <= _MAX_LABEL else []

    @cached_property
    def is_messages(self) -> bool:
        return any(map(messages_in, self.cells[:200]))

    @cached_property
    def is_list(self) -> bool:
        """Whether every cell is a list of texts, as JSON."""
        cells = [cell for cell in self.cells if not is_missing(cell)]
        texts = [listed_texts(cell) for cell in cells]
        words = sum(len(text.split()) for of_cell in texts for text in of_cell or ())
        return bool(cells) and all(texts) and words >= 2 * sum(map(len, filter(None, texts)))

    @cached_property
    def is_text(self) -> bool:
        """Whether it holds free text."""
        if self.is_messages or self.is_list:
            return True
        texts = [v for v in self.present if isinstance(v, str)]
        if 2 * len(texts) < len(self.present) or not texts:
            return False
        words = sum(len(text.split()) for text in texts) / len(texts)
        foreign = sum(not text.isascii() and len(text) > 7 for text in texts) > len(texts) / 2
        long = sum(map(len, texts)) / len(texts)
        return (words >= 3 or foreign or long > 200) and not self.labels and (not self.words or long > _MAX_LABEL)

    @cached_property
    def labels(self) -> dict[str, float]:
        """Label -> rating, if the values are known words for ratings; empty for others."""
        numbers = {word: found for word in self.words if (found := _leading_number(word)) is not None}
        if self.words and len(numbers) == len(self.words) and len({*numbers.values()}) == len(numbers):
            return dict(sorted(numbers.items(), key=itemgetter(1)))
        if {word.casefold() for word in self.words} <= _SEVERITIES.keys() and len(self.words) > 1:
            return {
                word: float(_SEVERITIES[word.casefold()])
                for word in sorted(self.words, key=lambda w: _SEVERITIES[w.casefold()])
            }
        known = [word for word in self.words if word.casefold() not in _UNSURE]
        if not all(word.lower() in YES_NO_WORDS for word in known) and len(known) > 1:
            for scale in _SCALES:
                steps = [step.split(",") for step in scale.split("|")]
                at = {w: n for w in known for n, step in enumerate(steps) if w.casefold() in step}
                if len(at) == len(known) and len({*at.values()}) == len(at):
                    first = 0 if len(known) == 2 else 1
                    ordered = sorted(known, key=at.__getitem__)
                    return {word: float(rank) for rank, word in enumerate(ordered, start=first)}
        if len(known) == 2 and len(known) < len(self.words) and all(word.lower() in YES_NO_WORDS for word in known):
            return {
                word: float(YES_NO_WORDS[word.lower()]) for word in sorted(known, key=lambda w: YES_NO_WORDS[w.lower()])
            }
        return {}

    @property
    def unsure(self) -> list[str]:
        return [word for word in self.words if word.casefold() in _UNSURE and word not in self.labels]

    @cached_property
    def codes(self) -> list[str]:
        """The different values of its cells, at most 20."""
        found: dict[str, None] = {}
        for cell in self.cells:
            if not is_missing(cell):
                found[code_of(cell)] = None
                if len(found) > 20:
                    break
        return list(found)

    @cached_property
    def keys(self) -> list[str]:
        # Long texts are only compared, so that their hashes do.
        texts = (" ".join(str(cell).split()) for cell in self.cells)
        return [text if len(text) < 100 else str(hash(text)) for text in texts]

    def average_length(self) -> float:
        return sum(len(str(v)) for v in self.cells if v is not None) / max(1, len(self.cells))


def _converted(value: object, is_table: bool) -> object:
    if not isinstance(value, str):
        return value
    text = value.strip()
    if is_table and ("," in text and allows_decimal_comma(text) and re.fullmatch(r".*,\d\d+|.*,0", text)):
        text = text.replace(",", ".")
    return float(text) if looks_like_a_number(text) and (is_table or len(text) < 5) else text


def _leading_number(label: str) -> float | None:
    if stars := re.fullmatch(r"([★⭐*]+)[☆\s]*", label):
        return float(len(stars[1]))
    match = _LEADING.fullmatch(label)
    return float(next(filter(None, match.groups()))) if match and any(match.groups()) else None


# --- the draft ---


def draft_mapping(file: RecordFile, names: ColumnNames, name: str) -> Draft:
    """Draft the mapping of a file.

    Args:
        file: The file.
        names: What the user has said of it already, which is kept.
        name: Name of the task.

    Raises:
        InputError: The file has no texts, or nothing in it looks like ratings.
    """
    return _Drafter(file, names, name).draft()


class _Drafter:
    """Collects the parts of a draft."""

    def __init__(self, file: RecordFile, names: ColumnNames, name: str) -> None:
        self.file, self.names, self.name = file, names, name
        self.roles: dict[str, str] = dict(names.roles)
        self.settings = {k: v for k, v in names.to_table().items() if k not in (*ROLES, "aspects")}
        self.aspects: list[AspectDraft] = []
        self.understood: dict[str, str] = {}
        self.questions: list[DraftQuestion] = []
        self.unsettled = ""
        """The column that is taken for the text as long as the question which it is stays open."""
        self.rows = self._read()
        keys = list(dict.fromkeys(key for row in self.rows for key in map(str, row.values)))
        rating = Keys(keys).named("rating") if Keys(keys).named("aspect") else None
        # Rows of a comment alone, or of a text that nobody rated, say nothing about raters.
        self.rows = [row for row in self.rows if rating is None or not is_missing(row.values.get(rating))] or self.rows
        if len(keys) > _MAX_COLUMNS:
            raise self.rows[0].error(
                f"{len(keys):,} different fields",
                expected=f"at most {_MAX_COLUMNS:,}; objects that are keyed by ids are records = 'NAME.*'",
            )
        self.is_table = is_table = self.rows[0].format == "csv"
        self.columns = {key: Column(key, [row.values.get(key) for row in self.rows], is_table) for key in keys}
        self.keys = Keys(keys)

    # --- structure ---

    def _read(self) -> list[Record]:
        from debate_judge.data.files.groups import limit_memory

        notes = ReadingNotes(self.file.name)
        names = self.names
        if self.file.sheet is not None and not names.sheet and "first of" in self.file.format:
            heads: dict[object, set[str]] = defaultdict(set)
            for record in self.file.sheet("*"):
                heads[record.values.get("sheet")] = set(record.values)
            alike, shared = len({frozenset(head) for head in heads.values()}) == 1, set.intersection(*heads.values())
            if alike or (len(heads) == 2 and len(shared) > 1):
                self.settings["sheet"] = sheet = "*" if alike else "+".join(map(str, heads))
                names = names.model_copy(update={"sheet": sheet})
        records = list(limit_memory(inner_records(self.file.opened(names, notes), names.records), self.file.name))
        path = names.records
        if records and {"annotations", "instances"} <= records[0].values.keys():
            remedy = f"name the layout: debate check judgebench={self.file.name}"
            raise records[0].error("a file in the layout of JUDGE-BENCH", remedy=remedy)
        for _ in range(3 if not names.records else 0):
            inner = self._list_of_records(records)
            if not inner:
                break
            path += f"{'.' if path else ''}{inner}[]"
            records = list(limit_memory(inner_records(records, f"{inner}[]"), self.file.name))
        if path:
            self.settings["records"] = path
        self.keep_notes = list(notes.lines())
        if not records:
            raise InputError("no records", file=self.file.name)
        return [flat(record) for record in records]

    def _list_of_records(self, records: Sequence[Record]) -> str:
        """The list inside of records that holds the rated texts or the ratings; empty if there is none."""
        sizes: Counter[str] = Counter()
        for record in records[:500]:
            for key, value in flat(record).values.items():
                if isinstance(value, list) and value and isinstance(value[0], dict) and not messages_in(value):
                    sizes[key] += len(value)
        best = ("", 0.0)
        for key, size in sizes.items():
            inner = [v for r in records[:500] for v in flat(r).values.get(key) or [] if isinstance(v, dict)]  # type: ignore[attr-defined]
            cells = [cell for values in inner[:200] for cell in flat(Record(values, "")).values.values()]
            rated = any(isinstance(c, int | float) or (isinstance(c, str) and c.lower() in YES_NO_WORDS) for c in cells)
            rated = rated or any(isinstance(c, list) and c and isinstance(c[0], int | float) for c in cells)
            texts = any(isinstance(c, str) and len(c.split()) > 2 for c in cells)
            score = size * (rated + texts)
            best = max(best, (key, score), key=lambda pair: pair[1])
        return best[0]

    # --- parts ---

    def draft(self) -> Draft:
        self._status()
        self._texts()
        self._raters()
        self._candidates()
        if not self._verdicts() and not self._long_table():
            self._rating_columns()
        self._empty_texts()
        if not self.aspects:
            raise self._no_ratings_error()
        if len(self.aspects) > _MAX_ASPECTS:
            expected = f"at most {_MAX_ASPECTS}; describe the aspects in a task file, and name it with --task"
            raise self.rows[0].error(f"{len(self.aspects):,} columns look like ratings", expected=expected)
        roles = {role: c for role, c in self.roles.items() if c and (role != "text" or c != self.unsettled)}
        implied = {role: column for role in ROLES if role not in roles and (column := self.keys.named(role))}
        if not self.aspects or "aspect" not in roles:
            implied = {role: c for role, c in implied.items() if role not in ("aspect", "rating", "ratings")}
        understood = [(c, f"read as {role}") for role, c in (roles | implied).items()] + list(self.understood.items())
        used = {column for column, _ in understood} | {c for a in self.aspects for c in a.columns}
        matched = {k for pattern in used for _, k in (self.keys.matching(pattern, {}) if pattern else ())}
        matched |= {part.removesuffix("[]") for column in used for part in column.split("+")}
        understood += [
            (aspect.name, f"ratings in {', '.join(aspect.columns)}") for aspect in self.aspects if aspect.columns
        ]
        understood += [
            (key, "not read") for key in self.columns if key not in matched and key not in self.settings.get("keep", {})
        ]
        return Draft(self.name, roles, self.settings, self.aspects, understood, self.questions, self._built_in())

    def _built_in(self) -> str:
        if self.settings or any(question.open for question in self.questions):
            return ""
        if any(a.labels or a.missing or a.lower_is_better for a in self.aspects):
            return ""
        for task in TASKS.values():
            scales = {aspect.name: aspect.scale for aspect in task.aspects}
            if all(
                a.name in scales
                and (a.columns in ([], [a.name]) or task is PAIRS)
                and scales[a.name].low <= a.scale.low
                and a.scale.high <= scales[a.name].high
                for a in self.aspects
            ):
                return task.name
        return ""

    def _status(self) -> None:
        """Records that were rejected or cancelled."""
        for key, column in self.columns.items():
            bad = [code for code in column.codes if code in STATUS and code not in _GOOD_STATUS]
            good = [code for code in column.codes if code in _GOOD_STATUS]
            if good and bad and {*column.codes} <= {*STATUS} and "keep" not in self.settings:
                left_out = sum(code_of(cell) in bad for cell in column.cells)
                kept = next(str(cell) for cell in column.cells if code_of(cell) in good)
                self.understood[key] = f"a status: {left_out} of {len(column.cells)} records are {' or '.join(bad)}"
                line = f"keep = {{{_key(key)} = {_quoted(kept)}}}"
                text = f"{left_out} records are {' or '.join(bad)} by {key!r} and are read; to leave them out, write"
                self.questions.append(DraftQuestion(text, [line]))

    def _free_texts(self) -> list[str]:
        return [
            k
            for k, c in self.columns.items()
            if normalized_name(k) not in ("candidate", "group", "rater", "task", "aspect", "winner")
            and (c.is_text or (role_of_name(k) in ("text", "source") and self._may_be_text(c)))
        ]

    @staticmethod
    def _may_be_text(column: Column) -> bool:
        """Whether a column whose name says so may hold texts: not numbers, yes and no, or a few words."""
        named = normalized_name(column.name) in (*SOURCE_WORDS, *TEXT_WORDS) and not column.choices
        if named and not column.numbers and column.present:
            return True
        return (
            bool(column.present)
            and not column.numbers
            and not column.labels
            and len(column.choices) < len(column.present)
            and (len(column.codes) > 20 or len(column.codes) > len(column.cells) / 4)
        )

    def _named(self, role: str) -> str | None:
        if role in self.roles:
            return self.roles[role]
        column = self.keys.named(role)
        return (
            column
            if column and (role not in ("source", "text") or column in self._free_texts() or not self._others(role))
            else None
        )

    def _others(self, role: str) -> list[str]:
        """Columns of free text that may be the source or the text instead of a column with that name."""
        words = SOURCE_WORDS if role == "source" else TEXT_WORDS
        return [k for k in self._free_texts() if normalized_name(k) in words and normalized_name(k) != role]

    def _texts(self) -> None:
        """The columns of texts: several in a row, pairs, or one; and those of the source, context and references."""
        free = self._free_texts()
        by_role: dict[str, list[str]] = defaultdict(list)
        for key in free:
            by_role["text" if normalized_name(key) == "text" else role_of_name(key)].append(key)
        if not {"text", "response_a"} & self.roles.keys():
            chosen = [self.keys.named(name) for name in ("chosen", "rejected")]
            if all(chosen):
                self.roles |= {"response_a": str(chosen[0]), "response_b": str(chosen[1])}
            elif not self._text_family(free):
                self._single_text(free, by_role)
        taken = {column for column in self.roles.values()}
        taken |= {k for column in taken if "{" in column for _, k in self.keys.matching(column, {})}
        self._find_source(by_role, taken)
        self._other_texts(by_role)

    def _find_source(self, by_role: Mapping[str, list[str]], taken: set[str]) -> None:
        if "source" not in self.roles:
            named = self._named("source")
            candidates = [named] if named else [key for key in by_role.get("source", ()) if key not in taken]
            rest = [key for key in by_role.get("", ()) if key not in taken and not self._is_comment(key)]
            contexts = [key for key in by_role.get("context", ()) if key not in taken]
            if candidates:
                self._source(candidates)
            elif contexts and not rest:
                self.roles["source"] = self._listed(contexts[0])
            elif rest and "text" in self.roles:
                # What repeats beside different texts, or comes first, is probably what they were written for.
                self.roles["source"] = self._listed(rest[0])
                line = 'source = "none"'
                self.questions.append(
                    DraftQuestion(
                        f"is {rest[0]!r} what {self.roles['text']!r} was written for? If not, write instead", [line]
                    )
                )

    def _other_texts(self, by_role: Mapping[str, list[str]]) -> None:
        """Context and reference; and which texts are lists in a cell."""
        for role in ("context", "reference"):
            found = [key for key in by_role.get(role, ()) if key not in self.roles.values()]
            if found and role not in self.roles and self.keys.named(role) is None:
                self.roles[role] = self._listed(found[0])
        for role in ("source", "text", "context", "response_a", "response_b"):
            if role in self.roles and "{" not in self.roles[role] and "+" not in self.roles[role]:
                self.roles[role] = self._listed(self.roles[role])

    def _listed(self, column: str) -> str:
        """The column as a role, with `[]` where its cells are lists of texts."""
        values = self.columns.get(column)
        return f"{column}[]" if values is not None and values.is_list and not values.is_messages else column

    def _source(self, candidates: list[str]) -> None:
        """The source: the first by the order of `SOURCE_WORDS`; an instruction and its input are joined."""
        by_word = {tokens(key)[-1]: key for key in reversed(candidates) if tokens(key)}
        if {"instruction", "input"} <= by_word.keys():
            self.roles["source"] = f"{by_word['instruction']}+{by_word['input']}"
            return
        numbered = [f for f in families(candidates) if f.numbered and len(f.members) > 1]
        if numbered and "{i}" in self.roles.get("text", ""):
            self.roles["source"] = numbered[0].named("i")
            return
        order = sorted(
            candidates, key=lambda k: min((SOURCE_WORDS.index(w) for w in tokens(k) if w in SOURCE_WORDS), default=99)
        )
        self.roles["source"] = self._listed(order[0])
        if len(order) > 1:
            lines = [f"source = {_quoted(key)}" for key in order[1:]] + [f"source = {_quoted('+'.join(candidates))}"]
            text = f"{order[0]!r} is read as the source, and {', '.join(map(repr, order[1:]))} not; else write instead"
            self.questions.append(DraftQuestion(text, lines))

    def _single_text(self, free: Sequence[str], by_role: Mapping[str, list[str]]) -> None:
        if named := self._named("text"):
            self.roles["text"] = named
            return
        texts = by_role["text"] or by_role[""]
        texts = [key for key in texts if not self._is_comment(key)] or texts
        if not texts:
            texts = [key for key in free if role_of_name(key) not in ("comment", "reference", "context")][-1:]
            texts = [key for key in texts if normalized_name(key) != "source"]
        if not texts:
            raise self._no_text_error()
        if by_role["text"]:
            order = sorted(
                texts, key=lambda k: min((TEXT_WORDS.index(w) for w in tokens(k) if w in TEXT_WORDS), default=99)
            )
        else:
            # Beside a source the longest is the text; else what it was written for comes first.
            length = {key: self.columns[key].average_length() for key in texts}
            order = sorted(texts, key=lambda k: (-length[k] if by_role["source"] else 0, -texts.index(k)))
        self.roles["text"] = order[0]
        if len(order) > 1:
            lines = [f"text = {_quoted(key)}" for key in order[1:4]]
            text = f"{order[0]!r} is read as the text that was rated; if it is another column, write"
            self.questions.append(DraftQuestion(text, lines))

    def _text_family(self, free: Sequence[str]) -> bool:
        """Several columns of texts: a pair, or one text for each number or system."""
        found = families([key for key in free if role_of_name(key) not in ("reference", "comment")])
        if self._named_texts(free):
            return True
        ratings = [
            key
            for key, column in self.columns.items()
            if key not in free and (column.numbers or column.choices or column.labels)
        ]
        for family in found:
            parts = {part.lower() for part in family.members}
            if any(part in (*SOURCE_WORDS, *REFERENCE_WORDS, *TEXT_WORDS, *CONTEXT_WORDS) for part in parts):
                continue
            members = list(family.members.values())
            if all(role_of_name(key) == "source" for key in members) and not all(
                self.columns[k].is_messages for k in members
            ):
                continue
            is_pair = len(members) == 2 and (self._verdict_columns(members) or self._graded_column(members, ratings))
            per_text = self._ratings_per_text(family, ratings)
            if is_pair:
                first, second = (
                    members if {*parts} != {"b", "a"} or next(iter(family.members)).lower() == "a" else members[::-1]
                )
                self.roles |= {"response_a": first, "response_b": second}
                return True
            placeholder = "i" if family.numbered else "system"
            if per_text:
                self.roles["text"] = family.named(placeholder)
                return True
            lines = [f"text = {_quoted(key)}" for key in members] + [f"text = {_quoted(family.named(placeholder))}"]
            text = f"{', '.join(map(repr, members))} are texts: which was rated? Write one of"
            self.questions.append(DraftQuestion(text, lines, open=True))
            self.roles["text"] = self.unsettled = members[0]
            return True
        return False

    def _named_texts(self, free: Sequence[str]) -> bool:
        """Columns of texts that are called like their systems, which verdicts or columns of ratings name."""
        texts = [key for key in free if self.columns[key].is_text]
        for key in self._verdict_columns(texts):
            named = [k for k in texts if code_of(k) in self.columns[key].codes]
            if len(named) == 2:
                self.roles |= {"response_a": named[0], "response_b": named[1], "winner": key}
                return True
        named = [k for k in texts if any(o != k and o.startswith((f"{k}_", f"{k}.", f"{k} ")) for o in self.columns)]
        if len(named) > 1 and not any(role_of_name(key) for key in named):
            self.roles["text"] = "{system:" + "|".join(named) + "}"
            return True
        return False

    def _graded_column(self, texts: Sequence[str], ratings: Sequence[str]) -> str:
        """A column of numbers on both sides of 0 beside a pair, which say how much better one text is."""
        numbers = {k: self.columns[k].numbers for k in ratings if self.columns[k].numbers}
        found = [k for k, of_column in numbers.items() if min(of_column) < 0 < max(of_column)]
        if (
            len(found) == 1
            and not any(_holds_part(found[0], part) for part in texts)
            and len(self.columns[found[0]].codes) < 12
        ):
            self.roles["winner"] = found[0]
            return found[0]
        return ""

    def _ratings_per_text(self, texts: Family, ratings: Sequence[str]) -> bool:
        """Whether each text of a family has columns of ratings of its own."""
        by_part = {part: [k for k in ratings if _holds_part(k, part)] for part in texts.members}
        return sum(bool(found) for found in by_part.values()) * 2 > len(by_part) and len(by_part) > 1

    def _is_comment(self, key: str) -> bool:
        return role_of_name(key) == "comment"

    # --- raters and systems ---

    def _text_keys(self) -> list[str]:
        """The columns that identify a text."""
        found = [self.roles[r] for r in ("source", "text", "response_a", "response_b") if self.roles.get(r)]
        keys = [part.removesuffix("[]") for column in found for part in column.split("+")]
        return [
            k
            for column in keys
            for k in ([m for _, m in self.keys.matching(column, {})] if "{" in column else [column])
            if k in self.columns
        ]

    def _distinct(self, keys: Sequence[str]) -> int:
        return len(set(zip(*(self.columns[key].keys for key in keys), strict=True))) if keys else 1

    def _raters(self) -> None:
        text = self._text_keys()
        total, texts = len(self.rows), self._distinct(text)
        if "rater" in self.roles:
            return
        named, repeated, aspect = self.keys.named("rater"), total - texts, self._aspect_column()
        base = [*text, aspect] if aspect and not self._severity_columns() else text
        if named is not None:
            self.roles["rater"] = named
            if again := total - self._distinct([*base, named]):
                self._repeated(base, named, again)
            return
        if not repeated:
            return
        rated = [key for key in self.columns if is_rater_name(key) and key not in self.roles.values()]
        if "sheet" in self.columns:
            rated.append("sheet")
        unexplained = {key: total - self._distinct([*base, key]) for key in rated}
        if best := min(unexplained, key=unexplained.__getitem__, default=""):
            self.roles["rater"] = best
            if unexplained[best]:
                self._repeated(base, best, unexplained[best])
        elif repeated > max(5, 0.2 * total) and not aspect and self._distinct(base) < total:
            self.settings.setdefault("repeated", "raters")
            names = [
                k
                for k in self.columns
                if k not in text
                and self._distinct([*text, k]) == total
                and 1 < len(set(self.columns[k].keys)) <= total / 2
                and not self.columns[k].numbers
            ]
            lines = [f"rater = {_quoted(name)}" for name in names] or ['repeated = "mean"', 'repeated = "separate"']
            text_ = (
                f"{repeated} of {total} rows repeat a text; each is read as one of another rater. Else write instead"
            )
            self.questions.append(DraftQuestion(text_, lines))

    def _repeated(self, base: Sequence[str], rater: str, repeats: int) -> None:
        """What becomes of texts that a rater rated more than once: two equal texts if all did so, else to be asked."""
        if "repeated" in self.settings:
            return
        counts = Counter(zip(*(self.columns[k].keys for k in (*base, rater)), strict=True))
        by_text: dict[object, list[int]] = defaultdict(list)
        for key, number in counts.items():
            by_text[key[:-1]].append(number)
        if self._severity_columns():
            self.settings["repeated"] = "sum"
            return
        alike = all(len({*numbers}) == 1 for numbers in by_text.values())
        self.settings["repeated"] = "separate" if alike else "mean"
        read = "as two texts that are equal" if alike else "as their mean"
        lines = [
            f'repeated = "{how}"'
            for how in ("mean", "separate", "first", "last", "sum")
            if how != self.settings["repeated"]
        ]
        text = (
            f"{repeats} ratings are of a text that the rater has rated before; they are read {read}. Else write instead"
        )
        self.questions.append(DraftQuestion(text, lines))

    def _severity_columns(self) -> list[str]:
        return [k for k, c in self.columns.items() if c.words and {w.casefold() for w in c.words} <= _SEVERITIES.keys()]

    def _candidates(self) -> None:
        if "candidate" in self.roles or "response_a" in self.roles or "{" in self.roles.get("text", ""):
            return
        named = self.keys.named("candidate")
        text, source = self._text_keys(), self.roles.get("source")
        for key in [named] if named else [k for k in self.columns if self._is_system_name(k)]:
            if key is None or self.columns[key].is_text:
                continue
            # A system may have written one text for a source only.
            source_keys = [k for k in text if source and k in source.removesuffix("[]").split("+")]
            one_each = self._distinct([*source_keys, key]) == self._distinct([*text, key])
            if (source_keys and one_each) or (not source_keys and len(set(self.columns[key].keys)) > 1):
                self.roles["candidate"] = key
                return
        if not source and (group := next((k for k in self.columns if normalized_name(k) == "group"), None)):
            self.roles["group"] = group

    @staticmethod
    def _is_system_name(name: str) -> bool:
        words = tokens(name)
        return bool(words) and (
            words[-1] in CANDIDATE_WORDS
            or (words[-1] in ("name", "id") and any(w in CANDIDATE_WORDS for w in words[:-1]))
        )

    # --- pairs ---

    def _verdict_columns(self, texts: Sequence[str]) -> list[str]:
        """The columns that may hold verdicts on a pair."""
        found = []
        for key, column in self.columns.items():
            words = tokens(key)
            if key in texts or not words or column.is_text or is_rater_name(key):
                continue
            named = any(word in VERDICT_WORDS for word in words) or _NUMBERED_RATER.fullmatch(normalized_name(key))
            if (
                named
                and not any(word in (*COMMENT_WORDS, "strength", "confidence", "date", "id") for word in words)
                and 0 < len(column.codes) <= 20
            ):
                found.append(key)
        exact = [key for key in found if tokens(key) and tokens(key)[0] in VERDICT_WORDS and len(tokens(key)) == 1]
        return exact or found

    def _verdicts(self) -> bool:
        """The verdicts of a pair: aspects, raters and the meaning of codes."""
        if "response_a" not in self.roles:
            return False
        texts = [self.roles["response_a"].removesuffix("[]"), self.roles["response_b"].removesuffix("[]")]
        scale = Scale(0, 1, 0.5)
        verdicts = [self.roles["winner"]] if "winner" in self.roles else self._verdict_columns(texts)
        if not verdicts:
            self.aspects.append(AspectDraft(PREFERENCE, [], scale, definition=PAIRS.aspects[0].definition))
            return True
        one_hot = self._one_hot(verdicts)
        aspect_column = self._aspect_column()
        if one_hot:
            self.roles["winner"] = one_hot.named("value")
            codes = {part: 1 for part in one_hot.members}
            values: Counter[str] = Counter(
                {code_of(p): sum(_ticked(c) for c in self.columns[k].cells) for p, k in one_hot.members.items()}
            )
        else:
            values = Counter(
                code_of(v)
                for k in verdicts
                if k in self.columns
                for cell in self.columns[k].cells
                for v in self._split(cell)
            )
            codes = dict(values)
            raters = [f for f in families(verdicts) if len(f.members) == len(verdicts)]
            if len(verdicts) > 1 and raters:
                self.roles["winner"] = raters[0].named("rater")
            elif len(verdicts) == 1 and self.keys.named("winner") != verdicts[0]:
                self.roles["winner"] = verdicts[0]
        self._codes(codes, values, texts)
        if aspect_column:
            self.roles.setdefault("aspect", aspect_column)
            self._aspects_of_pairs(self.columns[aspect_column], scale)
        else:
            columns = list(verdicts) if len(verdicts) > 1 and "winner" not in self.roles else []
            self.aspects.append(AspectDraft(PREFERENCE, columns, scale, definition=PAIRS.aspects[0].definition))
        return True

    def _aspects_of_pairs(self, column: Column, scale: Scale) -> None:
        for value in dict.fromkeys(str(cell).strip() for cell in column.cells if not is_missing(cell)):
            name = self._usable(value)
            definition = f"Which of two texts is better in {name}: 1 the better one, 0 the other, 0.5 both alike."
            self.aspects.append(AspectDraft(name, [value], scale, definition=definition))

    @staticmethod
    def _split(cell: object) -> list[object]:
        parts: list[Any] = cell if isinstance(cell, list) else cell.split(";") if isinstance(cell, str) else [cell]
        return [part for part in parts if not is_missing(part)]

    def _one_hot(self, columns: Sequence[str]) -> Family | None:
        """Columns of which exactly one is ticked in each row."""
        for family in families(columns):
            members = [self.columns[key] for key in family.members.values()]
            flags = all({*column.codes} <= _TICKS for column in members)
            blank = [any(is_missing(cell) for cell in column.cells) for column in members]
            if len(members) > 1 and flags and all(len(c.codes) + b > 1 for c, b in zip(members, blank, strict=True)):
                ticks = [sum(_ticked(cell) for cell in row) for row in zip(*(c.cells for c in members), strict=True)]
                if sum(n <= 1 for n in ticks) == len(ticks) and sum(n == 1 for n in ticks) >= 0.9 * len(ticks):
                    return family
        return None

    def _codes(self, codes: Mapping[str, object], values: Counter[str], texts: Sequence[str]) -> None:
        """The meaning of verdicts that are not clear."""
        if "codes" in self.settings:
            return
        models = [
            str(cell) for key in ("model_a", "model_b") if key in self.columns for cell in self.columns[key].cells
        ]
        unclear = [c for c in codes if clear_verdict(c, texts) is None and c not in map(code_of, models)]
        if not unclear:
            return
        total = sum(values.values())
        clear = {c: clear_verdict(c, texts) for c in codes if c not in unclear}
        numbers = [c for c in unclear if looks_like_a_number(c)]
        if len(numbers) == len(unclear):
            readings = _numeric_readings(sorted(unclear, key=float))
        else:
            readings = [self._word_readings(unclear, texts)]
        lines = []
        for reading in readings:
            ties = sum(values[c] for c in unclear if reading.get(c) == "tie") + sum(
                values[c] for c, r in clear.items() if r == 0.5
            )
            lines.append(f"codes = {_table(reading)}    # ties: {100 * ties / max(1, total):.0f} %")
        graded = len(readings) == 1 and len(numbers) < len(unclear)
        shares = ", ".join(f"{c}: {100 * values[c] / max(1, total):.0f} %" for c in codes)
        text = f"the verdicts are coded ({shares}): what do they mean? " + (
            "They are read as below" if graded else "Write one of"
        )
        if graded:
            self.settings["codes"] = readings[0]
        self.questions.append(DraftQuestion(text, lines, open=not graded))

    def _word_readings(self, unclear: Sequence[str], texts: Sequence[str]) -> dict[str, Any]:
        """A reading of words as verdicts: by the names of the texts, and how much better one is."""
        words = [{*tokens(text)} for text in texts]
        own = [words[0] - words[1], words[1] - words[0]]
        reading: dict[str, Any] = {}
        for code in unclear:
            of = tokens(code)
            symbols = re.fullmatch(r"\W*(?:a|1|left)?\s*(>+|<+|=+)\s*(?:b|2|right)?\W*", code)
            side = next((n for n in (0, 1) if own[n] & {*of} or MARKS[n] & {*of}), None)
            if symbols:
                share = {">": 0.75, ">>": 1, "<": 0.25, "<<": 0, "=": 0.5}.get(symbols[1][:2], 0.5)
                reading[code] = "tie" if share == 0.5 else share
            elif any(
                word in ("tie", "similar", "equal", "equally", "same", "both", "neither", "neutral", "draw")
                for word in of
            ):
                reading[code] = "tie"
            elif side is not None and any(
                word in ("slightly", "somewhat", "marginally", "little", "bit") for word in of
            ):
                reading[code] = (0.75, 0.25)[side]
            else:
                reading[code] = (
                    "ab"[side] if side is not None else "b" if any(v == "a" for v in reading.values()) else "?"
                )
        if "a" in reading.values() or 0.75 in reading.values():
            return {code: "b" if side == "?" else side for code, side in reading.items()}
        return {code: "tie" if side == "?" else side for code, side in reading.items()}

    # --- ratings ---

    def _aspect_column(self) -> str | None:
        """The column that names the aspect of a row of one rating."""
        if found := self.roles.get("aspect") or self.keys.named("aspect"):
            return found if found in self.columns else None
        text = self._text_keys()
        for key, column in self.columns.items():
            words = tokens(key)
            named = words and words[-1] in ASPECT_WORDS and column.words and not column.labels and not column.choices
            if named and self._distinct(text) < self._distinct([*text, key]):
                return key
        return None

    def _long_table(self) -> bool:
        aspect = self._aspect_column()
        if aspect is None or self._severity_columns():
            return False
        named = self.roles.get("rating") or self.keys.named("rating")
        candidates = [named] if named else [k for k in self.columns if tokens(k) and tokens(k)[-1] in RATING_WORDS]
        rating = next(
            (
                k
                for k in candidates
                if k in self.columns and (self.columns[k].numbers or self.columns[k].choices or self.columns[k].labels)
            ),
            None,
        )
        if rating is None:
            return False
        self.roles |= {"aspect": aspect, "rating": rating}
        cells: dict[str, list[object]] = defaultdict(list)
        spelling: dict[str, str] = {}
        for name, value in zip(self.columns[aspect].cells, self.columns[rating].cells, strict=True):
            if not is_missing(name):
                cells[spelling.setdefault(normalized_name(str(name)), str(name).strip())].append(value)
        for value, of_aspect in cells.items():
            column = Column(value, of_aspect, self.columns[rating].is_table)
            self._aspect(self._usable(value), [value], column)
        comment = next((k for k in self.columns if self._is_comment(k) and k not in self.roles.values()), None)
        if comment and self.keys.named("comment") is None:
            self.roles.setdefault("comment", comment)
        return True

    def _rating_columns(self) -> None:
        """The columns that hold ratings of the text beside them."""
        texts = {*self._text_keys(), *(column.removesuffix("[]") for column in self.roles.values())}
        free = {*self._free_texts()}
        named = {
            c for a in self.names.aspects.values() for c in ([a.column] if isinstance(a.column, str) else a.column)
        }
        nested = [key for key in self.columns if key.startswith("ratings.")]
        possible = nested or [
            key
            for key in self.columns
            if key not in texts and key not in free and (key in named or not _NOT_A_RATING.fullmatch(_snake(key)))
        ]
        possible = [
            key for key in possible if key not in self.settings.get("keep", {}) and not self.understood.get(key)
        ]
        names = {normalized_name(key): key for key in possible}
        remaining = []
        for key in possible:
            base = _STATISTIC.fullmatch(normalized_name(key))
            stem = base and (base["after"] or base["before"])
            of_raters = any(name_without_rater(other) == stem for other in possible)
            spread = base and re.search(r"(?:^|_)(?:std|sd|var)(?:_|$)", normalized_name(key))
            if spread or (base and (stem in names or of_raters)):
                self.understood[key] = f"a statistic of {names.get(str(stem), stem)!r}, not read"
            elif _METRIC.fullmatch(normalized_name(key)):
                self.understood[key] = "an automatic metric by its name, not read"
            elif len(possible) > 1 and self._looks_standardized(self.columns[key]):
                self.understood[key] = "fractions on both sides of 0, as of standardized scores; not read"
            elif not nested and self._never_differs(key):
                self.understood[key] = "the same from all raters of a text, so no rating; not read"
            else:
                remaining.append(key)
        for aspect_name, mapped in self.names.aspects.items():
            columns = [mapped.column] if isinstance(mapped.column, str) else list(mapped.column)
            columns = [
                part
                for column in columns
                for part in ([column] if self.keys.matching(column, {}) else column.split("+"))
            ]
            cells = [cell for key in columns for _, k in self.keys.matching(key, {}) for cell in self.columns[k].cells]
            remaining = [
                key for key in remaining if key not in {k for c in columns for _, k in self.keys.matching(c, {})}
            ]
            if columns != [""] and cells:
                self._aspect(aspect_name, columns, Column(aspect_name, cells, self.is_table))
        remaining = self._ratings_of_texts(remaining)
        remaining = self._ticked_ratings(remaining)
        remaining = self._columns_of_raters(remaining)
        for key in remaining:
            name = key.removeprefix("ratings.")
            with_scale = _NAME_WITH_SCALE.fullmatch(name)
            self._aspect(self._usable(with_scale[1] if with_scale else name), [key], self.columns[key])
        comments = [key for key in self.columns if self._is_comment(key) and key not in self.roles.values()]
        if comments and len(self.aspects) == 1 and not self.aspects[0].comment and self.keys.named("comment") is None:
            self.roles.setdefault("comment", comments[0])

    @staticmethod
    def _looks_standardized(column: Column) -> bool:
        numbers = column.numbers
        fractions = sum(not number.is_integer() for number in numbers)
        return bool(numbers) and min(numbers) < 0 < max(numbers) and 2 * fractions > len(numbers)

    def _never_differs(self, key: str) -> bool:
        """Whether a column never differs within a text although several raters rated it."""
        if not self.roles.get("rater") and self.settings.get("repeated") != "raters":
            return False
        text = self._text_keys()
        by_text: dict[object, set[str]] = defaultdict(set)
        sizes: Counter[object] = Counter()
        for row, value in zip(
            zip(*(self.columns[k].keys for k in text), strict=True), self.columns[key].keys, strict=True
        ):
            by_text[row].add(value)
            sizes[row] += 1
        several = [row for row, size in sizes.items() if size > 1]
        return len(several) >= 5 and all(len(by_text[row]) == 1 for row in several)

    def _ratings_of_texts(self, keys: Sequence[str]) -> list[str]:
        """Columns of ratings that belong to one of several texts of a row, as patterns; returns the others."""
        text = self.roles.get("text", "")
        if "{" not in text:
            return list(keys)
        placeholder = re.findall(r"\{(\w+)[:}]", text)[0]
        parts = [bound[placeholder] for bound, _ in self.keys.matching(text, {})]
        patterns = self._patterns_of_texts(keys, text, parts)
        for family in families(list(patterns)):
            named = all(_NUMBERED_RATER.fullmatch(normalized_name(p)) or is_rater_name(p) for p in family.members)
            if named or (family.numbered and _BEFORE_NUMBER.search(family.pattern)):
                merged = [key for pattern in family.members.values() for key in patterns.pop(pattern, [])]
                patterns[family.named("rater")] = merged
        used: set[str] = set()
        for pattern, columns in patterns.items():
            if 2 * len(columns) >= len(parts) and len(columns) > 1:
                used |= {*columns}
                name = re.sub(r"\{\w+\}", "", re.sub(r"^(?:Input|Answer)\.", "", pattern)).strip("_.- ")
                cells = [cell for key in columns for cell in self.columns[key].cells]
                name = self._usable(re.sub(r"[_\s-]{2,}", "_", re.sub(r"\.{2,}", ".", name)) or "rating")
                self._aspect(name, [pattern], Column(name, cells, self.is_table))
        return [key for key in keys if key not in used]

    @staticmethod
    def _patterns_of_texts(keys: Sequence[str], text: str, parts: Sequence[str]) -> dict[str, list[str]]:
        """Pattern with the placeholder of the text -> columns that match it, of those that name one of the texts."""
        placeholder = re.findall(r"\{(\w+)[:}]", text)[0]
        # Where the text is called `sys1`, `rater1_sys1` is about it, and not about the first of anything.
        stem = re.search(r"([A-Za-z]*)\{", text)
        whole = stem[1] if stem and any(f"{stem[1]}{part}" in key for key in keys for part in parts) else ""
        patterns: dict[str, list[str]] = defaultdict(list)
        for key in keys:
            named = [p for p in parts if (f"{whole}{p}" in key if whole else _holds_part(key, p))]
            if named:
                part = re.escape(whole + max(named, key=len))
                place = part if whole else rf"(?<![A-Za-z0-9]){part}(?![A-Za-z0-9])|{part}$"
                patterns[re.sub(place, f"{whole}{{{placeholder}}}", key, count=1)].append(key)
        return patterns

    def _ticked_ratings(self, keys: Sequence[str]) -> list[str]:
        """Radio buttons with a column for each value; returns the other columns."""
        remaining = list(keys)
        while family := self._one_hot([key for key in remaining if {*self.columns[key].codes} <= _TICKS]):
            parts = list(family.members)
            cells: list[object] = [
                next((p for p, k in family.members.items() if _ticked(row.values.get(k))), None) for row in self.rows
            ]
            stem = re.sub(r"^(?:Input|Answer)\.", "", family.pattern).replace("{x}", "").strip("_.- ")
            column = Column(stem, cells, True)
            if not all(map(looks_like_a_number, parts)) and len(column.labels) < len(parts):
                # In the order of the columns, for want of another one.
                column.labels = {part: float(rank) for rank, part in enumerate(parts, start=1)}
            self._aspect(self._usable(stem or "rating"), [family.named("value")], column)
            remaining = [key for key in remaining if key not in family.members.values()]
        return remaining

    def _columns_of_raters(self, keys: Sequence[str]) -> list[str]:
        """Columns of several raters of one aspect; returns the others."""
        by_base: dict[str, list[str]] = defaultdict(list)
        for key in keys:
            name = key.removeprefix("ratings.")
            base = name_without_rater(name)
            if base and (is_rater_name(base) or base in ("r", "a", "p")):
                by_base["rating"].append(key)
            elif base and not _ITEM_NAME.fullmatch(base) and not _NUMBERED_RATER.fullmatch(base):
                by_base[base].append(key)
        plain = {normalized_name(key.removeprefix("ratings.")): key for key in keys}
        used: set[str] = set()
        for base, columns in by_base.items():
            if len(columns) > 1 or base in plain:
                if base in plain:
                    self.understood[plain[base]] = "its raters have columns of their own, so it is not read"
                used |= {*columns, *([plain[base]] if base in plain else [])}
                cells = [cell for key in columns for cell in self.columns[key].cells]
                spelled = re.sub(
                    r"[\s_.-]*\(?(?:rater|annotator|judge|human|expert|worker|person|r|a)?[\s_.-]?(?:\d+|[A-Za-z])\)?$",
                    "",
                    columns[0].removeprefix("ratings."),
                    flags=re.I,
                )
                name = base if base == "rating" else spelled or base
                self._aspect(self._usable(name), columns, Column(base, cells, self.is_table))
        return self._families_of_raters([key for key in keys if key not in used])

    def _families_of_raters(self, keys: Sequence[str]) -> list[str]:
        """Columns of several raters whose names begin with them; returns the others."""
        used: set[str] = set()
        for family in families(keys):
            members = {*family.members.values()}
            if used & members:
                continue
            by_name = all(is_rater_name(re.sub(r"[_ .-]?\d+$", "", part)) for part in family.members)
            numbered = _BEFORE_NUMBER.search(family.pattern)
            if by_name or (family.numbered and numbered):
                cells = [cell for key in family.members.values() for cell in self.columns[key].cells]
                stem = family.pattern.replace(numbered[0] if numbered else "{x}", "").strip("_.- ()")
                self._aspect(self._usable(stem), [family.named("rater")], Column(stem, cells, self.is_table))
                used |= members
            elif family.pattern.endswith(("({x})", "[{x}]")):
                text = f"are {', '.join(map(repr, members))} raters of one aspect? Then write, in one aspect"
                self.questions.append(DraftQuestion(text, [f"column = {_quoted(family.named('rater'))}"]))
        nested = [f for f in families(keys) if f.pattern.endswith(".{x}") and not f.numbered]
        alike = [f for f in nested if sum({*f.members} == {*g.members} for g in nested) > 1]
        if alike:
            lines = [f"column = {_quoted(family.named('rater'))}" for family in alike]
            text = f"are {', '.join(alike[0].members)} raters? Then write an aspect for each of"
            self.questions.append(DraftQuestion(text, lines))
        return [key for key in keys if key not in used]

    def _aspect(self, name: str, columns: list[str], column: Column) -> None:
        """Add the aspect, if the values of a column look like ratings."""
        labels = column.labels
        lower = bool(_LOWER.fullmatch(normalized_name(name))) or (
            bool(labels) and {w.casefold() for w in labels} <= _SEVERITIES.keys()
        )
        missing: list[Any] = list(column.unsure) if labels else []
        if labels:
            values = [labels[v] for v in (" ".join(str(p).split()) for p in column.present) if v in labels]
            scale: Scale | None = (
                Scale(min(labels.values()), max(labels.values())) if len({*labels.values()}) > 1 else None
            )
            if scale and set(labels.values()) != {0, 1}:
                scale = Scale(*_ends(scale.low, scale.high, True))
            if self.settings.get("repeated") == "sum" and scale:
                scale = Scale(0, max(self._sums(columns[0], labels), default=25.0) or 1.0)
            if scale and {*labels.values()} != {0, 1} and not all(_leading_number(word) is not None for word in labels):
                text = f"the words of {columns[0]!r} are read in this order; correct it if it is another"
                self.questions.append(DraftQuestion(text, [f"labels = {_table(labels)}"], name))
        else:
            scale, missing = self._scale(column, name, columns)
            values = column.numbers
        if scale is None:
            if columns[0] in self.columns and columns[0] not in self.understood:
                self.understood[columns[0]] = self._why_not(column)
            return
        known = next(
            (
                a.scale
                for t in TASKS.values()
                for a in t.aspects
                if a.name == name and a.scale.low <= scale.low and scale.high <= a.scale.high
            ),
            None,
        )
        if known and not labels:
            scale = Scale(known.low, known.high)
        halves = all((2 * n).is_integer() for n in values) and not all(n.is_integer() for n in values)
        given = self.names.aspects.get(name)
        comment = next((k for k in self.columns if self._is_comment(k) and tokens(k)[:-1] == tokens(name)), "")
        self.aspects.append(AspectDraft(name, columns, scale, labels, missing, lower, halves))
        self.aspects[-1].comment = given.comment if given and given.comment else comment
        if lower:
            text = f"less {name} is read as better; if more is better, take the line lower_is_better out, or write"
            self.questions.append(DraftQuestion(text, ["lower_is_better = false"], name))
        if missing and not labels:
            far = ", ".join(f"{code:g}" for code in missing)
            text = f"{far} is far from other values of {name} and is read as none; else write instead"
            self.questions.append(DraftQuestion(text, ["missing = []"], name))

    def _sums(self, column: str, labels: Mapping[str, float]) -> list[float]:
        keys = [*self._text_keys(), *([self.roles["rater"]] if self.roles.get("rater") else [])]
        sums: Counter[object] = Counter()
        for row, cell in zip(
            zip(*(self.columns[k].keys for k in keys), strict=True), self.columns[column].cells, strict=True
        ):
            sums[row] += labels.get(" ".join(str(cell).split()), 0.0)  # type: ignore[assignment]
        return [float(value) for value in sums.values()]

    def _scale(self, column: Column, name: str, columns: list[str]) -> tuple[Scale | None, list[Any]]:
        """The scale of a column's values, None if they do not look like ratings, and codes for missing ones."""
        present, numbers, choices = column.present, column.numbers, column.choices
        if choices and set(numbers) <= {0, 1}:
            enough = len(numbers) + len(choices) >= _MIN_SHARE * len(present)
            return (Scale(0, 1) if enough and len({*map(float, numbers), *map(float, choices)}) > 1 else None), []
        if not present or len(numbers) < _MIN_SHARE * len(present):
            return None, []
        missing = _missing_codes(numbers)
        distinct = {*numbers} - {*missing}
        integers = all(number.is_integer() for number in distinct)
        is_count = integers and len(distinct) > 11 and (len(distinct) > _MAX_VALUES or len(distinct) == len(numbers))
        if len(distinct) < 2 or is_count:
            return None, []
        low, high = _ends(min(distinct), max(distinct), integers)
        if (
            (ends := _NAME_WITH_SCALE.fullmatch(columns[0]))
            and float(ends[2]) <= min(distinct)
            and max(distinct) <= float(ends[3])
        ):
            low, high = float(ends[2]), float(ends[3])
        # Fractions may be means of whole points over raters, so only scales of width 1 get finer steps.
        return Scale(low, high, 1.0 if integers or high - low > 1 else 0.01), missing

    def _why_not(self, column: Column) -> str:
        others = [v for v in column.present if not isinstance(v, int | float)]
        advice = [number_remedy(value) for value in others]
        numeric = len(column.numbers) + sum(remedy is not None for remedy in advice)
        if others and numeric >= len(column.present) / 2:
            return f"{others[0]!r} is no rating; {advice[0] or 'correct it or leave it out'}"
        if others and all(re.fullmatch(r"\d{4}-\d\d-\d\d.*", str(v)) for v in others):
            return "spreadsheets make dates of ratings such as 4/5: enter them again, as numbers"
        if others and all(re.fullmatch(r"\[?\d+(?:[,/] ?\d+){2,}\]?|\[[\d., ]+\]", str(v)) for v in others):
            return "write the ratings of several raters as 4;5"
        if column.words and self._differs(column.name):
            words = ", ".join(f"{_key(word)} = {n}" for n, word in enumerate(column.words, start=1))
            return f"not read; if its words are ratings, declare an aspect with this column and labels = {{{words}}}"
        return "not read"

    def _differs(self, key: str) -> bool:
        return key in self.columns and not self._never_differs(key)

    def _usable(self, name: str) -> str:
        """A unique name that an aspect may have."""
        name = re.sub(r"^(?:Input|Answer)\.", "", name.strip())
        # Of a path, the last name says what was rated.
        last = name.rpartition(".")[2].strip("_ ")
        if "." in name and not self.is_table and last and not last.isdigit() and last.lower() not in RATING_WORDS:
            others = (
                [k for k in self.columns if k != name and k.rpartition(".")[2] == last] if name in self.columns else []
            )
            name = name if others or any(last == aspect.name for aspect in self.aspects) else last
        base = name if usable_name(name) else re.sub(r"[^\w .-]+", "_", name).strip(" _.-") or "aspect"
        taken = {aspect.name for aspect in self.aspects}
        choices = (base if number == 1 else f"{base}_{number}" for number in count(1))
        return next(choice for choice in choices if usable_name(choice) and choice not in taken)

    def _empty_texts(self) -> None:
        keys = [
            m
            for r in ("text", "response_a", "response_b")
            if r in self.roles
            for _, m in self.keys.matching(self.roles[r].removesuffix("[]"), {})
        ]
        empty = sum(any(_is_empty(row.values.get(key)) for key in keys) for row in self.rows)
        if empty and "empty" not in self.settings:
            self.settings["empty"] = "skip"
            text = f"{empty} records without a text are left out; to have them refused instead, write"
            self.questions.append(DraftQuestion(text, ['empty = "error"']))

    # --- errors ---

    def _no_text_error(self) -> InputError:
        from pathlib import Path

        error = missing_columns_error(self.rows[:200], list(self.columns))
        folder = Path(self.file.name).parent
        if len(joined_files(self.file.name)) > 1 or not folder.is_dir() or self.file.name.startswith("hf:"):
            return error
        others = [
            p
            for p in sorted(folder.iterdir())[:50]
            if p.suffix in (".jsonl", ".json", ".csv", ".tsv") and str(p) != self.file.name
        ]
        texts = next((p for p in others if p.name != Path(self.file.name).name and self._has_texts(str(p))), None)
        joined = f"{self.file.name}+{texts}" if texts else f"{self.file.name}+TEXTS.jsonl"
        remedy = f"if the texts are in another file, name both: debate check {joined}"
        return error.replaced(problem="no column holds texts", remedy=remedy)

    def _has_texts(self, name: str) -> bool:
        """Whether a file beside this one has its columns of ids, and texts."""
        from debate_judge.data.files.formats import detect_format

        try:
            first = next(detect_format(name).records(), None)
        except InputError:
            return False
        if first is None or not {*map(str, first.values)} & {*self.columns}:
            return False
        return any(isinstance(v, str) and len(v.split()) > 2 for v in first.values.values())

    def _no_ratings_error(self) -> InputError:
        advice = [f"{column}: {why}" for column, why in self.understood.items() if why != "not read"]
        first = ", ".join(f"{k} ({c.present[0]!r:.40})" for k, c in list(self.columns.items())[:20] if c.present)
        return self.rows[0].error(
            "nothing in the data looks like ratings",
            expected="at least one column of numbers, of yes and no, or of words of a scale, with two different values",
            found=first or "columns " + ", ".join(self.columns),
            remedy="; ".join(advice[:3]) or "texts without ratings can be scored; a compile needs ratings",
        )


def _numeric_readings(codes: Sequence[str]) -> list[dict[str, Any]]:
    """The readings of numbers as verdicts."""
    numbers = [float(code) for code in codes]
    if min(numbers) < 0:
        most = max(map(abs, numbers))
        share = {code: round(0.5 + number / most / 2, 4) for code, number in zip(codes, numbers, strict=True)}
        named = {0.0: "b", 0.5: "tie", 1.0: "a"}
        first = {code: named.get(value, value) for code, value in share.items()}
        return [first, {code: named.get(1 - value, round(1 - value, 4)) for code, value in share.items()}]
    if len(codes) > 3:
        top, low = max(numbers), min(numbers)
        share = {code: round(1 - (number - low) / (top - low), 4) for code, number in zip(codes, numbers, strict=True)}
        return [share, {code: round(1 - value, 4) for code, value in share.items()}]
    orders = (
        [("a", "b", "tie"), ("tie", "a", "b"), ("a", "tie", "b")]
        if len(codes) == 3
        else [("a", "b"), ("b", "a"), ("tie", "a"), ("tie", "b")]
    )
    if len(codes) == 1:
        return [{codes[0]: side} for side in ("a", "b", "tie")]
    if [*codes] == ["1", "2"]:
        orders = [("a", "b"), ("b", "a")]
    return [dict(zip(codes, order, strict=True)) for order in orders]


def _missing_codes(numbers: Sequence[float]) -> list[Any]:
    """Values far off the rest that surveys write for a missing answer: -1, 9, 99, -99."""
    distinct = sorted({*numbers})
    found: list[Any] = []
    for code in (distinct[0], distinct[-1]) if len(distinct) > 2 else ():
        others = [value for value in distinct if value != code]
        low, high = min(others), max(others)
        far = max(low - code, code - high) > 2 * (high - low)
        negative = code < 0 <= low and low >= 1
        if numbers.count(code) > 1 and ((far and re.fullmatch(r"-?([7-9])\1*", f"{code:g}")) or negative):
            found.append(int(code) if code.is_integer() else code)
    return found


def _ends(lowest: float, highest: float, integers: bool) -> tuple[float, float]:
    if not integers and highest > 10 and lowest >= 0 and highest <= 100:
        return 0, 100
    for low, high in _COMMON_ENDS:
        if low <= lowest and highest <= high and (low == 0) == (lowest < 1):
            return low, high
    for end in _SYMMETRIC_ENDS:
        if -end <= lowest and highest <= end:
            return -end, end
    return math.floor(lowest), math.ceil(highest)


def _ticked(cell: object) -> bool:
    return cell is not None and code_of(cell) in {"1", "true", "yes", "x", "✓", "on"}


def _is_empty(value: object) -> bool:
    return value is None or value == [] or not str(value).strip()


def _holds_part(name: str, part: str) -> bool:
    """Whether a part is a word, or the number at the end, of a name."""
    escaped = re.escape(part)
    return re.search(rf"(?<![A-Za-z0-9]){escaped}(?![A-Za-z0-9])", name) is not None or (
        part.isdigit() and re.search(rf"(?<!\d){escaped}(?!\d)", name) is not None
    )


def _snake(name: str) -> str:
    return normalized_name(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name))


def _label(column: str) -> str:
    return re.sub(r"\{.*?\}|\[\]", " ", re.sub(r"[_+\s]+", " ", column.removeprefix("Input."))).strip() or "text"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _toml(value: object) -> str:
    return _table(value) if isinstance(value, Mapping) else json.dumps(value, ensure_ascii=False)


def _table(values: Mapping[str, Any]) -> str:
    def shown(value: object) -> str:
        return f"{value:.15g}" if isinstance(value, int | float) else json.dumps(value, ensure_ascii=False)

    return "{" + ", ".join(f"{_key(str(key))} = {shown(value)}" for key, value in values.items()) + "}"
