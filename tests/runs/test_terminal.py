"""Texts and tables of the terminal: what fits, what is wrapped or folded, and what a file gets instead."""

from __future__ import annotations

import io
import re

import pytest

from debate_judge.data.errors import InputError
from debate_judge.runs.command_line import run_main
from debate_judge.runs.reports.tables import DataTable, Verbatim, show
from tests.printed_output import printed

STYLE = re.compile(r"\x1b\[[\d;]*m")
ASPECTS = ("coherence", "consistency", "fluency", "relevance")
WIDE = DataTable(
    ("judge", *(f"{aspect} ρ/τ-b" for aspect in ASPECTS), "average ρ/τ-b", "LM calls per item", "Δ to single"),
    [
        ("single", *["0.351/0.276"] * 4, "0.337/0.288 [0.264, 0.406]", "1.00", "–"),
        ("debate+tiebreak", *["0.561/0.442"] * 4, "0.521/0.442 [0.450, 0.585]", "12.89", "0.18 [0.13, 0.24]"),
    ],
)
"""More columns than a terminal has."""
SENTENCE = "24 sources are too few to tell whether the judge is better than a single call of the LM. " * 3
COMMAND = "  debate compile --data ratings.csv --task summarization --lm openai/gpt-4o-mini " + "--name my-judge " * 3


class Terminal(io.StringIO):
    """Takes what is printed as a terminal would."""

    def isatty(self) -> bool:
        return True


def on_terminal(*blocks: str | DataTable) -> str:
    out = Terminal()
    show(*blocks, file=out)
    return out.getvalue()


def longest(text: str) -> int:
    return max(map(len, text.splitlines()))


def test_sentences_are_wrapped_and_what_is_to_be_copied_is_not() -> None:
    lines = printed(SENTENCE.strip(), Verbatim(COMMAND), "short").splitlines()
    assert lines[-2:] == [COMMAND, "short"]
    assert max(map(len, lines[:-2])) <= 100
    assert all(line.startswith("  ") for line in lines[1:-2]), "it is seen where a sentence goes on"
    assert " ".join(" ".join(lines[:-2]).split()) == SENTENCE.strip()


def test_an_error_is_wrapped_on_a_terminal_and_whole_in_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ", ".join(f"set-{number}" for number in range(60))

    def fail() -> int:
        raise InputError("unknown data 'x'", field="--data", expected=known)

    terminal, log = Terminal(), io.StringIO()
    for stream in (terminal, log):
        monkeypatch.setattr("sys.stderr", stream)
        assert run_main(fail) == 2
    assert f"\n  expected: {known}\n" in log.getvalue()
    assert longest(terminal.getvalue()) <= 100
    assert terminal.getvalue().split() == log.getvalue().split()


# --- tables ---


@pytest.mark.parametrize("columns", [20, 60, 400])
def test_no_figure_is_broken_at_any_width_of_a_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert longest(on_terminal(SENTENCE)) <= min(columns, 100)
    table = STYLE.sub("", on_terminal(WIDE))
    figures = [figure for row in WIDE.rows for cell in row[1:] for figure in cell.split()]
    assert all(table.count(figure) for figure in figures)
    assert longest(table) <= max(min(columns, 100), 95), "95 is what its words take"


def test_names_neither_steer_a_terminal_nor_style_a_table() -> None:
    table = on_terminal(DataTable(["judge"], [["\x1b[2J\x1b]0;gone\x07[bold]me[/bold]\nx\r:smile:"]]))
    assert "?[2J?]0;gone?[bold]me[/bold] x?:smile:" in STYLE.sub("", table)
    assert printed("a\x1b[2J\nb") == "a?[2J\nb\n"
