"""Tables of the terminal: what fits, what is folded, and what a terminal gets that a file does not."""

from __future__ import annotations

import io
import re

import pytest

from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.terminal import show
from tests.printed import printed

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


class Terminal(io.StringIO):
    """Takes what is printed as a terminal would."""

    def isatty(self) -> bool:
        return True


def on_terminal(*tables: DataTable) -> str:
    out = Terminal()
    show(*tables, to=out)
    return out.getvalue()


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


def test_a_wide_table_folds_headings_and_goes_on_below_with_its_first_column() -> None:
    first, second = (part.splitlines() for part in printed(WIDE).split("\n\n"))
    assert first[0].split() == list(ASPECTS)
    assert first[1].split() == ["judge", *["ρ/τ-b"] * 4, "average", "ρ/τ-b"]
    assert second[0].split() == ["judge", "LM", "calls", "per", "item", "Δ", "to", "single"]
    assert [line.split()[0] for line in (*first[3:], *second[2:])] == ["single", "debate+tiebreak"] * 2
    assert max(map(len, [*first, *second])) <= 100


def test_all_key_columns_are_in_each_part() -> None:
    rows = [("debate[rounds=2]", probe, *["0.351 [0.264, 0.406]"] * 5) for probe in ("longer", "polite")]
    parts = printed(DataTable(("judge", "probe", *ASPECTS, "all aspects"), rows, "Probes", keys=2)).split("\n\n")
    assert parts[0] == "Probes"
    assert len(parts) == 3
    assert all(part.splitlines()[0].split()[:2] == ["judge", "probe"] for part in parts[1:])
    assert all("debate[rounds=2]  polite" in part for part in parts[1:])


@pytest.mark.parametrize("columns", [20, 60, 100, 400])
def test_no_figure_is_broken_at_any_width_of_a_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = STYLE.sub("", on_terminal(WIDE))
    for row in WIDE.rows:
        assert all(shown.count(cell) for cell in row)
    assert max(map(len, shown.splitlines())) <= min(max(columns, 43), 100), "43 is what two columns take"


def test_a_long_text_is_wrapped_between_words_beside_whole_figures() -> None:
    text = " ".join(f"word{number}" for number in range(40))
    shown = printed(DataTable(["aspect", "LM calls", "chosen"], [["coherence", "1.0/0.4/12.5", text]]))
    assert max(map(len, shown.splitlines())) <= 100
    assert shown.count("1.0/0.4/12.5") == 1
    assert re.findall(r"word\d+", shown) == text.split()


def test_styles_are_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    # Where a program runs under CI these ask for colours in files.
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    plain = printed(WIDE)
    assert not STYLE.search(plain)
    assert max(map(len, plain.splitlines())) > 40, "outside of a terminal the width is fixed"
    assert set(STYLE.findall(on_terminal(WIDE))) == {"\x1b[1m", "\x1b[2m", "\x1b[0m"}, "bold and dim, no colour"
    monkeypatch.setenv("TERM", "dumb")
    assert not STYLE.search(on_terminal(WIDE))


def test_names_neither_steer_a_terminal_nor_style_a_table() -> None:
    shown = on_terminal(DataTable(["judge"], [["\x1b[2J\x1b]0;gone\x07[bold]me[/bold]\nx\r:smile:"]]))
    assert "?[2J?]0;gone?[bold]me[/bold] x?:smile:" in STYLE.sub("", shown)
    assert printed("a\x1b[2J\nb") == "a?[2J\nb\n"
