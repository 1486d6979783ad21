"""The table of limits in SECURITY.md says what the code does."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "SECURITY.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (.+?) \| ([\d,]+)( [A-Za-z]+)? \| `([\w.]+)` \|$", TEXT, re.MULTILINE)
UNITS = {"": 1, " s": 1, " KiB": 1024, " MiB": 1024**2}


def value(name: str) -> object:
    """What a dotted name stands for, in this project or in Python."""
    root = "" if name.startswith("sys.") else "debate_judge."
    module, _, rest = (root + name).rpartition(".")
    names = [rest]
    while True:
        try:
            found: object = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, rest = module.rpartition(".")
            names.insert(0, rest)
            continue
        break
    for attribute in names:
        fields = getattr(found, "__dataclass_fields__", {})
        found = fields[attribute].default if attribute in fields else getattr(found, attribute)
    return found


def test_every_number_in_the_table_has_its_constant() -> None:
    table = TEXT.partition("## Limits")[2].partition("\n\nThe same")[0]
    with_number = [line for line in table.splitlines() if re.search(r"\| [\d,]+", line)]
    assert len(ROWS) == len(with_number) >= 9


@pytest.mark.integration
@pytest.mark.parametrize(("what", "number", "unit", "name"), ROWS, ids=[row[3] for row in ROWS])
def test_a_limit_is_what_the_table_says(what: str, number: str, unit: str, name: str) -> None:
    assert value(name) == int(number.replace(",", "")) * UNITS[unit], what
