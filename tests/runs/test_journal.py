"""The replies on disk: found again by every process, as they were, and without secrets."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debate_judge.data.errors import InputError
from debate_judge.optimize.compile import main as compile_main
from debate_judge.programs.lm.journal import Journal
from debate_judge.programs.lm.reply import Reply
from debate_judge.runs import compare
from tests.runs.journals import REPLIES, filled, key


def test_what_is_put_is_got(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for number, reply in enumerate(REPLIES):
        assert journal.get(key(number)) is None
        journal.put(key(number), "scorer", reply)
        assert journal.get(key(number)) == reply
    assert len(journal) == len(REPLIES)
    assert [journal.get(key(n)) for n in range(len(REPLIES))] == REPLIES
    journal.close()


def test_what_is_put_is_got_by_the_next_process(tmp_path: Path) -> None:
    filled(tmp_path, *REPLIES)
    again = Journal(tmp_path)
    assert len(again) == len(REPLIES)
    assert [again.get(key(n)) for n in range(len(REPLIES))] == REPLIES
    assert again.get(key(99)) is None
    again.close()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(), max_size=5))
def test_every_text_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("journal")
    journal = Journal(folder)
    for number, text in enumerate(texts):
        journal.put(key(number), "critic", Reply(text))
    journal.close()
    again = Journal(folder)
    replies = [again.get(key(n)) for n in range(len(texts))]
    assert [reply.text for reply in replies if reply is not None] == texts
    again.close()


def test_nothing_is_written_where_nothing_was_answered(tmp_path: Path) -> None:
    Journal(tmp_path / "a" / "b").close()
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_reply_is_on_disk_when_put_returns(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.put(key(0), "scorer", REPLIES[0])
    other = Journal(tmp_path)
    assert other.get(key(0)) == REPLIES[0]
    other.close()
    journal.close()


def test_replies_of_one_turn_of_the_loop_are_found_at_once_and_written_by_its_end(tmp_path: Path) -> None:
    async def go() -> None:
        journal = Journal(tmp_path)
        for number, reply in enumerate(REPLIES):
            journal.put(key(number), "scorer", reply)
            assert journal.get(key(number)) == reply
        await asyncio.sleep(0)
        other = Journal(tmp_path)
        assert len(other) == len(REPLIES)
        other.close()
        journal.put(key(9), "scorer", REPLIES[0])
        # The loop ends here: closing writes what still waits.
        journal.close()

    asyncio.run(go())
    again = Journal(tmp_path)
    assert again.get(key(9)) == REPLIES[0]
    again.close()


def test_no_key_and_no_secret_is_in_a_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted")
    content = filled(tmp_path, *REPLIES).read_text(encoding="utf-8")
    assert "sk-planted" not in content
    assert content.count('"role": "scorer"') == len(REPLIES)


def test_log_probabilities_come_back_as_they_were(tmp_path: Path) -> None:
    reply = Reply("4", logprobs=((("4", -0.1), ("5", -2.5)), (("\n", -0.01),)))
    filled(tmp_path, reply)
    again = Journal(tmp_path)
    found = again.get(key(0))
    assert found is not None
    assert [[tuple(pair) for pair in token] for token in found.logprobs or ()] == [
        [("4", -0.1), ("5", -2.5)],
        [("\n", -0.01)],
    ]
    again.close()


def test_a_store_that_can_only_be_read_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, *REPLIES)

    def refused(*arguments: Any, **options: Any) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path))

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    with closing(Journal(tmp_path, read_only=True)) as journal:
        assert journal.get(key(0)) == REPLIES[0]
    with pytest.raises(InputError, match="cannot be written") as raised:
        Journal(tmp_path)
    assert raised.value.field == "--store"


@pytest.mark.parametrize("command", [compile_main, compare.main])
def test_a_store_in_the_place_of_a_file_is_an_error_of_input(
    command: Callable[[list[str]], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    assert command(["--data", "sample", "--store", str(tmp_path / "file" / "store")]) == 2
    message = capsys.readouterr().err
    assert "field '--store': cannot be written" in message
    assert "remedy" in message
