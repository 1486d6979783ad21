"""Texts and tables of the terminal: what fits, what is wrapped or folded, and what a file gets instead."""

from __future__ import annotations

import io
import re

import pytest

from debate_judge.data.errors import InputError
from debate_judge.optimize.cli import main
from debate_judge.runs.flags.invocation import COMMANDS
from debate_judge.runs.flags.parser import run_main
from debate_judge.runs.flags.text_layout import wrap_text
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.terminal import Verbatim, show
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


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_and_its_commands_stay_whole(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["help", name])
    assert ended.value.code == 0
    usage, *lines = capsys.readouterr().out.splitlines()
    assert usage.startswith(f"usage: debate {name} [-h]")
    examples = [line for line in lines if line.startswith("    debate ")]
    assert examples
    assert [line for line in lines if len(line) > 100 and line not in examples] == []
    # A command that had been broken would go on in a line that begins with a flag or a value.
    after = [lines[number + 1] for number, line in enumerate(lines) if line in examples]
    assert [line for line in after if line and not line.startswith("    debate ")] == []


def longest(text: str) -> int:
    return max(map(len, text.splitlines()))


def test_sentences_are_wrapped_and_what_is_to_be_copied_is_not() -> None:
    lines = printed(SENTENCE.strip(), Verbatim(COMMAND), "short").splitlines()
    assert lines[-2:] == [COMMAND, "short"]
    assert max(map(len, lines[:-2])) <= 100
    assert all(line.startswith("  ") for line in lines[1:-2]), "it is seen where a sentence goes on"
    assert " ".join(" ".join(lines[:-2]).split()) == SENTENCE.strip()


def test_no_figure_is_parted_from_its_interval() -> None:
    text = "Yes, by 0.12 [0.09, 0.16] and -0.04 [-0.14, 0.06], on /an/address/that/is/longer/than/any/line/may/be now."
    for width in range(30, 60):
        wrapped = wrap_text(text, width)
        assert re.findall(r"[-.\d]+ \[[^\]]*\]", wrapped) == ["0.12 [0.09, 0.16]", "-0.04 [-0.14, 0.06]"]
        assert "/an/address/that/is/longer/than/any/line/may/be" in wrapped


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


def test_numbers_stand_to_the_right_and_the_total_under_a_rule() -> None:
    table = DataTable(["role", "calls", "rate"], [["scorer", "1,234", "5 %"], ["total", "9", "–"]], total=True)
    assert printed("Cost", table).splitlines() == [
        "Cost",
        "role    calls  rate",
        "───────────────────",
        "scorer  1,234   5 %",
        "───────────────────",
        "total       9     –",
    ]


def test_a_wide_table_folds_headings_and_goes_on_below_with_its_key_columns() -> None:
    first, second = (part.splitlines() for part in printed(WIDE).split("\n\n"))
    assert first[0].split() == list(ASPECTS)
    assert first[1].split() == ["judge", *["ρ/τ-b"] * 4, "average", "ρ/τ-b"]
    assert second[0].split() == ["judge", "LM", "calls", "per", "item", "Δ", "to", "single"]
    assert [line.split()[0] for line in (*first[3:], *second[2:])] == ["single", "debate+tiebreak"] * 2
    rows = [("debate[rounds=2]", lm, *["0.351 [0.264, 0.406]"] * 5) for lm in ("large", "small")]
    title, *parts = printed(DataTable(("judge", "LM", *ASPECTS, "all"), rows, "LMs", keys=2)).split("\n\n")
    assert (title, len(parts)) == ("LMs", 2)
    assert all("debate[rounds=2]  small" in part for part in parts)


@pytest.mark.parametrize("columns", [20, 60, 400])
def test_no_figure_is_broken_at_any_width_of_a_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert longest(on_terminal(SENTENCE)) <= min(columns, 100)
    table = STYLE.sub("", on_terminal(WIDE))
    assert all(table.count(cell) for row in WIDE.rows for cell in row)
    assert longest(table) <= min(max(columns, 43), 100), "43 is what two columns take"
    text = " ".join(f"word{number}" for number in range(40))
    mixed = STYLE.sub("", on_terminal(DataTable(["aspect", "calls", "chosen"], [["tone", "1.0/0.4/12.5", text]])))
    assert mixed.count("1.0/0.4/12.5") == 1
    assert re.findall(r"word\d+", mixed) == text.split()


def test_styles_are_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    # Where a program runs under CI these ask for colours in files.
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    plain = printed(WIDE)
    assert not STYLE.search(plain)
    assert 40 < longest(plain) <= 100, "outside of a terminal the width is fixed"
    assert set(STYLE.findall(on_terminal(WIDE))) == {"\x1b[1m", "\x1b[2m", "\x1b[0m"}, "bold and dim, no colour"
    monkeypatch.setenv("TERM", "dumb")
    assert not STYLE.search(on_terminal(WIDE))


def test_names_neither_steer_a_terminal_nor_style_a_table() -> None:
    table = on_terminal(DataTable(["judge"], [["\x1b[2J\x1b]0;gone\x07[bold]me[/bold]\nx\r:smile:"]]))
    assert "?[2J?]0;gone?[bold]me[/bold] x?:smile:" in STYLE.sub("", table)
    assert printed("a\x1b[2J\nb") == "a?[2J\nb\n"
