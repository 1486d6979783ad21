"""What the readers of tools' exports have in common: how a layout is described, and what an answer becomes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from debate_judge.data.files.columns import ColumnNames
from debate_judge.data.files.records import Record, is_missing, looks_like_a_number

COMMENT = re.compile(r"(?:(.+?)[ _.-]+)?(?:comments?|reasons?|why|notes?|explanations?|rationales?|feedback)", re.I)
"""Name of a question that asks for a comment, with the aspect of the comment."""

Values = Mapping[str, Any]


class ExportRating(NamedTuple):
    """A rating of one rater, a comment, or both, as the tool has them."""

    aspect: object
    value: object = None
    rater: object = None
    comment: object = None
    field: str = ""
    """Field of the value in the record, for errors."""


class ExportLayout(NamedTuple):
    """How the export of a tool is recognized and converted."""

    tool: str
    recognizes: Callable[[Values], bool]
    texts: Callable[[Values], Values]
    """The columns of the rated text."""
    ratings: Callable[[Values], Iterable[ExportRating]]
    ids: tuple[str, ...]
    """Fields of which the first with a value is the id of the rated text; texts may be equal, e.g. two refusals."""
    needs_texts: str = ""
    """What the tool calls the records with the texts, if these may be in another file; for the error."""
    fitted: Callable[[ExportLayout, Sequence[Record], ColumnNames], ExportLayout] | None = None
    """The layout for the columns of a file, from its first records."""


def answer_of(name: str, value: object, rater: object, field: str = "", *, text: bool = False) -> ExportRating:
    """An answer to a question: a comment if it is free text or the question asks for a comment, else a rating."""
    comment_name = COMMENT.fullmatch(name)
    is_text = isinstance(value, str) and not looks_like_a_number(value.strip())
    if text or (comment_name and is_text):
        comment = "\n".join(map(str, value)) if isinstance(value, list) else str(value)
        return ExportRating(comment_name and comment_name[1], None, rater, comment, field)
    return ExportRating(name, value, rater, None, field)


def first_of(values: Values, *names: str) -> object:
    """The first of these fields that has a value."""
    return next((values[name] for name in names if not is_missing(values.get(name))), None)


def dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
