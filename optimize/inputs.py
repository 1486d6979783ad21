"""Files that a compile reads besides the data: a user's personas."""

from __future__ import annotations

import tomllib
from pathlib import Path

from data.errors import InputError
from programs.personas import PERSONAS


def personas(path: Path | None) -> dict[str, str]:
    """Name -> text of the Critic's personas: the built-in five and those of a TOML file of `name = "text"` lines.

    A name of the file that is a built-in one replaces it.

    Raises:
        InputError: The file cannot be read, or an entry is not a non-empty text.
    """
    builtin = {name: persona.text for name, persona in PERSONAS.items()}
    if path is None:
        return builtin
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(
            "personas could not be read", file=path, expected='a TOML file of name = "text" lines', found=str(error)
        ) from error
    for name, text in table.items():
        if not isinstance(text, str) or not text.strip():
            raise InputError("not a persona", file=path, field=name, expected="a non-empty text", found=text)
    if not table:
        raise InputError("no persona found", file=path, expected='at least one name = "text" line')
    return {**builtin, **{name: text.strip() for name, text in table.items()}}
