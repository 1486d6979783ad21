"""Drafts the mapping and the task of a file from the names and contents of its columns, for `debate check`.

A draft is a proposal: it says how each column was understood, and asks what names and contents cannot settle, each
question with the line to write. Nothing else reads a file by what is guessed here. Columns are classified by
`runs.column_values`; the rules here, one after the other, give them roles, find aspects and ask.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import (
    PREFERENCE,
    RATER_NAME,
    ROLES,
    SOURCE_WORDS,
    TEXT_WORDS,
    ColumnNames,
    Family,
    Keys,
    ReadingNotes,
    code_of,
    families,
    is_rater_name,
    looks_like_raters,
    missing_columns_error,
    name_without_rater,
    normalized_name,
    part_in_name,
    role_of_name,
    tokens,
)
from debate_judge.data.files.formats import JSON, TEXT_TABLES, RecordFile, detect_format
from debate_judge.data.files.groups import MARKS, clear_verdict, flat, inner_records, limit_memory
from debate_judge.data.files.records import Record, is_missing, looks_like_a_number, messages_in
from debate_judge.data.schema import Scale, Task, is_visible
from debate_judge.data.tasks import PAIRS, TASKS, task_of, usable_name
from debate_judge.runs.column_values import WORDS, Column, as_toml, ends, is_ticked, name_without_scale, toml_key

_CHECK_NAME = re.compile(r"(?:is_|was_)?(?:valid|accepted|approved)|.*attention_?checks?(?:_passed)?|passed.*checks?")
"""Names of columns that say whether a record counts."""
_NUMBERED_RATER = re.compile(rf"(?:{RATER_NAME.pattern}|[arp])_?\d+")
_NOT_A_RATING = re.compile(
    r"(?:.*[_.])?(?:id|idx|index|nr|no|number|row|seed|year|date|time|timestamp|length|words|tokens|turn|rank_id|seg"
    r"|seconds|duration|latency|cost|age|key)|time_(?:taken|spent)|.*work_?time.*"
    r"|(?!judge$|expert$)(?:" + RATER_NAME.pattern + r")|unnamed:.*|column_\d+_\(no_name\)|sheet"
)
"""Names of columns with ids, dates, durations, lengths or raters, and of those without a name."""
_BEFORE_NUMBER = re.compile(rf"(?:^|[^A-Za-z])(?:{RATER_NAME.pattern}|[arp])[_ .-]?\{{x\}}", re.I)
"""The end of the name of a rater in a pattern, before its number."""
_BEFORE_LETTER = re.compile(rf"(?:^|[^A-Za-z])(?:{RATER_NAME.pattern})[_ .-]?\{{x\}}", re.I)
_STATISTIC = re.compile(
    r"(?:mean|avg|average|median|std|sd|z|zscore|z_score|norm(?:ali[sz]ed)?|raw_mean)_(?P<after>.+)"
    r"|(?P<before>.+)_(?:mean|avg|average|median|std|sd|sum|total|z|zscore|z_score|z_scores|norm(?:ali[sz]ed)?|rank)"
)
_METRIC = re.compile(
    r".*(?:rouge|bleu|meteor|bert_?score|chrf|comet|perplexity|ppl|similarity|bart_?score|moverscore).*"
)
_LOWER = re.compile(r"(?:.*_)?(?:rank|ranking|errors?|mistakes?|penalty|penalties|severity|hallucinations?)(?:_count)?")
"""Names of columns in which less is usually better."""
_ITEM_NAME = re.compile(r"(?:.*\.)?(?:q|question|item|statement|criterion|aspect|dimension)")
"""Names whose numbers count what was rated, and not raters: `Question 1`, `Question 2`."""
_MAX_ASPECTS, _MAX_COLUMNS = 100, 5_000


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
    """Whether some ratings are half points."""
    definition: str = ""
    comment: Any = ""

    def lines(self) -> list[str]:
        """The lines of its table in the task file."""
        low, high = as_toml(self.scale.low), as_toml(self.scale.high)
        name = re.sub(r"[_\s]+", " ", self.name).strip()
        usual = f"How good the text is in {name}. {low} is the worst, {high} the best."
        usual = f"Whether {name} holds: {low} no, {high} yes." if self.scale.binary else usual
        lines = [f"[aspects.{toml_key(self.name)}]", f"definition = {as_toml(self.definition or usual)}"]
        lines += [f"low = {low}", f"high = {high}"]
        if self.scale.step != 1:
            lines.append(f"step = {as_toml(self.scale.step)}")
        elif not self.scale.binary:
            step, points = ("0.5", "whole or half points") if self.halves else ("1", "whole points")
            lines.append(f"# step = {step}    # with it all scores are {points}; without it they tie less")
        if self.columns and self.columns != [self.name]:
            lines.append(f"column = {as_toml(self.columns[0] if len(self.columns) == 1 else self.columns)}")
        lines += [f"{n} = {as_toml(v)}" for n in ("labels", "missing", "comment") if (v := getattr(self, n))]
        return [*lines, "lower_is_better = true"] if self.lower_is_better else lines


@dataclass
class Draft:
    """A mapping with its task, and what is to be asked about it."""

    name: str
    given: ColumnNames
    """What the user has said already."""
    roles: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    aspects: list[AspectDraft] = field(default_factory=list)
    understood: dict[str, str] = field(default_factory=dict)
    """Column -> how it was understood."""
    questions: list[DraftQuestion] = field(default_factory=list)
    built_in: str = ""
    """A built-in task whose aspects and scales are those of the file."""

    def ask(self, text: str, lines: Iterable[str], place: str = "columns", *, is_open: bool = False) -> None:
        """Ask what names and contents do not settle."""
        self.questions.append(DraftQuestion(text, [*lines], place, is_open))

    @property
    def is_open(self) -> bool:
        return any(question.open for question in self.questions)

    def task(self) -> Task:
        """The task that the file of the draft describes.

        Raises:
            InputError: The draft cannot be used.
        """
        return task_of(Record(tomllib.loads(self.toml()), "the draft", format="toml"))

    def toml(self) -> str:
        """The text of the task file; lines that answer questions are comments."""

        def label(column: str) -> str:
            words = re.sub(r"[_+\s]+", " ", column.removeprefix("Input."))
            return as_toml(re.sub(r"\{.*?\}|\[\]", " ", words).strip() or "text")

        source, text = self.roles.get("source", "source"), self.roles.get("text", self.roles.get("response_a", "text"))
        name = re.sub(r"[^\w-]+", "-", self.name).strip("-") or "task"
        lines = [
            "# Drafted from the names and contents of the columns. Correct what is wrong, and say in each",
            "# definition what to look at and what the ends of the scale mean: it is the judge's rubric.",
            f"name = {as_toml(name)}",
            f"source_label = {label(source)}",
            f"candidate_label = {label(text)}",
        ]
        mapping = [f"{toml_key(role)} = {as_toml(column)}" for role, column in self.roles.items() if role != column]
        mapping += [f"{name} = {as_toml(value)}" for name, value in self.settings.items()]
        tables = {aspect.name: aspect.lines() for aspect in self.aspects}
        for place, table in [*tables.items(), ("columns", ["[columns]", *mapping])]:
            asked = [q for q in self.questions if q.place == place]
            if len(table) > 1 or asked:
                lines += ["", *table]
            for question in asked:
                lines += [f"# {question.text}", *(f"# {line}" for line in question.lines if line not in table)]
        return "\n".join(lines) + "\n"


class _Table:
    """The records of a file and their columns."""

    def __init__(self, rows: list[Record], outer: set[str], *, decimal_commas: bool) -> None:
        self.rows, self.outer, self.decimal_commas = rows, outer, decimal_commas
        self.is_table = rows[0].format == "csv"
        names = list(dict.fromkeys(key for row in rows for key in map(str, row.values)))
        self.columns = {name: self.column(name, [row.values.get(name) for row in rows]) for name in names}
        self.keys = Keys(names)
        self._codes: dict[str, list[int]] = {}

    def column(self, name: str, cells: list[object]) -> Column:
        return Column(name, cells, self.is_table, decimal_commas=self.decimal_commas)

    def joined(self, name: str, columns: Iterable[str]) -> Column:
        """A column of the values of several."""
        return self.column(name, [cell for key in columns for cell in self.columns[key].cells])

    def matching(self, column: str) -> list[str]:
        """The columns that a pattern, or a name, means."""
        return [key for _, key in self.keys.matching(column.removesuffix("[]"), {})]

    def codes(self, key: str) -> list[int]:
        """The values of a column as numbers, the same for values that differ in blanks only."""
        if key not in self._codes:
            numbers: dict[str, int] = {}
            texts = (" ".join(str(cell).split()) for cell in self.columns[key].cells)
            self._codes[key] = [numbers.setdefault(text, len(numbers)) for text in texts]
        return self._codes[key]

    def combinations(self, keys: Iterable[str]) -> list[tuple[int, ...]]:
        """Of each row the values of some columns as numbers."""
        return list(zip(*map(self.codes, keys), strict=True)) or [()] * len(self.rows)

    def distinct(self, *keys: str) -> int:
        """How many combinations of values the columns have."""
        return len({*self.combinations(keys)})

    def is_one_hot(self, keys: Sequence[str]) -> bool:
        """Whether at most one of the columns is ticked in each row, and one in nearly all."""
        members = [self.columns[key] for key in keys]
        if len(members) < 2 or not all(c.is_ticks and len({*map(is_ticked, c.cells)}) == 2 for c in members):
            return False
        ticks = [sum(map(is_ticked, cells)) for cells in zip(*(c.cells for c in members), strict=True)]
        return max(ticks) == 1 and sum(ticks) >= 0.9 * len(ticks)

    def one_hot(self, keys: Sequence[str]) -> Family | None:
        return next((f for f in families(keys) if self.is_one_hot(list(f.members.values()))), None)


def draft_mapping(file: RecordFile, names: ColumnNames, name: str) -> Draft:
    """Draft the mapping of a file.

    Args:
        file: The file.
        names: What the user has said of it already, which is kept.
        name: Name of the task.

    Raises:
        InputError: The file has no texts, or nothing in it looks like ratings.
    """
    settings = {k: v for k, v in names.to_table().items() if k not in (*ROLES, "aspects")}
    draft = Draft(name, names, dict(names.roles), settings)
    table = _read(file, draft)
    if table.keys.named("task"):
        draft.roles.setdefault("task", "none")
    _ask_about_status(table, draft)
    unsettled = _find_texts(table, draft, file)
    _find_raters(table, draft)
    _find_candidates(table, draft)
    if not _find_verdicts(table, draft) and not _find_long_ratings(table, draft):
        _find_rating_columns(table, draft)
    _skip_empty_texts(table, draft)
    if not draft.aspects:
        raise _no_ratings_error(table, draft)
    if len(draft.aspects) > _MAX_ASPECTS:
        expected = f"at most {_MAX_ASPECTS}; describe the aspects in a task file, and name it with --task"
        raise table.rows[0].error(f"{len(draft.aspects):,} columns look like ratings", expected=expected)
    draft.roles = {role: c for role, c in draft.roles.items() if c and (role != "text" or c != unsettled)}
    draft.understood = _all_understood(table, draft)
    draft.built_in = _built_in(draft)
    return draft


def _all_understood(table: _Table, draft: Draft) -> dict[str, str]:
    """How each column is read, in the order of roles, ratings, and what is not read."""
    implied = {role: column for role in ROLES if role not in draft.roles and (column := table.keys.named(role))}
    if "aspect" not in draft.roles:
        implied = {role: c for role, c in implied.items() if role not in ("aspect", "rating")}
    understood = {c: f"read as {role}" for role, c in (draft.roles | implied).items()}
    # A column with the name of a role is read, although it holds no ratings.
    no_rating = {c for c in implied.values() if draft.understood.get(c, "").startswith("not read")}
    understood |= {c: how for c, how in draft.understood.items() if c not in {*draft.roles.values(), *no_rating}}
    used = {*understood, *(c for a in draft.aspects for c in a.columns)}
    for aspect in (a for a in draft.aspects if a.columns):
        less = ", less is better" if aspect.lower_is_better else ""
        understood[aspect.name] = f"ratings in {', '.join(aspect.columns)}, {aspect.scale}{less}"
        used |= {aspect.name, *([aspect.comment] if isinstance(aspect.comment, str) else aspect.comment)}
    parts = {part for column in used for part in column.split("+")}
    matched = {*parts, *draft.settings.get("keep", {})}.union(*(table.matching(c) for c in used | parts if c))
    return understood | {key: "not read" for key in table.columns if key not in matched}


def _built_in(draft: Draft) -> str:
    mapped = any(a.labels or a.missing or a.lower_is_better for a in draft.aspects)
    if mapped or draft.settings or draft.is_open:
        return ""

    def fits(task: Task, aspect: AspectDraft) -> bool:
        scale = next((a.scale for a in task.aspects if a.name == aspect.name), None)
        named = task is PAIRS or aspect.columns in ([], [aspect.name])
        return named and scale is not None and scale.low <= aspect.scale.low and aspect.scale.high <= scale.high

    return next((task.name for task in TASKS.values() if all(fits(task, a) for a in draft.aspects)), "")


# --- records ---


def _read(file: RecordFile, draft: Draft) -> _Table:
    """The records of a file; the draft gets `sheet`, `records` and `decimal`."""
    rows, outer = _records(file, draft)
    keys = list(dict.fromkeys(key for row in rows for key in map(str, row.values)))
    for key in keys:
        if not key.isascii():  # Names are printed, and written to the task file.
            replace(next(r for r in rows if key in map(str, r.values)), values={key: key}).text(key, blank=True)
    rating = Keys(keys).named("rating") if Keys(keys).named("aspect") else None
    # Rows of a comment alone, or of a text that nobody rated, say nothing about raters.
    rows = [row for row in rows if rating is None or not is_missing(row.values.get(rating))] or rows
    if len(keys) > _MAX_COLUMNS:
        expected = f"at most {_MAX_COLUMNS:,}; objects that are keyed by ids are records = 'NAME.*'"
        raise rows[0].error(f"{len(keys):,} different fields", expected=expected)
    table = _Table(rows, outer, decimal_commas=rows[0].decimal_commas or draft.settings.get("decimal") == "comma")
    commas = [c.name for c in table.columns.values() if c.has_decimal_commas] if table.is_table else []
    if commas and not rows[0].decimal_commas and "decimal" not in draft.settings:
        draft.settings["decimal"] = "comma"
        draft.ask(f"commas in {', '.join(commas)} are decimal; if not, write", ['decimal = "point"'])
        return _Table(rows, outer, decimal_commas=True)
    return table


def _records(file: RecordFile, draft: Draft) -> tuple[list[Record], set[str]]:
    """The records with texts and ratings, and the names of the columns that come from the records around them."""

    def inner(records: Iterable[Record], path: str) -> list[Record]:
        return list(limit_memory(inner_records(records, path), file.name))

    names = _with_sheets(file, draft)
    records, path, outer = inner(file.opened(names, ReadingNotes(file.name)), names.records), names.records, set[str]()
    if not records:
        raise InputError("no records", file=file.name)
    if {"annotations", "instances"} <= records[0].values.keys():
        remedy = f"name the layout: debate check judgebench={file.name}"
        raise records[0].error("a file in the layout of JUDGE-BENCH", remedy=remedy)
    if not path and (side_by_side := _lists_side_by_side(records)):
        draft.settings["records"] = side_by_side
        return [flat(record) for record in inner(records, side_by_side)], outer
    for _ in range(0 if path else 3):
        best, *others = _lists_of_records(records, outer)
        if not best:
            break
        if others:
            text = f"the ratings in {best!r} are read, and not those in {', '.join(others)}; else write instead"
            draft.ask(text, [f'records = "{other}[]"' for other in others])
        if pair := _pair_in_list(records, best):
            draft.roles |= pair
            return [flat(record, indexed=True) for record in records], outer
        path = ".".join(filter(None, (path, f"{best}[]")))
        records = inner(records, f"{best}[]")
        outer = {key for record in records[:500] for key in set(map(str, record.values)) - {*record.full_names}}
    if path:
        draft.settings["records"] = path
    return [flat(record) for record in records], outer


def _with_sheets(file: RecordFile, draft: Draft) -> ColumnNames:
    """The mapping, with the sheets of a workbook that are alike, or the two that have columns in common."""
    if file.sheet is None or draft.given.sheet or "first of" not in file.format:
        return draft.given
    heads: dict[object, set[str]] = defaultdict(set)
    for record in file.sheet("*"):
        heads[record.values.get("sheet")] = set(record.values)
    alike, shared = len({frozenset(head) for head in heads.values()}) == 1, set.intersection(*heads.values())
    if not alike and not (len(heads) == 2 and len(shared) > 1):
        return draft.given
    draft.settings["sheet"] = sheet = "*" if alike else "+".join(map(str, heads))
    return draft.given.model_copy(update={"sheet": sheet})


def _lists_of_records(records: Sequence[Record], outer: Collection[str]) -> list[str]:
    """The lists inside of records that hold the rated texts or the ratings, the best one first, then others with the
    same fields; the first is empty if there is none."""
    inner: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    for record in records[:500]:
        for key, value in flat(record).values.items():
            is_list = key not in outer and isinstance(value, list) and value and isinstance(value[0], dict)
            if is_list and not messages_in(value):
                inner[key] += [item for item in value if isinstance(item, dict)]  # type: ignore[attr-defined]
    scores = {"": 0}
    for key, items in inner.items():
        column = Column(key, [c for v in items[:200] for c in flat(Record(v, "")).values.values()], False)
        texts = any(isinstance(cell, str) and len(cell.split()) > 2 for cell in column.cells)
        scores[key] = len(items) * (bool(column.numbers or column.choices) + texts)
    best = max(scores, key=scores.__getitem__)
    return [best, *(key for key in inner if best and key != best and {*inner[key][0]} == {*inner[best][0]})]


def _lists_side_by_side(records: Sequence[Record]) -> str:
    """Lists of texts and of numbers that are equally long in each record, as a path; empty if there are none."""
    texts, numbers = "", []
    for key, value in records[0].values.items():
        lists: list[Any] = [record.values.get(key) for record in records[:500]]
        if isinstance(value, str) and role_of_name(key) == "text" and len(value.split()) > 2:
            return ""
        if not all(isinstance(items, list) and len(items) > 1 for items in lists) or messages_in(value):
            continue
        items = [item for of_record in lists for item in of_record]
        if all(isinstance(item, int | float) for item in items):
            numbers.append(key)
        elif role_of_name(key) == "text" and all(isinstance(item, str | dict) for item in items):
            texts = key
    names = [texts, *numbers] if texts and numbers else []
    alike = all(len({len(record.items(key)) for key in names}) == 1 for record in records[:500])
    return "+".join(f"{key}[]" for key in names) if alike else ""


def _pair_in_list(records: Sequence[Record], name: str) -> dict[str, str]:
    """The roles of two texts that are the only ones of a list in each record, beside a verdict."""
    lists: list[Any] = [flat(record).values.get(name) for record in records]
    verdicts = any(word in WORDS["verdict"] for key in records[0].values for word in tokens(str(key)))
    if not verdicts or not all(isinstance(value, list) and len(value) == 2 for value in lists):
        return {}
    texts = [k for k, v in lists[0][0].items() if isinstance(v, str) and len(v.split()) > 2]
    rated = any(Column(k, [item.get(k) for value in lists for item in value], False).numbers for k in lists[0][0])
    if rated or not texts:
        return {}
    return {role: f"{name}.{n}.{texts[0]}" for n, role in enumerate(("response_a", "response_b"))}


def _ask_about_status(table: _Table, draft: Draft) -> None:
    """Records that were rejected, cancelled, or failed a check."""
    rated = sum(column.is_rated and not column.is_text for column in table.columns.values())
    for key, c in table.columns.items():
        is_check = rated > 1 and _CHECK_NAME.fullmatch(_snake(key.rpartition(".")[2])) is not None
        kind = "good status" if {*c.codes} <= {*WORDS["status"]} else "passed" if is_check else ""
        good = [code for code in c.codes if kind and code in WORDS[kind]]
        bad = [code for code in c.codes if code not in good]
        if not (good and bad and (kind == "good status" or len(good) == len(bad) == 1)) or "keep" in draft.settings:
            continue
        left_out = sum(code_of(cell) in bad for cell in c.cells)
        kept = next(str(cell) for cell in c.cells if code_of(cell) in good)
        draft.understood[key] = f"a status: {left_out} of {len(c.cells)} records are {' or '.join(bad)}"
        text = f"{left_out} records are {' or '.join(bad)} by {key!r} and are read; to leave them out, write"
        draft.ask(text, [f"keep = {as_toml({key: kept})}"])


# --- texts ---


def _find_texts(table: _Table, draft: Draft, file: RecordFile) -> str:
    """Give the columns of texts their roles: several texts in a row, pairs, or one; source, context and references.

    Returns:
        The column that is taken for the text as long as the question which it is stays open, else an empty text.
    """
    unsettled: str | None = ""
    free = [key for key, column in table.columns.items() if column.may_be_text]
    by_role: dict[str, list[str]] = defaultdict(list)
    for key in free:
        by_role[table.columns[key].role].append(key)
    if not {"text", "response_a"} & draft.roles.keys():
        unsettled = _several_texts(table, draft, free)
        if unsettled is None:
            _single_text(table, draft, free, by_role, file)
    if "source" not in draft.roles:
        _find_source(table, draft, free, by_role)
    for role in ("context", "reference"):
        found = next((key for key in by_role[role] if key not in draft.roles.values()), None)
        if found and table.keys.named(role) is None:
            draft.roles.setdefault(role, found)
    for role in ("source", "context", "reference", "text", "response_a", "response_b"):
        column = table.columns.get(draft.roles.get(role, ""))
        if column is not None and column.is_list and not column.is_messages:
            draft.roles[role] = f"{column.name}[]"
    return unsettled or ""


def _named(table: _Table, role: str, words: Sequence[str], free: Sequence[str]) -> str | None:
    """The column with the name of a role, unless it holds no texts and another one may be meant."""
    name = table.keys.named(role)
    others = [k for k in free if table.columns[k].normalized in words and table.columns[k].normalized != role]
    if name is None or table.columns[name].is_text or not others:
        return name
    longer = any(table.columns[k].average_length > 2 * table.columns[name].average_length for k in others)
    return None if longer or name not in free else name


def _find_source(table: _Table, draft: Draft, free: Sequence[str], by_role: Mapping[str, list[str]]) -> None:
    """The column of what the texts were written for, by its name, or as the text that is left."""
    taken = {*draft.roles.values()}.union(*(table.matching(c) for c in draft.roles.values() if "{" in c))
    named = _named(table, "source", SOURCE_WORDS, free)
    candidates = [named] if named else [key for key in by_role.get("source", []) if key not in taken]
    if len(candidates) > 1:
        candidates = [key for key in candidates if table.columns[key].is_text] or candidates
    rest = [key for role in ("", "context") for key in by_role.get(role, []) if key not in taken]
    by_word = {table.columns[key].last: key for key in reversed(candidates)}
    numbered = [f for f in families(candidates) if f.numbered and len(f.members) > 1]
    if {"instruction", "input"} <= by_word.keys():
        draft.roles["source"] = f"{by_word['instruction']}+{by_word['input']}"
    elif numbered and "{i}" in draft.roles.get("text", ""):
        draft.roles["source"] = numbered[0].named("i")
    elif candidates:
        first, *others = sorted(candidates, key=lambda key: _place(key, SOURCE_WORDS))
        draft.roles["source"] = first
        if others:
            text = f"{first!r} is read as the source, and {', '.join(map(repr, others))} not; else write instead"
            draft.ask(text, [f"source = {as_toml(key)}" for key in (*others, "+".join(candidates))])
    elif rest:
        # What comes first, beside different texts, is probably what they were written for.
        draft.roles["source"] = rest[0]
        text = draft.roles.get("text") or draft.roles["response_a"]
        draft.ask(f"is {rest[0]!r} what {text!r} was written for? If not, write instead", ['source = "none"'])


def _single_text(
    table: _Table, draft: Draft, free: Sequence[str], by_role: Mapping[str, list[str]], file: RecordFile
) -> None:
    """The one column of texts that was rated."""
    length = {key: table.columns[key].average_length for key in free}
    of_text, has_source = by_role.get("text", []), bool(by_role.get("source"))
    if named := _named(table, "text", TEXT_WORDS, free):
        draft.roles["text"] = named
        others = [key for key in of_text if key != named]
        if others and not has_source and length.get(named, 0) > 2 * length[others[0]]:
            draft.roles |= {"text": others[0], "source": named}
            text = f"is {others[0]!r}, written for {named!r}, what was rated? If not, write"
            draft.ask(text, [f'text = "{named}"'])
        return
    others = [key for key in free if table.columns[key].role not in ("comment", "reference", "context")][-1:]
    texts = of_text or by_role.get("") or [key for key in others if table.columns[key].normalized != "source"]
    if not texts:
        raise _no_text_error(table, file)
    if of_text:
        order = sorted(texts, key=lambda key: _place(key, TEXT_WORDS))
    else:
        # Beside a source the longest is the text; else what it was written for comes first.
        order = sorted(texts, key=lambda key: (-length[key] if has_source else 0, -texts.index(key)))
    draft.roles["text"] = order[0]
    if len(order) > 1:
        text = f"{order[0]!r} is read as the text that was rated; if it is another column, write"
        draft.ask(text, [f"text = {as_toml(key)}" for key in order[1:4]])


def _several_texts(table: _Table, draft: Draft, free: Sequence[str]) -> str | None:
    """Several columns of texts: a pair, or one text for each number or system.

    Returns:
        The column that is taken for the text while it is asked which is, if it is; None if there are no several texts.
    """
    chosen, rejected = (table.keys.named(name) for name in ("chosen", "rejected"))
    if chosen and rejected:
        draft.roles |= {"response_a": chosen, "response_b": rejected}
        return ""
    ratings = [key for key, column in table.columns.items() if key not in free and column.is_rated]
    possible = families([key for key in free if table.columns[key].role not in ("reference", "comment")])
    if all(table.columns[key].role in ("source", "reference", "comment") for key in free):
        # Beside no other texts, references are what was compared.
        possible += families([key for key in free if table.columns[key].role == "reference"])
    for family in [*_texts_named_after_systems(table, free), *possible]:
        members = list(family.members.values())
        sources = all(table.columns[k].role == "source" and not table.columns[k].is_messages for k in members)
        if sources or any(part.lower() in WORDS["texts"] for part in family.members):
            continue
        if len(members) == 2 and (_verdict_columns(table, members) or _graded(table, draft, members, ratings)):
            first, second = members[::-1] if [part.lower() for part in family.members] == ["b", "a"] else members
            draft.roles |= {"response_a": first, "response_b": second}
            return ""
        pattern = family.named("i" if family.numbered else "system")
        rated = [any(part_in_name(part, key) for key in ratings) for part in family.members]
        if len(rated) > 1 and sum(rated) * 2 > len(rated):
            draft.roles["text"] = pattern
            _texts_beside(table, draft, family, pattern, free)
            return ""
        names = {code_of(name) for name in (*family.members, *members)}
        for key in _verdict_columns(table, members):
            if len(members) > 2 and {*table.columns[key].codes} <= names:
                draft.understood[key] = "names the best of several texts: write a column of 1 and 0 for each text"
        text = f"{', '.join(map(repr, members))} are texts: which was rated? Write one of"
        draft.ask(text, [f"text = {as_toml(key)}" for key in (*members, pattern)], is_open=True)
        draft.roles["text"] = members[0]
        return members[0]
    return None


def _texts_named_after_systems(table: _Table, free: Sequence[str]) -> Iterator[Family]:
    """Columns of texts that are called like their systems, which verdicts or columns of ratings name."""
    texts = [key for key in free if table.columns[key].is_text]
    for verdicts in _verdict_columns(table, texts):
        named = [key for key in texts if code_of(key) in table.columns[verdicts].codes]
        if len(named) == 2:
            yield Family("", {key: key for key in named})
    named = [k for k in texts if any(o != k and o.startswith((f"{k}_", f"{k}.", f"{k} ")) for o in table.columns)]
    if len(named) > 1 and not any(table.columns[key].role for key in named):
        yield Family("{system:" + "|".join(named) + "}", {key: key for key in named})


def _texts_beside(table: _Table, draft: Draft, family: Family, pattern: str, free: Sequence[str]) -> None:
    """Columns of texts beside those of a family: what each was written for, or more texts, about which to ask."""
    members, no_text = [*family.members.values()], ("source", "reference", "comment")
    others = [key for key in free if key not in members and table.columns[key].role not in no_text]
    left = [key for key in others if any(families([member, key]) for member in members)]
    parts: dict[str, set[str]] = defaultdict(set)
    for key in others:
        for part in family.members:
            if found := part_in_name(part, key):
                parts[f"{key[: found.start()]}{{x}}{key[found.end() :]}"].add(part)
    beside = [stem for stem, of_stem in parts.items() if of_stem == {*family.members}]
    if len(beside) == 1 and not any(table.columns[key].role == "source" for key in free):
        source = Family(beside[0], family.members).named("i" if family.numbered else "system")
        draft.roles["source"] = source
        draft.ask(f"is {source!r} what {pattern!r} was written for? If not, write", ['source = "none"'])
    elif left:
        text = f"{', '.join(map(repr, left))} are texts, too: name all, here and in `column`, as in"
        draft.ask(text, [f"text = {as_toml('sys{system}_{i}')}"], is_open=True)


def _graded(table: _Table, draft: Draft, texts: Sequence[str], ratings: Sequence[str]) -> bool:
    """Whether beside a pair a column has numbers on both sides of 0, which say how much better one text is; or several
    have a tick for the better text, or for a tie."""
    numbers = {key: table.columns[key].numbers for key in ratings if table.columns[key].numbers}
    graded = [key for key, of_column in numbers.items() if min(of_column) < 0 < max(of_column)]
    ticked = [key for key in ratings if table.columns[key].is_ticks and clear_verdict(key, texts) is not None]
    if len(graded) == 1 and len(table.columns[graded[0]].codes) < 12:
        draft.roles["winner"] = graded[0]
    elif table.is_one_hot(ticked):
        draft.roles["winner"] = "{value:" + "|".join(ticked) + "}"
    return "winner" in draft.roles


def _skip_empty_texts(table: _Table, draft: Draft) -> None:
    columns = [draft.roles[role] for role in ("text", "response_a", "response_b") if role in draft.roles]
    keys = [key for column in columns for key in table.matching(column)]
    empty = sum(any(not is_visible(str(row.values.get(key) or "")) for key in keys) for row in table.rows)
    if empty and "empty" not in draft.settings:
        draft.settings["empty"] = "skip"
        text = f"{empty} records without a text are left out; to have them refused instead, write"
        draft.ask(text, ['empty = "error"'])


# --- raters and systems ---


def _text_keys(table: _Table, draft: Draft) -> list[str]:
    """The columns that identify a text."""
    found = [c for r in ("source", "text", "response_a", "response_b") if (c := draft.roles.get(r))]
    plain = [part.removesuffix("[]") for column in found if "{" not in column for part in column.split("+")]
    return [k for k in (*plain, *(k for c in found if "{" in c for k in table.matching(c))) if k in table.columns]


def _find_raters(table: _Table, draft: Draft) -> None:
    """The column of raters, and what becomes of texts that one rated more than once."""
    text, total, aspect = _text_keys(table, draft), len(table.rows), _aspect_column(table, draft)
    repeated = total - table.distinct(*text)
    named = table.keys.named("rater")
    if "rater" in draft.roles or not (repeated or named):
        return
    has_severities = any(column.is_severity for column in table.columns.values())
    base = [*text, aspect] if aspect and not has_severities else text
    raters = [named] if named else [k for k in table.columns if is_rater_name(k) and k not in draft.roles.values()]
    raters += ["sheet"] if "sheet" in table.columns and not named else []
    if raters:
        again = {key: total - table.distinct(*base, key) for key in raters}
        best = draft.roles["rater"] = min(again, key=again.__getitem__)
        if not again[best] or "repeated" in draft.settings:
            return
        if has_severities:
            draft.settings["repeated"] = "sum"
            return
        times: dict[object, set[int]] = defaultdict(set)
        for (*of_text, _), number in Counter(table.combinations([*base, best])).items():
            times[tuple(of_text)].add(number)
        # Two equal texts if all raters did so.
        alike = all(len(numbers) == 1 for numbers in times.values())
        draft.settings["repeated"] = "separate" if alike else "mean"
        read = "as two texts that are equal" if alike else "as their mean"
        others = [how for how in ("mean", "separate", "first", "last", "sum") if how != draft.settings["repeated"]]
        text_ = f"{again[best]} ratings are of a text that the rater has rated before; they are read {read}"
        draft.ask(f"{text_}. Else write instead", [f'repeated = "{how}"' for how in others])
    elif repeated > max(5, 0.2 * total) and not aspect and table.distinct(*base) < total:
        draft.settings.setdefault("repeated", "raters")
        others = [k for k, column in table.columns.items() if k not in text and not column.numbers]
        others = [k for k in others if table.distinct(*text, k) == total and 1 < table.distinct(k) <= total / 2]
        lines = [f"rater = {as_toml(name)}" for name in others] or ['repeated = "mean"', 'repeated = "separate"']
        text_ = f"{repeated} of {total} rows repeat a text; each is read as of another rater. Else write instead"
        draft.ask(text_, lines)


def _find_candidates(table: _Table, draft: Draft) -> None:
    """The column of the systems that wrote the texts."""
    if {"candidate", "response_a"} & draft.roles.keys() or "{" in draft.roles.get("text", ""):
        return
    text, source = _text_keys(table, draft), draft.roles.get("source", "").removesuffix("[]").split("+")
    of_source, named = [key for key in text if key in source], table.keys.named("candidate")
    for key, column in table.columns.items():
        numbered = column.last in ("name", "id") and any(word in WORDS["system"] for word in column.tokens[:-1])
        if (key != named if named else not (column.last in WORDS["system"] or numbered)) or column.is_text:
            continue
        # A system may have written one text for a source only.
        one_each = not of_source or table.distinct(*of_source, key) == table.distinct(*text, key)
        if one_each and (of_source or table.distinct(key) > 1):
            draft.roles["candidate"] = key
            return


# --- pairs ---


def _verdict_columns(table: _Table, texts: Sequence[str]) -> list[str]:
    """The columns that may hold verdicts on a pair: those whose name is a word for them alone, or else all."""
    found = []
    for key, c in table.columns.items():
        named = any(w in WORDS["verdict"] for w in c.tokens) or _NUMBERED_RATER.fullmatch(c.normalized)
        other = any(w in (*WORDS["comment"], *WORDS["no verdict"]) for w in c.tokens)
        if key not in texts and named and not other and not c.is_text and not is_rater_name(key):
            found += [key] if 0 < len(c.codes) <= 20 else []
    return [
        k for k in found if len(table.columns[k].tokens) == 1 and table.columns[k].last in WORDS["verdict"]
    ] or found


def _find_verdicts(table: _Table, draft: Draft) -> bool:
    """The verdicts of a pair: aspects, raters and the meaning of codes."""
    if "response_a" not in draft.roles:
        return False
    texts = [draft.roles[role].removesuffix("[]") for role in ("response_a", "response_b")]
    winner = draft.roles.get("winner", "")
    verdicts = [winner] if winner in table.columns else table.matching(winner) if winner else []
    if not verdicts and [*map(normalized_name, texts)] != ["chosen", "rejected"]:
        verdicts = _verdict_columns(table, texts)
    if verdicts and "{value" not in winner:
        raters = [f for f in families(verdicts) if len(f.members) == len(verdicts) > 1]
        if one_hot := table.one_hot(verdicts):
            draft.roles["winner"] = one_hot.named("value")
            ticks = {c: sum(map(is_ticked, table.columns[k].cells)) for c, k in one_hot.members.items()}
            _ask_about_codes(table, draft, Counter(ticks), texts)
        else:
            if raters:
                draft.roles["winner"] = raters[0].named("rater")
            elif len(verdicts) == 1 and table.keys.named("winner") != verdicts[0]:
                draft.roles["winner"] = verdicts[0]
            cells = (part for key in verdicts for cell in table.columns[key].cells for part in _verdicts_in(cell))
            _ask_about_codes(table, draft, Counter(map(code_of, cells)), texts)
    scale, aspect = Scale(0, 1, 0.5), _aspect_column(table, draft) if verdicts else None
    if aspect is None:
        columns = verdicts if len(verdicts) > 1 and "winner" not in draft.roles else []
        draft.aspects.append(AspectDraft(PREFERENCE, columns, scale, definition=PAIRS.aspects[0].definition))
        return True
    draft.roles.setdefault("aspect", aspect)
    cells_of_aspect = table.columns[aspect].cells
    for value in dict.fromkeys(str(cell).strip() for cell in cells_of_aspect if not is_missing(cell)):
        name = _usable(table, draft, value)
        definition = f"Which of two texts is better in {name}: 1 the better one, 0 the other, 0.5 both alike."
        draft.aspects.append(AspectDraft(name, [value], scale, definition=definition))
    return True


def _verdicts_in(cell: object) -> Iterator[object]:
    """The verdicts in a cell, which may be of several raters."""
    parts: list[Any] = cell if isinstance(cell, list) else cell.split(";") if isinstance(cell, str) else [cell]
    return (part for part in parts if not is_missing(part))


def _ask_about_codes(table: _Table, draft: Draft, values: Counter[str], texts: Sequence[str]) -> None:
    """The meaning of verdicts that are not clear."""
    models = {code_of(c) for k in ("model_a", "model_b") if k in table.columns for c in table.columns[k].cells}
    clear = {code: clear_verdict(code, texts) for code in values}
    unclear = [code for code in values if clear[code] is None and code not in models]
    if "codes" in draft.settings or not unclear:
        return
    total, numeric = max(1, values.total()), all(map(looks_like_a_number, unclear))
    readings = _numeric_readings(sorted(unclear, key=float)) if numeric else [_word_readings(unclear, texts)]
    lines = []
    for reading in readings:
        ties = sum(n for code, n in values.items() if reading.get(code) == "tie" or clear[code] == 0.5)
        lines.append(f"codes = {as_toml(reading)}    # ties: {100 * ties / total:.0f} %")
    shares = ", ".join(f"{code}: {100 * n / total:.0f} %" for code, n in values.items())
    answer = "Write one of" if numeric else "They are read as below"
    draft.ask(f"the verdicts are coded ({shares}): what do they mean? {answer}", lines, is_open=numeric)
    if not numeric:
        draft.settings["codes"] = readings[0]


def _numeric_readings(codes: Sequence[str]) -> list[dict[str, Any]]:
    """The readings of numbers as verdicts: what each means, or the share of the first text."""
    numbers = [float(code) for code in codes]
    if numbers[0] < 0 or len(codes) > 3:
        most = max(map(abs, numbers))
        low, high = (-most, most) if numbers[0] < 0 else (numbers[0], numbers[-1])
        named: dict[float, Any] = {0.0: "b", 0.5: "tie", 1.0: "a"}
        shares = [round((number - low) / (high - low), 4) for number in numbers]
        both = (shares, [round(1 - share, 4) for share in shares])
        readings = [{c: named.get(v, v) for c, v in zip(codes, of, strict=True)} for of in both]
        return readings if numbers[0] < 0 else readings[::-1]
    sides = {"a": "a", "b": "b", "t": "tie"}
    orders = {1: ["a", "b", "t"], 2: ["ab", "ba", "ta", "tb"], 3: ["abt", "tab", "atb"]}[len(codes)]
    orders = orders[:2] if [*codes] == ["1", "2"] else orders
    return [{code: sides[side] for code, side in zip(codes, order, strict=True)} for order in orders]


def _word_readings(unclear: Sequence[str], texts: Sequence[str]) -> dict[str, Any]:
    """A reading of words as verdicts: by the names of the texts, and how much better one is."""
    words = [{*tokens(text)} for text in texts]
    own = [words[0] - words[1], words[1] - words[0]]
    reading: dict[str, Any] = {}
    for code in unclear:
        of = tokens(code)
        symbols = re.fullmatch(r"\W*?(\w*)\s*(>+|<+|=+)\s*\w*\W*", code)
        side = next((n for n in (0, 1) if own[n] & {*of} or MARKS[n] & {*of}), None)
        if symbols:
            share = {">": 0.75, ">>": 1, "<": 0.25, "<<": 0}.get(symbols[2][:2], 0.5)
            reading[code] = "tie" if share == 0.5 else 1 - share if symbols[1] in MARKS[1] else share
        elif any(word in WORDS["tie"] for word in of):
            reading[code] = "tie"
        elif side is not None and any(word in WORDS["slight"] for word in of):
            reading[code] = (0.75, 0.25)[side]
        else:
            reading[code] = "ab"[side] if side is not None else "b" if "a" in reading.values() else "?"
    other = "b" if "a" in reading.values() or 0.75 in reading.values() else "tie"
    return {code: other if side == "?" else side for code, side in reading.items()}


# --- ratings ---


def _aspect_column(table: _Table, draft: Draft) -> str | None:
    """The column that names the aspect of a row of one rating."""
    if found := draft.roles.get("aspect") or table.keys.named("aspect"):
        return found if found in table.columns else None
    text = _text_keys(table, draft)
    for key, column in table.columns.items():
        named = column.last in WORDS["aspect"] and column.words and not column.is_rated
        if named and table.distinct(*text) < table.distinct(*text, key):
            return key
    return None


def _find_long_ratings(table: _Table, draft: Draft) -> bool:
    """The ratings of a table with one in each row."""
    aspect = _aspect_column(table, draft)
    if aspect is None or any(column.is_severity for column in table.columns.values()):
        return False
    named = draft.roles.get("rating") or table.keys.named("rating")
    candidates = [named] if named else [k for k, column in table.columns.items() if column.last in WORDS["rating"]]
    rating = next((k for k in candidates if k in table.columns and table.columns[k].is_rated), None)
    if rating is None:
        return False
    draft.roles |= {"aspect": aspect, "rating": rating}
    cells: dict[str, list[object]] = defaultdict(list)
    spelling: dict[str, str] = {}
    for name, value in zip(table.columns[aspect].cells, table.columns[rating].cells, strict=True):
        if not is_missing(name):
            cells[spelling.setdefault(normalized_name(str(name)), str(name).strip())].append(value)
    for value, of_aspect in cells.items():
        _add_aspect(table, draft, value, [value], table.column(value, of_aspect))
    _find_comment(table, draft)
    return True


def _find_comment(table: _Table, draft: Draft) -> None:
    """A column of comments that belong to no aspect."""
    found = next((k for k, c in table.columns.items() if c.role == "comment" and k not in draft.roles.values()), None)
    if found and table.keys.named("comment") is None:
        draft.roles.setdefault("comment", found)


def _find_rating_columns(table: _Table, draft: Draft) -> None:
    """The columns that hold ratings of the text beside them."""
    taken = {key for key, column in table.columns.items() if column.may_be_text} | draft.settings.get("keep", {}).keys()
    taken |= {*_text_keys(table, draft), *(column.removesuffix("[]") for column in draft.roles.values())}
    taken |= draft.understood.keys()
    keys = [key for key in table.columns if key.startswith("ratings.")] or list(table.columns)
    keys = [key for key in keys if key not in taken and not _NOT_A_RATING.fullmatch(_snake(key))]
    for name, mapped in draft.given.aspects.items():
        columns = [mapped.column] if isinstance(mapped.column, str) else list(mapped.column)
        columns = [part for column in columns if column for part in table.keys.parts(column, {})]
        if of_aspect := [key for column in columns for key in table.matching(column)]:
            _add_aspect(table, draft, name, columns, table.joined(name, of_aspect))
            keys = [key for key in keys if key not in of_aspect]
    keys = _without_data(table, draft, keys)
    for find in (_ratings_of_texts, _ticked_ratings, _columns_of_raters, _objects_of_raters):
        used = find(table, draft, keys)
        keys = [key for key in keys if key not in used]
    for key in keys:
        _add_aspect(table, draft, name_without_scale(key.removeprefix("ratings.")), [key], table.columns[key])
    rated = [key for key in keys if any(aspect.columns == [key] for aspect in draft.aspects)]
    asked: list[tuple[Collection[str], object]] = [(f.members, f.named("rater")) for f in families(rated)]
    asked = [(names, column) for names, column in asked if looks_like_raters(names, people=True)]
    if not asked and looks_like_raters(rated, people=True):
        asked = [(rated[:5], rated)]
    for names, column in asked:
        text = f"are {', '.join(names)} raters? Then write one aspect in place of theirs, with"
        draft.ask(text, [f"column = {as_toml(column)}"])
    if len(draft.aspects) == 1 and not draft.aspects[0].comment:
        _find_comment(table, draft)


def _without_data(table: _Table, draft: Draft, keys: Sequence[str]) -> list[str]:
    """The columns without those that are no ratings: statistics, metrics, conditions, standardized scores."""
    names = {table.columns[key].normalized: key for key in keys}
    of_raters = {name_without_rater(key) for key in keys}
    nested_ratings = any(key.startswith("ratings.") for key in keys)
    inside = draft.roles.get("text", "") not in table.outer
    several = bool(draft.roles.get("rater")) or draft.settings.get("repeated") == "raters"
    rated, why = [], {}
    for key in keys:
        column = table.columns[key]
        base = _STATISTIC.fullmatch(column.normalized)
        stem = base and (base["after"] or base["before"])
        spread = re.search(r"(?:^|_)(?:std|sd|var)(?:_|$)", column.normalized)
        if base and (spread or stem in names or stem in of_raters):
            draft.understood[key] = f"a statistic of {names.get(str(stem), stem)!r}, not read"
        elif _METRIC.fullmatch(column.normalized):
            draft.understood[key] = "an automatic metric by its name, not read"
        elif key in table.outer and inside:
            draft.understood[key] = "of the record around the texts, so of none of them; not read"
        elif column.is_standardized:
            why[key] = "fractions on both sides of 0, as of standardized scores"
        elif not nested_ratings and several and _never_differs(table, draft, key):
            why[key] = "the same from all raters of a text, so no rating"
        else:
            rated.append(key)
    others = any(table.columns[key].scale(key)[0] or table.columns[key].labels for key in rated)
    if not others and any(table.columns[key].is_rated or table.columns[key].is_ticks for key in why):
        # Without other ratings, these are them.
        return [*rated, *why]
    for key, reason in why.items():
        column = table.columns[key]
        draft.understood[key] = column.why_no_rating() if column.words and not others else f"{reason}; not read"
        if others and column.is_standardized:
            low, high = ends(min(column.numbers), max(column.numbers), False)
            lines = [f"[aspects.{toml_key(_usable(table, draft, key))}]", 'definition = "…"', f"low = {as_toml(low)}"]
            text = f"{key!r} holds {reason}, and is not read; if raters gave these values, add at the end"
            draft.ask(text, [*lines, f"high = {as_toml(high)}", f"column = {as_toml(key)}"])
    return rated


def _never_differs(table: _Table, draft: Draft, key: str) -> bool:
    """Whether a column never differs within a text although several raters rated it."""
    values: dict[object, list[int]] = defaultdict(list)
    for text, value in zip(table.combinations(_text_keys(table, draft)), table.codes(key), strict=True):
        values[text].append(value)
    repeated = [{*of_text} for of_text in values.values() if len(of_text) > 1]
    return len(repeated) >= 5 and all(len(of_text) == 1 for of_text in repeated)


def _ratings_of_texts(table: _Table, draft: Draft, keys: Sequence[str]) -> set[str]:
    """Columns of ratings that belong to one of several texts of a row, as patterns; returns them."""
    text, used = draft.roles.get("text", ""), set[str]()
    if "{" not in text:
        return used
    placeholder = re.findall(r"\{(\w+)[:}]", text)[0]
    parts = [bound[placeholder] for bound, _ in table.keys.matching(text, {})]
    # Where the text is called `sys1`, `rater1_sys1` is about it, and not about the first of anything.
    stem = re.search(r"([A-Za-z]*)\{", text)
    whole = stem[1] if stem and any(f"{stem[1]}{part}" in key for key in keys for part in parts) else ""
    patterns: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        matches = {p: re.search(re.escape(whole + p), key) if whole else part_in_name(p, key) for p in parts}
        part = max((p for p in parts if matches[p]), key=len, default=None)
        if part is not None and (match := matches[part]):
            patterns[f"{key[: match.start()]}{whole}{{{placeholder}}}{key[match.end() :]}"].append(key)
    for family in families(list(patterns)):
        if _without_rater(family) is not None:
            merged = [key for pattern in family.members.values() for key in patterns.pop(pattern, [])]
            patterns[family.named("rater")] = merged
    for pattern, columns in patterns.items():
        if 2 * len(columns) >= len(parts) and len(columns) > 1:
            used |= {*columns}
            name = re.sub(r"\{\w+\}", "", re.sub(r"^(?:Input|Answer)\.", "", pattern)).strip("_.- ")
            name = re.sub(r"[_\s-]{2,}", "_", re.sub(r"\.{2,}", ".", name)) or "rating"
            _add_aspect(table, draft, name, [pattern], table.joined(name, columns))
    return used


def _ticked_ratings(table: _Table, draft: Draft, keys: Sequence[str]) -> set[str]:
    """Radio buttons with a column for each value; returns the columns."""
    used: set[str] = set()
    while family := table.one_hot([key for key in keys if key not in used and table.columns[key].is_ticks]):
        values = family.members
        ticked = ([v for v, key in values.items() if is_ticked(row.values.get(key))] for row in table.rows)
        stem = re.sub(r"^(?:Input|Answer)\.", "", family.pattern).replace("{x}", "").strip("_.- ")
        column = Column(stem, [found[0] if found else None for found in ticked], True)
        if not all(map(looks_like_a_number, values)) and len(column.labels) < len(values):
            # In the order of the columns, for want of another one.
            column.labels = {value: float(rank) for rank, value in enumerate(values, start=1)}
        _add_aspect(table, draft, stem or "rating", [family.named("value")], column)
        used |= {*values.values()}
    return used


def _columns_of_raters(table: _Table, draft: Draft, keys: Sequence[str]) -> set[str]:
    """Columns of several raters of one aspect, by the ends or beginnings of their names; returns them."""
    by_base: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        base = name_without_rater(key.removeprefix("ratings."))
        if base and (is_rater_name(base) or base in ("r", "a", "p")):
            by_base["rating"].append(key)
        elif base and not _ITEM_NAME.fullmatch(base) and not _NUMBERED_RATER.fullmatch(base):
            by_base[base].append(key)
    plain = {normalized_name(key.removeprefix("ratings.")): key for key in keys}
    used: set[str] = set()
    for base, columns in by_base.items():
        if len(columns) < 2 and base not in plain:
            continue
        if base in plain:
            draft.understood[plain[base]] = "its raters have columns of their own, so it is not read"
            used.add(plain[base])
        used |= {*columns}
        name = "rating" if base == "rating" else columns[0].removeprefix("ratings.").strip()[: len(base)]
        _add_aspect(table, draft, name, columns, table.joined(name, columns))
    for family in families([key for key in keys if key not in used]):
        members = [*family.members.values()]
        stem = _without_rater(family)
        if stem is not None and not used & {*members}:
            _add_aspect(table, draft, stem, [family.named("rater")], table.joined(stem, members))
            used |= {*members}
    return used


def _without_rater(family: Family) -> str | None:
    """The name of what raters rated, if the columns of a family differ in the name or the number of a rater."""
    before = _BEFORE_NUMBER.search(family.pattern) if family.numbered else None
    if all(len(part) == 1 for part in family.members):
        before = before or _BEFORE_LETTER.search(family.pattern)
    if before or all(is_rater_name(p) or _NUMBERED_RATER.fullmatch(normalized_name(p)) for p in family.members):
        return family.pattern.replace(before[0] if before else "{x}", "").strip("_.- ()")
    return None


def _objects_of_raters(table: _Table, draft: Draft, keys: Sequence[str]) -> set[str]:
    """Columns that come from objects keyed by raters: `ratings.ada`, `fluency.ada`, `ratings.ada.fluency`; returns
    them."""
    by_pattern: dict[str, dict[str, str]] = defaultdict(dict)
    for key in keys:
        path = key.split(".")
        for n in range(1, len(path)):
            by_pattern[".".join([*path[:n], "{rater}", *path[n + 1 :]])][key] = path[n]
    used: set[str] = set()
    for pattern, raters in by_pattern.items():
        if len(raters) < 2 or used & raters.keys() or not looks_like_raters(raters.values()):
            continue
        name = ".".join(part for part in pattern.split(".") if part != "{rater}").removeprefix("ratings.")
        used |= raters.keys()
        if _add_aspect(table, draft, name, [pattern], table.joined(name, raters)):
            text = f"{', '.join([*raters.values()][:5])} are read as raters; if they are aspects, write a table"
            lines = [f"column = {as_toml(key)}" for key in [*raters][:5]]
            draft.ask(f"{text} [aspects.NAME] for each, with", lines, draft.aspects[-1].name)
    return used


def _add_aspect(table: _Table, draft: Draft, name: str, columns: list[str], column: Column) -> bool:
    """Add the aspect, if the values of a column look like ratings; returns whether they do."""
    name = name if name in draft.given.aspects else _usable(table, draft, name)
    labels, given = column.labels, draft.given.aspects.get(name)
    lower = bool(_LOWER.fullmatch(normalized_name(name))) or (bool(labels) and column.is_severity)
    scale, missing = column.scale(columns[0])
    values = column.numbers
    if labels:
        missing, points = column.unsure, {*labels.values()}
        values = [labels[v] for v in (" ".join(str(p).split()) for p in column.present) if v in labels]
        low, high = (0, 1) if points == {0, 1} else ends(min(points), max(points), True)
        if draft.settings.get("repeated") == "sum":
            low, high = 0, _largest_sum(table, draft, columns[0], labels)
        scale = Scale(low, high) if len(points) > 1 else None
        if scale and not scale.binary and not all(re.search(r"\d|[★⭐*]", word) for word in labels):
            text = f"the words of {columns[0]!r} are read in this order; correct it if it is another"
            draft.ask(text, [f"labels = {as_toml(labels)}"], name)
    if scale is None:
        if columns[0] in table.columns:
            draft.understood.setdefault(columns[0], column.why_no_rating())
        return False
    known = [a.scale for t in TASKS.values() for a in t.aspects if a.name == name and not labels]
    scale = next((Scale(k.low, k.high) for k in known if k.low <= scale.low and scale.high <= k.high), scale)
    halves = all((2 * n).is_integer() for n in values) and not all(n.is_integer() for n in values)
    own = [k for k, c in table.columns.items() if c.role == "comment" and c.tokens[:-1] == tokens(name)]
    comment: Any = (given.comment if given else "") or (own[0] if own else "")
    draft.aspects.append(AspectDraft(name, columns, scale, labels, missing, lower, halves, comment=comment))
    if lower:
        text = f"less {name} is read as better; if more is better, take the line lower_is_better out, or write"
        draft.ask(text, ["lower_is_better = false"], name)
    if missing and not labels:
        far = ", ".join(f"{code:g}" for code in missing)
        text = f"{far} is far from other values of {name} and is read as none; else write instead"
        draft.ask(text, ["missing = []"], name)
    if column.is_standardized:
        text = f"{name} has fractions on both sides of 0, as standardized scores: if the raters' own values are in"
        draft.ask(f"{text} another column, write", ['column = "COLUMN"'], name)
    return True


def _largest_sum(table: _Table, draft: Draft, column: str, labels: Mapping[str, float]) -> float:
    """The largest sum of a rater's ratings of a text."""
    keys = [*_text_keys(table, draft), *filter(None, [draft.roles.get("rater")])]
    sums: dict[object, float] = defaultdict(float)
    for text, cell in zip(table.combinations(keys), table.columns[column].cells, strict=True):
        sums[text] += labels.get(" ".join(str(cell).split()), 0.0)
    return max(sums.values()) or 1.0


def _usable(table: _Table, draft: Draft, name: str) -> str:
    """A unique name that an aspect may have."""
    name = re.sub(r"^(?:Input|Answer)\.", "", name.strip())
    taken = {aspect.name for aspect in draft.aspects}
    # Of a path, the last name says what was rated.
    last = name.rpartition(".")[2].strip("_ ")
    if "." in name and not table.is_table and last and not last.isdigit() and last.lower() not in WORDS["rating"]:
        others = name in table.columns and any(k != name and k.rpartition(".")[2] == last for k in table.columns)
        name = name if others or last in taken else last
    base = name if usable_name(name) else re.sub(r"[^\w .-]+", "_", name).strip(" _.-") or "aspect"
    choices = (base if number == 1 else f"{base}_{number}" for number in count(1))
    return next(choice for choice in choices if usable_name(choice) and choice not in taken)


def _place(key: str, words: Sequence[str]) -> int:
    """The place of the first of the words that a name has."""
    return min((words.index(word) for word in tokens(key) if word in words), default=len(words))


def _snake(name: str) -> str:
    return normalized_name(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name))


# --- errors ---


def _no_text_error(table: _Table, file: RecordFile) -> InputError:
    """The error for a file without texts; it names one beside it that has the same ids, and texts."""
    error = missing_columns_error(table.rows[:200], list(table.columns))
    path = Path(file.name)
    if not path.is_file():
        return error
    others = [p for p in sorted(path.parent.iterdir())[:50] if p.suffix in (*JSON, *TEXT_TABLES) and p != path]
    texts = next((p for p in others if _has_texts(p, table.columns)), "TEXTS.jsonl")
    remedy = f"if the texts are in another file, name both: debate check {file.name}+{texts}"
    return error.replaced(problem="no column holds texts", remedy=remedy)


def _has_texts(path: Path, columns: Collection[str]) -> bool:
    """Whether a file has texts of several words, and one of the columns."""
    try:
        values = next(detect_format(path).records(None), Record({}, "")).values
    except InputError:
        return False
    return any(key in columns for key in values) and any(len(str(v).split()) > 2 for v in values.values())


def _no_ratings_error(table: _Table, draft: Draft) -> InputError:
    advice = [f"{column}: {why}" for column, why in draft.understood.items() if why != "not read"]
    first = ", ".join(f"{k} ({c.present[0]!r:.40})" for k, c in list(table.columns.items())[:20] if c.present)
    return table.rows[0].error(
        "nothing in the data looks like ratings",
        expected="at least one column of numbers, of yes and no, or of words of a scale, with two different values",
        found=first or "columns " + ", ".join(table.columns),
        remedy="; ".join(advice[:3]) or "texts without ratings can be scored; a compile needs ratings",
    )
