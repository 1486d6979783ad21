"""Exports of annotation tools, recognized by their fields and converted to a long table with one row per rating.

Each layout converts a record to rows with the texts and the columns `aspect`, `rating`, `rater`, `comment`. Texts keep
their names; an input or output that is a single text becomes `source` or `text`. Scores of LM judges, drafts and
withdrawn ratings are left out.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import ColumnNames
from debate_judge.data.files.exports.cells import parsed, parsed_values, refuse_text
from debate_judge.data.files.exports.label_studio import (
    fitted_studio,
    studio_pairs,
    studio_row,
    studio_tasks,
    studio_texts,
)
from debate_judge.data.files.exports.layout import ExportLayout, ExportRating, Values, answer_of, dicts, first_of
from debate_judge.data.files.pairs import joined_messages, messages_in, pair_columns, pair_rows
from debate_judge.data.files.records import Record, is_missing

_HEAD, _HEAD_CHARACTERS = 200, 200_000
"""Maximum number of records by which a layout is recognized, and of characters, approximately."""


def first_records(records: Iterator[Record]) -> tuple[list[Record], Iterator[Record]]:
    """The first records of a file, by which its layout is recognized (the very first may not be rated yet), and the
    others; an error in reading a first record is raised where the others are read."""
    head: list[Record] = []
    size = 0
    try:
        for record in records:
            head.append(record)
            size += sum(map(len, map(str, record.values.values())))
            if len(head) == _HEAD or size > _HEAD_CHARACTERS:
                break
    except InputError as error:
        if not head:
            raise
        return head, _raising(error)
    return head, records


def _raising(error: InputError) -> Iterator[Record]:
    raise error
    yield


def describe_layout(head: Sequence[Record]) -> str | None:
    """A description of the layout: the export of a tool, or pairs of texts; None for other records."""
    if layout := _layout_of(head):
        return f"an export of {layout.tool}"
    return f"pairs, the columns {' and '.join(pair.texts)}" if head and (pair := pair_columns(head[0])) else None


def long_rows(records: Iterable[Record], columns: ColumnNames) -> Iterator[Record]:
    """The records of an export, or of pairs, as rows of ratings; other records unchanged.

    The first records decide on an export, and the very first one on pairs.
    """
    head, stream = first_records(iter(records))
    layout, all_records = _layout_of(head), chain(head, stream)
    if layout is not None:
        if layout.ratings is studio_tasks and any(True for record in head for _ in studio_pairs(record)):
            return pair_rows((pair for record in all_records for pair in studio_pairs(record)), columns)
        fitted = layout.fitted(layout, head, columns) if layout.fitted else layout
        if "candidate" in columns.renamed:
            fitted = fitted._replace(ids=())
        return (row for record in all_records for row in _rows(record, fitted))
    if head and pair_columns(head[0]) is not None:
        return pair_rows(all_records, columns)
    return chain(head, _without_exports(stream, head))


def _without_exports(records: Iterable[Record], head: Sequence[Record]) -> Iterator[Record]:
    """The records; raises for the first one of an export, because those before it were not read as an export."""
    keys: object = None
    for record in records:
        if keys != (keys := tuple(record.values)) and (layout := _layout_of([record])) is not None:
            problem = f"the first record of {layout.tool}, after {len(head)} and more of another layout"
            raise record.error(problem, remedy="put a rated record first, and read each file by itself")
        yield record


def join_traces(records: Iterable[Record], texts: Iterable[Record]) -> Iterator[Record]:
    """Records of scores, each with the fields of its trace or run joined by id."""
    by_id = {str(id_): record.values for record in texts if (id_ := first_of(record.values, *_TRACE_IDS)) is not None}
    for record in records:
        name = next((name for name in _TRACE_REFERENCES if not is_missing(record.values.get(name))), "")
        trace = by_id.get(str(record.values[name])) if name else None
        if trace is None and not _has_ratings(record):
            continue
        if not name:
            expected = "a field " + ", ".join(_TRACE_REFERENCES)
            raise record.error("no field to join by", expected=expected, found=record.field_names)
        if trace is None:
            raise record.error(
                "no trace with this id in the second file",
                name,
                found=record.values[name],
                remedy="export the traces of the same time, or leave out the scores of other traces",
            )
        yield replace(record, values={**trace, **record.values})


def _has_ratings(record: Record) -> bool:
    """Whether a record of scores is a person's; those of judges may be about other texts."""
    layout = _layout_of([record])
    if layout is None:
        return True
    with _readable(record, layout.tool):
        return any(True for _ in layout.ratings(parsed_values(record)))


@contextmanager
def _readable(record: Record, tool: str) -> Iterator[None]:
    """Make errors of the block name the record, also those about a value of another type than the tool writes."""
    try:
        with record.located():
            yield
    except (TypeError, AttributeError) as error:
        problem = f"not a record as {tool} exports it: {error}"
        raise record.error(problem, found=record.field_names, remedy="export it again, or leave it out") from error


def _rows(record: Record, layout: ExportLayout) -> Iterator[Record]:
    values = parsed_values(record)
    with _readable(record, layout.tool):
        texts, ratings = dict(layout.texts(values)), list(layout.ratings(values))
        id_ = first_of({**values, **(values.get("info") or {})} if layout.tool == "MLflow" else values, *layout.ids)
    for name, value in texts.items():
        # A text that looks like JSON stays unchanged; a conversation becomes a text.
        original = record.values.get(name) if values.get(name) is value else None
        texts[name] = (
            original if isinstance(original, str) else value if isinstance(value, str) else _single_text(value) or value
        )
    if layout.needs_texts and not texts:
        raise record.error(
            f"{layout.tool} exports these ratings without the texts that they are about",
            remedy=f"export the {layout.needs_texts} with their ids, inputs and outputs as well, and name both files: "
            f"{record.file}+TRACES.csv",
        )
    rated = [rating for rating in ratings if not is_missing(rating.value)]
    if not rated and layout.needs_texts and len(texts) < 2:
        return  # A trace that failed, and that nobody rated.
    if id_ is not None:
        texts = {"candidate": str(id_), **texts}
    for rating in ratings:
        if not is_missing(rating.value):
            yield _rating_row(record, texts, rating)
        elif str(rating.comment or "").strip():
            # A comment on the whole text is one on each aspect that this rater rated.
            by_rater = [other.aspect for other in rated if other.rater == rating.rater]
            for aspect in [rating.aspect] if rating.aspect in by_rater else by_rater:
                yield _rating_row(record, texts, rating._replace(aspect=aspect))
    if not rated:
        yield _rating_row(record, texts, ExportRating(""))


def _rating_row(record: Record, texts: Values, rating: ExportRating) -> Record:
    aspect, rater, comment = (str(v) if v or v == 0 else "" for v in (rating.aspect, rating.rater, rating.comment))
    columns = {"aspect": aspect, "rating": rating.value, "rater": rater, "comment": comment}
    full_names = dict.fromkeys(("rating", "aspect"), rating.field or aspect)
    return replace(record, values={**texts, **columns}, full_names=full_names, format="csv", decimal_commas=False)


def _layout_of(head: Sequence[Record]) -> ExportLayout | None:
    rows = [parsed_values(record) for record in head]
    return next((layout for layout in _LAYOUTS if any(map(layout.recognizes, rows))), None)


def _has_all(*names: str) -> Callable[[Values], bool]:
    return lambda values: all(name in values for name in names)


# --- Argilla ---


def _argilla_questions(values: Values) -> list[str]:
    return [key.removesuffix(".responses") for key in values if key.endswith(".responses")]


def _argilla(values: Values) -> Iterator[ExportRating]:
    for name in _argilla_questions(values):
        fields = [f"{name}.responses{suffix}" for suffix in ("", ".users", ".status")]
        for field in fields:
            refuse_text(values.get(field), field)
        answers, users, states = (values.get(field) or [] for field in fields)
        for i, value in enumerate(answers):
            if i >= len(states) or states[i] == "submitted":
                yield answer_of(name, value, users[i] if i < len(users) else None, f"{name}.responses[{i}]")


def _argilla_texts(values: Values) -> Values:
    metadata = ("id", "status", "_server_id", "inserted_at", "updated_at")
    questions = tuple(f"{name}." for name in _argilla_questions(values))
    # A record that nobody answered may have suggestions.
    return {
        key: v
        for key, v in values.items()
        if key not in metadata and not key.startswith(questions) and ".suggestion" not in key
    }


def _argilla_nested(values: Values) -> Iterator[ExportRating]:
    raise InputError(
        "records of Argilla that do not say which answers were submitted",
        field="responses",
        remedy="export them with dataset.records.to_list(flatten=True), or dataset.records.to_datasets()",
    )


# --- Langfuse, LangSmith, MLflow ---

_TRACE_IDS = ("id", "trace_id", "traceId", "run_id")
_TRACE_REFERENCES = ("observationId", "observation_id", "traceId", "run_id", "trace_id")
"""Fields with the id of what a score is about, of which the first counts: a step of a trace before the whole trace."""


def _langfuse(values: Values) -> Iterator[ExportRating]:
    if values.get("source") == "ANNOTATION":
        # Underscores are those of exports to a bucket.
        value = first_of(values, "value", "stringValue", "string_value")
        rater = first_of(values, "authorUserId", "author_user_id")
        yield ExportRating(values.get("name"), value, rater, values.get("comment"), "value")


_SCORES = ("score", "value")
"""Fields of LangSmith with a number, or with a word."""


def _langsmith(values: Values) -> Iterator[ExportRating]:
    correction, source = values.get("correction"), values.get("feedback_source")
    for name in ("correction", "feedback_source"):
        if str(values.get(name)).startswith("{") and not isinstance(values[name], dict):
            refuse_text(values[name], name)
    source_type = source.get("type") if isinstance(source, dict) else values.get("feedback_source.type", source)
    corrections = correction if isinstance(correction, dict) else {n: values.get(f"correction.{n}") for n in _SCORES}
    # An LM judge's score is no rating, unless a person corrected it.
    of_person = values if source_type not in ("model", "auto_eval") else {}
    corrected = first_of(corrections, *_SCORES)
    value = first_of(of_person, *_SCORES) if corrected is None else corrected
    rater = source.get("user_id") if isinstance(source, dict) else values.get("feedback_source.user_id")
    if value is not None:
        yield ExportRating(values.get("key"), value, rater, of_person.get("comment"), "score")


def _mlflow(values: Values) -> Iterator[ExportRating]:
    info = values.get("info")
    trace, prefix = (info, "info.") if isinstance(info, dict) else (values, "")
    assessments = trace.get("assessments")
    refuse_text(assessments, f"{prefix}assessments")
    # The text of a trace is that of its first span; assessments of the other ones are about other texts.
    steps = {_hexadecimal(str(span.get("span_id"))) for span in _mlflow_spans(values) if _is_step(span)}
    for i, assessment in enumerate(dicts(assessments)):
        source, feedback = assessment.get("source") or {}, assessment.get("feedback") or {}
        if assessment.get("span_id") in steps:
            continue
        if source.get("source_type") == "HUMAN" and assessment.get("valid") is not False and "value" in feedback:
            name, field = first_of(assessment, "assessment_name", "name"), f"{prefix}assessments[{i}].feedback.value"
            yield ExportRating(name, feedback["value"], source.get("source_id"), assessment.get("rationale"), field)


def _mlflow_spans(values: Values) -> list[dict[str, Any]]:
    data = values.get("data")
    return dicts(data.get("spans") if isinstance(data, dict) else values.get("spans"))


def _is_step(span: Values) -> bool:
    return bool(span.get("parent_span_id") or span.get("parent_id"))


def _hexadecimal(span_id: str) -> str:
    """The id of a span as assessments have it; traces have it in base64."""
    with suppress(ValueError):
        return base64.b64decode(span_id).hex()
    return span_id


_PREVIEW_CUT_OFF = re.compile(r".{997,}\.\.\.", re.DOTALL)
"""A preview as MLflow cuts it off, at 1,000 characters or, on Databricks, at 10,000."""


def _mlflow_texts(values: Values) -> Values:
    info = values.get("info")
    if not isinstance(info, dict):
        return _input_and_output({name: parsed(values.get(name)) for name in ("request", "response")})
    root = next((span for span in _mlflow_spans(values) if not _is_step(span)), {})
    attributes = root.get("attributes") or {}
    texts = {}
    for name, attribute in (("request", "mlflow.spanInputs"), ("response", "mlflow.spanOutputs")):
        preview = info.get(f"{name}_preview")
        if not (text := attributes.get(attribute)) and _PREVIEW_CUT_OFF.fullmatch(str(preview)):
            raise InputError(
                "a trace without spans, whose text MLflow has cut off",
                field=f"info.{name}_preview",
                expected="the whole text, in the attributes of its first span",
                found=f"{len(str(preview)):,} characters and an ellipsis",
                remedy="export the traces with their spans (include_spans=True)",
            )
        texts[name] = parsed(text or preview)
    return _input_and_output(texts)


def _input_and_output(values: Values) -> Values:
    """The input and output of a trace: `source` and `text` if each is a single text, else their fields."""
    texts: dict[str, Any] = {}
    values = {name.lower(): value for name, value in values.items()}
    for role, names in (("source", ("input", "inputs", "request")), ("text", ("output", "outputs", "response"))):
        name = next((name for name in names if not is_missing(values.get(name))), None)
        if name is None:
            continue
        value = values[name]
        if (text := _single_text(value)) is not None:
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
    turns = dicts(value)
    if len(turns) == 1:
        return _single_text(turns[0], depth - 1)
    return joined_messages(messages_in(turns)) or None


def _is_mlflow(values: Values) -> bool:
    """Whether this is a trace; the traces of a table, and older ones, are recognized by their assessments."""
    info, data = values.get("info"), values.get("data")
    trace = info if isinstance(info, dict) else values
    assessments = trace.get("assessments")
    # One that cannot be parsed is still a text, and refused later.
    is_list = isinstance(assessments, list) or str(assessments).startswith("[")
    return ("trace_id" in trace or "request_id" in trace) and (
        is_list or (trace is info and isinstance(data, dict) and isinstance(data.get("spans"), list))
    )


_LAYOUTS = (
    ExportLayout(
        "Label Studio (JSON)",
        lambda values: isinstance(values.get("data"), dict) and isinstance(values.get("annotations"), list),
        lambda values: values.get("data") or {},
        studio_tasks,
        ("id",),
    ),
    ExportLayout(
        "Label Studio",
        _has_all("annotator", "annotation_id", "lead_time"),
        partial(studio_texts, ()),
        partial(studio_row, {}),
        ("id",),
        fitted=fitted_studio,
    ),
    ExportLayout(
        "Argilla",
        lambda values: any(f"{name}.responses.users" in values for name in _argilla_questions(values)),
        _argilla_texts,
        _argilla,
        ("id", "_server_id"),
    ),
    ExportLayout(
        "Argilla (nested)",
        lambda values: all(isinstance(values.get(name), dict) for name in ("fields", "responses", "suggestions")),
        lambda values: values.get("fields") or {},
        _argilla_nested,
        ("id",),
    ),
    ExportLayout(
        "MLflow",
        _is_mlflow,
        _mlflow_texts,
        _mlflow,
        ("trace_id", "request_id"),
        "traces",
    ),
    ExportLayout(
        "Langfuse",
        lambda values: _has_all("source", "name", "value")(values) and ("dataType" in values or "data_type" in values),
        _input_and_output,
        _langfuse,
        ("observationId", "observation_id", "traceId", "trace_id"),
        "traces",
    ),
    ExportLayout("LangSmith", _has_all("run_id", "key", "score"), _input_and_output, _langsmith, ("run_id",), "runs"),
)
