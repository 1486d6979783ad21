"""Notes of batch jobs on disk: whole or not at all, and never in the way."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from debate_judge.programs.lm.batch.job_files import JobFiles
from debate_judge.programs.lm.batch.jobs import BatchJob, JobBook, JobsInMemory, book_of
from debate_judge.programs.lm.journal import Journal
from debate_judge.programs.lm.reply import Memory, Reply

JOB = BatchJob("t1", "http://localhost/v1", "openai/m", "scorer", 2, ("a", "b"), 300, 5.0)


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_jobs_are_noted_replaced_and_struck_out(kind: str, tmp_path: Path) -> None:
    book: JobBook = JobFiles(tmp_path, lambda: None) if kind == "file" else JobsInMemory()
    other = replace(JOB, token="t2", made=6.0)
    book.save(JOB)
    book.save(other)
    assert book.jobs() == [JOB, other]
    made = replace(JOB, id="batch_7")
    book.save(made)
    assert book.jobs() == [made, other]
    book.delete(made)
    book.delete(made)
    assert book.jobs() == [other]


def test_another_process_finds_the_notes_beside_the_replies(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    book_of(journal).save(JOB)
    journal.close()
    assert book_of(Journal(tmp_path)).jobs() == [JOB]
    assert Path(journal.jobs.place(JOB)).parent == tmp_path
    assert isinstance(book_of(Memory()), JobsInMemory)


def test_the_replies_are_on_disk_before_a_job_is_forgotten(tmp_path: Path) -> None:
    book = JobFiles(tmp_path, lambda: flushed.append(len(book.jobs())))
    flushed: list[int] = []
    book.save(JOB)
    book.delete(JOB)
    assert (flushed, book.jobs()) == ([1], [])


def test_a_journal_with_notes_is_read_as_before(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.put("0" * 32, "scorer", Reply("fine"))
    journal.jobs.save(JOB)
    journal.close()
    assert Journal(tmp_path).get("0" * 32) == Reply("fine")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"token": "t1"}', '{"token": "other", "keys": []}'])
def test_what_is_no_note_is_left_alone_and_told(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "t1.job").write_text(text)
    book = JobFiles(tmp_path, lambda: None)
    book.save(replace(JOB, token="t2"))
    with caplog.at_level(logging.WARNING):
        assert [job.token for job in book.jobs()] == ["t2"]
    assert "t1.job" in caplog.text
    assert (tmp_path / "t1.job").exists()


def test_a_note_that_could_not_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    book = JobFiles(tmp_path / "absent", lambda: None)
    with pytest.raises(OSError, match="absent"):
        book.save(JOB)
    assert list(tmp_path.iterdir()) == []
