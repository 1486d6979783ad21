"""Replies on disk when processes are killed, lines break and disks fill up."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
import uuid
from contextlib import closing
from io import FileIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from debate_judge.data.errors import InputError
from debate_judge.programs.lm import segments
from debate_judge.programs.lm.journal import Journal
from debate_judge.programs.lm.reply import Reply
from debate_judge.runs import compare
from tests.runs.journals import REPLIES, filled, key

ROOT = Path(__file__).parents[2]


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
