"""Whatever is refused, and however it was given, is refused alike."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from debate_judge.data.errors import InputError
from debate_judge.optimize import cli
from debate_judge.programs.lm.replies import FILE
from tests.refusals import commands, exports, files, formats, functions, made, settings
from tests.refusals.refusal import SECRET, Refusal
from tests.stores import count

PLAIN = r"no (such|questions|answer)|is missing|not (valid|usable|UTF-8)|too long|twice|second|same name|directory"
REMEDY = re.compile(rf"remedy: |expected: |did you mean|there is no command|{PLAIN}")
"""What to do; of what is missing or there twice, and of a syntax, the problem says it by itself."""

TABLES = (commands, functions, settings, files, formats, exports, made)


@pytest.mark.parametrize("refusal", [refusal for table in TABLES for refusal in table.TABLE])
def test_refused(
    refusal: Refusal, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Give it, and require: exit code 2 or `InputError`; field, file, line and keyword named; a way out; no traceback,
    no secret, nothing on standard output, and nothing written."""
    for name, content in (refusal.files or {}).items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    if refusal.change is not None:
        refusal.change(folder)
    if refusal.patch is not None:
        refusal.patch(monkeypatch)
    for variable, value in (refusal.env or {}).items():
        monkeypatch.delenv(variable) if value is None else monkeypatch.setenv(variable, value)
    before = _contents(folder)
    message = _refused(refusal, capsys)
    assert refusal.keyword in message, message
    lines = message.splitlines()
    place = next((line for line in lines if line.startswith("error: ")), lines[0])
    assert refusal.field is None or f"field {refusal.field!r}" in place, message
    assert refusal.file is None or refusal.file in place, message
    assert refusal.line is None or re.search(rf"\b(line|row) {refusal.line}\b", place), message
    assert refusal.plain or REMEDY.search(message), message
    assert "Traceback" not in message
    assert SECRET not in message
    after = _contents(folder)
    changed = {Path(name).name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed <= {*refusal.begun}


def _refused(refusal: Refusal, capsys: pytest.CaptureFixture[str]) -> str:
    """Give it; what is printed on standard error, or the text of the exception."""
    capsys.readouterr()
    if not isinstance(refusal.given, str):
        with pytest.raises(InputError) as caught:
            refusal.given()
        return str(caught.value)
    try:
        code: object = cli.main(shlex.split(refusal.given))
    except SystemExit as ended:
        code = ended.code
    printed = capsys.readouterr()
    assert (code, printed.out) == (refusal.code, ""), printed.err
    return printed.err


def _contents(folder: Path) -> dict[str, bytes]:
    """What stands in its files, and how many replies are stored; of a run that failed the tracking store may know."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__"]
    stored = {str(path): b"%d" % replies for path in files if path.name == FILE and (replies := count(path.parent))}
    return stored | {str(path): path.read_bytes() for path in files if not path.is_relative_to(folder / "runs/store")}
