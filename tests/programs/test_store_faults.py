"""The store when processes are killed, files are damaged and disks fill up; and folders of older versions."""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.reply import Reply, StoreError, validated_reply, wait_or_claim
from debate_judge.programs.lm.sql import legacy_import
from debate_judge.programs.lm.store import FILE, SqlStore
from debate_judge.runs import compare
from tests.config_keys import keys
from tests.stores import REPLIES, count, get, get_all, key, put

ROOT = Path(__file__).parents[2]
_WRITER = """
import asyncio, sys
from pathlib import Path
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.lm.store import SqlStore
store = SqlStore(Path(sys.argv[1]))
async def go():
    assert await store.get_or_claim("f" * 32) is True
    for number in range(1_000_000):
        await store.put(f"{number:032x}", "scorer", Reply("x" * (number % 5000)))
        print(number, flush=True)
asyncio.run(go())
"""


@pytest.mark.integration
def test_a_killed_process_leaves_every_reply_that_it_was_given_and_no_claim(tmp_path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    last = 0
    while last < 300:
        last = int(writer.stdout.readline())
    with closing(SqlStore(tmp_path)) as store:
        assert asyncio.run(store.get_or_claim("f" * 32)) is False
        os.kill(writer.pid, signal.SIGKILL)
        written = writer.stdout.read().splitlines(keepends=True)
        # Not even waited for by its parent.
        assert asyncio.run(asyncio.wait_for(wait_or_claim(store, "f" * 32), 5)) is None
        writer.wait()
        last = int(([f"{last}\n"] + [line for line in written if line.endswith("\n")])[-1])
        assert get_all(store, last + 1) == [Reply("x" * (number % 5000)) for number in range(last + 1)]
        # Of the reply that was being put there may be all or nothing.
        assert count(store) in (last + 1, last + 2)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_processes_may_open_a_new_folder_at_the_same_moment_and_fork_while_it_is_open(tmp_path: Path) -> None:
    def work(number: int) -> None:
        with pytest.raises(StoreError, match="forked"):
            get(store, key(0))
        barrier.wait(60)
        with closing(SqlStore(tmp_path / "new")) as own, closing(SqlStore(tmp_path / "open")) as shared:
            put(own, key(number), REPLIES[0])
            put(shared, key(number), REPLIES[0])

    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(7)
    with closing(SqlStore(tmp_path / "open")) as store:
        children = [fork.Process(target=work, args=(number,), daemon=True) for number in range(6)]
        for child in children:
            child.start()
        barrier.wait(60)
        put(store, key(9), REPLIES[1])
        for child in children:
            child.join(60)
        assert [child.exitcode for child in children] == [0] * 6
        assert get_all(store, 6) == [REPLIES[0]] * 6
        assert get(store, key(9)) == REPLIES[1]
    assert count(tmp_path / "new") == 6
    with closing(sqlite3.connect(tmp_path / "open" / FILE)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize(
    "content", [b"not a database, but long enough to be looked at " * 100, b"SQLite format 3\0" + bytes(5000)]
)
def test_a_file_that_is_damaged_or_of_something_else_is_refused_and_left_alone(content: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(InputError, match=r"not a database|malformed") as caught:
        SqlStore(tmp_path)
    assert (caught.value.file, caught.value.field) == (str(tmp_path / FILE), "--store")
    assert (tmp_path / FILE).read_bytes() == content


def test_a_disk_that_fills_up_ends_the_run_which_resumes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = ["--data", "sample", "--aspects", "coherence", "--store", str(tmp_path)]
    arguments = [*source, *keys(resamples=100, sources=12)]
    connect = sqlite3.connect

    def small(*given: Any, **options: Any) -> sqlite3.Connection:
        opened = connect(*given, **options)
        opened.execute("PRAGMA max_page_count=20")
        return opened

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", small)
        assert compare.main(arguments) == 2
    message = capsys.readouterr().err
    assert "disk is full" in message
    assert "field '--store'" in message
    assert "Traceback" not in message
    assert compare.main(arguments) == 0


def line(number: int, reply: Reply, **other: object) -> bytes:
    record = {"role": "scorer", "text": reply.text, "input_tokens": reply.input_tokens}
    record |= {"output_tokens": reply.output_tokens, "cached_tokens": reply.cached_tokens, "finish": reply.finish}
    text = json.dumps({**record, "logprobs": reply.logprobs, **other}).encode()
    return b"%b\t%08x\t%b\n" % (key(number).encode(), zlib.crc32(text, zlib.crc32(key(number).encode())), text)


LINES = [line(number, reply) for number, reply in enumerate(REPLIES)]
READ = [
    validated_reply(r.text, (r.input_tokens, r.output_tokens, r.cached_tokens), r.finish, r.logprobs) for r in REPLIES
]


def test_a_folder_of_an_older_version_is_read_once_without_what_is_no_reply(tmp_path: Path) -> None:
    rubbish = [b"", b"\n\n", bytes(5000) + b"\n", b"not a reply\n", b"\xff\xfe\n", b"0" * 33 + b"\n"]
    wrong = [line(9, REPLIES[0], **other) for other in ({"text": 4}, {"text": None}, {"finish": None})]
    (tmp_path / "a.replies").write_bytes(b"".join([*rubbish, *wrong, *LINES, LINES[0][:40]]))
    (tmp_path / "b.replies").write_bytes(LINES[0] + LINES[1])
    for _ in range(2):
        with closing(SqlStore(tmp_path, lm="m")) as store:
            assert get_all(store, 10) == [*READ, *[None] * 6]
        (tmp_path / "b.replies").write_bytes(line(4, REPLIES[0]))
    assert {path.name for path in tmp_path.iterdir()} >= {"a.replies", "b.replies"}


def test_a_line_with_any_byte_changed_is_skipped_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "x.replies"
    content = b"".join(LINES)
    start = len(LINES[0])
    for place in range(start, start + len(LINES[1]), 7):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        caplog.clear()
        rows = list(legacy_import._rows(file, "m"))
        assert [row["key"] for row in rows] == [key(0), key(2), key(3)]
        assert file.name in caplog.text


def test_an_import_that_was_interrupted_starts_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.replies").write_bytes(b"".join(LINES))
    row, calls = legacy_import._row, list[bytes]()

    def interrupted(line: bytes, lm: str) -> Any:
        calls.append(line)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return row(line, lm)

    with monkeypatch.context() as patch:
        patch.setattr(legacy_import, "_CHUNK_SIZE", 1)
        patch.setattr(legacy_import, "_row", interrupted)
        with pytest.raises(KeyboardInterrupt):
            SqlStore(tmp_path)
    with closing(SqlStore(tmp_path)) as store:
        assert get_all(store, 4) == READ


def test_an_estimate_counts_replies_of_older_versions_as_paid(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from debate_judge.runs.estimates.dry_run import _stored_replies

    with _stored_replies(tmp_path) as store:
        assert store is None
    (tmp_path / "x.replies").write_bytes(b"".join(LINES))
    with caplog.at_level(logging.WARNING), _stored_replies(tmp_path) as store:
        assert store is not None
        assert get_all(store, 4) == READ
    assert not caplog.records
