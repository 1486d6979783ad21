"""Exports of the tools in which people rate: one function a tool, from a record to rows of one rating each.

A tool is known by the fields of its records. A row has the texts under the names that they have there, or `source` and
`text` where input and output are a single text, and `candidate`, `aspect`, `rating`, `rater`, `comment`. Scores of LM
judges, drafts and withdrawn ratings are left out. Nothing else knows of these tools.
"""

from __future__ import annotations

import ast
import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import families
from debate_judge.data.files.records import (
    Record,
    first_records,
    is_missing,
    joined_messages,
    looks_like_a_number,
    messages_in,
)

Values = Mapping[str, Any]

_MAX_PYTHON = 200_000
"""Length of a cell that is read as Python; a longer one has to be JSON."""
_SIDE_BY_SIDE = re.compile(r"""['"]\s+['"]""")
_COMMENT = re.compile(r"(?:(.+?)[ _.-]+)?(?:comments?|reasons?|why|notes?|explanations?|rationales?|feedback)", re.I)
"""Name of a question that asks for a comment, with the aspect of the comment."""
_PREVIEW_CUT_OFF = re.compile(r".{997,}\.\.\.", re.DOTALL)
"""A preview as MLflow cuts it off, at 1,000 characters or, on Databricks, at 10,000."""
_TRACE_IDS = ("id", "trace_id", "traceId", "run_id")
_TRACE_REFERENCES = ("observationId", "observation_id", "traceId", "run_id", "trace_id")
"""Fields with the id of what a score is about, of which the first counts: a step of a trace before the whole trace."""


class Answer(NamedTuple):
    """A rating of one rater, a comment, or both."""

    aspect: object
    value: object = None
    rater: object = None
    comment: object = None
    field: str = ""
    """Field of the value in the record, for errors."""


class Rated(NamedTuple):
    """A text of a tool: its columns, its id and what people answered about it."""

    texts: Values
    id: object = None
    answers: Iterable[Answer] | None = None
    """None where the answers are among the columns."""


class Tool(NamedTuple):
    """A tool, how its records are known, and what they hold."""

    name: str
    is_from: Callable[[Values], bool]
    read: Callable[[Values], Rated]
    texts_in: str = ""
    """What the tool calls the records with the texts, if these may be in another file."""


def tool_of(head: Iterable[Record]) -> Tool | None:
    """The tool that exported the records; None for others."""
    rows = [_parsed_fields(record) for record in head]
    return next((tool for tool in _TOOLS if any(map(tool.is_from, rows))), None)


def rows(records: Iterator[Record], note: Callable[[str], None], has_id: bool) -> Iterator[Record]:
    """The records of an export as rows of one rating; other records unchanged.

    Args:
        records: The records of a file.
        note: Called with the name of the tool.
        has_id: Whether the user names a column as the id of a text, so that the tool's is not taken.
    """
    head, later = first_records(records)
    tool = tool_of(head)
    if tool is not None:
        note(f"an export of {tool.name}")
    for record in chain(head, later):
        yield from [record] if tool is None else _rows(record, tool, has_id)


def join_traces(records: Iterable[Record], texts: Iterable[Record]) -> Iterator[Record]:
    """Records of scores, each with the fields of its trace or run."""
    by_id = {str(id_): record.values for record in texts if (id_ := _first(record.values, *_TRACE_IDS)) is not None}
    for record in records:
        name = next((name for name in _TRACE_REFERENCES if not is_missing(record.values.get(name))), "")
        trace = by_id.get(str(record.values[name])) if name else None
        if trace is not None:
            yield replace(record, values={**trace, **record.values})
            continue
        tool = tool_of([record])
        if tool is not None and not list(_read(record, tool).answers or ()):
            continue  # Scores of judges may be about other texts.
        raise record.error(
            "no trace with this id in the second file",
            name,
            expected="in a field " + ", ".join(_TRACE_REFERENCES),
            found=record.values.get(name, record.field_names),
            remedy="export the traces of the same time, or leave out the scores of other traces",
        )


def _read(record: Record, tool: Tool) -> Rated:
    """What the tool's function makes of a record; errors name it, also about a value of another type."""
    try:
        with record.located():
            return tool.read(_parsed_fields(record))
    except (TypeError, AttributeError) as error:
        problem = f"not a record as {tool.name} exports it: {error}"
        raise record.error(problem, found=record.field_names, remedy="export it again, or leave it out") from error


def _rows(record: Record, tool: Tool, has_id: bool) -> Iterator[Record]:
    fields, (columns, id_, answers) = _parsed_fields(record), _read(record, tool)
    texts: dict[str, Any] = {"candidate": str(id_)} if id_ is not None and not has_id else {}
    for name, value in columns.items():
        # A text that looks like JSON stays unchanged; a conversation becomes a text.
        original = record.values.get(name) if fields.get(name) is value else None
        texts[name] = next((v for v in (original, value) if isinstance(v, str)), None) or _single_text(value) or value
    if tool.texts_in and not columns:
        raise record.error(
            f"{tool.name} exports these ratings without the texts that they are about",
            remedy=f"export the {tool.texts_in} with their ids, inputs and outputs as well, and name both files: "
            f"{record.file}+TRACES.csv",
        )
    if answers is None:
        yield replace(record, values=texts, format="csv")
        return
    answers = list(answers)
    rated = [answer for answer in answers if not is_missing(answer.value)]
    if not rated and tool.texts_in and len(columns) < 2:
        return  # A trace that failed, and that nobody rated.
    comments = []
    for answer in answers:
        if is_missing(answer.value) and str(answer.comment or "").strip():
            # A comment on the whole text is one on each aspect that this rater rated.
            of_rater = [other.aspect for other in rated if other.rater == answer.rater]
            aspects = [answer.aspect] if answer.aspect in of_rater else of_rater
            comments += [answer._replace(aspect=aspect) for aspect in aspects]
    for answer in [*rated, *comments] or [Answer("")]:
        aspect, rater, comment = (str(v) if v or v == 0 else "" for v in (answer.aspect, answer.rater, answer.comment))
        own = {"aspect": aspect, "rating": answer.value, "rater": rater, "comment": comment}
        full_names = dict.fromkeys(("rating", "aspect"), answer.field or aspect)
        yield replace(record, values={**texts, **own}, full_names=full_names, format="csv")


# --- what tools have in common ---


def parsed(value: object) -> object:
    """The value of a JSON text, or of a list or object in Python's notation; other values unchanged."""
    if not isinstance(value, str):
        return value
    with suppress(ValueError, RecursionError):
        return json.loads(value)
    # Python would join texts that follow each other without a comma, as numpy writes lists.
    if value[:1] not in ("[", "{") or len(value) > _MAX_PYTHON or _SIDE_BY_SIDE.search(value):
        return value
    with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return ast.literal_eval(_LiteralsOnly().visit(ast.parse(value, mode="eval")))
    return value


class _LiteralsOnly(ast.NodeTransformer):
    """Replaces what is not a literal: nan by None, and `UUID('…')` by its first argument. Nothing is called."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(None) if node.id in ("nan", "NaT") else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return self.visit(node.args[0]) if node.args else ast.Constant(None)


def _parsed_fields(record: Record) -> Values:
    is_table = record.format == "csv"
    return {
        str(key): parsed(value) if is_table and isinstance(value, str) and value[:1] in ("[", "{") else value
        for key, value in record.values.items()
    }


def _refuse_text(value: object, field: str) -> None:
    """Raise for a list or object that is still a text."""
    if isinstance(value, str) and value.strip():
        raise InputError(
            "a list or an object that cannot be read",
            field=field,
            found=value,
            remedy="export the records as JSON lines, e.g. with df.to_json(NAME, orient='records', lines=True)",
        )


def _answer(name: str, value: object, rater: object, field: str, *, text: bool = False) -> Answer:
    """An answer to a question: a comment if it is free text or the question asks for a comment, else a rating."""
    of = _COMMENT.fullmatch(name)
    if text or (of and isinstance(value, str) and not looks_like_a_number(value.strip())):
        return Answer(of and of[1], None, rater, _lines(value), field)
    return Answer(name, value, rater, None, field)


def _lines(value: object) -> str:
    return "\n".join(map(str, value if isinstance(value, list) else [value]))


def _first(values: Values, *names: str) -> object:
    return next((values[name] for name in names if not is_missing(values.get(name))), None)


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _input_and_output(values: Values) -> Values:
    """The input and output of a trace: `source` and `text` if each is a single text, else their fields."""
    texts: dict[str, Any] = {}
    for role, names in (("source", ("input", "inputs", "request")), ("text", ("output", "outputs", "response"))):
        name = next((name for name in names if not is_missing(values.get(name))), "")
        value = values.get(name)
        if (text := _single_text(value)) is not None:
            texts[role] = text
        elif isinstance(value, dict):
            texts |= {(f"{name}.{key}" if key in texts else key): inner for key, inner in value.items()}
        elif name:
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
    return _single_text(turns[0], depth - 1) if len(turns) == 1 else joined_messages(messages_in(turns)) or None


# --- Label Studio ---


def _is_studio(values: Values) -> bool:
    return isinstance(values.get("data"), dict) and isinstance(values.get("annotations"), list)


def _studio_results(values: Values) -> Iterator[tuple[str, object, str, dict[str, Any]]]:
    """Field, rater, question and value of each answer of a task."""
    for i, annotation in enumerate(_dicts(values.get("annotations"))):
        user = annotation.get("completed_by")
        rater = user.get("email") or user.get("id") if isinstance(user, dict) else user
        for j, result in enumerate(_dicts(annotation.get("result")) if not annotation.get("was_cancelled") else ()):
            name, value = str(result.get("from_name", "")), result.get("value")
            # The text of a marked span is part of the task's texts, not a comment.
            if isinstance(value, dict) and name and not any(key.endswith("labels") for key in value):
                yield f"annotations[{i}].result[{j}].value", rater, name, value


def _studio_value(value: Values) -> tuple[str, object]:
    """Type and content of an answer; a single choice is its text."""
    kind = next((kind for kind in ("rating", "number", "choices", "text") if kind in value), "")
    content = value.get(kind)
    return kind, content[0] if kind == "choices" and isinstance(content, list) and len(content) == 1 else content


def _studio(values: Values) -> Rated:
    answers = []
    for field, rater, name, value in _studio_results(values):
        kind, content = _studio_value(value)
        if kind:
            answers.append(_answer(name, content, rater, f"{field}.{kind}", text=kind == "text"))
    return Rated(values.get("data") or {}, values.get("id"), answers)


def _studio_pairs(values: Values) -> Rated:
    """A comparison of two texts: the pair with the verdicts of all raters as a list."""
    data = dict(values.get("data") or {})
    sides = [{"left", "right"}, {"a", "b"}, {"1", "2"}]
    pairs = [f for f in families(list(data)) if {part.lower() for part in f.members} in sides]
    if not pairs:
        raise InputError(
            "a comparison of two texts that are not recognized",
            field="data",
            found="fields " + ", ".join(data),
            remedy="rename the texts, e.g. to response_a, the left one, and response_b",
        )
    left, right = (data.pop(name) for _, name in sorted(pairs[0].members.items()))
    answers = [value for *_, value in _studio_results(values)]
    winners = [value["selected"] for value in answers if "selected" in value]
    comments = [_lines(value["text"]) for value in answers if "text" in value]
    return Rated({"response_a": left, "response_b": right, **data, "winner": winners, "comment": comments})


def _studio_table(values: Values) -> Rated:
    """A row of an annotation in Label Studio's CSV and JSON-MIN: a table without the tool's own columns."""
    texts: dict[str, Any] = {"rater": values.get("annotator")}
    for name, value in values.items():
        answers = _dicts(value if isinstance(value, list) else [value])
        own = ("id", "annotator", "annotation_id", "lead_time", "created_at", "updated_at", "agreement")
        if name not in own and not any("labels" in answer for answer in answers):
            found = [content for kind, content in map(_studio_value, answers) if kind]
            of = _COMMENT.fullmatch(name)
            texts[f"comments.{of[1]}" if of and of[1] else name] = found[0] if found else value
    return Rated(texts, values.get("id"))


# --- Argilla ---


def _argilla_questions(values: Values) -> list[str]:
    return [key.removesuffix(".responses") for key in values if key.endswith(".responses")]


def _argilla(values: Values) -> Rated:
    answers = []
    for name in _argilla_questions(values):
        fields = [f"{name}.responses{suffix}" for suffix in ("", ".users", ".status")]
        for field in fields:
            _refuse_text(values.get(field), field)
        responses, users, states = (values.get(field) or [] for field in fields)
        for i, value in enumerate(responses):
            if i >= len(states) or states[i] == "submitted":
                answers.append(_answer(name, value, users[i] if i < len(users) else None, f"{name}.responses[{i}]"))
    metadata = ("id", "status", "_server_id", "inserted_at", "updated_at")
    questions = tuple(f"{name}." for name in _argilla_questions(values))
    # A record that nobody answered may have suggestions.
    texts = {
        k: v for k, v in values.items() if k not in metadata and not k.startswith(questions) and ".suggestion" not in k
    }
    return Rated(texts, _first(values, "id", "_server_id"), answers)


def _argilla_nested(values: Values) -> Rated:
    raise InputError(
        "records of Argilla that do not say which answers were submitted",
        field="responses",
        remedy="export them with dataset.records.to_list(flatten=True), or dataset.records.to_datasets()",
    )


# --- Langfuse and LangSmith ---


def _langfuse(values: Values) -> Rated:
    answers = []
    if values.get("source") == "ANNOTATION":
        # Underscores are those of exports to a bucket.
        value = _first(values, "value", "stringValue", "string_value")
        rater = _first(values, "authorUserId", "author_user_id")
        answers = [Answer(values.get("name"), value, rater, values.get("comment"), "value")]
    id_ = _first(values, "observationId", "observation_id", "traceId", "trace_id")
    return Rated(_input_and_output(values), id_, answers)


def _langsmith(values: Values) -> Rated:
    objects: dict[str, Values] = {}
    for name, keys in (("correction", ("score", "value")), ("feedback_source", ("type", "user_id"))):
        value = values.get(name)
        if str(value).startswith("{") and not isinstance(value, dict):
            _refuse_text(value, name)
        # A table may have a column for each field, or the type alone.
        alone = {"type": value} if isinstance(value, str) else {}
        objects[name] = value if isinstance(value, dict) else {**alone, **_dotted(values, name, keys)}
    source, corrected = objects["feedback_source"], _first(objects["correction"], "score", "value")
    # An LM judge's score is no rating, unless a person corrected it.
    of_person = values if source.get("type") not in ("model", "auto_eval") else {}
    value = _first(of_person, "score", "value") if corrected is None else corrected
    answer = Answer(values.get("key"), value, source.get("user_id"), of_person.get("comment"), "score")
    return Rated(_input_and_output(values), values.get("run_id"), [answer] if value is not None else [])


def _dotted(values: Values, name: str, keys: Sequence[str]) -> Values:
    return {key: values[f"{name}.{key}"] for key in keys if f"{name}.{key}" in values}


# --- MLflow ---


def _mlflow(values: Values) -> Rated:
    info = values.get("info")
    trace, prefix = (info, "info.") if isinstance(info, dict) else (values, "")
    _refuse_text(trace.get("assessments"), f"{prefix}assessments")
    # The text of a trace is that of its first span; assessments of the other ones are about other texts.
    steps = {_hexadecimal(str(span.get("span_id"))) for span in _mlflow_spans(values) if _is_step(span)}
    answers = []
    for i, given in enumerate(_dicts(trace.get("assessments"))):
        source, feedback = given.get("source") or {}, given.get("feedback") or {}
        is_human = source.get("source_type") == "HUMAN" and given.get("valid") is not False
        if is_human and "value" in feedback and given.get("span_id") not in steps:
            name, field = _first(given, "assessment_name", "name"), f"{prefix}assessments[{i}].feedback.value"
            answers.append(Answer(name, feedback["value"], source.get("source_id"), given.get("rationale"), field))
    return Rated(_mlflow_texts(values), _first({**values, **(info or {})}, "trace_id", "request_id"), answers)


def _mlflow_spans(values: Values) -> list[dict[str, Any]]:
    data = values.get("data")
    return _dicts(data.get("spans") if isinstance(data, dict) else values.get("spans"))


def _is_step(span: Values) -> bool:
    return bool(span.get("parent_span_id") or span.get("parent_id"))


def _hexadecimal(span_id: str) -> str:
    """The id of a span as assessments have it; traces have it in base64."""
    with suppress(ValueError):
        return base64.b64decode(span_id).hex()
    return span_id


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


def _is_mlflow(values: Values) -> bool:
    """Whether this is a trace; the traces of a table, and older ones, are recognized by their assessments."""
    info, data = values.get("info"), values.get("data")
    trace = info if isinstance(info, dict) else values
    assessments = trace.get("assessments")
    # One that cannot be parsed is still a text, and refused later.
    is_list = isinstance(assessments, list) or str(assessments).startswith("[")
    has_spans = isinstance(data, dict) and isinstance(data.get("spans"), list)
    return ("trace_id" in trace or "request_id" in trace) and (is_list or (trace is info and has_spans))


_TOOLS: Sequence[Tool] = (
    Tool(
        "Label Studio (pairs)",
        lambda values: _is_studio(values) and any("selected" in v for *_, v in _studio_results(values)),
        _studio_pairs,
    ),
    Tool("Label Studio (JSON)", _is_studio, _studio),
    Tool("Label Studio", lambda values: {"annotator", "annotation_id", "lead_time"} <= values.keys(), _studio_table),
    Tool("Argilla", lambda values: any(f"{n}.responses.users" in values for n in _argilla_questions(values)), _argilla),
    Tool(
        "Argilla (nested)",
        lambda values: all(isinstance(values.get(name), dict) for name in ("fields", "responses", "suggestions")),
        _argilla_nested,
    ),
    Tool("MLflow", _is_mlflow, _mlflow, "traces"),
    Tool(
        "Langfuse",
        lambda values: {"source", "name", "value"} <= values.keys() and ("dataType" in values or "data_type" in values),
        _langfuse,
        "traces",
    ),
    Tool("LangSmith", lambda values: {"run_id", "key", "score"} <= values.keys(), _langsmith, "runs"),
)
