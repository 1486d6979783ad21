"""Sentences in lines that fit: in the help of commands, in what they print, and in their errors on a terminal."""

from __future__ import annotations

import io
import re

import pytest

from debate_judge.data.errors import InputError
from debate_judge.optimize.cli import main
from debate_judge.runs.flags.invocation import COMMANDS
from debate_judge.runs.flags.parser import exit_code
from debate_judge.runs.flags.prose import wrapped
from debate_judge.runs.reports.terminal import Verbatim, show
from tests.printed import printed

SENTENCE = "These sources cannot tell whether the judge is better than a single call of the same LM. " * 3
COMMAND = "  debate compile --data ratings.csv --task summarization --lm openai/gpt-4o-mini " + "--name my-judge " * 3


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_and_its_commands_stay_whole(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([name, "--help"])
    lines = capsys.readouterr().out.splitlines()
    examples = [line for line in lines if line.startswith("    debate ")]
    assert examples
    assert [line for line in lines if len(line) > 100 and line not in examples] == []
    # A command that had been broken would go on in a line that begins with a flag or a value.
    after = [lines[number + 1] for number, line in enumerate(lines) if line in examples]
    assert [line for line in after if line and not line.startswith("    debate ")] == []


def test_sentences_are_wrapped_and_what_is_to_be_copied_is_not() -> None:
    lines = printed(SENTENCE.strip(), Verbatim(COMMAND), "short").splitlines()
    assert lines[-2:] == [COMMAND, "short"]
    assert max(map(len, lines[:-2])) <= 100
    assert all(line.startswith("  ") for line in lines[1:-2]), "it is seen where a sentence goes on"
    assert " ".join(" ".join(lines[:-2]).split()) == SENTENCE.strip()


@pytest.mark.parametrize(("columns", "most"), [(40, 40), (400, 100)])
def test_a_terminal_has_its_own_width(columns: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = Terminal()
    show(SENTENCE, to=out)
    longest = max(map(len, out.getvalue().splitlines()))
    assert most - len("sources ") <= longest <= most


@pytest.mark.parametrize("width", range(30, 60))
def test_no_figure_is_parted_from_its_interval(width: int) -> None:
    text = "Yes, by 0.12 [0.09, 0.16] and -0.04 [-0.14, 0.06], on /an/address/that/is/longer/than/any/line/may/be now."
    shown = wrapped(text, width)
    assert re.findall(r"[-.\d]+ \[[^\]]*\]", shown) == ["0.12 [0.09, 0.16]", "-0.04 [-0.14, 0.06]"]
    assert "/an/address/that/is/longer/than/any/line/may/be" in shown


def test_an_error_is_wrapped_on_a_terminal_and_whole_in_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ", ".join(f"set-{number}" for number in range(60))

    def fail() -> int:
        raise InputError("unknown data 'x'", field="--data", expected=known)

    shown = {}
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr("sys.stderr", stream)
        assert exit_code(fail) == 2
        shown[stream.isatty()] = stream.getvalue()
    assert f"\n  expected: {known}\n" in shown[False]
    assert max(map(len, shown[True].splitlines())) <= 100
    assert " ".join(shown[True].split()) == " ".join(shown[False].split())
