"""The source files of the package as syntax trees, and what they import."""

from __future__ import annotations

import ast
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LAYERS = ("data", "programs", "runs", "optimize")
"""From left to right; a folder imports only from itself and those to its left."""

STORE = ROOT / "runs" / "store"
"""What runs leave behind lies among the code of a checkout and is none."""

SOURCES = sorted(
    path
    for path in (
        ROOT / "__init__.py",
        ROOT / "testing.py",
        *(p for layer in LAYERS for p in (ROOT / layer).rglob("*.py")),
    )
    if not path.is_relative_to(STORE)
)

TESTS = sorted((ROOT / "tests").rglob("*.py"))

PACKAGE = "debate_judge"


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def module_of(path: Path) -> str:
    return f"{PACKAGE}.{name_of(path)[:-3].replace('/', '.')}".removesuffix(".__init__")


def modules_in(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The modules that these statements import."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            yield str(node.module)


def imports(path: Path) -> set[str]:
    """Every module that a file imports, at its top or inside a function."""
    return set(modules_in(ast.walk(tree(path))))


class ParserReadyError(Exception):
    """Raised where a command would use its parser."""


def parsers_of(starts: Iterable[Callable[[], object]], monkeypatch: pytest.MonkeyPatch) -> list[ArgumentParser]:
    """The parser that each of the commands makes."""
    parsers: list[ArgumentParser] = []

    def stop(parser: ArgumentParser, *_: object) -> None:
        parsers.append(parser)
        raise ParserReadyError

    monkeypatch.setattr(ArgumentParser, "parse_args", stop)
    for start in starts:
        with suppress(ParserReadyError):
            start()
    monkeypatch.undo()
    return parsers
