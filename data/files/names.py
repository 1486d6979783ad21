"""What names of columns probably mean, for drafts and for the errors of files whose columns have other names.

Nothing is read by these: a mapping says what a column is.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.columns import (
    SOURCE_WORDS,
    TEXT_WORDS,
    ColumnNames,
    TextColumns,
    normalized_name,
    word_list,
)
from debate_judge.data.files.records import Record

CONTEXT_WORDS = word_list("context|background|fact|facts|knowledge|policy|passages|evidence")
REFERENCE_WORDS = word_list("reference|references|ref|refs|gold")
COMMENT_WORDS = word_list("comment|comments|rationale|reason|explanation|note|notes|feedback|justification")
_NO_TEXT = word_list("date|id|ids|idx|index|lang|language|len|length|link|name|time|type|url")
RATER_NAME = re.compile(
    r"(?:annotator|labell?er|rater|reviewer|evaluator|assessor|grader|scorer|judge|coder|worker|expert|user|participant"
    r"|respondent|turker|crowd_?worker)(?:_(?:id|e?_?mail|name|login|key|uuid|initials|number|nr|no|index))?|username"
    r"|(?:prolific|mturk|amt)_p?id"
    r"|(?:annotated|labell?ed|rated|reviewed|evaluated|assessed|graded|scored|judged|coded|completed|created)_by"
    r"(?:_(?:id|e?_?mail|name))?"
)
"""Names of columns of raters, normalized."""


def tokens(name: str) -> list[str]:
    """The words of a column's name, in lower case, without a first word such as `Input.` that says where it is from."""
    name = re.sub(r"^(?:Input|Answer)\.", "", name)
    return [
        word.lower() for word in re.split(r"[^A-Za-z0-9]+|(?<=[a-z])(?=[A-Z0-9])|(?<=[0-9])(?=[A-Za-z])", name) if word
    ]


def role_of_name(name: str) -> str:
    """The role that a column probably has by its name; empty for other names."""
    words = [word for word in tokens(name) if not word.isdigit() and len(word) > 1]
    if not words or words[-1] in _NO_TEXT:
        return ""
    if any(word in REFERENCE_WORDS for word in words):
        return "reference"
    if any(word in COMMENT_WORDS for word in words[-1:]):
        return "comment"
    if any(word in ("src", "source", "orig", "original") for word in words):
        return "source"
    for word in (words[-1], *words):
        for role, known in (("text", (*TEXT_WORDS, "simp", "simplified", "target")), ("source", SOURCE_WORDS)):
            if any(word == name or (len(name) > 4 and word.startswith(name)) for name in known):
                return role
        if word in CONTEXT_WORDS:
            return "context"
    return ""


_ASPECT_NAME = re.compile(
    r".*(?:ness|ity|[aeo]ncy|ance|ence|ment|[ts]ion|ful|[ai]ble|ing|ive|ous|al|ic|ure|acy|less|ly|ent|ant|ed|y)"
    r"|.*(?:quality|score|rating|rank|error|label|answer|text|summary|style|tone|fact|topic|word|time|count|num|mean|min"
    r"|max|avg|std|total|model|system|help|harm|safe|toxic|clear|correct|good|bad|like|use|true|truth|bias|logic|humou?r|wit"
    r"|trust|depth|length|focus|warm|kind|concise|overall|sense|plot|gramma|level|class|value|grade|stars?).*"
)
"""Names, in lower case, that aspects have and people do not."""
_TITLE_NAME = re.compile(
    r"[A-Z][a-z]+|[A-Z]{2,3}|.*@.*|[A-Z0-9]*[0-9][A-Z0-9]*[A-Z][A-Z0-9]*|[A-Z][A-Z0-9]*\d[A-Z0-9]*"
)
"""Names as people, their initials, addresses and ids of workers have."""


def looks_like_raters(names: Iterable[str], *, people: bool = False) -> bool:
    """Whether several names are probably those of raters, and none that of an aspect.

    Args:
        names: The names.
        people: Whether each has to be written like a name of a person or the id of a worker.
    """
    names = list(dict.fromkeys(names))
    if len(names) < 2 or (people and not all(map(_TITLE_NAME.fullmatch, names))):
        return False
    return not any(_ASPECT_NAME.fullmatch(" ".join(tokens(name))) for name in names if not is_rater_name(name))


def part_in_name(part: str, name: str) -> re.Match[str] | None:
    """Where a name has a part of another one as a word, as a number, or as the capital letter at its end."""
    escaped = re.escape(part)
    found = re.search(rf"(?<![A-Za-z0-9]){escaped}(?![A-Za-z0-9])", name)
    if found is None and part.isdigit():
        found = re.search(rf"(?<!\d){escaped}(?!\d)", name)
    if found is None and len(part) == 1 and part.isupper():
        found = re.search(rf"(?<=[a-z]){part}(?![a-z])", name)
    return found


def _difference(first: str, second: str) -> tuple[str, str, str] | None:
    """The pattern that two names share, with the part in which they differ: `summary_{x}`, bart, t5."""
    # A number is a part of its own after a word, as in `response1`, and not in a short name such as `x1` or `t5`.
    digits = r"(?<=[A-Za-z]{4})(?=[0-9])" if re.search(r"[^A-Za-z0-9]", first) else r"(?<=[A-Za-z])(?=[0-9])"
    split = rf"([^A-Za-z0-9]+|(?<=[a-z])(?=[A-Z])|(?<=[0-9]{{2}})(?=[A-Za-z])|{digits})"
    parts = [re.split(split, name) for name in (first, second)]
    a, b = ([part for part in each if part] for each in parts)
    # A part that differs may itself be of several words: `gpt-4` and `bart`.
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    end = next((i for i, (x, y) in enumerate(zip(a[::-1], b[::-1], strict=False)) if x != y), min(len(a), len(b)))
    end = min(end, len(a) - start, len(b) - start)
    middle = ["".join(each[start : len(each) - end]) for each in (a, b)]
    before, after = "".join(a[:start]), "".join(a[len(a) - end :])
    if not all(middle) or not (before.strip("._- ") or after.strip("._- ")):
        return None
    return f"{before}{{x}}{after}", middle[0], middle[1]


@dataclass
class Family:
    """Columns whose names differ in one part."""

    pattern: str
    """With `{x}` for the part."""
    members: dict[str, str]
    """Part -> column."""

    @property
    def numbered(self) -> bool:
        return all(part.isdigit() for part in self.members)

    def named(self, placeholder: str) -> str:
        return self.pattern.replace("{x}", f"{{{placeholder}}}")


def families(names: Sequence[str]) -> list[Family]:
    """The largest families first; those that differ in numbers before those that differ in words."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for i, first in enumerate(names):
        for second in names[i + 1 :] if len(names) <= 300 else names[i + 1 : i + 60]:
            if shared := _difference(first, second):
                found[shared[0]] |= {shared[1]: first, shared[2]: second}
    all_families = [Family(pattern, members) for pattern, members in found.items()]
    return sorted(all_families, key=lambda f: (not f.numbered, -len(f.members)))


# --- errors that name what is missing ---


def missing_columns_error(rows: Sequence[Record], keys: Sequence[str]) -> InputError:
    """The error for a table without a column `text`: it names all that seems to be missing, and a command."""
    maybe: dict[str, str] = {}
    for key in keys[:200]:
        role = "rater" if is_rater_name(key) else role_of_name(key)
        is_text = _has_texts(rows, key) or (tokens(key) or [""])[-1] in (*TEXT_WORDS, *SOURCE_WORDS)
        if role == "rater" or (role and is_text):
            maybe.setdefault(role, key)
    entries = [f"{role}={maybe[role]}" for role in ("text", "source", "rater") if role in maybe]
    remedy = f"name them, e.g. --columns {','.join(entries)}; or " if "text" in maybe else ""
    near = did_you_mean("text", list(keys), "; did you mean {}?") or ""
    return rows[0].error(
        "the field 'text' is missing",
        "text",
        expected="a column text, with what was rated; if there are any, source (what it was written for) and rater",
        found="fields " + ", ".join(keys) if keys else "no fields",
        remedy=f"{remedy}draft a mapping: debate check {shlex.quote(rows[0].file)} --write-task task.toml{near}",
    )


def refuse_other_meaning(
    rows: Sequence[Record], columns: TextColumns, unread: Sequence[str], names: ColumnNames, *, gather: bool
) -> None:
    """Ask which column is the source, or the text, where one that is not read has texts and a usual name for them, or,
    without a source, a similar name. Roles that the mapping names are not asked about.

    Raises:
        InputError: There is such a column.
    """
    plain = [key for key in unread if "." not in key]
    for role, words in (("source", SOURCE_WORDS), ("text", TEXT_WORDS)):
        column = columns.column(role)
        other = next((key for key in plain if normalized_name(key) in words), None)
        if role in names.roles or (columns.is_pair and column is None):
            continue
        if column is None:
            other = other or next((k for k in plain if did_you_mean("source", [k], cutoff=0.6)), None)
            if other:
                raise rows[0].error(
                    "the field 'source' is missing",
                    "source",
                    found=rows[0].field_names,
                    remedy=f"did you mean {other!r}? Say which it is: --columns source={other}, or source=none if "
                    "texts have no source",
                )
        elif other and gather and _has_texts(rows, other):
            both = f"; --columns source={column},text={other} if both" if role == "text" else ""
            raise rows[0].error(
                f"is {column!r} or {other!r} the {role}?",
                column,
                found=f"{rows[0].values.get(column)!r:.60}, and {rows[0].values.get(other)!r:.60} in {other!r}",
                remedy=f"say which: --columns {role}={other}, or {role}={column}{both}",
            )


def _has_texts(rows: Sequence[Record], key: str) -> bool:
    """Whether a column holds texts of several words."""
    texts = [value for row in rows[:50] if isinstance(value := row.values.get(key), str)]
    return bool(texts) and sum(len(text.split()) for text in texts) >= 2 * len(texts)


def is_rater_name(name: str) -> bool:
    snake = normalized_name(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.rpartition(".")[2] or name))
    return any(RATER_NAME.fullmatch(form) for form in (snake, normalized_name(name)))
