"""Shared code of the integrations: scores from 0 to 1, and the text in an argument of a tool."""

from __future__ import annotations

from collections.abc import Mapping

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect


def to_unit(score: float | None, aspect: Aspect) -> float | None:
    """A score from 0 (the lower end of the aspect's scale) to 1 (the upper end); None stays None.

    Raises:
        InputError: The score is not on the scale, as that of a metric may be.
    """
    if score is None:
        return None
    if not aspect.scale.contains(score):
        raise InputError(
            "the score is not on the aspect's scale, so it has no place between 0 and 1",
            field=aspect.name,
            expected=f"a score from {aspect.scale}",
            found=score,
        )
    return (score - aspect.scale.low) / (aspect.scale.high - aspect.scale.low)


def text_in(value: object, field: str, key: str | None = None) -> str:
    """The text in an argument of a tool.

    Args:
        value: A text, or a mapping that holds it.
        field: `source` or `text`: the default key, and the name in messages.
        key: Key of the text in a mapping; by default `field`, or the only text in the mapping.

    Raises:
        InputError: There is no text, or several and none is named.
    """
    if not isinstance(value, Mapping):
        if isinstance(value, str):
            return value
        raise InputError("not a text", field=field, expected="a text, or a mapping that holds it", found=value)
    texts = {str(name): text for name, text in value.items() if isinstance(text, str)}
    text_key = key or (field if field in texts else next(iter(texts), "") if len(texts) == 1 else "")
    if text_key not in texts:
        raise InputError(
            f"no {field} under {key!r}" if key else f"which of these is the {field}?",
            field=f"{field}_key",
            expected="the key of a text",
            found=", ".join(texts) or "no text",
            remedy=f'name it: {field}_key="..."',
        )
    return texts[text_key]
