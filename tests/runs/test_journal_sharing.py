"""A journal that several processes and threads use at once."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path

from debate_judge.programs.lm.journal import Journal
from debate_judge.programs.lm.reply import Reply
from tests.runs.journals import REPLIES, filled, key


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
