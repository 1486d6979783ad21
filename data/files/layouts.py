"""Exports of annotation tools, recognized by their fields and converted to a long table with one row per rating.

Each layout converts a record to rows with the texts and the columns `aspect`, `rating`, `rater`, `comment`. Texts keep
their names; an input or output that is a single text becomes `source` or `text`. Scores of LM judges, drafts and
withdrawn ratings are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from debate_judge.data.files.columns import ColumnNames
from debate_judge.data.files.pairs import pair_columns, pair_rows
from debate_judge.data.files.records import Record, is_missing, looks_like_a_number

_COMMENT = re.compile(r"(?:(.+?)[ _.-]+)?(?:comments?|reasons?|why|notes?|explanations?|rationales?|feedback)", re.I)
"""Name of a question that asks for a comment, with the aspect of the comment."""

Values = Mapping[str, Any]


class _Rating(NamedTuple):
    """A rating of one rater, a comment, or both."""

    aspect: str
    value: object = None
    rater: str = ""
    comment: str = ""
    field: str = ""
    """Field of the value in the record, for errors."""


class _Layout(NamedTuple):
    """How the export of a tool is recognized and converted."""

    tool: str
    recognizes: Callable[[Values], bool]
    texts: Callable[[Values], Values]
    """The columns of the rated text."""
    ratings: Callable[[Values], Iterable[_Rating]]
    needs_texts: str = ""
    """What the tool calls the records with the texts, if these may be in another file; for the error."""


def describe_layout(record: Record) -> str | None:
    """A description of the layout: the export of a tool, or pairs of texts; None for other records."""
    if layout := _layout_of(record):
        return f"an export of {layout.tool}"
    return f"pairs, the columns {' and '.join(pair.texts)}" if (pair := pair_columns(record)) else None


def long_rows(records: Iterable[Record], columns: ColumnNames) -> Iterator[Record]:
    """The records of an export, or of pairs, as rows of ratings; other records unchanged. The first record decides."""
    stream = iter(records)
    first = next(stream, None)
    if first is None:
        return stream
    layout, everything = _layout_of(first), chain([first], stream)
    if layout is not None:
        return (row for record in everything for row in _rows(record, layout))
    return everything if pair_columns(first) is None else pair_rows(everything, columns)


def join_traces(records: Iterable[Record], texts: Iterable[Record]) -> Iterator[Record]:
    """Records of scores, each with the fields of its trace or run joined by id."""
    by_id = {str(r.values[name]): r.values for r in texts for name in _TRACE_IDS if not is_missing(r.values.get(name))}
    for record in records:
        name = next((name for name in _TRACE_REFERENCES if name in record.values), "")
        if not name:
            shown = "fields " + ", ".join(map(str, record.values))
            raise record.error("no field to join by", expected="a field " + ", ".join(_TRACE_REFERENCES), found=shown)
        other = by_id.get(str(record.values[name]))
        if other is None:
            raise record.error("no trace with this id in the second file", name, found=record.values[name])
        yield replace(record, values={**other, **record.values})


def _rows(record: Record, layout: _Layout) -> Iterator[Record]:
    values = _parsed_values(record)
    texts = dict(layout.texts(values))
    for name, value in texts.items():
        # A text that looks like JSON stays unchanged; a conversation becomes a text.
        original = record.values.get(name) if values.get(name) is value else None
        texts[name] = (
            original if isinstance(original, str) else value if isinstance(value, str) else _single_text(value) or value
        )
    if layout.needs_texts and not texts:
        raise record.error(
            f"{layout.tool} exports these ratings without the texts that they are about",
            expected=f"a second file with the {layout.needs_texts}, each with its id, input and output",
            remedy=f"export the {layout.needs_texts} as well, and name both files: {record.file}+TRACES.csv",
        )
    ratings = list(layout.ratings(values))
    rated = [rating for rating in ratings if not is_missing(rating.value)]
    for rating in ratings:
        if not is_missing(rating.value):
            yield _rating_row(record, texts, rating)
        elif rating.comment.strip():
            # A comment on the whole text is one on each aspect that this rater rated.
            by_rater = [other.aspect for other in rated if other.rater == rating.rater]
            for aspect in [rating.aspect] if rating.aspect in by_rater else by_rater:
                yield _rating_row(record, texts, rating._replace(aspect=aspect))
    if not rated:
        yield _rating_row(record, texts, _Rating(""))


def _rating_row(record: Record, texts: Values, rating: _Rating) -> Record:
    columns = {"aspect": rating.aspect, "rating": rating.value, "rater": rating.rater, "comment": rating.comment}
    full_names = dict.fromkeys(("rating", "aspect"), rating.field or rating.aspect)
    return replace(
        record,
        values={**texts, **columns},
        full_names=full_names,
        format="csv",
        comma_columns=None,
        decimal_comma=False,
    )


def _layout_of(record: Record) -> _Layout | None:
    values = _parsed_values(record)
    return next((layout for layout in _LAYOUTS if layout.recognizes(values)), None)


def _parsed_values(record: Record) -> Values:
    """The fields; in a table, JSON lists and objects are parsed."""
    table = record.format == "csv"
    return {
        str(key): _parsed(value) if table and isinstance(value, str) and value[:1] in ("[", "{") else value
        for key, value in record.values.items()
    }


def _parsed(value: object) -> object:
    """The value of a JSON text; other values unchanged."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def _has_all(*names: str) -> Callable[[Values], bool]:
    return lambda values: all(name in values for name in names)


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _answer(name: str, value: object, rater: object, field: str = "", *, text: bool = False) -> _Rating:
    """An answer to a question: a comment if it is free text or the question asks for a comment, else a rating."""
    comment_name = _COMMENT.fullmatch(name)
    is_text = isinstance(value, str) and not looks_like_a_number(value.strip())
    if text or (comment_name and is_text):
        words = "\n".join(map(str, value)) if isinstance(value, list) else str(value)
        return _Rating((comment_name and comment_name[1]) or "", None, str(rater), words, field)
    return _Rating(name, value, str(rater), "", field)


# --- Label Studio ---

_LABEL_STUDIO_METADATA = frozenset(
    ("id", "annotator", "annotation_id", "lead_time", "created_at", "updated_at", "agreement", "inner_id")
)


def _studio_tasks(values: Values) -> Iterator[_Rating]:
    for i, annotation in enumerate(_dicts(values["annotations"])):
        by = annotation.get("completed_by", "")
        rater = by.get("email") or by.get("id") if isinstance(by, dict) else by
        for j, result in enumerate(_dicts(annotation.get("result")) if not annotation.get("was_cancelled") else ()):
            field = f"annotations[{i}].result[{j}].value"
            name, value = str(result.get("from_name", "")), result.get("value")
            if isinstance(value, dict) and name:
                yield from _studio_value(name, value, rater, field)


def _studio_value(name: str, answer: Values, rater: object, field: str) -> Iterator[_Rating]:
    for answer_type in ("rating", "number", "choices", "text"):
        if answer_type in answer:
            value = answer[answer_type]
            value = value[0] if answer_type == "choices" and isinstance(value, list) and len(value) == 1 else value
            yield _answer(name, value, rater, f"{field}.{answer_type}", text=answer_type == "text")


def _studio_row(values: Values) -> Iterator[_Rating]:
    rater = values["annotator"]
    for name, value in values.items():
        if annotations := _dicts(value):
            yield from _studio_value(name, annotations[0], rater, name)
        elif name not in _LABEL_STUDIO_METADATA and (
            _COMMENT.fullmatch(name) or looks_like_a_number(str(value).strip()) or isinstance(value, dict)
        ):
            value = value.get("choices", value) if isinstance(value, dict) else value
            yield _answer(name, value, rater, name)


def _studio_texts(values: Values) -> Values:
    rated = {rating.field for rating in _studio_row(values)}
    return {name: value for name, value in values.items() if name not in _LABEL_STUDIO_METADATA and name not in rated}


# --- Argilla ---


def _argilla_questions(values: Values) -> list[str]:
    return [key.removesuffix(".responses") for key in values if key.endswith(".responses")]


def _argilla(values: Values) -> Iterator[_Rating]:
    for name in _argilla_questions(values):
        answers = values[f"{name}.responses"] or []
        users, states = (values.get(f"{name}.responses.{part}") or [] for part in ("users", "status"))
        for i, value in enumerate(answers):
            if i >= len(states) or states[i] == "submitted":
                rater = users[i] if i < len(users) else ""
                yield _answer(name, value, rater, f"{name}.responses[{i}]")


def _argilla_texts(values: Values) -> Values:
    metadata = ("id", "status", "_server_id", "inserted_at", "updated_at")
    questions = tuple(f"{name}." for name in _argilla_questions(values))
    return {key: v for key, v in values.items() if key not in metadata and not key.startswith(questions)}


# --- Opik ---

_OPIK_REVIEW = re.compile(r"\[([^\]]+)\]\.(.+?)(\.reason)?")


def _opik_columns(values: Values) -> dict[str, tuple[str, str, str]]:
    """Column -> reviewer, name of the score or `comment`, and `.reason` or the empty text."""
    bare = {key.removesuffix(".comment") for key in values if key.endswith(".comment")}
    columns = {}
    for key in values:
        match = _OPIK_REVIEW.fullmatch(key)
        reviewer = next((name for name in bare if key.startswith(f"{name}.")), "")
        if match:
            columns[key] = (match[1], match[2], match[3] or "")
        elif reviewer:
            name = key.removeprefix(f"{reviewer}.")
            columns[key] = (reviewer, name.removesuffix(".reason"), ".reason" if name.endswith(".reason") else "")
    return columns


def _opik(values: Values) -> Iterator[_Rating]:
    for key, (reviewer, name, reason) in _opik_columns(values).items():
        if not reason and name != "comment":
            yield _Rating(name, values[key], reviewer, str(values.get(f"{key}.reason") or ""), key)
        elif name == "comment" and not reason:
            yield _Rating("", None, reviewer, str(values[key] or ""), key)


# --- Langfuse, LangSmith, MLflow ---

_TRACE_IDS = ("id", "trace_id", "traceId", "run_id")
_TRACE_REFERENCES = ("traceId", "trace_id", "run_id")


def _langfuse(values: Values) -> Iterator[_Rating]:
    if values["source"] == "ANNOTATION":
        value = values.get("value")
        value = values.get("stringValue") if is_missing(value) else value
        rater = values.get("authorUserId") or ""
        yield _Rating(str(values["name"]), value, str(rater), str(values.get("comment") or ""), "value")


def _langsmith(values: Values) -> Iterator[_Rating]:
    correction, source = values.get("correction"), values.get("feedback_source")
    kind = source.get("type") if isinstance(source, dict) else values.get("feedback_source.type", source)
    corrected = correction.get("score") if isinstance(correction, dict) else values.get("correction.score")
    # An LM judge's score is no rating, unless a person corrected it.
    value = corrected if not is_missing(corrected) else None if kind == "model" else values.get("score")
    value = values.get("value") if is_missing(value) and kind != "model" else value
    rater = source.get("user_id") if isinstance(source, dict) else values.get("feedback_source.user_id")
    if not is_missing(value):
        comment = str(values.get("comment") or "") if kind != "model" else ""
        yield _Rating(str(values["key"]), value, str(rater or ""), comment, "score")


def _mlflow(values: Values) -> Iterator[_Rating]:
    info = values.get("info")
    assessments, at = (info["assessments"], "info.") if isinstance(info, dict) else (values["assessments"], "")
    for i, assessment in enumerate(_dicts(assessments)):
        source, feedback = assessment.get("source") or {}, assessment.get("feedback") or {}
        if source.get("source_type") == "HUMAN" and assessment.get("valid") is not False and "value" in feedback:
            name = str(assessment.get("assessment_name") or assessment.get("name"))
            comment = str(assessment.get("rationale") or "")
            field = f"{at}assessments[{i}].feedback.value"
            yield _Rating(name, feedback["value"], str(source.get("source_id") or ""), comment, field)


def _mlflow_texts(values: Values) -> Values:
    info = values.get("info")
    if not isinstance(info, dict):
        return _input_and_output({name: _parsed(values.get(name)) for name in ("request", "response")})
    data = values.get("data")
    spans = _dicts(data.get("spans")) if isinstance(data, dict) else []
    root = next((span for span in spans if not (span.get("parent_span_id") or span.get("parent_id"))), {})
    attributes = root.get("attributes") or {}
    texts = {
        "request": _parsed(attributes.get("mlflow.spanInputs") or info.get("request_preview")),
        "response": _parsed(attributes.get("mlflow.spanOutputs") or info.get("response_preview")),
    }
    return _input_and_output(texts)


def _input_and_output(values: Values) -> Values:
    """The input and output of a trace: `source` and `text` if each is a single text, else their fields."""
    texts: dict[str, Any] = {}
    for role, names in (("source", ("input", "inputs", "request")), ("text", ("output", "outputs", "response"))):
        name = next((name for name in names if not is_missing(values.get(name))), None)
        if name is None:
            continue
        value = values[name]
        text = _single_text(value)
        if text is not None:
            texts[role] = text
        elif isinstance(value, dict):
            texts |= {(f"{name}.{key}" if key in texts else key): inner for key, inner in value.items()}
        else:
            texts[role] = json.dumps(value, ensure_ascii=False)
    return texts


def _single_text(value: object, depth: int = 8) -> str | None:
    """The single text in a value: the value, a message, a conversation, or that of an object with one field."""
    if isinstance(value, str) or not depth:
        return value if isinstance(value, str) else None
    if isinstance(value, dict):
        if isinstance(value.get("content"), str):
            return str(value["content"])
        inner = [v for k, v in value.items() if k in ("messages", "choices", "message")] or list(value.values())
        return _single_text(inner[0], depth - 1) if len(inner) == 1 else None
    turns = _dicts(value)
    if len(turns) == 1:
        return _single_text(turns[0], depth - 1)
    contents = [turn.get("content") for turn in turns]
    if not contents or not all(isinstance(text, str) for text in contents):
        return None
    return "\n".join(f"{turn.get('role')}: {text}" for turn, text in zip(turns, contents, strict=True))


def _has_assessments(values: Values) -> bool:
    info = values.get("info")
    holder = info if isinstance(info, dict) else values
    return isinstance(holder.get("assessments"), list) and ("trace_id" in holder or "request_id" in holder)


_LAYOUTS = (
    _Layout(
        "Label Studio (JSON)",
        lambda values: isinstance(values.get("data"), dict) and isinstance(values.get("annotations"), list),
        lambda values: values["data"],
        _studio_tasks,
    ),
    _Layout("Label Studio", _has_all("annotator", "annotation_id", "lead_time"), _studio_texts, _studio_row),
    _Layout(
        "Argilla",
        lambda values: any(f"{name}.responses.users" in values for name in _argilla_questions(values)),
        _argilla_texts,
        _argilla,
    ),
    _Layout("MLflow", _has_assessments, _mlflow_texts, _mlflow, "traces with their requests and responses"),
    _Layout("Langfuse", _has_all("traceId", "source", "dataType", "value"), _input_and_output, _langfuse, "traces"),
    _Layout("LangSmith", _has_all("run_id", "key", "score"), _input_and_output, _langsmith, "runs"),
    _Layout(
        "Opik",
        lambda values: bool(_opik_columns(values)) and any(name in values for name in ("input", "output")),
        _input_and_output,
        _opik,
    ),
)
