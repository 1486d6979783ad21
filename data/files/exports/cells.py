"""Lists and objects in the cells of a table, as JSON or in Python's notation, in which pandas saves them."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.data.files.records import Record

_MAX_CHARACTERS = 200_000
"""Length of a cell that is read as Python; a longer one has to be JSON."""

_ADJACENT_QUOTES = re.compile(r"""['"]\s+['"]""")


def parsed(value: object) -> object:
    """The value of a JSON text, or of a list or object in Python's notation; other values unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        pass
    if value[:1] not in ("[", "{") or len(value) > _MAX_CHARACTERS:
        return value
    try:
        tree = ast.parse(value, mode="eval")
        if _ADJACENT_QUOTES.search(value) and _joins_texts(value):
            return value
        return ast.literal_eval(_LiteralsOnly().visit(tree))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError, tokenize.TokenError):
        return value


def _joins_texts(value: str) -> bool:
    """Whether texts follow each other without a comma, as numpy writes lists: Python would join them."""
    types = (token.type for token in tokenize.generate_tokens(io.StringIO(value).readline))
    return (tokenize.STRING, tokenize.STRING) in pairwise(type_ for type_ in types if type_ != tokenize.NL)


def parsed_values(record: Record) -> Mapping[str, Any]:
    """The fields; in a table, lists and objects are parsed."""
    table = record.format == "csv"
    return {
        str(key): parsed(value) if table and isinstance(value, str) and value[:1] in ("[", "{") else value
        for key, value in record.values.items()
    }


def refuse_text(value: object, field: str) -> None:
    """Raise for a list or object that is still a text."""
    if isinstance(value, str) and value.strip():
        raise InputError(
            "a list or an object that cannot be read",
            field=field,
            found=value,
            remedy="export the records as JSON lines, e.g. with df.to_json(NAME, orient='records', lines=True)",
        )


class _LiteralsOnly(ast.NodeTransformer):
    """Replaces what is not a literal: nan by None, and `UUID('…')` by its first argument. Nothing is called."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(None) if node.id in ("nan", "NaT") else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return self.visit(node.args[0]) if node.args else ast.Constant(None)
