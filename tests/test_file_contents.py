"""What no file may hold, and what the READMEs must name."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from debate_judge import data
from debate_judge.optimize.tuners import TUNERS
from debate_judge.programs import JUDGES
from tests.source_tree import ROOT, SOURCES, name_of


def tracked() -> list[Path]:
    """The files under version control, or, in a copy without it, those that would be."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    return [*SOURCES, *(ROOT / "tests").rglob("*.py"), *ROOT.glob("*.md"), ROOT / "pyproject.toml"]


def texts() -> Iterator[tuple[str, str]]:
    for path in tracked():
        if path != Path(__file__) and path.suffix != ".png":
            yield name_of(path), path.read_text(encoding="utf-8")


MACHINE = re.compile(
    rf"(?<![\w.])(?:/(?:{'|'.join(('home', 'Users', 'root', 'work', 'mnt', 'opt', 'tmp'))})/|[A-Z]:\\)\w"
)
HOSTS = re.compile(
    r"pypi\.org|pythonhosted\.org|extra-index-url|index-url|conda\.anaconda|npmjs|artifactory", re.IGNORECASE
)


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    here = re.compile("|".join(re.escape(str(place)) + r"\b" for place in {ROOT, Path(sys.prefix)}))
    for name, text in texts():
        assert not here.search(text), name
        # Tests make addresses and folders up.
        if not name.startswith("tests/"):
            assert not MACHINE.search(text), (name, MACHINE.findall(text))


def test_no_file_names_a_package_host() -> None:
    for name, text in texts():
        assert not HOSTS.search(text), (name, HOSTS.findall(text))


def test_the_pages_name_everything_that_can_be_chosen() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    texts = [page.read_text(encoding="utf-8") for page in pages]
    names = [*JUDGES, *data.LOADERS, *TUNERS]
    told = "\n".join(texts)
    assert [n for n in names if not re.search(rf"(?<![\w+-]){re.escape(n)}(?![\w+-])", told)] == []
    assert len(texts[0].splitlines()) <= 200
