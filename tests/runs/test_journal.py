"""The replies on disk: found again by anybody, whatever became of the process that wrote them."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable
from contextlib import closing
from io import FileIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debate_judge.data.errors import InputError
from debate_judge.optimize.compile import main as compile_main
from debate_judge.programs.lm import segments
from debate_judge.programs.lm.journal import Journal
from debate_judge.programs.lm.reply import Reply
from debate_judge.runs import compare

ROOT = Path(__file__).parents[2]


def key(number: int) -> str:
    return f"{number:032x}"


def filled(folder: Path, *replies: Reply) -> Path:
    """Write the replies under the keys 0, 1, ... and return the segment."""
    before = set(folder.glob("*"))
    journal = Journal(folder)
    for number, reply in enumerate(replies):
        journal.put(key(number), "scorer", reply)
    journal.close()
    (segment,) = set(folder.glob("*")) - before
    return segment


REPLIES = [
    Reply("[[ ## score ## ]]\n4", 120, 7, 64, "stop"),
    Reply("", 0, 0, 0, "content_filter"),
    Reply('tab\tquote" backslash\\ return\r\nnull\0 line\u2028separator\x85', 1, 2, 0, "length"),
    Reply("Grüße, 世界 🎭 é é", 3, 4),
]


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


# --- kills ---


def test_a_segment_torn_at_any_byte_loses_its_last_line_at_most(tmp_path: Path) -> None:
    segment = filled(tmp_path, *REPLIES)
    content = segment.read_bytes()
    ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
    assert len(ends) == len(REPLIES)
    for size in range(len(content) + 1):
        segment.write_bytes(content[:size])
        whole = sum(end <= size for end in ends)
        journal = Journal(tmp_path)
        assert len(journal) == whole
        assert [journal.get(key(n)) for n in range(len(REPLIES))] == [*REPLIES[:whole], *[None] * (4 - whole)]
        journal.close()


def test_after_a_tear_the_lost_reply_is_asked_for_again_and_kept(tmp_path: Path) -> None:
    segment = filled(tmp_path, *REPLIES)
    segment.write_bytes(segment.read_bytes()[:-5])
    journal = Journal(tmp_path)
    assert journal.get(key(3)) is None
    journal.put(key(3), "scorer", Reply("anew"))
    journal.close()
    again = Journal(tmp_path)
    assert [again.get(key(n)) for n in range(4)] == [*REPLIES[:3], Reply("anew")]
    again.close()


# --- broken lines and full disks ---


def test_a_line_with_any_byte_changed_is_skipped_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    segment = filled(tmp_path, *REPLIES)
    content = segment.read_bytes()
    second = range(content.index(b"\n") + 1, content.index(b"\n", content.index(b"\n") + 1))
    for place in second:
        for byte in (content[place] ^ 1, 0, 255, ord("\t"), ord("\n")):
            if byte == content[place]:
                continue
            segment.write_bytes(content[:place] + bytes([byte]) + content[place + 1 :])
            caplog.clear()
            with closing(Journal(tmp_path)) as journal:
                # The first and the last two are as they were.
                assert [journal.get(key(n)) for n in range(4)] == [REPLIES[0], None, *REPLIES[2:]]
                assert journal.broken > 0
            assert segment.name in caplog.text


@pytest.mark.parametrize("lines", [b"", b"\n\n", b"\x00" * 5000, b"not a reply\n", b"\xff\xfe\n", b"0" * 33 + b"\n"])
def test_what_is_no_reply_stops_nobody(lines: bytes, tmp_path: Path) -> None:
    segment = filled(tmp_path, *REPLIES)
    segment.write_bytes(lines + segment.read_bytes() if lines.endswith(b"\n") else segment.read_bytes() + lines)
    with closing(Journal(tmp_path)) as journal:
        assert [journal.get(key(n)) for n in range(4)] == REPLIES


def test_a_line_that_breaks_while_it_is_in_use_is_a_reply_to_be_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    segment = filled(tmp_path, *REPLIES)
    with closing(Journal(tmp_path)) as journal:
        content = segment.read_bytes()
        segment.write_bytes(content.replace(b"score", b"scare"))
        assert journal.get(key(0)) is None
        assert "asked for again" in caplog.text
        journal.put(key(0), "scorer", REPLIES[0])
        assert journal.get(key(0)) == REPLIES[0]


class FullDisk:
    """Takes `room` bytes of every segment, the last of them in a write that is cut short, and then no more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room: int | None = room
        opened = Path.open
        disk = self

        class Limited(FileIO):
            def write(self, data: Any) -> int:
                if disk.room is None:
                    return super().write(data)
                if disk.room == 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                taken = super().write(memoryview(data)[: disk.room])
                disk.room -= taken
                return taken

        def opening(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            if mode == "ab" and path.suffix == ".replies":
                return Limited(path, "ab")
            return opened(path, mode, *arguments, **options)

        monkeypatch.setattr(Path, "open", opening)


@pytest.mark.parametrize("room", [0, 1, 150, 200, 777])
def test_a_write_that_is_cut_short_leaves_nothing_behind_and_the_rest_is_written_when_there_is_room(
    room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch, room)
    journal = Journal(tmp_path)

    def fill() -> None:
        for number in range(20):
            journal.put(key(number), "scorer", REPLIES[0])

    with pytest.raises(InputError, match="No space left"):
        fill()
    whole = b"".join(path.read_bytes() for path in tmp_path.glob("*.replies"))
    assert whole.endswith(b"\n") or not whole
    disk.room = None
    journal.close()
    with closing(Journal(tmp_path)) as again:
        assert again.broken == 0
        # All that was taken, and none that was refused.
        assert [again.get(key(n)) for n in range(len(again))] == [REPLIES[0]] * len(again)
        assert len(again) == len(journal)


def test_a_disk_that_fills_up_ends_the_run_which_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--data", "sample", "--aspects", "coherence", "--store", str(tmp_path), "--resamples", "100"]
    disk = FullDisk(monkeypatch, 20_000)
    assert compare.main(arguments) == 2
    message = capsys.readouterr().err
    assert "No space left" in message
    assert "field '--store'" in message
    assert "Traceback" not in message
    disk.room = None
    assert compare.main(arguments) == 0


def test_what_is_written_is_forced_to_the_disk_soon_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, size = threading.Event(), list[int]()

    def fsync(file: int) -> None:
        size.append(os.fstat(file).st_size)
        synced.set()

    monkeypatch.setattr(segments, "_SYNC", 0.0)
    monkeypatch.setattr(os, "fsync", fsync)
    journal = Journal(tmp_path)
    journal.put(key(0), "scorer", REPLIES[0])
    assert synced.wait(60)
    journal.put(key(1), "scorer", REPLIES[1])
    journal.close()
    assert size[-1] == sum(path.stat().st_size for path in tmp_path.glob("*.replies"))


_MANY = """
import resource, sys
from contextlib import closing
from pathlib import Path
from debate_judge.programs.lm.journal import Journal
from debate_judge.programs.lm.reply import Reply
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
for number in range(400):
    with closing(Journal(Path(sys.argv[1]))) as journal:
        journal.put(f"{number:032x}", "scorer", Reply(str(number)))
        assert journal.get(f"{number // 2:032x}") == Reply(str(number // 2))
with closing(Journal(Path(sys.argv[1]))) as journal:
    assert [journal.get(f"{n:032x}") for n in range(400)] == [Reply(str(n)) for n in range(400)]
"""


def test_a_store_that_many_runs_have_used_needs_few_open_files(tmp_path: Path) -> None:
    pytest.importorskip("resource")
    done = subprocess.run([sys.executable, "-c", _MANY, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


_WRITER = """
import sys
from pathlib import Path
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.lm.journal import Journal
journal = Journal(Path(sys.argv[1]))
number = 0
while True:
    journal.put(f"{number:032x}", "scorer", Reply("x" * (number % 5000)))
    print(number, flush=True)
    number += 1
"""


def test_a_killed_process_leaves_every_reply_that_it_was_given(tmp_path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    last = 0
    while last < 300:
        last = int(writer.stdout.readline())
    os.kill(writer.pid, signal.SIGKILL)
    written = writer.stdout.read().splitlines(keepends=True)
    writer.wait()
    last = int(([f"{last}\n"] + [line for line in written if line.endswith("\n")])[-1])
    journal = Journal(tmp_path)
    for number in range(last + 1):
        assert journal.get(key(number)) == Reply("x" * (number % 5000))
    # Of the reply that was being put there may be all or nothing.
    assert len(journal) in (last + 1, last + 2)
    journal.close()


# --- several processes and threads ---


def test_several_segments_are_one_journal(tmp_path: Path) -> None:
    for number, reply in enumerate(REPLIES):
        journal = Journal(tmp_path)
        assert len(journal) == number
        journal.put(key(number), "scorer", reply)
        journal.close()
    assert len(list(tmp_path.glob("*.replies"))) == len(REPLIES)
    again = Journal(tmp_path)
    assert [again.get(key(n)) for n in range(len(REPLIES))] == REPLIES
    again.close()


def _write(folder: Path, first: int) -> None:
    journal = Journal(folder)
    for number in range(first, first + 50):
        journal.put(key(number), "scorer", Reply(f"{number} " + "é" * number))
    journal.close()


def test_processes_write_side_by_side(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(tmp_path, 50 * i)) for i in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    journal = Journal(tmp_path)
    assert len(journal) == 150
    assert all(journal.get(key(n)) == Reply(f"{n} " + "é" * n) for n in range(150))
    journal.close()


def test_a_process_sees_what_was_there_when_it_began(tmp_path: Path) -> None:
    first, second = Journal(tmp_path), Journal(tmp_path)
    first.put(key(0), "scorer", REPLIES[0])
    third = Journal(tmp_path)
    assert second.get(key(0)) is None
    assert third.get(key(0)) == REPLIES[0]
    for journal in (first, second, third):
        journal.close()


def test_threads_may_put_at_the_same_time(tmp_path: Path) -> None:
    journal = Journal(tmp_path)

    def put(first: int) -> None:
        for number in range(first, first + 200):
            journal.put(key(number), "proposer", Reply(f"reply {number}"))

    threads = [threading.Thread(target=put, args=(200 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    again = Journal(tmp_path)
    assert all(again.get(key(n)) == Reply(f"reply {n}") for n in range(800))
    again.close()


def test_threads_may_get_at_the_same_time(tmp_path: Path) -> None:
    filled(tmp_path, *(Reply(f"{n} " + "x" * (37 * n)) for n in range(200)))
    journal, wrong = Journal(tmp_path), []

    def get() -> None:
        for number in [*range(200), *range(199, -1, -1)] * 5:
            try:
                reply = journal.get(key(number))
            except ValueError as error:
                wrong.append(error)
                return
            if reply is None or not reply.text.startswith(f"{number} "):
                wrong.append(ValueError(f"{number}: {reply}"[:80]))
                return

    threads = [threading.Thread(target=get) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    assert wrong == []


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


def test_a_full_disk_ends_the_run_and_loses_no_reply_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("the system has no /dev/full")
    opened = Path.open

    def opening(self: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        return opened(full if self.suffix == ".replies" and mode == "ab" else self, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", opening)
    (tmp_path / "x.replies").touch()

    async def run() -> None:
        journal.put(key(1), "scorer", REPLIES[0])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        # The run that asked for it has it; the next reply is not taken.
        assert journal.get(key(1)) == REPLIES[0]
        journal.put(key(2), "scorer", REPLIES[0])

    journal = Journal(tmp_path)
    monkeypatch.setattr(uuid, "uuid4", lambda: SimpleNamespace(hex="x"))
    with pytest.raises(InputError, match="No space left") as raised:
        asyncio.run(run())
    assert raised.value.field == "--store"
    with pytest.raises(InputError):
        journal.close()


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
