"""The tutorial of docs/: its commands are run in their order, on its table with more rows and its own definitions."""

from __future__ import annotations

import csv
import random
import re
import tomllib
from pathlib import Path

import pytest

from debate_judge.optimize.cli import main
from tests.source_tree import ROOT

PAGE = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
QUICK = ["--effort", "light", "--trials", "2", "--no-preflight"]


def table(path: Path, block: str, tickets: int) -> None:
    """The rows of the page, and as many more tickets of the same two reviewers; every ninth cell is blank."""
    rng = random.Random(0)
    rows = list(csv.reader(block.splitlines()))
    for ticket in range(103, 103 + tickets):
        quality = rng.randint(1, 5)
        words = " ".join(["Yes, we send it today."] * quality)
        for reviewer in ("ann", "ben"):
            helpful = str(min(5, max(1, quality + rng.choice([-1, 0, 0, 1]))))
            blank = "" if ticket % 9 == 0 else helpful
            safe = "yes" if quality > 2 or rng.random() < 0.2 else "no"
            rows.append(
                [str(ticket), f"Where is my order number {ticket} from the spring?", words, reviewer, blank, safe]
            )
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


@pytest.mark.integration
def test_the_tutorial_leads_from_a_table_to_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = next(block for language, block in BLOCKS if language == "csv")
    definitions = tomllib.loads(next(block for language, block in BLOCKS if language == "toml"))["aspects"]
    table(Path("support.csv"), rows, 34)
    Path("new.csv").write_text("customer_wrote,we_answered\nIs it there?,Yes. It is on its way and arrives today.\n")
    commands = [
        line.split("#")[0].split() for language, block in BLOCKS if language == "sh" for line in block.splitlines()
    ]
    for _, command, *arguments in commands:
        quick = [] if command != "compile" else QUICK
        assert main([command, *arguments, *quick]) == 0, (command, arguments, capsys.readouterr().err)
        output = capsys.readouterr().out
        if "--write-task" in arguments:
            text = Path("support.toml").read_text()
            for name, aspect in definitions.items():
                text = re.sub(
                    rf'(\[aspects\.{name}\]\ndefinition = )".*"', lambda m, a=aspect: f'{m[1]}"{a["definition"]}"', text
                )
            Path("support.toml").write_text(text)
            task = tomllib.loads(text)
            assert {name: a["definition"] for name, a in task["aspects"].items()} == {
                name: a["definition"] for name, a in definitions.items()
            }
            assert task["columns"] == {"text": "we_answered", "source": "customer_wrote", "rater": "reviewer"}
        elif command == "check":
            assert "reviewer" in output or "--task" in arguments
    with Path("scores.csv").open() as file:
        assert {row["aspect"] for row in csv.DictReader(file)} == {"helpful", "safe_to_send"}
