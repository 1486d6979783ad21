"""Named texts from a user's TOML file: personas for the Critic, roles for referees."""

from __future__ import annotations

from pathlib import Path

from debate_judge.data.files import reading
from debate_judge.programs.debate.personas import BLIND, PERSONAS


def personas(path: Path | None) -> dict[str, str]:
    """Name -> text of the Critic's personas: the built-in ones and those of a TOML file of `name = "text"` lines.

    A name of the file that is a built-in one replaces it.

    Raises:
        InputError: The file cannot be read, or an entry is not a non-empty text.
    """
    builtin = {name: persona.text for name, persona in [*PERSONAS.items(), *BLIND.items()]}
    return builtin if path is None else {**builtin, **named_texts(path, "persona")}


def named_texts(path: Path, what: str) -> dict[str, str]:
    """Name -> text, from a TOML file of `name = "text"` lines, in their order.

    Args:
        path: The file.
        what: What a text is, in the singular, for messages.

    Raises:
        InputError: The file cannot be read, is empty, or an entry is not a non-empty text.
    """
    record = reading.toml(path, f"file of {what}s")
    if not record.values:
        raise record.error(f"no {what} found", expected='at least one name = "text" line')
    return {name: record.text(name).strip() for name in record.values}
