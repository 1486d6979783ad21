"""Exports of Label Studio: as JSON, as JSON-MIN and CSV with a row per annotation, and comparisons of two texts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from debate_judge.data.files.columns import OTHER_NAMES, ColumnNames, normalized_name
from debate_judge.data.files.exports.cells import parsed_values
from debate_judge.data.files.exports.layout import COMMENT, ExportLayout, ExportRating, Values, answer_of, dicts
from debate_judge.data.files.pairs import pair_columns
from debate_judge.data.files.ratings import YES_NO_WORDS
from debate_judge.data.files.records import Record, is_missing, looks_like_a_number

_METADATA = frozenset(
    ("id", "annotator", "annotation_id", "lead_time", "created_at", "updated_at", "agreement", "inner_id", "history")
)
_DATA_ROLES = ("source", "text", "context", "reference", "references", "candidate", "group")
_DATA_NAMES = {name for role in _DATA_ROLES for name in (role, *OTHER_NAMES.get(role, ()))}
_DATA_PREFIX = "_data_"
"""Prefix of a column of the task's data that has the same name as a question."""

_SIDES = ("left", "right")
_ANSWER_TYPES = ("rating", "number", "choices", "text")
_MIN_REPEATED_TASKS = 3
"""Number of tasks with several annotations from which on numbers that never differ within a task are data."""

_MAX_CHOICES, _MAX_CHOICE_LENGTH = 20, 60
"""Maximum number of different texts in a column of choices, and their length; other columns hold free texts."""


def _studio_annotations(values: Values) -> Iterator[tuple[str, object, Values]]:
    """The path, rater and fields of each result."""
    for i, annotation in enumerate(dicts(values.get("annotations"))):
        user = annotation.get("completed_by")
        rater = user.get("email") or user.get("id") if isinstance(user, dict) else user
        for j, result in enumerate(dicts(annotation.get("result")) if not annotation.get("was_cancelled") else ()):
            yield f"annotations[{i}].result[{j}].value", rater, result


def studio_tasks(values: Values) -> Iterator[ExportRating]:
    for field, rater, result in _studio_annotations(values):
        name, value = str(result.get("from_name", "")), result.get("value")
        if isinstance(value, dict) and name:
            yield from _studio_value(name, value, rater, field)


def studio_pairs(record: Record) -> Iterator[Record]:
    """A record of a pair for each answer to a comparison of two texts, with the annotation's other answers."""
    values = parsed_values(record)
    texts = values.get("data") or {}
    for i, annotation in enumerate(dicts(values.get("annotations"))):
        results = list(_studio_annotations({"annotations": [annotation]}))
        answers = {str(result.get("from_name")): result.get("value") for _, _, result in results}
        chosen = {n: v["selected"] for n, v in answers.items() if isinstance(v, dict) and "selected" in v}
        other_answers = {n: _answer_value(v) for n, v in answers.items() if n not in chosen and isinstance(v, dict)}
        for name, side in chosen.items():
            rater, verdict = results[0][1], "winner" if len(chosen) == 1 else f"{name}_winner"
            data = {**other_answers, **texts, verdict: side, "rater": "" if rater is None else str(rater)}
            pair = pair_columns(replace(record, values=data))
            if pair is None:
                raise record.error(
                    "a comparison of two texts that are not recognized",
                    "data",
                    found="fields " + ", ".join(texts),
                    remedy="rename the texts, e.g. to response_a, the left one, and response_b",
                )
            if side not in _SIDES:
                field = f"annotations[{i}].result, {name}"
                raise record.error("not a side of the pair", field, expected="left or right", found=side)
            yield replace(record, values={**data, verdict: pair.texts[_SIDES.index(side)]})


def _answer_value(value: Values) -> object:
    """The answer itself; several texts or choices as one text."""
    answer = next((value[name] for name in _ANSWER_TYPES if name in value), None)
    return "\n".join(map(str, answer)) if isinstance(answer, list) else answer


def _studio_value(name: str, answer: Values, rater: object, field: str) -> Iterator[ExportRating]:
    # The text of a marked span is part of the task's texts, not a comment.
    is_span = any(key.endswith("labels") for key in answer)
    for answer_type in () if is_span else _ANSWER_TYPES:
        if answer_type in answer:
            value = answer[answer_type]
            value = value[0] if answer_type == "choices" and isinstance(value, list) and len(value) == 1 else value
            yield answer_of(name, value, rater, f"{field}.{answer_type}", text=answer_type == "text")


def _studio_answers(value: object) -> list[dict[str, Any]]:
    """The answers in a cell; a single choice or text is the cell itself."""
    return [a for a in dicts([value] if isinstance(value, dict) else value) if any(t in a for t in _ANSWER_TYPES)]


def _studio_questions(head: Sequence[Record], columns: ColumnNames) -> dict[str, bool]:
    """Columns with answers, among those of the task's data -> whether these are free texts.

    Tables do not say which is which. Only answers can differ between the annotations of a task.
    """
    rows = [parsed_values(record) for record in head]
    names = dict.fromkeys(name for row in rows for name in row if name not in _METADATA)
    tasks: dict[str, list[Values]] = {}
    for row in rows:
        if not is_missing(row.get("id")):
            tasks.setdefault(str(row["id"]), []).append(row)
    repeated_tasks = [members for members in tasks.values() if len(members) > 1]
    data = {column for role, column in columns.names_for(names).items() if role in _DATA_ROLES}
    questions = {}
    for name in names:
        values = [row[name] for row in rows if not is_missing(row.get(name))]
        differs = any(len({str(row.get(name)) for row in members}) > 1 for members in repeated_tasks)
        words = {str(value).strip() for value in values}
        on_scale = bool(words) and all(looks_like_a_number(word) or word.lower() in YES_NO_WORDS for word in words)
        if f"{_DATA_PREFIX}{name}" in names or any(map(_studio_answers, values)):
            is_question = True
        elif name in data or name.startswith(_DATA_PREFIX):
            is_question = False
        elif differs or COMMENT.fullmatch(name):
            is_question = True
        elif normalized_name(name) in _DATA_NAMES:
            is_question = False
        else:
            # Raters may agree on every yes and no.
            numbers = any(map(looks_like_a_number, words))
            guessed = on_scale and not (numbers and len(repeated_tasks) >= _MIN_REPEATED_TASKS)
            is_question = guessed or any(_is_answer_position(name, record) for record in head)
        if is_question:
            few, longest = len(words) <= min(_MAX_CHOICES, len(values) / 2), max(map(len, words), default=0)
            questions[name] = not on_scale and not (few and longest <= _MAX_CHOICE_LENGTH)
    return questions


def _is_answer_position(name: str, record: Record) -> bool:
    """Whether a field is in the position of answers: after the data and the id, before the annotator."""
    position = {key: i for i, key in enumerate(record.values)}
    has_fields = record.format == "json" and all(key in position for key in ("id", name, "annotator"))
    return has_fields and 0 < position["id"] < position[name] < position["annotator"]


def studio_row(questions: Mapping[str, bool], values: Values) -> Iterator[ExportRating]:
    for name, value in values.items():
        if answers := _studio_answers(value):
            for answer in answers:
                yield from _studio_value(name, answer, values.get("annotator"), name)
        elif name in questions:
            yield answer_of(name, value, values.get("annotator"), name, text=questions[name] and not is_missing(value))


def studio_texts(questions: Collection[str], values: Values) -> Values:
    return {
        name: value
        for name, value in values.items()
        if name not in _METADATA and name not in questions and not _studio_answers(value)
    }


def fitted_studio(layout: ExportLayout, head: Sequence[Record], columns: ColumnNames) -> ExportLayout:
    questions = _studio_questions(head, columns)
    return layout._replace(texts=partial(studio_texts, questions), ratings=partial(studio_row, questions))
