"""Settings of a judge: its options, and files of personas and roles."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from debate_judge.data.errors import InputError
from debate_judge.data.files import reading
from debate_judge.programs.debate.prompts import PERSONAS, require_persona
from debate_judge.runs.flags.declaration import flag_group, setting, split_commas
from debate_judge.runs.flags.parser import line_of_key

PERSONAS_FILE = setting(None, "TOML file with your own personas for the Critic", metavar="FILE", rare=True)


def _as_texts(value: object) -> object:
    """NAME=VALUE texts of a table of a TOML file, of a dict, or of a list of them."""
    if not isinstance(value, Mapping):
        return tuple(value) if isinstance(value, list) else value
    return tuple(f"{name}={each if isinstance(each, str) else json.dumps(each)}" for name, each in value.items())


@flag_group
class JudgeOptionFlags:
    """Options of judges; without them the judge's defaults."""

    judge_option: Annotated[tuple[str, ...], BeforeValidator(_as_texts)] = setting(
        (),
        "options of the judge, e.g. score-mode=sampled:5, together=4; may be repeated",
        flag="-J",
        metavar="NAME=VALUE",
        repeated=True,
    )

    def options(self) -> dict[str, Any]:
        """Option -> value.

        Raises:
            InputError: An option is not of the form NAME=VALUE or is given twice, or the file of roles cannot be used.
        """
        options: dict[str, Any] = {}
        for text in self.judge_option:
            name, equals, value = text.partition("=")
            name = name.strip().replace("-", "_")
            if not equals or not name or name in options:
                expected = "NAME=VALUE, each name once"
                raise InputError("not an option of a judge", field="-J", expected=expected, found=text)
            options[name] = parse_option_value(value.strip())
        return read_text_files(options)


def together_question(candidates: Iterable[int]) -> list[str]:
    """The question whether candidates of a source may share calls, with what that saves; `candidates` are their numbers
    by source. Empty where each source has one."""
    together, sizes = 8, list(candidates)
    fewer = sum(sizes) / max(1, sum(math.ceil(size / together) for size in sizes))
    if fewer < 1.5:
        return []
    return [
        "Do you score several texts of a source at a time? "
        f"`-J together={together}` makes about {fewer:.2g} times fewer LM calls."
    ]


def parse_option_value(text: str) -> Any:
    """A JSON value where it is one (numbers, true, false, lists), otherwise the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_text_files(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a judge, with the texts of those that name a file: ChatEval's roles, the debaters of claims."""
    read = dict(options)
    if isinstance(read.get("roles"), str):
        read["roles"] = parse_roles(read["roles"])
    if isinstance(read.get("agents"), str):
        read["agents"] = read_named_texts(Path(read["agents"]), "agent")
    return read


def parse_roles(text: str) -> dict[str, str] | list[str]:
    """ChatEval's roles: name -> text from a TOML file, or names of built-in ones."""
    if text.endswith(".toml") or Path(text).is_file():
        return read_named_texts(Path(text), "role")
    return split_commas(text)


def personas(path: Path | None) -> dict[str, str]:
    """Name -> text of the Critic's personas: the built-in ones and those of a TOML file of `name = "text"` lines.

    A persona of the file replaces a built-in one of the same name.

    Raises:
        InputError: The file cannot be read, or an entry is not a non-empty text.
    """
    builtin = {name: persona.text for name, persona in PERSONAS.items()}
    if path is None:
        return builtin
    own = read_named_texts(path, "persona")
    for name, text in own.items():
        try:
            require_persona(name, text)
        except InputError as error:
            raise error.replaced(file=path, line=line_of_key(path, name)) from None
    return {**builtin, **own}


def read_named_texts(path: Path, noun: str) -> dict[str, str]:
    """Name -> text, from a TOML file of `name = "text"` lines, in their order; `noun` says what a text is.

    Raises:
        InputError: The file cannot be read, is empty, or an entry is not a non-empty text.
    """
    try:
        record = reading.toml(path, f"file of {noun}s")
    except InputError as error:
        if "Cannot overwrite a value" not in error.problem:
            raise
        # The parser may name the end of the file.
        keys = [line.partition("=")[0].strip(" \t\"'") for line in path.read_text(encoding="utf-8-sig").splitlines()]
        second = next((n for n, key in enumerate(keys) if key and key in keys[:n]), None)
        raise InputError(
            f"a second {noun} of the same name",
            file=path,
            line=None if second is None else second + 1,
            field=None if second is None else keys[second],
            expected="each name once",
            remedy="give one of the two another name",
        ) from None
    if not record.values:
        raise record.error(f"no {noun} found", expected='at least one name = "text" line')
    names = [name for name in record.values if not name.strip()]
    if names:
        raise InputError(
            f"a {noun} without a name",
            file=path,
            line=line_of_key(path, names[0]),
            field=repr(names[0]),
            expected='name = "text"',
            found=repr(names[0]),
            remedy=f"give the {noun} a name",
        )
    return {name: record.text(name).strip() for name in record.values}
