"""Texts with names that a user brings in a TOML file: personas for the Critic, roles for referees."""

from __future__ import annotations

import tomllib
from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.programs.debate.personas import PERSONAS


def personas(path: Path | None) -> dict[str, str]:
    """Name -> text of the Critic's personas: the built-in five and those of a TOML file of `name = "text"` lines.

    A name of the file that is a built-in one replaces it.

    Raises:
        InputError: The file cannot be read, or an entry is not a non-empty text.
    """
    builtin = {name: persona.text for name, persona in PERSONAS.items()}
    return builtin if path is None else {**builtin, **named_texts(path, "persona")}


def named_texts(path: Path, what: str) -> dict[str, str]:
    """Name -> text, from a TOML file of `name = "text"` lines, in their order.

    Args:
        path: The file.
        what: What a text is, in the singular, for messages.

    Raises:
        InputError: The file cannot be read, is empty, or an entry is not a non-empty text.
    """
    expected = 'a TOML file of name = "text" lines'
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{what}s could not be read", file=path, expected=expected, found=str(error)) from error
    for name, text in table.items():
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"not a {what}", file=path, field=name, expected="a non-empty text", found=text)
    if not table:
        raise InputError(f"no {what} found", file=path, expected='at least one name = "text" line')
    return {name: text.strip() for name, text in table.items()}
