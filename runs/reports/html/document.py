"""A report as a whole, and its way to `report.json` and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from debate_judge.data.errors import InputError
from debate_judge.runs.reports.html.blocks import Section
from debate_judge.runs.reports.html.debates import VERSION, Debates, DebateTexts

FORMAT = "debate-judge report"

AGAIN = "run the compile or comparison again, without report=none (--config); finished calls are not paid for again"
"""What to do where a report is missing or broken."""


@dataclass(frozen=True, slots=True)
class Report:
    """One page."""

    subject: Literal["compile", "comparison"]
    name: str
    title: str
    identity: str
    """Equal for reports of the same run; the texts name theirs by it."""
    sections: tuple[Section, ...]
    debates: Debates
    stand_in: str = ""
    """What must stand beside the figures where the LM was a stand-in."""
    format: Literal["debate-judge report"] = "debate-judge report"
    version: int = VERSION
    labels: dict[str, str] = field(default_factory=dict)
    """Source, candidate and context -> what the task calls them."""


_REPORT = TypeAdapter(Report)
_TEXTS = TypeAdapter(DebateTexts)


def to_json(value: Report | DebateTexts) -> dict[str, Any]:
    """The value as plain JSON values."""
    adapter: TypeAdapter[Any] = _REPORT if isinstance(value, Report) else _TEXTS
    found: dict[str, Any] = adapter.dump_python(value, mode="json")
    return found


def report_from(values: Any, place: str) -> Report:
    """The report that was kept at `place`, which error messages name.

    Raises:
        InputError: It is no report, or one of another version.
    """
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise InputError("this is not the data of a report", file=place, field="format", expected=repr(FORMAT))
    _require_version(values, place)
    try:
        return _REPORT.validate_python(values)
    except ValidationError as error:
        raise _broken(error, place) from None


def texts_from(values: Any, place: str, report: Report) -> DebateTexts:
    """The texts of a report, which were kept at `place`.

    Raises:
        InputError: They are no texts of a report, or of another one.
    """
    if not isinstance(values, dict):
        raise InputError("these are not the texts of a report", file=place)
    _require_version(values, place)
    try:
        texts = _TEXTS.validate_python(values)
    except ValidationError as error:
        raise _broken(error, place) from None
    _require_fitting(texts, report, place)
    return texts


def _require_fitting(texts: DebateTexts, report: Report, place: str) -> None:
    items = report.debates.items
    turns = [tuple(len(outcome.path) for outcome in item.outcomes) for item in items]
    fits = texts.report == report.identity and turns == [tuple(map(len, one.turns)) for one in texts.items]
    known = texts.candidates.keys() & texts.sources.keys()
    if not fits or any(i.group not in known or i.candidate not in texts.candidates[i.group] for i in items):
        raise InputError(
            "these are the texts of another report", file=place, expected=report.identity, found=texts.report,
            remedy=AGAIN,
        )  # fmt: skip


def _require_version(values: dict[str, Any], place: str) -> None:
    if values.get("version") != VERSION:
        raise InputError(
            "the report was made by another version of this project",
            file=place,
            field="version",
            expected=str(VERSION),
            found=values.get("version"),
            remedy=AGAIN,
        )


def _broken(error: ValidationError, place: str) -> InputError:
    first = error.errors(include_url=False, include_input=False)[0]
    return InputError(
        "the data of the report cannot be used",
        file=place,
        field=".".join(map(str, first["loc"])),
        expected=str(first["msg"]),
        remedy=AGAIN,
    )
