"""A report as a whole, and its way to `report.json` and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from debate_judge.data.errors import InputError
from debate_judge.runs.reports.html.blocks import Section
from debate_judge.runs.reports.html.debates import VERSION, Debates, DebateTexts

FORMAT = "debate-judge report"


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


def texts_from(values: Any, place: str) -> DebateTexts:
    """The texts that were kept at `place`.

    Raises:
        InputError: They are no texts of a report, or of one of another version.
    """
    if not isinstance(values, dict):
        raise InputError("these are not the texts of a report", file=place)
    _require_version(values, place)
    try:
        return _TEXTS.validate_python(values)
    except ValidationError as error:
        raise _broken(error, place) from None


def _require_version(values: dict[str, Any], place: str) -> None:
    if values.get("version") != VERSION:
        raise InputError(
            "the report was made by another version of this project",
            file=place,
            field="version",
            expected=str(VERSION),
            found=values.get("version"),
            remedy="run the command that made it again; answered calls are not paid again",
        )


def _broken(error: ValidationError, place: str) -> InputError:
    first = error.errors(include_url=False, include_input=False)[0]
    return InputError(
        "the data of the report cannot be used",
        file=place,
        field=".".join(map(str, first["loc"])),
        expected=str(first["msg"]),
        remedy="run the command that made it again; answered calls are not paid again",
    )
