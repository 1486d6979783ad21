"""Drafts the mapping and the task of a file from the names and contents of its columns, for `debate check`.

A draft is a proposal: it says how each column was understood, and asks what names and contents cannot settle, each
question with the line to write. Nothing else reads a file by what is guessed here.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import (
    COMMENT_WORDS,
    CONTEXT_WORDS,
    PREFERENCE,
    RATER_NAME,
    REFERENCE_WORDS,
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
    word_list,
)
from debate_judge.data.files.formats import JSON, TEXT_TABLES, RecordFile, detect_format
from debate_judge.data.files.groups import MARKS, clear_verdict, flat, inner_records, limit_memory
from debate_judge.data.files.records import Record, is_missing, looks_like_a_number, messages_in
from debate_judge.data.schema import Scale, Task, is_visible
from debate_judge.data.tasks import PAIRS, TASKS, task_of, usable_name
from debate_judge.runs.column_values import Column, as_toml, ends, is_ticked, name_without_scale, toml_key

if TYPE_CHECKING:
    import pandas as pd

_SYSTEM_WORDS = word_list("system|model|architecture|method|generator|sys")
_ASPECT_WORDS = word_list("aspect|criterion|criteria|dimension|metric|quality|attribute|category")
_RATING_WORDS = word_list("rating|score|value|grade|label|points|mark|stars|judgement|judgment|severity")
_VERDICT_WORDS = word_list("winner|preference|preferred|better|verdict|choice|chosen|selected|vote|label|best")
_TIE_WORDS = word_list("tie|similar|equal|equally|same|both|neither|neutral|draw")
_GOOD_STATUS = word_list("approved|accepted|accept|submitted|valid")
_STATUS = (
    *_GOOD_STATUS,
    *word_list("canceled|cancelled|discarded|draft|ignore|ignored|invalid|reject|rejected|skipped"),
)
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
_TEXT_ROLES = ("text", "response_a", "response_b")
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
        lines = [f"[aspects.{toml_key(self.name)}]", f"definition = {as_toml(self.definition or self._default())}"]
        lines += [f"low = {as_toml(self.scale.low)}", f"high = {as_toml(self.scale.high)}"]
        if self.scale.step != 1:
            lines.append(f"step = {as_toml(self.scale.step)}")
        elif not self.scale.binary:
            step, points = ("0.5", "whole or half points") if self.halves else ("1", "whole points")
            lines.append(f"# step = {step}    # with it all scores are {points}; without it they tie less")
        if self.columns and self.columns != [self.name]:
            lines.append(f"column = {as_toml(self.columns[0] if len(self.columns) == 1 else self.columns)}")
        lines += [f"{n} = {as_toml(v)}" for n in ("labels", "missing", "comment") if (v := getattr(self, n))]
        return [*lines, "lower_is_better = true"] if self.lower_is_better else lines

    def _default(self) -> str:
        low, high, name = as_toml(self.scale.low), as_toml(self.scale.high), re.sub(r"[_\s]+", " ", self.name).strip()
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
        return task_of(Record(tomllib.loads(self.toml()), "the draft", format="toml"))

    def toml(self) -> str:
        """The text of the task file; lines that answer questions are comments."""
        source, text = self.roles.get("source", "source"), self.roles.get("text", self.roles.get("response_a", "text"))
        name = re.sub(r"[^\w-]+", "-", self.name).strip("-") or "task"
        lines = [
            "# Drafted from the names and contents of the columns. Correct what is wrong, and say in each",
            "# definition what to look at and what the ends of the scale mean: it is the judge's rubric.",
            f"name = {as_toml(name)}",
            f"source_label = {as_toml(_label(source))}",
            f"candidate_label = {as_toml(_label(text))}",
        ]
        for aspect in self.aspects:
            lines += ["", *aspect.lines(), *self._asked(aspect.name)]
        table = [f"{toml_key(role)} = {as_toml(column)}" for role, column in self.roles.items() if role != column]
        table += [f"{name} = {as_toml(value)}" for name, value in self.settings.items()]
        asked = self._asked("columns")
        return "\n".join([*lines, *(["", "[columns]", *table, *asked] if table or asked else [])]) + "\n"

    def _asked(self, place: str) -> list[str]:
        drafted = {line for aspect in self.aspects if aspect.name == place for line in aspect.lines()}
        lines: list[str] = []
        for question in self.questions:
            if question.place == place:
                lines += [f"# {question.text}", *(f"# {line}" for line in question.lines if line not in drafted)]
        return lines


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
        self.outer: set[str] = set()
        """Columns of the record around a list of records."""
        self.unsettled = ""
        """The column that is taken for the text as long as the question which it is stays open."""
        self.rows = self._read()
        keys = list(dict.fromkeys(key for row in self.rows for key in map(str, row.values)))
        rating = Keys(keys).named("rating") if Keys(keys).named("aspect") else None
        # Rows of a comment alone, or of a text that nobody rated, say nothing about raters.
        self.rows = [row for row in self.rows if rating is None or not is_missing(row.values.get(rating))] or self.rows
        if len(keys) > _MAX_COLUMNS:
            expected = f"at most {_MAX_COLUMNS:,}; objects that are keyed by ids are records = 'NAME.*'"
            raise self.rows[0].error(f"{len(keys):,} different fields", expected=expected)
        self.is_table = self.rows[0].format == "csv"
        columns = [Column(key, [row.values.get(key) for row in self.rows], self.is_table) for key in keys]
        commas = [c.name for c in columns if c.has_decimal_commas] if self.is_table else []
        if commas and not self.rows[0].decimal_commas and "decimal" not in self.settings:
            self.settings["decimal"] = "comma"
            self.ask(f"commas in {', '.join(commas)} are decimal; if not, write", ['decimal = "point"'])
        self.decimal_commas = self.settings.get("decimal") == "comma" or self.rows[0].decimal_commas
        self.columns = {c.name: self._column(c.name, c.cells) for c in columns}
        self.keys = Keys(keys)
        self._known_codes: dict[str, Any] = {}

    def ask(self, text: str, lines: Iterable[str], place: str = "columns", *, is_open: bool = False) -> None:
        self.questions.append(DraftQuestion(text, [*lines], place, is_open))

    def _column(self, name: str, cells: list[object]) -> Column:
        return Column(name, cells, self.is_table, decimal_commas=self.decimal_commas)

    # --- records ---

    def _read(self) -> list[Record]:
        names = self._sheets()
        records = self._limited(inner_records(self.file.opened(names, ReadingNotes(self.file.name)), names.records))
        if not records:
            raise InputError("no records", file=self.file.name)
        if {"annotations", "instances"} <= records[0].values.keys():
            remedy = f"name the layout: debate check judgebench={self.file.name}"
            raise records[0].error("a file in the layout of JUDGE-BENCH", remedy=remedy)
        path = names.records
        if not path and (path := self._lists_side_by_side(records)):
            self.settings["records"] = path
            return [flat(record) for record in self._limited(inner_records(records, path))]
        for _ in range(3 if not names.records else 0):
            inner, *others = self._lists_of_records(records, self.outer)
            if not inner:
                break
            if others:
                text = f"the ratings in {inner!r} are read, and not those in {', '.join(others)}; else write instead"
                self.ask(text, [f'records = "{other}[]"' for other in others])
            if pair := self._pair_in_list(records, inner):
                self.roles |= pair
                return [flat(record, indexed=True) for record in records]
            path += f"{'.' if path else ''}{inner}[]"
            records = self._limited(inner_records(records, f"{inner}[]"))
            self.outer = {key for record in records[:500] for key in map(str, record.values)} - {
                key for record in records[:500] for key in record.full_names
            }
        if path:
            self.settings["records"] = path
        return [flat(record) for record in records]

    def _limited(self, records: Iterable[Record]) -> list[Record]:
        return list(limit_memory(records, self.file.name))

    def _sheets(self) -> ColumnNames:
        """The mapping, with the sheets of a workbook that are alike, or the two that have columns in common."""
        if self.file.sheet is None or self.names.sheet or "first of" not in self.file.format:
            return self.names
        heads: dict[object, set[str]] = defaultdict(set)
        for record in self.file.sheet("*"):
            heads[record.values.get("sheet")] = set(record.values)
        alike, shared = len({frozenset(head) for head in heads.values()}) == 1, set.intersection(*heads.values())
        if not alike and not (len(heads) == 2 and len(shared) > 1):
            return self.names
        self.settings["sheet"] = sheet = "*" if alike else "+".join(map(str, heads))
        return self.names.model_copy(update={"sheet": sheet})

    @staticmethod
    def _lists_of_records(records: Sequence[Record], outer: Collection[str]) -> list[str]:
        """The lists inside of records that hold the rated texts or the ratings, the best one first; it is empty if
        there is none."""
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
        fields = {key: {*items[0]} for key, items in inner.items() if items}
        return [best, *(key for key in fields if key != best and fields[key] == fields.get(best))]

    @staticmethod
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
        lengths = [{len(record.items(key)) for key in names} for record in records[:500]]
        return "+".join(f"{key}[]" for key in names) if all(len(of_record) == 1 for of_record in lengths) else ""

    @staticmethod
    def _pair_in_list(records: Sequence[Record], name: str) -> dict[str, str]:
        """The roles of two texts that are the only ones of a list in each record, beside a verdict."""
        lists: list[Any] = [flat(record).values.get(name) for record in records]
        verdicts = [k for k in records[0].values if any(word in _VERDICT_WORDS for word in tokens(str(k)))]
        if not verdicts or not all(isinstance(value, list) and len(value) == 2 for value in lists):
            return {}
        texts = [k for k, v in lists[0][0].items() if isinstance(v, str) and len(v.split()) > 2]
        rated = any(Column(k, [item.get(k) for value in lists for item in value], False).numbers for k in lists[0][0])
        if rated or not texts:
            return {}
        return {role: f"{name}.{n}.{texts[0]}" for n, role in enumerate(("response_a", "response_b"))}

    def _status(self) -> None:
        """Records that were rejected, cancelled, or failed a check."""
        rated = sum(column.is_rated and not column.is_text for column in self.columns.values())
        for key, column in self.columns.items():
            good = [code for code in column.codes if code in _GOOD_STATUS]
            bad = [code for code in column.codes if code in _STATUS and code not in _GOOD_STATUS]
            is_status = good and bad and {*column.codes} <= {*_STATUS}
            if not is_status and _CHECK_NAME.fullmatch(_snake(key.rpartition(".")[2])) and rated > 1:
                good = [code for code in column.codes if code in ("1", "true", "yes", "pass", "passed", "correct")]
                bad = [code for code in column.codes if code not in good]
                is_status = len(good) == len(bad) == 1
            if is_status and "keep" not in self.settings:
                left_out = sum(code_of(cell) in bad for cell in column.cells)
                kept = next(str(cell) for cell in column.cells if code_of(cell) in good)
                self.understood[key] = f"a status: {left_out} of {len(column.cells)} records are {' or '.join(bad)}"
                text = f"{left_out} records are {' or '.join(bad)} by {key!r} and are read; to leave them out, write"
                self.ask(text, [f"keep = {as_toml({key: kept})}"])

    # --- the draft ---

    def draft(self) -> Draft:
        if self.keys.named("task"):
            self.roles.setdefault("task", "none")
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
        return Draft(
            self.name, roles, self.settings, self.aspects, self._understood(roles), self.questions, self._built_in()
        )

    def _understood(self, roles: dict[str, str]) -> list[tuple[str, str]]:
        """How each column is read, in the order of roles, ratings, and what is not read."""
        implied = {role: column for role in ROLES if role not in roles and (column := self.keys.named(role))}
        if "aspect" not in roles:
            implied = {role: c for role, c in implied.items() if role not in ("aspect", "rating")}
        understood = [(c, f"read as {role}") for role, c in (roles | implied).items()] + list(self.understood.items())
        for aspect in (a for a in self.aspects if a.columns):
            less = ", less is better" if aspect.lower_is_better else ""
            understood.append((aspect.name, f"ratings in {', '.join(aspect.columns)}, {aspect.scale}{less}"))
        comments = {c for a in self.aspects for c in ([a.comment] if isinstance(a.comment, str) else a.comment)} - {""}
        used = {c for c, _ in understood} | {c for a in self.aspects for c in a.columns} | comments
        matched = {part.removesuffix("[]") for column in used for part in column.split("+")}
        matched |= {k for pattern in used for _, k in (self.keys.matching(pattern, {}) if pattern else ())}
        unread = [k for k in self.columns if k not in matched and k not in self.settings.get("keep", {})]
        return understood + [(key, "not read") for key in unread]

    def _built_in(self) -> str:
        mapped = any(a.labels or a.missing or a.lower_is_better for a in self.aspects)
        if mapped or self.settings or any(question.open for question in self.questions):
            return ""

        def fits(task: Task, aspect: AspectDraft) -> bool:
            scale = next((a.scale for a in task.aspects if a.name == aspect.name), None)
            named = task is PAIRS or aspect.columns in ([], [aspect.name])
            return named and scale is not None and scale.low <= aspect.scale.low and aspect.scale.high <= scale.high

        return next((task.name for task in TASKS.values() if all(fits(task, a) for a in self.aspects)), "")

    # --- texts ---

    def _is_comment(self, key: str) -> bool:
        return role_of_name(key) == "comment"

    def _free_texts(self) -> list[str]:
        return [
            k
            for k, c in self.columns.items()
            if normalized_name(k) not in ("candidate", "group", "rater", "aspect", "winner")
            and (c.is_text or (role_of_name(k) in ("text", "source") and self._may_be_text(c)))
        ]

    @staticmethod
    def _may_be_text(column: Column) -> bool:
        """Whether a column whose name says so may hold texts: not numbers, yes and no, or a few words."""
        if not column.present or column.numbers:
            return False
        if normalized_name(column.name) in (*SOURCE_WORDS, *TEXT_WORDS) and not column.choices:
            return True
        many = len(column.codes) > 20 or len(column.codes) > len(column.cells) / 4
        return not column.labels and len(column.choices) < len(column.present) and many

    def _named(self, role: str) -> str | None:
        """The column of a role by the mapping or its name, unless that holds no texts and another may be meant."""
        if role in self.roles:
            return self.roles[role]
        column = self.keys.named(role)
        if column is None:
            return None
        words = SOURCE_WORDS if role == "source" else TEXT_WORDS
        others = [k for k in self._free_texts() if normalized_name(k) in words and normalized_name(k) != role]
        if self.columns[column].is_text or not others:
            return column
        longer = [k for k in others if self.columns[k].average_length > 2 * self.columns[column].average_length]
        return None if longer or column not in self._free_texts() else column

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
        taken = {*self.roles.values(), *self._matching(self.roles.values())}
        if "source" not in self.roles:
            self._source(by_role, taken)
        for role in ("context", "reference"):
            found = [key for key in by_role[role] if key not in self.roles.values()]
            if found and role not in self.roles and self.keys.named(role) is None:
                self.roles[role] = found[0]
        for role in ("source", "context", "reference", *_TEXT_ROLES):
            column = self.columns.get(self.roles.get(role, ""))
            if column is not None and column.is_list and not column.is_messages:
                self.roles[role] = f"{column.name}[]"

    def _matching(self, columns: Iterable[str]) -> list[str]:
        """The columns that patterns mean."""
        return [k for column in columns if "{" in column for _, k in self.keys.matching(column, {})]

    def _source(self, by_role: Mapping[str, list[str]], taken: set[str]) -> None:
        """The column of what the texts were written for, by its name, or as the text that is left."""
        named = self._named("source")
        candidates = [named] if named else [k for k in by_role["source"] if k not in taken]
        if len(candidates) > 1:
            candidates = [k for k in candidates if self.columns[k].is_text] or candidates
        rest = [key for key in by_role[""] if key not in taken and not self._is_comment(key)]
        contexts = [key for key in by_role["context"] if key not in taken]
        by_word = {tokens(key)[-1]: key for key in reversed(candidates) if tokens(key)}
        numbered = [f for f in families(candidates) if f.numbered and len(f.members) > 1]
        if {"instruction", "input"} <= by_word.keys():
            self.roles["source"] = f"{by_word['instruction']}+{by_word['input']}"
        elif numbered and "{i}" in self.roles.get("text", ""):
            self.roles["source"] = numbered[0].named("i")
        elif candidates:
            first, *others = sorted(candidates, key=lambda k: _place(k, SOURCE_WORDS))
            self.roles["source"] = first
            if others:
                text = f"{first!r} is read as the source, and {', '.join(map(repr, others))} not; else write instead"
                joined = f"source = {as_toml('+'.join(candidates))}"
                self.ask(text, [*(f"source = {as_toml(key)}" for key in others), joined])
        elif rest or contexts:
            # What comes first, beside different texts, is probably what they were written for.
            self.roles["source"] = first = (rest or contexts)[0]
            text = self.roles.get("text") or self.roles["response_a"]
            self.ask(f"is {first!r} what {text!r} was written for? If not, write instead", ['source = "none"'])

    def _single_text(self, free: Sequence[str], by_role: Mapping[str, list[str]]) -> None:
        if named := self._named("text"):
            self.roles["text"] = named
            others = [k for k in by_role["text"] if k != named]
            length = {key: self.columns[key].average_length for key in by_role["text"]}
            if (
                others
                and "text" not in self.names.roles
                and not by_role["source"]
                and length[named] > 2 * length[others[0]]
            ):
                self.roles |= {"text": others[0], "source": named}
                self.ask(
                    f"is {others[0]!r}, written for {named!r}, what was rated? If not, write", [f'text = "{named}"']
                )
            return
        texts = by_role["text"] or by_role[""]
        texts = [key for key in texts if not self._is_comment(key)] or texts
        if not texts:
            others = [key for key in free if role_of_name(key) not in ("comment", "reference", "context")][-1:]
            texts = [key for key in others if normalized_name(key) != "source"]
        if not texts:
            raise self._no_text_error()
        if by_role["text"]:
            order = sorted(texts, key=lambda k: _place(k, TEXT_WORDS))
        else:
            # Beside a source the longest is the text; else what it was written for comes first.
            length = {key: self.columns[key].average_length for key in texts}
            order = sorted(texts, key=lambda k: (-length[k] if by_role["source"] else 0, -texts.index(k)))
        self.roles["text"] = order[0]
        if len(order) > 1:
            text = f"{order[0]!r} is read as the text that was rated; if it is another column, write"
            self.ask(text, [f"text = {as_toml(key)}" for key in order[1:4]])

    def _text_family(self, free: Sequence[str]) -> bool:
        """Several columns of texts: a pair, or one text for each number or system."""
        if self._named_texts(free):
            return True
        ratings = [key for key, column in self.columns.items() if key not in free and column.is_rated]
        words = (*SOURCE_WORDS, *REFERENCE_WORDS, *TEXT_WORDS, *CONTEXT_WORDS)
        for family in families([key for key in free if role_of_name(key) not in ("reference", "comment")]):
            members = list(family.members.values())
            sources = all(role_of_name(k) == "source" and not self.columns[k].is_messages for k in members)
            if sources or any(part.lower() in words for part in family.members):
                continue
            if len(members) == 2 and (self._verdict_columns(members) or self._graded_column(members, ratings)):
                self.roles |= {"response_a": members[0], "response_b": members[1]}
                if [part.lower() for part in family.members] == ["b", "a"]:
                    self.roles |= {"response_a": members[1], "response_b": members[0]}
                return True
            pattern = family.named("i" if family.numbered else "system")
            rated = [any(part_in_name(part, k) for k in ratings) for part in family.members]
            if len(rated) > 1 and sum(rated) * 2 > len(rated):
                self.roles["text"] = pattern
                self._texts_beside(family, pattern, free)
                return True
            names = {code_of(name) for name in (*family.members, *members)}
            for key in self._verdict_columns(members):
                if len(members) > 2 and {*self.columns[key].codes} <= names:
                    self.understood[key] = "names the best of several texts: write a column of 1 and 0 for each text"
            lines = [f"text = {as_toml(key)}" for key in (*members, pattern)]
            text = f"{', '.join(map(repr, members))} are texts: which was rated? Write one of"
            self.ask(text, lines, is_open=True)
            self.roles["text"] = self.unsettled = members[0]
            return True
        return False

    def _texts_beside(self, family: Family, pattern: str, free: Sequence[str]) -> None:
        """Columns of texts beside those of a family: what each was written for, or more texts, about which to ask."""
        members, no_text = [*family.members.values()], ("source", "reference", "comment")
        others = [key for key in free if key not in members and role_of_name(key) not in no_text]
        left = [key for key in others if any(families([member, key]) for member in members)]
        parts: dict[str, set[str]] = defaultdict(set)
        for key in others:
            for part in family.members:
                if found := part_in_name(part, key):
                    parts[f"{key[: found.start()]}{{x}}{key[found.end() :]}"].add(part)
        beside = [stem for stem, of_stem in parts.items() if of_stem == {*family.members}]
        if len(beside) == 1 and not any(role_of_name(key) == "source" for key in free):
            source = Family(beside[0], family.members).named("i" if family.numbered else "system")
            self.roles["source"] = source
            self.ask(f"is {source!r} what {pattern!r} was written for? If not, write", ['source = "none"'])
        elif left:
            text = f"{', '.join(map(repr, left))} are texts, too: name all, here and in `column`, as in"
            self.ask(text, [f"text = {as_toml('sys{system}_{i}')}"], is_open=True)

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

    def _graded_column(self, texts: Sequence[str], ratings: Sequence[str]) -> bool:
        """Whether beside a pair a column has numbers on both sides of 0, which say how much better one text is; or
        several have a tick for the better text, or for a tie."""
        numbers = {k: self.columns[k].numbers for k in ratings if self.columns[k].numbers}
        found = [k for k, of_column in numbers.items() if min(of_column) < 0 < max(of_column)]
        if len(found) == 1 and len(self.columns[found[0]].codes) < 12:
            self.roles["winner"] = found[0]
            return True
        ticked = [k for k in ratings if self.columns[k].is_ticks and clear_verdict(k, texts) is not None]
        if len(ticked) > 1 and self._is_one_hot(ticked):
            self.roles["winner"] = "{value:" + "|".join(ticked) + "}"
            return True
        return False

    def _empty_texts(self) -> None:
        columns = [self.roles[role] for role in _TEXT_ROLES if role in self.roles]
        keys = [k for column in columns for _, k in self.keys.matching(column.removesuffix("[]"), {})]
        empty = sum(any(not is_visible(str(row.values.get(k) or "")) for k in keys) for row in self.rows)
        if empty and "empty" not in self.settings:
            self.settings["empty"] = "skip"
            text = f"{empty} records without a text are left out; to have them refused instead, write"
            self.ask(text, ['empty = "error"'])

    # --- raters and systems ---

    def _codes(self, key: str) -> Any:
        """The values of a column as numbers, the same for values that differ in blanks only."""
        import pandas as pd

        if key not in self._known_codes:
            cells = pd.Series([" ".join(str(cell).split()) for cell in self.columns[key].cells])
            self._known_codes[key] = cells.factorize()[0]
        return self._known_codes[key]

    def _combinations(self, keys: Sequence[str]) -> pd.Series[int]:
        """The number of each row's combination of values, shape (rows,)."""
        import pandas as pd

        frame = pd.DataFrame({key: self._codes(key) for key in keys} or {"": [0] * len(self.rows)})
        return frame.groupby(list(frame.columns), sort=False).ngroup()

    def _distinct(self, keys: Sequence[str]) -> int:
        return int(self._combinations(keys).nunique())

    def _text_keys(self) -> list[str]:
        """The columns that identify a text."""
        found = [self.roles[r] for r in ("source", *_TEXT_ROLES) if self.roles.get(r)]
        plain = [part.removesuffix("[]") for column in found if "{" not in column for part in column.split("+")]
        return [k for k in (*plain, *self._matching(found)) if k in self.columns]

    def _raters(self) -> None:
        if "rater" in self.roles:
            return
        text, total, aspect = self._text_keys(), len(self.rows), self._aspect_column()
        repeated = total - self._distinct(text)
        base = [*text, aspect] if aspect and not self._severity_columns() else text
        named = self.keys.named("rater")
        rated = [named] if named else [k for k in self.columns if is_rater_name(k) and k not in self.roles.values()]
        rated += ["sheet"] if "sheet" in self.columns and not named else []
        if not repeated and not named:
            return
        if rated:
            again = {key: total - self._distinct([*base, key]) for key in rated}
            best = min(again, key=again.__getitem__)
            self.roles["rater"] = best
            if again[best]:
                self._repeated(base, best, again[best])
        elif repeated > max(5, 0.2 * total) and not aspect and self._distinct(base) < total:
            self.settings.setdefault("repeated", "raters")
            names = [
                k
                for k, column in self.columns.items()
                if k not in text
                and not column.numbers
                and self._distinct([*text, k]) == total
                and 1 < self._distinct([k]) <= total / 2
            ]
            lines = [f"rater = {as_toml(name)}" for name in names] or ['repeated = "mean"', 'repeated = "separate"']
            text_ = f"{repeated} of {total} rows repeat a text; each is read as of another rater. Else write instead"
            self.ask(text_, lines)

    def _repeated(self, base: Sequence[str], rater: str, repeats: int) -> None:
        """What becomes of texts that a rater rated more than once: two equal texts if all did so, else to be asked."""
        if "repeated" in self.settings:
            return
        if self._severity_columns():
            self.settings["repeated"] = "sum"
            return
        times = self._combinations(base).to_frame("text").assign(rater=self._codes(rater)).value_counts()
        alike = bool((times.groupby("text").nunique() == 1).all())
        self.settings["repeated"] = "separate" if alike else "mean"
        read = "as two texts that are equal" if alike else "as their mean"
        others = [how for how in ("mean", "separate", "first", "last", "sum") if how != self.settings["repeated"]]
        text = f"{repeats} ratings are of a text that the rater has rated before; they are read {read}"
        self.ask(f"{text}. Else write instead", [f'repeated = "{how}"' for how in others])

    def _severity_columns(self) -> list[str]:
        return [key for key, column in self.columns.items() if column.is_severity]

    def _candidates(self) -> None:
        if "candidate" in self.roles or "response_a" in self.roles or "{" in self.roles.get("text", ""):
            return
        named = self.keys.named("candidate")
        text, source = self._text_keys(), self.roles.get("source")
        of_source = [k for k in text if source and k in source.removesuffix("[]").split("+")]
        for key in [named] if named else [k for k in self.columns if _is_system_name(k)]:
            # A system may have written one text for a source only.
            one_each = self._distinct([*of_source, key]) == self._distinct([*text, key]) if of_source else True
            if not self.columns[key].is_text and one_each and (of_source or self._distinct([key]) > 1):
                self.roles["candidate"] = key
                return

    # --- pairs ---

    def _verdict_columns(self, texts: Sequence[str]) -> list[str]:
        """The columns that may hold verdicts on a pair."""
        found = []
        no_verdict = (*COMMENT_WORDS, "strength", "confidence", "date", "id")
        for key, column in self.columns.items():
            words = tokens(key)
            named = any(w in _VERDICT_WORDS for w in words) or _NUMBERED_RATER.fullmatch(normalized_name(key))
            if key in texts or not named or any(w in no_verdict for w in words):
                continue
            if not column.is_text and not is_rater_name(key) and 0 < len(column.codes) <= 20:
                found.append(key)
        return [key for key in found if len(tokens(key)) == 1 and tokens(key)[0] in _VERDICT_WORDS] or found

    def _verdicts(self) -> bool:
        """The verdicts of a pair: aspects, raters and the meaning of codes."""
        if "response_a" not in self.roles:
            return False
        texts = [self.roles["response_a"].removesuffix("[]"), self.roles["response_b"].removesuffix("[]")]
        winner = self.roles.get("winner", "")
        verdicts = ([winner] if winner in self.columns else self._matching([winner])) or self._verdict_columns(texts)
        one_hot = self._one_hot(verdicts)
        if verdicts and "{value" not in winner and one_hot:
            self.roles["winner"] = one_hot.named("value")
            self._codes_of_verdicts(
                Counter({c: sum(map(is_ticked, self.columns[k].cells)) for c, k in one_hot.members.items()}), texts
            )
        elif verdicts and "{value" not in winner:
            cells = [v for k in verdicts for cell in self.columns[k].cells for v in _split(cell)]
            raters = [f for f in families(verdicts) if len(f.members) == len(verdicts)]
            if len(verdicts) > 1 and raters:
                self.roles["winner"] = raters[0].named("rater")
            elif len(verdicts) == 1 and self.keys.named("winner") != verdicts[0]:
                self.roles["winner"] = verdicts[0]
            self._codes_of_verdicts(Counter(map(code_of, cells)), texts)
        scale, aspect = Scale(0, 1, 0.5), self._aspect_column() if verdicts else None
        if aspect is None:
            columns = verdicts if len(verdicts) > 1 and "winner" not in self.roles else []
            self.aspects.append(AspectDraft(PREFERENCE, columns, scale, definition=PAIRS.aspects[0].definition))
            return True
        self.roles.setdefault("aspect", aspect)
        for value in dict.fromkeys(str(cell).strip() for cell in self.columns[aspect].cells if not is_missing(cell)):
            name = self._usable(value)
            definition = f"Which of two texts is better in {name}: 1 the better one, 0 the other, 0.5 both alike."
            self.aspects.append(AspectDraft(name, [value], scale, definition=definition))
        return True

    def _is_one_hot(self, columns: Sequence[str]) -> bool:
        """Whether at most one of the columns is ticked in each row, and one in nearly all."""
        members = [self.columns[key] for key in columns]
        if len(members) < 2 or not all(c.is_ticks and len({*map(is_ticked, c.cells)}) == 2 for c in members):
            return False
        ticks = [sum(map(is_ticked, cells)) for cells in zip(*(c.cells for c in members), strict=True)]
        return max(ticks) == 1 and sum(ticks) >= 0.9 * len(ticks)

    def _one_hot(self, columns: Sequence[str]) -> Family | None:
        return next((f for f in families(columns) if self._is_one_hot(list(f.members.values()))), None)

    def _codes_of_verdicts(self, values: Counter[str], texts: Sequence[str]) -> None:
        """The meaning of verdicts that are not clear."""
        models = {code_of(c) for k in ("model_a", "model_b") if k in self.columns for c in self.columns[k].cells}
        clear = {c: clear_verdict(c, texts) for c in values}
        unclear = [c for c in values if clear[c] is None and c not in models]
        if "codes" in self.settings or not unclear:
            return
        total = max(1, values.total())
        numeric = all(map(looks_like_a_number, unclear))
        readings = _numeric_readings(sorted(unclear, key=float)) if numeric else [_word_readings(unclear, texts)]
        lines = []
        for reading in readings:
            ties = sum(n for c, n in values.items() if reading.get(c) == "tie" or clear[c] == 0.5)
            lines.append(f"codes = {as_toml(reading)}    # ties: {100 * ties / total:.0f} %")
        shares = ", ".join(f"{c}: {100 * n / total:.0f} %" for c, n in values.items())
        text = f"the verdicts are coded ({shares}): what do they mean? "
        if numeric:
            self.ask(f"{text}Write one of", lines, is_open=True)
        else:
            self.settings["codes"] = readings[0]
            self.ask(f"{text}They are read as below", lines)

    # --- ratings ---

    def _aspect_column(self) -> str | None:
        """The column that names the aspect of a row of one rating."""
        if found := self.roles.get("aspect") or self.keys.named("aspect"):
            return found if found in self.columns else None
        text = self._text_keys()
        for key, column in self.columns.items():
            named = (tokens(key) or [""])[-1] in _ASPECT_WORDS and column.words and not column.is_rated
            if named and self._distinct(text) < self._distinct([*text, key]):
                return key
        return None

    def _long_table(self) -> bool:
        """The ratings of a table with one in each row."""
        aspect = self._aspect_column()
        if aspect is None or self._severity_columns():
            return False
        named = self.roles.get("rating") or self.keys.named("rating")
        candidates = [named] if named else [k for k in self.columns if (tokens(k) or [""])[-1] in _RATING_WORDS]
        rating = next((k for k in candidates if k in self.columns and self.columns[k].is_rated), None)
        if rating is None:
            return False
        self.roles |= {"aspect": aspect, "rating": rating}
        cells: dict[str, list[object]] = defaultdict(list)
        spelling: dict[str, str] = {}
        for name, value in zip(self.columns[aspect].cells, self.columns[rating].cells, strict=True):
            if not is_missing(name):
                cells[spelling.setdefault(normalized_name(str(name)), str(name).strip())].append(value)
        for value, of_aspect in cells.items():
            self._aspect(self._usable(value), [value], self._column(value, of_aspect))
        self._comment()
        return True

    def _comment(self) -> None:
        """A column of comments that belong to no aspect."""
        found = next((k for k in self.columns if self._is_comment(k) and k not in self.roles.values()), None)
        if found and self.keys.named("comment") is None:
            self.roles.setdefault("comment", found)

    def _rating_columns(self) -> None:
        """The columns that hold ratings of the text beside them."""
        texts = {*self._text_keys(), *(column.removesuffix("[]") for column in self.roles.values())}
        nested = [key for key in self.columns if key.startswith("ratings.")]
        free = {*self._free_texts(), *texts, *self.settings.get("keep", {}), *self.understood}
        possible = [k for k in nested or self.columns if k not in free and not _NOT_A_RATING.fullmatch(_snake(k))]
        for name, mapped in self.names.aspects.items():
            columns = [mapped.column] if isinstance(mapped.column, str) else list(mapped.column)
            columns = [part for column in columns for part in self.keys.parts(column, {})]
            of_aspect = [k for column in columns for _, k in self.keys.matching(column, {})] if columns != [""] else []
            possible = [key for key in possible if key not in of_aspect]
            self._aspect_of(name, columns, of_aspect)
        remaining = self._without_data(possible)
        for find in (self._ratings_of_texts, self._ticked_ratings, self._columns_of_raters, self._objects_of_raters):
            remaining = find(remaining)
        for key in remaining:
            self._aspect(self._usable(name_without_scale(key.removeprefix("ratings."))), [key], self.columns[key])
        self._ask_for_raters(remaining)
        if len(self.aspects) == 1 and not self.aspects[0].comment:
            self._comment()

    def _without_data(self, keys: Sequence[str]) -> list[str]:
        """The columns without those that are no ratings: statistics, metrics, conditions, standardized scores."""
        names = {normalized_name(key): key for key in keys}
        of_raters = {name_without_rater(key) for key in keys}
        nested_ratings = any(key.startswith("ratings.") for key in keys)
        inside = self.roles.get("text", "") not in self.outer
        rated, why = [], {}
        for key in keys:
            base = _STATISTIC.fullmatch(normalized_name(key))
            stem = base and (base["after"] or base["before"])
            spread = re.search(r"(?:^|_)(?:std|sd|var)(?:_|$)", normalized_name(key))
            if base and (spread or stem in names or stem in of_raters):
                self.understood[key] = f"a statistic of {names.get(str(stem), stem)!r}, not read"
            elif _METRIC.fullmatch(normalized_name(key)):
                self.understood[key] = "an automatic metric by its name, not read"
            elif key in self.outer and inside:
                self.understood[key] = "of the record around the texts, so of none of them; not read"
            elif self.columns[key].is_standardized:
                why[key] = "fractions on both sides of 0, as of standardized scores"
            elif not nested_ratings and self._never_differs(key):
                why[key] = "the same from all raters of a text, so no rating"
            else:
                rated.append(key)
        others = [key for key in rated if self.columns[key].scale(key)[0] or self.columns[key].labels]
        if others or not any(self.columns[key].is_rated or self.columns[key].is_ticks for key in why):
            labelled = {key: self.columns[key].why_no_rating() for key in why if self.columns[key].words and not others}
            self.understood |= {key: f"{reason}; not read" for key, reason in why.items()} | labelled
        else:
            # Without other ratings, these are them.
            rated += why
        for key in why if others else ():
            if self.columns[key].is_standardized:
                low, high = ends(min(self.columns[key].numbers), max(self.columns[key].numbers), False)
                lines = [f"[aspects.{toml_key(self._usable(key))}]", 'definition = "…"']
                text = f"{key!r} holds {why[key]}, and is not read; if raters gave these values, add at the end"
                self.ask(text, [*lines, f"low = {as_toml(low)}", f"high = {as_toml(high)}", f"column = {as_toml(key)}"])
        return rated

    def _never_differs(self, key: str) -> bool:
        """Whether a column never differs within a text although several raters rated it."""
        if not self.roles.get("rater") and self.settings.get("repeated") != "raters":
            return False
        by_text = self._combinations(self._text_keys()).to_frame("text").assign(value=self._codes(key)).groupby("text")
        sizes, different = by_text["value"].size(), by_text["value"].nunique()
        return bool((sizes > 1).sum() >= 5 and (different[sizes > 1] == 1).all())

    def _ratings_of_texts(self, keys: Sequence[str]) -> list[str]:
        """Columns of ratings that belong to one of several texts of a row, as patterns; returns the others."""
        text = self.roles.get("text", "")
        if "{" not in text:
            return list(keys)
        placeholder = re.findall(r"\{(\w+)[:}]", text)[0]
        parts = [bound[placeholder] for bound, _ in self.keys.matching(text, {})]
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
            named = [p for p in family.members if _NUMBERED_RATER.fullmatch(normalized_name(p)) or is_rater_name(p)]
            if len(named) == len(family.members) or (family.numbered and _BEFORE_NUMBER.search(family.pattern)):
                merged = [key for pattern in family.members.values() for key in patterns.pop(pattern, [])]
                patterns[family.named("rater")] = merged
        used: set[str] = set()
        for pattern, columns in patterns.items():
            if 2 * len(columns) >= len(parts) and len(columns) > 1:
                used |= {*columns}
                name = re.sub(r"\{\w+\}", "", re.sub(r"^(?:Input|Answer)\.", "", pattern)).strip("_.- ")
                name = re.sub(r"[_\s-]{2,}", "_", re.sub(r"\.{2,}", ".", name)) or "rating"
                self._aspect_of(self._usable(name), [pattern], columns)
        return [key for key in keys if key not in used]

    def _ticked_ratings(self, keys: Sequence[str]) -> list[str]:
        """Radio buttons with a column for each value; returns the other columns."""
        remaining = list(keys)
        while family := self._one_hot([key for key in remaining if self.columns[key].is_ticks]):
            values = family.members
            cells: list[object] = [
                next((v for v, k in values.items() if is_ticked(row.values.get(k))), None) for row in self.rows
            ]
            stem = re.sub(r"^(?:Input|Answer)\.", "", family.pattern).replace("{x}", "").strip("_.- ")
            column = Column(stem, cells, True)
            if not all(map(looks_like_a_number, values)) and len(column.labels) < len(values):
                # In the order of the columns, for want of another one.
                column.labels = {value: float(rank) for rank, value in enumerate(values, start=1)}
            self._aspect(self._usable(stem or "rating"), [family.named("value")], column)
            remaining = [key for key in remaining if key not in values.values()]
        return remaining

    def _columns_of_raters(self, keys: Sequence[str]) -> list[str]:
        """Columns of several raters of one aspect, by the ends or beginnings of their names; returns the others."""
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
                self.understood[plain[base]] = "its raters have columns of their own, so it is not read"
                used.add(plain[base])
            used |= {*columns}
            name = columns[0].removeprefix("ratings.")
            while base != "rating" and len(name) > 1 and normalized_name(name) != base:
                name = name[:-1]
            self._aspect_of(self._usable(base if base == "rating" else name), columns, columns)
        for family in families([key for key in keys if key not in used]):
            members = list(family.members.values())
            numbered = _BEFORE_NUMBER.search(family.pattern) if family.numbered else None
            by_name = all(is_rater_name(re.sub(r"[_ .-]?\d+$", "", part)) for part in family.members)
            if not used & {*members} and (by_name or numbered):
                stem = family.pattern.replace(numbered[0] if numbered else "{x}", "").strip("_.- ()")
                self._aspect_of(self._usable(stem), [family.named("rater")], members)
                used |= {*members}
        return [key for key in keys if key not in used]

    def _objects_of_raters(self, keys: Sequence[str]) -> list[str]:
        """Columns that come from objects keyed by raters: `ratings.ada`, `fluency.ada`, `ratings.ada.fluency`; returns
        the others."""
        columns: dict[str, list[str]] = defaultdict(list)
        raters: dict[str, list[str]] = defaultdict(list)
        for key in keys:
            path = key.split(".")
            for n in range(1, len(path)):
                pattern = ".".join([*path[:n], "{rater}", *path[n + 1 :]])
                columns[pattern].append(key)
                raters[pattern].append(path[n])
        used: set[str] = set()
        for pattern, members in columns.items():
            if len(members) < 2 or used & {*members} or not looks_like_raters(raters[pattern]):
                continue
            name = ".".join(part for part in pattern.split(".") if part != "{rater}")
            self._aspect_of(self._usable(name.removeprefix("ratings.")), [pattern], members)
            used |= {*members}
            names = ", ".join(raters[pattern][:5])
            text = f"{names} are read as raters; if they are aspects, write a table [aspects.NAME] for each, with"
            self.ask(text, [f"column = {as_toml(key)}" for key in members[:5]], self.aspects[-1].name)
        return [key for key in keys if key not in used]

    def _ask_for_raters(self, keys: Sequence[str]) -> None:
        """Ask whether columns that are called like people are raters of one aspect."""
        rated = [key for key in keys if any(aspect.columns == [key] for aspect in self.aspects)]
        asked: list[tuple[Collection[str], object]] = [(f.members, f.named("rater")) for f in families(rated)]
        asked = [(names, column) for names, column in asked if looks_like_raters(names, people=True)]
        if not asked and looks_like_raters(rated, people=True):
            asked = [(rated[:5], rated)]
        for names, column in asked:
            text = f"are {', '.join(names)} raters? Then write one aspect in place of theirs, with"
            self.ask(text, [f"column = {as_toml(column)}"])

    def _aspect_of(self, name: str, columns: list[str], keys: Sequence[str]) -> None:
        cells = [cell for key in keys for cell in self.columns[key].cells]
        if cells:
            self._aspect(name, columns, self._column(name, cells))

    def _aspect(self, name: str, columns: list[str], column: Column) -> None:
        """Add the aspect, if the values of a column look like ratings."""
        labels, given = column.labels, self.names.aspects.get(name)
        lower = bool(_LOWER.fullmatch(normalized_name(name))) or (bool(labels) and column.is_severity)
        scale: Scale | None
        if labels:
            missing: list[Any] = list(column.unsure)
            values = [labels[v] for v in (" ".join(str(p).split()) for p in column.present) if v in labels]
            low, high = min(labels.values()), max(labels.values())
            low, high = (low, high) if {*labels.values()} == {0, 1} else ends(low, high, True)
            if self.settings.get("repeated") == "sum":
                low, high = 0, self._largest_sum(columns[0], labels)
            scale = Scale(low, high) if len({*labels.values()}) > 1 else None
            if scale and not scale.binary and not all(re.search(r"\d|[★⭐*]", word) for word in labels):
                text = f"the words of {columns[0]!r} are read in this order; correct it if it is another"
                self.ask(text, [f"labels = {as_toml(labels)}"], name)
        else:
            scale, missing = column.scale(columns[0])
            values = column.numbers
        if scale is None:
            if columns[0] in self.columns:
                self.understood.setdefault(columns[0], column.why_no_rating())
            return
        known = [a.scale for t in TASKS.values() for a in t.aspects if a.name == name and not labels]
        scale = next((Scale(k.low, k.high) for k in known if k.low <= scale.low and scale.high <= k.high), scale)
        halves = all((2 * n).is_integer() for n in values) and not all(n.is_integer() for n in values)
        comment = next((k for k in self.columns if self._is_comment(k) and tokens(k)[:-1] == tokens(name)), "")
        comment_columns: Any = given.comment if given and given.comment else comment
        self.aspects.append(AspectDraft(name, columns, scale, labels, missing, lower, halves, comment=comment_columns))
        if lower:
            text = f"less {name} is read as better; if more is better, take the line lower_is_better out, or write"
            self.ask(text, ["lower_is_better = false"], name)
        if missing and not labels:
            far = ", ".join(f"{code:g}" for code in missing)
            self.ask(
                f"{far} is far from other values of {name} and is read as none; else write instead",
                ["missing = []"],
                name,
            )
        if column.is_standardized:
            text = f"{name} has fractions on both sides of 0, as standardized scores: if the raters' own values are in"
            self.ask(f"{text} another column, write", ['column = "COLUMN"'], name)

    def _largest_sum(self, column: str, labels: Mapping[str, float]) -> float:
        """The largest sum of a rater's ratings of a text."""
        import pandas as pd

        keys = [*self._text_keys(), *([self.roles["rater"]] if self.roles.get("rater") else [])]
        values = [labels.get(" ".join(str(cell).split()), 0.0) for cell in self.columns[column].cells]
        return float(pd.Series(values).groupby(self._combinations(keys)).sum().max()) or 1.0

    def _usable(self, name: str) -> str:
        """A unique name that an aspect may have."""
        name = re.sub(r"^(?:Input|Answer)\.", "", name.strip())
        taken = {aspect.name for aspect in self.aspects}
        # Of a path, the last name says what was rated.
        last = name.rpartition(".")[2].strip("_ ")
        if "." in name and not self.is_table and last and not last.isdigit() and last.lower() not in _RATING_WORDS:
            others = [k for k in self.columns if k != name and k.rpartition(".")[2] == last]
            name = name if (others and name in self.columns) or last in taken else last
        base = name if usable_name(name) else re.sub(r"[^\w .-]+", "_", name).strip(" _.-") or "aspect"
        choices = (base if number == 1 else f"{base}_{number}" for number in count(1))
        return next(choice for choice in choices if usable_name(choice) and choice not in taken)

    # --- errors ---

    def _no_text_error(self) -> InputError:
        """The error for a file without texts; it names one beside it that has the same ids, and texts."""
        error = missing_columns_error(self.rows[:200], list(self.columns))
        path = Path(self.file.name)
        if not path.is_file():
            return error
        others = [p for p in sorted(path.parent.iterdir())[:50] if p.suffix in (*JSON, *TEXT_TABLES) and p != path]
        texts = next((p for p in others if self._has_texts(p)), "TEXTS.jsonl")
        remedy = f"if the texts are in another file, name both: debate check {self.file.name}+{texts}"
        return error.replaced(problem="no column holds texts", remedy=remedy)

    def _has_texts(self, path: Path) -> bool:
        try:
            values = next(detect_format(path).records(), Record({}, "")).values
        except InputError:
            return False
        return not self.columns.keys().isdisjoint(values) and any(len(str(v).split()) > 2 for v in values.values())

    def _no_ratings_error(self) -> InputError:
        advice = [f"{column}: {why}" for column, why in self.understood.items() if why != "not read"]
        first = ", ".join(f"{k} ({c.present[0]!r:.40})" for k, c in list(self.columns.items())[:20] if c.present)
        return self.rows[0].error(
            "nothing in the data looks like ratings",
            expected="at least one column of numbers, of yes and no, or of words of a scale, with two different values",
            found=first or "columns " + ", ".join(self.columns),
            remedy="; ".join(advice[:3]) or "texts without ratings can be scored; a compile needs ratings",
        )


def _place(key: str, words: Sequence[str]) -> int:
    """The place of the first of the words that a name has."""
    return min((words.index(word) for word in tokens(key) if word in words), default=len(words))


def _split(cell: object) -> list[object]:
    """The verdicts in a cell, which may be of several raters."""
    parts: list[Any] = cell if isinstance(cell, list) else cell.split(";") if isinstance(cell, str) else [cell]
    return [part for part in parts if not is_missing(part)]


def _is_system_name(name: str) -> bool:
    *before, last = tokens(name) or [""]
    return last in _SYSTEM_WORDS or (last in ("name", "id") and any(word in _SYSTEM_WORDS for word in before))


def _numeric_readings(codes: Sequence[str]) -> list[dict[str, Any]]:
    """The readings of numbers as verdicts: what each means, or the share of the first text."""
    numbers = [float(code) for code in codes]
    if min(numbers) < 0 or len(codes) > 3:
        most = max(map(abs, numbers))
        low, high = (-most, most) if min(numbers) < 0 else (numbers[0], numbers[-1])
        named: dict[float, Any] = {0.0: "b", 0.5: "tie", 1.0: "a"}
        shares = [round((number - low) / (high - low), 4) for number in numbers]
        both = (shares, [round(1 - share, 4) for share in shares])
        readings = [{c: named.get(v, v) for c, v in zip(codes, of, strict=True)} for of in both]
        return readings if numbers[0] < 0 else readings[::-1]
    if len(codes) == 1:
        return [{codes[0]: side} for side in ("a", "b", "tie")]
    orders: list[tuple[str, ...]] = [("a", "b"), ("b", "a")]
    if len(codes) == 3:
        orders = [("a", "b", "tie"), ("tie", "a", "b"), ("a", "tie", "b")]
    elif [*codes] != ["1", "2"]:
        orders += [("tie", "a"), ("tie", "b")]
    return [dict(zip(codes, order, strict=True)) for order in orders]


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
            first = symbols[1] not in MARKS[1]
            share = {">": 0.75, ">>": 1, "<": 0.25, "<<": 0}.get(symbols[2][:2], 0.5)
            reading[code] = "tie" if share == 0.5 else share if first else 1 - share
        elif any(word in _TIE_WORDS for word in of):
            reading[code] = "tie"
        elif side is not None and any(w in ("slightly", "somewhat", "marginally", "little", "bit") for w in of):
            reading[code] = (0.75, 0.25)[side]
        else:
            reading[code] = "ab"[side] if side is not None else "b" if "a" in reading.values() else "?"
    other = "b" if "a" in reading.values() or 0.75 in reading.values() else "tie"
    return {code: other if side == "?" else side for code, side in reading.items()}


def _snake(name: str) -> str:
    return normalized_name(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name))


def _label(column: str) -> str:
    return re.sub(r"\{.*?\}|\[\]", " ", re.sub(r"[_+\s]+", " ", column.removeprefix("Input."))).strip() or "text"
